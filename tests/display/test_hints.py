"""Mistakes of the first hour: the error shows the right form."""

from __future__ import annotations

import datetime as dt
import re
from collections import namedtuple
from dataclasses import dataclass

import pyarrow.compute as pc
import pytest

import indexlake as il


@pytest.fixture(scope="module", autouse=True)
def filled_table(module_lake: il.Lake) -> None:
    t = module_lake.create_table("t", {"id": "int64", "city": "string", "total": "double"}, primary_key="id")
    t.insert({"id": 1, "city": "Oslo", "total": 2.0})


@pytest.fixture
def t(module_lake):
    return module_lake.table("t")


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


def test_a_moment_in_place_of_a_snapshot(module_lake, t):
    now = dt.datetime.now(dt.UTC)
    for view in (module_lake, t):
        with pytest.raises(il.SchemaError) as caught:
            view.at(now)
        assert str(caught.value) == f"A snapshot is a whole number; for a time write at(time={now!r})."
        view.at(time=now)


def test_an_expression_given_as_text(module_lake, t):
    with pytest.raises(il.ConstraintError) as caught:
        t.update({"total": "total * 0.9"}, where="id = 1")
    assert str(caught.value).endswith("give a float. If it is SQL over the row, write il.expr('total * 0.9')")
    with pytest.raises(il.ConstraintError, match=r"il\.expr\('s\.total'\)"):
        t.merge([{"id": 1, "total": 1.0}], on="id").when_matched_update({"total": "s.total"}).execute()


