"""The kind "hnsw": nearest vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indexlake.errors import SchemaError
from indexlake.indexes.hnsw.builder import VectorSegmentBuilder, merged
from indexlake.indexes.hnsw.library import faiss
from indexlake.indexes.hnsw.metric import METRICS
from indexlake.indexes.hnsw.query import MAX_EF, VectorQuery, vector_query
from indexlake.indexes.hnsw.search import search
from indexlake.indexes.hnsw.segment import VectorSegment
from indexlake.indexes.kind import (
    Content,
    Hits,
    IndexKind,
    Part,
    Slots,
    refuse_include,
    refuse_params,
    refuse_unique,
    whole_number,
)

if TYPE_CHECKING:
    from indexlake.indexes.index import Index
    from indexlake.schema import Field
    from indexlake.storage import InputFile

_DEFAULTS: dict[str, Any] = {"metric": "l2", "m": 16, "ef_construction": 100, "ef_search": None}
_RANGES = {"m": (4, 128), "ef_construction": (8, 4096), "ef_search": (1, MAX_EF)}


class Hnsw(IndexKind):
    """Finds the rows whose vectors are nearest to a vector, by the distance of its ``metric`` (`hnsw.metric`).

    Rows whose vector is null, contains a null, NaN or infinity, or is all zero under cosine, are never found.

    Parameters: ``metric`` is 'l2', 'cosine' or 'ip'.  ``m`` is the number of links of a vector, and ``ef_construction``
    the number of candidates for them.  ``ef_search`` is how broadly graphs are searched; by default (None) as broadly
    as was found necessary, when the graph was built, to find 98 % of the nearest ten.
    """

    name = "hnsw"
    measure = "_distance"
    slow = True
    most_rows = 1 << 19

    def define(
        self, fields: Sequence[Field], include: Sequence[Field], unique: bool, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        refuse_unique("hnsw", unique)
        refuse_include("hnsw", include)
        refuse_params("hnsw", params, _DEFAULTS)
        if len(fields) != 1:
            raise SchemaError(
                f"An hnsw index covers one column of vectors, not {len(fields)}. Create an index for each."
            )
        field = fields[0]
        if not _is_vector(field.type):
            raise SchemaError(
                f"Column {field.name!r} is of type {field.type}; an hnsw index needs a column of vectors, fixed-size "
                "lists of float32 or float16, for example pa.list_(pa.float32(), 384).",
                column=field.name,
            )
        kept = {**_DEFAULTS, **params}
        if kept["metric"] not in METRICS:
            raise SchemaError(f"There is no metric {kept['metric']!r}; there are {', '.join(METRICS)}.")
        for name, (low, high) in _RANGES.items():
            if kept[name] is None and _DEFAULTS[name] is None:
                continue
            value = whole_number(kept[name])
            if value is None or not low <= value <= high:
                raise SchemaError(f"The parameter {name!r} is a whole number from {low} to {high}, not {kept[name]!r}.")
            kept[name] = value
        faiss()
        return kept

    def builder(self, index: Index, fields: Sequence[Field], *, lasting: bool) -> VectorSegmentBuilder:
        return VectorSegmentBuilder(index.params, fields[0].type, lasting=lasting)

    def open(self, index: Index, file: InputFile) -> VectorSegment:
        return VectorSegment(file, index.params["metric"])

    def merge(self, index: Index, inputs: Sequence[tuple[VectorSegment, Sequence[int]]]) -> Content:
        """Merge segments.  Meanwhile the vectors are in memory twice, as well as the graph."""
        return merged(index.params, inputs)

    def query(self, index: Index, fields: Sequence[Field], query: Any, options: Mapping[str, Any]) -> VectorQuery:
        """Check a query: a list, tuple, NumPy array or Arrow value; options ``ef`` (breadth) and ``exact=True``."""
        return vector_query(fields[0].name, fields[0].type.list_size, index.params["metric"], query, options)

    def search(self, index: Index, query: VectorQuery, parts: Sequence[Part], k: int) -> Hits:
        return search(index.params, query, parts, k)

    def values(self, segment: VectorSegment, slots: Slots, type: pa.FixedSizeListType) -> pa.Array | None:
        if segment.is_at_length_one:
            return None
        items = pa.array(segment.stored()[segment.places().rows_of(slots)].reshape(-1))
        return pa.FixedSizeListArray.from_arrays(items, type=type) if items.type == type.value_type else None


def _is_vector(type: pa.DataType) -> bool:
    return bool(
        pa.types.is_fixed_size_list(type)
        and (pa.types.is_float32(type.value_type) or pa.types.is_float16(type.value_type))
        and type.list_size
    )
