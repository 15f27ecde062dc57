"""What a statement does to a table's rows: versions end, and new versions and new rows are added.

An ``Edit`` collects all of this while rows are found and computed, in batches or one by one. The write-set changes only
in ``apply``, when everything has been computed, so an error leaves nothing behind. Rows keep their ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.arrow import batch_size
from indexlake.arrow.batch_size import batch_bytes
from indexlake.arrow.buffers import array_around, fixed_values
from indexlake.blocks.new_block import NewBlock
from indexlake.blocks.stream import BLOCK_BYTES, Target
from indexlake.blocks.writer import file_batch, sorted_by_row_id
from indexlake.commit.write_set import AbsentValues, TableWrites, row_id_set
from indexlake.hot.store import HotRow
from indexlake.indexes.keys import KeyColumn
from indexlake.scan.execute import Piece
from indexlake.scan.point import LiveRow
from indexlake.schema import ROW_ID
from indexlake.schema.fitting import Values, encode_batch
from indexlake.snapshots.state import TableState

if TYPE_CHECKING:
    from indexlake.blocks.open_files import OpenFiles
    from indexlake.transaction import Transaction

_SLICE = 65_536


class Edit:
    """Collects the changes to one table, whose rows were found at one state of it."""

    def __init__(self, tx: Transaction, state: TableState) -> None:
        self._tx = tx
        self._state = state
        self._closes: list[Piece | LiveRow] = []
        self._rows: list[tuple[int, Values, bool]] = []  # row id, new version, whether its key is known
        self._versions: dict[bool, _Versions] = {}  # by whether their keys are known
        self.claimed: KeyColumn | None = None  # primary keys of new rows: losing the race for one is a conflict
        self.absent: list[AbsentValues] = []  # the same for values of any columns
        self.inserted = self.updated = self.deleted = 0

    def delete(self, piece: Piece) -> None:
        self._closes.append(replace(piece, batch=piece.batch.select([ROW_ID])))
        self.deleted += piece.batch.num_rows

    def update(self, piece: Piece, versions: Iterable[pa.RecordBatch], *, same_key: bool) -> None:
        """Replace the rows of a piece by ``versions``, in the same order, with exactly the table's columns.

        Keys of rows that this transaction itself has added are looked up even if they stay the same.
        """
        rows = piece.batch.select([ROW_ID])
        self._closes.append(replace(piece, batch=rows))
        kept = self._kept(same_key and not piece.kind.startswith("own"))
        start = 0
        for batch in versions:
            kept.add(batch, rows.column(0).slice(start, batch.num_rows))
            start += batch.num_rows
        self.updated += start

    def insert(self, batch: pa.RecordBatch) -> None:
        """Add rows with exactly the table's columns."""
        first = self._tx._lake._row_ids.take(self._state.table.table_id, batch.num_rows)
        self._kept(False).add(batch, array_around(np.arange(first, first + batch.num_rows, dtype=np.int64)))
        self.inserted += batch.num_rows

    def _kept(self, keys_known: bool) -> _Versions:
        if keys_known not in self._versions:
            self._versions[keys_known] = _Versions(self._tx, self._state, keys_known=keys_known)
        return self._versions[keys_known]

    def update_row(self, row: LiveRow, values: Values, *, same_key: bool) -> None:
        self._closes.append(row)
        self._rows.append((row.row_id, values, same_key))
        self.updated += 1

    def insert_rows(self, rows: Sequence[Values]) -> None:
        first = self._tx._lake._row_ids.take(self._state.table.table_id, len(rows))
        self._rows += [(row_id, values, False) for row_id, values in enumerate(rows, first)]
        self.inserted += len(rows)

    def finish(self) -> None:
        """Write what is left to write, once all rows have been added."""
        for versions in self._versions.values():
            self._rows += versions.finish()

    def apply(self) -> int:
        """Change the write-set and return how many rows are concerned."""
        if self._versions:
            self.finish()
        count = self.inserted + self.updated + self.deleted
        if not count:
            return 0
        if self._tx.watching is not None:
            self._tx.watching.note(self._state.table.table_id, self._ended(), self._begun())
        writes = self._tx.writes(self._state)
        for found in self._closes:
            _close(writes, self._state, self._tx._lake._files, found)
        for row_id, values, keys_known in self._rows:
            writes.replace(row_id, values, same_key=keys_known)
        for versions in self._versions.values():
            for block in versions.blocks:
                writes.insert_block(block)
        writes.inserted += self.inserted
        writes.updated += self.updated
        writes.deleted += self.deleted
        if self.claimed is not None:
            writes.claimed += (self.claimed,)
        writes.absent += tuple(self.absent)
        return count

    def _ended(self) -> npt.NDArray[np.int64]:
        """Return the ids of the rows whose versions end."""
        parts = [
            fixed_values(found.batch.column(ROW_ID), np.int64) if isinstance(found, Piece) else np.array([found.row_id])
            for found in self._closes
        ]
        return np.concatenate([np.zeros(0, np.int64), *parts])

    def _begun(self) -> npt.NDArray[np.int64]:
        """Return the ids of the rows with new versions."""
        blocks = [block.all_row_ids() for versions in self._versions.values() for block in versions.blocks]
        return np.concatenate([np.array([row_id for row_id, *_ in self._rows], np.int64), *blocks])


