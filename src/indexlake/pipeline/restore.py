"""Restore: a new catalog from the meta files and blocks of a lost one.

Everything is written in one transaction, so a half-restored catalog does not exist. Before that, the storage is marked
as the new catalog's: the old one, if it turns up again, can delete nothing. The tables have precisely the rows that
were in blocks when their meta files were written. Nothing of their past is known, so their history begins with the
restore, whose snapshot, row ids and other numbers are beyond all that were used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from indexlake.blocks.delete_vector import positions_from_bytes
from indexlake.catalog import meta_records, segments, tables
from indexlake.catalog.checksums import read_checksums
from indexlake.catalog.owner import write_mark
from indexlake.display import counted
from indexlake.hot.registry import open_store
from indexlake.pipeline.build_index import BuildTask, run_task, uncovered_blocks
from indexlake.pipeline.vacuum import NOT_RESTORED
from indexlake.snapshots import state as table_state
from indexlake.storage.names import new_writer_id

if TYPE_CHECKING:
    from indexlake.catalog.driver import Catalog, Transaction
    from indexlake.partitions.meta import TableMeta
    from indexlake.pipeline.lost_catalog import LostBlock, LostCatalog, LostTable
    from indexlake.storage import Storage

LOST_NUMBERS = 1 << 40
"""Snapshots and row ids that commits after the meta file may have used. They are never given again: anyone who
remembers one, such as a reader of changes, is told that it is gone instead of getting something else."""


@dataclass(frozen=True, slots=True)
class RestoredTable:
    """A table as it was at a snapshot, without the rows that were hot then."""

    table: str
    snapshot: int
    rows: int
    blocks: int
    partitions: int
    bytes: int
    hot_rows_lost: int
    segments_lost: int

    def __str__(self) -> str:
        lost = f"; {counted(self.hot_rows_lost, 'row')} that lay in the hot store lost" if self.hot_rows_lost else ""
        segments = f"; {counted(self.segments_lost, 'index segment')} to build again" if self.segments_lost else ""
        return (
            f"{self.table} as of snapshot {self.snapshot:,}: {counted(self.rows, 'row')} in "
            f"{counted(self.blocks, 'block')} of {counted(self.bytes, 'byte')}{lost}{segments}"
        )


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """What was restored, and what could not be."""

    lake_id: str
    incarnation: int
    snapshot: int  # the first of the restored lake
    tables: tuple[RestoredTable, ...]
    dropped: tuple[str, ...]  # tables that had been dropped
    lost_tables: tuple[LostTable, ...]
    lost_blocks: tuple[LostBlock, ...]
    damaged_metas: tuple[str, ...]
    newer_files: tuple[str, ...]  # written after the meta files; not trusted

    def __str__(self) -> str:
        lines = [f"{counted(len(self.tables), 'table')} restored, from snapshot {self.snapshot:,} on:"]
        lines += [f"  {table}" for table in self.tables]
        lines.append(
            "Lost with the catalog: rows written since and rows that were hot, history, tokens, streams, and whatever "
            "is not a table: views, macros, sequences, named types."
        )
        for title, found in (
            ("Not restored, and left as they are:", self.lost_tables),
            ("Blocks that are missing or damaged; vacuum will delete what is left of them:", self.lost_blocks),
            ("Dropped before, and not restored:", self.dropped),
            ("Meta files that could not be used:", self.damaged_metas),
            (
                "Files that are newer than the meta files, perhaps never committed; vacuum will delete them:",
                self.newer_files,
            ),
        ):
            if found:
                lines += [title, *(f"  {one}" for one in found)]
        return "\n".join(lines)


def write_catalog(
    catalog: Catalog, storage: Storage, found: LostCatalog, properties: dict[str, Any], now: int
) -> RestoreResult:
    """Fill an empty catalog with what was found."""
    snapshot = _next_snapshot(found)
    lost = [table.table_id for table in found.lost_tables]
    record = tables.LakeRecord(
        found.lake_id, found.incarnation + 1, tables.SCHEMA_VERSION, {**properties, NOT_RESTORED: lost}
    )
    write_mark(storage, record, overwrite=True)
    metas = _with_distinct_names([meta for meta in found.metas if not meta.ended])
    hot = open_store(properties["hot"], catalog, storage.spill)
    with catalog.transaction() as tx:
        if not tables.begin_lake(tx, catalog.dialect, record, now):
            raise tables.there_is_a_lake(catalog.location)
        meta_records.restore_snapshot(tx, snapshot)
        meta_records.set_sequences(tx, _sequences(found))
        for meta in metas:
            meta_records.restore_table(tx, hot, meta, _next_row_id(meta), snapshot)
            _build_key_segments(tx, storage, meta.table_id, snapshot)
        meta_records.add_garbage(tx, [(file.path, found.names[file.path].table_id) for file in found.unnamed], now)
        tx.commit()
    return RestoreResult(
        record.lake_id, record.incarnation, snapshot,
        tuple(_restored(meta, found.lost_segments.get(meta.table_id, 0)) for meta in metas),
        tuple(meta.full_name for meta in found.metas if meta.ended),
        found.lost_tables, found.lost_blocks, found.damaged_metas, found.newer,
    )  # fmt: skip


def _with_distinct_names(metas: Sequence[TableMeta]) -> list[TableMeta]:
    """Resolve repeated names: the newest table or namespace keeps a name, others get their number appended.

    A table or namespace may have been renamed or dropped after its last meta file, and its name given to another.
    """
    spaces: dict[int, str] = {}
    for number, name in sorted(
        {(int(m.table["namespace_id"]), m.table["namespace_name"]) for m in metas}, reverse=True
    ):
        spaces[number] = _free_name(name, number, spaces.values())
    named: list[TableMeta] = []
    for meta in sorted(metas, key=lambda m: (m.table["named_in"], m.table_id), reverse=True):
        number = int(meta.table["namespace_id"])
        taken = [m.table["table_name"] for m in named if int(m.table["namespace_id"]) == number]
        name = _free_name(meta.table["table_name"], meta.table_id, taken)
        named.append(replace(meta, table={**meta.table, "namespace_name": spaces[number], "table_name": name}))
    return sorted(named, key=lambda meta: meta.table_id)


def _free_name(name: str, number: int, taken: Iterable[str]) -> str:
    others = {other.lower() for other in taken}
    while name.lower() in others:
        name = f"{name}_{number}"
    return name


def _restored(meta: TableMeta, lost_segments: int) -> RestoredTable:
    deleted = sum(len(positions_from_bytes(data)) for data in meta.deletes.values())
    return RestoredTable(
        meta.full_name, meta.snapshot, sum(b.record_count for b in meta.blocks) - deleted, len(meta.blocks),
        len(meta.partitions), sum(b.size for b in meta.blocks), meta.hot_rows, lost_segments,
    )  # fmt: skip


def _next_snapshot(found: LostCatalog) -> int:
    """Return a snapshot beyond every one that a file mentions."""
    versions = (name.clustered.version for name in found.names.values() if name.clustered is not None)
    return LOST_NUMBERS + max((*versions, *(meta.snapshot for meta in found.metas)))


def _next_row_id(meta: TableMeta) -> int:
    return LOST_NUMBERS + max([meta.next_row_id, *(block.max_row_id + 1 for block in meta.blocks)])


def _sequences(found: LostCatalog) -> dict[str, int]:
    """Return the next numbers, beyond those in every meta file and in every file name."""
    numbers: dict[str, int] = {}
    for meta in found.metas:
        for what, number in meta.sequences.items():
            numbers[what] = max(numbers.get(what, 1), number)
    for name in found.names.values():
        used = {"table": name.table_id}
        if (place := name.clustered) is not None:
            used |= {"namespace": place.namespace_id, "partition": place.partition_id or 0}
        for what, number in used.items():
            numbers[what] = max(numbers.get(what, 1), number + 1)
    return numbers


def _build_key_segments(tx: Transaction, storage: Storage, table_id: int, snapshot: int) -> None:
    """Build the segments of the primary key, which must find every row at once; other indexes are built later."""
    state = table_state.load(tx, table_id, snapshot)
    assert state.primary is not None
    index, writer = state.primary.index, new_writer_id()
    blocks = list(uncovered_blocks(state, index.index_id))
    checksums = read_checksums(tx, [block.path for block in blocks])  # only this transaction sees them
    for block in blocks:
        block = replace(block, checksum=checksums[block.path])
        task = BuildTask(table_id, writer, snapshot, index, state.current, (block,), {})
        segments.add_segment(tx, table_id, run_task(storage, task, lambda: None), [block.file_id], snapshot)
