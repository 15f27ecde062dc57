"""Vacuum: delete the files that nothing refers to.

A file is deleted if no record names it, no living writer could still commit it, and the grace period has passed since
it became unreachable. The storage is listed before the catalog is read, so a file committed in between is either not in
the list or in the catalog. Meta files are listed last: the newest one of a clustered table stays, and so does
everything it names, because a lost catalog is rebuilt from them (`pipeline.meta_garbage`). Nothing is deleted while a
backup copies files. Only files under the tables' own folders are considered. A storage that belongs to another lake, or
to another copy of this one, is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Unpack

from indexlake.catalog import commits, files, meta_records, tables
from indexlake.catalog.clock import correct_moments
from indexlake.catalog.owner import check_owner
from indexlake.display import counted
from indexlake.errors import SchemaError
from indexlake.pipeline.job import Job, Watched, check_free
from indexlake.pipeline.meta_garbage import MetaGarbage, is_meta, written_at
from indexlake.pipeline.runner import Runner
from indexlake.storage import Storage, faults
from indexlake.storage.names import TABLES, FileName, clustered_folder, namespace_folder, table_folder
from indexlake.storage.path import FileInfo

if TYPE_CHECKING:
    from indexlake.lake import Lake

GRACE = timedelta(hours=24)
WHOLE_LAKE = 0
"""Stands for a table id in the leases of jobs on all tables."""

NOT_RESTORED = "not_restored"
"""A lake's property: tables whose files exist but whose records were lost. Vacuum leaves their files alone."""

FILES_PER_TASK = 200


@dataclass(frozen=True, slots=True)
class VacuumResult:
    """What vacuum deleted, or would delete."""

    dry_run: bool
    files: int
    bytes: int
    kept: int
    waiting: int  # unreachable, but within the grace period
    paths: tuple[str, ...] = field(repr=False)

    def __str__(self) -> str:
        did = "would delete" if self.dry_run else "deleted"
        return (
            f"{did} {counted(self.files, 'file')} of {counted(self.bytes, 'byte')}; "
            f"{self.waiting:,} waiting for the grace period, {self.kept:,} in use"
        )


def vacuum(
    lake: Lake, runner: Runner, *, dry_run: bool = True, grace: timedelta = GRACE, **watched: Unpack[Watched]
) -> VacuumResult:
    """Find unreachable files and, unless it is a dry run, delete them."""
    if not isinstance(grace, timedelta) or grace < timedelta(0):
        raise SchemaError(f"grace must be a timedelta, zero or more; got {grace!r}.")
    check_owner(lake)
    with Job(lake, "vacuum", WHOLE_LAKE, **watched) as job:
        with lake.catalog.read() as r:
            namespaces = meta_records.namespace_ids(r)
        folders = [namespace_folder(n) for n in namespaces]
        listed = [file for folder in (TABLES, *folders) for file in lake.storage.list(folder)]
        faults.step("vacuum.listed")
        time = lake._now()
        before = lake._clock() - int(grace.total_seconds() * 1e6)
        lapsed = _reap_writers(lake, job, time, before, dry_run=dry_run)
        job.check()
        # After reaping: whatever a dead writer has committed is in the catalog now, and it can commit nothing more.
        with lake.catalog.read() as r:
            writers = files.living_writers(r) - lapsed
            reaped = files.reaped_writers(r) | dict.fromkeys(lapsed, time)
            reachable, dropped = set(files.reachable_paths(r)), files.garbage(r)
            clustered = files.clustered_table_ids(r)
            if not dry_run:  # what a backup is copying may have become unreachable since it began
                check_free(r, WHOLE_LAKE, "backup", "", time)
            record = tables.lake_record(r)
        assert record is not None
        spared = set(record.properties.get(NOT_RESTORED, ()))
        faults.step("vacuum.read")
        doomed: list[FileInfo] = []
        waiting = 0
        for found in listed:
            since = None if found.path in reachable else _unreachable_since(found, writers, reaped, dropped, spared)
            if since is None:
                continue
            if since > before:
                waiting += 1
            else:
                doomed.append(found)
        metas = MetaGarbage.of(lake.storage, folders, listed, doomed, clustered, spared, before)
        doomed = [*(file for file in doomed if file.path not in metas.named), *metas.doomed]
        waiting += metas.waiting
        if not dry_run:
            _delete(lake, job, runner, doomed, dropped)
            _delete(lake, job, runner, metas.last, dropped)
            _forget_missing(lake, dropped, {f.path for f in listed})
            _remove_empty_folders(lake, (*doomed, *metas.last), namespaces)
            lake._metas.clear()  # a damaged one may have been the newest: it is written again
        doomed += metas.last
    return VacuumResult(
        dry_run, len(doomed), sum(f.size for f in doomed), len(listed) - len(doomed) - waiting, waiting,
        tuple(sorted(f.path for f in doomed)),
    )  # fmt: skip


