"""The process of a local Spark that forks its Python workers: Spark's own, but for what a worker says at its end.

Spark ends a worker that has nothing to do by closing its socket.  The worker answers that with an error, which a Unix
socket refuses at once, and Spark's daemon prints that to the console as a traceback.
"""

from __future__ import annotations

from typing import Any

from pyspark import daemon

_worker = daemon.worker


def worker(sock: Any, authenticated: bool) -> int:
    try:
        return _worker(sock, authenticated)
    except BrokenPipeError:
        return 1  # which ends it


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
