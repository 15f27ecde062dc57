"""Finds primary keys in the blocks of a table, through the blocks' key segments.

Bounds of all segments are compared at once; only segments that may hold a key are opened, and of those a Bloom
filter turns away most.  A hit is live at the snapshot as far as the block and its deletes tell; the row's own
version is for the caller to check where the block is younger than the snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake import kernels as pc
from indexlake.blocks.block import BlockRecord, SegmentRecord
from indexlake.keys.bloom import hash_key, hash_keys
from indexlake.keys.encoding import Key, KeyColumn, key_to_bytes

if TYPE_CHECKING:
    from indexlake.blocks.open_files import OpenFiles
    from indexlake.state import TableState

Hit = tuple[BlockRecord, int]

FEW = 16
"""The bounds of up to so many segments are compared one by one: arrays would cost more."""


class KeyFinder:
    """The segments of one table state, with their bounds as columns.  Immutable; arrays are built on first use."""

    def __init__(self, blocks: Sequence[BlockRecord], segments: dict[int, SegmentRecord], *, ints: bool) -> None:
        self._ints = ints
        self._pairs = [
            (block, segments[block.data_file_id])
            for block in blocks
            if block.role != "history" and block.data_file_id in segments
        ]
        self._arrays: tuple[Any, ...] | None = None

    def find(self, key: Key, state: TableState, snapshot: int, files: OpenFiles) -> list[Hit]:
        """Blocks and positions that hold the key and are not deleted at the snapshot."""
        hits: list[Hit] = []
        hashed = hash_key(key)
        for n in self._candidates(key_to_bytes(key), snapshot):
            block, segment = self._pairs[n]
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
            block, segment = self._pairs[n]
            indices, positions = files.segment(segment).find_many(ordered, hashes)
            indices = order[indices]
            log = state.deletes.get(block.data_file_id)
            dead = log.at(snapshot) if log is not None and len(indices) else None
            if dead:
                gone = np.frombuffer(dead.to_array(), np.uint32).astype(np.int64)
                alive = ~np.isin(positions, gone)
                indices, positions = indices[alive], positions[alive]
            if len(indices):
                yield block, indices, positions

    def _candidates(self, key: bytes, snapshot: int) -> list[int]:
        return self._overlapping(key, key, snapshot)

    def _overlapping(self, low: bytes, high: bytes, snapshot: int) -> list[int]:
        """Segments of blocks visible at the snapshot whose bounds meet [low, high]."""
        if not self._pairs:
            return []
        if len(self._pairs) <= FEW:
            return [
                n
                for n, (block, segment) in enumerate(self._pairs)
                if segment.min_key <= high and low <= segment.max_key and block.visible_at(snapshot)
            ]
        if self._arrays is None:
            self._arrays = self._build()
        begin, end, lowest, highest, is_int = self._arrays
        visible = (begin <= snapshot) & (end > snapshot)
        if is_int:
            visible &= (lowest <= int.from_bytes(high, "big")) & (highest >= int.from_bytes(low, "big"))
        else:
            bounds = pc.and_(
                pc.less_equal(lowest, pa.scalar(high, pa.large_binary())),
                pc.greater_equal(highest, pa.scalar(low, pa.large_binary())),
            )
            visible &= np.asarray(bounds)
        return np.flatnonzero(visible).tolist()

    def _build(self) -> tuple[Any, ...]:
        forever = np.iinfo(np.int64).max
        begin = np.array([b.begin_snapshot for b, _ in self._pairs], np.int64)
        end = np.array([forever if b.end_snapshot is None else b.end_snapshot for b, _ in self._pairs], np.int64)
        low = [s.min_key for _, s in self._pairs]
        high = [s.max_key for _, s in self._pairs]
        if self._ints:  # eight bytes in key order compare like the integers they spell
            return (
                begin,
                end,
                np.frombuffer(b"".join(low), ">u8").astype(np.uint64),
                np.frombuffer(b"".join(high), ">u8").astype(np.uint64),
                True,
            )
        return begin, end, pa.array(low, pa.large_binary()), pa.array(high, pa.large_binary()), False
