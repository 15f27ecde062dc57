"""Which files a lake's SQL may read and write: those below certain folders, and no others.

One of them always exists: ``exchange`` below the storage root. The lake's owner names further ones. A file reached by
another path, by ``..`` or through a link does not count as below them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from indexlake.errors import SchemaError, StorageError
from indexlake.storage.address import is_remote, storage_of
from indexlake.storage.storage import Storage

FOLDER = "exchange"
"""Below the storage root, in a place without files of the lake itself."""

Given = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Mapping[str, Mapping[str, str] | None] | None


def refusal(path: str) -> str:
    """Return the error text for a file that is not below one of the folders."""
    return (
        f"SQL may not read or write {path!r}. It may use files in the folder {FOLDER!r} below the lake's storage root, "
        "and in folders that the lake's owner names: il.connect(…, files=[…])."
    )


def kept(path: str) -> str:
    """Return the error text for writing among the lake's own files."""
    return (
        f"SQL may not write {path!r}: the lake keeps its own files there. Choose another folder, or {FOLDER!r} below "
        "the lake's storage root."
    )


def is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


@dataclass(frozen=True, slots=True)
class Exchange:
    own: Storage
    local: tuple[str, ...]
    remote: Mapping[str, Mapping[str, str] | None] = field(repr=False)  # each with its options, which are secrets

    @staticmethod
    def of(given: Given, own: Storage) -> Exchange:
        """Return the exchange for ``files`` as passed to ``il.connect``."""
        folders: list[str] = []
        if own.is_local or own.root.startswith("s3://"):
            folders.append(f"{own.root}/{FOLDER}")
        options: dict[str, Mapping[str, str] | None] = {}
        for folder in _listed(given):
            if not isinstance(folder, str | os.PathLike) or not os.fspath(folder):
                raise SchemaError(f"files takes folders, local or s3://bucket/folder, not {folder!r}.")
            folders.append(str(os.fspath(folder)))
            if isinstance(given, Mapping) and folder in given:
                options[folders[-1].rstrip("/")] = given[str(folder)]
        paths = [os.path.expanduser(f) for f in folders if not is_remote(f)]
        local = dict.fromkeys(path for p in paths for path in (os.path.abspath(p), os.path.realpath(p)))
        remote = {f.rstrip("/"): options.get(f.rstrip("/")) for f in folders if is_remote(f)}
        for folder in remote:
            if not folder.startswith("s3://"):
                raise SchemaError(f"files={folder!r} is not supported: name local folders or s3://bucket/folder.")
        return Exchange(own, tuple(local), remote)

    def found(self, address: str, *, writing: bool = False) -> tuple[Storage, str]:
        """Return the bucket of a remote file and the path in it, or raise if the file may not be used."""
        folder = next((f for f in self.remote if address == f or address.startswith(f"{f}/")), None)
        if folder is None or ".." in address.split("/"):
            raise StorageError(refusal(address), path=address)
        root, place = self.own.root.rstrip("/"), address.rstrip("/")
        if writing and not is_below(place, f"{root}/{FOLDER}") and (is_below(place, root) or is_below(root, place)):
            raise StorageError(kept(address), path=address)
        how = "il.connect(…, files={'s3://bucket/folder': {…}}), with its storage options"
        return storage_of(address, self.remote[folder], self.own, how)

    def check_target(self, path: str, own_places: Sequence[str] = ()) -> None:
        """Refuse to write through a link that leads elsewhere, or over the lake's own files.

        ``own_places`` are the lake's paths outside its storage; files beside one that begin with its name count too.
        """
        whole = os.path.expanduser(path).rstrip(os.sep)
        folder, name = os.path.split(whole)
        beside = os.path.join(folder, f"tmp_{name}")  # where DuckDB writes a file that will replace another
        written = [whole, beside] if os.path.islink(beside) else [whole]
        for inside, folders, files in os.walk(whole):
            entries = (os.path.join(inside, entry) for entry in (*folders, *files))
            written += [entry for entry in entries if os.path.islink(entry)]
        own = [os.path.realpath(place) for place in own_places]
        if self.own.is_local:
            own.append(os.path.join(os.path.realpath(self.own.root), ""))
        for real in map(os.path.realpath, written):
            if not any(is_below(real, os.path.realpath(allowed)) for allowed in self.local):
                raise StorageError(refusal(path), path=path)
            if self.own.is_local and is_below(real, os.path.realpath(f"{self.own.root}/{FOLDER}")):
                continue
            if any(f"{real}{os.sep}".startswith(place) or is_below(place, real) for place in own):
                raise StorageError(kept(path), path=path)

    def make_folder(self, path: str) -> None:
        """Create the lake's own exchange folder before the first file is written to it."""
        if self.own.is_local and os.path.abspath(path).startswith(f"{self.own.root}/{FOLDER}/"):
            self.own.make_dir(FOLDER)


def _listed(given: Given) -> list[Any]:
    if given is None:
        return []
    if isinstance(given, str | os.PathLike):
        return [given]
    if not isinstance(given, Sequence | Mapping):
        raise SchemaError(f"files takes folders, local or s3://bucket/folder, not {given!r}.")
    return list(given)
