"""Turns errors of the operating system and OpenDAL into errors of this package, by class and code."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from indexlake.errors import AlreadyExistsError, CorruptionError, IndexLakeError, NotFoundError, StorageError
from indexlake.storage.names import FileName

_ADVICE = {
    errno.ENOSPC: "the disk is full; free space and try again",
    errno.EDQUOT: "the disk quota is used up; free space and try again",
    errno.EFBIG: "the file would pass the size limit of this process or file system (ulimit -f)",
    errno.EROFS: "the file system is read-only; use a writable one, or open the lake with read_only=True",
    errno.EACCES: "permission denied; check the owner and mode of the directory",
    errno.EPERM: "permission denied; check the owner and mode of the directory",
    errno.EMFILE: "too many open files in this process; raise `ulimit -n`",
    errno.ENFILE: "too many open files on this machine",
    errno.ENOTDIR: "a part of the path is a file, not a directory",
    errno.EISDIR: "the path is a directory",
    errno.EIO: "the device reported an input/output error; check the disk",
}
_SERVICE_ADVICE = {
    "PermissionDenied": "access denied; check the credentials in storage_options and the bucket's policy",
    "ConfigInvalid": "the bucket or the storage_options are wrong",
    "RateLimited": "the store keeps asking to slow down; try again later",
    "Unsupported": "the store does not support this operation",
}
_RETRYABLE = {"RateLimited", "Unexpected", "Conflict"}


@contextmanager
def translated(action: str, path: str) -> Iterator[None]:
    """Run a storage operation, turning errors of the system or the store into errors of this package."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, OSError) and not type(error).__module__.startswith("opendal"):
            raise
        raise failure(action, path, error) from None


def failure(action: str, path: str, error: Exception) -> IndexLakeError:
    """Return the error of this package that stands for `error`."""
    if isinstance(error, OSError):
        return _os_error(action, path, error.errno or 0, error.strerror or str(error))
    if type(error).__module__.startswith("opendal"):
        return _service_error(action, path, error)
    if found := re.search(r"\(os error (\d+)\)", str(error)):
        return _os_error(action, path, int(found[1]), first_line(error))
    return StorageError(f"cannot {action} {path!r}: {first_line(error)}", path=path)


def _os_error(action: str, path: str, code: int, text: str) -> IndexLakeError:
    if code == errno.ENOENT:
        return NotFoundError(f"cannot {action} {path!r}: there is no such file", name=path)
    if code == errno.EEXIST:
        return _exists(path)
    advice = _ADVICE.get(code, text)
    return StorageError(f"cannot {action} {path!r}: {advice}", path=path, errno=code)


def _service_error(action: str, path: str, error: Exception) -> IndexLakeError:
    kind = type(error).__name__
    if kind == "NotFound":
        return NotFoundError(f"cannot {action} {path!r}: there is no such file", name=path)
    if kind in ("ConditionNotMatch", "AlreadyExists"):
        return _exists(path)
    details: dict[str, Any] = {"path": path, "kind": kind}
    if kind in _RETRYABLE:
        details["retryable"] = True
    if "signing credential" in str(error):
        return StorageError(
            f"cannot {action} {path!r}: there are no keys for the object store. Give access_key_id and "
            "secret_access_key in storage_options, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            **details,
        )
    advice = _SERVICE_ADVICE.get(kind)
    text = first_line(error) if advice is None else f"{advice} ({first_line(error)})"
    return StorageError(f"cannot {action} {path!r}: {text}", **details)


def _exists(path: str) -> IndexLakeError:
    return AlreadyExistsError(f"cannot create {path!r}: the file already exists", name=path)


def first_line(error: BaseException) -> str:
    """Return what went wrong and its source; the rest of an OpenDAL or Vortex text is headers and backtraces."""
    lines = str(error).splitlines() or [type(error).__name__]
    if "Source:" in lines[:-1]:
        return f"{lines[0]}: {lines[lines.index('Source:') + 1].strip()}"
    return lines[0]


def wrong_size(path: str, expected: int, actual: int) -> CorruptionError:
    return CorruptionError(
        f"file {path!r} is {actual} bytes long and should be {expected}: it was cut short or changed after "
        f"it was written; {_remedy(path)}",
        path=path,
    )


def damaged(path: str, offset: int, length: int) -> CorruptionError:
    return CorruptionError(
        f"file {path!r} is damaged: bytes {offset} to {offset + length} do not match their checksum; {_remedy(path)}",
        path=path,
    )


def missing(path: str) -> CorruptionError:
    return CorruptionError(f"file {path!r} is missing though the catalog refers to it; {_remedy(path)}", path=path)


def _remedy(path: str) -> str:
    name = FileName.parse(path)
    if name is not None and name.role == "index":
        return "write the index anew from its blocks: lake.pipeline().build_index(table, rebuild=True)"
    return "restore it from a backup"
