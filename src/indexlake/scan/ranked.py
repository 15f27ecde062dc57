"""The rows that a search has found: where each of them is, and its values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.types.selection import gather, take

if TYPE_CHECKING:
    from indexlake.indexes.kind import Slots
    from indexlake.scan.numbers import Column
    from indexlake.scan.search_sources import Source
    from indexlake.schema import Field

_FEW = 16
"""Up to this many rows are read as Python values: building arrays would cost more than reading the values."""

Numbers = npt.NDArray[np.int64]


class Ranked(NamedTuple):
    """Found rows, best first: where each is, and its score or distance."""

    sources: Sequence[Source]
    parts: Numbers
    slots: Slots
    scores: npt.NDArray[np.float64]

    def row_ids(self) -> Numbers:
        ids = np.zeros(len(self.parts), np.int64)
        for source, slots, here in self.by_source():
            ids[here] = source.row_ids(slots)
        return ids

    def by_source(self) -> Iterator[tuple[Source, Slots, Numbers]]:
        """Yield each source that has rows: their slots, ascending, and their numbers in the ranking."""
        if not len(self.slots):
            return
        order = np.lexsort((self.slots, self.parts))
        parts, slots = self.parts[order], self.slots[order]
        cuts = [0, *(np.flatnonzero(parts[1:] != parts[:-1]) + 1).tolist(), len(order)]
        for first, end in pairwise(cuts):
            yield self.sources[parts[first]], slots[first:end], order[first:end]


def joined(ranked: Sequence[Ranked], chosen: Sequence[tuple[int, int]], scores: npt.NDArray[np.float64]) -> Ranked:
    """Return selected rows of several rankings as one; ``chosen``: for each row, a ranking and the place there."""
    rankings, places = np.array(chosen, np.int64).reshape(-1, 2).T
    first_source, first_row = (
        np.array([0, *accumulate(map(len, each))])[rankings]
        for each in ([r.sources for r in ranked], [r.slots for r in ranked])
    )
    rows = first_row + places
    parts, slots = (np.concatenate(each)[rows] for each in ([r.parts for r in ranked], [r.slots for r in ranked]))
    return Ranked([source for r in ranked for source in r.sources], first_source + parts, slots, scores)


def read_rows(found: Ranked, fields: Sequence[Field], exact: Sequence[Field]) -> list[Any]:
    """Return the columns of the found rows; ``exact``: the fields that Python values reproduce, except for NaN."""
    if not fields or not len(found.slots):
        return [pa.array([], f.type) for f in fields]
    if len(found.sources) == 1:
        numbers = _numbers(found.sources[0], fields, len(found.slots))
        if numbers is not None:
            return [pa.array(column[found.slots], f.type) for column, f in zip(numbers, fields)]  # noqa: B905 (slow)
    few = _few_rows(found, fields, exact) if len(found.slots) <= _FEW else None
    return _many_rows(found, fields) if few is None else few


def _few_rows(found: Ranked, fields: Sequence[Field], exact: Sequence[Field]) -> list[pa.Array] | None:
    """Read a few rows without batches; None if some column needs them."""
    if len(exact) == len(fields):
        return _as_values(found, exact)
    held = {f: _held(found, f) for f in fields if f not in exact}
    if any(column is None for column in held.values()):
        return None
    values = _as_values(found, exact)
    return None if values is None else [held[f] if f in held else values.pop(0) for f in fields]


def _held(found: Ranked, f: Field) -> pa.Array | None:
    """Return a column from memory, such as the vectors of a segment; None if some source does not have it there."""
    order, pieces = [], []
    for source, slots, here in found.by_source():
        values = source.held(f, slots)
        if values is None:
            return None
        order.append(here)
        pieces.append(values)
    return take(pa.concat_arrays(pieces), pa.array(np.argsort(np.concatenate(order))))


def _as_values(found: Ranked, fields: Sequence[Field]) -> list[pa.Array] | None:
    """Read the rows as Python values; None if these would not reproduce the columns exactly."""
    count = len(found.slots)
    columns: list[list[Any]] = []
    single: dict[Any, tuple[list[int], list[int]]] = {}  # by holder: positions in it, and row numbers in the result
    for source, slots, here in _together(found):
        numbers = _numbers(source, fields, len(slots))
        if numbers is not None and len(slots) == count:
            return [pa.array(array[slots], f.type) for array, f in zip(numbers, fields)]  # noqa: B905 (slow)
        columns = columns or [[None] * count for _ in fields]
        if numbers is not None:
            for column, array in zip(columns, numbers, strict=True):
                for number, value in zip(here, array[slots].tolist(), strict=True):
                    column[number] = value
            continue
        for number, slot in zip(here, slots.tolist(), strict=True):
            holder, position = source.place(slot)
            there = single.setdefault(holder, ([], []))
            there[0].append(position)
            there[1].append(number)
    for holder, (positions, rows) in single.items():
        values = holder.few_rows(positions, fields)
        if values is None:
            return None
        for f, column in zip(fields, columns, strict=True):
            for number, row in zip(rows, values, strict=True):
                column[number] = row[f.column]
    for column, f in zip(columns, fields, strict=True):
        if pa.types.is_floating(f.type) and any(value != value for value in column):
            return None  # converting a NaN to Python may change its bits
    return [pa.array(column, f.type) for column, f in zip(columns, fields, strict=True)]


def _together(found: Ranked) -> Iterator[tuple[Source, Slots, Sequence[int]]]:
    """Yield each source that has rows: their slots, best first, and their numbers in the ranking."""
    if len(found.sources) == 1:
        yield found.sources[0], found.slots, range(len(found.slots))
        return
    where: dict[int, list[int]] = {}
    for number, part in enumerate(found.parts.tolist()):
        where.setdefault(part, []).append(number)
    for part, here in where.items():
        yield found.sources[part], found.slots if len(where) == 1 else found.slots[here], here


def _numbers(source: Source, fields: Sequence[Field], wanted: int) -> list[Column] | None:
    """Return the columns of a source by slot, if all of them are plain numbers and in memory."""
    found = []
    for f in fields:
        column = source.numbers(f, wanted)
        if column is None:
            return None
        found.append(column)
    return found


def _many_rows(found: Ranked, fields: Sequence[Field]) -> list[Any]:
    schema = pa.schema([f.arrow() for f in fields])
    order: list[Numbers] = []
    batches: list[pa.RecordBatch] = []
    for source, slots, here in found.by_source():
        for piece, columns in source.rows(slots, fields):
            order.append(here[piece])
            batches += pa.Table.from_arrays(columns, schema=schema).to_batches()
    back = pa.array(np.argsort(np.concatenate(order)))
    return list(pa.Table.from_batches(gather(batches, back, schema), schema).columns)
