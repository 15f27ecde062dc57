"""Finds primary keys in the blocks of a table, through the blocks' key segments.

Bounds of all segments are compared at once; only segments that may hold a key are opened, and of those a Bloom
filter turns away most.  A hit is live at the snapshot as far as the block and its deletes tell; the row's own
version is for the caller to check where the block is younger than the snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake import kernels as pc
from indexlake.blocks.block import BlockRecord, SegmentRecord
from indexlake.blocks.delete_vector import is_among
from indexlake.keys.bloom import hash_key, hash_keys
from indexlake.keys.encoding import Key, KeyColumn, key_to_bytes

if TYPE_CHECKING:
    from indexlake.blocks.block_index import BlockIndex
    from indexlake.blocks.open_files import OpenFiles
    from indexlake.state import TableState

Hit = tuple[BlockRecord, int]

FEW = 16
"""The bounds of up to so many blocks are compared one by one: arrays would cost more."""


class KeyFinder:
    """The segments of one table state, with their bounds as columns.

    Immutable; the bounds are built on first use, and those of a finder are carried over to the next one.
    """

    def __init__(self, blocks: BlockIndex, segments: Mapping[int, SegmentRecord], *, ints: bool) -> None:
        self._blocks = blocks
        self._segments = segments
        self._ints = ints
        self._bounds: _Bounds | None = None

    def with_blocks(
        self, blocks: BlockIndex, segments: Mapping[int, SegmentRecord], added: int, kept: npt.NDArray[np.bool_]
    ) -> KeyFinder:
        """The finder of the next state, whose last blocks are the added ones, and the first those that were kept."""
        new = KeyFinder(blocks, segments, ints=self._ints)
        bounds = self._bounds
        if bounds is not None:
            fresh = _Bounds.of(blocks.records[len(blocks) - added :], segments, ints=self._ints)
            new._bounds = bounds.keep(kept).extend(fresh)
        return new

    def find(self, key: Key, state: TableState, snapshot: int, files: OpenFiles) -> list[Hit]:
        """Blocks and positions that hold the key and are not deleted at the snapshot."""
        hits: list[Hit] = []
        hashed = hash_key(key)
        for n in self._candidates(key_to_bytes(key), snapshot):
            block, segment = self._pair(n)
            for position in files.segment(segment).find(key, hashed):
                if not state.deleted(block.data_file_id, position, snapshot):
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
        for n in overlapping:
            block, segment = self._pair(n)
            indices, positions = files.segment(segment).find_many(ordered, hashes)
            indices = order[indices]
            log = state.deletes.get(block.data_file_id)
            dead = log.at(snapshot) if log is not None and len(indices) else None
            if dead:
                alive = ~is_among(positions, dead)
                indices, positions = indices[alive], positions[alive]
            if len(indices):
                yield block, indices, positions

    def _candidates(self, key: bytes, snapshot: int) -> list[int]:
        return self._overlapping(key, key, snapshot)

    def _pair(self, n: int) -> tuple[BlockRecord, SegmentRecord]:
        block = self._blocks.records[n]
        return block, self._segments[block.data_file_id]

    def _overlapping(self, low: bytes, high: bytes, snapshot: int) -> list[int]:
        """Blocks visible at the snapshot, by number, whose segments' bounds meet [low, high]."""
        if len(self._blocks) <= FEW:
            return [
                n
                for n, block in enumerate(self._blocks.records)
                if (segment := _segment_of(block, self._segments)) is not None
                and segment.min_key <= high and low <= segment.max_key and block.visible_at(snapshot)
            ]  # fmt: skip
        bounds = self._bounds
        if bounds is None:
            bounds = self._bounds = _Bounds.of(self._blocks.records, self._segments, ints=self._ints)
        met = np.flatnonzero(bounds.meeting(low, high))
        found: list[int] = met[bounds.known[met] & self._blocks.visible_at(snapshot, met)].tolist()
        return found


def _segment_of(block: BlockRecord, segments: Mapping[int, SegmentRecord]) -> SegmentRecord | None:
    return segments.get(block.data_file_id) if block.role != "history" else None


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The smallest and largest key of each block; ``known`` is false where a block has no segment."""

    known: npt.NDArray[np.bool_]
    low: Any  # eight bytes in key order compare like the integers they spell: numpy; else an Arrow array
    high: Any

    @staticmethod
    def of(blocks: Sequence[BlockRecord], segments: Mapping[int, SegmentRecord], *, ints: bool) -> _Bounds:
        found = [_segment_of(block, segments) for block in blocks]
        nothing = bytes(8)
        known = np.fromiter((segment is not None for segment in found), np.bool_, len(found))
        low = [nothing if segment is None else segment.min_key for segment in found]
        high = [nothing if segment is None else segment.max_key for segment in found]
        if ints:
            return _Bounds(known, *(np.frombuffer(b"".join(keys), ">u8").astype(np.uint64) for keys in (low, high)))
        return _Bounds(known, *(pa.array(keys, pa.large_binary()) for keys in (low, high)))

    def keep(self, mask: npt.NDArray[np.bool_]) -> _Bounds:
        if isinstance(self.low, np.ndarray):
            return _Bounds(self.known[mask], self.low[mask], self.high[mask])
        kept = pa.array(mask)
        return _Bounds(self.known[mask], self.low.filter(kept), self.high.filter(kept))

    def extend(self, more: _Bounds) -> _Bounds:
        join = np.concatenate if isinstance(self.low, np.ndarray) else pa.concat_arrays
        return _Bounds(
            np.concatenate((self.known, more.known)), join([self.low, more.low]), join([self.high, more.high])
        )

    def meeting(self, low: bytes, high: bytes) -> npt.NDArray[np.bool_]:
        """Which bounds meet [low, high], among those that are known."""
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
