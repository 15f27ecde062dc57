"""Look-ups, ranges, updates and inserts by keys that are not the primary one, beside Lance's BTREE."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import indexlake as il
from benchmarks.indexes import data
from benchmarks.outcome import Outcome, at_most, below, in_turn, spread

BLOCKS = 100


def lance_of(folder: Path, name: str, rows: int, blocks: int, *columns: str) -> Any:
    """The same rows in Lance, with a BTREE on some columns."""
    import lance

    made = lance.write_dataset(data.stream(rows), folder / f"{name}.lance", max_rows_per_file=max(1, rows // blocks))
    for column in columns:
        made.create_scalar_index(column, "BTREE")
    return made


def _compared(
    name: str, calls: dict[str, Callable[[int], object]], count: int, limit: float, together: int = 10
) -> Outcome:
    times = in_turn(calls, count, warm_up=max(10, count // 20), together=together)
    ours, theirs = (statistics.median(times[who]) for who in calls)
    return at_most(name, ours, theirs, limit, detail="; ".join(f"{who} {spread(t)}" for who, t in times.items()))


def look_ups(folder: Path, rows: int) -> Iterator[Outcome]:
    lake = data.open_lake(folder, "look-ups")
    table = data.table_of(lake, rows, BLOCKS)
    table.insert(data.stream(rows))
    for column in ("k", "u"):
        table.create_index(f"by_{column}", column)
    lance = lance_of(folder, "look-ups", rows, BLOCKS, "k", "u")
    pick = random.Random(1)
    asked = [pick.randrange(rows) for _ in range(3000)]
    keys, ids = [data.key(n, rows) for n in asked], [data.identifier(n) for n in asked]
    for what, column, values in (("integer", "k", keys), ("UUID", "u", ids)):

        def ours(n: int, column: str = column, values: Any = values) -> pa.Table:
            return table.scan(f"{column} = $v", params={"v": values[n]}).to_arrow()

        def theirs(n: int, column: str = column, values: Any = values) -> pa.Table:
            return lance.to_table(filter=f"{column} = {values[n]!r}")

        assert ours(0).to_pylist() == theirs(0).to_pylist() != []
        times = in_turn({"ours": ours, "Lance": theirs}, 500, together=20)
        median, other = (statistics.median(times[who]) for who in ("ours", "Lance"))
        detail = f"ours {spread(times['ours'])}; Lance {spread(times['Lance'])}"
        yield below(f"btree look-up, random {what}", median / 1000, 0.5, "ms", detail)
        yield at_most(f"btree look-up, random {what}, and Lance BTREE", median, other, 1 / 3, detail=detail)
    yield _compared(
        "btree range of 1,000 rows, and Lance BTREE",
        {
            "ours": lambda n: table.scan(f"k between {keys[n]} and {keys[n] + 999}").to_arrow(),
            "Lance": lambda n: lance.to_table(filter=f"k >= {keys[n]} and k <= {keys[n] + 999}"),
        },
        40, 1.0, together=5,
    )  # fmt: skip
    yield _compared(
        "update by an indexed key, and Lance BTREE",
        {
            "ours": lambda n: table.update({"total": -1.0}, f"k = {keys[n]}"),
            "Lance": lambda n: lance.update({"total": "-1.0"}, where=f"k = {keys[n]}"),
        },
        60, 1 / 3, together=1,
    )  # fmt: skip
    lake.close()


def many_blocks(folder: Path, rows: int) -> Iterator[Outcome]:
    """Segments are written with blocks and folded: a look-up asks few, however many blocks there are."""
    rows = rows // 10
    lake = data.open_lake(folder, "blocks")
    tables = {}
    for blocks in (10, 1000):
        table = data.table_of(lake, rows, blocks, f"t{blocks}")
        table.create_index("by_u", "u")
        table.insert(data.stream(rows))
        lake.pipeline(runner="threads").merge_index(table.name)
        tables[blocks] = table
    pick = random.Random(2)
    ids = [data.identifier(pick.randrange(rows)) for _ in range(2000)]

    def asked(table: il.Table) -> Callable[[int], object]:
        return lambda n: table.scan("u = $v", params={"v": ids[n]}).to_arrow()

    times = in_turn({str(blocks): asked(t) for blocks, t in tables.items()}, 500, warm_up=1000, together=20)
    segments = ", ".join(f"{blocks} blocks in {t.index('by_u').info.segments} segments" for blocks, t in tables.items())
    many, few = (statistics.median(times[blocks]) for blocks in ("1000", "10"))
    yield at_most("btree look-up in 1,000 blocks, and in 10", many, few, 3, detail=segments)
    lake.close()


def one_row_inserts(folder: Path, rows: int) -> Iterator[Outcome]:
    columns: dict[str, Any] = {"id": "int64", "k": "int64", "mail": "string", "lon": "float64", "lat": "float64"}
    columns |= {"note": "string", "vec": pa.list_(pa.float32(), 8)}
    lake = data.open_lake(folder, "inserts")
    tables = {name: lake.create_table(name, columns, primary_key="id") for name in ("with", "without")}
    for name, on, kind in (
        ("by_k", "k", "btree"), ("by_mail", "mail", "hash"), ("places", ["lon", "lat"], "rtree"),
        ("words", "note", "bm25"), ("near", "vec", "hnsw"),
    ):  # fmt: skip
        tables["with"].create_index(name, on, kind=kind)
    row = {"mail": "someone@example.org", "lon": 1.5, "lat": 2.5, "note": "a late parcel", "vec": [0.5] * 8}
    calls = {
        name: (lambda n, table=table: table.insert({**row, "id": n, "k": n * 7919 % 100_003}))
        for name, table in tables.items()
    }
    times = in_turn(calls, 1000, warm_up=50)
    median, bare = (statistics.median(times[name]) for name in ("with", "without"))
    detail = f"with {spread(times['with'])}; without {spread(times['without'])}"
    yield at_most("one-row insert with five indexes, and without any", median, bare, 2, detail=detail)
    lake.close()
