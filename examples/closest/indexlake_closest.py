"""The index kind "closest": the rows whose number is closest to a given one.

    t.create_index("by_total", "total", kind="closest")
    t.search("by_total", 100.0, k=3)  # with _distance

A segment is the count of its blocks, where each begins, and the number of every row as float64; NaN stands for null,
and is never found.  Sorting them would make searches faster; it is left out to show what a kind needs, and nothing
else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from indexlake.errors import CorruptionError, ExpressionError, SchemaError
from indexlake.indexes.index import Index
from indexlake.indexes.kind import (
    Content,
    Hits,
    IndexKind,
    Part,
    refuse_include,
    refuse_params,
    refuse_unique,
)
from indexlake.schema import Field
from indexlake.storage import InputFile


class Closest(IndexKind):
    name = "closest"
    measure = "_distance"

    def define(
        self, fields: Sequence[Field], include: Sequence[Field], unique: bool, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        refuse_unique(self.name, unique)
        refuse_include(self.name, include)
        refuse_params(self.name, params, ())
        numbers = [f for f in fields if pa.types.is_integer(f.type) or pa.types.is_floating(f.type)]
        if len(fields) != 1 or not numbers:
            raise SchemaError("A closest index is on one column of numbers.")
        return {}

    def builder(self, index: Index, fields: Sequence[Field], *, lasting: bool) -> Builder:
        return Builder()

    def open(self, index: Index, file: InputFile) -> Segment:
        return Segment(file)

    def merge(self, index: Index, inputs: Sequence[tuple[Segment, Sequence[int]]]) -> Content:
        blocks = [
            segment.values[segment.starts[n] : segment.starts[n + 1]] for segment, ordinals in inputs for n in ordinals
        ]
        return content(blocks)

    def query(self, index: Index, fields: Sequence[Field], query: Any, options: Mapping[str, Any]) -> float:
        if options:
            raise ExpressionError(f"A search of a closest index has no option {next(iter(options))!r}.")
        if isinstance(query, bool) or not isinstance(query, int | float) or not math.isfinite(query):
            raise ExpressionError(f"A search of a closest index looks for a finite number, not {query!r}.")
        return float(query)

    def search(self, index: Index, query: float, parts: Sequence[Part], k: int) -> Hits:
        """Every part gives its best k; the best k of these are the answer."""
        numbers, slots, distances = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0)]
        for number, part in enumerate(parts):
            away = np.abs(part.segment.values - query)
            can = ~np.isnan(away) if part.mask is None else part.mask & ~np.isnan(away)
            found = np.flatnonzero(can)
            best = found[np.argsort(away[found], kind="stable")[:k]]
            numbers.append(np.full(len(best), number))
            slots.append(best)
            distances.append(away[best])
        every = np.concatenate(distances)
        order = np.argsort(every, kind="stable")[:k]
        return Hits(np.concatenate(numbers)[order], np.concatenate(slots)[order], every[order])


class Builder:
    def __init__(self) -> None:
        self._rows: list[np.ndarray] = []
        self._blocks: list[np.ndarray] = []

    def add(self, columns: Sequence[pa.Array]) -> None:
        numbers = columns[0].cast(pa.float64(), safe=False).fill_null(math.nan)
        self._rows.append(numbers.to_numpy(zero_copy_only=False))

    def end_block(self) -> None:
        self._blocks.append(np.concatenate([np.zeros(0), *self._rows]))
        self._rows = []

    def content(self) -> Content:
        return content(self._blocks)


def content(blocks: Sequence[np.ndarray]) -> Content:
    starts = np.cumsum([0, *map(len, blocks)]).astype("<i8")
    return Content([np.array([len(blocks)], "<i8"), starts, *(block.astype("<f8") for block in blocks)])


class Segment:
    """What `read_at` gives is verified against the checksums of the file; whether it fits together is checked here."""

    def __init__(self, file: InputFile) -> None:
        words = np.frombuffer(file.read_at(0, file.size()), "<i8")
        blocks = int(words[0]) if len(words) else -1
        starts = words[1 : blocks + 2]
        if blocks < 0 or len(starts) != blocks + 1 or len(words) != blocks + 2 + int(starts[-1]):
            raise CorruptionError(f"index segment {file.path!r} is not one of kind closest", path=file.path)
        self.starts: Sequence[int] = starts.tolist()
        self.values: np.ndarray = words[blocks + 2 :].view("<f8")
