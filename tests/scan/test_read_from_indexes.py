"""What an index spares the blocks: included columns, counts, and the first rows in its order; explain() says so."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import indexlake as il

ROWS = 1_000


@pytest.fixture
def table(lake: il.Lake) -> il.Table:
    config = il.TableConfig(direct_write_row_count=10, block_row_count=300)
    columns = {"id": "int64", "city": "string", "total": "float64", "note": "string"}
    t = lake.create_table("t", columns, primary_key="id", config=config)
    made = [{"id": n, "city": f"c{n % 50}", "total": float(n * 7 % ROWS), "note": "x"} for n in range(ROWS)]
    t.insert(pa.Table.from_pylist(made))
    t.create_index("by_city", "city", include=["total"])
    t.create_index("by_total", "total")
    return t


def wanted(city: str) -> list[float]:
    return [float(n * 7 % ROWS) for n in range(ROWS) if f"c{n % 50}" == city]


def without_blocks(lake: il.Lake) -> None:
    lake._files.clear()
    for path in Path(lake.storage.root).rglob("data/*"):
        path.rename(path.with_suffix(".gone"))


def test_a_look_up_of_included_columns_opens_no_block_and_says_so(lake: il.Lake, table: il.Table) -> None:
    scan = table.scan("city = 'c3' and total >= 0", columns=["city", "total"])
    told = scan.explain()
    assert (told.blocks_total, told.blocks_read, told.blocks_covered, told.rows_in_blocks) == (4, 0, 4, 20)
    assert "blocks: 0 of 4 read, 4 covered, 20 candidate rows, found by by_city in 1 segment" in str(told)
    assert all(task.endswith("rows, covered by an index") for task in told.tasks)
    for other in (
        table.scan("city = 'c3'"),
        table.scan("city = 'c3'", columns=["city"], with_row_id=True),
        table.scan("city = 'c3' and note = 'x'", columns=["city"]),
        table.scan("city = 'c3'", columns=["city"], order_by="note"),
    ):
        assert (other.explain().blocks_read, other.explain().blocks_covered) == (4, 0)
    without_blocks(lake)
    assert sorted(scan.to_arrow()["total"].to_pylist()) == sorted(wanted("c3"))
    assert table.count("city = 'c3'") == 20
    assert table.count("city = 'c3' and total < 500") == sum(total < 500 for total in wanted("c3"))


def test_a_condition_on_the_row_id_is_not_in_an_index(table: il.Table) -> None:
    first = min(table.scan("city = 'c3'", with_row_id=True).to_arrow()["_indexlake_row_id"].to_pylist())
    where = f"city = 'c3' and _indexlake_row_id > {first}"
    assert sorted(table.scan(where, columns=["total"]).to_arrow()["total"].to_pylist()) == sorted(wanted("c3")[1:])
    assert table.count(where) == 19


def test_the_first_rows_in_the_order_of_an_index_are_read_and_no_more(table: il.Table) -> None:
    scan = table.scan(order_by="total", limit=5, columns=["total"])
    assert (scan.explain().found_by, scan.explain().rows_in_blocks) == ("by_total", 5)
    assert scan.to_arrow()["total"].to_pylist() == [0, 1, 2, 3, 4]
    table.delete("total in (0, 2, 4, 6)")
    scan = table.scan(order_by="total", limit=5, offset=1, columns=["total"])
    assert scan.explain().rows_in_blocks == 6
    assert scan.to_arrow()["total"].to_pylist() == [3, 5, 7, 8, 9]
    scan = table.scan("total > 500 and id % 2 = 1", order_by=[("total", "desc")], limit=3, columns=["total"])
    assert scan.explain().rows_in_blocks == 3
    assert scan.to_arrow()["total"].to_pylist() == [999, 997, 995]
