"""What one process knows of one table: its record, schema, blocks, segments and deletes, complete up to a snapshot.

A ``TableState`` is immutable.  It advances only from read transactions (``refresh``), by what was physically
written since; a purge number that changed says that records were removed too, and they are taken out.  A state that
is newer than a read transaction must not be used with it: ``refresh`` says so and the reader begins again.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from indexlake.blocks.block import BlockRecord, SegmentRecord
from indexlake.blocks.block_index import BlockIndex
from indexlake.blocks.delete_vector import DeleteLog
from indexlake.blocks.row_ids import RowIds
from indexlake.catalog import definitions, fields, layout
from indexlake.catalog.definitions import TableRecord
from indexlake.catalog.driver import ReadTransaction, Transaction
from indexlake.errors import NotFoundError
from indexlake.keys.finder import KeyFinder
from indexlake.schema import SchemaHistory, TableSchema


@dataclass(frozen=True, slots=True)
class TableState:
    table: TableRecord
    schema: SchemaHistory
    current: TableSchema  # of now, or of the snapshot that a reader of the past or a transaction works at
    blocks: BlockIndex
    segments: dict[int, SegmentRecord]  # primary-key segment by data file id
    deletes: Mapping[int, DeleteLog]
    finder: KeyFinder
    primary_index: int | None
    at: int

    def as_of(self, snapshot: int) -> TableState:
        """The same state with the schema of a snapshot, for those who read or write at it."""
        if snapshot >= self.table.schema_version:
            return self
        return replace(self, table=replace(self.table, schema_version=snapshot), current=self.schema.at(snapshot))

    def row_ids(self, block: BlockRecord) -> RowIds:
        return _row_ids(block)

    def deleted(self, file_id: int, position: int, snapshot: int) -> bool:
        log = self.deletes.get(file_id)
        return log is not None and log.contains(position, snapshot)


class _RowIdCache:
    """Deserialised row-id sets by data file, bounded."""

    def __init__(self, limit: int) -> None:
        self._lock = threading.Lock()
        self._limit = limit
        self._sets: dict[bytes, RowIds] = {}

    def get(self, data: bytes) -> RowIds:
        found = self._sets.get(data)
        if found is None:
            found = RowIds.from_bytes(data)
            with self._lock:
                if len(self._sets) >= self._limit:
                    self._sets.pop(next(iter(self._sets)))
                self._sets[data] = found
        return found


_row_id_cache = _RowIdCache(4096)


def _row_ids(block: BlockRecord) -> RowIds:
    return _row_id_cache.get(block.row_ids)


class Stale(Exception):
    """The cached state is newer than the read transaction: begin another one."""


@contextmanager
def _without_collection() -> Iterator[None]:
    """Records have no cycles, and to look at all that are there again and again takes as long as to make them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@_without_collection()
def load(r: ReadTransaction | Transaction, table_id: int, last: int) -> TableState:
    """The whole state, in one read transaction."""
    table = definitions.read_table(r, table_id)
    if table is None:
        raise gone(table_id)
    schema = fields.read_schema(r, table)
    blocks = BlockIndex(layout.read_blocks(r, table_id))
    deletes = _read_deletes(r, table_id)
    segments = _by_block(layout.read_segments(r, table_id))
    primary = definitions.primary_index_id(r, table_id) if table.primary_key else None
    finder = _finder(blocks, segments, schema.current)
    return TableState(table, schema, schema.current, blocks, segments, deletes, finder, primary, last)


def refresh(r: ReadTransaction | Transaction, table_id: int, cached: TableState | None) -> tuple[TableState, int]:
    """The state as of this read transaction, and the newest snapshot in it."""
    head = layout.read_head(r, table_id)
    if head is None:
        raise gone(table_id)
    if cached is None:
        return load(r, table_id, head.last), head.last
    if cached.at > head.last:
        raise Stale
    if cached.at == head.last:
        return cached, head.last
    table, schema, current = cached.table, cached.schema, cached.current
    purged = head.purge_number != table.purge_number
    if head.changed_in > cached.at:
        found = definitions.read_table(r, table_id)
        assert found is not None
        if purged or found.schema_version != table.schema_version:
            schema = fields.read_schema(r, found)
            current = schema.current
        table = found
    blocks, segments, deletes, finder = cached.blocks, cached.segments, cached.deletes, cached.finder
    if purged or head.blocks_changed_in > cached.at:
        added = layout.read_blocks(r, table_id, cached.at)
        gone_ids = _removed(r, table_id, blocks) if purged else set()
        kept = blocks.without(added, gone_ids)
        blocks = blocks.with_blocks(added, gone_ids)
        segments = {**segments, **_by_block(layout.read_segments(r, table_id, cached.at))}
        for file_id in gone_ids:
            segments.pop(file_id, None)
        if current is cached.current:
            finder = finder.with_blocks(blocks, segments, len(added), kept)
        else:
            finder = _finder(blocks, segments, current)
    if purged:
        deletes = _read_deletes(r, table_id)
    elif head.deletes_changed_in > cached.at:
        changed = dict(deletes)
        for file_id, snapshot, positions in layout.read_deletes(r, table_id, cached.at):
            changed[file_id] = changed.get(file_id, _NO_DELETES).add(snapshot, positions)
        deletes = changed
    return (
        TableState(table, schema, current, blocks, segments, deletes, finder, cached.primary_index, head.last),
        head.last,
    )


def _read_deletes(r: ReadTransaction | Transaction, table_id: int) -> dict[int, DeleteLog]:
    collected: dict[int, list[tuple[int, Any]]] = {}
    for file_id, snapshot, positions in layout.read_deletes(r, table_id):
        collected.setdefault(file_id, []).append((snapshot, positions))
    return {file_id: DeleteLog(entries) for file_id, entries in collected.items()}


def _removed(r: ReadTransaction | Transaction, table_id: int, blocks: BlockIndex) -> set[int]:
    """The blocks whose records are gone.  To compare the numbers costs a fraction of reading all records again."""
    there = np.array(layout.block_ids(r, table_id), np.int64)
    known = blocks.numbers("data_file_id")
    return set(known[~np.isin(known, there)].tolist())


def gone(table_id: int) -> NotFoundError:
    return NotFoundError(f"Table number {table_id} was dropped. Look it up again with lake.table(name).")


def _by_block(segments: list[SegmentRecord]) -> dict[int, SegmentRecord]:
    return {file_id: segment for segment in segments for file_id in segment.data_file_ids}


def _finder(blocks: BlockIndex, segments: dict[int, SegmentRecord], schema: TableSchema) -> KeyFinder:
    codecs = schema.key_codecs
    return KeyFinder(blocks, segments, ints=len(codecs) == 1 and codecs[0].kind == "int")


_NO_DELETES = DeleteLog()


class StateCache:
    """The newest state of each table that this process has read; it never goes back."""

    def __init__(self) -> None:
        self._states: dict[int, TableState] = {}
        self._lock = threading.Lock()

    def get(self, table_id: int) -> TableState | None:
        return self._states.get(table_id)

    def offer(self, state: TableState) -> None:
        with self._lock:
            known = self._states.get(state.table.table_id)
            if known is None or known.at < state.at:
                self._states[state.table.table_id] = state

    def forget(self, table_id: int) -> None:
        with self._lock:
            self._states.pop(table_id, None)
