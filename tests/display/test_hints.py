"""Mistakes of the first hour: the error shows the right form."""

from __future__ import annotations

import datetime as dt

import pytest

import indexlake as il


@pytest.fixture(scope="module")
def lake():
    with il.connect(":memory:") as opened:
        t = opened.create_table("t", {"id": "int64", "city": "string", "total": "double"}, primary_key="id")
        t.insert({"id": 1, "city": "Oslo", "total": 2.0})
        yield opened


@pytest.fixture
def t(lake):
    return lake.table("t")


@pytest.mark.parametrize(
    ("order", "right"),
    [
        ("total desc", "order_by=[('total', 'desc')]"),
        ("Total DESC, city", "order_by=[('total', 'desc'), 'city']"),
        (["city", "total desc"], "order_by=['city', ('total', 'desc')]"),
        ("total asc", "order_by=['total']"),
        ("-total", "order_by=[('total', 'desc')]"),
    ],
)
def test_an_order_written_as_sql(t, order, right):
    with pytest.raises(il.SchemaError) as caught:
        t.scan(order_by=order).to_arrow()
    assert str(caught.value).endswith(f"Write {right}.")
    assert t.scan(order_by=eval(right.partition("=")[2])).to_pylist() == t.to_pylist()


def test_an_order_by_an_unknown_column_is_still_that(t):
    with pytest.raises(il.SchemaError, match=r"There is no column 'totl desc'\. The columns are id, city, total\."):
        t.scan(order_by="totl desc").to_arrow()


def test_a_moment_in_place_of_a_snapshot(lake, t):
    now = dt.datetime.now(dt.UTC)
    for view in (lake, t):
        with pytest.raises(il.SchemaError) as caught:
            view.at(now)
        assert str(caught.value) == f"A snapshot is a whole number; for a moment write at(time={now!r})."
        view.at(time=now)


def test_an_expression_given_as_text(lake, t):
    with pytest.raises(il.ConstraintError) as caught:
        t.update({"total": "total * 0.9"}, where="id = 1")
    assert str(caught.value).endswith("give a float. If it is SQL over the row, write il.expr('total * 0.9')")
    with pytest.raises(il.ConstraintError, match=r"il\.expr\('s\.total'\)"):
        t.merge([{"id": 1, "total": 1.0}], on="id").when_matched_update({"total": "s.total"}).execute()


def test_text_in_double_quotes(lake, t):
    right = "write it in single quotes: 'Oslo'"
    for wrong in (
        lambda: t.scan('city = "Oslo"').to_arrow(),
        lambda: t.delete('city = "Oslo"'),
        lambda: t.update({"city": il.expr('"Oslo"')}, where="id = 1"),
        lambda: lake.sql('select * from t where city = "Oslo"'),
        lambda: lake.sql('insert into t values (2, "Oslo", 1)'),
        lambda: lake.sql('delete from t where city = "Oslo"'),
    ):
        with pytest.raises(il.ExpressionError) as caught:
            wrong()
        assert right in str(caught.value)
    with pytest.raises(il.ExpressionError) as caught:
        t.scan("city = Oslo").to_arrow()
    assert "single quotes" not in str(caught.value)


@pytest.mark.parametrize(
    ("written", "right"),
    [
        (":c", 'a parameter is written $c, not :c; give params={"c": …}'),
        ("%(c)s", 'a parameter is written $c, not %(c)s; give params={"c": …}'),
        ("%s", "a parameter is written ? or $1, not %s; give params=[…]"),
    ],
)
@pytest.mark.parametrize("params", [{"c": 1}, [1], None], ids=str)
def test_parameters_of_other_libraries(lake, t, written, right, params):
    for wrong in (
        lambda: t.scan(f"id = {written}", params=params).to_arrow(),
        lambda: t.scan(f"id in ({written})", params=params).to_arrow(),
        lambda: lake.sql(f"select * from t where id = {written} -- which", params),
        lambda: lake.sql(f"insert into t (id) values ({written})", params),
        lambda: lake.sql(f"select * from t limit {written}", params),
    ):
        with pytest.raises(il.ExpressionError) as caught:
            wrong()
        assert right in str(caught.value).replace("A param", "a param")


def test_what_only_looks_like_such_parameters_is_sql(lake, t):
    assert t.scan("city = ':c' or city = ' = %s'").to_pylist() == []
    assert len(t.scan("id %id = 0").to_pylist()) == 1
    assert lake.sql("select [1, 2, 3][:id] a, {'x':id} b, id::varchar c, 7 %id d from t -- = :c\n").fetchone() == (
        [1], {"x": 1}, "1", 0,
    )  # fmt: skip
