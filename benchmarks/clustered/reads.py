"""Reading by key: one row, a range, all rows in order.

``python -m benchmarks.clustered.reads ours|duckdb FOLDER`` reads all rows in order and prints the peak of its memory.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import indexlake as il
from benchmarks.clustered import data
from benchmarks.memory import Peak
from benchmarks.outcome import Outcome, at_most, in_turn, shown, spread


def look_ups(folder: Path, rows: int) -> Iterator[Outcome]:
    """One row by its key; the heap table finds it through the same kind of index."""
    import lance

    with data.open_lake(folder) as lake:
        tables = {layout: data.filled(lake, layout, rows) for layout in ("clustered", "heap")}
        other = lance.write_dataset(data.stream(rows), folder / "rows.lance", max_rows_per_file=max(1, rows // 10))
        other.create_scalar_index("k", "BTREE")
        pick = Random(1)
        keys = [3 * pick.randrange(rows) for _ in range(4_000)]
        calls: dict[str, Callable[[int], Any]] = {
            "clustered": lambda n: tables["clustered"].get(keys[n]),
            "heap": lambda n: tables["heap"].get(keys[n]),
            "Lance": lambda n: other.to_table(filter=f"k = {keys[n]}").to_pylist()[0],
        }
        assert calls["clustered"](0) == calls["heap"](0) == calls["Lance"](0)
        times = in_turn(calls, 1_000, warm_up=200, together=20)
    ours = statistics.median(times["clustered"])
    detail = "; ".join(f"{who} {spread(found)}" for who, found in times.items())
    for who, limit in (("heap", 1.2), ("Lance", 1 / 3)):
        yield at_most(f"look-up by key, and {who}", ours, statistics.median(times[who]), limit, detail=detail)


def ranges(folder: Path, rows: int) -> Iterator[Outcome]:
    """A thousandth of the rows, by a range of keys, which all get as values and none as text.

    Parquet prunes row groups by their statistics.
    """
    import duckdb
    import pyarrow.dataset as ds

    any_order = data.parquet(folder / "any.parquet", data.stream(rows))
    in_order = data.parquet_sorted(folder / "sorted.parquet", any_order)
    database = duckdb.connect()
    width = 3 * max(1, rows // 1_000)
    pick = Random(2)
    firsts = [pick.randrange(3 * rows - width) for _ in range(200)]

    def by_dataset(path: Path) -> Callable[[int], Any]:
        known, k = ds.dataset(path), ds.field("k")
        return lambda n: known.to_table(filter=(k >= firsts[n]) & (k < firsts[n] + width))

    def by_duckdb(path: Path) -> Callable[[int], Any]:
        text = f"select * from '{path}' where k >= ? and k < ?"
        return lambda n: database.execute(text, [firsts[n], firsts[n] + width]).to_arrow_table()

    with data.open_lake(folder) as lake:
        table = data.filled(lake, "clustered", rows)
        calls: dict[str, Callable[[int], Any]] = {
            "ours": lambda n: table.scan("k >= $1 and k < $2", params=[firsts[n], firsts[n] + width]).to_arrow(),
            "pyarrow, Parquet in key order": by_dataset(in_order),
            "DuckDB, Parquet in key order": by_duckdb(in_order),
            "pyarrow, Parquet in any order": by_dataset(any_order),
            "DuckDB, Parquet in any order": by_duckdb(any_order),
        }
        assert len({call(0).num_rows for call in calls.values()}) == 1
        slow = {who: call for who, call in calls.items() if who.endswith("any order")}
        times = in_turn({who: call for who, call in calls.items() if who not in slow}, 100, warm_up=10, together=10)
        times |= in_turn(slow, 5, warm_up=1)
    ours = statistics.median(times["ours"])
    for who in list(calls)[1:]:
        detail = f"ours {spread(times['ours'])}; {who} {spread(times[who])}"
        yield at_most(
            f"range of 0.1 % of the keys, and {who}", ours, statistics.median(times[who]), 1 / 5, detail=detail
        )


ROUNDS = 5


def order(folder: Path, rows: int) -> Iterator[Outcome]:
    """All rows in the order of their keys, batch by batch; DuckDB sorts what it reads of Parquet."""
    data.parquet(folder / "any.parquet", data.stream(rows))
    with data.open_lake(folder) as lake:
        data.filled(lake, "clustered", rows)
    found = {who: read(folder) for who, read in _READS.items()}
    assert found["ours"] == found["duckdb"], "the same rows in the same order"
    times = in_turn({who: (lambda _, read=read: read(folder)) for who, read in _READS.items()}, ROUNDS, warm_up=0)
    ours, other = (statistics.median(times[who]) / 1e6 for who in ("ours", "duckdb"))
    peaks = {who: _peak(who, folder) for who in _READS}
    said = ", ".join(f"{who} {peak >> 20:,} MiB" for who, peak in peaks.items())
    pace = f"{rows / ours:,.0f} and {rows / other:,.0f} rows/s; peak memory: {said}"
    yield at_most("ordered scan of all rows, and DuckDB's order by on Parquet", ours, other, 1 / 2, "s", pace)
    most = peaks["ours"] / 2**20
    yield Outcome("peak memory of an ordered scan", shown(most, "MiB"), shown(peaks["duckdb"] / 2**20, "MiB"),
                  round(peaks["ours"] / peaks["duckdb"], 3), "", None)  # fmt: skip


def _ours(folder: Path) -> tuple[int, int]:
    with data.open_lake(folder) as lake:
        return _consumed(lake.table("clustered").scan(order_by="k").to_batches())


def _duckdb(folder: Path) -> tuple[int, int]:
    import duckdb

    text = f"select * from '{folder / 'any.parquet'}' order by k"
    with duckdb.connect() as database:
        return _consumed(database.execute(text).to_arrow_reader(100_000))


_READS: dict[str, Callable[[Path], tuple[int, int]]] = {"ours": _ours, "duckdb": _duckdb}


def _consumed(found: Any) -> tuple[int, int]:
    """How many rows came, and a sum that depends on their order."""
    import numpy as np

    rows = total = 0
    for batch in found:
        keys = batch.column(0).to_numpy()
        places = np.arange(rows, rows + len(keys), dtype=np.int64)
        total = (total + int((keys * (places % 1_009)).sum())) % 2**61
        rows += len(keys)
    return rows, total


def _peak(who: str, folder: Path) -> int:
    command = [sys.executable, "-m", "benchmarks.clustered.reads", who, str(folder)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    assert il.__version__
    watched = Peak()
    _READS[sys.argv[1]](Path(sys.argv[2]))
    print(watched.stop())
