"""Where a lake puts data that does not fit into memory: unnamed files, in a folder that only this user can enter.

The folder is created when something is first spilled, and removed with the lake. What a killed process left behind is
removed by the next one that opens the lake; folders of living processes are left alone.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import wraps
from typing import IO, TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from indexlake.errors import StorageError
from indexlake.storage.failure import translated
from indexlake.storage.temporary import TemporaryFolder, is_writable, sweep

if TYPE_CHECKING:
    from indexlake.storage.storage import Storage

P = ParamSpec("P")
T = TypeVar("T")

PREFIX = "indexlake-spill-"


class Spill:
    """Temporary files below a directory, by default the system's temporary directory.

    ``ours``: the directory serves no other purpose, so it is removed when empty.
    """

    def __init__(self, directory: str | None = None, *, ours: bool = False) -> None:
        self._directory = directory
        self._ours = ours
        self._folder: TemporaryFolder | None = None
        self._lock = threading.Lock()
        self._pid = os.getpid()
        if directory is not None:
            sweep(directory, PREFIX)
            self._leave()

    @staticmethod
    def given(directory: str | os.PathLike[str]) -> Spill:
        """Return a spill below a directory named by a user, creating the directory if necessary."""
        path = os.fspath(directory) if isinstance(directory, str | os.PathLike) else None
        if not isinstance(path, str) or not path or "\0" in path or "://" in path:
            raise StorageError(f"spill_dir is the path of a local directory, not {directory!r}.")
        path = os.path.abspath(os.path.expanduser(path))
        spill = Spill(path)
        try:
            os.makedirs(path, 0o700, exist_ok=True)
        except OSError as error:
            raise StorageError(f"spill_dir {path!r} cannot be made: {error.strerror}.", path=path) from None
        if not is_writable(path):
            raise StorageError(f"spill_dir {path!r} cannot be written to. Name a directory that can be.", path=path)
        return spill

    def folder(self) -> str:
        """Return the folder of this process, creating it on first use."""
        with self._lock:
            if self._folder is None or not self._folder.remove.alive or self._pid != os.getpid():
                with translated("make a folder for what does not fit into memory in", self._where()):
                    self._folder, self._pid = self._make_folder(), os.getpid()
            return self._folder.path()

    def _where(self) -> str:
        return self._directory or tempfile.gettempdir()

    def _make_folder(self) -> TemporaryFolder:
        if self._directory is None:
            return TemporaryFolder(self._where(), PREFIX)
        while True:
            os.makedirs(self._directory, 0o700, exist_ok=True)
            with suppress(FileNotFoundError):  # another process, the last to use it, has just removed it
                return TemporaryFolder(self._directory, PREFIX)

    def file(self) -> IO[bytes]:
        """Return an unnamed file, which disappears when it is closed."""
        return tempfile.TemporaryFile(dir=self.folder())

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Turn errors from writing to spilled files, such as a full disk, into ``StorageError``."""
        try:
            yield
        except OSError as error:
            raise StorageError(
                f"Data that does not fit into memory cannot be written to {self._where()!r}: "
                f"{error.strerror or error}. Make room there, or name another directory: il.connect(…, spill_dir=…).",
                path=self._where(),
            ) from None

    def named_file(self) -> str:
        """Return the path of a new file, for libraries that need a path; the caller deletes it."""
        descriptor, path = tempfile.mkstemp(dir=self.folder())
        os.close(descriptor)
        return path

    def remove(self) -> None:
        with self._lock:
            if self._folder is not None:
                self._folder.remove()
            self._leave()

    def _leave(self) -> None:
        if self._directory is not None and self._ours:
            with suppress(OSError):
                os.rmdir(self._directory)

    def __reduce__(self) -> Any:
        return Spill, ()  # elsewhere, perhaps on another machine, it is that process's temporary directory


TEMPORARY = Spill()
"""For data that belongs to no lake."""

_current: ContextVar[Spill] = ContextVar("indexlake spill", default=TEMPORARY)


def current_spill() -> Spill:
    """Return where to spill, for code that has no storage at hand."""
    return _current.get()


def spilling(work: Callable[Concatenate[Storage, P], T]) -> Callable[Concatenate[Storage, P], T]:
    """Decorate a function so that it spills where its storage, the first argument, spills."""

    @wraps(work)
    def inside(storage: Storage, /, *args: P.args, **kwargs: P.kwargs) -> T:
        token = _current.set(storage.spill)
        try:
            return work(storage, *args, **kwargs)
        finally:
            _current.reset(token)

    return inside
