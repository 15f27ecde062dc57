"""One row by SQL against the same row by a Python call: inserts and selects by key, prepared and as text."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator
from pathlib import Path

import indexlake as il
from benchmarks.outcome import Outcome, at_most, in_turn, spread

ROWS = 20_000


def _lake(folder: Path) -> tuple[il.Lake, il.Table]:
    lake = il.connect(str(folder / "sql"), automatic=False)
    lake.sql("""
        create table t (id bigint primary key, name varchar, v double);
        prepare put as insert into t values ($1, $2, $3);
        prepare one as select * from t where id = $1
    """)
    return lake, lake.table("t")


def inserts(folder: Path, rows: int) -> Iterator[Outcome]:
    lake, table = _lake(folder)
    numbers = itertools.count()
    contenders = {
        "call": lambda n: table.insert({"id": next(numbers), "name": "abc", "v": 1.5}),
        "prepared": lambda n: lake.sql("execute put($1, $2, $3)", [next(numbers), "abc", 1.5]),
        "text": lambda n: lake.sql(f"insert into t values ({next(numbers)}, 'abc', 1.5)"),
    }
    times = in_turn(contenders, 1500, warm_up=100, together=50)
    assert len(table) == next(numbers)
    lake.close()
    yield from _compared("insert", times, "call", {"prepared": 1.2, "text": 1.5})


def selects(folder: Path, rows: int) -> Iterator[Outcome]:
    lake, table = _lake(folder)
    table.insert([{"id": n, "name": f"n{n}", "v": n / 2} for n in range(ROWS)])
    keys = [n * 7919 % ROWS for n in range(ROWS)]
    contenders = {
        "get": lambda n: table.get(keys[n]),
        "prepared": lambda n: lake.sql("execute one($1)", [keys[n]]).fetchone(),
        "parameter": lambda n: lake.sql("select * from t where id = $1", [keys[n]]).fetchone(),
        "text": lambda n: lake.sql(f"select * from t where id = {keys[n]}").fetchone(),
    }
    assert contenders["text"](3) == contenders["prepared"](3) == tuple((table.get(keys[3]) or {}).values())
    times = in_turn(contenders, 1500, warm_up=100, together=50)
    lake.close()
    yield from _compared("select by key", times, "get", {"prepared": 2, "parameter": 2, "text": 2})


def _compared(what: str, times: dict[str, list[float]], floor: str, limits: dict[str, float]) -> Iterator[Outcome]:
    middle = {name: statistics.median(found) for name, found in times.items()}
    for name, limit in limits.items():
        detail = f"{name} {spread(times[name])}; {floor} {spread(times[floor])}"
        yield at_most(f"one-row {what} by SQL, {name}", middle[name], middle[floor], limit, detail=detail)
