"""What a storage reveals about a lake whose catalog is lost: each table's newest meta file, and what is missing.

Only what a meta file names is trusted. Other files are listed: they may never have been committed, and it is unknown
what was deleted from them. A block that is missing, or differs from what its meta file says, is reported with its rows;
a segment is left out, because it can be rebuilt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property

from indexlake.catalog.owner import marked_owner
from indexlake.display import counted
from indexlake.errors import CorruptionError, IndexLakeError, NotFoundError, StorageError
from indexlake.partitions.meta import NamedFile, NewerFormat, TableMeta
from indexlake.pipeline.meta import meta_files, read_meta
from indexlake.pipeline.runner import ThreadRunner
from indexlake.storage import Storage
from indexlake.storage.checksum import Checksums
from indexlake.storage.names import FileName, clustered_folder, table_folder
from indexlake.storage.path import FileInfo


@dataclass(frozen=True, slots=True)
class LostTable:
    """A table whose files exist but whose definition is lost."""

    table_id: int
    folder: str
    files: int
    bytes: int
    why: str

    def __str__(self) -> str:
        held = f"{counted(self.files, 'file')} of {counted(self.bytes, 'byte')} in {self.folder}"
        return f"table {self.table_id} ({held}): {self.why}"


@dataclass(frozen=True, slots=True)
class LostBlock:
    """A block named in a meta file that is missing, or not as it should be."""

    table: str
    path: str
    rows: int
    why: str

    def __str__(self) -> str:
        return f"{self.table}: {counted(self.rows, 'row')} of {self.path}: {self.why}"


@dataclass(frozen=True)
class LostCatalog:
    """What can be restored from a storage, and what cannot."""

    lake_id: str
    incarnation: int  # the highest that is named anywhere
    metas: tuple[TableMeta, ...]  # without unusable segments; including ended ones
    listed: tuple[FileInfo, ...]
    newest: Mapping[int, FileInfo]  # by table id: the meta file that was used
    damaged_metas: tuple[str, ...]
    lost_blocks: tuple[LostBlock, ...]
    lost_segments: Mapping[int, int]  # the number for each table id

    @cached_property
    def names(self) -> dict[str, FileName]:
        """The files of tables, by path."""
        return {f.path: name for f in self.listed if (name := FileName.parse(f.path)) is not None}

    @cached_property
    def lost_tables(self) -> tuple[LostTable, ...]:
        known = {meta.table_id for meta in self.metas}
        found: dict[int, list[FileInfo]] = {}
        for file in self.listed:
            name = self.names.get(file.path)
            if name is not None and name.table_id not in known:
                found.setdefault(name.table_id, []).append(file)
        return tuple(self._lost(table_id, files) for table_id, files in sorted(found.items()))

    def _lost(self, table_id: int, files: Sequence[FileInfo]) -> LostTable:
        places = [self.names[file.path].clustered for file in files]
        place = next((c for c in places if c is not None), None)
        if place is None:
            folder = table_folder(table_id)
            why = "a heap table, of which only the catalog knew name, columns, blocks and deletes"
        else:
            folder = clustered_folder(place.namespace_id, table_id)
            why = "none of its meta files can be read"
        return LostTable(table_id, folder, len(files), sum(file.size for file in files), why)

    @cached_property
    def unnamed(self) -> tuple[FileInfo, ...]:
        """Files of known tables that their meta files do not name, other than meta files."""
        known = {meta.table_id for meta in self.metas}
        named = {path for meta in self.metas if not meta.ended for path, *_ in meta.files}
        return tuple(
            file
            for file in self.listed
            if (name := self.names.get(file.path)) is not None
            and name.table_id in known
            and name.role != "meta"
            and file.path not in named
        )

    @cached_property
    def newer(self) -> tuple[str, ...]:
        """Those of ``unnamed`` that were written after the meta file, or for a later snapshot."""
        snapshots = {meta.table_id: meta.snapshot for meta in self.metas}
        lost = {block.path for block in self.lost_blocks}

        def is_newer(file: FileInfo) -> bool:
            name = self.names[file.path]
            if name.clustered is not None and name.clustered.version > snapshots[name.table_id]:
                return True
            published = self.newest[name.table_id].modified
            return file.modified is not None and published is not None and file.modified > published

        return tuple(sorted(file.path for file in self.unnamed if file.path not in lost and is_newer(file)))

    def without_lost_blocks(self) -> LostCatalog:
        """Return what can be restored without the lost blocks."""
        lost = {block.path for block in self.lost_blocks}

        def kept(meta: TableMeta) -> TableMeta:
            blocks = tuple(b for b in meta.blocks if b.path not in lost)
            kept_ids = {b.data_file_id for b in blocks}
            return replace(
                meta,
                blocks=blocks,
                links=tuple(link for link in meta.links if link.data_file_id in kept_ids),
                deletes={n: gone for n, gone in meta.deletes.items() if n in kept_ids},
            )

        return replace(self, metas=tuple(map(kept, self.metas)))


def find(
    storage: Storage, *, verify: bool, progress: Callable[[int, int, int, int], None] = lambda *_: None
) -> LostCatalog:
    """Examine a storage.

    ``verify``: read every byte that is named. ``progress`` gets: tasks done, all tasks, rows, bytes.
    """
    storage = storage.uncached()
    listed = tuple(storage.list(""))
    files = {file.path: file for file in listed}
    owner = _owner(storage)
    metas: list[TableMeta] = []
    newest: dict[int, FileInfo] = {}
    damaged: list[str] = []
    strange: list[str] = []
    for found in meta_files(storage, listed).values():
        for candidate in sorted(found, key=lambda each: each.header is not None):
            try:
                meta = read_meta(storage, candidate.file.path)
            except NewerFormat:
                raise
            except CorruptionError:
                damaged.append(candidate.file.path)
                continue
            if owner is not None and meta.lake_id != owner[0]:
                strange.append(candidate.file.path)
                continue
            metas.append(meta)
            newest[meta.table_id] = candidate.file
            break
    if not metas:
        raise _nothing_found(storage, listed, damaged, strange)
    if len({meta.lake_id for meta in metas}) > 1:
        raise StorageError(
            f"The meta files at {storage.root} are of several lakes, and no indexlake.json says whose files these are. "
            "Move those of other lakes away.",
            path=storage.root,
        )
    wrong = _sizes(metas, files)
    if verify:
        wrong |= _checksums(storage, [m for m in metas if not m.ended], wrong, progress)
    whole = tuple(
        replace(meta, links=tuple(link for link in meta.links if link.segment.path not in wrong)) for meta in metas
    )
    return LostCatalog(
        metas[0].lake_id,
        max([meta.incarnation for meta in metas] + ([] if owner is None else [owner[1]])),
        tuple(sorted(whole, key=lambda meta: meta.table_id)),
        listed,
        newest,
        (*damaged, *strange),
        tuple(
            LostBlock(meta.full_name, block.path, block.record_count, wrong[block.path])
            for meta in metas
            for block in meta.blocks
            if block.path in wrong
        ),
        {meta.table_id: sum(s.path in wrong for s in meta.segments.values()) for meta in metas},
    )


def _owner(storage: Storage) -> tuple[str, int] | None:
    try:
        return marked_owner(storage)
    except StorageError:
        return None  # it is damaged; the meta files say whose they are


def _nothing_found(
    storage: Storage, listed: Sequence[FileInfo], damaged: list[str], strange: list[str]
) -> IndexLakeError:
    """Return the error that explains why there is nothing to restore from."""
    ids: dict[int, list[FileInfo]] = {}
    for file in listed:
        if (name := FileName.parse(file.path)) is not None:
            ids.setdefault(name.table_id, []).append(file)
    lines = [f"There is no meta file at {storage.root}, so no table can be restored: only clustered tables have them."]
    if damaged or strange:
        lines = [f"No meta file at {storage.root} can be used, so no table can be restored."]
        lines += [f"{path} is damaged." for path in damaged] + [f"{path} is another lake's." for path in strange]
    lines += [
        f"Table {n} has {counted(len(found), 'file')} of {counted(sum(f.size for f in found), 'byte')} in "
        f"{table_folder(n)}; its name, columns, block list and deletes were in the catalog only."
        for n, found in sorted(ids.items())
    ]
    if not ids:
        lines.append(
            "No file there belongs to a lake: is this the storage root? For a lake in a folder, it is "
            "`files` inside it."
        )
    return NotFoundError(" ".join(lines), name=storage.root)


def _sizes(metas: Iterable[TableMeta], files: Mapping[str, FileInfo]) -> dict[str, str]:
    """Return what is wrong with named files, as far as a listing shows it."""
    wrong = {}
    for meta in metas:
        for named in meta.files:
            found = files.get(named.path)
            if found is None:
                wrong[named.path] = "it is missing"
            elif found.size != named.size:
                wrong[named.path] = f"it has {counted(found.size, 'byte')} and should have {named.size:,}"
    return wrong


def _checksums(
    storage: Storage,
    metas: Sequence[TableMeta],
    known: Mapping[str, str],
    progress: Callable[[int, int, int, int], None],
) -> dict[str, str]:
    """Return what is wrong with the bytes of existing files."""
    tasks = [file for meta in metas for file in meta.files if file.path not in known]
    wrong: dict[str, str] = {}
    rows = size = 0
    with closing(ThreadRunner(storage).map(_verify, tasks, lambda: None)) as results:
        for done, (task, lines) in enumerate(zip(tasks, results, strict=True), 1):
            if lines is not None:
                wrong[task.path] = lines
            rows, size = rows + task.rows, size + task.size
            progress(done, len(tasks), rows, size)
    return wrong


def _verify(storage: Storage, file: NamedFile, check: Callable[[], None]) -> str | None:
    check()
    try:
        with storage.open_file(file.path, Checksums.from_bytes(file.checksum)) as opened:
            opened.verify()
    except CorruptionError as error:
        return str(error)
    return None
