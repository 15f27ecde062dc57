"""A relay of threads: one does the work of all who have come, while the others wait.

Threads that were served together mostly come again at once. So a group is complete when as many have come as were there
before, and the last of them does the work. If they stay away, the thread that has waited longest soon goes ahead. When
the work is done, two threads are woken up, and each of them wakes up another: were all of them awake, they would only
get in each other's way.

A thread returns when its ticket is done. If it is interrupted while it waits, it takes its ticket back if nobody has
begun with it, and otherwise lets the work end first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from time import sleep
from typing import Any, Generic, TypeVar

GATHER_SECONDS = 0.000025
"""How long a group waits to be complete, for each thread that is expected."""

AWAKE = 2
"""How many threads of a group are woken up at once: while one of them runs, the other gets ready."""


class Ticket:
    """What one thread wants done."""

    group: Any = None  # the group it belongs to
    ready: Any = None  # a lock that is released to wake up the thread; None if it never had to wait


T = TypeVar("T", bound=Ticket)


class _Group(list[T]):
    """Tickets that are done together, successfully or not."""

    leader: T | None = None  # whose thread does the work
    done = False
    asleep: Iterator[T] = iter(())  # once it is done: those that nobody has woken up yet

    def end(self) -> None:
        self.asleep = iter([ticket for ticket in self if ticket is not self.leader])
        self.done = True
        self.wake(AWAKE)

    def wake(self, count: int) -> None:
        for ticket in islice(self.asleep, count):
            _wake(ticket)


def _wake(ticket: Ticket) -> None:
    """Wake up a thread, unless it is awake already."""
    if ticket.ready is not None:
        try:  # noqa: SIM105 (three times as fast)
            ticket.ready.release()
        except RuntimeError:
            pass


class Relay(Generic[T]):
    """Passes the work from thread to thread.

    ``work(group, mine)`` does the work of some tickets in the thread of one of them and leaves the outcome in the
    tickets; ``fits(group, ticket)`` returns whether a ticket can be done together with those of a group.
    """

    def __init__(self, work: Callable[[list[T], T], None], fits: Callable[[Sequence[T], T], bool]) -> None:
        self._work = work
        self._fits = fits
        self._mutex = threading.Lock()
        self._waiting: list[_Group[T]] = []
        self._working: _Group[T] | None = None
        self._expected = 1  # how many threads are likely to come

    def submit(self, ticket: T) -> None:
        """Return when the ticket's work has ended."""
        try:
            with self._mutex:
                waiting, is_idle = self._waiting, self._working is None
                if waiting and self._fits(waiting[-1], ticket):
                    group = ticket.group = waiting[-1]
                    group.append(ticket)
                else:
                    group = ticket.group = _Group([ticket])
                    waiting.append(group)
                leads = is_idle and (len(group) >= self._expected or len(waiting) > 1)
                if leads:
                    self._begin(group, ticket)
                else:
                    ticket.ready = threading.Lock()
                    ticket.ready.acquire()
            if leads or self._wait(group, ticket, is_idle and len(group) == 1):
                self._work(group, ticket)
                self._end(group)
        except BaseException:
            self._leave(ticket)
            raise
        finally:
            ticket.group = None  # a cycle would keep what was done until the next garbage collection

    def _begin(self, group: _Group[T], ticket: T) -> None:
        group.leader = ticket
        self._waiting.remove(group)
        self._working = group

    def _wait(self, group: _Group[T], ticket: T, watches: bool) -> bool:
        """Wait until the group's work is done (False), or should be done by this thread (True).

        ``watches``: this thread watches the time.
        """
        while True:
            woken = ticket.ready.acquire(timeout=GATHER_SECONDS * self._expected if watches else -1)
            if group.done:
                group.wake(1)
                return False
            if not woken:
                with self._mutex:
                    if self._working is None and group.leader is None:
                        self._begin(group, ticket)
                        return True
            watches = woken

    def _end(self, group: _Group[T]) -> None:
        """Wake up the threads of a group; repeated if it was interrupted."""
        with self._mutex:
            waiting = self._waiting
            if self._working is group:
                self._working = None
                self._expected = len(group) + sum(map(len, waiting)) if waiting else len(group)
            if waiting:
                self._have_watched()
        if len(group) > 1:
            group.end()

    def _have_watched(self) -> None:
        """Wake up a thread to watch the time if some wait and nobody works."""
        if self._waiting and self._working is None:
            _wake(self._waiting[0][0])

    def _leave(self, ticket: T) -> None:
        """Take the ticket of an interrupted thread back, or let the work on it end."""
        group: _Group[T] | None = ticket.group
        if group is None:
            return
        with self._mutex:
            waits = group in self._waiting
            if waits and group.leader is not ticket and ticket in group:
                group.remove(ticket)
            if waits and (not group or group.leader is ticket):
                self._waiting.remove(group)
            self._have_watched()  # it may have been the one that watches the time
        if group.leader is ticket:
            self._end(group)
        else:
            while not waits and group.leader is not None and not group.done:
                sleep(0.001)
        for other in group if group.done else ():  # those whom it should have woken up
            _wake(other)
