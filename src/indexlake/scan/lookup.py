"""Look-ups: find through the table's indexes which rows of blocks may satisfy a condition.

Every index is asked which part of the condition it can answer.  The offer with the fewest rows is taken, and others are
intersected with it while that pays off; an ``or`` is the union of its branches if each has an offer.  Blocks that no
segment covers are read whole, and so are blocks in which many rows are found: reading rows one by one costs more than
reading a good part of them in order.  If there is no offer, or only offers with many rows, nothing is looked up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from indexlake.blocks.block import BlockRecord
from indexlake.expr.test import ALWAYS, All, Any_, Test, columns_of
from indexlake.indexes.registry import kind_if_known

if TYPE_CHECKING:
    from indexlake.blocks.open_files import OpenFiles
    from indexlake.indexes.coverage import Coverage, Group
    from indexlake.indexes.index import Index
    from indexlake.indexes.kind import Answer, SegmentFile
    from indexlake.snapshots.reading import Reading

Positions = npt.NDArray[np.int64]

SCAN_SHARE = {"vortex": 0.02, "ipc": 0.2, "parquet": 0.001}
"""A block is read whole when more than this share of its rows is found."""

INTERSECT_FROM = 256
"""When fewer rows than this are found, no further index is searched;"""

INTERSECT_WITHIN = 64
"""nor is an index that finds more than this many times as many rows."""

SMALL = 64
"""Up to this many rows of a block are looked up, however small the block is."""

FEW = 16
"""When rows are found in at most this many blocks, the list of all blocks is not gone through."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What an index could do for a scan, as ``explain()`` shows it."""

    index: str
    probe: Any  # prints itself
    rows: int  # roughly how many rows would be read from blocks
    used: bool = False
    why: str = ""

    @property
    def looks_up(self) -> str:
        return str(self.probe)

    def __str__(self) -> str:
        return f"{self.index}: {self.looks_up}, about {self.rows:,} rows; {'used' if self.used else 'not used'}" + (
            f", {self.why}" if self.why else ""
        )


@dataclass(frozen=True, slots=True)
class Covered:
    """Rows of a block whose index segment also holds the columns with these field ids."""

    index: Index
    segment: SegmentFile
    start: int  # the slot of the block's first row
    field_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """Places in blocks that look-ups found, and through which indexes: none if a full read costs less."""

    places: Sequence[tuple[BlockRecord, npt.NDArray[np.uint64] | None, Covered | None]]
    found_by: str
    offers: tuple[Offer, ...]
    segments: int  # that were searched


@dataclass(frozen=True, slots=True)
class _Rows:
    """Positions by block.  Blocks in ``unknown`` could not be looked up; a block in neither has no matching row."""

    positions: dict[int, Positions]
    unknown: AbstractSet[int]


class _Lookup(Protocol):
    def estimate(self) -> int: ...
    def rows(self) -> _Rows: ...
    def name(self) -> str: ...
    def probe(self) -> Any: ...


def look_up(reading: Reading, files: OpenFiles, test: Test, chosen: Collection[BlockRecord]) -> Found | None:
    """Find rows of the chosen blocks that may satisfy the test, or None if no index can answer any part of it."""
    if files.use_indexes == "never" or not reading.state.indexes or test == ALWAYS:
        return None
    context = _Context(reading, files, chosen)
    lookups = _lookups(context, test)
    if not lookups:
        return None
    ranked = [(lookup.estimate(), lookup) for lookup in lookups]
    if len(ranked) > 1:
        ranked.sort(key=lambda each: (each[0], -_width(each[1])))
    least, best = ranked[0]
    forced = files.use_indexes == "always"
    if least > SMALL and least > context.worth and not forced:
        why = f"reading all {context.rows:,} rows in order costs less"
        return Found([], "", tuple([Offer(each.name(), each.probe(), rows, False, why) for rows, each in ranked]), 0)
    used, found = [0], best.rows()
    if least >= INTERSECT_FROM:
        for n, (rows, lookup) in enumerate(ranked[1:], 1):
            pays = least < rows <= INTERSECT_WITHIN * least and rows < context.rows // 2  # as many: the same condition
            if pays or forced:
                found = _both(found, lookup.rows())
                used.append(n)
    offers = [
        Offer(each.name(), each.probe(), rows, n in used, "" if n in used else "another index finds no more rows")
        for n, (rows, each) in enumerate(ranked)
    ]
    covering = best.coverage if isinstance(best, _Probe) and len(used) == 1 else None
    places = list(_places(context, found, covering, forced=forced))
    return Found(places, " and ".join([offers[n].index for n in used]), tuple(offers), context.asked)


