"""Builds: rows a second in threads and on Spark, bytes a row, and the memory at a size and at ten times that.

``python -m benchmarks.indexes.builds FOLDER KIND COLUMN …`` builds one index of the lake there and prints the peak of
its memory.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import indexlake as il
from benchmarks.indexes import data, text
from benchmarks.outcome import Outcome, at_most, shown

FLAT = 1.25
_WIDTH = 32
KINDS: dict[str, str | list[str]] = {
    "btree": "u", "hash": "customer", "rtree": ["lon", "lat"], "bm25": "note", "hnsw": "vec",
}  # fmt: skip

BOUNDED = {"btree": ["u"], "hash": ["customer"], "rtree": ["k", "total"], "bm25": ["customer"]}


def speed(folder: Path, rows: int) -> Iterator[Outcome]:
    rows = rows // 50
    lake = data.open_lake(folder, "builds")
    table = _wide(lake, rows)
    for runner in ("threads", "spark"):
        spark = _spark() if runner == "spark" else None  # builds run on a session that is there
        if runner == "spark":
            if spark is None:
                break
            _built(table, "hash", KINDS["hash"], runner)  # its workers have to start
            table.drop_index("i")
        for kind, columns in KINDS.items():
            start = time.perf_counter()
            _built(table, kind, columns, runner)
            seconds = time.perf_counter() - start
            size = table.index("i").info.size_bytes
            table.drop_index("i")
            detail = f"{size / rows:,.1f} bytes a row, {seconds:,.1f} s for {rows:,} rows"
            pace = rows / seconds
            yield Outcome(f"{kind} built in {runner}", shown(pace, "rows/s"), "", round(pace), "", None, detail)
        if spark is not None:
            spark.stop()
    lake.close()


def memory(folder: Path, rows: int) -> Iterator[Outcome]:
    """The peak of a process that does nothing else.  Of a vector index it grows: a graph is built over vectors in
    memory, up to as many as a segment may have."""
    sizes = (rows // 10, rows)
    for size in sizes:
        lake = data.open_lake(folder / f"memory-{size}", "lake")
        data.table_of(lake, size, max(1, size // 100_000)).insert(data.stream(size))
        lake.close()
    for kind, columns in BOUNDED.items():
        small, large = (_peak(folder / f"memory-{size}", kind, columns) for size in sizes)
        detail = " and ".join(f"{size:,} rows" for size in sizes)
        yield at_most(f"peak memory of a {kind} build at ten times the rows", large, small, FLAT, "MiB", detail)


def _peak(folder: Path, kind: str, columns: Sequence[str]) -> float:
    command = [sys.executable, "-m", "benchmarks.indexes.builds", str(folder), kind, *columns]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _built(table: il.Table, kind: str, columns: str | list[str], runner: str) -> None:
    from indexlake.pipeline import build_index

    group, build_index.GROUP_ROWS = build_index.GROUP_ROWS, 50_000 if runner == "spark" else build_index.GROUP_ROWS
    try:
        table.create_index("i", columns, kind=kind, progress=False)
    finally:
        build_index.GROUP_ROWS = group


def _spark() -> Any:
    try:
        return il.spark.session()
    except il.IndexLakeError:
        return None


def _wide(lake: il.Lake, rows: int) -> il.Table:
    fields = [*data.SCHEMA, pa.field("lon", pa.float64()), pa.field("lat", pa.float64()), pa.field("note", pa.string())]
    schema = pa.schema([*fields, pa.field("vec", pa.list_(pa.float32(), _WIDTH))])
    table = data.table_of(lake, rows, 20, schema=schema)
    pick = np.random.default_rng(1)
    keys = pa.Table.from_batches(data.batches(rows))
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(pick.random(rows * _WIDTH, dtype=np.float32)), _WIDTH)
    places = [pa.array(pick.uniform(-90, 90, rows)) for _ in range(2)]
    columns = [*keys.columns, *places, text.documents(rows)["note"], vectors]
    table.insert(pa.table(columns, schema=schema))
    return table


def main() -> None:
    lake = data.open_lake(Path(sys.argv[1]), "lake")
    lake.table("t").create_index("i", sys.argv[3:], kind=sys.argv[2], progress=False)
    lake.table("t").drop_index("i")
    lake.close()
    # Not of getrusage, which counts what the process took before it became this program: the size of its parent.
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(int(peak.split()[1]) / 1024)


if __name__ == "__main__":
    main()
