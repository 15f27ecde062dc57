"""The writers' lock of a SQLite catalog, when the thread that takes it is interrupted."""

from __future__ import annotations

import fcntl
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from indexlake.catalog import writer_lock
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


def test_an_interrupt_just_after_the_lock_was_handed_over_gives_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt may come between the end of the wait and the next line of the program."""
    lock = writer_lock.FairLock()
    assert lock.try_acquire()
    real = threading.Lock

    class InterruptedTurn:
        def __init__(self) -> None:
            self._lock = real()

        def acquire(self, timeout: float | None = None) -> bool:
            if timeout is None:
                return self._lock.acquire()
            lock.release()  # hands it over
            assert self._lock.acquire(timeout=timeout)
            raise KeyboardInterrupt

        def release(self) -> None:
            self._lock.release()

    def wait() -> None:
        try:
            lock.acquire(5)
        except KeyboardInterrupt:
            interrupted.append(True)

    interrupted: list[bool] = []
    monkeypatch.setattr(writer_lock, "threading", SimpleNamespace(Lock=InterruptedTurn))
    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    waiter.join(5)
    assert interrupted == [True], "it does not wait for what it has"
    assert lock.try_acquire(), "and gives it back"
