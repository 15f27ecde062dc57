"""The rows that a search has found: where each of them is, and its values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.types.python_rows import is_exact
from indexlake.types.selection import gather

if TYPE_CHECKING:
    from indexlake.indexes.kind import Slots
    from indexlake.scan.numbers import Column
    from indexlake.scan.search_sources import Source
    from indexlake.schema import Field

_FEW = 16
"""Up to this many rows are read as Python values: building arrays would cost more than reading the values."""

Numbers = npt.NDArray[np.int64]


class Ranked(NamedTuple):
    """The best rows of one index, best first: where each is, and its score or distance."""

    sources: Sequence[Source]
    parts: Numbers
    slots: Slots
    scores: npt.NDArray[np.float64]

    def row_ids(self) -> Numbers:
        ids = np.zeros(len(self.parts), np.int64)
        for source, slots, here in self.by_source(np.arange(len(ids))):
            ids[here] = source.row_ids(slots)
        return ids

    def by_source(self, chosen: Numbers) -> Iterator[tuple[Source, Slots, Numbers]]:
        """Yield each source with some of the chosen rows: their slots, ascending, and indices into ``chosen``."""
        if not len(chosen):
            return
        parts, slots = self.parts[chosen], self.slots[chosen]
        order = np.lexsort((slots, parts))
        parts, slots = parts[order], slots[order]
        cuts = [0, *(np.flatnonzero(parts[1:] != parts[:-1]) + 1).tolist(), len(order)]
        for first, end in pairwise(cuts):
            yield self.sources[parts[first]], slots[first:end], order[first:end]


class Chosen(NamedTuple):
    """Selected rows of several rankings: for each, which ranking has it and its place there."""

    rankings: Numbers
    places: Numbers

    def row_ids(self, ranked: Sequence[Ranked]) -> Numbers:
        ids = np.zeros(len(self.places), np.int64)
        for number, each in enumerate(ranked):
            here = self.rankings == number
            ids[here] = each.row_ids()[self.places[here]]
        return ids


def read_rows(ranked: Sequence[Ranked], chosen: Chosen, fields: Sequence[Field]) -> list[Any]:
    """Return the columns of the chosen rows, in their order."""
    if not fields or not len(chosen.places):
        return [pa.array([], f.type) for f in fields]
    few = None
    if len(chosen.places) <= _FEW and all(is_exact(f.type) for f in fields):
        few = _few_rows(ranked, chosen, fields)
    return _many_rows(ranked, chosen, fields) if few is None else few


def _few_rows(ranked: Sequence[Ranked], chosen: Chosen, fields: Sequence[Field]) -> list[pa.Array] | None:
    """Read the rows as Python values; None if these would not reproduce the columns exactly."""
    columns: list[list[Any]] = [[None] * len(chosen.places) for _ in fields]
    found: dict[Any, tuple[list[int], list[int]]] = {}  # by holder: positions in it, and row numbers in the result
    rankings = []
    for each in ranked:
        parts = each.parts.tolist()
        numbers = {part: _numbers(each.sources[part], fields, parts.count(part)) for part in set(parts)}
        rankings.append((each.sources, parts, each.slots.tolist(), numbers))
    for number, (ranking, place) in enumerate(zip(chosen.rankings.tolist(), chosen.places.tolist(), strict=True)):
        sources, parts, slots, numbers = rankings[ranking]
        part, slot = parts[place], slots[place]
        arrays = numbers[part]
        if arrays is not None:
            for column, array in zip(columns, arrays, strict=True):
                column[number] = array.item(slot)
            continue
        holder, position = sources[part].place(slot)
        there = found.setdefault(holder, ([], []))
        there[0].append(position)
        there[1].append(number)
    for holder, (positions, rows) in found.items():
        here = holder.few_rows(positions, fields)
        if here is None:
            return None
        for f, column in zip(fields, columns, strict=True):
            for number, row in zip(rows, here, strict=True):
                column[number] = row[f.column]
    for column, f in zip(columns, fields, strict=True):
        if pa.types.is_floating(f.type) and any(value != value for value in column):
            return None  # converting a NaN to Python may change its bits
    return [pa.array(column, f.type) for column, f in zip(columns, fields, strict=True)]


def _numbers(source: Source, fields: Sequence[Field], wanted: int) -> list[Column] | None:
    """Return the columns of a source by slot, if all of them are plain numbers and in memory."""
    found = []
    for f in fields:
        column = source.numbers(f, wanted)
        if column is None:
            return None
        found.append(column)
    return found


def _many_rows(ranked: Sequence[Ranked], chosen: Chosen, fields: Sequence[Field]) -> list[Any]:
    schema = pa.schema([f.arrow() for f in fields])
    order: list[Numbers] = []
    batches: list[pa.RecordBatch] = []
    for number, each in enumerate(ranked):
        here = np.flatnonzero(chosen.rankings == number)
        for source, slots, some in each.by_source(chosen.places[here]):
            for piece, columns in source.rows(slots, fields):
                order.append(here[some[piece]])
                batches += pa.Table.from_arrays(columns, schema=schema).to_batches()
    back = pa.array(np.argsort(np.concatenate(order)))
    return list(pa.Table.from_batches(gather(batches, back, schema), schema).columns)
