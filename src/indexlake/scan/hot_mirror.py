"""Hot rows of one table in memory, so that searches need not read and analyse all of them again after every commit.

Row versions are immutable, so whatever was derived from one stays correct.  The mirror follows the newest snapshot:
versions that have begun since are added as another chunk, and those that have ended are marked.  When blocks or columns
have changed, it is rebuilt, since rows may have moved to a block.  Small chunks are joined, so that there are never
many.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.indexes.builder import segment_in_memory
from indexlake.schema import ROW_ID, VERSION

if TYPE_CHECKING:
    from indexlake.indexes.index import Index
    from indexlake.schema import TableSchema
    from indexlake.snapshots.reading import Reading

MOST_BYTES = 256 << 20
"""Larger hot stores are not mirrored; each search reads them."""


class Chunk:
    """Some row versions, a mask of the live ones, and the segments of the indexes that were searched."""

    def __init__(self, rows: pa.RecordBatch, schema: TableSchema) -> None:
        self.rows = rows  # file columns, then row id and version
        self.live: npt.NDArray[np.bool_] = np.ones(rows.num_rows, np.bool_)
        self._schema = schema
        self._segments: dict[int, Any] = {}

    def segment(self, index: Index) -> Any:
        found = self._segments.get(index.index_id)
        if found is None:
            columns = [self.rows.column(f.column) for f in index.all_fields(self._schema)]
            found = self._segments[index.index_id] = segment_in_memory(index, self._schema, [columns])
        return found

    def frozen(self) -> Chunk:
        """Return a copy as of now, unaffected by later changes to the original."""
        return self._with(self.live.copy())

    def without(self, row_ids: npt.NDArray[np.int64]) -> Chunk:
        """Return a copy in which some rows are not live."""
        return self._with(self.live & ~np.isin(self.rows.column(ROW_ID).to_numpy(), row_ids))

    def _with(self, live: npt.NDArray[np.bool_]) -> Chunk:
        copy = Chunk(self.rows, self._schema)
        live.flags.writeable = False  # kinds may cache what they learn about a mask that cannot change
        copy.live = live
        copy._segments = self._segments
        return copy


class HotMirror:
    """The newest hot rows of one table.  Readers get chunks that never change."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made_for: tuple[Any, Any] | None = None  # blocks and schema
        self._at = -1
        self._chunks: list[Chunk] = []
        self._frozen: list[Chunk] = []
        self._place: dict[int, tuple[int, Chunk, int]] = {}  # row id → begin, chunk, slot
        self.size = 0

    def chunks(self, reading: Reading) -> list[Chunk]:
        """Return the hot rows that the reading sees, which must be at the newest snapshot."""
        with self._lock:
            made_for = (reading.state.blocks, reading.schema)
            current = self._made_for is not None and all(a is b for a, b in zip(self._made_for, made_for, strict=True))
            expired = self._at < reading.state.table.horizon  # versions that ended since may already be gone
            if not current or expired or self._at > reading.snapshot or self.size > MOST_BYTES:
                self._begin(reading)
                self._made_for = made_for
            elif self._at < reading.snapshot:
                self._advance(reading)
            else:
                return self._frozen
            self._at = reading.snapshot
            self._frozen = [chunk.frozen() for chunk in self._chunks]
            return self._frozen

    def _begin(self, reading: Reading) -> None:
        self._chunks, self._place, self.size = [], {}, 0
        self._add(hot_rows(reading), reading.schema)

    def _advance(self, reading: Reading) -> None:
        hot, fields = reading.hot, reading.schema.fields
        begun = list(hot.begun(self._at, reading.snapshot, fields))
        if begun:
            self._add(one_batch(begun), reading.schema)
        for batch in hot.ended(self._at, reading.snapshot, ()):
            for row_id, end in zip(batch.column(ROW_ID).to_pylist(), batch.column(VERSION).to_pylist(), strict=True):
                known = self._place.get(row_id)
                if known is not None and known[0] < end:
                    known[1].live[known[2]] = False
                    del self._place[row_id]

    def _add(self, rows: pa.RecordBatch | None, schema: TableSchema) -> None:
        self._hold(rows, schema)
        while len(self._chunks) > 1 and 2 * self._chunks[-1].rows.num_rows >= self._chunks[-2].rows.num_rows:
            last, before = self._chunks.pop(), self._chunks.pop()
            self.size -= last.rows.nbytes + before.rows.nbytes
            self._hold(one_batch([c.rows.filter(pa.array(c.live)) for c in (before, last)]), schema)

    def _hold(self, rows: pa.RecordBatch | None, schema: TableSchema) -> None:
        """Add a chunk, in which only the newest version of each row is live."""
        if rows is None or not rows.num_rows:
            return
        chunk = Chunk(rows, schema)
        self.size += rows.nbytes
        self._chunks.append(chunk)
        ids, begins = rows.column(ROW_ID).to_pylist(), rows.column(VERSION).to_pylist()
        for slot, (row_id, begin) in enumerate(zip(ids, begins, strict=True)):
            known = self._place.get(row_id)
            if known is not None and known[0] > begin:
                chunk.live[slot] = False
                continue
            if known is not None:
                known[1].live[known[2]] = False
            self._place[row_id] = (begin, chunk, slot)


def hot_rows(reading: Reading) -> pa.RecordBatch | None:
    """Return all hot rows that the reading sees, with all columns."""
    return one_batch(list(reading.hot.rows(reading.schema.fields).batches()))


def one_batch(batches: list[pa.RecordBatch]) -> pa.RecordBatch | None:
    batches = [batch for batch in batches if batch.num_rows]
    if not batches:
        return None
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
