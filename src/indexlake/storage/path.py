"""Paths inside a storage root: relative, with `/` between their parts, the same on every kind of storage."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from indexlake.errors import StorageError


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One file as a listing shows it.

    `modified` is None if the store does not record it (memory). A local file that was being written when its process
    died is listed under its temporary name, which ends in `.tmp`.
    """

    path: str
    size: int
    modified: datetime | None


def check_path(path: str) -> str:
    """Return `path` if it is valid and stays below the root, otherwise raise."""
    wrong = None
    if not isinstance(path, str):
        wrong = "is not text"
    elif not path:
        wrong = "is empty"
    elif "\0" in path:
        wrong = "contains a NUL byte"
    elif path.startswith("/") or "\\" in path:
        wrong = "is absolute or contains a backslash"
    elif any(part in ("", ".", "..") for part in path.split("/")):
        wrong = "has an empty, '.' or '..' part"
    elif path != path.strip():
        wrong = "begins or ends with white space"
    if wrong:
        raise StorageError(f"storage path {path!r} {wrong}; give a path relative to the storage root", path=str(path))
    return path
