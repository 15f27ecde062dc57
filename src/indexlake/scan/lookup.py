"""Look-ups: where rows that may satisfy a condition lie in blocks, as the indexes of the table know it.

Every index is asked what of the condition it can answer.  The offer with the fewest rows is taken, and others are
intersected with it while that pays; an ``or`` is the union of its branches if each of them has an offer.  Blocks that a
segment does not cover are read whole, and so are blocks in which many rows are found: reading rows one by one costs
more than reading a good part of them in order.  If there is no offer, or only ones that find many rows, nothing is
looked up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from indexlake.blocks.block import BlockRecord
from indexlake.expr.test import All, Any_, Test
from indexlake.indexes.registry import kind_if_known

if TYPE_CHECKING:
    from indexlake.blocks.open_files import OpenFiles
    from indexlake.indexes.coverage import Coverage, Group
    from indexlake.indexes.index import Index
    from indexlake.indexes.kind import SegmentFile
    from indexlake.snapshots.reading import Reading

Positions = npt.NDArray[np.int64]

SCAN_SHARE = {"vortex": 0.02, "ipc": 0.2, "parquet": 0.001}
"""A block is read whole when more than this part of its rows is found."""

INTERSECT_FROM = 256
"""Fewer rows than that are read without asking other indexes,"""

INTERSECT_WITHIN = 64
"""nor are those asked that find so many times as many rows."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What an index could do for a scan, as ``explain()`` shows it."""

    index: str
    looks_up: str
    rows: int  # about so many rows of blocks would be read
    used: bool = False
    why: str = ""

    def __str__(self) -> str:
        return f"{self.index}: {self.looks_up}, about {self.rows:,} rows; {'used' if self.used else 'not used'}" + (
            f", {self.why}" if self.why else ""
        )


@dataclass(frozen=True, slots=True)
class Covered:
    """Rows of a block that a segment holds too, with the columns named by field id."""

    index: Index
    segment: SegmentFile
    start: int  # the slot of the block's first row
    field_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """What look-ups found: places in blocks, and how."""

    places: Sequence[tuple[BlockRecord, npt.NDArray[np.uint64] | None, Covered | None]]
    found_by: str
    offers: tuple[Offer, ...]
    segments: int  # that were asked


class _Lookup(Protocol):
    def estimate(self) -> int: ...
    def positions(self) -> dict[int, Positions]:
        """By block; a block that is missing has to be read whole."""
        ...

    def offer(self) -> Offer: ...


def look_up(reading: Reading, files: OpenFiles, test: Test, chosen: Sequence[BlockRecord]) -> Found | None:
    """Where rows of the chosen blocks that may satisfy the test lie; None: to read the blocks is as good."""
    if files.use_indexes == "never" or not reading.state.indexes or test == All(()) or not chosen:
        return None
    context = _Context(reading, files, chosen)
    lookups = _lookups(context, test)
    if not lookups:
        return None
    ranked = sorted(((lookup.estimate(), n, lookup) for n, lookup in enumerate(lookups)), key=lambda each: each[:2])
    offers = [replace(lookup.offer(), rows=rows) for rows, _, lookup in ranked]
    least, _, best = ranked[0]
    forced = files.use_indexes == "always"
    if least > context.worth and not forced:
        why = f"reading all {context.rows:,} rows in order costs less"
        return Found([], "", tuple(replace(o, why=why) for o in offers), 0)
    used, found = [0], best.positions()
    if least >= INTERSECT_FROM:
        for n, (rows, _, lookup) in enumerate(ranked[1:], 1):
            pays = least < rows <= INTERSECT_WITHIN * least and rows < context.rows // 2  # as many: the same condition
            if pays or forced:
                found = _both(found, lookup.positions())
                used.append(n)
    marked = tuple(
        replace(o, used=n in used, why="" if n in used else "others find fewer") for n, o in enumerate(offers)
    )
    name = " and ".join(offers[n].index for n in used)
    covering = best.coverage if isinstance(best, _One) and len(used) == 1 else None
    places = list(_places(context, found, covering, forced=forced))
    return Found(places, name, marked, context.asked)


class _Context:
    """One scan that looks rows up."""

    def __init__(self, reading: Reading, files: OpenFiles, chosen: Sequence[BlockRecord]) -> None:
        self.reading = reading
        self.files = files
        self.chosen = chosen
        self.asked = 0
        data = [b for b in chosen if b.role != "history"]
        self.chosen_ids = {b.data_file_id for b in data}
        self.rows = sum(b.record_count for b in data)
        self.worth = sum(max(64, int(SCAN_SHARE[b.format] * b.record_count)) for b in data)

    def segment(self, group: Group, index: Index) -> Any:
        return self.files.segment(group.segment, index.open)


