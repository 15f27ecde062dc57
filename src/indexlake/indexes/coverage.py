"""Coverage: which segment of an index answers for which block, kept next to the block index.

Coverage is physical.  It says for which block files a segment answers, not at which snapshots, so it outlives the
block's end and serves every retained snapshot.  Visibility is applied to what is found: a hit is live at the snapshot
as far as the block and its deletes can tell; if the block is younger than the snapshot, the caller has to check the
row's own version.  Blocks without a segment are *gaps*, which have to be scanned.

The bounds of all segments are compared at once; only segments that may hold a key are opened.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.arrow import kernels as pc
from indexlake.arrow.buffers import truths
from indexlake.arrow.values import array_of, scalar_of
from indexlake.blocks.block import BlockRecord
from indexlake.blocks.delete_vector import is_among
from indexlake.indexes.index import Index, Link
from indexlake.indexes.keys import Key, KeyColumn, hash_key, hash_keys, key_to_bytes
from indexlake.indexes.kind import SegmentFile, Slots
from indexlake.types.selection import as_mask

if TYPE_CHECKING:
    from indexlake.blocks.block_index import BlockIndex
    from indexlake.blocks.open_files import OpenFiles
    from indexlake.schema import TableSchema
    from indexlake.snapshots.state import TableState

Hit = tuple[BlockRecord, int]

FEW = 16
"""With up to this many blocks, bounds are compared one by one: arrays would cost more."""

_FOREVER = np.iinfo(np.int64).max


def _end(link: Link) -> int:
    return _FOREVER if link.end_snapshot is None else link.end_snapshot


@dataclass(frozen=True)
class Group:
    """A segment and the visible blocks it answers for, each with its ordinal in the segment."""

    segment: SegmentFile
    blocks: tuple[tuple[BlockRecord, int], ...]

    @cached_property
    def _by_ordinal(self) -> dict[int, BlockRecord]:
        return {ordinal: block for block, ordinal in self.blocks}

    def split(self, starts: Sequence[int], slots: Slots) -> Iterator[tuple[BlockRecord, slice, Slots]]:
        """Split ascending slots by visible block: the block, which of the slots are in it, their positions there."""
        if not len(slots):
            return
        if len(slots) <= FEW:
            ordinals = [bisect_right(starts, slot) - 1 for slot in slots.tolist()]
            cuts = [0, *(n for n in range(1, len(ordinals)) if ordinals[n] != ordinals[n - 1])]
            occupied = [ordinals[n] for n in cuts]
        else:
            bounds = np.searchsorted(slots, np.asarray(starts))
            held = np.flatnonzero(np.diff(bounds))
            occupied, cuts = held.tolist(), bounds[held].tolist()
        for ordinal, first, end in zip(occupied, cuts, [*cuts[1:], len(slots)], strict=True):
            block = self._by_ordinal.get(ordinal)
            if block is not None:
                yield block, slice(first, end), slots[first:end] - starts[ordinal]


class Coverage:
    """How one index covers the blocks of one table state.

    Immutable; bounds and groups are made on first use, and the bounds of one state are carried over to the next.
    """

    def __init__(
        self,
        index: Index,
        blocks: BlockIndex,
        links: Mapping[int, Link],
        gaps: frozenset[int],
        types: tuple[str, ...] | None,
        *,
        ints: bool,
    ) -> None:
        self.index = index
        self.links = links  # by data file id: each block's link with the largest end
        self.gaps = gaps  # data file ids
        self.types = types  # of the columns now; segments of other types do not answer.  None: fixed
        self._blocks = blocks
        self._ints = ints
        self._bounds: _Bounds | None = None
        self._live_groups: list[Group] | None = None

    @staticmethod
    def of(index: Index, blocks: BlockIndex, links: Sequence[Link], schema: TableSchema) -> Coverage:
        """Return the coverage of these blocks; ``schema`` is the current one."""
        lasting, types = _latest({}, links), _types(index, schema)
        gaps = _uncovered(blocks.records, lasting, types)
        return Coverage(index, blocks, lasting, gaps, types, ints=_are_ints(index, schema))

    def advance(
        self,
        index: Index,
        schema: TableSchema,
        blocks: BlockIndex,
        added: Sequence[BlockRecord],
        kept: npt.NDArray[np.bool_],
        removed: Collection[int],
        written: Sequence[Link],
        horizon: int | None,
    ) -> Coverage:
        """Return the coverage of the next state: the blocks of this one with ``kept`` set, followed by the added ones.

        ``written`` are the links that are new or changed.  If records were purged, ``horizon`` says how far: links of
        removed blocks, and links that ended by then, are gone.
        """
        types = _types(index, schema)
        if not written and horizon is None and blocks is self._blocks and index == self.index and types == self.types:
            return self
        links = _latest(self.links, written)
        ended = [] if horizon is None else [f for f, link in links.items() if not link.serves(horizon)]
        for file_id in (*removed, *ended):
            links.pop(file_id, None)
        if types != self.types:
            gaps = _uncovered(blocks.records, links, types)
            return Coverage(index, blocks, links, gaps, types, ints=_are_ints(index, schema))
        reopened = [block for f in ended if (block := blocks.record(f)) is not None]
        fresh = {block.data_file_id for block in added}
        gaps = frozenset(f for f in self.gaps if f not in removed and not _answers(links.get(f), types))
        gaps |= _uncovered((*added, *reopened), links, types)
        new = Coverage(index, blocks, links, gaps, types, ints=self._ints)
        if self._bounds is not None and not reopened and fresh.issuperset(link.data_file_id for link in written):
            new._bounds = self._bounds.keep(kept).extend(_Bounds.of(added, links, types, ints=self._ints))
        return new

    def link_of(self, block: BlockRecord, schema: TableSchema, snapshot: int) -> Link | None:
        """Return the link through which the index answers for a block at a snapshot with this schema, if any."""
        link = self.links.get(block.data_file_id)
        types = self.types if self.types is None else self.index.key_types(schema)
        return link if link is not None and link.serves(snapshot) and _answers(link, types) else None

    def groups(self, state: TableState, snapshot: int) -> list[Group]:
        """Return the segments that answer for blocks visible at the snapshot, each with these blocks."""
        if snapshot == state.at and self._live_groups is not None:
            return self._live_groups
        found: dict[int, tuple[SegmentFile, list[tuple[BlockRecord, int]]]] = {}
        schema = state.current
        for block in self._blocks.records:
            if block.role != "history" and block.visible_at(snapshot):
                link = self.link_of(block, schema, snapshot)
                if link is not None:
                    found.setdefault(link.index_file_id, (link.segment, []))[1].append((block, link.ordinal))
        groups = [Group(segment, tuple(blocks)) for segment, blocks in found.values()]
        if snapshot == state.at:
            self._live_groups = groups
        return groups

    def find(self, key: Key, state: TableState, snapshot: int, files: OpenFiles) -> list[Hit]:
        """Return blocks and positions that hold the key and are not deleted at the snapshot, among covered blocks."""
        hits: list[Hit] = []
        if not self.links:
            return hits
        encoded = key_to_bytes(key)
        overlapping = self._overlapping(encoded, encoded, snapshot)
        if not overlapping:
            return hits
        hashed = hash_key(key)
        slots: list[int] = []
        asked = -1
        for n in overlapping:
            block = self._blocks.records[n]
            link = self.links[block.data_file_id]
            if link.index_file_id != asked:  # blocks covered by the same segment are mostly next to each other
                asked = link.index_file_id
                segment = files.segment(link.segment, self.index.open)
                slots = segment.find(key, hashed)
            start, end = segment.starts[link.ordinal], segment.starts[link.ordinal + 1]
            for slot in slots:
                if start <= slot < end and not state.deleted(block.data_file_id, slot - start, snapshot):
                    hits.append((block, slot - start))
        return hits

    def find_many(
        self, keys: KeyColumn, state: TableState, snapshot: int, files: OpenFiles
    ) -> Iterator[tuple[BlockRecord, npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """Yield each covered block that holds some of the keys, with indices into ``keys`` and positions."""
        if not len(keys) or not self.links:
            return
        low, high = keys.bounds()
        overlapping = self._overlapping(key_to_bytes(low), key_to_bytes(high), snapshot)
        if not overlapping:
            return
        order = keys.argsort()
        ordered = keys.take(order)  # sorted input saves one sort per segment
        hashes = hash_keys(ordered)
        asked = -1
        for n in overlapping:
            block = self._blocks.records[n]
            link = self.links[block.data_file_id]
            if link.index_file_id != asked:
                asked = link.index_file_id
                segment = files.segment(link.segment, self.index.open)
                found, slots = segment.find_many(ordered, hashes)
                found = order[found]
            indices, positions = found, slots
            if len(segment.starts) > 2:
                start, end = segment.starts[link.ordinal], segment.starts[link.ordinal + 1]
                here = (slots >= start) & (slots < end)
                indices, positions = found[here], slots[here] - start
            log = state.deletes.get(block.data_file_id)
            dead = log.at(snapshot) if log is not None and len(indices) else None
            if dead:
                alive = ~is_among(positions, dead)
                indices, positions = indices[alive], positions[alive]
            if len(indices):
                yield block, indices, positions

    def _overlapping(self, low: bytes, high: bytes, snapshot: int) -> list[int]:
        """Return the numbers of the blocks visible at the snapshot whose segment's bounds meet [low, high]."""
        if len(self._blocks) <= FEW:
            return [
                n
                for n, block in enumerate(self._blocks.records)
                if (link := self.links.get(block.data_file_id)) is not None
                and link.segment.min_key <= high and low <= link.segment.max_key
                and block.visible_at(snapshot) and link.serves(snapshot) and _answers(link, self.types)
            ]  # fmt: skip
        bounds = self._bounds
        if bounds is None:
            bounds = self._bounds = _Bounds.of(self._blocks.records, self.links, self.types, ints=self._ints)
        met = np.flatnonzero(bounds.meeting(low, high))
        found: list[int] = met[(bounds.begin[met] <= snapshot) & (bounds.end[met] > snapshot)].tolist()
        return found


