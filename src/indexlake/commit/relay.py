"""A relay of threads: whoever finds nobody at work does the work; those who arrive meanwhile wait, and then the first
of them does the work of all.

A thread returns when its ticket is done. If it is interrupted while it waits, it takes its ticket back if nobody has
begun with it, and otherwise lets the work end first. If it is interrupted while it leads, nobody is left waiting: what
the interpreter may interrupt is done again, and between two calls it interrupts nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import perf_counter, sleep
from typing import Any, Generic, TypeVar

GATHER_SECONDS = 0.0002
"""How long at most to wait for threads that were served together last, and may come again at once."""


class Ticket:
    """What one thread wants done."""

    ready: Any = None  # a lock that is released to wake up the thread; None if it never had to wait
    queued = False
    leads = False  # woken up to do the work of all who wait
    led = False  # has passed the lead on
    group: Sequence[Ticket] = ()  # those whose work it does
    done = False  # the work has ended, successfully or not


T = TypeVar("T", bound=Ticket)


class Relay(Generic[T]):
    """Passes the work from thread to thread.

    ``work(group, mine)`` does the work of some tickets in the thread of one of them and leaves the outcome in the
    tickets; ``together`` returns how many of those that wait, at least one, can be done at once.
    """

    def __init__(self, work: Callable[[list[T], T], None], together: Callable[[Sequence[T]], int]) -> None:
        self._work = work
        self._together = together
        self._mutex = threading.Lock()
        self._waiting: list[T] = []
        self._busy = False
        self._last = 1  # how many tickets the last one did

    def submit(self, ticket: T) -> None:
        """Return when the ticket's work has ended."""
        begins = False
        try:
            with self._mutex:
                if self._busy:
                    ticket.ready = threading.Lock()
                    ticket.ready.acquire()
                else:
                    begins = self._busy = True
                self._waiting.append(ticket)
                ticket.queued = True
            if not begins:
                ticket.ready.acquire()
            if begins or ticket.leads:
                self._lead(ticket)
        except BaseException:
            if begins or ticket.group or ticket.led:
                self._end(ticket)
            else:
                self._withdraw(ticket)
            raise

    def _withdraw(self, ticket: T) -> None:
        """Take the ticket of an interrupted thread back, or let the work on it end."""
        with self._mutex:
            withdrawn = ticket in self._waiting
            if withdrawn:
                self._waiting.remove(ticket)
        if ticket.leads:  # the others wait for this thread
            self._lead(ticket)
        elif ticket.queued and not withdrawn and not ticket.done:
            ticket.ready.acquire()

    def _lead(self, mine: T) -> None:
        """Do the work of those that wait, together with those that are about to."""
        try:
            if self._last > 1:
                self._gather()
            with self._mutex:
                waiting = self._waiting
                mine.group = group = waiting[: self._together(waiting) if len(waiting) > 1 else 1]
                del waiting[: len(group)]
            self._last = len(group)
            if group:
                self._work(group, mine)
        finally:
            self._end(mine)

    def _gather(self) -> None:
        """Let threads come that were done together last: most of them have something new to do at once."""
        until = perf_counter() + GATHER_SECONDS
        while len(self._waiting) < self._last and perf_counter() < until:
            sleep(0)  # another thread runs

    def _end(self, mine: T) -> None:
        """Hand the lead on and wake up those whose work has ended; called again if it was interrupted."""
        with self._mutex:
            if not mine.led:
                waiting = self._waiting
                if waiting and waiting[0] is mine:  # interrupted before it had taken its tickets out
                    del waiting[: max(1, len(mine.group))]
                mine.led = True
                if waiting:
                    waiting[0].leads = True
                    waiting[0].ready.release()
                else:
                    self._busy = False
        for ticket in mine.group:
            if not ticket.done:
                ticket.done = True
                if ticket is not mine:
                    ticket.ready.release()
