"""One hot row by its key: read and changed, without waiting for a disk."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb

from benchmarks.memory_store import data
from benchmarks.memory_store.commits import sqlite
from benchmarks.outcome import Outcome, below, in_turn, spread

ROWS, CALLS = 100_000, 20_000


def picked() -> list[int]:
    pick = random.Random(1)
    return [pick.randrange(ROWS) for _ in range(CALLS + 1000)]


def hot_get(folder: Path, rows: int) -> Iterator[Outcome]:
    lake, table = data.open_lake(folder, "get", durability="none")
    data.fill(table, ROWS)
    keys = picked()
    assert table.get(7) == data.row(7)
    times = in_turn({"ours": lambda n: table.get(keys[n])}, CALLS, warm_up=1000)["ours"]
    yield below("get of a hot row", statistics.median(times), 15, "µs", spread(times))
    for n in range(2000):
        table.update({"quantity": n}, "id = $id", params={"id": keys[n]})
    changed = in_turn({"ours": lambda n: table.get(keys[n % 2000])}, CALLS, warm_up=1000)["ours"]
    lake.close()
    yield below("get of a hot row that was updated", statistics.median(changed), 15, "µs", spread(changed))


def hot_update(folder: Path, rows: int) -> Iterator[Outcome]:
    lake, table = data.open_lake(folder, "update", durability="none")
    data.fill(table, ROWS)
    keys = picked()

    def update(n: int) -> None:
        table.update({"total": 1.5}, "id = $id", params={"id": keys[n]})

    def compute(n: int) -> None:
        import indexlake as il

        table.update({"quantity": il.expr("quantity + 1")}, "id = $id", params={"id": keys[n]})

    times = in_turn({"update": update, "by an expression": compute}, CALLS // 2, warm_up=1000, together=200)
    assert table.get(keys[0]) == data.row(keys[0]) | {"total": 1.5, "quantity": table.get(keys[0])["quantity"]}
    lake.close()
    yield below(
        "update of a hot row, not synced", statistics.median(times["update"]), 50, "µs", spread(times["update"])
    )
    found = statistics.median(times["by an expression"])
    yield Outcome(
        "  by an expression", f"{found:,.0f} µs", "", round(found), "", None, spread(times["by an expression"])
    )


def peers(folder: Path, rows: int) -> Iterator[Outcome]:
    lake, table = data.open_lake(folder, "peers", durability="none")
    inline_lake, inline = data.open_lake(folder, "inline", hot="inline")
    full = sqlite(folder / "full.db", "full")
    duck = duckdb.connect(str(folder / "duck.db"))
    duck.execute(data.CREATE)
    for each in (table, inline):
        data.fill(each, ROWS)
    full.execute("begin")
    full.executemany(data.INSERT, map(data.values, range(ROWS)))
    full.execute("commit")
    arrow = table.to_arrow()
    duck.register("arrow_rows", arrow)
    duck.execute("insert into orders select * from arrow_rows")
    keys = picked()

    def lite(n: int) -> Any:
        return full.execute(data.GET, (keys[n],)).fetchone()

    def ducks(n: int) -> Any:
        return duck.execute(data.GET, (keys[n],)).fetchone()

    assert lite(0) == ducks(0) == tuple(table.get(keys[0]).values())
    contenders: dict[str, Callable[[int], object]] = {
        "ours": lambda n: table.get(keys[n]), "inline": lambda n: inline.get(keys[n]), "SQLite": lite, "DuckDB": ducks,
    }  # fmt: skip
    times = in_turn(contenders, 3000, warm_up=300, together=100)
    for each in (lake, inline_lake, duck):
        each.close()
    ours = statistics.median(times["ours"])
    for name, found in times.items():
        if name != "ours":
            other = statistics.median(found)
            yield Outcome(
                f"point read, and {name}", f"{ours:,.1f} µs", f"{other:,.1f} µs", round(ours / other, 3), "", None,
                f"ours {spread(times['ours'])}; {name} {spread(found)}",
            )  # fmt: skip
