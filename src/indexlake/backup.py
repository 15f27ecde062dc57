"""``lake.backup``: copy a lake to a folder while others read and write it.

The catalog is copied first, as of one state, and then the files that this state names.  Until they are all there, the
folder keeps the catalog that it had; then the new one replaces it in one transaction.  Nothing else in the folder is
changed, so a backup that was interrupted at any point leaves the previous one intact, and the next call goes on from
there.  Vacuum, the only job that deletes files, deletes none meanwhile.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from indexlake.catalog import activity, commits, definitions, files, log_records, meta_records, tables
from indexlake.catalog.owner import marked_owner, write_mark
from indexlake.catalog.sqlite import SqliteCatalog
from indexlake.catalog.sqlite_copy import copy_state, replace_catalog
from indexlake.connect import CATALOG_FILE, FILES_FOLDER, LOG_FOLDER, Opening, connect
from indexlake.display import counted
from indexlake.display.progress import ProgressBar
from indexlake.errors import AlreadyExistsError, CatalogError, NotFoundError, OwnershipError, SchemaError
from indexlake.hot.memory.log_copy import OpenSegment, open_log, write_log
from indexlake.hot.memory.ownership import FolderLock
from indexlake.hot.memory.redo import sync_folder
from indexlake.hot.memory.store import MemoryStore
from indexlake.hot.registry import MEMORY
from indexlake.partitions.meta import meta_from_bytes
from indexlake.pipeline.job import Job
from indexlake.pipeline.meta import meta_files, publish_meta
from indexlake.pipeline.runner import choose_runner
from indexlake.pipeline.vacuum import FILES_PER_TASK, WHOLE_LAKE
from indexlake.storage import Storage, faults
from indexlake.storage.checksum import Checksums
from indexlake.storage.names import namespace_folder

if TYPE_CHECKING:
    from indexlake.lake import Lake

NEW_FOLDER = "new"
"""In the backup's folder: holds the new catalog until it is complete."""
BACKUP = "backup"
"""A lake's property: the snapshot and incarnation as of which this folder is a backup."""
PIECE = 16 << 20
"""How many bytes of a file are read at a time."""


@dataclass(frozen=True, slots=True)
class BackupResult:
    """What ``lake.backup`` copied."""

    path: str
    snapshot_id: int
    files: int  # copied now
    bytes: int
    files_kept: int  # copied by an earlier backup

    def __str__(self) -> str:
        return (
            f"{self.path} is a backup as of snapshot {self.snapshot_id:,}: {counted(self.files, 'file')} of "
            f"{counted(self.bytes, 'byte')} copied, {self.files_kept:,} there already"
        )


def backup(lake: Lake, path: str | os.PathLike[str], progress: bool | None) -> BackupResult:
    if lake.catalog.database() != "sqlite":
        raise CatalogError(
            "lake.backup copies lakes whose catalog is a SQLite file, and this one is in PostgreSQL. Copy the database "
            "with pg_dump first, and then the files at the storage root, within vacuum's grace period."
        )
    folder = None
    if isinstance(path, str | os.PathLike) and "://" not in os.fspath(path):
        folder = Opening.of(path, None, None).folder
    if folder is None:
        raise SchemaError(f"A backup goes into a local folder, not to {path!r}.")
    target = Storage.open(os.path.join(folder, FILES_FOLDER))
    with ExitStack() as stack:
        job = stack.enter_context(Job(lake, "backup", WHOLE_LAKE, bar=ProgressBar("backup", progress)))
        record = tables.read_lake(lake.catalog)
        assert record is not None
        _check_target(lake, record, folder, target)
        if marked_owner(target) != (record.lake_id, record.incarnation):
            write_mark(target, record, overwrite=True)
        if isinstance(lake._hot, MemoryStore):
            stack.callback(_lock(os.path.join(folder, LOG_FOLDER)).release)
        _publish_metas(lake)
        shutil.rmtree(os.path.join(folder, NEW_FOLDER), ignore_errors=True)
        new = os.path.join(folder, NEW_FOLDER, CATALOG_FILE)
        os.mkdir(os.path.dirname(new))
        log = _copy_catalog(lake, new, stack)
        faults.step("backup.catalog")
        catalog = SqliteCatalog(new)
        with closing(catalog):
            with catalog.read() as r:
                snapshot = commits.last_snapshot(r)[0]
                job.expect(tasks=sum(1 for _ in files.reachable_paths(r)))
                count, size, kept = _copy_files(job, target, files.reachable_files(r))
                _copy_metas(lake, target, record, snapshot, map(namespace_folder, meta_records.namespace_ids(r)))
            faults.step("backup.files")
            job.check()
            _make_own(catalog, record, snapshot, log, os.path.join(folder, LOG_FOLDER))
        with closing(SqliteCatalog(os.path.join(folder, CATALOG_FILE))) as replaced:
            sync_folder(folder)
            replace_catalog(replaced, new)
        faults.step("backup.replaced")
        shutil.rmtree(os.path.dirname(new))
    return BackupResult(folder, snapshot, count, size, kept)


