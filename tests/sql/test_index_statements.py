"""Create, drop and show indexes in SQL: what is understood, what is refused, and with which words."""

from __future__ import annotations

from typing import Any

import pytest

import indexlake as il
from indexlake.errors import (
    AlreadyExistsError,
    DuplicateKeyError,
    ExpressionError,
    NotFoundError,
    OwnershipError,
    SchemaError,
)
from indexlake.sql.parse import statement as st
from indexlake.sql.parse.script import parse


@pytest.fixture
def orders(lake: il.Lake) -> il.Lake:
    lake.sql("""
        create schema sales;
        create table sales.orders (id bigint primary key, customer varchar, total double, note varchar);
        insert into sales.orders
            select range, 'c' || range % 10, range / 2, 'note ' || range from range(100);
        create table plain (id bigint, customer varchar)
    """)
    lake.pipeline(runner="threads").dump("sales.orders")
    lake.sql("insert into sales.orders values (1000, 'c3', 1, 'hot')")
    return lake


def shown(lake: il.Lake, text: str = "show indexes", **options: Any) -> list[dict[str, Any]]:
    return lake.sql(text, **options).to_pylist()


# ---------------------------------------------------------------- what is understood


def test_every_part_of_create_index_is_taken_apart() -> None:
    text = """create unique index if not exists "By customer" on sales.orders using HASH (customer, "The total")
              include (note) with (Fold = 16, words = ['a', 'b'])"""
    (found,) = parse(text).statements
    assert isinstance(found, st.CreateIndex)
    assert (found.name, found.table.namespace, found.table.name) == ("By customer", "sales", "orders")
    assert (found.if_not_exists, found.unique, found.kind) == (True, True, "hash")
    assert (found.columns, found.include) == (("customer", "The total"), ("note",))
    assert [(name, value.text) for name, value in found.options] == [("Fold", "16"), ("words", "['a', 'b']")]


def test_a_plain_index_is_a_btree() -> None:
    (found,) = parse("create index on_total on orders (total)").statements
    assert isinstance(found, st.CreateIndex)
    assert (found.kind, found.unique, found.if_not_exists, found.include, found.options) == (
        "btree", False, False, (), (),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("drop index i", (None, None, "i")),
        ("drop index t.i", (None, "t", "i")),
        ('drop index s."my table".i', ("s", "my table", "i")),
        ("drop index i on t", (None, "t", "i")),
        ("drop index if exists i on s.t", ("s", "t", "i")),
    ],
)
def test_drop_index_names_its_table_in_either_way(text: str, names: tuple[str | None, ...]) -> None:
    (found,) = parse(text).statements
    assert isinstance(found, st.DropIndex)
    table = found.table
    assert (table and table.namespace, table and table.name, found.name) == names
    assert found.if_exists == ("if exists" in text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("create index i on t (lower(x))", "over columns, not expressions: add a column that holds the value"),
        ("create index i on t ((x + 1))", "over columns, not expressions"),
        ("create index i on t (x + 1)", "over columns, not expressions"),
        ("create index i on t ('x')", "over columns, not expressions"),
        ("create index i on t (x collate nocase)", "an index is over plain columns"),
        ("create or replace index i on t (x)", "OR REPLACE INDEX is not supported: drop it first"),
        ("create or replace unique index i on t (x)", "drop it first"),
        ("create index i on t (x) where x > 3", "over some of the rows is not supported: leave WHERE out"),
        ("create index on t (x)", "Give the index a name: CREATE INDEX name ON table"),
        ("create index s.i on t (x)", "name it without a dot"),
        ("create index i on t (x) using hash", "The kind comes before the columns"),
        ("create index i on t ()", "Expected a column here"),
        ("create index i on t", "Expected '(' here"),
        ("create index i on t (x) with (m 3)", "Expected '=' here"),
        ("create unique table t (x int)", "Expected INDEX here"),
        ("drop index a.b.c.d", "Write DROP INDEX name ON table, or DROP INDEX table.name"),
        ("drop index t.i on t", "Write DROP INDEX name ON table, or DROP INDEX table.name"),
        ("drop index", "Expected the name of an index here"),
        ("show indexes of t", "Unexpected text here"),
        ("show index from t", "show indexes [from t]"),
    ],
)
def test_what_is_not_understood_is_refused_with_what_to_do(text: str, problem: str) -> None:
    with pytest.raises(ExpressionError) as refused:
        parse(text)
    assert problem in str(refused.value)
    assert "line 1: " in str(refused.value)


