"""Vacuum: delete the files that nothing reaches.

A file goes when no record names it, nobody alive could still commit it, and the grace period has passed since it
became unreachable.  The storage is listed before the catalog is read, so a file that is committed meanwhile is either
not in the list or in the catalog.  Only files under the tables' own folders are looked at.  A storage that belongs to
another lake, or to another copy of this one, is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from indexlake import faults
from indexlake.catalog import files, tables
from indexlake.commit.section import now
from indexlake.errors import NotFoundError, StorageError
from indexlake.storage.path import FileInfo

if TYPE_CHECKING:
    from indexlake.lake import Lake
    from indexlake.pipeline.job import Job

GRACE = timedelta(hours=24)
FOLDER = "tables"
_NAME = re.compile(r"tables/(\d+)/[a-z]+/([0-9a-f]{12})-[0-9a-f]{32}\.")
"""How every file that this program writes is named: table, role, writer, attempt."""

DELETES_PER_COMMIT = 1_000


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
            f"vacuum {did} {self.files:,} files of {self.bytes:,} bytes; {self.waiting:,} wait for the grace period, "
            f"{self.kept:,} are in use"
        )


def vacuum(lake: Lake, job: Job, *, dry_run: bool = True, grace: timedelta = GRACE) -> VacuumResult:
    """Find the files that nothing reaches, and unless it is a dry run delete them."""
    check_owner(lake)
    job.check()
    listed = [f for f in lake.storage.list(FOLDER)] if _has_tables(lake) else []
    faults.step("vacuum.listed")
    time = now()
    before = lake._clock() - int(grace.total_seconds() * 1e6)
    if dry_run:
        with lake.catalog.read() as r:
            writers = files.living_writers(r) - files.lapsed_writers(r, time)
            reachable, dropped = set(files.reachable_paths(r)), files.garbage(r)
    else:
        with lake.catalog.transaction() as tx:
            job.fence(tx)
            files.reap_writers(tx, time)
            files.forget_writers(tx, before)
            writers = files.living_writers(tx)
            reachable, dropped = set(files.reachable_paths(tx)), files.garbage(tx)
            tx.commit()
    faults.step("vacuum.read")
    doomed: list[FileInfo] = []
    waiting = 0
    for found in listed:
        if found.path in reachable:
            continue
        since = _unreachable_since(found, writers, dropped)
        if since is None:
            continue
        if since > before:
            waiting += 1
        else:
            doomed.append(found)
    if not dry_run:
        _delete(lake, job, doomed, dropped)
    return VacuumResult(
        dry_run, len(doomed), sum(f.size for f in doomed), len(listed) - len(doomed) - waiting, waiting,
        tuple(sorted(f.path for f in doomed)),
    )  # fmt: skip


def _unreachable_since(found: FileInfo, writers: set[str], dropped: dict[str, int]) -> int | None:
    """When the file became unreachable, in microseconds; None when it is not ours to judge."""
    if found.path in dropped:
        return dropped[found.path]
    name = _NAME.match(found.path)
    if name is None or name[2] in writers:
        return None
    # Never committed, and nobody is left who could: unreachable since it was written.
    return 0 if found.modified is None else int(found.modified.timestamp() * 1e6)


def _delete(lake: Lake, job: Job, doomed: list[FileInfo], dropped: dict[str, int]) -> None:
    job.expect(tasks=len(doomed))
    for start in range(0, len(doomed), DELETES_PER_COMMIT):
        group = doomed[start : start + DELETES_PER_COMMIT]
        for found in group:
            job.check()
            lake.storage.delete(found.path)
            job.add(size=found.size)
        faults.step("vacuum.deleted")
        with lake.catalog.transaction() as tx:
            files.forget_garbage(tx, [f.path for f in group if f.path in dropped])
            tx.commit()
    _forget_missing(lake, dropped, {f.path for f in doomed})
    _remove_empty_folders(lake, doomed)


def _forget_missing(lake: Lake, dropped: dict[str, int], done: set[str]) -> None:
    """Records of files that an earlier run deleted and was killed before it could say so."""
    gone = [path for path in dropped if path not in done and not lake.storage.exists(path)]
    if gone:
        with lake.catalog.transaction() as tx:
            files.forget_garbage(tx, gone)
            tx.commit()


def _remove_empty_folders(lake: Lake, doomed: Iterable[FileInfo]) -> None:
    """The folders of tables that are gone for good."""
    with lake.catalog.read() as r:
        kept = files.table_ids(r)
    for table_id in {int(name[1]) for f in doomed if (name := _NAME.match(f.path))} - kept:
        folder = f"{FOLDER}/{table_id}"
        if next(lake.storage.list(folder), None) is None:
            lake.storage.remove_dir_all(folder)


def _has_tables(lake: Lake) -> bool:
    with lake.catalog.read() as r:
        return bool(files.table_ids(r)) or bool(files.garbage(r)) or lake.storage.exists("indexlake.json")


def check_owner(lake: Lake) -> None:
    """The mark at the storage root names this lake and this copy of its catalog."""
    record = tables.read_lake(lake.catalog)
    assert record is not None
    try:
        with lake.storage.open_file("indexlake.json") as f:
            mark = json.loads(f.read())
    except NotFoundError:
        raise StorageError(
            "The storage root has no indexlake.json, so it is not certain whose files these are: nothing is deleted. "
            "Open the lake once for writing, which puts it there.",
            path="indexlake.json",
        ) from None
    if (mark.get("lake_id"), mark.get("incarnation")) != (record.lake_id, record.incarnation):
        raise StorageError(
            f"The files at {lake.storage.root} belong to lake {mark.get('lake_id')}, incarnation "
            f"{mark.get('incarnation')}; this catalog is {record.lake_id}, incarnation {record.incarnation}: a copied "
            "or restored catalog must not delete the files of the living one. To take the files over with this "
            "catalog call lake.adopt().",
            path="indexlake.json",
        )
