"""Reading a lake on an S3 server of this machine with and without a local cache: ``python -m benchmarks.cache``.

Cold: a lake just opened.  Filling: the same with an empty ``cache_dir``.  Cached: the same with one that was filled
before; it is in the memory of the operating system, as the server's files are.  Warm: a lake that has read everything,
without a cache.  They take turns; medians are reported, with the time of our own process on a processor, which other
work on the machine does not change, and how many ranges were asked of the store.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.servers import s3_server

import indexlake as il
from benchmarks.orders import SCHEMA, config, row, stream
from benchmarks.outcome import Outcome, at_most, report, shown
from indexlake.storage import faults

KINDS = ("cold", "filling", "cached", "warm")


class Read(NamedTuple):
    """What one read took: milliseconds, those on a processor, and ranges asked of the store."""

    wall: float
    cpu: float
    ranges: float


class Contenders:
    """The same lake, opened in four ways."""

    def __init__(self, folder: Path, options: dict[str, str], root: str, rows: int, format: str) -> None:
        self._address: dict[str, Any] = {
            "catalog": str(folder / f"lake-{format}"),
            "storage_options": options,
            "automatic": False,
        }
        self._filled, self._empty = folder / f"filled-{format}", folder / f"empty-{format}"
        self.rows = rows
        with il.connect(storage=root, **self._address) as lake:
            table = lake.create_table("sales.orders", SCHEMA, primary_key="id", config=config(dump_format=format))
            table.insert(stream(rows))
            self.bytes, self.blocks = table.stats().bytes, table.stats().blocks
        self._warm = il.connect(**self._address)
        with il.connect(**self._address, cache_dir=self._filled) as lake:
            for table in (lake.table("sales.orders"), self._warm.table("sales.orders")):
                table.scan().to_arrow()
                keys = random.Random(1).sample(range(rows), 500)
                table.scan("id in $ids", params={"ids": keys}).to_arrow()  # the key segments too

    def close(self) -> None:
        self._warm.close()

    def timed(self, kind: str, read: Callable[[il.Table], object]) -> Read:
        if kind == "warm":
            return _timed(lambda: read(self._warm.table("sales.orders")))
        shutil.rmtree(self._empty, ignore_errors=True)
        cache = {"filling": self._empty, "cached": self._filled}.get(kind)
        with il.connect(**self._address, read_only=True, cache_dir=cache) as lake:
            table = lake.table("sales.orders")
            table._state()  # what the catalog says is not what is measured
            return _timed(lambda: read(table))


def _timed(read: Callable[[], object]) -> Read:
    asked: list[str] = []
    previous = faults.install(lambda step: asked.append(step) if step == "storage.read" else None)
    try:
        start, cpu = time.perf_counter(), time.process_time()
        read()
        return Read((time.perf_counter() - start) * 1000, (time.process_time() - cpu) * 1000, len(asked))
    finally:
        faults.install(previous)


def compared(name: str, found: Contenders, read: Callable[[il.Table, int], object], rounds: int) -> Iterator[Outcome]:
    reads: dict[str, list[Read]] = {kind: [] for kind in KINDS}
    order = list(KINDS)
    for n in range(-1, rounds):
        order.append(order.pop(0))
        for kind in order:
            took = found.timed(kind, lambda table: read(table, n))  # noqa: B023
            if n >= 0:
                reads[kind].append(took)
    medians = {kind: Read(*map(statistics.median, zip(*took, strict=True))) for kind, took in reads.items()}
    detail = ", ".join(
        f"{k} {shown(m.wall, 'ms')} ({m.cpu:.0f} ms CPU, {m.ranges:g} ranges)" for k, m in medians.items()
    )
    yield at_most(f"{name}: cached against cold", medians["cached"].wall, medians["cold"].wall, 1.1, "ms", detail)
    yield at_most("  filling against cold", medians["filling"].wall, medians["cold"].wall, 1.3, "ms", f"n={rounds}")
    yield Outcome(
        "  cached against warm", shown(medians["cached"].wall, "ms"), shown(medians["warm"].wall, "ms"),
        round(medians["cached"].wall / medians["warm"].wall, 3), "", None,
    )  # fmt: skip


def outcomes(folder: Path, rows: int, rounds: int) -> Iterator[Outcome]:
    pick = random.Random(7)
    with s3_server() as server:
        for format in ("vortex", "parquet"):
            root = f"s3://{server.bucket()}/bench"
            found = Contenders(folder, server.options, root, rows, format)
            keys = [pick.randrange(rows) for _ in range(rounds + 1)]
            many = [pick.sample(range(rows), 20) for _ in range(rounds + 1)]
            mib = f"{found.bytes / 2**20:.0f} MiB"

            def one(table: il.Table, n: int, keys: list[int] = keys) -> None:
                assert table.get(keys[n]) == row(keys[n])

            def twenty(table: il.Table, n: int, many: list[list[int]] = many) -> None:
                for key in many[n]:
                    assert table.get(key) is not None

            def scan(table: il.Table, n: int) -> None:
                assert table.scan().to_arrow().num_rows == rows

            yield from compared(f"{format}: get of one row", found, one, rounds)
            yield from compared(f"{format}: get of 20 rows, one after the other", found, twenty, rounds)
            yield from compared(f"{format}: scan of {rows:,} rows, {mib}", found, scan, max(3, rounds // 3))
            found.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cache", description=__doc__)
    parser.add_argument("--json", type=Path, help="write the outcomes there instead of printing them")
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of the table (default 5,000,000)")
    parser.add_argument("--rounds", type=int, default=21, help="of point reads; a third of it of scans (default 21)")
    parser.add_argument("--folder", type=Path, help="where to put the lakes (default: the temporary folder)")
    given = parser.parse_args()
    before = os.getloadavg()
    found: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="indexlake-bench-", dir=given.folder) as folder:
        for outcome in outcomes(Path(folder), given.rows, given.rounds):
            mark = {True: "met", False: "MISSED", None: ""}[outcome.met]
            print(f"{outcome.name}: {outcome.ours} / {outcome.floor} = {outcome.value:g} {mark}", flush=True)
            found.append(outcome)
    facts = {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load before": before,
        "load after": os.getloadavg(),
        "rows": given.rows,
    }
    report(found, given.json, facts, title="Local cache in front of S3 on 127.0.0.1", other="other")


if __name__ == "__main__":
    main()
