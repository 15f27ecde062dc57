"""Checks, generated columns and computed defaults hold for every kind of write, at every snapshot, for every writer."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import indexlake as il

SCHEMA = {"id": "int64", "a": "int64", "b": "int64", "twice": "int64", "code": "string", "made": "timestamp[us]"}
MANY = 300  # more than go to the hot store


def rules(lake: il.Lake, name: str = "t", **options: Any) -> il.Table:
    return lake.create_table(
        name,
        SCHEMA,
        primary_key="id",
        config=il.TableConfig(direct_write_row_count=100, block_row_count=1000),
        checks={"positive": "a >= 0", "ordered": "b is null or a <= b"},
        generated={"twice": "a * 2"},
        defaults={"code": il.expr("'c-' || uuid()"), "made": il.expr("now()"), "b": il.expr("1000 * 1000")},
        **options,
    )


@pytest.fixture(params=["heap", "clustered"])
def t(request: pytest.FixtureRequest, any_lake: il.Lake) -> il.Table:
    return rules(any_lake, layout=request.param)


def source(kind: str, folder: Path, rows: list[dict[str, Any]]) -> Any:
    table = pa.Table.from_pylist(rows)
    if kind == "dicts":
        return rows
    if kind == "arrow":
        return table
    if kind == "stream":
        return iter([table.slice(n, 1).to_pylist()[0] for n in range(len(rows))])
    path = folder / f"rows.{kind}"
    if kind == "parquet":
        pq.write_table(table, path)
    elif kind == "csv":
        pa_csv.write_csv(table, path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.parametrize("count", [3, MANY])
@pytest.mark.parametrize("kind", ["dicts", "arrow", "stream", "parquet", "csv", "jsonl"])
def test_an_insert_computes_what_is_not_given_and_refuses_what_is_false(
    lake: il.Lake, tmp_path: Path, kind: str, count: int
) -> None:
    t = rules(lake)
    good = [{"id": n, "a": n} for n in range(count)]
    t.insert(source(kind, tmp_path, good))
    found = t.scan(order_by="id").to_pylist()
    assert [(r["a"], r["b"], r["twice"]) for r in found] == [(n, 1_000_000, 2 * n) for n in range(count)]
    assert len({r["code"] for r in found}) == count
    assert len({r["made"] for r in found}) == 1, "now() is one moment for a statement"
    assert abs(found[0]["made"] - datetime.now()) < timedelta(days=1)
    before = lake.snapshot_id
    for last, name in (({"a": -1}, "positive"), ({"a": 2_000_000}, "ordered")):
        bad = [{"id": 1000 + n, "a": n} for n in range(count - 1)] + [{"id": 5000, **last}]
        with pytest.raises(
            il.ConstraintError, match=f"Check '{name}' of table 'main.t' is violated.*id: 5000"
        ) as error:
            t.insert(source(kind, tmp_path, bad))
        assert (error.value.constraint, error.value.table) == (name, "main.t")
    assert (len(t), lake.snapshot_id) == (count, before)


def changes(t: il.Table, a: int) -> dict[str, Callable[[], Any]]:
    """All ways to give row 1 and row 2 a value, and to add row 77 with it."""
    rows = [{"id": n, "a": a} for n in (1, 2, 77)]
    many = [*rows, *({"id": n, "a": 5} for n in range(200, 200 + MANY))]
    return {
        "update of one": lambda: t.update({"a": a}, where="id = 1"),
        "update of some": lambda: t.update({"a": il.expr(f"{a} + id - id")}, where="id < 3"),
        "upsert of one": lambda: t.upsert({"id": 1, "a": a}),
        "upsert that adds": lambda: t.upsert({"id": 77, "a": a}),
        "upsert of few": lambda: t.upsert(rows),
        "upsert of many": lambda: t.upsert(pa.Table.from_pylist(many)),
        "merge": lambda: (
            t.merge(pa.Table.from_pylist(rows), "id").when_matched_update().when_not_matched_insert().execute()
        ),
        "merge with values": lambda: (
            t.merge(pa.Table.from_pylist(rows), "id").when_matched_update({"a": il.expr("s.a")}).execute()
        ),
        "sql update": lambda: t._lake.sql(f"update t set a = {a} where id = 1"),
        "sql update from": lambda: t._lake.sql(f"update t set a = v from (values (1, {a})) s(k, v) where t.id = s.k"),
        "sql on conflict": lambda: t._lake.sql(
            f"insert into t (id, a) values (1, 0) on conflict (id) do update set a = {a}"
        ),
        "sql merge": lambda: t._lake.sql(
            f"merge into t using (values (1, {a})) s(id, v) on t.id = s.id when matched then update set a = s.v"
        ),
        "load": lambda: t._lake.pipeline(runner="threads").load(pa.table({"id": [77], "a": [a]}), "t"),
    }


WAYS = list(changes(None, 0))  # type: ignore[arg-type]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("in_blocks", [False, True])
def test_every_change_keeps_the_rules(any_lake: il.Lake, way: str, in_blocks: bool) -> None:
    t = rules(any_lake)
    t.insert([{"id": n, "a": n} for n in range(10)])
    if in_blocks:
        any_lake.pipeline(runner="threads").dump("t")
    before = t.scan(order_by="id").to_pylist()
    with pytest.raises(il.ConstraintError, match=r"Check 'positive' of table 'main\.t' is violated"):
        changes(t, -5)[way]()
    assert t.scan(order_by="id").to_pylist() == before
    changes(t, 500)[way]()
    found = t.scan("a = 500").to_pylist()
    assert found
    assert {(r["twice"], r["b"]) for r in found} == {(1000, 1_000_000)}
    assert all(r["code"].startswith("c-") for r in t.scan().to_pylist())


def test_blocks_and_hot_rows_of_both_layouts_hold_what_was_computed(t: il.Table) -> None:
    lake = t._lake
    t.insert([{"id": n, "a": n} for n in range(50)])
    t.insert(pa.table({"id": range(100, 100 + MANY), "a": range(MANY)}))
    lake.pipeline(runner="threads").run()
    t.update({"a": il.expr("a + 1")}, where="true")
    lake.pipeline(runner="threads").run()
    assert all(r["twice"] == 2 * r["a"] for r in t.scan().to_pylist())
    assert t.get(5)["twice"] == 12
    with pytest.raises(il.ConstraintError):
        t.update({"a": -1}, where="id > 200")
    assert lake.pipeline(runner="threads").verify().ok


def test_a_generated_value_may_be_given_if_it_is_the_right_one(lake: il.Lake) -> None:
    t = rules(lake)
    t.insert([{"id": 1, "a": 4, "twice": 8}, {"id": 2, "a": 5, "twice": None}])
    assert [r["twice"] for r in t.scan(order_by="id").to_pylist()] == [8, 10]
    message = r"Column 'twice' is generated always as \(a \* 2\): that is 10, and 7 is given"
    for rows in ({"id": 3, "a": 5, "twice": 7}, pa.table({"id": [4], "a": [5], "twice": [7]})):
        with pytest.raises(il.ConstraintError, match=message):
            t.insert(rows)
        with pytest.raises(il.ConstraintError, match=message):
            t.upsert(rows)
    with pytest.raises(il.SchemaError, match="is generated and cannot be assigned"):
        t.update({"twice": 5}, where="id = 1")
    t.insert(t.scan("id = 1").to_arrow().set_column(0, "id", pa.array([50])))  # as it was read


def test_a_check_that_is_added_is_validated_and_its_past_is_kept(any_lake: il.Lake) -> None:
    t = any_lake.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
    t.insert([{"id": 1, "v": 10}, {"id": 2, "v": None}, {"id": 3, "v": -3}])
    with pytest.raises(il.ConstraintError, match=r"Check 'big' of table 'main.t' is violated: v > 0 .*id: 3, v: -3"):
        t.add_check("v > 0", "big")
    assert t.checks() == {}
    t.insert({"id": 4, "v": -4})
    then = any_lake.snapshot_id
    t.delete("v < 0")
    t.add_check("v > 0", "big")
    t.add_check("id < 100")
    assert t.checks() == {"big": "v > 0", "t_id_check": "id < 100"}
    with pytest.raises(il.ConstraintError):
        t.insert({"id": 5, "v": -5})
    assert any_lake.at(then).table("t").count() == 4
    assert any_lake.at(then).table("t").checks() == {}
    t.rename_column("v", "Value here")
    assert t.checks()["big"] == '"Value here" > 0'
    t.rename("other")
    with pytest.raises(il.ConstraintError, match=r"Check 'big' of table 'main\.other'"):
        t.insert({"id": 6, "Value here": 0})
    for wrong in (
        lambda: t.drop_column("Value here"),
        lambda: t.add_check("nosuch > 1"),
        lambda: t.add_check("id + 1"),
    ):
        with pytest.raises(il.SchemaError):
            wrong()
    with pytest.raises(il.SchemaError, match="There is one of that name"):
        t.add_check("id > 0", "big")
    t.drop_check("BIG")
    t.insert({"id": 6, "Value here": 0})
    kinds = [job.kind for job in any_lake.jobs()]
    assert kinds.count("validate") == 3


def test_a_check_stays_with_a_column_that_is_widened(lake: il.Lake) -> None:
    t = lake.create_table("t", {"id": "int32"}, checks=["id < 3000000000"])
    t.insert({"id": 5})
    t.widen_column("id", "int64")
    with pytest.raises(il.ConstraintError):
        t.insert({"id": 3_000_000_001})


def test_not_null_can_be_demanded_and_left(any_lake: il.Lake) -> None:
    t = any_lake.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")
    t.insert([{"id": 1, "v": "x"}, {"id": 2}])
    with pytest.raises(il.ConstraintError, match="v is not null is false for the row"):
        t.set_not_null("v")
    assert t.schema.field("v").nullable
    then = any_lake.snapshot_id
    t.update({"v": "y"}, where="id = 2")
    t.set_not_null("v")
    t.set_not_null("v")
    assert not t.schema.field("v").nullable
    assert t.checks() == {}
    with pytest.raises(il.ConstraintError, match="declared NOT NULL"):
        t.insert({"id": 3})
    any_lake.pipeline(runner="threads").dump("t")  # the history holds a null
    assert any_lake.at(then).table("t").get(2) == {"id": 2, "v": None}
    assert sorted(r["v"] or "-" for r in any_lake.at(then).table("t").scan().to_pylist()) == ["-", "x"]
    assert {c["v"] for c in t.changes(then).to_pylist()} == {None, "y"}
    t.insert([{"id": n, "v": "z"} for n in range(10, 20)])
    any_lake.pipeline(runner="threads").run()
    t.drop_not_null("v")
    t.insert({"id": 3})
    any_lake.pipeline(runner="threads").run()
    assert t.get(3) == {"id": 3, "v": None}
    assert any_lake.pipeline(runner="threads").verify().ok
    with pytest.raises(il.SchemaError, match="primary key"):
        t.drop_not_null("id")


def test_a_default_that_is_set_leaves_older_rows_as_they_are(any_lake: il.Lake) -> None:
    t = any_lake.create_table("t", {"id": "int64"})
    t.insert({"id": 1})
    t.add_column("n", "int64", default=10)
    t.set_default("n", 20)
    t.insert({"id": 2})
    t.add_column("at", "timestamp[us]", default=il.expr("now()"))
    t.set_default("n", il.expr("5 * 5"))
    t.insert({"id": 3})
    t.set_default("n", None)
    t.insert({"id": 4})

    def read() -> list[int | None]:
        return [r["n"] for r in t.scan(order_by="id").to_pylist()]

    assert read() == [10, 20, 25, None]
    any_lake.pipeline(runner="threads").dump("t")
    assert read() == [10, 20, 25, None]
    moments = [r["at"] for r in t.scan(order_by="id").to_pylist()]
    assert moments[0] == moments[1] < moments[2] < moments[3]
    with pytest.raises(il.SchemaError, match="differs from row to row"):
        t.add_column("u", "string", default=il.expr("uuid()"))
    with pytest.raises(il.SchemaError, match="The default of column 'n'"):
        t.set_default("n", il.expr("'text'::date"))


def test_writers_that_began_before_a_check_do_not_get_past_it(two_handles: tuple[il.Lake, il.Lake]) -> None:
    first, second = two_handles
    first.create_table("t", {"id": "int64"})
    t = second.table("t")
    t.insert({"id": 1})
    tx = second.transaction()
    tx.table("t").insert({"id": -1})
    first.table("t").add_check("id > 0", "positive")
    with pytest.raises(il.ConflictError, match="got a new rule"):
        tx.commit()
    with pytest.raises(il.ConstraintError):
        t.insert({"id": -2})
    with pytest.raises(il.ConstraintError):
        t.insert(iter([{"id": -3}]))
    assert t.count() == 1


def test_a_check_added_while_others_write_holds_for_all_rows(two_handles: tuple[il.Lake, il.Lake]) -> None:
    first, second = two_handles
    first.create_table("t", {"id": "int64"})
    stop = threading.Event()

    def writing() -> None:
        t, n = second.table("t"), 0
        while not stop.is_set():
            n += 1
            try:
                t.insert([{"id": n}, {"id": -n}])
            except il.ConstraintError:
                t.delete("id < 0")

    thread = threading.Thread(target=writing)
    thread.start()
    try:
        for _ in range(200):
            try:
                first.table("t").add_check("id > 0", "positive")
                break
            except (il.ConstraintError, il.ConflictError):
                first.table("t").delete("id < 0")
        else:
            pytest.fail("the check was never added")
        assert first.table("t").scan("id < 0").count() == 0
    finally:
        stop.set()
        thread.join()
    assert first.table("t").scan("id < 0").count() == 0


def test_names_values_and_texts_of_rules_are_judged_when_they_are_given(lake: il.Lake) -> None:
    schema = {"a": "int64", "b": "int64", "g": "int64"}
    for options, text in [
        ({"checks": {"x": "nosuch > 1"}}, "Check 'x'"),
        ({"checks": {"x": "a > $1"}}, "cannot have parameters"),
        ({"checks": {"x": "a +"}}, "Check 'x'"),
        ({"checks": {"x": "a + 1"}}, "a check must be a condition"),
        ({"checks": {"x": "a > random()"}}, "a different value each time"),
        ({"checks": {"x": "now() > '2020-01-01'"}}, "the current time changes"),
        ({"checks": ["a > 0", 5]}, "condition in SQL"),
        ({"generated": {"g": "g + 1"}}, "generated itself"),
        ({"generated": {"g": "a", "b": "g"}}, "generated itself"),
        ({"generated": {"nosuch": "a"}}, "nosuch"),
        ({"generated": {"g": "a"}, "defaults": {"g": 1}}, "cannot both"),
        ({"generated": {"a": "b"}, "primary_key": "a"}, "primary key"),
        ({"defaults": {"a": il.expr("b + 1")}}, "The default of column 'a'"),
        ({"defaults": {"a": il.expr("$x", {"x": 1})}}, "no parameters"),
    ]:
        with pytest.raises(il.SchemaError, match=text):
            lake.create_table("bad", schema, **options)
    assert lake.tables() == []


def test_rules_are_restored_with_a_clustered_table(tmp_path: Path) -> None:
    with il.connect(tmp_path / "lake", automatic=False) as lake:
        rules(lake, layout="clustered").insert([{"id": 1, "a": 3}])
        lake.table("t").add_column("late", "int64", default=1)
        lake.table("t").set_default("late", 2)
        lake.pipeline(runner="threads").dump("t")
    (tmp_path / "lake" / "catalog.sqlite").unlink()
    il.restore(tmp_path / "lake" / "files", tmp_path / "restored")
    with il.connect(tmp_path / "restored", automatic=False) as lake:
        t = lake.table("t")
        assert t.checks() == {"positive": "a >= 0", "ordered": "b is null or a <= b"}
        t.insert({"id": 2, "a": 4})
        assert [(r["id"], r["twice"], r["late"]) for r in t.scan(order_by="id").to_pylist()] == [(1, 6, 1), (2, 8, 2)]
        with pytest.raises(il.ConstraintError):
            t.insert({"id": 3, "a": -4})


def test_computed_defaults_are_of_their_types(lake: il.Lake) -> None:
    t = lake.create_table(
        "t", {"id": "int64", "u": pa.uuid(), "d": "date32", "r": "double", "n": "int16"},
        defaults={"u": il.expr("uuid()"), "d": il.expr("current_date"), "r": il.expr("random() * 10"),
                  "n": il.expr("year(current_date) - 2000")},
    )  # fmt: skip
    t.insert({"id": 1})
    t.insert(pa.table({"id": range(MANY)}))
    rows = t.scan().to_pylist()
    assert all(isinstance(r["u"], uuid.UUID) and 0 <= r["r"] < 10 and 20 < r["n"] < 100 for r in rows)
    assert len({r["u"] for r in rows}) == MANY + 1
