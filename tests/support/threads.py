"""Work in several threads at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


def in_threads(count: int, work: Callable[[int], Any]) -> None:
    """Run work(0), work(1), … from the same moment on; the first error is raised here."""
    errors: list[BaseException] = []
    start = threading.Barrier(count)

    def guarded(number: int) -> None:
        try:
            start.wait()
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def is_heartbeat() -> bool:
    """Whether this thread is one in which a lake says now and then that it lives."""
    return threading.current_thread().name == "indexlake-heartbeat"
