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
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import indexlake as il

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
        _title(console, "4  Updated where they lie, in one transaction over several rows")
        before = lake.snapshot_id
        _change(console, lake, orders)
        _title(console, "5  Hot rows move to blocks; answers stay the same")
        _dump(console, lake, orders)
        _title(console, "6  Every past snapshot stays readable")
        _travel(console, orders, before)
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
    with lake.transaction() as tx:
        t = tx.table("sales.orders")
        t.delete("id between 2000 and 2099")
        t.insert(_order(10_000_000))
    assert tx.result is not None
    console.print(f"one transaction: {tx.result.deleted} deleted, {tx.result.inserted} inserted, all or nothing")
    try:
        orders.insert(_order(7))
    except il.DuplicateKeyError as error:
        console.print(f"[yellow]{error}[/yellow]", highlight=False)


def _dump(console: Console, lake: il.Lake, orders: il.Table) -> None:
    count = len(orders)
    seconds, results = _timed(lambda: lake.pipeline().dump(orders.name))
    result = results[orders.name]
    assert len(orders) == count
    console.print(f"{result.rows:,} hot rows in {result.blocks} blocks, {seconds * 1e3:,.0f} ms; still {count:,} rows")
    row_id = orders.scan("id = 7", with_row_id=True).to_pylist()[0]["_indexlake_row_id"]
    console.print(f"row {row_id} lies at {orders.locate(row_id)}", highlight=False)


def _travel(console: Console, orders: il.Table, before: int) -> None:
    console.print(f"now:         {orders.get(1_234)}", highlight=False)
    console.print(f"snapshot {before}: {orders.at(before).get(1_234)}", highlight=False)


def _order(number: int) -> dict[str, Any]:
    total = round(random.Random(number).random() * 1000, 2)
    return {"id": number, "city": _CITIES[number % len(_CITIES)], "total": total, "note": None}


def _timed(function: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def _title(console: Console, text: str) -> None:
    console.print(Panel(text, style="cyan", expand=False))
