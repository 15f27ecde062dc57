"""What happens to open catalogs when the process forks.

A catalog belongs to the process that opened it. In a forked child, any use of an inherited catalog raises
`OwnershipError`, and its connections are neither used nor closed there, because they belong to the parent.

Each watched catalog is notified three times: before the fork, so that it can come to rest, and after it in the parent
and in the child.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Protocol

from indexlake.errors import IndexLakeError, OwnershipError


class Watched(Protocol):
    def before_fork(self) -> None: ...
    def after_fork_in_parent(self) -> None: ...
    def after_fork_in_child(self) -> None: ...


_watched: weakref.WeakSet[Any] = weakref.WeakSet()
_resting: list[Watched] = []
_forking = threading.RLock()


def watch(catalog: Watched) -> None:
    _watched.add(catalog)


def keep_forever(thing: object) -> None:
    """Keep an object for ever, even when the interpreter ends: collecting a connection would close it."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


class Gone:
    """Takes the place of a connection; using it raises an error that says why it is gone."""

    def __init__(self, error: type[IndexLakeError], message: str) -> None:
        self._error = error
        self._message = message

    def error(self) -> IndexLakeError:
        return self._error(self._message)

    def __getattr__(self, name: str) -> Any:
        raise self.error()

    def __iter__(self) -> Any:
        raise self.error()


def forked(location: str) -> Gone:
    return Gone(
        OwnershipError,
        f"The catalog {location} was opened by the process that started this one, and belongs to it. "
        f"Connect again in this process (il.connect).",
    )


def _before() -> None:
    _forking.acquire()
    _resting[:] = list(_watched)
    for catalog in _resting:
        catalog.before_fork()


def _in_parent() -> None:
    while _resting:
        _resting.pop().after_fork_in_parent()
    _forking.release()


def _in_child() -> None:
    global _forking
    _forking = threading.RLock()
    while _resting:
        _resting.pop().after_fork_in_child()
    _watched.clear()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
