"""``il.connect``: from an address to an open lake.

Nothing is created before the storage has responded: a wrong bucket, key or folder is an error that leaves no lake
behind.  A lake is created in three steps: a file is written to the storage and deleted again, the catalog is created in
one transaction, and the storage root is marked as this lake's.  If a process dies in between, the next connect
completes the lake; processes that create the same lake at the same time all get the same one.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from indexlake.catalog import commits, log_records, tables
from indexlake.catalog.clock import now
from indexlake.catalog.driver import Catalog
from indexlake.catalog.owner import marked_owner, write_mark
from indexlake.commit.turns import RETRY_TIMEOUT, checked_timeout
from indexlake.errors import (
    AlreadyExistsError,
    CatalogError,
    IndexLakeError,
    NotFoundError,
    OwnershipError,
    SchemaError,
    StorageError,
)
from indexlake.hot import registry
from indexlake.hot.inline import ReplicaStore
from indexlake.hot.registry import open_store
from indexlake.hot.spec import HOT_BYTES, HotSpec
from indexlake.lake import Lake
from indexlake.storage import Storage
from indexlake.storage.cache import CACHE_BYTES, CacheSpec
from indexlake.storage.exchange import Given
from indexlake.storage.names import OWNER
from indexlake.storage.options import checked_options
from indexlake.storage.spill import Spill
from indexlake.storage.temporary import is_writable

if TYPE_CHECKING:
    from indexlake.hot.memory.opening import LogPlace
    from indexlake.hot.memory.recovery import Recovery
    from indexlake.hot.memory.redo import Durability
    from indexlake.hot.store import HotStore

log = logging.getLogger("indexlake")

CATALOG_FILE = "catalog.sqlite"
FILES_FOLDER = "files"
SPILL_FOLDER = "spill"
LOG_FOLDER = "redo"
_HALF_ADDRESS = re.compile(r"(s3a?|gs|az|abfss?|https?|file):(?!//)", re.IGNORECASE)
PROBE = "indexlake.probe"
"""A file that is written and deleted before a lake is created; what a killed process left behind is deleted too."""


def connect(
    catalog: str | os.PathLike[str],
    *,
    storage: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    create: bool = True,
    read_only: bool = False,
    catalog_schema: str | None = None,
    automatic: bool = True,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_bytes: int = CACHE_BYTES,
    spill_dir: str | os.PathLike[str] | None = None,
    retry_timeout: float = RETRY_TIMEOUT,
    clock: Callable[[], int] | None = None,
    hot: str | None = None,
    log_dir: str | os.PathLike[str] | None = None,
    durability: Durability = "fdatasync",
    take_over: bool = False,
    hot_bytes: int = HOT_BYTES,
    files: Given = None,
) -> Lake:
    """Open a lake, or create one.  A ``~`` at the start of a path is the home directory.

    Parameters
    ----------
    catalog
        A folder (SQLite catalog and files in it), ``postgresql://…``, or ``":memory:"``.
    storage
        Where files go: a directory or ``s3://bucket/prefix``.  Only needed at creation; the lake remembers it.
    storage_options
        Keys and settings for the object store.  They are secrets and never stored.
    create
        Create the lake if there is none.
    read_only
        Refuse writes.
    catalog_schema
        The PostgreSQL schema that holds the catalog.
    automatic
        Dump in the background when a table has many hot rows.
    cache_dir
        A local directory that caches what is read from an object store, for all processes on this machine.  Files that
        are local or in memory are not cached.
    cache_bytes
        The most that the cache may take; what was used longest ago goes first.
    spill_dir
        A local directory for data that does not fit into memory.  By default, a folder inside the lake's own folder, or
        the system's temporary directory if there is no such folder or it cannot be written to.
    retry_timeout
        How long, in seconds, a statement or ``lake.run`` keeps retrying against other writers before it raises
        ``ConflictError``.
    clock
        For tests: a function that returns the time, in microseconds since 1970, used to measure retention and grace
        periods.  The default is the lake's own time, which always dates commits.
    hot
        Where new rows land.  ``"inline"``: in the catalog database, for any number of processes.  ``"memory"``: in the
        memory of the one process that has the lake open, with a redo log on a local disk.  Only needed at creation;
        ``lake.convert`` changes it.
    log_dir
        The local folder of the redo log, for ``hot="memory"``; by default ``redo`` inside the lake's own folder.
    durability
        When a commit to the redo log returns: once it is on disk (``"fdatasync"``), once it has been written while a
        background thread syncs every few milliseconds (``"interval"``), or once it has been written (``"none"``).
    take_over
        For ``hot="memory"``, if the process that had the lake open was on another machine and is gone for good: open
        the lake here, with the files of its redo log in ``log_dir``.
    hot_bytes
        For ``hot="memory"``, roughly how much memory the newest rows may take, 1 GiB by default.  Above half of it,
        rows go to blocks in the background; above three quarters, writers are slowed down; when it is full, they wait.
    files
        Folders whose files SQL may read and write (``copy``, ``from 'file.parquet'``, ``read_csv`` …), in addition to
        ``exchange`` below the storage root: a folder, ``s3://bucket/folder``, or a list of them; ``"/"`` means every
        local file.  A mapping gives each bucket its storage options: ``{"s3://other/in": {…}}``.
    """
    root = storage_address(storage)
    open_lake = partial(
        Lake, automatic=automatic, retry_timeout=checked_timeout(retry_timeout), clock=clock,
        hot_bytes=HotSpec.checked_bytes(hot_bytes), files=files,
    )  # fmt: skip
    create = create and not read_only
    opening = Opening.of(
        catalog, storage_options, catalog_schema, read_only=read_only, cache=CacheSpec.of(cache_dir, cache_bytes),
        spill=None if spill_dir is None else Spill.given(spill_dir),
        hot=HotSpec.of(hot, log_dir, durability, take_over=take_over),
    )  # fmt: skip
    if not opening.persistent:
        return opening.lake(None, open_lake, create=True, read_only=False)
    if root is not None and root.startswith("memory:"):
        raise SchemaError("A persistent catalog cannot keep its files in memory. Give a directory or s3://….")
    if opening.folder is not None and not create and not os.path.exists(os.path.join(opening.folder, CATALOG_FILE)):
        address = os.fspath(catalog)
        raise NotFoundError(f"There is no lake in {address!r}. {tables.advice(read_only)}", name=address)
    return opening.lake(root, open_lake, create=create, read_only=read_only)


def connect_to_read(
    catalog: str,
    storage_options: Mapping[str, str] | None,
    catalog_schema: str | None,
    cache_dir: str | None,
    cache_bytes: int,
) -> Lake:
    """Open an existing lake for a reader that keeps a pin in its catalog.

    If its newest rows are in another process's memory, or in a log on another machine, the last checkpoint is read.
    """
    opening = Opening.of(catalog, storage_options, catalog_schema, cache=CacheSpec.of(cache_dir, cache_bytes))
    open_lake = partial(Lake, automatic=False)
    try:
        return opening.lake(None, open_lake, create=False, read_only=False)
    except (OwnershipError, SchemaError):
        return opening.lake(None, open_lake, create=False, read_only=True)


def storage_address(storage: str | os.PathLike[str] | None) -> str | None:
    if storage is None:
        return None
    root = os.fspath(storage) if isinstance(storage, str | os.PathLike) else None
    if not isinstance(root, str) or not root:
        raise SchemaError(f"storage is a directory or s3://bucket/prefix, not {storage!r}.")
    _check_path(root)
    if _HALF_ADDRESS.match(root):
        raise SchemaError(f"storage={root!r} looks like an address, which has two slashes: s3://bucket/prefix.")
    return os.path.expanduser(root)


def _check_path(path: str) -> None:
    if "\0" in path or any("\ud800" <= c <= "\udfff" for c in path):
        raise CatalogError(f"{path!r} is not a path: it contains a character that paths cannot have.")


@dataclass(frozen=True, slots=True)
class Opening:
    """A catalog at an address: how to open it, and what its storage needs."""

    open_catalog: Callable[[bool], Catalog]
    default_storage: str | None
    folder: str | None
    options: Mapping[str, str]
    cache: CacheSpec | None
    given_spill: Spill | None
    hot: HotSpec = field(default_factory=lambda: HotSpec())

    @staticmethod
    def of(
        catalog: str | os.PathLike[str],
        storage_options: Mapping[str, str] | None,
        catalog_schema: str | None,
        *,
        read_only: bool = False,
        cache: CacheSpec | None = None,
        spill: Spill | None = None,
        hot: HotSpec | None = None,
    ) -> Opening:
        """Return an opening for whatever ``connect`` takes as a catalog, without opening anything yet."""
        address = os.fspath(catalog) if isinstance(catalog, str | os.PathLike) else None
        if not isinstance(address, str) or not address:
            raise CatalogError(f"il.connect takes a folder, a postgresql:// address or ':memory:', not {catalog!r}.")
        _check_path(address)
        options = checked_options(storage_options)
        hot = hot or HotSpec()
        if address == ":memory:":
            from indexlake.catalog.sqlite import SqliteCatalog

            return Opening(lambda create: SqliteCatalog(":memory:"), "memory://", None, options, cache, spill, hot)
        if address.startswith(("postgresql://", "postgres://")):
            from indexlake.catalog.postgres import PostgresCatalog

            return Opening(
                lambda create: PostgresCatalog(
                    address, catalog_schema=catalog_schema, create=create, read_only=read_only
                ),
                None, None, options, cache, spill, hot,
            )  # fmt: skip
        if "://" in address:
            files = f" The files can be there: storage={address!r}." if address.startswith("s3://") else ""
            raise CatalogError(
                f"{address.split('://')[0]}:// is not a catalog. Use a folder, postgresql://… or ':memory:'.{files}"
            )
        from indexlake.catalog.sqlite import SqliteCatalog

        folder = os.path.abspath(os.path.expanduser(address))
        if os.path.exists(folder) and not os.path.isdir(folder):
            raise CatalogError(f"{address!r} is a file. A lake is a directory; name one that exists, or a new one.")
        path = os.path.join(folder, CATALOG_FILE)
        return Opening(
            lambda create: SqliteCatalog(path, create=create, read_only=read_only),
            os.path.join(folder, FILES_FOLDER), folder, options, cache, spill, hot,
        )  # fmt: skip

    @property
    def persistent(self) -> bool:
        return self.default_storage != "memory://"

    def lake(self, storage: str | None, open_lake: Callable[..., Lake], *, create: bool, read_only: bool) -> Lake:
        catalog = self.existing_catalog(create)
        made = False
        try:
            if create and (catalog is None or tables.read_lake(catalog) is None):
                catalog, made = self._make(catalog, storage)
            assert catalog is not None
            tables.open_lake(catalog, catalog.location, read_only=read_only)
            with catalog.read() as r:
                record, epoch = tables.lake_record(r), log_records.read_epoch(r)
            assert record is not None
            persisted = record.properties["storage"]
            if storage is not None and self.persisted(storage) != persisted:
                raise SchemaError(
                    f"This lake keeps its files in {persisted!r}, not in {storage!r}. The storage root is fixed when "
                    f"a lake is made: leave storage= out.{self._advice(catalog)}"
                )
            files = self.files(persisted)
            if not read_only:
                self._mark(catalog, files, record)
            if made and self.persistent:
                log.info("made a new lake: %s, files in %s", catalog.location, files.root)
            name = record.properties["hot"]
            catalog, hot, recovery = self._hot(catalog, name, files.spill, epoch, read_only=read_only)
            return open_lake(
                catalog, files, hot, read_only=read_only, new=made and self.persistent, recovery=recovery,
                log_place=lambda hot: replace(self, hot=hot.or_as(self.hot)).log_place(),
            )  # fmt: skip
        except BaseException:
            if catalog is not None:
                catalog.close()
            raise

    def _hot(
        self, catalog: Catalog, name: str, spill: Spill, epoch: int, *, read_only: bool
    ) -> tuple[Catalog, HotStore, Recovery | None]:
        """Open the hot store named in the lake's record; return it with the catalog as users of that store see it."""
        self.hot.check(name)
        if name != registry.MEMORY:
            return catalog, open_store(name, catalog, spill, epoch), None
        if read_only:
            return catalog, ReplicaStore(catalog, spill), None
        from indexlake.hot.memory.opening import open_memory

        store, owned, recovery = open_memory(catalog, spill, self.log_place())
        return owned, store, recovery

    def log_place(self) -> LogPlace:
        """Return where the redo log goes if the lake has one."""
        from indexlake.hot.memory.opening import LogPlace

        hot, beside = self.hot, None if self.folder is None else os.path.join(self.folder, LOG_FOLDER)
        if not self.persistent:
            return LogPlace(None)
        folder = hot.log_dir or beside
        if folder is None:
            raise SchemaError(
                "A lake on PostgreSQL that keeps its newest rows in memory needs a redo log on a local disk: pass "
                "log_dir=, the same folder each time."
            )
        return LogPlace(folder, folder == beside, hot.durability, hot.take_over)

    def existing_catalog(self, create: bool) -> Catalog | None:
        """Open the catalog if it exists, without creating anything."""
        try:
            return self.open_catalog(False)
        except NotFoundError:
            if not create:
                raise
            return None

    def _make(self, catalog: Catalog | None, storage: str | None) -> tuple[Catalog, bool]:
        """Create the lake once its storage has accepted a file. False: another process was faster."""
        root = storage or self.default_storage
        if root is None:
            raise SchemaError("A new lake on PostgreSQL needs storage=…: a directory or s3://bucket/prefix.")
        properties: dict[str, Any] = {"hot": self.hot.name or registry.DEFAULT, "storage": self.persisted(root)}
        places = [] if "://" in root else [self.resolved(properties["storage"])]
        with removed_after_failure([*places, *([self.folder] if self.folder else [])]):
            files = self.files(properties["storage"])
            _probe(files)
            try:
                owner = marked_owner(files)
                if owner is not None:
                    catalog = catalog or self.existing_catalog(create=True)  # perhaps created meanwhile
                    _check_owner(catalog, owner, files)
                catalog = catalog or self.open_catalog(True)
                return catalog, tables.create_lake(catalog, properties, now())
            except BaseException:
                if catalog is not None:
                    catalog.close()
                raise

    def files(self, root: str) -> Storage:
        files = Storage.open(self.resolved(root), self.options, self.cache, self._spill())
        if files.cache is not None:
            files.cache.check()
        return files

    def _spill(self) -> Spill:
        if self.given_spill is not None:
            return self.given_spill
        if self.folder is not None and is_writable(self.folder):
            return Spill(os.path.join(self.folder, SPILL_FOLDER), ours=True)
        return Spill()

    def persisted(self, root: str) -> str:
        """Return the storage root for the catalog, relative to the lake's own folder if inside, so that it can move."""
        if "://" in root:
            return root
        full = os.path.abspath(root)
        if self.folder is not None and full.startswith(self.folder + os.sep):
            return os.path.relpath(full, self.folder)
        return full

    def resolved(self, root: str) -> str:
        return root if "://" in root or self.folder is None else os.path.join(self.folder, root)

    def _mark(self, catalog: Catalog, files: Storage, record: tables.LakeRecord) -> None:
        """Write the owner's mark at the storage root unless it exists: a process may have died before writing it."""
        try:
            if not files.exists(OWNER):
                with suppress(AlreadyExistsError):
                    write_mark(files, record, overwrite=False)
        except IndexLakeError as error:
            if "NoSuchBucket" not in str(error):
                raise  # other causes, such as keys or the endpoint, are not recorded in the catalog
            raise type(error)(f"{str(error).rstrip('.')}.{self._advice(catalog)}", **error.details) from None

    def _advice(self, catalog: Catalog) -> str:
        """Return advice for a lake that was never used and whose storage turns out to be wrong."""
        with catalog.read() as r:
            if commits.last_snapshot(r)[0] > 0:
                return ""
        if self.folder is not None:
            catalog_is = f"{os.path.join(self.folder, CATALOG_FILE)} and the files beside it that begin with this name"
        else:
            catalog_is = f"the tables whose names begin with indexlake_ in {catalog.location}"
        return (
            f" No table was ever created in this lake: if its storage is wrong, delete {catalog_is}, and connect "
            "again with the right storage=."
        )