def test_text_in_double_quotes(module_lake, t):
    right = "write it in single quotes: 'Oslo'"
    for wrong in (
        lambda: t.scan('city = "Oslo"').to_arrow(),
        lambda: t.delete('city = "Oslo"'),
        lambda: t.update({"city": il.expr('"Oslo"')}, where="id = 1"),
        lambda: module_lake.sql('select * from t where city = "Oslo"'),
        lambda: module_lake.sql('insert into t values (2, "Oslo", 1)'),
        lambda: module_lake.sql('delete from t where city = "Oslo"'),
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
def test_parameters_of_other_libraries(module_lake, t, written, right, params):
    for wrong in (
        lambda: t.scan(f"id = {written}", params=params).to_arrow(),
        lambda: t.scan(f"id in ({written})", params=params).to_arrow(),
        lambda: module_lake.sql(f"select * from t where id = {written} -- which", params),
        lambda: module_lake.sql(f"insert into t (id) values ({written})", params),
        lambda: module_lake.sql(f"select * from t limit {written}", params),
    ):
        with pytest.raises(il.ExpressionError) as caught:
            wrong()
        assert right in str(caught.value).replace("A param", "a param")


def test_what_only_looks_like_such_parameters_is_sql(module_lake, t):
    assert t.scan("city = ':c' or city = ' = %s'").to_pylist() == []
    assert len(t.scan("id %id = 0").to_pylist()) == 1
    text = "select [1, 2, 3][:id] a, {'x':id} b, id::varchar c, 7 %id d from t -- = :c\n"
    assert module_lake.sql(text).fetchone() == ([1], {"x": 1}, "1", 0)


def said(call, kind=il.IndexLakeError):
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize(
    "where",
    [{"id": 1}, lambda row: True, pc.field("id") == 1, 5, ["id = 1"]],
    ids=["dict", "function", "expression", "number", "list"],
)
def test_a_predicate_that_is_not_text_is_refused_at_the_call(t, where):
    right = f'A predicate is SQL text such as "id = $id", not {type(where).__name__}.'
    assert said(lambda: t.scan(where), il.ExpressionError) == right
    assert said(lambda: t.delete(where), il.ExpressionError) == right


@pytest.mark.parametrize("keys", [1, "abc", None, {"id": 1}])
def test_keys_that_are_no_list(t, keys):
    assert said(lambda: t.get_many(keys), il.ConstraintError) == (
        f"get_many takes a list of keys, not {keys!r}; for one key use get."
    )


def test_a_series_is_one_column(module_lake, t):
    pd = pytest.importorskip("pandas")
    for call in (lambda s: t.insert(s), lambda s: module_lake.create_table("from_series", s)):
        assert said(lambda call=call: call(pd.Series([1], name="id")), il.SchemaError) == (
            "A Series is one column, not rows. Give a frame: series.to_frame(name)."
        )


@pytest.mark.parametrize("address", [None, 1, b"lake", ""])
def test_an_address_that_is_none(address):
    assert said(lambda: il.connect(address), il.CatalogError) == (
        f"il.connect takes a folder, a postgresql:// address or ':memory:', not {address!r}."
    )


def test_a_read_only_connection_makes_no_lake(tmp_path):
    assert said(lambda: il.connect(tmp_path / "no", read_only=True)).endswith(
        "A read-only connection does not create one."
    )
    assert said(lambda: il.connect(tmp_path / "no", create=False)).endswith(
        "Pass create=True to il.connect to create one."
    )


def test_a_key_that_is_given_twice_and_one_that_is_there(module_lake, t):
    twice = "Primary key id = 5 is given twice: two of the rows for table 'main.t' have it. Keep only one."
    assert said(lambda: t.insert([{"id": 5}, {"id": 5}]), il.DuplicateKeyError) == twice
    assert said(lambda: module_lake.sql("insert into t (id) values (5), (5)"), il.DuplicateKeyError) == twice
    there = "Primary key id = 1 already exists in table 'main.t'. Use update or upsert to change the existing row."
    assert said(lambda: t.insert({"id": 1}), il.DuplicateKeyError) == there


def test_only_near_names_of_tables_are_suggested():
    with il.connect(":memory:") as lake:
        lake.create_table("sales.orders", {"id": "int64"})
        for wrong in ("orders", "order", "sales.ordres", "sale.Orders"):
            assert said(lambda w=wrong: lake.table(w)).endswith("Did you mean 'sales.orders'?")
            by_sql = said(lambda w=wrong: lake.sql(f"from {w}s" if w == "order" else f"from {w}x"))
            assert by_sql.splitlines()[0].endswith("'sales.orders'?")
        for other in ("sales.customers", "sales.x"):
            assert said(lambda o=other: lake.table(o)) == f"There is no table {other!r}."
            assert said(lambda o=other: lake.sql(f"from {o}")).splitlines()[0] == f"There is no table {other!r}."


def test_a_time_before_the_first_snapshot(module_lake, t):
    for view in (module_lake, t):
        answer = said(lambda view=view: view.at(time=dt.datetime(2020, 1, 1, tzinfo=dt.UTC)), il.SnapshotExpiredError)
        assert answer.startswith("The first snapshot was made at 20")
        assert answer.endswith(", after 2020-01-01T00:00:00+00:00.")


def test_changes_in_the_past(module_lake):
    assert said(lambda: module_lake.at(1).sql("delete from t")) == (
        "The lake at snapshot 1 is read-only: use lake.sql without at=… to change rows."
    )


def test_history_tells_what_each_commit_did_to_the_table():
    with il.connect(":memory:") as lake:
        t, other = (lake.create_table(name, {"id": "int64"}) for name in ("t", "other"))
        with lake.transaction() as tx:
            tx.table("t").insert([{"id": 1}, {"id": 2}])
            tx.table("other").insert({"id": 1})
        t.update({"id": 3}, where="id = 1")
        assert [str(s.summary) for s in t.history()] == ["", "2 inserted", "1 updated"]
        assert [str(s.summary) for s in other.history()] == ["", "1 inserted"]
        assert "2 inserted" in repr(t.history())
        assert "2 inserted" in t.history()[1]._repr_html_()


@pytest.mark.parametrize(
    ("wrong", "right"), [("int", "int64"), (int, "int64"), ("decimal(10, 2)", "decimal128(10, 2)")]
)
def test_a_type_of_another_language_in_a_schema(module_lake, wrong, right):
    with pytest.raises(il.SchemaError, match=re.escape(f"is not a type; write {right!r}. A schema gives")):
        module_lake.create_table("other", {"id": wrong, "city": "string"})


@dataclass
class Order:
    id: int


class Model:
    def model_dump(self):
        return {"id": 1}


@pytest.mark.parametrize(
    ("row", "way"),
    [
        (Order(1), "dataclasses.asdict(row)"),
        (namedtuple("Pair", "id")(1), "row._asdict()"),
        (Model(), "row.model_dump()"),
    ],
    ids=["dataclass", "named tuple", "model"],
)
def test_an_object_in_place_of_a_row(t, row, way):
    for write in (t.insert, t.upsert):
        with pytest.raises(il.SchemaError) as caught:
            write([row])
        assert str(caught.value).endswith(f" Give {way}.")


def test_a_second_row_in_place_of_a_token(module_lake, t):
    with pytest.raises(il.SchemaError, match="token must be a non-empty string"):
        t.insert({"id": 8}, {"id": 9})
    with pytest.raises(il.SchemaError, match="token must be a non-empty string"):
        module_lake.sql("insert into t (id) values (8)", token={"id": 9})


def test_a_bucket_in_place_of_a_catalog():
    with pytest.raises(il.CatalogError, match=r"Use a folder, .* The files can be there: storage='s3://bucket/shop'\."):
        il.connect("s3://bucket/shop")
