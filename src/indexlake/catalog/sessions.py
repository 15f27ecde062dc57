"""A pool of database sessions, and what forking does to it.

A session is one connection. A thread takes one for itself, uses it, and gives it back outside any transaction; it is
kept for the next thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from indexlake.catalog.driver import DatabaseError
from indexlake.catalog.fork import Gone, forked
from indexlake.errors import CatalogError

_FORK_PATIENCE = 2.0


class Session(Protocol):
    thread: int

    def open(self) -> None: ...
    def rest(self) -> bool:
        """End whatever is still in progress; return False if the session can no longer be used."""
        ...

    def shut(self, *, tidy: bool = False) -> None:
        """Close the connection; never raises."""
        ...

    def abandon(self, why: Gone) -> None:
        """In a forked child: make every use raise `why`, and leave the connection to the parent."""
        ...


S = TypeVar("S", bound=Session)
T = TypeVar("T")


class Sessions(Generic[S]):
    """The pool. `keep` sessions stay open when idle; at most `limit` are open at once."""

    def __init__(
        self,
        factory: Callable[[], S],
        location: str,
        *,
        keep: int,
        limit: int,
        timeout: float,
        close_before_fork: bool = False,
    ) -> None:
        self._factory = factory
        self._location = location
        self._keep = keep
        self._limit = limit
        self._timeout = timeout
        self._close_before_fork = close_before_fork
        self._mutex = threading.RLock()  # re-entrant: a finalizer may give a session back at any point
        self._home = threading.Condition(self._mutex)
        self._waiting = 0
        self._idle: list[S] = []
        self._busy: set[S] = set()
        self.closed: Gone | None = None

    def take(self) -> S:
        with self._mutex:
            if self.closed is not None:
                raise self.closed.error()
            if len(self._busy) >= self._limit:
                self._wait_for_one()
            fresh = not self._idle
            session = self._factory() if fresh else self._idle.pop()
            session.thread = threading.get_ident()
            self._busy.add(session)
        try:
            if fresh:
                session.open()
        except BaseException:
            self.discard(session)
            raise
        return session

    def give_back(self, session: S) -> None:
        if session not in self._busy:
            return  # discarded, or inherited by a forked child
        if session.rest():
            with self._mutex:
                if self.closed is None and len(self._idle) < self._keep:
                    self._busy.discard(session)
                    self._idle.append(session)
                    if self._waiting:
                        self._home.notify_all()
                    return
        self.discard(session)

    def ask_next(self, question: Callable[..., T], *about: Any) -> T | None:
        """Return what the session answers that would be taken next, or None if that would be a new one.

        It is not taken, so the question must be brief: meanwhile no session is taken or given back.
        """
        with self._mutex:
            return question(self._idle[-1], *about) if self._idle else None

    def discard(self, session: S) -> None:
        """Close a session instead of keeping it, because it is in doubt or not needed."""
        if session not in self._busy:
            return
        session.shut()
        with self._mutex:
            self._busy.discard(session)
            if self._waiting:
                self._home.notify_all()

    def discard_idle(self) -> None:
        with self._mutex:
            idle, self._idle = self._idle, []
        for session in idle:
            session.shut()

    def close(self, why: Gone, *, tidy: bool = False) -> None:
        """Close idle sessions now and the others when they come back; ``tidy``: the last one tidies up."""
        with self._mutex:
            self.closed = why
            idle, self._idle = self._idle, []
            tidy = tidy and not self._busy
            self._home.notify_all()
        for place, session in enumerate(idle, 1):
            session.shut(tidy=tidy and place == len(idle))

    def _wait_for_one(self) -> None:
        deadline = time.monotonic() + self._timeout
        self._waiting += 1
        try:
            while len(self._busy) >= self._limit and self.closed is None:
                if not self._home.wait(max(0.0, deadline - time.monotonic())):
                    raise DatabaseError(
                        f"All {self._limit} connections of this process to the catalog {self._location} have been in "
                        f"use for {self._timeout:g} s. Close scans and queries that are not finished, or use fewer "
                        f"threads.",
                        retryable=True,
                    )
        finally:
            self._waiting -= 1
        if self.closed is not None:
            raise self.closed.error()

    def before_fork(self) -> None:
        """Come to rest: no session is taken or given back until the fork is done."""
        self._mutex.acquire()
        if not self._close_before_fork:
            return
        here = threading.get_ident()
        deadline = time.monotonic() + _FORK_PATIENCE
        self._waiting += 1
        while any(session.thread != here for session in self._busy):
            if not self._home.wait(max(0.0, deadline - time.monotonic())):
                break
        self._waiting -= 1
        self.discard_idle()

    def after_fork_in_parent(self) -> None:
        self._mutex.release()

    def after_fork_in_child(self) -> bool:
        """Abandon all inherited sessions; return True if there were any, whose connections now exist twice."""
        self._mutex = threading.RLock()
        self._home = threading.Condition(self._mutex)
        self.closed = forked(self._location)
        inherited = [*self._busy, *self._idle]
        self._busy, self._idle = set(), []
        for session in inherited:
            session.abandon(self.closed)
        return bool(inherited)


def closed(location: str) -> Gone:
    return Gone(CatalogError, f"The catalog {location} is closed. Connect again (il.connect).")
