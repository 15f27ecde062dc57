"""Planning with up to a million blocks: ``python -m benchmarks.scale [--blocks N …] [--postgres] [--json out.json]``.

The catalog gets the records of blocks that have no files, as a load would have written them: statistics of eight
columns, checksums, key segments.  All that is measured is the real code, in a process of its own for each size: load
and refresh of the table's state, plans, look-ups, commits, and what jobs have to go through.  ``--write docs/scale.md``
puts the table of figures between the marks there.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

import indexlake as il
from benchmarks.postgres import server
from indexlake.blocks.block import BlockRecord
from indexlake.blocks.row_ids import RowIds
from indexlake.blocks.statistics import ColumnStats, stats_to_bytes
from indexlake.catalog import data_files, table_heads
from indexlake.catalog.tables import next_values
from indexlake.commit.section import Section
from indexlake.indexes.keys import encode_key, key_to_bytes
from indexlake.pipeline import expire as expire_job
from indexlake.pipeline.compact import groups_to_compact
from indexlake.snapshots.state import TableState
from indexlake.spark.nulls import filled_columns
from indexlake.storage.checksum import CHUNK_SIZE, Checksums

SIZES = (1_000, 10_000, 100_000, 1_000_000)
ROWS = 1_000_000
"""Of a block."""
BLOCK_BYTES, SEGMENT_BYTES = 64 << 20, 10 << 20
PER_COMMIT = 20_000
REAL = -1_000
"""The keys of the one block that has files begin here; those of the others at zero."""
FIRST_DAY = date(2020, 1, 1)
BEGIN, END = "<!-- figures begin -->", "<!-- figures end -->"

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("customer", pa.string()),
        pa.field("city", pa.string()),
        pa.field("quantity", pa.int32()),
        pa.field("total", pa.float64()),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("note", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a lake is."""

    catalog: str
    storage: str
    schema: str | None = None

    def connect(self) -> il.Lake:
        return il.connect(self.catalog, storage=self.storage, catalog_schema=self.schema, automatic=False)


