"""Commits of several threads in one group."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import indexlake as il
from indexlake.storage import faults


def together(lake: il.Lake, first: Callable[[], Any], *others: Callable[[], Any]) -> list[Any]:
    """What each call returned or raised.  While the first one commits the others queue up, in this order, and are
    committed in one group then; those that have nothing to commit return at once."""
    calls = [first, *others]
    found: list[Any] = [None] * len(calls)
    relay, joined = lake._committer._relay, lake._joined_inserts
    leading, queued = threading.Event(), threading.Event()

    def run(n: int) -> None:
        try:
            found[n] = calls[n]()
        except Exception as error:
            found[n] = error

    def wait(step: str) -> None:
        if step == "commit.begin" and threading.current_thread() is threads[0]:
            leading.set()
            assert queued.wait(20)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(len(calls))]
    before = faults.install(wait)
    lake._joined_inserts = lambda _: None  # type: ignore[method-assign]  # each call is a commit of its own
    try:
        threads[0].start()
        _until(lambda: leading.is_set() or not threads[0].is_alive())
        for thread in threads[1:]:
            waiting = sum(map(len, relay._waiting))
            thread.start()
            _until(lambda t=thread, n=waiting: sum(map(len, relay._waiting)) > n or not t.is_alive())  # type: ignore[misc]
    finally:
        queued.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join(30)
        faults.install(before)
        lake._joined_inserts = joined  # type: ignore[method-assign]
    assert not any(thread.is_alive() for thread in threads)
    return found


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.0005)
