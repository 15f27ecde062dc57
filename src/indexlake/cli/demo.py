"""``indexlake demo``: a tour in a few scenes, on a real lake.

The first half is the story that the README tells: rows go in, are found by key and by index, are updated, queried, and
moved to columnar files on Spark, and a picture shows where they are.  The second half shows what else there is.
"""

from __future__ import annotations

import random
import shlex
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import indexlake as il
from indexlake.cli.demo_memory import scene as in_memory
from indexlake.cli.spark import start
from indexlake.display import counted, text_table
from indexlake.pipeline.pipeline import Pipeline

_INDEXES = {"btree": ["mail"], "hash": ["text"], "rtree": ["lon", "lat"], "bm25": ["text"], "hnsw": ["taste"]}
_CITIES = ("Amsterdam", "Bogotá", "Cairo", "Dakar", "Edinburgh", "Fukuoka")


def run(console: Console, folder: Path | None, rows: int) -> None:
    if folder is not None:
        _scenes(console, folder, rows)
        place = shlex.quote(str(folder))
        _say(console, f"\nThe lake is in {place}. Look around with: indexlake tables {place}; indexlake --help")
        return
    with tempfile.TemporaryDirectory(prefix="indexlake-demo-") as temporary:
        _scenes(console, Path(temporary) / "shop", rows)
    _say(console, "\nThe lake of this demo is gone. To keep one: indexlake demo ./shop")


def _scenes(console: Console, folder: Path, rows: int) -> None:
    with il.connect(folder) as lake:
        lake.drop_table("sales.orders", missing_ok=True)
        _title(console, "1  A table you can write to one row at a time")
        orders = lake.create_table(
            "sales.orders",
            pa.schema([("id", pa.int64()), ("city", pa.string()), ("total", pa.float64()), ("note", pa.string())]),
            primary_key="id",
            config=il.TableConfig(block_row_count=100_000),
        )
        _one_row(console, orders)
        _title(console, "2  Many rows at once go straight to columnar files")
        _bulk(console, orders, rows)
        _title(console, "3  Rows are found by key and by index, wherever they are")
        _find(console, orders, rows)
        _title(console, "4  Updates, upserts and transactions, all or nothing")
        before = lake.snapshot_id
        _change(console, lake, orders)
        _title(console, "5  What each commit changed; every past snapshot stays readable")
        _travel(console, orders, before)
        _title(console, "6  A new column without rewriting a file; SQL over new rows and files alike")
        _sql(console, lake, orders)
        _title(console, "7  Spark moves rows to columnar files and loads more; no answer changes")
        _pipeline(console, lake, orders, rows)
        _title(console, "8  Where the rows are now")
        _say(console, str(orders.stats()))

        _title(console, "And there is more: search by text, vector and place")
        _search(console, lake)
        _title(console, "Clustered tables: rows in key order, in partitions that split as they grow")
        with il.connect(folder, automatic=False) as quiet:  # so that jobs run only when they are called
            _clustered(console, quiet)
        _title(console, "New rows in memory with a redo log: a checkpoint, a kill, and what survives it")
        in_memory(console, folder.with_name(f"{folder.name}-memory"))