class _Context:
    """The state that the look-ups of one scan share."""

    def __init__(self, reading: Reading, files: OpenFiles, chosen: Collection[BlockRecord]) -> None:
        self.reading = reading
        self.files = files
        self.chosen = chosen
        self.asked = 0
        self.has_history = not reading.newest and any(b.role == "history" for b in chosen)

    @cached_property
    def data(self) -> list[BlockRecord]:
        return [b for b in self.chosen if b.role != "history"]

    @cached_property
    def rows(self) -> int:
        return sum([b.record_count for b in self.data])

    @cached_property
    def worth(self) -> int:
        """The number of rows up to which looking them up beats reading the blocks."""
        return sum([max(SMALL, int(SCAN_SHARE[b.format] * b.record_count)) for b in self.data])

    def segment(self, group: Group, index: Index) -> Any:
        return self.files.segment(group.segment, index.open)


def _lookups(context: _Context, test: Test) -> list[_Lookup]:
    """Return every way to answer some conjunct of the test through an index."""
    reading = context.reading
    named = columns_of(test)
    found: list[_Lookup] = []
    for coverage in reading.state.indexes.values():
        index, kind = coverage.index, kind_if_known(coverage.index.kind)
        if kind is None or not index.serves(reading.snapshot, reading.schema):
            continue
        fields = index.fields(reading.schema)
        probe = kind.probe(index, fields, test) if any(f.column in named for f in fields) else None
        if probe is not None:
            found.append(_Probe(context, coverage, probe))
    for part in test.children if isinstance(test, All) else (test,):
        if isinstance(part, Any_) and part.children:
            branches = [_best(_lookups(context, child)) for child in part.children]
            if all(branch is not None for branch in branches):
                found.append(_AnyOf([b for b in branches if b is not None]))
    return found


def _best(lookups: list[_Lookup]) -> _Lookup | None:
    return min(lookups, key=lambda lookup: lookup.estimate(), default=None) if len(lookups) != 1 else lookups[0]


def _width(lookup: _Lookup) -> int:
    """Return how many columns the index's segments hold besides its key."""
    return len(lookup.coverage.index.include_field_ids) if isinstance(lookup, _Probe) else 0


class _Probe:
    def __init__(self, context: _Context, coverage: Coverage, probe: Any) -> None:
        self.coverage = coverage
        self._context = context
        self._probe = probe
        self._groups = coverage.groups(context.reading.state, context.reading.snapshot)
        self._asked = [group for group in self._groups if _may_hold(probe, group.segment)]

    @cached_property
    def _answers(self) -> list[tuple[Group, Any, Answer]]:
        """The segments that found anything, with their answers."""
        segments = [(group, self._context.segment(group, self.coverage.index)) for group in self._asked]
        answers = [(group, segment, segment.ask(self._probe)) for group, segment in segments]
        return [each for each in answers if each[2].count]

    @cached_property
    def _unknown(self) -> AbstractSet[int]:
        if self._context.reading.newest:
            return self.coverage.gaps
        covered = {block.data_file_id for group in self._groups for block, _ in group.blocks}
        return {block.data_file_id for block in self._context.data} - covered

    def estimate(self) -> int:
        total = sum([answer.count for _, _, answer in self._answers])
        if self._unknown:
            total += sum([b.record_count for b in self._context.data if b.data_file_id in self._unknown])
        return total

    def rows(self) -> _Rows:
        self._context.asked += len(self._asked)
        found: dict[int, Positions] = {}
        for group, segment, answer in self._answers:
            for block, _, positions in group.split(segment.starts, answer.slots()):
                found[block.data_file_id] = positions
        return _Rows(found, self._unknown)

    def name(self) -> str:
        return "primary key" if self.coverage.index.is_primary else self.coverage.index.name

    def probe(self) -> Any:
        return self._probe


