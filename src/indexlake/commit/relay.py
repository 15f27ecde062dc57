"""A relay of threads: one does the work of all who have come, and one system call wakes up the others when it is done.

Threads that were served together mostly come again at once. So a group is complete when as many have come as were there
before, and the last of them does the work. If they stay away, the thread that has waited longest soon goes ahead.

A thread returns when its ticket is done. If it is interrupted while it waits, it takes its ticket back if nobody has
begun with it, and otherwise lets the work end first.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from itertools import count
from time import sleep
from typing import Any, Generic, TypeVar

from indexlake.errors import StorageError

GATHER_SECONDS = 0.000025
"""How long a group waits to be complete, for each thread that is expected."""


class Ticket:
    """What one thread wants done."""

    group: Any = None  # the group it belongs to


T = TypeVar("T", bound=Ticket)


class _Group(list[T]):
    """Tickets that are done together, successfully or not."""

    leader: T | None = None  # whose thread does the work
    done = False
    gate: _Gate | None = None  # where the other threads wait
    clock: threading.Lock  # held until the work has ended
    left: count[int]  # how many threads have passed the gate

    def close(self) -> None:
        """Let threads wait from now on."""
        self.gate = _gates.pop() if _gates else _Gate()
        self.clock, self.left = threading.Lock(), count(1)
        self.clock.acquire()

    def open(self, gate: _Gate) -> None:
        """Let the threads that wait pass."""
        self.done = True
        if self.clock.locked():
            self.clock.release()
        if len(self) > 1:
            gate.open(len(self) - 1)


class _Gate:
    """Lets a number of waiting threads pass at once.

    A thread that passes looks for itself whether its work has ended, so a gate may be opened once too often.
    """

    _file = -1

    def __init__(self) -> None:
        try:
            self._file = os.eventfd(0, os.EFD_SEMAPHORE | os.EFD_CLOEXEC)
        except OSError as error:
            raise StorageError(
                f"A thread could not wait for others that were writing: {error.strerror}. Nothing was written."
            ) from None

    def wait(self) -> None:
        os.read(self._file, 8)

    def open(self, threads: int) -> None:
        os.eventfd_write(self._file, threads)

    def __del__(self) -> None:
        if self._file >= 0:
            os.close(self._file)


_gates: list[_Gate] = []  # nobody waits there
os.register_at_fork(after_in_child=_gates.clear)


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
                elif group.gate is None:
                    group.close()
            if leads or self._wait(group, ticket, is_idle and len(group) == 1):
                self._work(group, ticket)
                self._end(group)
        except BaseException:
            self._leave(ticket)
            raise

    def _begin(self, group: _Group[T], ticket: T) -> None:
        group.leader = ticket
        self._waiting.remove(group)
        self._working = group

    def _wait(self, group: _Group[T], ticket: T, watches: bool) -> bool:
        """Wait until the group's work is done (False), or should be done by this thread (True).

        ``watches``: this thread watches the time.
        """
        gate: Any = group.gate
        while True:
            if watches and not group.clock.acquire(timeout=GATHER_SECONDS * self._expected):
                with self._mutex:
                    if self._working is None and group.leader is None:
                        self._begin(group, ticket)
                        return True
            gate.wait()
            if group.done:
                if next(group.left) == len(group) - 1:
                    _gates.append(gate)
                return False
            watches = True

    def _end(self, group: _Group[T]) -> None:
        """Wake up the threads of a group; repeated if it was interrupted."""
        with self._mutex:
            waiting = self._waiting
            if self._working is group:
                self._working = None
                self._expected = len(group) + sum(map(len, waiting)) if waiting else len(group)
            idle = self._idle() if waiting else None
        if idle is not None:
            idle.open(1)
        if group.gate is not None:
            group.open(group.gate)

    def _idle(self) -> _Gate | None:
        """Return the gate at which threads wait although nobody works: one of them should watch the time."""
        return self._waiting[0].gate if self._waiting and self._working is None else None

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
            idle = self._idle()
        if group.leader is ticket:
            self._end(group)
            return
        if idle is not None:
            idle.open(1)
        while not waits and group.leader is not None and not group.done:
            sleep(0.001)
