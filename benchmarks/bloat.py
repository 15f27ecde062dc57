"""Bloat: updates to few rows, without end, must not make the catalog grow without end.

``python -m benchmarks.bloat [--minutes 10] [--rows 10] [--retention 60] [--threads 2] [--folder DIR] [--json FILE]``

Retention is one minute, background dump and expire run as they do by default.  Prints the size of the catalog (file
and log) over time; bounded means that the largest size of the second half is at most 1.5 times that of the first.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from datetime import timedelta
from pathlib import Path

import indexlake as il
from benchmarks.orders import SCHEMA, config, row

GROWTH = 1.5


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("catalog*") if path.is_file())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bloat", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--rows", type=int, default=10, help="rows that are updated over and over")
    parser.add_argument("--retention", type=float, default=60, help="seconds")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--limit", type=int, default=10_000, help="inline_row_count_limit of the table")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="indexlake-bloat-", dir=given.folder) as name:
        samples = run(Path(name), given)
    half = [s for s in samples if s["seconds"] <= given.minutes * 30]
    rest = [s for s in samples if s["seconds"] > given.minutes * 30]
    first, second = (max(s["bytes"] for s in part) for part in (half, rest))
    bounded = second <= GROWTH * first
    print(f"largest in the first half {first / 2**20:.1f} MiB, in the second {second / 2**20:.1f} MiB: "
          + ("bounded" if bounded else "GROWS"))  # fmt: skip
    if given.json is not None:
        given.json.write_text(json.dumps({"bounded": bounded, "samples": samples}, indent=2) + "\n", encoding="utf-8")
    return 0 if bounded else 1


def run(folder: Path, given: argparse.Namespace) -> list[dict[str, float]]:
    samples: list[dict[str, float]] = []
    counts = [0] * given.threads
    until = time.monotonic() + 60 * given.minutes
    with il.connect(str(folder / "lake")) as lake:
        settings = config(retention=timedelta(seconds=given.retention), inline_row_count_limit=given.limit)
        table = lake.create_table("sales.orders", SCHEMA, primary_key="id", config=settings)
        table.insert([row(n) for n in range(given.rows)])

        def work(place: int) -> None:
            pick = random.Random(place)
            while time.monotonic() < until:
                key = pick.randrange(given.rows)
                table.update({"total": il.expr("total + 1")}, "id = $id", params={"id": key})
                counts[place] += 1

        threads = [threading.Thread(target=work, args=(n,)) for n in range(given.threads)]
        start = time.monotonic()
        for thread in threads:
            thread.start()
        every = max(2.0, given.minutes * 60 / 40)
        while any(thread.is_alive() for thread in threads):
            time.sleep(min(every, max(0.1, until - time.monotonic())))
            stats = table.stats()
            found = {
                "seconds": round(time.monotonic() - start, 1), "updates": sum(counts),
                "bytes": size_of(folder / "lake"),
                "superseded": stats.superseded_hot_rows, "history blocks": stats.history_blocks,
            }  # fmt: skip
            samples.append(found)
            print(
                f"{found['seconds']:>7} s  {found['updates']:>9,} updates  catalog {found['bytes'] / 2**20:>7.1f} MiB  "
                f"{stats.superseded_hot_rows:>8,} superseded rows, {stats.history_blocks} history blocks",
                flush=True,
            )
        failed = [job for job in lake.jobs() if job.state == "failed"]
        assert not failed, failed
    return samples


if __name__ == "__main__":
    sys.exit(main())
