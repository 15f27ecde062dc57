"""Dictionary columns whose index type cannot number the values of a whole block: they are read in smaller batches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import indexlake as il

SMALL = pa.dictionary(pa.int8(), pa.string())
SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("d", SMALL), pa.field("l", pa.list_(SMALL))])


def row(n: int) -> dict[str, Any]:
    return {"id": n, "d": None if n % 50 == 0 else f"d{n}", "l": [f"l{n}", None]}


def table_of(numbers: range) -> pa.Table:
    """In batches that are small enough each."""
    parts = [numbers[n : n + 100] for n in range(0, len(numbers), 100)]
    return pa.Table.from_batches([pa.RecordBatch.from_pylist([row(n) for n in part], SCHEMA) for part in parts])


@pytest.fixture(params=["vortex", "parquet", "ipc"])
def table(request: pytest.FixtureRequest, new_address: Any) -> Any:
    """400 values in a dumped block, 400 in one written directly, 200 hot."""
    with new_address("sqlite").connect(automatic=False) as lake:
        config = il.TableConfig(dump_format=request.param, direct_write_row_count=401, block_row_count=10_000)
        t = lake.create_table("t", SCHEMA, "id", config=config)
        t.insert([row(n) for n in range(400)])
        lake.pipeline().dump("t")
        t.insert(table_of(range(400, 801)))
        t.insert([row(n) for n in range(801, 1000)])
        yield t


EVERYTHING = [row(n) for n in range(1000)]


def content(rows: pa.Table) -> list[dict[str, Any]]:
    assert rows.schema.field("d").type == SMALL
    return sorted(rows.to_pylist(), key=lambda r: r["id"])


def test_scans_predicates_and_sorts_give_every_value(table: il.Table) -> None:
    assert content(table.scan().to_arrow()) == EVERYTHING
    assert content(table.scan("d is not null and d <> 'd7'").to_arrow()) == [
        r for r in EVERYTHING if r["d"] not in (None, "d7")
    ]
    assert table.scan("d > 'd5'").count() == sum(r["d"] is not None and r["d"] > "d5" for r in EVERYTHING)
    found = table.scan(order_by=[("d", "desc"), "id"], columns=["id", "d"]).to_pylist()
    names = [r["d"] for r in found if r["d"] is not None]
    assert names == sorted(names, reverse=True)
    assert [r["id"] for r in found[-20:]] == list(range(0, 1000, 50))
    assert table.scan(order_by="d", limit=500).to_arrow().num_rows == 500


def test_rows_are_found_by_key(table: il.Table) -> None:
    assert [table.get(n) for n in (3, 500, 900)] == [row(3), row(500), row(900)]
    assert content(table.get_many(range(0, 1000, 2))) == EVERYTHING[::2]


def test_changes_and_jobs_keep_every_value(table: il.Table) -> None:
    lake = table._lake
    table.update({"d": il.expr("d || 'x'")}, "id % 3 = 0 and id < 900")
    table.delete("id % 10 = 1")
    wanted = [
        {**r, "d": f"{r['d']}x" if r["d"] and r["id"] % 3 == 0 and r["id"] < 900 else r["d"]}
        for r in EVERYTHING
        if r["id"] % 10 != 1
    ]
    assert content(table.scan().to_arrow()) == wanted
    changes = table.changes(0)
    seen = changes.to_pylist()
    assert len(seen) == changes.count()
    for job in (lake.pipeline().dump, lake.pipeline().compact, lake.pipeline().freeze):
        job("t")
        assert content(table.scan().to_arrow()) == wanted
        assert changes.to_pylist() == seen
