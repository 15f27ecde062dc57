"""A real Spark cluster on this machine: a standalone master and workers from the pip package, gone afterwards."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.servers import _end_with_parent, free_port, wait_for_port
from tests.support.waiting import wait_until

HOST = "127.0.0.1"
SECONDS = 60
"""A cluster that takes longer to come up does not come up."""


@dataclass(frozen=True)
class Cluster:
    """A running cluster; what its processes write is below `folder`."""

    url: str
    folder: Path
    workers: tuple[int, ...]

    def executors(self) -> list[int]:
        """The processes that the workers have started, with all below them: executors and their Python workers."""
        parents = dict(_parents())
        return [pid for pid in parents if pid not in self.workers and _descends(pid, parents, self.workers)]


@contextmanager
def standalone(workers: int = 2) -> Iterator[Cluster]:
    """A master and so many workers of one core each."""
    folder = Path(tempfile.mkdtemp(prefix="indexlake-spark-"))
    started: list[subprocess.Popen[bytes]] = []
    try:
        port, page = free_port(), free_port()
        started.append(_start(folder, "master", HOST, "master.Master", "--port", str(port), "--webui-port", str(page)))
        wait_for_port(port, started[0], SECONDS)
        url = f"spark://{HOST}:{port}"
        for n in range(workers):
            given = ("--cores", "1", "--memory", "1g", "--webui-port", str(free_port()), "--work-dir", str(folder), url)
            # Each on a host of its own, as Spark sees it: it tries a slow task again on another host only.
            started.append(_start(folder, f"worker-{n}", f"127.0.0.{n + 2}", "worker.Worker", *given))
        wait_until(lambda: _alive_workers(page) == workers, "the workers do not join their master")
        yield Cluster(url, folder, tuple(process.pid for process in started[1:]))
    finally:
        for process in reversed(started):  # each leads a group of its own, with the executors in it
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)
        shutil.rmtree(folder, ignore_errors=True)


def _start(folder: Path, name: str, host: str, kind: str, *given: str) -> subprocess.Popen[bytes]:
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": host,
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": sys.executable,
    }
    program = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", "--host", host, *given]
    with open(folder / f"{name}.log", "wb") as log:
        return subprocess.Popen(
            program, stdout=log, stderr=log, env=environment, start_new_session=True, preexec_fn=_end_with_parent
        )


def _alive_workers(page: int) -> int:
    try:
        with urllib.request.urlopen(f"http://{HOST}:{page}/json/", timeout=5) as answer:
            return int(json.load(answer)["aliveworkers"])
    except (OSError, ValueError):  # it is not up yet
        return 0


def _parents() -> Iterator[tuple[int, int]]:
    """Every process of this machine and its parent."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                yield int(entry.name), int((entry / "stat").read_text().rpartition(")")[2].split()[1])


def _descends(pid: int, parents: dict[int, int], ancestors: tuple[int, ...]) -> bool:
    while pid in parents:
        if pid in ancestors:
            return True
        pid = parents[pid]
    return False