def row(key: int, n: int = -1) -> dict[str, Any]:
    return {
        "id": key, "customer": f"customer-{n:09}", "city": "Cork", "quantity": n, "total": n + 0.5,
        "day": FIRST_DAY + timedelta(days=n // 1000), "at": datetime(2020, 1, 1, tzinfo=UTC), "note": "…",
    }  # fmt: skip


# ---------------------------------------------------------------- records


def fill(place: Place, count: int) -> None:
    """A table with one real block and the records of so many more."""
    config = il.TableConfig(direct_write_row_count=10, block_row_count=ROWS, retention=timedelta(0))
    with place.connect() as lake:
        t = lake.create_table("t", SCHEMA, primary_key="id", config=config)
        t.insert(pa.Table.from_pylist([row(REAL + n) for n in range(100)], SCHEMA))
        state = t._state()
        (real,) = state.blocks.records
        assert state.primary is not None
        make = _Records(real, state, t._table_id, state.primary.index.index_id)
        for begin in range(0, count, PER_COMMIT):
            _add(lake, make, range(begin, min(count, begin + PER_COMMIT)))
        with lake.catalog.transaction() as tx:
            table_heads.reserve_row_ids(tx, t._table_id, (count + 1) * ROWS)
            tx.commit()
        lake.catalog.checkpoint()


@dataclass(frozen=True, slots=True)
class _Records:
    """The records of block number n: as those of a real block, with the bounds of its own rows."""

    real: BlockRecord
    state: TableState
    table_id: int
    index_id: int

    def block(self, n: int, file_id: int, s: int) -> BlockRecord:
        low, high = row(n * ROWS, n), row(n * ROWS + ROWS - 1, n)
        high["total"] += 0.4
        stats = {}
        for f in self.state.current.fields:
            bounds = [f.codec.canonical(f.codec.encode_one(values[f.name])) for values in (low, high)]
            stats[f.column] = ColumnStats(bounds[0], bounds[1], 0, ROWS)
        start = 1_000 + n * ROWS
        return self.real._replace(
            data_file_id=file_id, path=_path(self.real.path, n), size=BLOCK_BYTES, record_count=ROWS,
            row_ids=RowIds.from_range(start, ROWS).to_bytes(), min_row_id=start, max_row_id=start + ROWS - 1,
            min_snapshot=s, max_snapshot=s, column_stats=stats_to_bytes(stats), checksum=_checksum(BLOCK_BYTES),
            begin_snapshot=s, changed_in=s,
        )  # fmt: skip

    def segment(self, n: int, segment_id: int, s: int) -> tuple[Any, ...]:
        codecs = self.state.current.key_codecs
        keys = [key_to_bytes(encode_key(codecs, [key])) for key in (n * ROWS, n * ROWS + ROWS - 1)]
        path = _path(self.real.path, n) + ".keys"
        return (segment_id, self.index_id, self.table_id, path, SEGMENT_BYTES, _checksum(SEGMENT_BYTES), '["int64"]',
                *keys, s)  # fmt: skip


def _add(lake: il.Lake, make: _Records, numbers: range) -> None:
    """The records of some blocks, in one commit."""
    with Section(lake.catalog, lake._hot) as section:
        tx, s = section.tx, section.sequencer.next
        section.sequencer.record("load", job=False, summary="{}")
        files = range(first := next_values(tx, "data_file", len(numbers)), first + len(numbers))
        segments = range(first := next_values(tx, "index_file", len(numbers)), first + len(numbers))
        data_files.insert_blocks(tx, (make.block(n, file, s) for n, file in zip(numbers, files, strict=True)))
        tx.insert_rows(
            "indexlake_index_file",
            ["index_file_id", "index_id", "table_id", "relative_path", "file_size_bytes", "checksum", "key_types",
             "min_key", "max_key", "changed_in"],
            (make.segment(n, segment, s) for n, segment in zip(numbers, segments, strict=True)),
        )  # fmt: skip
        tx.insert_rows(
            "indexlake_index_file_block",
            ["index_id", "data_file_id", "index_file_id", "ordinal", "begin_snapshot", "changed_in"],
            ((make.index_id, file, segment, 0, s, s) for segment, file in zip(segments, files, strict=True)),
        )
        section.commit()


def _path(like: str, n: int) -> str:
    return f"{like[:-39]}{n:032x}{like[-7:]}"


def _checksum(size: int) -> bytes:
    """As long as that of a real file; each one other bytes."""
    return _HEAD_OF[size] + os.urandom(8 * -(-size // CHUNK_SIZE))


_HEAD_OF = {
    size: Checksums(size, (0,) * -(-size // CHUNK_SIZE)).to_bytes()[: -8 * -(-size // CHUNK_SIZE)]
    for size in (BLOCK_BYTES, SEGMENT_BYTES)
}


# ---------------------------------------------------------------- figures


@dataclass(frozen=True, slots=True)
class Figure:
    """One line for one size: seconds of the clock and of this process's processor, or a plain number."""

    name: str
    value: float
    cpu: float | None
    unit: str


def measure(place: Place, count: int) -> Iterator[Figure]:
    """Everything at one size."""
    with place.connect() as lake:
        _warm_up(lake)
        t = lake.table("t")
        before = _resident()
        yield timed("load of the state, cold", t._state)
        yield Figure("memory of the state", (_resident() - before) / count, None, "bytes/block")
        yield timed("first plan by a number", lambda: _one(t, "quantity = $n", n=count // 2))
        yield timed("first plan by a string", lambda: _one(t, "customer = $n", n=f"customer-{count // 3:09}"))
        yield timed("first get by key", lambda: t.get(REAL + 1))

        numbers = iter(random.Random(count).choices(range(count), k=10_000))
        yield often("plan: one block by a number", lambda: _one(t, "quantity = $n", n=next(numbers)))
        text = "total >= $n and total < $n + 0.9"
        yield often("plan: one block by a range", lambda: _one(t, text, n=next(numbers) + 0.0))
        yield often("plan: one block by a string", lambda: _one(t, "customer = $n", n=f"customer-{next(numbers):09}"))
        yield timed("plan: all blocks", lambda: t.scan()._plan())
        yield declared("columns without nulls, for Spark, first", t)
        yield often("get by key", lambda: t.get(REAL + next(numbers) % 100))
        yield often("get of a key that is not there", lambda: t.get(REAL - 1 - next(numbers)))

        keys = iter(range(2 * REAL, 2 * REAL - 100_000, -1))
        yield often("commit of one hot row", lambda: t.insert(row(next(keys))))
        yield often("update of a row in a block, by key", lambda: t.update({"note": "!"}, "id = $k", {"k": REAL + 7}))

        def one_block() -> float:
            rows = pa.Table.from_pylist([row(next(keys)) for _ in range(10)], SCHEMA)
            t.insert(rows)
            return refresh()

        def refresh() -> float:
            begun = time.perf_counter(), time.process_time()
            t._state()
            taken.append((time.perf_counter() - begun[0], time.process_time() - begun[1]))
            return taken[-1][0]

        taken: list[tuple[float, float]] = []
        for _ in range(3):
            t.insert(row(next(keys)))
            refresh()
        yield Figure("refresh after a commit of rows", *_medians(taken), "s")
        taken.clear()
        begun = time.perf_counter(), time.process_time()
        for _ in range(5):
            one_block()
        whole = (time.perf_counter() - begun[0]) / 5, (time.process_time() - begun[1]) / 5
        yield Figure("commit of one block and refresh", *whole, "s")
        yield Figure("  of which refresh", *_medians(taken), "s")
        yield timed("first get after it", lambda: t.get(REAL + 2))
        yield timed("first plan after it", lambda: _one(t, "quantity = $n", n=count // 2))

        with lake._readings.open(t._table_id) as reading:
            state, last = reading.state, reading.snapshot
        yield timed("choice of what to compact", lambda: groups_to_compact(state, last))
        lake._clock = lambda: 2**60
        expire = lake.pipeline(runner="threads").expire
        yield timed("expire, the first of all", lambda: expire("t"))
        yield timed("  refresh after it", t._state)
        t.update({"note": "?"}, "id = $k", {"k": REAL + 8})
        yield timed("expire, later", lambda: expire("t"))
        yield timed("  refresh after it", t._state)
        yield timed("vacuum, without the listing of files", lambda: lake.pipeline(runner="threads").vacuum())
        yield longest_commit(
            "expire of half the blocks, longest commit", lambda: _end_half(lake, t), lambda: expire("t")
        )
        yield Figure("catalog", _catalog_bytes(lake) / count, None, "bytes/block")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    yield Figure("peak memory of the process", peak / (1 << 20), None, "MiB")


def _warm_up(lake: il.Lake) -> None:
    """Everything once on a small table: modules are imported and files of every kind were opened."""
    t = lake.create_table("warm", SCHEMA, primary_key="id", config=il.TableConfig(direct_write_row_count=10))
    for first in (0, 10):
        t.insert(pa.Table.from_pylist([row(first + n) for n in range(10)], SCHEMA))
    t.get(3)
    t.update({"note": "!"}, "id = $k", {"k": 3})
    for column, value in (("quantity", 1), ("customer", "x"), ("total", 0.5)):
        t.scan(f"{column} = $n", params={"n": value}).explain()
    t.scan()._plan()
    lake.pipeline(runner="threads").expire("warm")


def _one(t: il.Table, where: str, **params: Any) -> None:
    found = t.scan(where, params=params).explain()
    assert found.blocks_read == 1, found


def timed(name: str, call: Callable[[], object]) -> Figure:
    begun = time.perf_counter(), time.process_time()
    call()
    return Figure(name, time.perf_counter() - begun[0], time.process_time() - begun[1], "s")


def declared(name: str, t: il.Table) -> Figure:
    """What ``to_spark`` finds out about a plan of all blocks besides making it."""
    plan, fields, *_ = t.scan()._plan()
    blocks = t._state().blocks
    return timed(name, lambda: filled_columns(blocks, plan, plan.tasks, fields))


def _end_half(lake: il.Lake, t: il.Table) -> None:
    """As if every other block had been compacted."""
    with lake.catalog.transaction() as tx:
        half = sorted(data_files.live_ids(tx, t._table_id))[::2]
    for begin in range(0, len(half), PER_COMMIT):
        with Section(lake.catalog, lake._hot) as section:
            data_files.end_blocks(section.tx, half[begin : begin + PER_COMMIT], section.sequencer.next)
            section.sequencer.record("compact", job=True)
            section.commit()
    lake.catalog.checkpoint()


def longest_commit(name: str, prepare: Callable[[], object], call: Callable[[], object]) -> Figure:
    """For how long an expire holds the catalog at most, and the most processor time that one of its commits takes."""
    prepare()
    taken: list[tuple[float, float]] = []

    class Timed(Section):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.begun = time.perf_counter(), time.thread_time()

        def __exit__(self, *how: Any) -> None:
            super().__exit__(*how)
            taken.append((time.perf_counter() - self.begun[0], time.thread_time() - self.begun[1]))

    with patch.object(expire_job, "Section", Timed):
        call()
    return Figure(name, max(wall for wall, _ in taken), max(cpu for _, cpu in taken), "s")


def often(name: str, call: Callable[[], object], seconds: float = 2.0) -> Figure:
    """The median of as many calls as fit in that time, and of the first of all so few as three."""
    call()
    found: list[tuple[float, float]] = []
    end = time.perf_counter() + seconds
    while len(found) < 3 or (time.perf_counter() < end and len(found) < 300):
        one = timed(name, call)
        assert one.cpu is not None
        found.append((one.value, one.cpu))
    return Figure(name, *_medians(found), "s")


def _medians(taken: list[tuple[float, float]]) -> tuple[float, float]:
    return statistics.median(wall for wall, _ in taken), statistics.median(cpu for _, cpu in taken)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _catalog_bytes(lake: il.Lake) -> int:
    with lake.catalog.read() as r:
        if lake.catalog.database() == "postgres":
            sql = "select sum(pg_total_relation_size(c.oid)) from pg_class c where c.relnamespace = \
current_schema()::regnamespace and c.relkind = 'r'"
        else:
            sql = "select sum(pgsize) from dbstat"
        return int(r.rows(sql)[0][0])


# ---------------------------------------------------------------- report


def shown(figure: Figure) -> str:
    if figure.unit != "s":
        return f"{figure.value:,.0f} {figure.unit}"
    cpu = f" ({_seconds(figure.cpu)})" if figure.cpu is not None else ""
    return f"{_seconds(figure.value)}{cpu}"


def _seconds(value: float) -> str:
    if value >= 1:
        return f"{value:.1f} s"
    return f"{value * 1000:.3g} ms" if value >= 0.001 else f"{value * 1e6:.0f} µs"


def table_of(found: dict[str, dict[int, list[Figure]]]) -> str:
    """As Markdown: a line for each figure, a column for each size."""
    lines: list[str] = []
    for database, by_size in found.items():
        sizes = list(by_size)
        lines += [f"| {database} | " + " | ".join(f"{size:,} blocks" for size in sizes) + " |"]
        lines += ["|---|" + "--:|" * len(sizes)]
        for n, first in enumerate(by_size[sizes[0]]):
            lines.append(f"| {first.name.strip()} | " + " | ".join(shown(by_size[size][n]) for size in sizes) + " |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--blocks", type=int, action="append", help=f"how many; may be repeated (default {SIZES})")
    parser.add_argument("--postgres", action="store_true", help="a catalog in PostgreSQL too")
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--write", type=Path, help="put the table between the marks of this document")
    parser.add_argument("--folder", type=Path, help="where to put the lakes (default: the temporary folder)")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        for figure in measure(Place(**json.loads(given.measure[0])), int(given.measure[1])):
            print(json.dumps(asdict(figure)), flush=True)
        return
    before = os.getloadavg()
    found: dict[str, dict[int, list[Figure]]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="indexlake-scale-", dir=given.folder)))
        databases = {"SQLite": lambda name: Place(str(folder / name / "lake"), str(folder / name / "files"))}
        if given.postgres:
            uri = stack.enter_context(server(folder))
            databases["PostgreSQL"] = lambda name: Place(uri, str(folder / f"pg-{name}"), f"scale_{name}")
        for database, place_of in databases.items():
            for size in given.blocks or SIZES:
                found.setdefault(database, {})[size] = _measured(place_of(str(size)), size, database)
    text = table_of(found)
    print(text)
    facts = {
        "python": platform.python_version(), "cores": os.cpu_count(), "rows of a block": ROWS,
        "bytes of a block": BLOCK_BYTES, "load before": before, "load after": os.getloadavg(),
    }  # fmt: skip
    if given.json is not None:
        figures = {d: {n: [asdict(f) for f in all] for n, all in sizes.items()} for d, sizes in found.items()}
        given.json.write_text(json.dumps({"facts": facts, "figures": figures}, indent=2, ensure_ascii=False) + "\n")
    if given.write is not None:
        head, _, rest = given.write.read_text().partition(BEGIN)
        assert END in rest, f"{given.write} has no marks {BEGIN} and {END}"
        load = f"Load of the machine: {before[0]:.1f} before, {os.getloadavg()[0]:.1f} after; {os.cpu_count()} cores."
        given.write.write_text(f"{head}{BEGIN}\n\n{load}\n\n{text}\n{END}{rest.partition(END)[2]}")


def _measured(place: Place, size: int, database: str) -> list[Figure]:
    begun = time.perf_counter()
    fill(place, size)
    print(f"{database}: {size:,} records made in {time.perf_counter() - begun:.0f} s", flush=True)
    command = [sys.executable, "-m", "benchmarks.scale", "--measure", json.dumps(asdict(place)), str(size)]
    figures: list[Figure] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            figures.append(Figure(**json.loads(line)))
            print(f"  {figures[-1].name}: {shown(figures[-1])}", flush=True)
    assert process.returncode == 0, "the measuring process failed"
    return figures


if __name__ == "__main__":
    main()
