"""Threads that take turns to do the work of all: nobody is forgotten, wherever an interrupt comes."""

from __future__ import annotations

import threading

import pytest

from indexlake.commit import relay
from indexlake.commit.relay import Relay, Ticket
from tests.support.interrupts import Interrupt


class Counted(Ticket):
    def __init__(self) -> None:
        self.times = 0


class World:
    """A relay whose work waits until it is told to go on, if it is the first."""

    def __init__(self) -> None:
        self.relay: Relay[Counted] = Relay(self._work, len)
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.groups: list[int] = []

    def _work(self, group: list[Counted], mine: Counted) -> None:
        self.groups.append(len(group))
        if not self.begun.is_set():
            self.begun.set()
            assert self.go_on.wait(10)
        for ticket in group:
            ticket.times += 1

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
    first = world.thread()
    assert world.begun.wait(10)
    others = [world.thread() for _ in range(5)]
    while len(world.relay._waiting) < 5:
        pass
    world.go_on.set()
    assert ends(first, *others)
    assert world.groups == [1, 5]
    assert [each.ticket.times for each in (first, *others)] == [1] * 6


@pytest.mark.parametrize("place", ["leader", "alone", "waiting"])
def test_an_interrupt_at_any_moment_leaves_nobody_behind(place: str) -> None:
    hit = 0
    for moment in range(30):
        world = World()
        if place == "alone":
            world.go_on.set()
        first = world.thread(moment if place != "waiting" else None)
        if world.begun.wait(0.05 if place != "waiting" else 10):
            others = [world.thread(moment if place == "waiting" else None) for _ in range(2)]
        else:  # interrupted before it did any work
            others = []
        world.go_on.set()
        ended = ends(first, *others)
        where = next((each.interrupted for each in (first, *others) if each.interrupted), None)
        assert ended, where
        later = [world.thread() for _ in range(3)]
        assert ends(*later), where
        assert not world.relay._waiting
        assert not world.relay._busy
        for each in (first, *others):  # a ticket may be done without result: its thread submits it again
            assert each.ticket.times == 1 or (where and not each.ticket.times)
        assert [each.ticket.times for each in later] == [1, 1, 1]
        hit += where is not None
    assert hit > 10