def _lookups(context: _Context, test: Test) -> list[_Lookup]:
    """Every way to answer some conjunct of the test."""
    reading = context.reading
    found: list[_Lookup] = []
    for coverage in reading.state.indexes.values():
        index, kind = coverage.index, kind_if_known(coverage.index.kind)
        if kind is None or not index.serves(reading.snapshot, reading.schema):
            continue
        probe = kind.probe(index, index.fields(reading.schema), test)
        if probe is not None:
            found.append(_One(context, coverage, probe))
    for part in test.children if isinstance(test, All) else (test,):
        if isinstance(part, Any_) and part.children:
            branches = [_best(_lookups(context, child)) for child in part.children]
            if all(branch is not None for branch in branches):
                found.append(_Either([b for b in branches if b is not None]))
    return found


def _best(lookups: list[_Lookup]) -> _Lookup | None:
    return min(lookups, key=lambda lookup: lookup.estimate(), default=None) if len(lookups) != 1 else lookups[0]


class _One:
    """One probe of one index."""

    def __init__(self, context: _Context, coverage: Coverage, probe: Any) -> None:
        self.coverage = coverage
        self._context = context
        self._probe = probe
        self._estimate: int | None = None
        self._groups = [group for group in self._all_groups() if _may_hold(probe, group.segment)]

    def _all_groups(self) -> list[Group]:
        reading = self._context.reading
        return self.coverage.groups(reading.state, reading.snapshot)

    def estimate(self) -> int:
        if self._estimate is None:
            context, index = self._context, self.coverage.index
            covered = {b.data_file_id for group in self._all_groups() for b, _ in group.blocks}
            total = sum(b.record_count for b in context.chosen if b.role != "history" and b.data_file_id not in covered)
            for group in self._groups:
                total += context.segment(group, index).count(self._probe)
            self._estimate = total
        return self._estimate

    def positions(self) -> dict[int, Positions]:
        context, index = self._context, self.coverage.index
        nothing = np.zeros(0, np.int64)
        found = {b.data_file_id: nothing for group in self._all_groups() for b, _ in group.blocks}
        for group in self._groups:
            segment = context.segment(group, index)
            slots = segment.slots(self._probe)
            context.asked += 1
            if not len(slots):
                continue
            for block, ordinal in group.blocks:
                if block.data_file_id in context.chosen_ids:
                    start, end = segment.starts[ordinal], segment.starts[ordinal + 1]
                    low, high = np.searchsorted(slots, (start, end))
                    if high > low:
                        found[block.data_file_id] = slots[low:high] - start
        return found

    def offer(self) -> Offer:
        name = "primary key" if self.coverage.index.is_primary else self.coverage.index.name
        return Offer(name, str(self._probe), 0)


class _Either:
    """Rows that one of several look-ups finds."""

    def __init__(self, branches: Sequence[_Lookup]) -> None:
        self._branches = branches

    def estimate(self) -> int:
        return sum(branch.estimate() for branch in self._branches)

    def positions(self) -> dict[int, Positions]:
        first, *rest = [branch.positions() for branch in self._branches]
        for other in rest:
            first = {f: np.union1d(first[f], other[f]) for f in first.keys() & other.keys()}
        return first

    def offer(self) -> Offer:
        parts = [branch.offer() for branch in self._branches]
        names = " or ".join(dict.fromkeys(part.index for part in parts))
        return Offer(names, " or ".join(part.looks_up for part in parts), 0)


def _may_hold(probe: Any, segment: SegmentFile) -> bool:
    """By the bounds of the segment's keys, of a kind whose probes compare with them."""
    meets = getattr(probe, "meets", None)
    return meets is None or meets(segment.min_key, segment.max_key)


def _both(first: dict[int, Positions], second: dict[int, Positions]) -> dict[int, Positions]:
    joined = {**second, **first}
    for file_id in first.keys() & second.keys():
        joined[file_id] = np.intersect1d(first[file_id], second[file_id], assume_unique=True)
    return joined


def _places(
    context: _Context, found: dict[int, Positions], covering: Coverage | None, *, forced: bool
) -> Iterator[tuple[BlockRecord, npt.NDArray[np.uint64] | None, Covered | None]]:
    for block in context.chosen:
        positions = None if block.role == "history" else found.get(block.data_file_id)
        if positions is None:
            yield block, None, None
        elif len(positions):
            many = len(positions) > max(64, SCAN_SHARE[block.format] * block.record_count)
            if many and not forced:
                yield block, None, None
            else:
                yield block, positions.astype(np.uint64), _covered(context, block, covering)


def _covered(context: _Context, block: BlockRecord, coverage: Coverage | None) -> Covered | None:
    """What of the block's rows the segment itself holds."""
    if coverage is None or not coverage.index.include_field_ids:
        return None
    reading = context.reading
    link = coverage.link_of(block, reading.schema, reading.snapshot)
    assert link is not None
    start = context.files.segment(link.segment, coverage.index.open).starts[link.ordinal]
    ids = tuple(f.field_id for f in coverage.index.all_fields(reading.schema))
    return Covered(coverage.index, link.segment, start, ids)
