"""``lake.sql(…, engine="spark")`` gives what DuckDB gives, at one snapshot, over scans that read what is asked for."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il

ORDERS = pa.schema(
    [
        pa.field("id", pa.int64()), pa.field("customer", pa.int32()), pa.field("total", pa.float64()),
        pa.field("city", pa.string()), pa.field("placed", pa.timestamp("us", "UTC")),
        pa.field("price", pa.decimal128(9, 2)),
    ]
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def orders_and_customers(module_lake: il.Lake) -> None:
    """Rows in every tier, some deleted."""
    orders = module_lake.create_table("sales.orders", ORDERS, primary_key="id")
    customers = module_lake.create_table("customers", pa.schema({"id": pa.int32(), "Name": pa.string()}))
    customers.insert([{"id": n, "Name": f"c{n}"} for n in range(9)])
    for first in (0, 100, 200):
        orders.insert([row(n) for n in range(first, first + 100)])
        if first < 200:
            module_lake.pipeline(runner="threads").dump("sales.orders")
        if first == 0:
            module_lake.pipeline(runner="threads").freeze("sales.orders")
    orders.delete("id % 10 = 3")


def row(n: int) -> dict[str, Any]:
    return {
        "id": n,
        "customer": n % 11 if n % 7 else None,
        "total": n * 1.5,
        "city": ["Bern", "Ulm", None, "Łódź"][n % 4],
        "placed": datetime(2024, 1, 1 + n % 28, n % 24, tzinfo=UTC),
        "price": Decimal(n) / 4,
    }


QUERIES = [
    ("select count(*) c from sales.orders", None),
    ("select * from sales.orders where id between 95 and 105 order by id", None),
    ("select city, count(*) n, sum(total) s from sales.orders group by city order by s", None),
    ("select id from sales.orders where city = $city and total > $low order by id", {"city": "Ulm", "low": 200}),
    ("select id from sales.orders where id in (?, ?) order by id", [4, 207]),
    (
        'select c."Name" as name, max(o.price) m from sales.orders o join customers c on c.id = o.customer '
        "group by 1 order by 1",
        None,
    ),
    (
        "with big as (select * from sales.orders where total > 300) select a.id, b.id other from big a join big b "
        "on a.id = b.id + 1 order by a.id",
        None,
    ),
    (
        "select id, row_number() over (partition by city order by id desc) r from sales.orders order by id limit 20",
        None,
    ),
    (
        "select o.city from sales.orders o where exists (select 1 from customers c where c.id = o.id) order by o.id",
        None,
    ),
    ("select id, placed from sales.orders where placed >= timestamptz '2024-01-20 00:00:00+00' order by id", None),
    ("select coalesce(city, 'none') c, id from sales.orders where customer is null order by id", None),
    ("select 1 as one, 'x' as x", None),
    ("select id from sales.orders where false", None),
]


@pytest.mark.parametrize(("text", "params"), QUERIES)
def test_spark_answers_as_duckdb_does(module_lake: il.Lake, spark: Any, text: str, params: Any) -> None:
    wanted = module_lake.sql(text, params)
    found = module_lake.sql(text, params, engine="spark")
    assert found.columns == wanted.columns
    assert found.fetchall() == wanted.fetchall()
    assert found.snapshot_id == wanted.snapshot_id
    assert [tuple(r) for r in found.to_spark().collect()][:1] == [
        tuple(v.replace(tzinfo=None) if isinstance(v, datetime) else v for v in r) for r in wanted.fetchall()[:1]
    ]


def test_the_result_can_be_taken_again_and_by_other_libraries(module_lake: il.Lake, spark: Any) -> None:
    found = module_lake.sql("select id, city from sales.orders order by id", engine="spark")
    assert found.to_arrow() == found.to_arrow()
    assert pa.table(found).num_rows == found.count() == 270
    assert len(found.to_pandas()) == 270
    assert "Bern" in repr(found)


def test_scans_read_what_the_query_asks_for(module_lake: il.Lake, spark: Any) -> None:
    plan = str(module_lake.sql("explain select sum(total) from sales.orders where id < 50", engine="spark"))
    assert "columns: id, total" in plan
    assert "where: id < 50" in plan
    assert "blocks: 1 of 3 read" in plan
    assert "== Physical Plan ==" in plan


def test_the_past_and_the_snapshot_stay(module_lake: il.Lake, spark: Any) -> None:
    orders = module_lake.table("sales.orders")
    before = module_lake.snapshot_id
    result = module_lake.sql("select count(*) from sales.orders", engine="spark")
    orders.insert(row(1_000))
    try:
        assert result.scalar() == 270
        assert module_lake.sql("select count(*) from sales.orders", engine="spark").scalar() == 271
        past = f"select count(*) from sales.orders at (version => {before})"
        assert module_lake.sql(past, engine="spark").scalar() == 270
        assert module_lake.at(before).sql("select count(*) from sales.orders", engine="spark").scalar() == 270
    finally:
        orders.delete("id = 1000")


def test_no_view_stays_behind(module_lake: il.Lake, spark: Any) -> None:
    module_lake.sql("select 1 from sales.orders", engine="spark")
    assert not [t for t in spark.catalog.listTables() if t.name.startswith("__il_")]


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("select nope from sales.orders", il.ExpressionError, "nope"),
        ("select * from nowhere", il.NotFoundError, "nowhere"),
        ("delete from sales.orders", il.ExpressionError, "leave engine='spark' out"),
        ("select cast(city as int) from sales.orders", il.JobError, "CAST_INVALID_INPUT"),
        ("selec 1", il.ExpressionError, "selec"),
    ],
)
def test_what_is_wrong_is_said(
    module_lake: il.Lake, spark: Any, text: str, error: type[Exception], message: str
) -> None:
    before = module_lake.snapshot_id
    with pytest.raises(error, match=message):
        module_lake.sql(text, engine="spark").fetchall()
    assert module_lake.snapshot_id == before


def test_a_transaction_is_refused(module_lake: il.Lake, spark: Any) -> None:
    with module_lake.transaction() as tx, pytest.raises(il.OwnershipError, match="engine='spark'"):
        tx.sql("select 1", engine="spark")


def test_tables_of_one_name_are_told_apart(module_lake: il.Lake) -> None:
    module_lake.sql("create schema if not exists past")
    module_lake.sql("create table shared (id int, total int)")
    module_lake.sql("create table past.shared (id int, total int)")
    module_lake.sql("insert into shared values (1, 10), (2, 20)")
    module_lake.sql("insert into past.shared values (1, 100), (7, 700)")
    for text in (
        "select id from shared where id in (select shared.id from past.shared)",
        "select id from shared where exists (select 1 from past.shared where shared.total = 100) order by id",
        "select past.shared.id a, main.shared.id b from shared, past.shared order by a, b",
        "select main.shared.id from shared where main.shared.total > 10",
    ):
        assert module_lake.sql(text, engine="spark").fetchall() == module_lake.sql(text).fetchall(), text
    with pytest.raises(il.ExpressionError, match="ambiguous"):
        module_lake.sql("select shared.id from shared, past.shared", engine="spark").fetchall()
