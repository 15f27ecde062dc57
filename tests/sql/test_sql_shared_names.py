"""Tables of one name in several namespaces, and other things of that name.  DuckDB judges: the same rows, or no answer
from either.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import indexlake as il
from tests.sql.answers import answer

SETUP = (
    "create schema old",
    "create table orders (id int, total int, mine int)",
    "create table old.orders (id int, total int, gone int)",
    "create table plain (id int, total int)",
    "insert into orders values (1, 10, 1), (2, 20, 2), (3, 30, 3)",
    "insert into old.orders values (1, 100, 4), (7, 700, 5)",
    "insert into plain values (1, 5), (3, 700)",
)
NAMED = ("id", "orders.id", "old.orders.id", "main.orders.id")
SIDES = ("orders", "main.orders", "old.orders", "plain as orders")
FORMS = (
    "select {a} from {x}, {y}",
    "select count(*) from {x}, {y} where {a} = 1",
    "select count(*) from {x} join {y} on {a} = 1 where {b} > 0",
    "select {a} from {x} where {b} in (select id from {y})",
    "select {a} from {x} where id in (select {b} from {y})",
    "select id from {x} where exists (select 1 from {y} where {a} = 7)",
    "select id from {x} where not exists (select 1 from {y} where {a} = {b})",
    "select id, (select max({a}) from {y}) from {x}",
    "select id from {x} where id = (select min({a}) from {y} where {b} > 0)",
    "with orders as (select id + 1 as id from {x}) select {a} from {y} where {b} in (select id from plain)",
)
TEXTS = [
    form.format(x=x, y=y, a=a, b=b)
    for form in FORMS
    for (x, y), (a, b) in itertools.product(
        itertools.permutations(SIDES, 2),
        itertools.product(NAMED, NAMED) if "{b}" in form else zip(NAMED, NAMED, strict=True),
    )
]
WRITTEN = (
    "select * from orders, old.orders",
    "select orders.* from orders, old.orders",
    "select old.orders.* from orders, old.orders",
    "select orders.mine, orders.gone from orders, old.orders",
    "select orders.total from orders, old.orders",
    "select a.id, orders.id from orders a, old.orders",
    "select old.orders from orders, old.orders",
    "select orders from old.orders where orders.id in (select orders.id from main.orders)",
    "select id from orders where exists (select 1 from old.orders where orders.total = 100)",
    "select id from orders where exists (select 1 from old.orders where orders.mine = 2)",
    "select id from orders where not exists (select 1 from old.orders where orders.id = 7)",
    "select id, (select max(orders.total) from old.orders) from orders",
    "select main.orders.id, x.id from orders left join (select orders.id from old.orders) x on x.id = main.orders.id",
    "select * from orders join old.orders using (id)",
    "select * from orders natural join old.orders",
    "select id from (select orders.id from old.orders union all select orders.id from orders)",
    "with o as (select orders.id from old.orders) select orders.id from orders where orders.id in (from o)",
    "with orders as (select * from old.orders) select orders.id from orders where orders.total = 100",
    "with orders as (select * from old.orders) select orders.id from main.orders where main.orders.total = 10",
    "select id from orders where id in (select id from plain as orders where main.orders.total > orders.total)",
    "select main.plain.id from plain",
    "select main.plain.id, main.orders.id from plain join orders on main.plain.id = main.orders.id",
    "select main.plain.* from plain where main.plain.total > 5 order by main.plain.id",
    "select main.plain.id from plain as p",
    "select old.plain.id from plain",
    "select MAIN.Plain.ID from Plain",
)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[il.Lake, duckdb.DuckDBPyConnection]]:
    with il.connect(str(tmp_path_factory.mktemp("shared") / "lake"), automatic=False) as lake:
        plain = duckdb.connect()
        for statement in SETUP:
            lake.sql(statement)
            plain.execute(statement)
        lake.pipeline().dump("orders")  # the other tables are hot
        yield lake, plain


@pytest.mark.parametrize("text", WRITTEN)
def test_a_name_means_what_it_means_in_duckdb(both: tuple[il.Lake, duckdb.DuckDBPyConnection], text: str) -> None:
    lake, plain = both
    assert answer(lake.sql, text) == answer(plain.execute, text)


def test_generated_queries_answer_as_in_duckdb(both: tuple[il.Lake, duckdb.DuckDBPyConnection]) -> None:
    lake, plain = both
    found = 0
    for text in TEXTS[::11]:
        expected = answer(plain.execute, text)
        assert answer(lake.sql, text) == expected, text
        found += expected is not None
    assert found > 40


@pytest.mark.long
def test_all_generated_queries_answer_as_in_duckdb(both: tuple[il.Lake, duckdb.DuckDBPyConnection]) -> None:
    lake, plain = both
    for text in TEXTS:
        assert answer(lake.sql, text) == answer(plain.execute, text), text


def test_an_ambiguous_name_is_an_error_that_says_so(both: tuple[il.Lake, duckdb.DuckDBPyConnection]) -> None:
    with pytest.raises(
        il.ExpressionError, match=r'Ambiguous reference to table "orders" \(use: main.orders or old.ord'
    ):
        both[0].sql("select count(*) from orders, old.orders where orders.id = 1").fetchall()


def test_result_columns_are_named_as_in_duckdb(both: tuple[il.Lake, duckdb.DuckDBPyConnection]) -> None:
    lake, plain = both
    text = "select (select max(orders.total) from old.orders), old.orders.id from orders, old.orders"
    assert lake.sql(text).to_arrow().column_names == [d[0].replace('"', "") for d in plain.execute(text).description]


def test_nothing_stays_in_duckdb_of_queries_that_end_fail_or_are_left(
    both: tuple[il.Lake, duckdb.DuckDBPyConnection],
) -> None:
    lake, _ = both
    lake.sql("select count(*) from orders, old.orders").fetchall()
    answer(lake.sql, "select orders.id from orders, old.orders")
    batches = lake.sql("select a.i from range(300_000) a(i), orders, old.orders").to_batches()
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert [
        name for (name,) in lake.sql("select database_name from duckdb_databases()").fetchall() if "__il" in name
    ] == []


CHANGES = (
    "delete from old.orders where id in (select orders.id from orders where orders.id > 2)",
    "delete from orders where id in (select orders.id from old.orders where orders.id > 5)",
    "delete from orders where exists (select 1 from old.orders where main.orders.id = old.orders.id + 1)",
    "delete from old.orders using orders where main.orders.id = old.orders.id and old.orders.total > 500",
    "update orders set total = (select max(orders.total) from old.orders) where main.orders.id = 1",
    "update old.orders set total = main.orders.total + 1 from orders where old.orders.id = main.orders.id",
    "update orders set mine = 9 from old.orders where main.orders.id = old.orders.id",
    "merge into main.plain using main.orders on main.plain.id = main.orders.id "
    "when matched then update set total = main.orders.total",
    "merge into orders using old.orders on main.orders.id = old.orders.id "
    "when matched then update set total = old.orders.total "
    "when not matched then insert (id, total) values (old.orders.id, old.orders.total)",
    "merge into orders using old.orders on orders.id = old.orders.id when matched then delete",
    "merge into orders as t using old.orders on t.id = orders.id when matched then update set mine = orders.gone",
)


@pytest.mark.parametrize("change", CHANGES)
def test_names_in_changes(tmp_path: Path, change: str) -> None:
    with il.connect(str(tmp_path / "lake"), automatic=False) as lake:
        plain = duckdb.connect()
        for statement in SETUP:
            lake.sql(statement)
            plain.execute(statement)
        failed = [_failed(lake.sql, change), _failed(plain.execute, change)]
        assert failed[0] == failed[1]
        for table in ("orders", "old.orders", "plain"):
            assert answer(lake.sql, f"select * from {table}") == answer(plain.execute, f"select * from {table}")


def _failed(run: object, change: str) -> bool:
    try:
        run(change)  # type: ignore[operator]
    except (duckdb.Error, il.IndexLakeError):
        return True
    return False
