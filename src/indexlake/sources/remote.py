"""Files on an object store as a source of rows: found by address, folder or pattern, and read in place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from glob import has_magic

from indexlake.errors import NotFoundError, SchemaError
from indexlake.storage import InputFile, Storage
from indexlake.storage.address import storage_of

_HOW = "il.files(…, storage_options={…})"


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One object.  It holds the connection to its store, so it stays in this process."""

    storage: Storage
    path: str
    size: int

    @property
    def address(self) -> str:
        return f"{self.storage.root}/{self.path}"

    def open(self) -> InputFile:
        return self.storage.open_file(self.path)

    def head(self) -> bytes:
        with self.open() as file:
            return file.read(6)


def found_on_store(address: str, options: Mapping[str, str] | None, own: Storage | None) -> list[RemoteFile]:
    """Return the files that an address matches, sorted by name."""
    storage, path = storage_of(address, options, own, _HOW)
    if has_magic(path):
        fixed = path[: re.search(r"[*?\[]", path).start()].rpartition("/")[0]  # type: ignore[union-attr]
        wanted = re.compile(_pattern(path))
        found = [file for file in _listed(storage, fixed) if wanted.fullmatch(file.path)]
        if not found:
            raise NotFoundError(f"No file matches {address!r}.", name=address)
        return found
    if path and not path.endswith("/") and storage.exists(path):
        with storage.open_file(path) as file:
            return [RemoteFile(storage, path, file.size())]
    return _in_folder(storage, path.strip("/"), address)


def _in_folder(storage: Storage, folder: str, address: str) -> list[RemoteFile]:
    """As for a local folder, ignore hidden files and markers such as ``_SUCCESS``, and refuse subfolders."""
    files = []
    for file in _listed(storage, folder):
        name = file.path[len(folder) :].lstrip("/")
        if name.startswith((".", "_")):
            continue
        if "/" in name:
            raise SchemaError(
                f"{address!r} holds folders ({name.partition('/')[0]!r}), whose names may carry values that are not in "
                f"the files. Name the files by a pattern: '{address.rstrip('/')}/**/*.parquet'.",
                path=address,
            )
        files.append(file)
    if not files:
        raise NotFoundError(f"There is no file {address!r}, and no file in a folder of that name.", name=address)
    return files


def _listed(storage: Storage, folder: str) -> list[RemoteFile]:
    found = [RemoteFile(storage, file.path, file.size) for file in storage.list(folder)]
    return sorted(found, key=lambda file: file.path)


def _pattern(path: str) -> str:
    """Return a path pattern as a regular expression: ``*`` stays within a folder, ``**/`` matches any depth."""
    parts = re.split(r"(\*\*/|\*|\?|\[[^\]]+\])", path)
    known = {"**/": "(?:.*/)?", "*": "[^/]*", "?": "[^/]"}
    return "".join(known.get(part) or (part if part.startswith("[") else re.escape(part)) for part in parts)
