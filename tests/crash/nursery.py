"""Starts workers quickly: imports everything once and forks one worker for each line it reads.

    → a `worker.Request` as JSON
    ← {"pid": …}, and when that process has ended {"status": …}

The nursery itself opens no lake, so a worker is as fresh as a new interpreter, 50 times sooner.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.crash.worker import Request, main


class Nursery:
    """The parent's side."""

    def __init__(self) -> None:
        package = __package__ or ""
        top = Path(__file__).parents[len(package.split("."))]
        path = os.pathsep.join([str(top), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{package}.nursery"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path},
            preexec_fn=_end_with_parent,
        )  # fmt: skip

    def start(self, request: Request) -> int:
        """Start a worker; its process id."""
        assert self._process.stdin is not None
        self._process.stdin.write(request.to_json().encode() + b"\n")
        self._process.stdin.flush()
        return int(self._answer()["pid"])

    def wait(self) -> int:
        """The exit code of the worker, negative for the signal that ended it."""
        return os.waitstatus_to_exitcode(int(self._answer()["status"]))

    def _answer(self) -> dict[str, int]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the nursery has died"
        return dict(json.loads(line))

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()


def _end_with_parent() -> None:
    """Ask Linux for it: nobody goes on writing when the one who watches was ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _serve() -> None:
    import sqlglot  # noqa: F401
    import vortex  # noqa: F401

    import indexlake.blocks.formats.ipc
    import indexlake.blocks.formats.parquet
    import indexlake.blocks.formats.vortex
    import indexlake.expr  # noqa: F401

    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _end_with_parent()
            main(Request(**json.loads(line)))
            os._exit(0)
        print(json.dumps({"pid": pid}), flush=True)
        print(json.dumps({"status": os.waitpid(pid, 0)[1]}), flush=True)


if __name__ == "__main__":
    _serve()
