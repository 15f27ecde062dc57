"""``Search``: the best k rows of one snapshot, by one index or by several.

The answer is that of all visible rows, whatever is indexed and wherever rows lie: statistics are gathered over all
parts before any of them scores, and visibility and ``where`` come before each part's best k.  There are min(k, matches)
rows always.  The snapshot is fixed at the first execution and kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.catalog.index_definitions import no_index
from indexlake.display import FIRST_ROWS, html_rows, html_text, shown
from indexlake.errors import ExpressionError, SchemaError
from indexlake.indexes.kind import whole_number
from indexlake.indexes.registry import kind_if_known, kind_named
from indexlake.scan.fuse import fuse_weights, fused
from indexlake.scan.ranked import Chosen, Ranked, read_rows
from indexlake.scan.result import Result
from indexlake.scan.scan import bind_predicate, check_text, checked_columns
from indexlake.scan.search_parts import Looked, Parts
from indexlake.scan.search_sources import BlocksSource, RowsSource
from indexlake.schema import ROW_ID, Field

if TYPE_CHECKING:
    from indexlake.indexes.coverage import Coverage
    from indexlake.schema import TableSchema
    from indexlake.snapshots.reading import Reading
    from indexlake.storage import Storage
    from indexlake.table import Table

SCORE, SNIPPET = "_score", "_snippet"


@dataclass(frozen=True, slots=True)
class SearchExplanation:
    """What a search looked through; prints itself."""

    table: str
    snapshot_id: int
    indexes: tuple[str, ...]
    segments: int
    hot_rows: int
    blocks_scanned: int
    where: str | None
    found_by: str | None

    def __str__(self) -> str:
        where = f" where {self.where}, found by {self.found_by}" if self.where else ""
        return (
            f"search {self.table} at snapshot {self.snapshot_id} by {', '.join(self.indexes)}{where}\n"
            f"  {self.segments:,} segments, {self.hot_rows:,} rows in memory, "
            f"{self.blocks_scanned:,} blocks without a segment"
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_text(str(self))


class Search(Result):
    """Made by ``table.search``."""

    def __init__(
        self,
        table: Table,
        by: Any,
        query: Any,
        k: int,
        where: str | None,
        params: Mapping[str, Any] | Sequence[Any] | None,
        columns: Sequence[str] | None,
        snippet: bool,
        fuse: Any,
        options: Mapping[str, Any],
    ) -> None:
        count = whole_number(k)
        if count is None or count < 0:
            raise ExpressionError(f"k is how many rows to find: a whole number, 0 or more; got {k!r}.")
        if where is not None:
            check_text(where)
        self._table = table
        self._queries = _queries(by, query, options)
        self._weights = fuse_weights(fuse, len(self._queries))
        self._k, self._where, self._params = count, where, params
        self._columns = checked_columns(columns)
        self._snippet = snippet
        self._snapshot: int | None = None

    def __reduce__(self) -> Any:
        raise TypeError("A Search belongs to the process that made it and cannot be pickled. Pickle its result.")

    def _repr_html_(self) -> str:
        """The rows that are found, which are few."""
        return shown(lambda: html_rows(self.head(FIRST_ROWS), caption=repr(self)[1:-1]))

    def __repr__(self) -> str:
        by = ", ".join(asked.name for asked in self._queries)
        where = f" where {self._where}" if self._where else ""
        return f"<Search of {self._table.name} by {by}{where}, k={self._k}>"

    def _own_storage(self) -> Storage:
        return self._table._lake.storage

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot that the search reads; None before it has begun."""
        return self._snapshot

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        with self._table._reading(self._snapshot) as reading:
            found = [index_for(reading, asked.name, self._table._name) for asked in self._queries]
            return self._shown(self._fields(reading.schema, found), found)

    def _added(self, indexes: Sequence[Coverage]) -> list[str]:
        """The columns that the search adds to those of the table."""
        measure = SCORE if len(indexes) > 1 else kind_named(indexes[0].index.kind).measure
        assert measure is not None
        return [measure, SNIPPET] if self._snippet else [measure]

    def _fields(self, schema: TableSchema, indexes: Sequence[Coverage]) -> list[Field]:
        added = self._added(indexes)
        names = schema.names
        if self._columns is not None:
            names = tuple(c for c in self._columns if c.lower() not in (ROW_ID, *added))
        fields = list(schema.project(names))
        if len({f.name for f in fields}) < len(fields):
            raise SchemaError("columns names a column twice.")
        for f in fields:
            if f.name.lower() in added:
                raise SchemaError(
                    f"Column {f.name!r} has the name of a column that the search adds. Leave it out with columns=[…], "
                    "or rename it.",
                    column=f.name,
                )
        return fields

    def _shown(self, fields: Sequence[Field], indexes: Sequence[Coverage]) -> pa.Schema:
        shown = [f.arrow() for f in fields]
        if self._columns is not None and ROW_ID in map(str.lower, self._columns):
            shown.append(pa.field(ROW_ID, pa.int64(), False))
        measure, *snippet = self._added(indexes)
        shown.append(pa.field(measure, pa.float64(), False))
        shown += [pa.field(name, pa.string()) for name in snippet]
        return pa.schema(shown)

    # ------------------------------------------------------------ running

    def _run(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        result = self._find()
        return result.schema, iter(result.to_batches(max_chunksize=65_536))

    def to_arrow(self) -> pa.Table:
        """The whole result in memory."""
        return self._find()

    def _find(self, explained: list[SearchExplanation] | None = None) -> pa.Table:
        table = self._table
        lake = table._lake
        lake._check()
        with table._reading(self._snapshot) as reading:
            schema = reading.schema
            found = [index_for(reading, asked.name, table._name) for asked in self._queries]
            queries = [
                kind_named(c.index.kind).query(c.index, c.index.fields(schema), asked.query, asked.options)
                for c, asked in zip(found, self._queries, strict=True)
            ]
            fields = self._fields(schema, found)
            text = self._text_field(found, schema) if self._snippet else None
            needed = [*fields, *([text] if text is not None else [])]
            predicate = None if self._where is None else bind_predicate(self._where, schema, self._params)
            parts = Parts(reading, lake, predicate, needed, lake._remembered)
        self._snapshot = reading.snapshot
        schema_shown = self._shown(fields, found)
        with lake._pins.pin(reading.snapshot):
            ranked, chosen, scores = self._best(parts, found, queries)
            if explained is not None:
                explained.append(self._explain(parts, found, ranked))
            columns = read_rows(ranked, chosen, needed)
            arrays = columns[: len(fields)]
            if ROW_ID in schema_shown.names:
                arrays.append(pa.array(chosen.row_ids(ranked)))
        arrays.append(pa.array(scores, pa.float64()))
        if text is not None:
            arrays.append(self._snippets(found, queries, columns[-1]))
        return pa.Table.from_arrays(arrays, schema=schema_shown)

    def _best(
        self, parts: Parts, indexes: Sequence[Coverage], queries: Sequence[Any]
    ) -> tuple[list[Ranked], Chosen, npt.NDArray[np.float64]]:
        """The ranking of each index, and of the best rows where they are and the score to show."""
        looked = [parts.looked(coverage) for coverage in indexes]
        if len(indexes) == 1:
            ranked = [_ranked(indexes[0], queries[0], looked[0], self._k)]
            count = len(ranked[0].scores)
            return ranked, Chosen(np.zeros(count, np.int64), np.arange(count)), ranked[0].scores
        depth = max(100, 10 * self._k)
        while True:
            ranked = [_ranked(c, q, each, depth) for c, q, each in zip(indexes, queries, looked, strict=True)]
            chosen, scores = fused(
                [r.row_ids() for r in ranked],
                [r.scores for r in ranked],
                [kind_named(c.index.kind).measure == SCORE for c in indexes],
                self._weights,
            )
            if len(chosen) >= self._k or all(len(r.scores) < depth for r in ranked):
                rankings, places = np.array(chosen[: self._k], np.int64).reshape(-1, 2).T
                return ranked, Chosen(rankings, places), scores[: self._k]
            depth *= 8

    def _text_field(self, indexes: Sequence[Coverage], schema: TableSchema) -> Field:
        for coverage in indexes:
            if kind_named(coverage.index.kind).measure == SCORE:
                return coverage.index.fields(schema)[0]
        raise ExpressionError("snippet=True shows found text: search a bm25 index with it.")

    def _snippets(self, indexes: Sequence[Coverage], queries: Sequence[Any], values: pa.Array) -> pa.Array:
        for coverage, query in zip(indexes, queries, strict=True):
            kind = kind_named(coverage.index.kind)
            if kind.measure == SCORE:
                return pa.array(kind.snippets(coverage.index, query, values.to_pylist()), pa.string())
        raise AssertionError("no index of text")

    def explain(self) -> SearchExplanation:
        """What the search looks through; runs it."""
        explained: list[SearchExplanation] = []
        self._find(explained)
        return explained[0]

    def _explain(self, parts: Parts, indexes: Sequence[Coverage], ranked: Sequence[Ranked]) -> SearchExplanation:
        segments = sum(isinstance(source, BlocksSource) for r in ranked for source in r.sources)
        rows = sum(source.count for source in ranked[0].sources if type(source) is RowsSource)
        return SearchExplanation(
            self._table._name, parts.reading.snapshot, tuple(c.index.name for c in indexes), segments, rows,
            parts.scanned, self._where, parts.where.found_by if parts.where is not None else None,
        )  # fmt: skip


def _ranked(coverage: Coverage, query: Any, looked: Looked, k: int) -> Ranked:
    hits = kind_named(coverage.index.kind).search(coverage.index, query, looked.parts, k)
    return Ranked(looked.sources, hits.parts, hits.slots, hits.scores)


class _Asked(NamedTuple):
    """What is looked for through one index."""

    name: str
    query: Any
    options: Mapping[str, Any]


def _queries(by: Any, query: Any, options: Mapping[str, Any]) -> list[_Asked]:
    """One index with its query, or several of both, each with options of its own if it has any."""
    if isinstance(by, str):
        return [_Asked(by, query, options)]
    given = [tuple(each) for each in by] if isinstance(by, list | tuple) and all(map(_is_pair, by)) else []
    if query is not None or not given:
        raise ExpressionError(
            'Search by the name of an index or column and a query, as in t.search("note", "late parcel"), or by '
            'several of them: t.search([("note", "late parcel"), ("vec", [0.1, 0.2])]).'
        )
    return [_Asked(each[0], each[1], {**options, **(each[2] if len(each) > 2 else {})}) for each in given]


def _is_pair(each: Any) -> bool:
    """A name and a query, and perhaps options."""
    return (
        isinstance(each, list | tuple)
        and len(each) in (2, 3)
        and isinstance(each[0], str)
        and (len(each) == 2 or isinstance(each[2], Mapping))
    )


def index_for(reading: Reading, name: str, table: str) -> Coverage:
    """The index of that name, or the one that searches the column of that name."""
    usable = [
        c
        for c in reading.state.indexes.values()
        if not c.index.is_primary and c.index.serves(reading.snapshot, reading.schema)
    ]
    # First those that were there at the snapshot: another one may have their name now.
    ranked = sorted(usable, key=lambda c: (c.index.begin_snapshot > reading.snapshot, -c.index.begin_snapshot))
    for coverage in ranked:
        if coverage.index.name.lower() == name.lower():
            return coverage
    live = [c for c in usable if c.index.end_snapshot is None]
    column = reading.schema.by_name.get(name.lower())
    searching = [
        c
        for c in ranked
        if getattr(kind_if_known(c.index.kind), "measure", None) is not None
        and column is not None
        and column in c.index.fields(reading.schema)
    ]
    on = [c for c in searching if c.index.begin_snapshot <= reading.snapshot] or [c for c in searching if c in live]
    if len(on) == 1:
        return on[0]
    if on:
        names = ", ".join(repr(c.index.name) for c in on)
        raise ExpressionError(f"Column {name!r} of table {table!r} has several indexes to search: name one of {names}.")
    if column is not None:
        raise ExpressionError(
            f"Column {column.name!r} of table {table!r} has no index to search. Create one, for text for example: "
            f't.create_index("{column.name}_text", "{column.name}", kind="bm25").'
        )
    raise no_index(table, name, [c.index.name for c in live])