def _check_owner(catalog: Catalog | None, owner: tuple[str, int], files: Storage) -> None:
    """Refuse files of another lake: two lakes in one place would delete each other's files."""
    record = None if catalog is None else tables.read_lake(catalog)
    if record is None or record.lake_id != owner[0]:
        raise StorageError(
            f"No lake was made: the files at {files.root} belong to another lake ({OWNER} there names {owner[0]}). "
            "Choose another directory or prefix for storage=, or remove the old lake's files first.",
            path=files.root,
        )


def _probe(files: Storage) -> None:
    """Write a file at the storage root and delete it again."""
    try:
        with files.create_file(PROBE, overwrite=True) as out:
            out.write(b"written before a lake is made here\n")
        files.delete(PROBE)
    except IndexLakeError as error:
        raise StorageError(
            f"No lake was made: cannot write to its storage {files.root}. {str(error)[:1].upper()}{str(error)[1:]}",
            **{**error.details, "path": files.root},
        ) from None


@contextmanager
def removed_after_failure(directories: list[str]) -> Iterator[None]:
    """Remove directories created in the block that are still empty if the block fails."""
    missing = []
    for directory in directories:
        while not os.path.lexists(directory) and directory not in missing:
            missing.append(directory)
            directory = os.path.dirname(directory)
    try:
        yield
    except BaseException:
        for directory in sorted(missing, key=len, reverse=True):
            with suppress(OSError):
                os.rmdir(directory)
        raise
