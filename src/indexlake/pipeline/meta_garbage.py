"""Which meta files vacuum deletes, and which files it has to spare for them.

The newest meta file of a clustered table stays, with every file that it names.  Older ones, which serve if that one is
damaged, go after the grace period, and at once when there are many.  Those of tables that were dropped or are not
clustered any more go like other files, but the newest of them last: as long as an older one is there, it says that the
table is gone.
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
"""So many older ones of a table wait for the grace period."""


@dataclass(frozen=True, slots=True)
class MetaGarbage:
    """What there is to be said about meta files before anything is deleted."""

    named: frozenset[str]  # files that no catalog record names but a meta file that stays
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
        """Lists the meta files again: one that was published since the first listing protects what it names."""
        if not clustered and not any(is_meta(FileName.parse(f.path)) for f in listed):
            return MetaGarbage(frozenset(), [], [], 0)
        there = (file for folder in folders for file in storage.list(folder))
        found = meta_files(storage, there)
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
    """The files of the newest meta file, and of all that are newer than one that can be read."""
    for meta in metas:
        try:
            return {file.path for file in read_meta(storage, meta.file.path).files}
        except (CorruptionError, NotFoundError):  # damaged, or deleted by another vacuum which found a newer one
            continue
    return set()


def _superseded(metas: Sequence[MetaFile], place: int) -> int:
    """Since when there has been a newer one."""
    return min(written_at(m.file) for m in metas[:place])


def written_at(file: FileInfo) -> int:
    """In microseconds; 0 where the store does not tell."""
    return 0 if file.modified is None else int(file.modified.timestamp() * 1e6)


def is_meta(name: FileName | None) -> bool:
    """Whether it is a whole meta file."""
    return name is not None and name.role == "meta" and name.finished and not name.extension
