"""``il.connect``: from an address to an open lake."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from indexlake.catalog import tables
from indexlake.catalog.clock import now
from indexlake.catalog.driver import Catalog
from indexlake.commit.turns import RETRY_TIMEOUT, checked_timeout
from indexlake.errors import AlreadyExistsError, CatalogError, NotFoundError, SchemaError
from indexlake.lake import Lake
from indexlake.owner import MARK, write_mark
from indexlake.storage import Storage
from indexlake.storage.cache import CACHE_BYTES, CacheSpec

CATALOG_FILE = "catalog.sqlite"
FILES_FOLDER = "files"


def connect(
    catalog: str | os.PathLike[str],
    *,
    storage: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    create: bool = True,
    read_only: bool = False,
    catalog_schema: str | None = None,
    automatic: bool = True,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_bytes: int = CACHE_BYTES,
    retry_timeout: float = RETRY_TIMEOUT,
) -> Lake:
    """Open a lake, or make one.

    Parameters
    ----------
    catalog
        A folder (SQLite catalog and files in it), ``postgresql://…``, or ``":memory:"``.
    storage
        Where files go: a directory or ``s3://bucket/prefix``.  Given once, at creation; remembered since.
    storage_options
        Keys and settings of the object store; they are secrets and never stored.
    create
        Make the lake if there is none.
    read_only
        Refuse writes.
    catalog_schema
        The PostgreSQL schema that holds the catalog.
    automatic
        Dump in the background when the hot store is full.
    cache_dir
        A local directory that keeps what was read of an object store, for all processes of this machine.  Files that
        are local or in memory are not kept twice: for them it means nothing.
    cache_bytes
        How much the cache may take; what was used longest ago goes first.
    retry_timeout
        So many seconds a single statement or ``lake.run`` goes on against other writers before ``ConflictError``.
    """
    address = os.fspath(catalog)
    if not isinstance(address, str) or not address:
        raise CatalogError("il.connect takes a folder, a postgresql:// address or ':memory:'.")
    create = create and not read_only
    checked_timeout(retry_timeout)
    cache = CacheSpec.of(cache_dir, cache_bytes)
    if address == ":memory:":
        return _open(
            _sqlite(":memory:", read_only=False), "memory://", None, None, storage_options, cache, True, False,
            automatic, retry_timeout,
        )  # fmt: skip
    if address.startswith(("postgresql://", "postgres://")):
        from indexlake.catalog.postgres import PostgresCatalog

        if storage is not None and storage.startswith("memory:"):
            raise SchemaError("A persistent catalog cannot keep its files in memory. Give a directory or s3://….")
        return _open(
            PostgresCatalog(address, catalog_schema=catalog_schema), storage, None, None, storage_options, cache,
            create, read_only, automatic, retry_timeout,
        )  # fmt: skip
    if "://" in address:
        raise CatalogError(
            f"{address.split('://')[0]}:// is not a catalog. Use a folder, postgresql://… or ':memory:'."
        )
    folder = os.path.abspath(address)
    if storage is not None and storage.startswith("memory:"):
        raise SchemaError("A persistent catalog cannot keep its files in memory. Leave storage= out.")
    path = os.path.join(folder, CATALOG_FILE)
    if not create and not os.path.exists(path):
        raise NotFoundError(f"There is no lake in {address!r}. Pass create=True to make one.", name=address)
    return _open(
        _sqlite(path, read_only=read_only), storage, FILES_FOLDER, folder, storage_options, cache, create, read_only,
        automatic, retry_timeout,
    )  # fmt: skip


def _sqlite(path: str, *, read_only: bool) -> Catalog:
    from indexlake.catalog.sqlite import SqliteCatalog

    return SqliteCatalog(path, read_only=read_only)


def _open(
    catalog: Catalog,
    storage: str | None,
    default_storage: str | None,
    folder: str | None,
    options: Mapping[str, str] | None,
    cache: CacheSpec | None,
    create: bool,
    read_only: bool,
    automatic: bool,
    retry_timeout: float,
) -> Lake:
    try:
        record = tables.read_lake(catalog)
        if record is None and create:
            root = storage or default_storage
            if root is None:
                raise SchemaError("A new lake on PostgreSQL needs storage=…: a directory or s3://bucket/prefix.")
            properties: dict[str, Any] = {"hot": "inline", "storage": _persisted(root, folder)}
            _files(properties["storage"], folder, options, cache)  # what is wrong is refused before all else
            tables.create_lake(catalog, properties, now())
        record = tables.open_lake(catalog, catalog.location, read_only=read_only)
        persisted = record.properties["storage"]
        if storage is not None and _persisted(storage, folder) != persisted:
            raise SchemaError(
                f"This lake keeps its files in {persisted!r}, not in {storage!r}. The storage root is fixed when a "
                "lake is made: leave storage= out."
            )
        files = _files(persisted, folder, options, cache)
        if not read_only:
            _mark(files, record)
        return Lake(catalog, files, read_only=read_only, automatic=automatic, retry_timeout=retry_timeout)
    except BaseException:
        catalog.close()
        raise


def _files(root: str, folder: str | None, options: Mapping[str, str] | None, cache: CacheSpec | None) -> Storage:
    files = Storage.open(_resolved(root, folder), options, cache)
    if files.cache is not None:
        files.cache.check()
    return files


def _persisted(root: str, folder: str | None) -> str:
    """As the catalog remembers it: relative for files inside the lake's own folder, so that it can be moved."""
    if "://" in root or (folder is not None and root == FILES_FOLDER):
        return root
    full = os.path.abspath(root)
    if folder is not None and full.startswith(folder + os.sep):
        return os.path.relpath(full, folder)
    return full


def _resolved(root: str, folder: str | None) -> str:
    return root if "://" in root or folder is None else os.path.join(folder, root)


def _mark(files: Storage, record: tables.LakeRecord) -> None:
    """Say at the storage root whose files these are, unless it says so: a process may die between the two."""
    if not files.exists(MARK):
        with suppress(AlreadyExistsError):
            write_mark(files, record, overwrite=False)
