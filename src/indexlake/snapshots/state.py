"""What one process knows of one table: its record, schema, blocks, indexes and deletes, complete up to a snapshot.

A ``TableState`` is immutable. It is brought up to date only from read transactions (``refresh``), by reading what was
physically written since; if the purge number has changed, records were removed too, and they are taken out. A state
newer than a read transaction must not be used with it: ``refresh`` raises ``Stale`` and the reader begins again.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from indexlake.blocks.addresses import Addresses, ranked
from indexlake.blocks.block import BlockRecord
from indexlake.blocks.block_index import BlockIndex
from indexlake.blocks.delete_vector import DeleteLog
from indexlake.blocks.open_files import OpenFiles
from indexlake.catalog import data_files, definitions, delete_entries, fields, partitions, segments, table_heads
from indexlake.catalog.definitions import TableRecord
from indexlake.catalog.driver import ReadTransaction, Transaction
from indexlake.errors import NotFoundError
from indexlake.indexes.coverage import Coverage
from indexlake.indexes.index import Index
from indexlake.partitions.ranges import Ranges
from indexlake.schema import ROW_ID, SchemaHistory, TableSchema

if TYPE_CHECKING:
    from indexlake.hot.store import HotStore

FEW_ROWS = 1_000
"""The ids of up to this many rows are read one by one from a block that is not in row-id order; for more, all are
read."""


class TableState(NamedTuple):
    table: TableRecord
    schema: SchemaHistory
    current: TableSchema  # as of now, or of the snapshot at which a reader or transaction works
    blocks: BlockIndex
    deletes: Mapping[int, DeleteLog]
    indexes: Mapping[int, Coverage]  # by index id
    primary: Coverage | None  # the primary key's
    enforced: tuple[Coverage, ...]  # the primary key and every published unique index
    ranges: Ranges | None  # the partitions of a clustered table
    at: int
    limit: int | None = None  # the newest snapshot that this reader may see

    @property
    def newest(self) -> int:
        """The newest snapshot that can be read."""
        return self.at if self.limit is None else min(self.at, self.limit)

    @property
    def live_indexes(self) -> tuple[Index, ...]:
        """The indexes that every new block is written for."""
        return tuple(coverage.index for coverage in self.indexes.values() if coverage.index.end_snapshot is None)

    def as_of(self, snapshot: int) -> TableState:
        """Return the same state with the schema of a snapshot, for reading or writing at it."""
        if snapshot >= self.table.schema_version:
            return self
        table = replace(self.table, schema_version=snapshot)
        return self._replace(table=table, current=self.schema.at(snapshot))

    def still_at(self, snapshot: int) -> TableState:
        """Return the same state at a later snapshot, up to which nothing has changed."""
        return tuple.__new__(TableState, (*self[:-2], snapshot, None))

    def addresses(self, block: BlockRecord, files: OpenFiles) -> Addresses:
        """Return the mapping between rows and positions of a data block."""
        if block.row_order == "row_id":
            return ranked(block.row_ids)
        return files.addresses(block, self.schema.at(block.schema_snapshot).file)

    def row_ids_at(self, block: BlockRecord, positions: npt.ArrayLike, files: OpenFiles) -> npt.NDArray[np.int64]:
        """Return the ids of the rows at some positions of a data block."""
        at = np.asarray(positions)
        if block.row_order == "row_id" or not 0 < len(at) <= FEW_ROWS:
            return self.addresses(block, files).row_ids_at(at)
        ascending, inverse = np.unique(at.astype(np.uint64), return_inverse=True)
        reader = files.reader(block, self.schema.at(block.schema_snapshot).file)
        found = [batch.column(0).to_numpy() for batch in reader.read([ROW_ID], ascending)]
        ids: npt.NDArray[np.int64] = np.concatenate(found)[inverse]
        return ids

    def deleted(self, file_id: int, position: int, snapshot: int) -> bool:
        log = self.deletes.get(file_id)
        return log is not None and log.contains(position, snapshot)


class Stale(Exception):
    """Raised when the cached state is newer than the read transaction: begin another one."""


@contextmanager
def without_collection() -> Iterator[None]:
    """Disable garbage collection while many records are made: they have no cycles, and scanning them often is slow."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def _lasting() -> Iterator[None]:
    """The same for records that stay: they count as old at once, so the next collections leave them alone too."""
    with without_collection():
        yield
        if not gc.get_freeze_count():  # what others have frozen stays so
            gc.freeze()
            gc.unfreeze()


@_lasting()
def load(r: ReadTransaction | Transaction, table_id: int, last: int) -> TableState:
    """Read the whole state in one read transaction."""
    table = definitions.read_table(r, table_id)
    if table is None:
        raise gone(table_id)
    schema = fields.read_schema(r, table)
    blocks = BlockIndex(data_files.read_blocks(r, table_id))
    deletes = _read_deletes(r, table_id)
    links = segments.read_links(r, table_id)
    indexes = {
        index.index_id: Coverage.of(index, blocks, links.get(index.index_id, []), schema.current)
        for index in segments.read_indexes(r, table_id)
    }
    ranges = _ranges(r, table, None, -1)
    primary, enforced = _primary(indexes), _enforced(indexes)
    return TableState(table, schema, schema.current, blocks, deletes, indexes, primary, enforced, ranges, last)


