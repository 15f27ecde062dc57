"""Coverage: which segment of an index answers for which block, kept beside the block index.

Coverage is physical.  It says which block files a segment answers for, not at which snapshots, so it outlives the
block's end and serves every snapshot that is retained.  Visibility is applied to what is found: a hit is live at the
snapshot as far as the block and its deletes tell; the row's own version is for the caller to check where the block is
younger than the snapshot.  Blocks without a segment are *gaps*, which have to be scanned.

Bounds of all segments are compared at once; only segments that may hold a key are opened.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.arrow import kernels as pc
from indexlake.blocks.block import BlockRecord
from indexlake.blocks.delete_vector import is_among
from indexlake.indexes.index import Index, Link
from indexlake.indexes.keys import Key, KeyColumn, hash_key, hash_keys, key_to_bytes
from indexlake.indexes.kind import ORDINAL_SHIFT, POSITION_MASK

if TYPE_CHECKING:
    from indexlake.blocks.block_index import BlockIndex
    from indexlake.blocks.open_files import OpenFiles
    from indexlake.snapshots.state import TableState

Hit = tuple[BlockRecord, int]

FEW = 16
"""The bounds of up to so many blocks are compared one by one: arrays would cost more."""

_FOREVER = np.iinfo(np.int64).max


def _end(link: Link) -> int:
    return _FOREVER if link.end_snapshot is None else link.end_snapshot


class Coverage:
    """The blocks of one table state as one index covers them.

    Immutable; the bounds are built on first use, and those of one state are carried over to the next.
    """

    def __init__(
        self, index: Index, blocks: BlockIndex, links: Mapping[int, Link], gaps: frozenset[int], *, ints: bool
    ) -> None:
        self.index = index
        self.links = links  # by data file id, of each block the one with the largest end
        self.gaps = gaps  # data file ids
        self._blocks = blocks
        self._ints = ints
        self._bounds: _Bounds | None = None

    @staticmethod
    def of(index: Index, blocks: BlockIndex, links: Sequence[Link], *, ints: bool) -> Coverage:
        """``ints``: its keys are integers."""
        lasting = _lasting({}, links)
        return Coverage(index, blocks, lasting, _uncovered(blocks.records, lasting), ints=ints)

    def advance(
        self,
        index: Index,
        blocks: BlockIndex,
        added: Sequence[BlockRecord],
        kept: npt.NDArray[np.bool_],
        removed: Collection[int],
        written: Sequence[Link],
        horizon: int | None,
    ) -> Coverage:
        """The coverage of the next state, whose last blocks are the added ones, and the first those that were kept.

        ``written`` are the links that came or changed.  ``horizon``, when records were purged: links of removed blocks
        and links that ended up to it are gone.
        """
        if not written and horizon is None and blocks is self._blocks and index == self.index:
            return self
        links = _lasting(self.links, written)
        ended = [] if horizon is None else [f for f, link in links.items() if not link.serves(horizon)]
        for file_id in (*removed, *ended):
            links.pop(file_id, None)
        reopened = [block for f in ended if (block := blocks.record(f)) is not None]
        fresh = {block.data_file_id for block in added}
        gaps = frozenset(f for f in self.gaps if f not in removed and f not in links)
        new = Coverage(index, blocks, links, gaps | _uncovered((*added, *reopened), links), ints=self._ints)
        if self._bounds is not None and not reopened and fresh.issuperset(link.data_file_id for link in written):
            new._bounds = self._bounds.keep(kept).extend(_Bounds.of(added, links, ints=self._ints))
        return new

    def find(self, key: Key, state: TableState, snapshot: int, files: OpenFiles) -> list[Hit]:
        """Blocks and positions that hold the key and are not deleted at the snapshot."""
        hits: list[Hit] = []
        hashed = hash_key(key)
        encoded = key_to_bytes(key)
        addresses: list[int] = []
        asked = -1
        for n in self._overlapping(encoded, encoded, snapshot):
            block = self._blocks.records[n]
            link = self.links[block.data_file_id]
            if link.index_file_id != asked:  # blocks that a segment covers together mostly stand together
                asked = link.index_file_id
                addresses = files.segment(link.segment, self.index.open).find(key, hashed)
            for address in addresses:
                position = address & POSITION_MASK
                if address >> ORDINAL_SHIFT == link.ordinal and not state.deleted(
                    block.data_file_id, position, snapshot
                ):
                    hits.append((block, position))
        return hits

    def find_many(
        self, keys: KeyColumn, state: TableState, snapshot: int, files: OpenFiles
    ) -> Iterator[tuple[BlockRecord, npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """(block, indices into ``keys``, positions) of each block that holds some of the keys."""
        if not len(keys):
            return
        order = keys.argsort()
        ordered = keys.take(order)  # sorted input saves a sort per segment
        low, high = key_to_bytes(ordered[0]), key_to_bytes(ordered[len(ordered) - 1])
        overlapping = self._overlapping(low, high, snapshot)
        hashes = hash_keys(ordered) if overlapping else None
        asked = -1
        for n in overlapping:
            block = self._blocks.records[n]
            link = self.links[block.data_file_id]
            if link.index_file_id != asked:
                asked = link.index_file_id
                segment = files.segment(link.segment, self.index.open)
                found, addresses = segment.find_many(ordered, hashes)
                found = order[found]
            indices, positions = found, addresses
            if segment.several:
                here = addresses >> ORDINAL_SHIFT == link.ordinal
                indices, positions = found[here], addresses[here] & POSITION_MASK
            log = state.deletes.get(block.data_file_id)
            dead = log.at(snapshot) if log is not None and len(indices) else None
            if dead:
                alive = ~is_among(positions, dead)
                indices, positions = indices[alive], positions[alive]
            if len(indices):
                yield block, indices, positions

    def _overlapping(self, low: bytes, high: bytes, snapshot: int) -> list[int]:
        """Blocks visible at the snapshot, by number, whose segments' bounds meet [low, high]."""
        if len(self._blocks) <= FEW:
            return [
                n
                for n, block in enumerate(self._blocks.records)
                if (link := self.links.get(block.data_file_id)) is not None
                and link.segment.min_key <= high and low <= link.segment.max_key
                and block.visible_at(snapshot) and link.serves(snapshot)
            ]  # fmt: skip
        bounds = self._bounds
        if bounds is None:
            bounds = self._bounds = _Bounds.of(self._blocks.records, self.links, ints=self._ints)
        met = np.flatnonzero(bounds.meeting(low, high))
        found: list[int] = met[(bounds.begin[met] <= snapshot) & (bounds.end[met] > snapshot)].tolist()
        return found