def _one_row(console: Console, orders: il.Table) -> None:
    times = [_timed(lambda n=n: orders.insert(_order(n)))[0] for n in range(500)]  # type: ignore[misc]
    median = sorted(times)[len(times) // 2]
    console.print(f"500 inserts, each a durable commit of its own: [bold]{median * 1e6:,.0f} µs[/bold] each (median)")


def _bulk(console: Console, orders: il.Table, rows: int) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    step = 50_000
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("loading", total=rows)
        for start in range(0, rows, step):
            size = min(step, rows - start)
            orders.insert(pa.Table.from_pylist([_order(1_000 + start + n) for n in range(size)]))
            progress.advance(bar, size)
    console.print(f"{len(orders):,} rows")


def _find(console: Console, orders: il.Table, rows: int) -> None:
    for key, tier in ((7, "hot"), (1_000 + rows // 2, "in a block")):
        orders.get(key)
        seconds, row = _timed(lambda key=key: orders.get(key))  # type: ignore[misc]
        console.print(f"get({key}), {tier}: [bold]{seconds * 1e6:,.0f} µs[/bold]  {row}", highlight=False)
    seconds, _ = _timed(lambda: orders.create_index("by_total", "total"))
    console.print(f"create_index('by_total', 'total'): {seconds:,.1f} s for {len(orders):,} rows", highlight=False)
    scan = orders.scan("total > 999.5 and city = 'Cairo'", columns=["id", "total"])
    scan.to_arrow()
    seconds, found = _timed(scan.to_pylist)
    console.print(f"scan({scan._where!r}): {seconds * 1e3:,.1f} ms, {counted(len(found), 'row')}", highlight=False)
    _say(console, str(scan.explain()))


def _change(console: Console, lake: il.Lake, orders: il.Table) -> None:
    seconds, result = _timed(
        lambda: orders.update(
            {"total": il.expr("round(total * 0.9, 2)"), "note": "late"}, where="id = $id", params={"id": 1_234}
        )
    )
    console.print(
        f"update by key: {result.updated} row, {seconds * 1e3:,.1f} ms → {orders.get(1_234)}", highlight=False
    )
    given = [{"id": n, "note": "again"} for n in (1_234, 1_235, 20_000_000)]
    seconds, result = _timed(lambda: orders.upsert(given))
    console.print(f"upsert of 3: {result.updated} updated, {result.inserted} inserted, {seconds * 1e3:,.1f} ms")
    with lake.transaction() as tx:
        t = tx.table("sales.orders")
        t.delete("id between 2000 and 2099")
        t.insert(_order(10_000_000))
    assert tx.result is not None
    console.print(f"one transaction: {tx.result.deleted} deleted, {tx.result.inserted} inserted, all or nothing")
    try:
        orders.insert(_order(7))
    except il.DuplicateKeyError as error:
        console.print(f"[yellow]{escape(str(error))}[/yellow]", highlight=False)


def _travel(console: Console, orders: il.Table, before: int) -> None:
    feed = orders.changes(before, columns=["id", "total", "note"])
    names = ["_snapshot_id", "_change_type", "id", "total", "note"]
    _say(console, text_table(names, [[change[name] for name in names] for change in feed.head(4).to_pylist()]))
    console.print(f"… {feed.count():,} changes since snapshot {before}")
    console.print(f"now:             {orders.get(1_234)}", highlight=False)
    console.print(f"at snapshot {before}: {orders.at(before).get(1_234)}", highlight=False)


def _sql(console: Console, lake: il.Lake, orders: il.Table) -> None:
    seconds, _ = _timed(lambda: orders.add_column("currency", pa.string(), default="EUR"))
    console.print(f"add_column('currency'): {seconds * 1e3:,.1f} ms for {len(orders):,} rows")
    text = """select city, currency, count(*) orders, round(avg(total), 2) mean
        from sales.orders where total > $low group by all order by orders desc limit 3"""
    try:
        seconds, result = _timed(lambda: lake.sql(text, params={"low": 100}).to_pylist())
    except il.MissingExtraError as error:
        console.print(f"[yellow]{escape(str(error))}[/yellow]", highlight=False)
        return
    _say(console, text_table(list(result[0]), [list(row.values()) for row in result]))
    console.print(f"the query took {seconds * 1e3:,.0f} ms")


def _search(console: Console, lake: il.Lake) -> None:
    lake.drop_table("sales.reviews", missing_ok=True)
    columns: dict[str, Any] = {"id": "int64", "mail": "string", "lon": "float64", "lat": "float64", "text": "string"}
    reviews = lake.create_table("sales.reviews", columns | {"taste": pa.list_(pa.float32(), 3)}, primary_key="id")
    reviews.insert(pa.Table.from_pylist([_review(n) for n in range(20_000)], reviews.schema))
    seconds, made = _timed(lambda: {kind: _index(console, reviews, kind, on) for kind, on in _INDEXES.items()})
    console.print(f"{sum(made.values())} indexes on {len(reviews):,} rows: {seconds:,.1f} s")
    reviews.insert({**_review(20_000), "mail": "zoe@example.org", "text": "Late, late, late: my parcel!"})
    box, taste = "lon between 10 and 11 and lat between 50 and 51", [1.0, 0.0, 0.5]
    asked: list[tuple[str, str, Callable[[], Any]]] = [
        ("btree", "mail like 'user000%'", lambda: reviews.scan("mail like 'user000%'")),
        ("hash", "text = 'A lovely lamp 75'", lambda: reviews.scan("text = 'A lovely lamp 75'")),
        ("rtree", box, lambda: reviews.scan(box)),
        ("bm25", "late parcel", lambda: reviews.search("by_bm25", "late parcel", k=3)),
        ("hnsw", str(taste), lambda: reviews.search("taste", taste, k=3)),
        ("hybrid", f"late parcel, {taste}", lambda: reviews.search([("text", "late parcel"), ("taste", taste)], k=3)),
    ]
    table = Table("by", "query", "rows", "first result", "ms", box=None, padding=(0, 2, 0, 0))
    for kind, what, ask in asked:
        if made.get(kind, made["hnsw"]):
            ask().to_arrow()
            seconds, rows = _timed(lambda ask=ask: ask().to_pylist())  # type: ignore[misc]
            measure = next((f", {name[1:]} {rows[0][name]:.3g}" for name in rows[0] if name.startswith("_")), "")
            table.add_row(kind, what, f"{len(rows)}", f"{rows[0]['text']!r}{measure}", f"{seconds * 1e3:,.1f}")
    console.print(table)
    _say(console, str(reviews.scan("mail like 'user000%'").explain()))


def _clustered(console: Console, lake: il.Lake) -> None:
    lake.drop_table("sales.events", missing_ok=True)
    events = lake.create_table(
        "sales.events", {"at": "int64", "what": "string"}, primary_key="at", layout="clustered",
        config=il.TableConfig(partition_row_count=25_000),
    )  # fmt: skip
    pipeline = lake.pipeline(runner="threads")
    keys = random.Random(1).sample(range(1_000_000), 125_000)
    for first in range(0, 100_000, 25_000):
        events.insert(pa.table({"at": keys[first : first + 25_000], "what": ["random"] * 25_000}))
    merged = pipeline.merge(events.name)[events.name]
    _say(console, f"100,000 rows with random keys: {merged}")
    for first in range(100_000, 125_000, 5_000):
        events.insert([{"at": key, "what": "later"} for key in keys[first : first + 5_000]])
    dumped = pipeline.dump(events.name)[events.name]
    _say(console, f"25,000 more, hot at first: {dumped}")
    _say(console, str(events.partitions()))
    _say(console, str(events.stats().clustered))
    scan = events.scan("at between 500000 and 500200", order_by="at")
    scan.to_arrow()
    seconds, rows = _timed(scan.to_pylist)
    console.print(f"{len(rows)} rows from a range of keys, in key order: {seconds * 1e3:,.1f} ms", highlight=False)
    _say(console, str(scan.explain()))


def _index(console: Console, table: il.Table, kind: str, columns: list[str]) -> bool:
    try:
        table.create_index(f"by_{kind}", columns, kind=kind)
    except il.MissingExtraError as error:
        console.print(f"[yellow]{escape(str(error))}[/yellow]", highlight=False)
        return False
    return True


def _pipeline(console: Console, lake: il.Lake, orders: il.Table, rows: int) -> None:
    spark = _spark(console, lake)
    pipeline = lake.pipeline(runner="threads") if spark is None else lake.pipeline(spark=spark)
    count = len(orders)
    for name, job in (("dump", pipeline.dump), ("compact", pipeline.compact), ("freeze", pipeline.freeze)):
        seconds, results = _timed(lambda job=job: job(orders.name))  # type: ignore[misc]
        assert len(orders) == count, "a job never changes an answer"
        _say(console, f"{name}: {results[orders.name]}, in {seconds:,.1f} s; still {count:,} rows")
    row_id = orders.scan("id = 7", with_row_id=True).to_pylist()[0]["_indexlake_row_id"]
    _say(console, f"row {row_id} is at {orders.locate(row_id)}")
    if spark is not None:
        _load(console, pipeline, spark, orders, rows)
    for number in range(30_000_000, 30_000_200):
        orders.insert(_order(number))
    console.print("and 200 more rows, one by one")


def _spark(console: Console, lake: il.Lake) -> Any:
    """Return a session, or None if Spark cannot start."""
    try:
        seconds, spark = _timed(lambda: start(lake.storage))
    except (il.MissingExtraError, il.JobError) as error:
        console.print(f"[yellow]{escape(str(error))}[/yellow]", highlight=False)
        return None
    console.print(f"Spark {spark.version} on {spark.sparkContext.master}, started in {seconds:,.1f} s")
    return spark


def _load(console: Console, pipeline: Pipeline, spark: Any, orders: il.Table, rows: int) -> None:
    frame = spark.range(5_000_000, 5_000_000 + rows).selectExpr(
        "id", "element_at(array('Amsterdam', 'Cairo', 'Dakar'), cast(id % 3 as int) + 1) city", "id % 1000 / 1.0 total"
    )
    seconds, result = _timed(lambda: pipeline.load(frame, orders.name))
    console.print(f"load of a DataFrame: {result.inserted:,} rows in one commit, in {seconds:,.1f} s")
    (again,) = orders.to_spark(spark).groupBy().count().collect()
    console.print(f"counted by Spark: {again[0]:,} rows")


def _order(number: int) -> dict[str, Any]:
    total = number * 7_919 % 100_000 / 100
    return {"id": number, "city": _CITIES[number % len(_CITIES)], "total": total, "note": None}


def _review(number: int) -> dict[str, Any]:
    pick = random.Random(number)
    said = ("A lovely lamp", "The parcel came late", "Wrong colour", "Broken on arrival", "Late, but fine")[number % 5]
    return {
        "id": number, "mail": f"user{pick.randrange(10**6):06}@example.org", "lon": pick.uniform(-10, 30),
        "lat": pick.uniform(35, 60), "text": f"{said} {number}", "taste": [pick.random() for _ in range(3)],
    }  # fmt: skip


def _timed(function: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def _title(console: Console, text: str) -> None:
    console.print(f"\n[bold cyan]{escape(text)}[/bold cyan]", highlight=False)


def _say(console: Console, text: str) -> None:
    """Print text unchanged: the terminal breaks long lines, between any two characters."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)