class _Versions:
    """New versions on their way to the write-set: few become hot rows, many become blocks.

    A block is written as soon as its rows are complete, so memory stays bounded. ``keys_known``: the rows keep their
    keys, which need no look-up.
    """

    def __init__(self, tx: Transaction, state: TableState, *, keys_known: bool) -> None:
        self._tx = tx
        self._state = state
        self._keys_known = keys_known
        self._batches: list[pa.RecordBatch] = []
        self._count = self._bytes = 0
        self.blocks: list[NewBlock] = []

    def add(self, batch: pa.RecordBatch, row_ids: pa.Array) -> None:
        """Add versions; each row id may be given only once."""
        if not batch.num_rows:
            return
        self._batches.append(file_batch(batch, self._state.current, row_ids, None))
        self._count += batch.num_rows
        self._bytes += batch_bytes(batch)
        config = self._state.table.config
        if self._count >= max(config.block_row_count, config.direct_write_row_count) or self._bytes > BLOCK_BYTES:
            self._write()

    def finish(self) -> list[tuple[int, Values, bool]]:
        """Return the rows that are not in blocks."""
        many = self._count >= self._state.table.config.direct_write_row_count
        if self.blocks or many or self._bytes > batch_size.BATCH_BYTES:
            self._write()
        schema = self._state.current
        found: list[tuple[int, Values, bool]] = []
        for batch in self._batches:
            rows = pa.RecordBatch.from_arrays(batch.columns[: len(schema)], schema=schema.arrow)
            encoded = zip(batch.column(ROW_ID).to_pylist(), encode_batch(rows, schema), strict=True)
            found += [(row_id, values, self._keys_known) for row_id, values in encoded]
        self._batches, self._count, self._bytes = [], 0, 0
        return found

    def _write(self) -> None:
        if not self._batches:
            return
        config = self._state.table.config
        table = sorted_by_row_id(pa.Table.from_batches(self._batches, self._state.current.file))
        self._batches, self._count, self._bytes = [], 0, 0
        for start in range(0, table.num_rows, config.block_row_count):
            batches = table.slice(start, config.block_row_count).to_batches(_SLICE)
            lake = self._tx._lake
            target = Target.of(self._state, lake._writer_id(), waiting=True)
            for block in target.write_rows(lake.storage, iter(batches)):
                block.keys_known = self._keys_known
                self.blocks.append(block)


def change_row(
    tx: Transaction, state: TableState, row: LiveRow, values: Values | None, *, same_key: bool = True
) -> int:
    """Replace a single row, or delete it (None), without an ``Edit``; return how many rows are concerned."""
    if tx.watching is not None:
        ended = np.array([row.row_id], np.int64)
        tx.watching.note(state.table.table_id, ended, ended[:0] if values is None else ended)
    writes = tx.write_set.writes(state)
    row_id = _close_row(writes, row)
    if values is None:
        writes.deleted += 1
    else:
        writes.replace(row_id, values, same_key=same_key)
        writes.updated += 1
    return 1


def _close(writes: TableWrites, state: TableState, files: OpenFiles, found: Piece | LiveRow) -> None:
    """Record that these versions end with this transaction."""
    if isinstance(found, Piece):
        _close_piece(writes, state, files, found)
    else:
        _close_row(writes, found)


def _close_row(writes: TableWrites, row: LiveRow) -> int:
    """Close a single row and return its id, which may have to be read from a file."""
    row_id = row.row_id
    if isinstance(row, HotRow):
        writes.close_hot(row_id, row.begin)
    else:
        writes.close_in_block(row.block, np.array([row.position]), np.array([row_id]))
    return row_id


def _close_piece(writes: TableWrites, state: TableState, files: OpenFiles, piece: Piece) -> None:
    ids = fixed_values(piece.batch.column(ROW_ID), np.int64)
    if piece.kind == "own":
        for row_id in ids.tolist():
            writes.drop_own(row_id)
    elif piece.kind == "hot":
        for row_id, begin in zip(ids.tolist(), piece.begins.to_pylist(), strict=True):
            writes.close_hot(row_id, begin)
    elif piece.kind == "own block":
        writes.take_back(piece.file_id, ids)
    elif piece.kind == "history":
        writes.closed |= row_id_set(ids)  # superseded since: the commit will find the conflict
    else:
        record = state.blocks.record(piece.file_id)
        assert record is not None
        writes.close_in_block(record, state.addresses(record, files).positions_of(ids), ids)