def _lasting(known: Mapping[int, Link], written: Sequence[Link]) -> dict[int, Link]:
    """Of the links of each block the one with the largest end: a fold ends one and begins another."""
    links = dict(known)
    for link in written:
        there = links.get(link.data_file_id)
        if there is not None and there.index_file_id == link.index_file_id:
            del links[link.data_file_id]  # as it was before
    for link in written:
        there = links.get(link.data_file_id)
        if there is None or _end(link) > _end(there):
            links[link.data_file_id] = link
    return links


def _uncovered(blocks: Iterable[BlockRecord], links: Mapping[int, Link]) -> frozenset[int]:
    return frozenset(b.data_file_id for b in blocks if b.role != "history" and b.data_file_id not in links)


@dataclass(frozen=True, slots=True)
class _Bounds:
    """From where to where each block and its link serve (nowhere, if it has none), and the segment's bounds."""

    begin: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    low: Any  # eight bytes in key order compare like the integers they spell: numpy; else an Arrow array
    high: Any

    @staticmethod
    def of(blocks: Sequence[BlockRecord], links: Mapping[int, Link], *, ints: bool) -> _Bounds:
        found = [links.get(block.data_file_id) for block in blocks]
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
        return _Bounds(begin, end, *(pa.array(keys, pa.large_binary()) for keys in (low, high)))

    def keep(self, mask: npt.NDArray[np.bool_]) -> _Bounds:
        if isinstance(self.low, np.ndarray):
            return _Bounds(self.begin[mask], self.end[mask], self.low[mask], self.high[mask])
        kept = pa.array(mask)
        return _Bounds(self.begin[mask], self.end[mask], self.low.filter(kept), self.high.filter(kept))

    def extend(self, more: _Bounds) -> _Bounds:
        join = np.concatenate if isinstance(self.low, np.ndarray) else pa.concat_arrays
        return _Bounds(
            np.concatenate((self.begin, more.begin)), np.concatenate((self.end, more.end)),
            join([self.low, more.low]), join([self.high, more.high]),
        )  # fmt: skip

    def meeting(self, low: bytes, high: bytes) -> npt.NDArray[np.bool_]:
        """Which bounds meet [low, high], among those of blocks with a segment."""
        met: npt.NDArray[np.bool_]
        if isinstance(self.low, np.ndarray):
            met = (self.low <= int.from_bytes(high, "big")) & (self.high >= int.from_bytes(low, "big"))
        else:
            found = pc.and_(
                pc.less_equal(self.low, pa.scalar(high, pa.large_binary())),
                pc.greater_equal(self.high, pa.scalar(low, pa.large_binary())),
            )
            met = np.asarray(found)
        return met