def _answers(link: Link | None, types: tuple[str, ...] | None) -> bool:
    """Return whether there is a link and its segment was built from columns of these types."""
    return link is not None and (types is None or link.segment.key_types == types)


def _types(index: Index, schema: TableSchema) -> tuple[str, ...] | None:
    if index.is_primary:
        return None  # columns of the primary key cannot be altered
    return index.key_types(schema) if index.fits(schema) else ()


def _are_ints(index: Index, schema: TableSchema) -> bool:
    """Return whether the keys are integers."""
    return index.fits(schema) and [f.codec.kind for f in index.fields(schema)] == ["int"]


def _latest(known: Mapping[int, Link], written: Sequence[Link]) -> dict[int, Link]:
    """Return each block's link with the largest end: a fold ends one link and begins another.

    Of two live links the younger counts: the end of the other was written and purged since it was read.
    """
    fresh = {link.data_file_id: link for link in written}
    if len(fresh) == len(written) and fresh.keys().isdisjoint(known):
        return {**known, **fresh} if known else fresh
    links = dict(known)
    for link in written if known else ():
        current = links.get(link.data_file_id)
        if current is not None and current.index_file_id == link.index_file_id:
            del links[link.data_file_id]  # remove the older version of the same link
    for link in written:
        current = links.get(link.data_file_id)
        if current is None or (_end(link), link.begin_snapshot) > (_end(current), current.begin_snapshot):
            links[link.data_file_id] = link
    return links


