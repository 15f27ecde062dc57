"""Threads that take turns to do the work of all: nobody is forgotten, wherever an interrupt comes."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import pytest

from indexlake.commit import relay
from indexlake.commit.relay import Relay, Ticket
from tests.support.interrupts import Interrupt
from tests.support.threads import in_threads


class Counted(Ticket):
    def __init__(self) -> None:
        self.times = 0


class World:
    """A relay whose work waits until it is told to go on, if it is the first."""

    def __init__(self, most: int = 100, seconds: float = 0) -> None:
        self._seconds = seconds
        self.relay: Relay[Counted] = Relay(self._work, lambda group, _: len(group) < most)
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.groups: list[int] = []

    def _work(self, group: list[Counted], mine: Counted) -> None:
        self.groups.append(len(group))
        if not self.begun.is_set():
            self.begun.set()
            assert self.go_on.wait(10)
        time.sleep(self._seconds)
        for ticket in group:
            ticket.times += 1

    def serve(self, waiting: int) -> list[Submitter]:
        """Let so many threads wait for the first one, and return all of them when they have ended."""
        first = self.thread()
        assert self.begun.wait(10)
        others = [self.thread() for _ in range(waiting)]
        while sum(map(len, self.relay._waiting)) < waiting:
            pass
        self.go_on.set()
        assert ends(first, *others)
        return [first, *others]

    def thread(self, interrupt_at: int | None = None) -> Submitter:
        found = Submitter(self.relay, interrupt_at)
        found.start()
        return found


class Submitter(threading.Thread):
    """Submits a ticket; an interrupt comes at the given place in the relay."""

    def __init__(self, to: Relay[Counted], interrupt_at: int | None) -> None:
        super().__init__(daemon=True)
        self.ticket = Counted()
        self._relay = to
        self._interrupt = Interrupt(10_000 if interrupt_at is None else interrupt_at, relay.__file__.__eq__)

    @property
    def interrupted(self) -> str | None:
        return self._interrupt.came

    def run(self) -> None:
        with self._interrupt.here():
            self._relay.submit(self.ticket)


def ends(*threads: threading.Thread) -> bool:
    for thread in threads:
        thread.join(10)
    return not any(thread.is_alive() for thread in threads)


def test_those_who_wait_are_served_together() -> None:
    world = World()
    threads = world.serve(5)
    assert world.groups == [1, 5]
    assert [each.ticket.times for each in threads] == [1] * 6


def test_those_who_do_not_fit_are_served_apart() -> None:
    world = World(most=2)
    threads = world.serve(5)
    assert world.groups == [1, 2, 2, 1]
    assert [each.ticket.times for each in threads] == [1] * 6


def test_who_comes_alone_does_not_wait_for_the_others_for_long() -> None:
    world = World()
    world.go_on.set()
    world.relay._expected = 1000
    first = world.thread()
    assert ends(first)
    assert first.ticket.times == 1
    assert world.relay._expected == 1


def test_many_rounds_serve_everybody() -> None:
    world = World(seconds=0.0002)
    world.go_on.set()
    tickets = [[Counted() for _ in range(300)] for _ in range(8)]

    def work(n: int) -> None:
        for ticket in tickets[n]:
            world.relay.submit(ticket)
            assert ticket.times == 1

    in_threads(8, work)
    assert sum(world.groups) == 2400
    assert max(world.groups) > 1


@pytest.mark.parametrize("place", ["leader", "alone", "waiting"])
def test_an_interrupt_at_any_moment_leaves_nobody_behind(place: str) -> None:
    hit = 0
    for moment in range(30):
        world = World()
        if place == "alone":
            world.go_on.set()
        first = world.thread(moment if place != "waiting" else None)
        if world.begun.wait(0.05 if place != "waiting" else 10):
            others = [world.thread(moment if place == "waiting" and n < 2 else None) for n in range(5)]
        else:  # interrupted before it did any work
            others = []
        world.go_on.set()
        ended = ends(first, *others)
        where = next((each.interrupted for each in (first, *others) if each.interrupted), None)
        assert ended, where
        later = [world.thread() for _ in range(3)]
        assert ends(*later), where
        assert not world.relay._waiting
        assert world.relay._working is None
        for each in (first, *others):  # a ticket may be done without result: its thread submits it again
            assert each.ticket.times == 1 or (where and not each.ticket.times)
        assert [each.ticket.times for each in later] == [1, 1, 1]
        hit += where is not None
    assert hit > 10


def test_what_was_done_goes_with_the_last_reference_to_it() -> None:
    """Otherwise the garbage collector runs for every thirty commits, and finds their rows until then."""
    world = World()
    world.go_on.set()
    ticket = Counted()
    kept = weakref.ref(ticket)
    gc.disable()
    try:
        world.relay.submit(ticket)
        del ticket
        assert kept() is None
    finally:
        gc.enable()