def refresh(
    r: ReadTransaction | Transaction, table_id: int, cached: TableState | None, store: HotStore | None = None
) -> TableState:
    """Return the state as of this read transaction; its ``at`` is the newest snapshot in it.

    If ``store`` is given, check that it still is the lake's hot store.
    """
    head = table_heads.read_head(r, table_id)
    if head is None:
        raise gone(table_id)
    if cached is not None and cached.at == head.last:
        return cached
    if cached is not None and cached.at > head.last:
        raise Stale
    if store is not None:
        store.still_there(r, head.last)
    if cached is None:
        return load(r, table_id, head.last)
    table, schema, current = cached.table, cached.schema, cached.current
    purged, altered = head.purge_number != table.purge_number, head.changed_in > cached.at
    if not (purged or altered) and max(head.blocks_changed_in, head.deletes_changed_in) <= cached.at:
        return cached.still_at(head.last)
    blocks, deletes, indexes, primary = cached.blocks, cached.deletes, cached.indexes, cached.primary
    enforced, ranges = cached.enforced, cached.ranges
    if altered:
        found = definitions.read_table(r, table_id)
        assert found is not None
        if purged or found.schema_version != table.schema_version:
            schema = fields.read_schema(r, found)
            current = schema.current
        table = found
        ranges = _ranges(r, table, None if purged else ranges, cached.at)
    if altered or head.blocks_changed_in > cached.at:
        added = data_files.read_blocks(r, table_id, cached.at) if head.blocks_changed_in > cached.at else []
        gone_ids = _removed(r, table_id, blocks) if purged else set()
        kept = blocks.without(added, gone_ids)
        if added or gone_ids:
            blocks = blocks.with_blocks(added, gone_ids)
        links = segments.read_links(r, table_id, cached.at)
        known = segments.read_indexes(r, table_id) if altered else [c.index for c in indexes.values()]
        horizon = table.horizon if purged else None
        indexes = {
            i.index_id: coverage.advance(i, current, blocks, added, kept, gone_ids, links.get(i.index_id, []), horizon)
            if (coverage := indexes.get(i.index_id)) is not None
            else Coverage.of(i, blocks, links.get(i.index_id, []), current)
            for i in known
        }
        primary, enforced = _primary(indexes), _enforced(indexes)
    if purged:
        deletes = _read_deletes(r, table_id)
    elif head.deletes_changed_in > cached.at:
        changed = dict(deletes)
        for file_id, snapshot, positions in delete_entries.read_deletes(r, table_id, cached.at):
            changed[file_id] = changed.get(file_id, _NO_DELETES).add(snapshot, positions)
        deletes = changed
    return TableState(table, schema, current, blocks, deletes, indexes, primary, enforced, ranges, head.last)


def _ranges(r: ReadTransaction | Transaction, table: TableRecord, known: Ranges | None, since: int) -> Ranges | None:
    """Return the partitions of a clustered table, given all that were ``known`` at the snapshot ``since``."""
    if not table.is_clustered:
        return None
    if known is None:
        return Ranges(partitions.read_partitions(r, table.table_id))
    return known.with_partitions(partitions.read_partitions(r, table.table_id, since))


def _read_deletes(r: ReadTransaction | Transaction, table_id: int) -> dict[int, DeleteLog]:
    collected: dict[int, list[tuple[int, Any]]] = {}
    for file_id, snapshot, positions in delete_entries.read_deletes(r, table_id):
        collected.setdefault(file_id, []).append((snapshot, positions))
    return {file_id: DeleteLog(entries) for file_id, entries in collected.items()}


def _removed(r: ReadTransaction | Transaction, table_id: int, blocks: BlockIndex) -> set[int]:
    """Return the ids of blocks whose records are gone: comparing ids is far cheaper than reading all records."""
    existing = np.array(data_files.block_ids(r, table_id), np.int64)
    known = blocks.numbers("data_file_id")
    return set(known[~np.isin(known, existing)].tolist())


def gone(table_id: int) -> NotFoundError:
    return NotFoundError(f"Table number {table_id} was dropped. Look it up again with lake.table(name).")


def _primary(indexes: Mapping[int, Coverage]) -> Coverage | None:
    return next((c for c in indexes.values() if c.index.is_primary and c.index.end_snapshot is None), None)


def _enforced(indexes: Mapping[int, Coverage]) -> tuple[Coverage, ...]:
    return tuple(c for c in indexes.values() if c.index.enforced_snapshot is not None and c.index.end_snapshot is None)


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