def _check_target(lake: Lake, record: tables.LakeRecord, folder: str, target: Storage) -> None:
    """Refuse a folder that holds anything but an earlier, unchanged backup of this lake."""

    def refused(what: str) -> AlreadyExistsError:
        return AlreadyExistsError(
            f"Nothing was backed up: {folder} {what}. Choose another folder, which may be new or empty.", name=folder
        )

    for ours, theirs in ((lake.catalog.location, os.path.join(folder, CATALOG_FILE)), (lake.storage.root, target.root)):
        if os.path.realpath(ours) == os.path.realpath(theirs):
            raise refused("is where this lake itself is")
    try:
        with closing(SqliteCatalog(os.path.join(folder, CATALOG_FILE), read_only=True)) as catalog:
            found = tables.read_lake(catalog)
            newest = 0
            if found is not None:
                with catalog.read() as r:
                    newest = commits.last_snapshot(r)[0]
    except NotFoundError:
        found = None
    if found is None:
        owner = marked_owner(target)
        if owner is None and any(not name.endswith(".tmp") for _, _, names in os.walk(folder) for name in names):
            raise refused("holds other files")
        if owner is not None and owner[0] != record.lake_id:
            raise refused("holds files of another lake")
        return
    made_as: Any = found.properties.get(BACKUP)
    if found.lake_id != record.lake_id:
        raise refused("holds another lake")
    if made_as is None:
        raise refused("holds a copy of this lake that lake.backup did not make")
    if found.properties["hot"] == MEMORY:
        with connect(folder, create=False, automatic=False) as there:  # which reads its redo log
            newest = there.snapshot_id
    if made_as != [newest, found.incarnation]:
        raise refused("holds a backup that was opened and changed since")
    if newest > lake.snapshot_id:
        raise refused(f"holds a backup as of snapshot {newest:,}, and this lake is only at {lake.snapshot_id:,}")


def _lock(folder: str) -> FolderLock:
    """Keep others from becoming the owner of the backup's redo log."""
    os.makedirs(folder, exist_ok=True)
    try:
        return FolderLock(folder, beside=True)
    except BlockingIOError:
        text = f"The lake with the redo log {folder} is open in another process. Close it there."
        raise OwnershipError(text) from None


def _publish_metas(lake: Lake) -> None:
    with lake.catalog.read() as r:
        found = definitions.list_tables(r)
    for table in found:
        if table.is_clustered:
            publish_meta(lake, table.table_id)


def _copy_catalog(lake: Lake, new: str, stack: ExitStack) -> list[OpenSegment] | None:
    """Write the catalog's present state to a file; return the redo log as of that state, if there is one."""
    hot, log = lake._hot, None
    with ExitStack() as held:
        if isinstance(hot, MemoryStore):
            held.enter_context(hot.turn)  # nothing is committed until both are open
        with lake.catalog.read() as r:
            if isinstance(hot, MemoryStore):
                log = open_log(hot, r, stack)
            held.close()
            copy_state(r, new)
    return log


def _copy_files(job: Job, target: Storage, found: Iterator[tuple[str, int, bytes]]) -> tuple[int, int, int]:
    """Copy what is not there; return how many files were copied, their bytes, and how many were there."""
    count = total = kept = 0
    runner = choose_runner(job.lake.storage.uncached(), "threads")
    while tasks := list(islice(found, FILES_PER_TASK)):
        with closing(runner.map(partial(_copy_file, target), tasks, job.check)) as copied:
            for (_, size, _), is_new in zip(tasks, copied, strict=True):
                count, total, kept = count + is_new, total + is_new * size, kept + (not is_new)
                job.add(size=size)
    return count, total, kept


def _copy_file(target: Storage, storage: Storage, task: tuple[str, int, bytes], check: Any) -> bool:
    """Copy a file, comparing every byte with its checksum; return False if it was there already."""
    path, size, checksums = task
    check()
    if _has(target, path, size):
        return False
    with (
        storage.open_file(path, Checksums.from_bytes(checksums)) as file,
        target.create_file(path, overwrite=True) as copy,
    ):
        for at in range(0, size, PIECE):
            check()
            copy.write(file.read_at(at, PIECE))
            file.let_go()
    return True


def _has(target: Storage, path: str, size: int) -> bool:
    with suppress(FileNotFoundError):
        return os.path.getsize(os.path.join(target.root, path)) == size
    return False


def _copy_metas(lake: Lake, target: Storage, record: tables.LakeRecord, snapshot: int, folders: Iterator[str]) -> None:
    """Copy the newest meta file of each table that does not go beyond the snapshot, if all that it names is there."""
    listed = [file for folder in folders for file in lake.storage.list(folder)]
    for metas in meta_files(lake.storage, listed).values():
        past = [m.file for m in metas if m.header is not None and m.header.age <= (record.incarnation, snapshot)]
        for newest in past[:1]:
            with suppress(NotFoundError):  # a vacuum that began before the backup has deleted it: a newer one exists
                with lake.storage.open_file(newest.path) as file:
                    data = bytes(file.read())
                if all(_has(target, named.path, named.size) for named in meta_from_bytes(data, newest.path).files):
                    with target.create_file(newest.path, overwrite=True) as copy:
                        copy.write(data)


def _make_own(
    catalog: SqliteCatalog, record: tables.LakeRecord, snapshot: int, log: list[OpenSegment] | None, folder: str
) -> None:
    """Make the copied catalog that of a lake of its own, which nobody is using."""
    with catalog.transaction() as tx:
        activity.forget_processes(tx)
        tables.set_property(tx, "storage", FILES_FOLDER)
        tables.set_property(tx, BACKUP, [snapshot, record.incarnation])
        if log is not None:
            lake = record.lake_id, record.incarnation
            written = write_log(log, folder, lake, log_records.read_epoch(tx))
            log_records.move(tx, written, f"process {os.getpid()}", socket.gethostname(), folder)
        tx.commit()
