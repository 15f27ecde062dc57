"""Storage: the files of one lake below one root, and the picklable description that opens it elsewhere."""

from __future__ import annotations

import os
import uuid
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol
from urllib.parse import unquote, urlsplit

from indexlake.errors import NotFoundError, StorageError
from indexlake.storage import faults
from indexlake.storage.cache import CacheSpec, LocalCache
from indexlake.storage.checksum import CHUNK_SIZE, Checksums
from indexlake.storage.failure import missing, translated
from indexlake.storage.input_file import FileBytes, InputFile
from indexlake.storage.local import LocalBackend
from indexlake.storage.options import PUBLIC_OPTIONS, checked_options
from indexlake.storage.output_file import OutputFile, Sink
from indexlake.storage.path import FileInfo, check_path
from indexlake.storage.spill import TEMPORARY, Spill


class Backend(Protocol):
    """What each kind of storage implements; `Storage` checks paths and translates errors."""

    def create(self, path: str, overwrite: bool) -> Sink: ...
    def open(self, path: str, checksums: Checksums | None) -> FileBytes: ...
    def delete(self, path: str) -> None: ...
    def exists(self, path: str) -> bool: ...
    def make_dir(self, path: str) -> None: ...
    def remove_dir_all(self, path: str) -> None: ...
    def list(self, prefix: str) -> Iterator[FileInfo]: ...


@dataclass(frozen=True, slots=True)
class StorageSpec:
    """Where a storage is, without secrets: safe to print, pickle and send. `open` adds the secrets."""

    root: str
    options: tuple[tuple[str, str], ...] = ()
    cache: CacheSpec | None = None

    def open(self, options: Mapping[str, str] | None = None) -> Storage:
        return Storage.open(self.root, {**dict(self.options), **(options or {})}, self.cache)


class Storage:
    """Files below one root. Safe to share between threads; a forked child opens its own."""

    def __init__(
        self,
        root: str,
        backend: Backend,
        options: Mapping[str, str],
        cache: LocalCache | None = None,
        spill: Spill = TEMPORARY,
    ) -> None:
        self.root = root
        self.cache = cache
        self.spill = spill
        self._backend = backend
        self._options = dict(options)
        public = sorted((name, value) for name, value in options.items() if name in PUBLIC_OPTIONS)
        self._spec = StorageSpec(root, tuple(public), cache.spec if cache is not None else None)

    @staticmethod
    def open(
        root: str,
        options: Mapping[str, str] | None = None,
        cache: CacheSpec | None = None,
        spill: Spill = TEMPORARY,
    ) -> Storage:
        """Open "/path", "file:///path", "s3://bucket/prefix" or "memory://".

        `options` are those of `storage.options`. Nothing is created or contacted before the first file. `cache` is only
        for object stores: other files are local already.
        """
        options = checked_options(options)
        scheme, separator, _ = root.partition("://")
        if not separator:
            return Storage(os.path.abspath(root), LocalBackend(root), {}, spill=spill)
        url = urlsplit(root)
        if url.query or url.fragment or "@" in url.netloc:
            raise StorageError(f"storage root of scheme {scheme!r}: put keys and settings into storage_options")
        if scheme == "file":
            path = unquote(url.path)
            return Storage(os.path.abspath(path), LocalBackend(path), {}, spill=spill)
        if scheme == "s3" and url.netloc:
            from indexlake.storage.objects import ObjectBackend, s3_operator

            prefix = check_path(url.path.strip("/")) if url.path.strip("/") else ""
            local = None if cache is None else LocalCache(cache, root, options.get("endpoint", ""))
            backend = ObjectBackend(s3_operator(url.netloc, prefix, options), local, spill)
            return Storage(root, backend, options, local, spill)
        if scheme == "memory":
            return _open_memory(url.netloc, spill)
        raise StorageError(
            f"storage root {root!r} is not supported; use a directory, s3://bucket/prefix or memory://",
            path=root,
        )

    def uncached(self) -> Storage:
        """Return this storage without its local cache: reads return what the store has."""
        return self if self.cache is None else Storage.open(self.root, self._options, spill=self.spill)

    @property
    def is_local(self) -> bool:
        """Whether files are plain files of this machine, mapped when read."""
        return isinstance(self._backend, LocalBackend)

    def create_file(self, path: str, *, overwrite: bool = False, chunk_size: int = CHUNK_SIZE) -> OutputFile:
        """Begin a file; it appears when the returned file is closed. The name must be free.

        ``chunk_size``: how much readers of the file verify at once.
        """
        check_path(path)
        with translated("create", path):
            faults.step("storage.create")
            return OutputFile(path, self._backend.create(path, overwrite), chunk_size)

    def open_file(self, path: str, checksums: Checksums | None = None) -> InputFile:
        """Open a file for reading.

        With `checksums`, every byte is verified before it is returned, and a missing file or one of another size is a
        `CorruptionError`; without, a missing file is a `NotFoundError`.
        """
        check_path(path)
        try:
            with translated("open", path):
                faults.step("storage.open")
                return InputFile(self._backend.open(path, checksums))
        except NotFoundError:
            if checksums is None:
                raise
            raise missing(path) from None

    def delete(self, path: str) -> None:
        """Delete a file; a missing one is no error."""
        check_path(path)
        with translated("delete", path):
            faults.step("storage.delete")
            self._backend.delete(path)

    def exists(self, path: str) -> bool:
        check_path(path)
        with translated("look for", path):
            return self._backend.exists(path)

    def make_dir(self, path: str) -> None:
        """Create a directory, if the storage has any: on object stores it is only a prefix of names."""
        check_path(path)
        with translated("create", path):
            self._backend.make_dir(path)

    def remove_dir_all(self, path: str) -> None:
        """Delete everything below a directory. For vacuum and dropped tables only."""
        check_path(path)
        with translated("delete", path):
            faults.step("storage.delete")
            self._backend.remove_dir_all(path)

    def list(self, prefix: str = "") -> Iterator[FileInfo]:
        """Yield all files below a directory ("" = the root), in no order, including abandoned temporary ones."""
        return self._listing(check_path(prefix) if prefix else "")

    def _listing(self, prefix: str) -> Iterator[FileInfo]:
        with translated("list", prefix):
            yield from self._backend.list(prefix)

    @property
    def secrets(self) -> Mapping[str, str]:
        """What `spec().open` needs elsewhere besides the description. Never print, log or store it."""
        return self._options

    def spec(self) -> StorageSpec:
        """Return the picklable description of this storage."""
        return self._spec

    def __repr__(self) -> str:
        return f"Storage({self.root!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Storage holds secrets and connections and is not pickled; send storage.spec() instead")


_memories: weakref.WeakValueDictionary[str, Storage] = weakref.WeakValueDictionary()


def _open_memory(name: str, spill: Spill) -> Storage:
    """Create a memory storage, or return the one of this process with this name."""
    if not name:
        from indexlake.storage.objects import ObjectBackend, operator

        name = uuid.uuid4().hex
        storage = Storage(f"memory://{name}", ObjectBackend(operator("memory"), None, spill), {}, spill=spill)
        _memories[name] = storage
        return storage
    found: Any = _memories.get(name)
    if found is None:
        raise StorageError(
            f"memory storage {name!r} is not in this process: memory is not shared between processes; "
            "use a directory or s3://"
        )
    return found  # type: ignore[no-any-return]
