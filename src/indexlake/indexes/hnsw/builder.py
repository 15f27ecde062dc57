"""Builds vector segments, from columns or from other segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from indexlake.indexes.hnsw import graph, header
from indexlake.indexes.hnsw.header import Facts
from indexlake.indexes.hnsw.metric import unit
from indexlake.indexes.hnsw.nearby import nearby
from indexlake.indexes.hnsw.places import grouped
from indexlake.indexes.hnsw.segment import VectorSegment, as_compared
from indexlake.indexes.kind import Content

if TYPE_CHECKING:
    import pyarrow as pa

Validity = npt.NDArray[np.bool_]


class VectorSegmentBuilder:
    """Collects vectors block by block.  Without ``lasting``, no graph is built."""

    def __init__(self, params: Mapping[str, Any], type: pa.FixedSizeListType, *, lasting: bool) -> None:
        self._params = params
        self._dtype = np.dtype(type.value_type.to_pandas_dtype())
        self._dimension = type.list_size
        self._lasting = lasting
        self._starts = [0]
        self._slots = 0
        self._validity: list[Validity] = []
        self._vectors: list[npt.NDArray[Any]] = []

    def add(self, columns: Sequence[pa.Array]) -> None:
        values, valid = _items(columns[0], self._dtype, self._dimension)
        valid &= np.isfinite(values).all(axis=1)
        if self._params["metric"] == "cosine":
            valid &= values.any(axis=1)
        found = values if valid.all() else values[valid]
        if self._params["metric"] == "cosine" and self._dtype == np.float32:
            found = unit(found)
        self._validity.append(valid)
        self._vectors.append(found)
        self._slots += len(valid)

    def end_block(self) -> None:
        self._starts.append(self._slots)

    def content(self) -> Content:
        return _content(self._params, self._starts, self._validity, self._joined(), lasting=self._lasting)

    def _joined(self) -> npt.NDArray[Any]:
        vectors, self._vectors = self._vectors, []  # released, since building the graph takes memory
        if len(vectors) == 1:
            return np.ascontiguousarray(vectors[0])
        return np.concatenate([np.empty((0, self._dimension), self._dtype), *vectors])


def merged(params: Mapping[str, Any], inputs: Sequence[tuple[VectorSegment, Sequence[int]]]) -> Content:
    """Return one segment made from blocks of several.  The graph is rebuilt."""
    starts = [0]
    validity: list[Validity] = []
    vectors: list[npt.NDArray[Any]] = []
    narrow = all(segment.facts.item_size == 2 for segment, _ in inputs)
    for segment, ordinals in inputs:
        valid = segment.validity()
        before = np.concatenate(([0], np.cumsum(valid)))
        groups = segment.groups()
        stored = segment.stored() if narrow else segment.vectors()
        for ordinal in ordinals:
            first, last = segment.starts[ordinal], segment.starts[ordinal + 1]
            validity.append(valid[first:last])
            here = slice(before[first], before[last])
            vectors.append(stored[here if groups is None else groups[here]])
            starts.append(starts[-1] + last - first)
    dimension = inputs[0][0].facts.dimension
    dtype = np.float16 if narrow else np.float32
    return _content(params, starts, validity, np.concatenate([np.empty((0, dimension), dtype), *vectors]), lasting=True)


def _content(
    params: Mapping[str, Any], starts: list[int], validity: list[Validity], vectors: npt.NDArray[Any], *, lasting: bool
) -> Content:
    slots, (found, dimension) = starts[-1], vectors.shape
    bits = np.packbits(np.concatenate(validity), bitorder="little") if found < slots else b""
    groups: Any = b""
    made = None
    if lasting and graph.may_pay(found, dimension, params["ef_search"]):
        first, of = grouped(vectors)
        if len(first) < found:
            vectors, groups = vectors[first], of
        compared = as_compared(params["metric"], vectors)
        if graph.may_pay(len(vectors), dimension, params["ef_search"]) and graph.is_possible(compared):
            order = nearby(compared)
            vectors, groups = vectors[order], np.argsort(order).astype("<u4")[of]
            compared = as_compared(params["metric"], vectors)
            made = graph.build(params["metric"], compared, params["m"], params["ef_construction"], params["ef_search"])
    facts = Facts(
        params["metric"], vectors.itemsize, dimension, params["m"], made.breadth if made else 0, slots, found,
        len(vectors), made.entry if made else 0,
    )  # fmt: skip
    little = vectors.astype(vectors.dtype.newbyteorder("<"), copy=False)
    links = ([made.levels], [made.links]) if made else ([], [])
    return Content(header.assemble(facts, [[np.array(starts, "<i8")], [bits], [groups], [little], *links]))


def _items(column: pa.Array, dtype: np.dtype[Any], dimension: int) -> tuple[npt.NDArray[Any], Validity]:
    """Return the numbers of each list, and which lists contain no null; the numbers of others mean nothing."""
    count = len(column)
    items = column.values.slice(column.offset * dimension, count * dimension)
    data = np.frombuffer(items.buffers()[1] or b"", dtype)[items.offset : items.offset + len(items)]
    values = data.reshape(count, dimension)
    valid = np.ones(count, np.bool_) if not column.null_count else np.array(column.is_valid())
    if items.null_count:
        valid &= np.asarray(items.is_valid()).reshape(count, dimension).all(axis=1)
    return values, valid
