"""Writing from Spark: loads against ``df.write.parquet`` of the same rows, compaction against Spark's own rewrite.

One more contender hands the rows to Python by ``mapInArrow`` alone, which throws them away.  Every contender that
writes, writes a place of its own each time; all take turns; what was written is counted.  While they run, the anonymous
memory of this process, of Spark's JVM and of its Python workers is watched.
"""

from __future__ import annotations

import os
import shutil
import statistics
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import indexlake as il
from benchmarks.orders import SCHEMA, batches, config
from benchmarks.outcome import Outcome, at_most, in_turn, shown, spread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS = 5
SMALL_BLOCKS = 1_000


def load(folder: Path, rows: int, spark: SparkSession) -> Iterator[Outcome]:
    """Bulk loads; the floor is ``df.write.parquet``."""
    source = str(folder / "source.parquet")
    _write_source(folder, source, rows, spark)
    lake = il.connect(str(folder / "lake"), automatic=False)
    made = 0

    def table(primary_key: str | None, format: str) -> str:
        nonlocal made
        made += 1
        lake.create_table(f"bench.t{made}", SCHEMA, primary_key=primary_key, config=config(dump_format=format))
        return f"bench.t{made}"

    def loaded(primary_key: str | None, format: str) -> Callable[[int], None]:
        def call(_: int) -> None:
            name = table(primary_key, format)
            result = lake.pipeline(spark=spark, progress=False).load(spark.read.parquet(source), name)
            assert result.inserted == rows

        return call

    def written(_: int) -> None:
        name = table(None, "vortex")
        frame = spark.read.parquet(source)
        frame.write.format("indexlake").option("table", name).mode("append").save(str(folder / "lake"))

    def from_files(_: int) -> None:
        name = table(None, "vortex")
        assert lake.pipeline(spark=spark, progress=False).load(source, name).inserted == rows

    def native(n: int) -> None:
        spark.read.parquet(source).write.parquet(str(folder / "native" / str(n)))

    def thrown_away(_: int) -> None:
        assert not spark.read.parquet(source).mapInArrow(_nothing, "nothing int").collect()

    contenders = {
        "load, heap, Vortex": loaded(None, "vortex"),
        "load, heap, Parquet": loaded(None, "parquet"),
        "load, primary key, Vortex": loaded("id", "vortex"),
        'df.write.format("indexlake"), heap, Vortex': written,
        "load of Parquet files, heap, Vortex": from_files,
        "rows handed to Python and thrown away": thrown_away,
    }
    goals = {"load, heap, Vortex": 1.6, "load, heap, Parquet": 1.6}
    yield from _compared(contenders, native, goals)
    lake.close()


def _nothing(batches: Iterator[Any]) -> Iterator[Any]:
    for _ in batches:
        pass
    yield from ()


def compact(folder: Path, rows: int, spark: SparkSession) -> Iterator[Outcome]:
    """1,000 small blocks made into full ones; the floor is Spark's rewrite of the same files."""
    first = folder / "small"
    with il.connect(str(first), automatic=False) as lake:
        lake.create_table("bench.t", SCHEMA, config=config(dump_format="parquet", direct_write_row_count=1))
        for batch in batches(rows, rows // SMALL_BLOCKS):
            lake.table("bench.t").insert(batch)
        assert lake.table("bench.t").stats().blocks >= SMALL_BLOCKS
        files = [str(first / "files" / f.path) for f in lake.storage.list("tables") if f.path.endswith(".parquet")]
    full = -(-rows // config().block_row_count)

    def copied(n: int) -> Path:
        return shutil.copytree(first, folder / f"copy{n}", dirs_exist_ok=True)

    copies = iter([copied(n) for n in range(ROUNDS + 1)])

    def ours(_: int) -> None:
        with il.connect(str(next(copies)), automatic=False) as lake:
            lake.pipeline(spark=spark, progress=False).compact("bench.t")
            assert lake.table("bench.t").stats().blocks <= full + 1

    def native(n: int) -> None:
        spark.read.parquet(*files).repartition(full).write.parquet(str(folder / "native" / f"c{n}"))

    yield from _compared({f"compaction of {SMALL_BLOCKS:,} blocks": ours}, native, 0.8)


def _write_source(folder: Path, source: str, rows: int, spark: SparkSession) -> None:
    """As Spark would have written it: a few files."""
    with il.connect(str(folder / "source"), automatic=False) as lake:
        made = lake.create_table("bench.source", SCHEMA, config=config(dump_format="parquet"))
        for batch in batches(rows, 1_000_000):
            made.insert(batch)
        made.to_spark(spark).write.parquet(source)


def _compared(
    contenders: Mapping[str, Callable[[int], None]],
    native: Callable[[int], None],
    goals: Mapping[str, float] | float,
) -> Iterator[Outcome]:
    memory = Memory()
    times = in_turn({**contenders, "floor": native}, ROUNDS, warm_up=1)
    peaks = memory.stop()
    theirs = statistics.median(times["floor"]) / 1e6
    for name in contenders:
        mine = statistics.median(times[name]) / 1e6
        detail = f"{spread([t / 1e6 for t in times[name]], 's')}"
        goal = goals if isinstance(goals, float) else goals.get(name)
        if goal is None:
            yield Outcome(name, shown(mine, "s"), shown(theirs, "s"), round(mine / theirs, 3), "", None, detail)
        else:
            yield at_most(name, mine, theirs, goal, "s", detail)
    said = ", ".join(f"{who} {size >> 20:,} MiB" for who, size in peaks.items())
    yield Outcome("peak memory, all contenders", said, "", round(sum(peaks.values()) / 2**20), "", None)


class Memory:
    """Watches this process and what it has started, every 50 ms."""

    def __init__(self) -> None:
        self._peaks = {"driver": 0, "JVM": 0, "workers": 0}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            found = dict.fromkeys(self._peaks, 0)
            own = os.getpid()
            parents = _parents()
            for pid in parents:
                if not _descends(pid, own, parents):
                    continue
                who = "driver" if pid == own else "JVM" if _name(pid).startswith("java") else "workers"
                found[who] += _anonymous(pid)
            for who, size in found.items():
                self._peaks[who] = max(self._peaks[who], size)

    def stop(self) -> dict[str, int]:
        self._stop.set()
        self._thread.join()
        return self._peaks


def _parents() -> dict[int, int]:
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    return found


def _descends(pid: int, ancestor: int, parents: Mapping[int, int]) -> bool:
    while pid in parents:
        if pid == ancestor:
            return True
        pid = parents[pid]
    return False


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""


def _anonymous(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:")), 0)
