"""The numbers that a change of definitions takes: the same ones whenever it is applied again.

A transaction tries its definitions out before it commits them, and its rows refer to the tables and columns by number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Draw = Callable[[str, int], int]

_given: ContextVar[Numbers | None] = ContextVar("numbers of the change that is applied", default=None)


class Numbers:
    """The numbers of one change, in the order in which it takes them from each sequence of the catalog."""

    def __init__(self) -> None:
        self._taken: dict[str, list[tuple[int, int]]] = defaultdict(list)  # (first, count)
        self._places: dict[str, int] = {}

    @contextmanager
    def given(self) -> Iterator[None]:
        """Give these numbers to the change that is applied inside the block, and new ones once they are used up."""
        self._places = {}
        before = _given.set(self)
        try:
            yield
        finally:
            _given.reset(before)

    def counts(self) -> dict[str, int]:
        """Return how many numbers were taken from each sequence."""
        return {name: sum(count for _, count in taken) for name, taken in self._taken.items()}

    def of(self, name: str) -> Iterator[int]:
        """Return the numbers that were taken from a sequence."""
        return (number for first, count in self._taken.get(name, ()) for number in range(first, first + count))

    def take(self, name: str, count: int, draw: Draw) -> int:
        place = self._places[name] = self._places.get(name, -1) + 1
        taken = self._taken[name]
        if place == len(taken):
            taken.append((draw(name, count), count))
        first, known = taken[place]
        return first if known == count else draw(name, count)


def take_number(name: str, count: int, draw: Draw) -> int:
    """Return the first of ``count`` numbers: those of the change that is applied, otherwise new ones."""
    given = _given.get()
    return draw(name, count) if given is None else given.take(name, count, draw)