def _uncovered(
    blocks: Iterable[BlockRecord], links: Mapping[int, Link], types: tuple[str, ...] | None
) -> frozenset[int]:
    return frozenset(
        b.data_file_id for b in blocks if b.role != "history" and not _answers(links.get(b.data_file_id), types)
    )


@dataclass(frozen=True, slots=True)
class _Bounds:
    """For each block, the snapshots that both it and its link serve (none without a link), and the segment's bounds."""

    begin: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    low: Any  # NumPy arrays for integer keys, whose eight bytes compare like the integers; Arrow arrays otherwise
    high: Any

    @staticmethod
    def of(
        blocks: Sequence[BlockRecord], links: Mapping[int, Link], types: tuple[str, ...] | None, *, ints: bool
    ) -> _Bounds:
        answering = (links.get(block.data_file_id) for block in blocks)
        found = [link if _answers(link, types) else None for link in answering]
        nothing = bytes(8)
        begin = np.array([block.begin_snapshot for block in blocks], np.int64)
        ends = [-1 if link is None else _FOREVER if link.end_snapshot is None else link.end_snapshot for link in found]
        last = [_FOREVER if block.end_snapshot is None else block.end_snapshot for block in blocks]
        end = np.minimum(np.array(ends, np.int64), np.array(last, np.int64))
        low = [nothing if link is None else link.segment.min_key for link in found]
        high = [nothing if link is None else link.segment.max_key for link in found]
        if ints:
            numbers = (np.frombuffer(b"".join(keys), ">u8").astype(np.uint64) for keys in (low, high))
            return _Bounds(begin, end, *numbers)
        return _Bounds(begin, end, *(array_of(keys, pa.large_binary()) for keys in (low, high)))

    def keep(self, mask: npt.NDArray[np.bool_]) -> _Bounds:
        if isinstance(self.low, np.ndarray):
            return _Bounds(self.begin[mask], self.end[mask], self.low[mask], self.high[mask])
        kept = as_mask(mask)
        return _Bounds(self.begin[mask], self.end[mask], self.low.filter(kept), self.high.filter(kept))

    def extend(self, more: _Bounds) -> _Bounds:
        join = np.concatenate if isinstance(self.low, np.ndarray) else pa.concat_arrays
        return _Bounds(
            np.concatenate((self.begin, more.begin)), np.concatenate((self.end, more.end)),
            join([self.low, more.low]), join([self.high, more.high]),
        )  # fmt: skip

    def meeting(self, low: bytes, high: bytes) -> npt.NDArray[np.bool_]:
        """Return which bounds meet [low, high]; meaningless for blocks without a segment."""
        met: npt.NDArray[np.bool_]
        if isinstance(self.low, np.ndarray):
            met = (self.low <= int.from_bytes(high, "big")) & (self.high >= int.from_bytes(low, "big"))
        else:
            found = pc.and_(
                pc.less_equal(self.low, scalar_of(high, pa.large_binary())),
                pc.greater_equal(self.high, scalar_of(low, pa.large_binary())),
            )
            met = truths(found)
        return met
