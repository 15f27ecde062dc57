"""Publishing meta files, and finding the newest one.

A meta file is written after the commits that it describes, from a read transaction of its own whose snapshot stays
pinned until the file exists, so every file that it names outlives the writing. Many commits share a meta file: it is
published once at the end of a job, and in the background at a pace that takes a small part of the time. A process that
dies before that leaves the older file, which stays valid. The newest meta file is the one with the highest snapshot, no
matter when it was written, so a slow publisher never takes a table back in time.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from indexlake.blocks.block import BlockRecord
from indexlake.blocks.delete_vector import positions_to_bytes
from indexlake.catalog import meta_records, partitions, table_heads, tables
from indexlake.catalog.checksums import bytes_of
from indexlake.errors import CorruptionError, IndexLakeError, NotFoundError
from indexlake.indexes.kind import SegmentFile
from indexlake.partitions.meta import (
    HEADER_BYTES,
    Header,
    TableMeta,
    meta_from_bytes,
    meta_to_bytes,
    read_header,
)
from indexlake.storage import Storage
from indexlake.storage.names import Clustered, FileName, clustered_folder
from indexlake.storage.path import FileInfo

if TYPE_CHECKING:
    from indexlake.lake import Lake
    from indexlake.snapshots.reading import Reading

log = logging.getLogger("indexlake")

F = TypeVar("F", BlockRecord, SegmentFile)


@dataclass(frozen=True, slots=True)
class Published:
    """The newest meta file of a table known to this process; the table has not changed up to a snapshot."""

    state: str
    upto: int


def publish_meta(lake: Lake, table_id: int) -> str | None:
    """Write a meta file if a clustered table has changed since the newest one, and return its path.

    For a table that has become a heap, it says that the table has ended, so that no restore goes back to the clustered
    one. To be called at the end of a job, whose work is done anyway: an error is logged, and the next job tries again.
    """
    try:
        return _publish(lake, table_id)
    except NotFoundError:
        return None  # the table was dropped and has expired
    except IndexLakeError as error:
        log.warning("the meta file of table %s was not written; the next job does it: %s", table_id, error)
        return None


def _publish(lake: Lake, table_id: int) -> str | None:
    known = lake._metas.get(table_id)
    with lake._readings.open(table_id) as reading:
        table = reading.state.table
        if not (table.is_clustered or partitions.has_any(reading.transaction, table_id)):
            return None
        head = table_heads.read_head(reading.transaction, table_id)
        assert head is not None
        changed = max(head.changed_in, head.blocks_changed_in, head.deletes_changed_in)
        if known is not None and changed <= known.upto:
            return None
        pin = lake._pins.pin(reading.state.at)
        meta = table_meta(reading)
    with pin:  # the named files stay until the meta file exists
        header, data = meta_to_bytes(meta)
        if known is None:
            known = _published(lake.storage, table.namespace_id, table_id, header)
        path = None
        if known is None or known.state != header.state:
            path = _write(lake, table.namespace_id, table_id, meta.snapshot, data)
    lake._metas[table_id] = Published(header.state, meta.snapshot)
    return path


def _write(lake: Lake, namespace_id: int, table_id: int, snapshot: int, data: bytes) -> str:
    place = Clustered(namespace_id, None, snapshot)
    path = FileName.new(table_id, "meta", lake._writer_id(), "", place).path
    with lake.storage.create_file(path) as out:
        out.write(data)
    return path


def table_meta(reading: Reading) -> TableMeta:
    """Return what the catalog says of the table, in this read transaction."""
    state, r = reading.state, reading.transaction
    lake = tables.lake_record(r)
    assert lake is not None
    table_id = state.table.table_id
    record, next_row_id = meta_records.table_record(r, table_id)
    ended = state.table.end_snapshot is not None or not state.table.is_clustered
    blocks = () if ended else tuple(b for b in state.blocks.records if b.end_snapshot is None and b.role != "history")
    live = {block.data_file_id for block in blocks}
    links = [
        link
        for coverage in state.indexes.values()
        if coverage.index.end_snapshot is None
        for link in coverage.links.values()
        if link.data_file_id in live and link.end_snapshot is None
    ]
    blocks = _with_bytes(blocks)
    segments = {link.index_file_id: link.segment for link in links}
    segments = dict(zip(segments, _with_bytes(segments.values()), strict=True))
    links = [link._replace(segment=segments[link.index_file_id]) for link in links]
    deletes = {n: gone for n in live if (log := state.deletes.get(n)) is not None and (gone := log.at(state.at))}
    return TableMeta(
        lake.lake_id, lake.incarnation, state.at, ended, 0 if ended else reading.hot.sizes()[0], next_row_id,
        meta_records.sequences(r), record, meta_records.field_records(r, table_id),
        tuple(coverage.index for coverage in state.indexes.values() if coverage.index.end_snapshot is None),
        () if state.ranges is None else state.ranges.live, blocks, tuple(links),
        {file_id: positions_to_bytes(gone) for file_id, gone in deletes.items()},
    )  # fmt: skip


def _with_bytes(files: Collection[F]) -> tuple[F, ...]:
    """The same records with their checksums."""
    checksums = bytes_of([file.checksum for file in files])
    return tuple(file._replace(checksum=known) for file, known in zip(files, checksums, strict=True))


# ---------------------------------------------------------------- what is there


@dataclass(frozen=True, slots=True)
class MetaFile:
    file: FileInfo
    table_id: int
    header: Header | None  # None: it is damaged


def meta_files(storage: Storage, found: Iterable[FileInfo]) -> dict[int, list[MetaFile]]:
    """Return those of the files that are meta files, by table, the newest first and damaged ones last."""
    by_table: dict[int, list[MetaFile]] = {}
    for file in found:
        name = FileName.parse(file.path)
        if name is None or name.role != "meta" or not name.finished or name.extension:
            continue
        try:
            by_table.setdefault(name.table_id, []).append(MetaFile(file, name.table_id, _header(storage, file.path)))
        except NotFoundError:
            continue  # deleted meanwhile
    for metas in by_table.values():
        metas.sort(key=lambda m: (m.header is not None, (0, 0) if m.header is None else m.header.age), reverse=True)
    return by_table


def read_meta(storage: Storage, path: str) -> TableMeta:
    with storage.open_file(path) as file:
        return meta_from_bytes(bytes(file.read()), path)


def _header(storage: Storage, path: str) -> Header | None:
    try:
        with storage.open_file(path) as file:
            return read_header(bytes(file.read(HEADER_BYTES)), path)
    except CorruptionError:
        return None


def _published(storage: Storage, namespace_id: int, table_id: int, now: Header) -> Published | None:
    """Return the newest meta file in the table's folder, unless it belongs to an earlier copy of the catalog."""
    found = meta_files(storage, metas_in(storage, clustered_folder(namespace_id, table_id))).get(table_id, [])
    newest = found[0].header if found else None
    if newest is None or newest.incarnation != now.incarnation or newest.snapshot > now.snapshot:
        return None
    return Published(newest.state, newest.snapshot)


def metas_in(storage: Storage, folder: str) -> Iterator[FileInfo]:
    return (file for file in storage.list(folder) if file.path.endswith(".meta"))
