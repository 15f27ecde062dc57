"""The statements that change rows: insert, update, delete, truncate.

Each fills the write-set of a transaction and returns how many rows it concerns; nothing reaches the catalog before
the commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from indexlake import point_change
from indexlake.assignments import Assignments
from indexlake.blocks.new_block import NewBlock
from indexlake.blocks.writer import file_batch, sorted_by_row_id, write_block
from indexlake.commit.write_set import TableWrites, row_id_set
from indexlake.rows import Values, encode_batch, take_rows
from indexlake.scan.execute import Piece, pieces
from indexlake.scan.plan import plan_scan
from indexlake.schema import ROW_ID, Field
from indexlake.state import TableState

if TYPE_CHECKING:
    from indexlake.expr import Bound
    from indexlake.lake import Lake
    from indexlake.transaction import Transaction

_SLICE = 65_536


@dataclass(slots=True)
class Prepared:
    """Rows ready to insert: small inputs as encoded tuples, large ones as finished blocks."""

    schema_version: int
    rows: list[tuple[int, Values]]
    blocks: list[NewBlock]

    @property
    def count(self) -> int:
        return len(self.rows) + sum(b.record_count for b in self.blocks)


def prepare_insert(lake: Lake, state: TableState, rows: Any) -> Prepared:
    """Check and encode the rows, give them row ids, and write blocks when they are many."""
    table, schema = state.table, state.current
    taken = take_rows(rows, schema, lake._encoder(state), table.config.direct_write_row_count)
    if isinstance(taken, list):
        first = lake._row_ids.take(table.table_id, len(taken)) if taken else 0
        return Prepared(table.schema_version, list(enumerate(taken, first)), [])
    blocks = list(_write_blocks(lake, state, taken))
    return Prepared(table.schema_version, [], blocks)


def _write_blocks(lake: Lake, state: TableState, batches: Iterator[pa.RecordBatch]) -> Iterator[NewBlock]:
    """Cut a stream into blocks; each is written as it arrives, in bounded memory."""
    table, schema = state.table, state.current
    rest: pa.RecordBatch | None = None
    ended = False

    def one_block() -> Iterator[pa.RecordBatch]:
        nonlocal rest, ended
        room = table.config.block_row_count
        while room:
            batch = rest if rest is not None else next(batches, None)
            rest = None
            if batch is None:
                ended = True
                return
            part = batch.slice(0, min(room, _SLICE))
            if part.num_rows < batch.num_rows:
                rest = batch.slice(part.num_rows)
            if not part.num_rows:
                continue
            room -= part.num_rows
            first = lake._row_ids.take(table.table_id, part.num_rows)
            ids = pa.array(np.arange(first, first + part.num_rows, dtype=np.int64))
            yield file_batch(part, schema, ids, None)

    while not ended:
        stream = one_block()
        head = next(stream, None)
        if head is None:
            return
        yield _new_block(lake, state, _chain(head, stream))


def _chain(head: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield head
    yield from rest


def _new_block(lake: Lake, state: TableState, batches: Iterator[pa.RecordBatch]) -> NewBlock:
    table = state.table
    writer = lake._writer_id()
    return write_block(lake.storage, table.folder, writer, state.current, state.at, table.config.dump_format, batches)


def insert(tx: Transaction, state: TableState, prepared: Prepared) -> int:
    writes = tx.writes(state)
    writes.insert(prepared.rows)
    for block in prepared.blocks:
        writes.insert_block(block)
        writes.inserted += block.record_count
        tx.write_set.writer_id = tx._lake._writer_id()
    return prepared.count


def truncate(tx: Transaction, state: TableState) -> None:
    tx.writes(state).truncate_all()


# ---------------------------------------------------------------- update and delete


def delete(tx: Transaction, table_id: int, predicate_of: Any) -> int:
    """Delete what satisfies the predicate; rows are closed where they lie."""
    if (done := point_change.delete(tx, table_id, predicate_of)) is not None:
        return done
    found = list(_matching(tx, table_id, predicate_of, ()))  # a read that fails half-way has changed nothing
    count = sum(close(tx.writes(state), state, piece) for state, piece in found)
    if count:
        tx.writes(_state_of(tx, table_id)).deleted += count
    return count


def update(tx: Transaction, table_id: int, assignments: Mapping[str, Any], predicate_of: Any) -> int:
    """Replace what satisfies the predicate; rows keep their ids.  The write-set changes only when all is computed."""
    if (done := point_change.update(tx, table_id, assignments, predicate_of)) is not None:
        return done
    count = 0
    closes: list[Piece] = []
    state_used: TableState | None = None
    collected: list[tuple[int, Values, bool]] = []
    large = _LargeUpdate(tx)
    same_key = True
    setter: Assignments | None = None
    for state, piece in _matching(tx, table_id, predicate_of, None):
        if setter is None:
            setter = Assignments(assignments, state.current)
            same_key = not setter.changes(state.current.key_fields)
            state_used = state
        new = setter.apply(piece.batch)
        closes.append(replace(piece, batch=piece.batch.select([ROW_ID])))
        count += piece.batch.num_rows
        ids = piece.batch.column(ROW_ID)
        # The key of a row that this transaction itself has added must be looked for all the same.
        known = same_key and not piece.kind.startswith("own")
        if known and count >= state.table.config.direct_write_row_count:
            large.add(state, file_batch(new, state.current, ids, None))
        else:
            rows = zip(ids.to_pylist(), encode_batch(new, state.current), strict=True)
            collected += ((row_id, values, known) for row_id, values in rows)
    if setter is None:
        with tx.reading(table_id) as (_, state, _s):
            Assignments(assignments, state.current)  # wrong columns are errors also when no row matches
        return 0
    assert state_used is not None
    large.flush(state_used)
    writes = tx.writes(state_used)
    for piece in closes:
        close(writes, state_used, piece)
    for row_id, values, known in collected:
        writes.replace(row_id, values, same_key=known)
    large.insert(writes)
    writes.updated += count
    return count


class _LargeUpdate:
    """New versions of many rows: written as blocks, one at a time, so that memory stays bounded."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0
        self._blocks: list[NewBlock] = []

    def add(self, state: TableState, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._rows += batch.num_rows
        if self._rows >= state.table.config.block_row_count:
            self.flush(state)

    def flush(self, state: TableState) -> None:
        if not self._batches:
            return
        table = sorted_by_row_id(pa.Table.from_batches(self._batches, state.current.file))
        size = state.table.config.block_row_count
        for start in range(0, table.num_rows, size):
            block = _new_block(self._tx._lake, state, iter(table.slice(start, size).to_batches(_SLICE)))
            block.keys_known = True
            self._blocks.append(block)
        self._batches, self._rows = [], 0

    def insert(self, writes: TableWrites) -> None:
        for block in self._blocks:
            writes.insert_block(block)
            self._tx.write_set.writer_id = self._tx._lake._writer_id()


def close(writes: TableWrites, state: TableState, piece: Piece) -> int:
    """Note that the rows of a piece end with this transaction."""
    ids = piece.batch.column(ROW_ID).to_numpy()
    if piece.kind == "own":
        for row_id in ids.tolist():
            writes.drop_own(row_id)
    elif piece.kind == "hot":
        for row_id, begin in zip(ids.tolist(), piece.begins.to_pylist(), strict=True):
            writes.close_hot(row_id, begin)
    elif piece.kind == "own block":
        block = writes.blocks[-piece.file_id - 1]
        writes.close_in_block(piece.file_id, block.row_ids.positions_of(ids), ids)
    elif piece.kind == "history":
        writes.closed |= row_id_set(ids)  # superseded since: the commit will find the conflict
    else:
        record = state.blocks.record(piece.file_id)
        assert record is not None
        writes.close_in_block(piece.file_id, state.row_ids(record).positions_of(ids), ids)
        writes.block_row_ids[piece.file_id] = record.row_ids
    return len(ids)


def lock(writes: TableWrites, row_ids: Any) -> None:
    """Rows read ``for_update``: a concurrent change of them conflicts with this transaction.

    Rows that the transaction itself has added are nobody else's yet and need no lock.
    """
    ids = np.asarray(row_ids, np.int64)
    own = np.isin(ids, list(writes.rows))
    for block in writes.blocks:
        own |= block.row_ids.positions_of(ids) >= 0
    writes.locked |= row_id_set(ids[~own]) | (row_id_set(ids[own]) & writes.closed)


def _matching(
    tx: Transaction, table_id: int, predicate_of: Any, columns: tuple[Field, ...] | None
) -> Iterator[tuple[TableState, Piece]]:
    """Rows that satisfy a predicate, with what is needed to close them.  ``columns`` None: all of them."""
    with tx.reading(table_id) as (r, state, snapshot):
        schema = state.current
        predicate: Bound | None = predicate_of(schema)
        fields = schema.fields if columns is None else columns
        needed = fields
        if predicate is not None:
            extra = [f for f in schema.fields if f.name in predicate.columns and f not in fields]
            needed = (*fields, *extra)
        plan = plan_scan(
            r, state, snapshot, tx._lake._files, predicate=predicate, columns=needed,
            newest=snapshot == state.at, writes=tx.own_writes(table_id),
        )  # fmt: skip
    for piece in pieces(plan, tx._lake._files, tx._lake._scan_threads, fields, row_id=True):
        yield state, piece


def _state_of(tx: Transaction, table_id: int) -> TableState:
    return tx.write_set.tables[table_id].state
