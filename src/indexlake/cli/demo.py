"""``indexlake demo``: a tour in a few scenes, on real data in a real lake."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import indexlake as il
from indexlake.cli.demo_memory import scene as in_memory
from indexlake.cli.spark import start
from indexlake.pipeline.pipeline import Pipeline

_INDEXES = {"btree": ["mail"], "hash": ["text"], "rtree": ["lon", "lat"], "bm25": ["text"], "hnsw": ["taste"]}
_CITIES = ("Amsterdam", "Bogotá", "Cairo", "Dakar", "Edinburgh", "Fukuoka")


def run(console: Console, folder: Path | None, rows: int) -> None:
    if folder is not None:
        _scenes(console, folder, rows)
        return
    with tempfile.TemporaryDirectory(prefix="indexlake-demo-") as temporary:
        _scenes(console, Path(temporary) / "shop", rows)


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
        _title(console, "2  Many rows go straight to columnar blocks")
        _bulk(console, orders, rows)
        _title(console, "3  Found by key, in every tier")
        _find(console, orders, rows)
        _title(console, "4  Updated where they lie; upserts and transactions, all or nothing")
        before = lake.snapshot_id
        _change(console, lake, orders)
        _title(console, "5  What changed, commit by commit; and every past snapshot stays readable")
        _travel(console, orders, before)
        _title(console, "6  A new column without rewriting a file; SQL over hot rows and blocks alike")
        _sql(console, lake, orders)
        _title(console, "7  Every kind of index finds every row, from the moment its commit returns")
        _search(console, lake)
        _title(console, "8  A clustered table: rows in the order of their key, in partitions that split as they grow")
        with il.connect(folder, automatic=False) as quiet:  # so that jobs run when they are called
            _clustered(console, quiet)
        _title(console, "9  The newest rows in memory: commits to a redo log, a checkpoint, a kill and what is left")
        in_memory(console, folder.with_name(f"{folder.name}-memory"))
        _title(console, "10  The pipeline: Spark loads, dumps, compacts and freezes; answers stay the same")
        _pipeline(console, lake, orders, rows)
        _title(console, "Where the rows live")
        console.print(str(orders.stats()), highlight=False)


def _one_row(console: Console, orders: il.Table) -> None:
    times = [_timed(lambda n=n: orders.insert(_order(n)))[0] for n in range(500)]  # type: ignore[misc]
    median = sorted(times)[len(times) // 2]
    console.print(f"500 inserts, each its own durable commit: [bold]{median * 1e6:,.0f} µs[/bold] each (median)")


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
    scan = orders.scan("city = 'Cairo' and total > 990", order_by=[("total", "desc")], limit=3)
    seconds, found = _timed(scan.to_pylist)
    console.print(f"best of Cairo, {seconds * 1e3:,.1f} ms: {[r['total'] for r in found]}", highlight=False)


def _change(console: Console, lake: il.Lake, orders: il.Table) -> None:
    seconds, result = _timed(
        lambda: orders.update({"total": il.expr("total * 0.9"), "note": "late"}, where="id = $id", params={"id": 1_234})
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
    feed = orders.changes(before)
    for change in feed.to_pylist()[:4]:
        row = {name: change[name] for name in ("_snapshot_id", "_change_type", "id", "total", "note")}
        console.print(str(row), highlight=False)
    console.print(f"… {feed.count():,} changes since snapshot {before}")
    console.print(f"now:         {orders.get(1_234)}", highlight=False)
    console.print(f"snapshot {before}: {orders.at(before).get(1_234)}", highlight=False)


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
    for row in result:
        console.print(str(row), highlight=False)
    console.print(f"{seconds * 1e3:,.0f} ms")


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
    table = Table("by", "looked for", "rows", "the first", "ms", box=None, padding=(0, 2, 0, 0))
    for kind, what, ask in asked:
        if made.get(kind, made["hnsw"]):
            ask().to_arrow()
            seconds, rows = _timed(lambda ask=ask: ask().to_pylist())  # type: ignore[misc]
            measure = next((f", {name[1:]} {rows[0][name]:.3g}" for name in rows[0] if name.startswith("_")), "")
            table.add_row(kind, what, f"{len(rows)}", f"{rows[0]['text']!r}{measure}", f"{seconds * 1e3:,.1f}")
    console.print(table)
    console.print(str(reviews.scan("mail like 'user000%'").explain()), highlight=False)


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
    console.print(f"100,000 rows with random keys: {merged}", highlight=False)
    for first in range(100_000, 125_000, 5_000):
        events.insert([{"at": key, "what": "later"} for key in keys[first : first + 5_000]])
    dumped = pipeline.dump(events.name)[events.name]
    console.print(f"25,000 more, hot at first: {dumped}", highlight=False)
    console.print(str(events.partitions()), highlight=False)
    console.print(str(events.stats().clustered), highlight=False)
    scan = events.scan("at between 500000 and 500200", order_by="at")
    scan.to_arrow()
    seconds, rows = _timed(scan.to_pylist)
    console.print(f"{len(rows)} rows of a range of keys, in their order: {seconds * 1e3:,.1f} ms", highlight=False)
    console.print(str(scan.explain()), highlight=False)


def _index(console: Console, table: il.Table, kind: str, columns: list[str]) -> bool:
    try:
        table.create_index(f"by_{kind}", columns, kind=kind)
    except il.MissingExtraError as error:
        console.print(f"[yellow]{escape(str(error))}[/yellow]", highlight=False)
        return False
    return True


def _pipeline(console: Console, lake: il.Lake, orders: il.Table, rows: int) -> None:
    spark = _spark(console, lake)
    pipeline = lake.pipeline(runner="threads") if spark is None else lake.pipeline(spark=spark, progress=True)
    count = len(orders)
    for name, job in (("dump", pipeline.dump), ("compact", pipeline.compact), ("freeze", pipeline.freeze)):
        seconds, results = _timed(lambda job=job: job(orders.name))  # type: ignore[misc]
        assert len(orders) == count, "a job never changes an answer"
        console.print(f"{name}: {results[orders.name]}, {seconds:,.1f} s; still {count:,} rows", highlight=False)
    row_id = orders.scan("id = 7", with_row_id=True).to_pylist()[0]["_indexlake_row_id"]
    console.print(f"row {row_id} lies at {orders.locate(row_id)}", highlight=False)
    if spark is not None:
        _load(console, pipeline, spark, orders, rows)
    for number in range(30_000_000, 30_000_200):
        orders.insert(_order(number))
    console.print("and 200 rows more, one by one")


def _spark(console: Console, lake: il.Lake) -> Any:
    """A session, or None where Spark cannot start."""
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
    console.print(f"load of a DataFrame: {result.inserted:,} rows in one commit, {seconds:,.1f} s")
    (again,) = orders.to_spark(spark).groupBy().count().collect()
    console.print(f"counted by Spark: {again[0]:,} rows")


def _order(number: int) -> dict[str, Any]:
    total = round(random.Random(number).random() * 1000, 2)
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
    console.print(Panel(text, style="cyan", expand=False))