def _reap_writers(lake: Lake, job: Job, time: int, before: int, *, dry_run: bool) -> set[str]:
    """Declare silent writers dead, so that they can commit nothing more. A dry run only returns who they are."""
    if dry_run:
        with lake.catalog.read() as r:
            return files.lapsed_writers(r, time)
    with lake.catalog.transaction() as tx:
        job.fence(tx)
        if time >= commits.last_snapshot(tx)[1]:  # otherwise this clock is behind
            correct_moments(tx, time)
        files.reap_writers(tx, time)
        files.forget_writers(tx, before)
        tx.commit()
    return set()


def _unreachable_since(
    found: FileInfo, writers: set[str], reaped: dict[str, int], dropped: dict[str, int], spared: set[int]
) -> int | None:
    """Return when the file became unreachable, in microseconds; None: it is a meta file, or not ours to judge."""
    name = FileName.parse(found.path)
    if is_meta(name) or (name is not None and name.table_id in spared):
        return None
    if found.path in dropped:
        return dropped[found.path]
    if name is None or name.writer_id in writers:
        return None
    # Never committed, and no writer is left who could: unreachable since its writer died or left.
    return max(written_at(found), reaped.get(name.writer_id, 0))


def _delete(lake: Lake, job: Job, runner: Runner, doomed: list[FileInfo], dropped: dict[str, int]) -> None:
    paths = [f.path for f in doomed]
    groups = [tuple(paths[n : n + FILES_PER_TASK]) for n in range(0, len(paths), FILES_PER_TASK)]
    job.expect(tasks=len(groups))
    with closing(runner.map(delete_files, groups, job.check)) as results:
        for group, _ in zip(groups, results, strict=True):
            faults.step("vacuum.deleted")
            with lake.catalog.transaction() as tx:
                files.forget_garbage(tx, [path for path in group if path in dropped])
                tx.commit()
            job.add()


def delete_files(storage: Storage, paths: tuple[str, ...], check: Callable[[], None]) -> None:
    """Delete the files of one task; a missing file is no error."""
    for path in paths:
        check()
        storage.delete(path)


def _forget_missing(lake: Lake, dropped: dict[str, int], listed: Collection[str]) -> None:
    """Forget files that an earlier run deleted but was killed before it recorded that."""
    gone = [path for path in dropped if path not in listed and not lake.storage.exists(path)]
    if gone:
        with lake.catalog.transaction() as tx:
            files.forget_garbage(tx, gone)
            tx.commit()


def _remove_empty_folders(lake: Lake, doomed: Iterable[FileInfo], namespaces: Mapping[int, bool]) -> None:
    """Remove the folders of tables that are gone for good, and of dropped namespaces."""
    with lake.catalog.read() as r:
        kept = files.table_ids(r)
    empty = set()
    for name in filter(None, (FileName.parse(f.path) for f in doomed)):
        if name.table_id not in kept:
            empty.add(table_folder(name.table_id))
            if name.clustered is not None:
                empty.add(clustered_folder(name.clustered.namespace_id, name.table_id))
    if lake.storage.is_local:  # object stores have no empty folders
        empty |= {namespace_folder(n) for n, was_dropped in namespaces.items() if was_dropped}
    for folder in sorted(empty, key=len, reverse=True):
        if next(lake.storage.list(folder), None) is None:
            lake.storage.remove_dir_all(folder)
