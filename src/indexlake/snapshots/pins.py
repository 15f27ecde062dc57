"""Pins: snapshots that readers, transactions and jobs of this process work from.

A pin held for a while is written to the catalog with the lake's heartbeats, and the horizon does not pass it. A pin is
also released when the transaction that holds it is garbage-collected.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable


class Pin:
    """A snapshot that is being read. A context manager: leaving it releases the snapshot."""

    __slots__ = ("__weakref__", "_pins", "snapshot", "started")

    def __init__(self, pins: Pins, snapshot: int) -> None:
        self._pins = pins
        self.snapshot = snapshot
        self.started = time.monotonic()

    def release(self) -> None:
        self._pins.held.discard(self)

    def __enter__(self) -> Pin:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Pins:
    """The pins of one open lake. ``on_first`` is called before the first one."""

    def __init__(self, on_first: Callable[[], None]) -> None:
        self.held: weakref.WeakSet[Pin] = weakref.WeakSet()
        self._on_first: Callable[[], None] | None = on_first

    def pin(self, snapshot: int) -> Pin:
        """Hold a snapshot until the pin is released."""
        pin = Pin(self, snapshot)
        self.held.add(pin)
        if self._on_first is not None:
            self._on_first()
            self._on_first = None
        return pin

    def held_before(self, moment: float) -> list[int]:
        """Return the snapshots that were pinned before a moment of the monotonic clock and still are."""
        return [pin.snapshot for pin in list(self.held) if pin.started < moment]
