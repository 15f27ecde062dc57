"""The statements that change rows: insert, update, delete, truncate.

Each fills the write-set of a transaction and returns how many rows it concerns; nothing reaches the catalog before
the commit.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from indexlake import batch_size, point_change
from indexlake.assignments import Assignments
from indexlake.batch_size import batch_bytes, rows_of
from indexlake.blocks.new_block import NewBlock
from indexlake.blocks.stream import BLOCK_BYTES, Target, write_blocks
from indexlake.blocks.writer import file_batch, sorted_by_row_id
from indexlake.commit.write_set import TableWrites, row_id_set
from indexlake.errors import ConflictError, ConstraintError, SchemaError
from indexlake.expr.moment import statement
from indexlake.progress import ProgressBar
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

    state: TableState
    rows: list[tuple[int, Values]]
    blocks: list[NewBlock]

    @property
    def count(self) -> int:
        return len(self.rows) + sum(b.record_count for b in self.blocks)


def prepare_insert(lake: Lake, state: TableState, rows: Any, progress: bool | None = None) -> Prepared:
    """Check and encode the rows, give them row ids, and write blocks when they are many."""
    table, schema = state.table, state.current
    with ProgressBar(f"loading {table.full_name}", progress) as bar:
        taken = take_rows(rows, schema, lake._encoder(state), table.config.direct_write_row_count, bar)
        if isinstance(taken, list):
            first = lake._row_ids.take(table.table_id, len(taken)) if taken else 0
            return Prepared(state, list(enumerate(taken, first)), [])
        target = Target.of(state, lake._writer_id())
        blocks = list(write_blocks(lake.storage, target, taken, partial(lake._row_ids.take, table.table_id)))
    return Prepared(state, [], blocks)


class Insert:
    """One insert statement, run as often as it has to be.

    When the table's columns turn out to have changed, rows that can be taken again are; others stay as they were
    prepared, and the commit fits them to the new columns if it can.
    """

    def __init__(self, table_id: int, rows: Any, progress: bool | None) -> None:
        self._table_id = table_id
        self._rows = rows
        self._progress = progress
        self._again = can_be_taken_again(rows)
        self._prepared: Prepared | None = None

    def __call__(self, tx: Transaction) -> int:
        if self._prepared is None and not self._again:
            with tx.reading(self._table_id):
                pass  # the columns of now: there will be no second try
        state = tx.state_to_write(self._table_id)
        if self._prepared is not None and self._prepared.state.table.schema_version != state.table.schema_version:
            if self._again:
                self._prepared = None
            else:
                tx.write_set.single = False
        if self._prepared is None:
            try:
                self._prepared = prepare_insert(tx._lake, state, self._rows, self._progress)
            except (SchemaError, ConstraintError):
                if self._again and tx.is_outdated(state):
                    raise ConflictError("The definition of the table changed meanwhile.") from None
                raise
        return insert(tx, self._prepared.state, self._prepared)


def can_be_taken_again(rows: Any) -> bool:
    """Whether rows can be read from the same object twice; only where that is certain."""
    known = (Mapping, list, tuple, str, os.PathLike, pa.Table, pa.RecordBatch)
    if isinstance(rows, known) or type(rows).__name__ == "DataFrame":
        return True
    from indexlake.sources.files import Files

    return isinstance(rows, Files)


def insert(tx: Transaction, state: TableState, prepared: Prepared) -> int:
    writes = tx.writes(state)
    writes.insert(prepared.rows)
    for block in prepared.blocks:
        writes.insert_block(block)
        writes.inserted += block.record_count
    return prepared.count


def truncate(tx: Transaction, state: TableState) -> None:
    tx.writes(state).truncate_all(blind=tx.is_statement)


# ---------------------------------------------------------------- update and delete


@statement()
def delete(tx: Transaction, table_id: int, predicate_of: Any) -> int:
    """Delete what satisfies the predicate; rows are closed where they lie."""
    if (done := point_change.delete(tx, table_id, predicate_of)) is not None:
        return done
    found = list(_matching(tx, table_id, predicate_of, ()))  # a read that fails half-way has changed nothing
    count = sum(close(tx.writes(state), state, piece) for state, piece in found)
    if count:
        tx.writes(_state_of(tx, table_id)).deleted += count
    return count


@statement()
def update(tx: Transaction, table_id: int, assignments: Mapping[str, Any], predicate_of: Any) -> int:
    """Replace what satisfies the predicate; rows keep their ids.  The write-set changes only when all is computed."""
    if (done := point_change.update(tx, table_id, assignments, predicate_of)) is not None:
        return done
    count = 0
    closes: list[Piece] = []
    state_used: TableState | None = None
    for state, piece in _matching(tx, table_id, predicate_of, None):
        if state_used is None:
            state_used = state
            setter = Assignments(assignments, state.current)
            same_key = not setter.changes(state.current.key_fields)
            known, unknown = NewVersions(tx, state, keys_known=True), NewVersions(tx, state, keys_known=False)
        closes.append(replace(piece, batch=piece.batch.select([ROW_ID])))
        count += piece.batch.num_rows
        # The key of a row that this transaction itself has added must be looked for all the same.
        versions = known if same_key and not piece.kind.startswith("own") else unknown
        step = rows_of(setter.constant_bytes)
        for start in range(0, piece.batch.num_rows, step):
            part = piece.batch.slice(start, step)
            versions.add(setter.apply(part), part.column(ROW_ID))
    if state_used is None:
        with tx.reading(table_id) as (_, state, _s):
            Assignments(assignments, state.current)  # wrong columns are errors also when no row matches
        return 0
    known.finish()
    unknown.finish()
    writes = tx.writes(state_used)
    for piece in closes:
        close(writes, state_used, piece)
    known.apply(writes)
    unknown.apply(writes)
    writes.updated += count
    return count


class NewVersions:
    """New versions of rows on their way to the write-set: few become hot rows, many become blocks.

    A block is written as soon as its rows are there, so that memory stays bounded.  ``keys_known`` says that the rows
    have the keys they had, which need no look then.  The write-set changes with ``apply`` alone, which cannot fail.
    """

    def __init__(self, tx: Transaction, state: TableState, *, keys_known: bool) -> None:
        self._tx = tx
        self._state = state
        self._keys_known = keys_known
        self._batches: list[pa.RecordBatch] = []
        self._count = self._bytes = 0
        self._blocks: list[NewBlock] = []
        self._rows: list[tuple[int, Values]] = []

    def add(self, batch: pa.RecordBatch, row_ids: pa.Array) -> None:
        """Rows with exactly the table's columns, each row id once and for all."""
        if not batch.num_rows:
            return
        self._batches.append(file_batch(batch, self._state.current, row_ids, None))
        self._count += batch.num_rows
        self._bytes += batch_bytes(batch)
        config = self._state.table.config
        if self._count >= max(config.block_row_count, config.direct_write_row_count) or self._bytes > BLOCK_BYTES:
            self._write()

    def finish(self) -> None:
        """All rows are there."""
        many = self._count >= self._state.table.config.direct_write_row_count
        if self._blocks or many or self._bytes > batch_size.BATCH_BYTES:
            self._write()
            return
        schema = self._state.current
        for batch in self._batches:
            rows = pa.RecordBatch.from_arrays(batch.columns[: len(schema)], schema=schema.arrow)
            self._rows += zip(batch.column(ROW_ID).to_pylist(), encode_batch(rows, schema), strict=True)

    def _write(self) -> None:
        if not self._batches:
            return
        config = self._state.table.config
        table = sorted_by_row_id(pa.Table.from_batches(self._batches, self._state.current.file))
        self._batches, self._count, self._bytes = [], 0, 0
        for start in range(0, table.num_rows, config.block_row_count):
            batches = table.slice(start, config.block_row_count).to_batches(_SLICE)
            lake = self._tx._lake
            block = Target.of(self._state, lake._writer_id()).write(lake.storage, iter(batches))
            block.keys_known = self._keys_known
            self._blocks.append(block)

    def apply(self, writes: TableWrites) -> None:
        for row_id, values in self._rows:
            writes.replace(row_id, values, same_key=self._keys_known)
        for block in self._blocks:
            writes.insert_block(block)


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
