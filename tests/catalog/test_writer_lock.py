"""The writers' lock of a SQLite catalog, when the thread that takes it is interrupted."""

from __future__ import annotations

import fcntl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from indexlake.catalog.writer_lock import WriterLock


@pytest.mark.parametrize("looked", [0, 100], ids=["queue looked at", "queue not looked at"])
def test_an_interrupt_that_comes_with_the_lock_leaves_it_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looked: int
) -> None:
    lock = WriterLock(str(tmp_path / "a.lock"), timeout=1.0)
    for _ in range(looked):
        lock.acquire()
        lock.release()
    flock, interrupts = fcntl.flock, 1

    def interrupted(file: int, operation: int) -> None:
        nonlocal interrupts
        flock(file, operation)
        if interrupts and file == lock._files._lock and operation != fcntl.LOCK_UN:
            interrupts -= 1
            raise KeyboardInterrupt

    lock.acquire()
    lock.release()
    monkeypatch.setattr(fcntl, "flock", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lock.acquire()
    monkeypatch.undo()
    with ThreadPoolExecutor() as pool:
        assert pool.submit(lock.try_acquire).result(10), "another thread of the process gets it"
    lock.release()
    assert WriterLock(str(tmp_path / "a.lock"), timeout=1.0).try_acquire(), "and so does another process"