class _AnyOf:
    """The rows that at least one of several look-ups finds."""

    def __init__(self, branches: Sequence[_Lookup]) -> None:
        self._branches = branches

    def estimate(self) -> int:
        return sum([branch.estimate() for branch in self._branches])

    def rows(self) -> _Rows:
        each = [branch.rows() for branch in self._branches]
        joined: dict[int, list[Positions]] = {}
        for rows in each:
            for file_id, positions in rows.positions.items():
                joined.setdefault(file_id, []).append(positions)
        unknown = frozenset[int]().union(*[rows.unknown for rows in each])
        known = {f: p for f, p in joined.items() if f not in unknown}  # the rest is read whole
        return _Rows({f: p[0] if len(p) == 1 else np.unique(np.concatenate(p)) for f, p in known.items()}, unknown)

    def name(self) -> str:
        return " or ".join(dict.fromkeys(branch.name() for branch in self._branches))

    def probe(self) -> str:
        return " or ".join(str(branch.probe()) for branch in self._branches)


def _may_hold(probe: Any, segment: SegmentFile) -> bool:
    """Return whether the segment's key bounds allow a match; True for probes that do not compare with them."""
    meets = getattr(probe, "meets", None)
    return meets is None or meets(segment.min_key, segment.max_key)


def _both(first: _Rows, second: _Rows) -> _Rows:
    found = {f: p for f, p in first.positions.items() if f in second.unknown}
    for file_id, positions in second.positions.items():
        if file_id in first.positions:
            found[file_id] = np.intersect1d(first.positions[file_id], positions, assume_unique=True)
        elif file_id in first.unknown:
            found[file_id] = positions
    return _Rows(found, first.unknown & second.unknown)


def _places(
    context: _Context, found: _Rows, covering: Coverage | None, *, forced: bool
) -> Iterator[tuple[BlockRecord, npt.NDArray[np.uint64] | None, Covered | None]]:
    known = found.positions
    for block in _blocks(context, found):
        positions = known.get(block.data_file_id)
        if block.role == "history" or block.data_file_id in found.unknown:
            yield block, None, None
        elif positions is not None and len(positions):
            many = len(positions) > max(SMALL, SCAN_SHARE[block.format] * block.record_count)
            if many and not forced:
                yield block, None, None
            else:
                yield block, positions.astype(np.uint64), _covered(context, block, covering)


def _blocks(context: _Context, found: _Rows) -> Collection[BlockRecord]:
    """Return the blocks to read from, possibly with others, in block order."""
    if found.unknown or context.has_history or len(found.positions) > FEW:
        return context.chosen
    blocks = context.reading.state.blocks
    numbers = sorted([n for f in found.positions if (n := blocks.index_of(f)) is not None])
    return [blocks.records[n] for n in numbers]


def _covered(context: _Context, block: BlockRecord, coverage: Coverage | None) -> Covered | None:
    """Return where the segment itself holds columns of the block's rows, if it does."""
    if coverage is None or not coverage.index.include_field_ids:
        return None
    reading = context.reading
    link = coverage.link_of(block, reading.schema, reading.snapshot)
    assert link is not None
    start = context.files.segment(link.segment, coverage.index.open).starts[link.ordinal]
    ids = tuple(f.field_id for f in coverage.index.all_fields(reading.schema))
    return Covered(coverage.index, link.segment, start, ids)
