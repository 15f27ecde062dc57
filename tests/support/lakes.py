"""How tests open lakes: without background work, and with a clock that the test can move."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import indexlake as il
from indexlake.catalog.clock import now

END_OF_TIME = 2**60
"""A moment at which everything has expired."""


class Clock:
    """The machine's time until a test moves it: what `il.connect(clock=…)` takes."""

    def __init__(self) -> None:
        self._ahead = 0
        self._at: int | None = None

    def __call__(self) -> int:
        return now() + self._ahead if self._at is None else self._at

    def advance(self, **time: float) -> None:
        """Let so much time pass, in the words of `timedelta`."""
        self._ahead += int(timedelta(**time).total_seconds() * 1_000_000)

    def stop(self, at: int = END_OF_TIME) -> None:
        """It is this moment from here on."""
        self._at = at

    @contextmanager
    def stopped(self, at: int = END_OF_TIME) -> Iterator[None]:
        """It is this moment within; afterwards it is what it was."""
        before, self._at = self._at, at
        try:
            yield
        finally:
            self._at = before


_clocks: WeakKeyDictionary[il.Lake, Clock] = WeakKeyDictionary()


def connect(catalog: str | Path, **options: Any) -> il.Lake:
    """`il.connect` without background work, unless the options ask for it."""
    clock = Clock()
    lake = il.connect(catalog, **{"automatic": False, "clock": clock, **options})
    _clocks[lake] = clock
    return lake


def clock_of(lake: il.Lake) -> Clock:
    """The clock of a lake that `connect` opened."""
    return _clocks[lake]


@dataclass(frozen=True)
class Address:
    """Where a lake is: enough to connect to it again, in any process."""

    catalog: str
    storage: str | None = None
    storage_options: dict[str, str] | None = None
    catalog_schema: str | None = None

    def connect(self, **options: Any) -> il.Lake:
        place = {"storage": self.storage, "storage_options": self.storage_options}
        return connect(self.catalog, **place, catalog_schema=self.catalog_schema, **options)
