"""Bounded memory: a dump and a scan of many rows, each in a process of its own, under 2 GiB of anonymous memory.

``python -m benchmarks.memory [--dump-rows 20000000] [--scan-rows 50000000] [--rows N] [--folder DIR] [--json FILE]``

``--rows`` sets both.  Peak is the highest ``RssAnon`` of the process, looked at every 10 ms: what it has allocated,
without the pages of files that the system may drop at any time.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

LIMIT = 2 << 30
HOT_BATCH = 200_000


class Peak:
    """Watches this process from a thread."""

    def __init__(self) -> None:
        self.bytes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(0.01):
            self.look()

    def look(self) -> None:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                self.bytes = max(self.bytes, int(line.split()[1]) * 1024)

    def stop(self) -> int:
        self._stop.set()
        self.look()
        return self.bytes


def fill_hot(folder: str, rows: int) -> int:
    """All rows into the catalog database, as many small writers would have left them."""
    import indexlake as il
    from benchmarks.orders import SCHEMA, batches, config

    with il.connect(folder, automatic=False) as lake:
        table = lake.create_table(
            "sales.orders", SCHEMA, primary_key="id", config=config(direct_write_row_count=1 << 40)
        )
        for batch in batches(rows, HOT_BATCH):
            table.insert(batch)
        return table.stats().hot_rows


def dump(folder: str, rows: int) -> int:
    import indexlake as il

    with il.connect(folder, automatic=False) as lake:
        lake.pipeline().dump("sales.orders")
        stats = lake.table("sales.orders").stats()
        assert stats.hot_rows == 0, stats
        return stats.rows


def through(folder: str, rows: int) -> int:
    """Both in one process."""
    fill_hot(folder, rows)
    return dump(folder, rows)


def write(folder: str, rows: int) -> int:
    """Straight to blocks."""
    import indexlake as il
    from benchmarks.orders import SCHEMA, config, stream

    with il.connect(folder, automatic=False) as lake:
        table = lake.create_table("sales.orders", SCHEMA, primary_key="id", config=config())
        return table.insert(stream(rows)).rows


def scan(folder: str, rows: int) -> int:
    import indexlake as il

    with il.connect(folder, automatic=False) as lake:
        return sum(batch.num_rows for batch in lake.table("sales.orders").scan().to_batches())


STEPS = {"fill": fill_hot, "dump": dump, "through": through, "write": write, "scan": scan}


def measured(step: str, folder: Path, rows: int) -> dict[str, object]:
    """Run one step in a subprocess."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.memory",
        "--step",
        step,
        "--folder",
        str(folder),
        "--rows",
        str(rows),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def run_step(step: str, folder: str, rows: int) -> None:
    peak, start = Peak(), time.perf_counter()
    done = STEPS[step](folder, rows)
    assert done == rows, (done, rows)
    result = {
        "step": step,
        "rows": rows,
        "seconds": round(time.perf_counter() - start, 1),
        "peak": peak.stop(),
        "resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,  # with pages of files
    }
    print(json.dumps(result), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--dump-rows", type=int, default=20_000_000)
    parser.add_argument("--scan-rows", type=int, default=50_000_000)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", choices=["dump", "scan"])
    parser.add_argument("--step", choices=sorted(STEPS), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step is not None:
        run_step(given.step, str(given.folder), given.rows)
        return 0
    plans = {
        "dump": (("fill", "dump"), given.rows or given.dump_rows),
        "scan": (("write", "scan"), given.rows or given.scan_rows),
    }
    results = []
    for name in [given.only] if given.only else list(plans):
        steps, rows = plans[name]
        with tempfile.TemporaryDirectory(prefix="indexlake-memory-", dir=given.folder) as folder:
            for step in steps:
                found = measured(step, Path(folder) / "lake", rows)
                results.append(found)
                peak = int(str(found["peak"]))
                judged = "" if step == "fill" else "met" if peak < LIMIT else "MISSED"
                print(
                    f"{step:6} {rows:>12,} rows  {found['seconds']:>7} s  peak {peak / 2**20:>7,.0f} MiB  {judged}",
                    flush=True,
                )
    if given.json is not None:
        given.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0 if all(int(str(r["peak"])) < LIMIT for r in results if r["step"] != "fill") else 1


if __name__ == "__main__":
    sys.exit(main())