# ---------------------------------------------------------------- what they do


def test_an_index_is_made_shown_and_dropped(orders: il.Lake) -> None:
    made = orders.sql("create index by_customer on sales.orders (customer) include (total)")
    assert made.operation == "create index"
    (row,) = shown(orders, namespace="sales")
    assert row.pop("size_bytes") > 0
    assert row == {
        "table": "orders", "name": "by_customer", "kind": "btree", "columns": ["customer"], "include": ["total"],
        "unique": False, "state": "ready", "rows_in_segments": 100, "rows_hot": 1, "rows_uncovered": 0,
        "last_error": None,
    }  # fmt: skip
    found = orders.sql("select count(*) from sales.orders where customer = 'c3'").scalar()
    assert found == 11
    assert orders.sql("drop index by_customer on sales.orders").operation == "drop index"
    assert shown(orders, namespace="sales") == []
    assert orders.sql("select count(*) from sales.orders where customer = 'c3'").scalar() == 11


def test_a_query_finds_rows_by_the_index(orders: il.Lake) -> None:
    text = "explain select id from sales.orders where customer = 'c7'"
    orders.sql("insert into sales.orders select range, 'x' || range, 0, '' from range(2000, 22000)")
    orders.pipeline(runner="threads").dump("sales.orders")
    assert "by_customer" not in str(orders.sql(text))
    orders.sql("create index by_customer on sales.orders (customer)")
    assert "by_customer" in str(orders.sql(text))


def test_show_indexes_of_a_table_and_of_a_namespace(orders: il.Lake) -> None:
    orders.sql("create index b on sales.orders (total); create index a on sales.orders (customer, total)")
    orders.sql("create index p on plain (customer)")
    assert [(row["table"], row["name"]) for row in shown(orders)] == [("plain", "p")]
    in_sales = shown(orders, namespace="sales")
    assert [(row["table"], row["name"]) for row in in_sales] == [("orders", "a"), ("orders", "b")]
    assert shown(orders, "show indexes from sales.orders") == in_sales
    everywhere = [(row["table"], row["name"]) for row in shown(orders, "show all indexes")]
    assert sorted(everywhere) == [("main.plain", "p"), ("sales.orders", "a"), ("sales.orders", "b")]
    assert shown(orders, "show indexes in plain") == shown(orders)
    with pytest.raises(NotFoundError, match=r"no table 'main\.nosuch'"):
        orders.sql("show indexes from nosuch")


def test_a_table_without_indexes_shows_the_columns(orders: il.Lake) -> None:
    result = orders.sql("show indexes from plain")
    assert result.to_pylist() == []
    assert result.columns[:4] == ["table", "name", "kind", "columns"]


def test_a_second_index_of_a_name_is_an_error_unless_that_is_accepted(orders: il.Lake) -> None:
    orders.sql("create index by_customer on plain (customer)")
    with pytest.raises(AlreadyExistsError, match="BY_CUSTOMER"):
        orders.sql("create index BY_CUSTOMER on plain (Customer)")
    with pytest.raises(AlreadyExistsError, match="by_customer"):
        orders.sql("create index by_customer on plain (id)")
    orders.sql("create index if not exists By_Customer on plain (id)")
    (row,) = shown(orders)
    assert row["columns"] == ["customer"]


def test_a_unique_index_refuses_duplicates_and_is_gone_again(orders: il.Lake) -> None:
    with pytest.raises(DuplicateKeyError, match="c3"):
        orders.sql("create unique index one on sales.orders (customer)")
    assert shown(orders, namespace="sales") == []
    orders.sql("create unique index one on sales.orders (note)")
    assert [row["unique"] for row in shown(orders, namespace="sales")] == [True]
    with pytest.raises(DuplicateKeyError, match="note 7"):
        orders.sql("insert into sales.orders values (5000, 'new', 0, 'note 7')")


