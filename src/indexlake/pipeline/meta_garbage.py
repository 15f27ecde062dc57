"""Which meta files vacuum deletes, and which files it has to spare for them.

The newest meta file of a clustered table stays, with every file that it names. Older ones, which serve if that one is
damaged, go after the grace period, and at once if there are many. Those of tables that were dropped or are no longer
clustered go like other files, but the newest of them last: as long as an older one exists, it says that the table is
gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from indexlake.errors import CorruptionError, NotFoundError
from indexlake.pipeline.meta import MetaFile, meta_files, read_meta
from indexlake.storage import Storage
from indexlake.storage.names import FileName
from indexlake.storage.path import FileInfo

OLDER_KEPT = 8
"""How many older files of a table wait for the grace period."""


@dataclass(frozen=True, slots=True)
class MetaGarbage:
    """What to do with meta files, decided before anything is deleted."""

    named: frozenset[str]  # files named by no catalog record but by a meta file that stays
    doomed: list[FileInfo]
    last: list[FileInfo]  # to be deleted when all others are gone
    waiting: int

    @staticmethod
    def of(
        storage: Storage,
        folders: Iterable[str],
        listed: Collection[FileInfo],
        unreachable: Collection[FileInfo],
        clustered: Collection[int],
        spared: Collection[int],
        before: int,
    ) -> MetaGarbage:
        """List the meta files again and decide: one published since the first listing protects what it names."""
        if not clustered and not any(is_meta(FileName.parse(f.path)) for f in listed):
            return MetaGarbage(frozenset(), [], [], 0)
        candidates = (file for folder in folders for file in storage.list(folder))
        found = meta_files(storage, candidates)
        in_danger = {name.table_id for f in unreachable if (name := FileName.parse(f.path)) is not None}
        known = {f.path for f in listed}
        named: set[str] = set()
        doomed: list[FileInfo] = []
        last: list[FileInfo] = []
        waiting = 0
        for table_id, metas in found.items():
            if table_id in spared:
                continue
            is_live = table_id in clustered
            if is_live and table_id in in_danger:
                named |= _named(storage, metas)
            past = [m for n, m in enumerate(metas[1:]) if n >= OLDER_KEPT or _superseded(metas, n + 1) <= before]
            doomed += [m.file for m in past if m.file.path in known]
            waiting += len(metas) - 1 - len(past)
            if not is_live and len(past) == len(metas) - 1 and metas[0].file.path in known:
                if written_at(metas[0].file) <= before:
                    last.append(metas[0].file)
                else:
                    waiting += 1
        return MetaGarbage(frozenset(named), doomed, last, waiting)


def _named(storage: Storage, metas: Sequence[MetaFile]) -> set[str]:
    """Return the files named by the newest readable meta file."""
    for meta in metas:
        try:
            return {file.path for file in read_meta(storage, meta.file.path).files}
        except (CorruptionError, NotFoundError):  # damaged, or deleted by another vacuum that found a newer one
            continue
    return set()


def _superseded(metas: Sequence[MetaFile], place: int) -> int:
    """Return the time since which there has been a newer one."""
    return min(written_at(m.file) for m in metas[:place])


def written_at(file: FileInfo) -> int:
    """Return the time in microseconds, or 0 if the store does not tell."""
    return 0 if file.modified is None else int(file.modified.timestamp() * 1e6)


def is_meta(name: FileName | None) -> bool:
    """Return whether it is a complete meta file."""
    return name is not None and name.role == "meta" and name.finished and not name.extension
