"""The kind "bm25": full-text search with phrases, prefixes and fuzzy words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indexlake.errors import SchemaError
from indexlake.indexes.bm25.analysis import analyser_of
from indexlake.indexes.bm25.builder import Builder
from indexlake.indexes.bm25.folding import fold
from indexlake.indexes.bm25.params import checked
from indexlake.indexes.bm25.parser import parse
from indexlake.indexes.bm25.query import TextQuery
from indexlake.indexes.bm25.search import search
from indexlake.indexes.bm25.segment import Segment
from indexlake.indexes.bm25.snippets import snippet
from indexlake.indexes.kind import Content, Hits, IndexKind, Part, refuse_include, refuse_unique

if TYPE_CHECKING:
    from indexlake.indexes.index import Index
    from indexlake.schema import Field
    from indexlake.storage import InputFile


class Bm25(IndexKind):
    name = "bm25"
    measure = "_score"
    ranks_by_all = True

    def define(
        self, fields: Sequence[Field], include: Sequence[Field], unique: bool, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        refuse_unique(self.name, unique)
        refuse_include(self.name, include)
        if len(fields) != 1:
            raise SchemaError(f"A bm25 index covers one column, not {len(fields)}. Create an index for each.")
        field = fields[0]
        if not pa.types.is_string(field.type) and not pa.types.is_large_string(field.type):
            raise SchemaError(
                f"Column {field.name!r} is of type {field.type}; a bm25 index needs a column of text.",
                column=field.name,
            )
        return checked(params)

    def builder(self, index: Index, fields: Sequence[Field], *, lasting: bool) -> Builder:
        return Builder(index.params)

    def open(self, index: Index, file: InputFile) -> Segment:
        return Segment(file)

    def merge(self, index: Index, inputs: Sequence[tuple[Segment, Sequence[int]]]) -> Content:
        return Content(fold(inputs, index.params))

    def query(self, index: Index, fields: Sequence[Field], query: Any, options: Mapping[str, Any]) -> TextQuery:
        return parse(query, options, index.params)

    def search(self, index: Index, query: TextQuery, parts: Sequence[Part], k: int) -> Hits:
        return search(query, parts, k, index.params)

    def snippets(self, index: Index, query: TextQuery, values: Sequence[Any]) -> list[str | None]:
        analyser = analyser_of(index.params)
        return [None if value is None else snippet(query, analyser, value) for value in values]