def test_an_index_is_dropped_by_name_alone_where_only_one_table_has_it(orders: il.Lake) -> None:
    orders.sql("create index i on sales.orders (total); create table sales.other (total double)")
    orders.sql("drop index I", namespace="sales")
    assert shown(orders, namespace="sales") == []
    orders.sql("create index i on sales.orders (total); create index i on sales.other (total)")
    with pytest.raises(
        NotFoundError, match=r"Tables 'orders' and 'other' each have an index 'i'.*DROP INDEX i ON orders"
    ):
        orders.sql("drop index i", namespace="sales")
    orders.sql("drop index other.i", namespace="sales")
    orders.sql("drop index sales.orders.i")
    assert shown(orders, namespace="sales") == []


def test_an_index_that_is_not_there(orders: il.Lake) -> None:
    with pytest.raises(NotFoundError, match="No table of namespace 'main' has an index 'nosuch'"):
        orders.sql("drop index nosuch")
    with pytest.raises(NotFoundError, match="nosuch"):
        orders.sql("drop index nosuch on plain")
    with pytest.raises(NotFoundError, match=r"no table 'main\.nosuch'"):
        orders.sql("drop index i on nosuch")
    for text in ("nosuch", "plain.nosuch", "i on nosuch"):
        orders.sql(f"drop index if exists {text}")


@pytest.mark.parametrize(
    ("text", "error", "problem"),
    [
        ("create index i on nosuch (id)", NotFoundError, "no table 'main.nosuch'"),
        ("create index i on plain (nosuch)", SchemaError, "nosuch"),
        ("create index i on plain using nosuch (id)", NotFoundError, "There is no index kind 'nosuch'"),
        ("create index i on plain (id) with (nosuch = 1)", SchemaError, "nosuch"),
        ("create index i on plain (id) with (unique = true)", ExpressionError, "write CREATE UNIQUE INDEX"),
        ("create index i on plain (id) with (progress = true)", ExpressionError, "in Python"),
        ("create index i on plain (id) with (a = 1, A = 2)", ExpressionError, "'A' is given twice"),
        ("create index i on plain (id) with (a = null)", ExpressionError, "has to be a number, a text, true or false"),
        ("create index i on plain (id) with (a = {'b': 1})", ExpressionError, "has to be a number"),
        ("create index i on plain (id) with (a = nosuch)", ExpressionError, "nosuch"),
    ],
)
def test_a_wrong_definition_changes_nothing(orders: il.Lake, text: str, error: type[Exception], problem: str) -> None:
    before = orders.snapshot_id
    with pytest.raises(error) as refused:
        orders.sql(text)
    assert problem in str(refused.value)
    assert orders.snapshot_id == before
    assert shown(orders) == []


def test_options_reach_the_kind_as_values(orders: il.Lake) -> None:
    orders.sql(
        "create index words on sales.orders using bm25 (note) "
        "with (k1 = 1.5, b = $b, lowercase = false, stop_words = ['the', 'a'])",
        {"b": 0.5},
    )
    (info,) = orders.table("sales.orders").indexes()
    found = {name: info.params[name] for name in ("k1", "b", "lowercase", "stop_words")}
    assert found == {"k1": 1.5, "b": 0.5, "lowercase": False, "stop_words": ["a", "the"]}


@pytest.mark.parametrize("text", ["create index i on plain (id)", "drop index i on plain"])
def test_definitions_are_no_part_of_a_transaction_or_of_the_past(orders: il.Lake, text: str) -> None:
    with pytest.raises(ExpressionError, match="cannot be part of a transaction"):
        orders.sql(f"begin; {text}; commit")
    with orders.transaction() as tx, pytest.raises(ExpressionError, match="cannot be part of a transaction"):
        tx.sql(text)
    with pytest.raises(OwnershipError, match="read-only"):
        orders.sql(text, at=orders.snapshot_id)
