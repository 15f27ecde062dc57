"""Names, settings, keys, several alterations in one commit, and what is refused."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from tests.evolution.conftest import SCHEMA, Fill, row, rows


def test_several_alterations_are_one_commit(lake: il.Lake, fill: Fill) -> None:
    t = fill(lake)
    before = lake.snapshot_id
    with t.alter() as a:
        a.add_column("kind", pa.string(), default="old")
        a.rename_column("kind", "sort")
        a.widen_column("v", pa.int64())
        a.widen_column("v", pa.decimal128(25, 0))
        a.drop_column("note")
        a.add_column("note", pa.int8())
        a.set_config(retention=3600, block_row_count=7)
        a.rename("shop.things")
    assert lake.snapshot_id == before + 1
    assert a.result.snapshot_id == before + 1
    assert t.schema.names == ["id", "v", "address", "sort", "note"]
    assert t.get(11) == {"id": 11, "v": 11, "address": row(11)["address"], "sort": "old", "note": None}
    assert t.config.retention == timedelta(hours=1)
    assert (t.config.block_row_count, t.config.direct_write_row_count) == (7, 20)
    assert t.name == "shop.things"
    assert lake.tables() == ["shop.things"]
    assert t.history()[-1].operation == "alter table"
    assert t.history()[-1].summary == {str(t._table_id): [0, 0, 0]}
    assert rows(t.at(before))[0] == row(0)


def test_a_step_that_fails_changes_nothing(lake: il.Lake, fill: Fill) -> None:
    t = fill(lake)
    before = lake.snapshot_id
    alter = t.alter().add_column("kind", pa.string())
    with pytest.raises(il.SchemaError, match="no column 'nope'"):
        alter.drop_column("nope")
    with suppress(RuntimeError), t.alter() as a:
        a.add_column("kind", pa.string())
        raise RuntimeError("stop")
    alter = t.alter().drop_column("address").rename_column("note", "v")
    with pytest.raises(il.SchemaError, match="There is already a column 'v'"):
        alter.commit()
    assert lake.snapshot_id == before
    assert t.schema == SCHEMA
    with pytest.raises(il.OwnershipError, match="is finished"):
        a.drop_column("v")
    with pytest.raises(il.OwnershipError, match="is finished"):
        a.commit()


def test_an_alteration_that_changes_nothing_makes_no_commit(lake: il.Lake, fill: Fill) -> None:
    t = fill(lake)
    before = lake.snapshot_id
    with t.alter() as a:
        a.add_column("kind", pa.string())
        a.drop_column("kind")
        a.rename_column("v", "v")
        a.set_config(direct_write_row_count=20)
        a.rename("main.t")
    with t.alter():
        pass
    assert lake.snapshot_id == before


REFUSED: list[tuple[Any, str]] = [
    (lambda t: t.drop_column("id"), "'id' is part of the primary key: it cannot be dropped. A key column can only be"),
    (lambda t: t.widen_column("id", pa.int64()), "part of the primary key: its type cannot change"),
    (lambda t: t.drop_column("nope"), "There is no column 'nope'"),
    (lambda t: t.rename_column("not", "x"), "Did you mean 'note'"),
    (lambda t: t.add_column("V", pa.int8()), "There is already a column 'V'"),
    (lambda t: t.rename_column("note", "V"), "differ only in case"),
    (lambda t: t.rename_column("note", "_indexlake_x"), "reserved"),
    (lambda t: t.rename_column("note", ""), "not a column name"),
    (lambda t: t.rename_column("note", None), "must be a string"),
    (lambda t: t.add_column("", pa.int8()), "does not name a column"),
    (lambda t: t.add_column(None, pa.int8()), "does not name a column"),
    (lambda t: t.add_column("a\0b", pa.int8()), "NUL"),
    (lambda t: t.add_column("_indexlake_row_id", pa.int8()), "reserved"),
    (lambda t: t.add_column("x", pa.int8(), default="y"), "default of column 'x' does not fit"),
    (lambda t: t.add_column("x", pa.month_day_nano_interval()), "intervals"),
    (lambda t: t.rename("a.b.c"), "is not a table name"),
    (lambda t: t.rename(""), "is not a table name"),
    (lambda t: t.set_config(colour="red"), "no setting 'colour'.*dump_format"),
    (lambda t: t.set_config(dump_format="csv"), "dump_format must be one of"),
    (lambda t: t.set_config(), "needs a setting"),
    (lambda t: t.set_config({"retention": 1}), "either an il.TableConfig"),
    (lambda t: t.set_config(il.TableConfig(), retention=1), "either an il.TableConfig"),
]


def test_what_cannot_be_is_refused_and_changes_nothing(lake: il.Lake) -> None:
    t = lake.create_table("t", SCHEMA, primary_key="id")
    before = lake.snapshot_id
    for change, text in REFUSED:
        with pytest.raises(il.SchemaError, match=text):
            change(t)
    assert (lake.snapshot_id, t.schema, t.name) == (before, SCHEMA, "main.t")


def test_the_last_column_stays(lake: il.Lake) -> None:
    t = lake.create_table("t", pa.schema([("a", pa.int8())]))
    with pytest.raises(il.SchemaError, match="'a' is the last one"):
        t.drop_column("a")
    with t.alter() as a:
        a.add_column("b", pa.int8(), default=1)
        a.drop_column("a")
    assert t.schema.names == ["b"]


def test_rows_of_a_table_whose_every_column_was_replaced_are_still_there(lake: il.Lake) -> None:
    t = lake.create_table("t", pa.table({"a": [1, 2, 3]}))
    lake.pipeline().dump("t")
    t.insert({"a": 4})
    with t.alter() as a:
        a.add_column("b", pa.string(), default="x")
        a.drop_column("a")
    assert t.scan().to_pylist() == [{"b": "x"}] * 4
    assert t.scan("b = 'x'").count() == 4
    lake.pipeline().dump("t")
    assert t.scan().to_pylist() == [{"b": "x"}] * 4


def test_views_of_the_past_and_dropped_tables_cannot_be_altered(lake: il.Lake, fill: Fill) -> None:
    t = fill(lake)
    with pytest.raises(il.OwnershipError, match="view of the past: it cannot be altered"):
        t.at(lake.snapshot_id).drop_column("v")
    alter = t.alter().add_column("x", pa.int8())
    lake.drop_table("t")
    with pytest.raises(il.NotFoundError, match="dropped"):
        alter.commit()
    with pytest.raises(il.NotFoundError, match="dropped"):
        t.drop_column("v")


def test_a_read_only_lake_refuses_to_alter(new_address: Any) -> None:
    address = new_address("sqlite")
    with address.connect(automatic=False) as lake:
        lake.create_table("t", SCHEMA)
    with address.connect(read_only=True) as lake, pytest.raises(il.OwnershipError, match="read_only"):
        lake.table("t").drop_column("v")


# ---------------------------------------------------------------- names of tables


def test_a_renamed_table_is_found_under_each_name_in_its_time(lake: il.Lake, fill: Fill) -> None:
    t = fill(lake)
    first = lake.snapshot_id
    t.rename("orders")
    second = lake.snapshot_id
    t.rename("Shop.Orders")
    other = lake.create_table("t", pa.table({"x": [1]}))
    last = lake.snapshot_id
    assert t.name == "Shop.Orders"
    assert lake.tables() == ["Shop.Orders", "main.t"]
    assert lake.at(first).tables() == ["main.t"]
    assert lake.at(second).tables() == ["main.orders"]
    assert lake.at(last).tables() == ["Shop.Orders", "main.t"]
    assert len(lake.at(first).table("T")) == len(lake.at(second).table("orders")) == len(t) == 47
    assert lake.at(last).table("t").scan().to_pylist() == other.scan().to_pylist() == [{"x": 1}]
    assert (t.at(first).name, t.at(second).name, t.at(last).name) == ("main.t", "main.orders", "Shop.Orders")
    for view, name in ((lake.at(first), "orders"), (lake.at(second), "t"), (lake.at(first), "shop.orders")):
        with pytest.raises(il.NotFoundError, match="There is no table"):
            view.table(name)
    with pytest.raises(il.NotFoundError, match=r"There is no table 'main\.orders'"):
        lake.table("orders")


@pytest.mark.inline_only("the horizon does not pass what is in memory alone")
def test_a_renamed_table_whose_history_has_expired_hides_no_other_table_of_that_time() -> None:
    ahead = 0.0
    with il.connect(":memory:", automatic=False, clock=lambda: int((time.time() + ahead) * 1e6)) as lake:
        t = lake.create_table("t", SCHEMA, config=il.TableConfig(retention=0))
        lake.create_table("u", SCHEMA)
        then = lake.snapshot_id
        t.insert({"id": 1})
        t.rename("r")
        t.insert({"id": 2})
        ahead = 3600.0
        lake.pipeline(runner="threads").expire()
        assert lake.at(then).tables() == ["main.u"], "what the other was called then is forgotten"
        assert len(lake.at(then).table("u")) == 0
        assert lake.sql("select count(*) from u", at=then).scalar() == 0
        with pytest.raises(il.NotFoundError, match=r"There is no table 'main\.t'"):
            lake.at(then).table("t")


def test_a_name_can_come_back_and_change_its_case(lake: il.Lake, fill: Fill) -> None:
    t = fill(lake)
    names = ["u", "t", "T", "x.T", "main.t"]
    seen = {lake.snapshot_id: "main.t"}
    for name in names:
        t.rename(name)
        seen[lake.snapshot_id] = t.name
    assert list(seen.values()) == ["main.t", "main.u", "main.t", "main.T", "x.T", "main.t"]
    for snapshot, name in seen.items():
        assert lake.at(snapshot).tables() == [name]
        assert lake.at(snapshot).table(name).name == name
    lake.drop_namespace("x")
    assert lake.at([*seen][4]).table("x.t").get(1)["id"] == 1


def test_a_name_that_is_taken_is_refused(lake: il.Lake, fill: Fill) -> None:
    t = fill(lake)
    lake.create_table("shop.u", SCHEMA)
    before = lake.snapshot_id
    with pytest.raises(il.AlreadyExistsError, match=r"'shop\.u' already exists"):
        t.rename("Shop.U")
    assert lake.snapshot_id == before
    lake.drop_table("shop.u")
    t.rename("shop.u")
    assert lake.tables() == ["shop.u"]


def test_without_a_namespace_a_renamed_table_stays_where_it_is(lake: il.Lake) -> None:
    t = lake.create_table("shop.a", SCHEMA)
    t.rename("b")
    assert t.name == "shop.b"


def test_handles_of_other_processes_follow_a_rename(two_handles: tuple[il.Lake, il.Lake], fill: Fill) -> None:
    one, other = two_handles
    t = fill(one)
    there = other.table("t")
    assert there.get(1)["note"] == "changed"
    t.rename("u")
    there.insert({"id": 100})
    assert there.name == "main.u"
    assert len(t) == 48
    assert there.schema == t.schema


# ---------------------------------------------------------------- time travel


def test_every_snapshot_shows_the_columns_of_its_time(lake: il.Lake, fill: Fill) -> None:
    t = fill(lake)
    pictures: dict[int, tuple[pa.Schema, list[dict[str, Any]]]] = {}

    def remember() -> None:
        pictures[lake.snapshot_id] = (t.schema, rows(t))

    changes: list[Any] = [
        lambda: t.add_column("kind", pa.string(), default="old"),
        lambda: t.insert({"id": 60, "kind": "new"}),
        lambda: t.widen_column("v", pa.int64()),
        lambda: t.update({"v": 2**50}, where="id in (1, 11, 41, 60)"),
        lambda: lake.pipeline().dump("t"),
        lambda: t.rename_column("kind", "sort"),
        lambda: t.drop_column("note"),
        lambda: t.update({"sort": "late"}, where="id < 5 or id > 45"),
        lambda: t.add_column("note", pa.int64(), default=1),
        lambda: t.drop_column("address.city"),
        lambda: t.delete("id = 3"),
        lambda: lake.pipeline().dump("t"),
        lambda: lake.pipeline().compact("t"),
        lambda: t.truncate(),
    ]
    remember()
    for change in changes:
        change()
        remember()
        for snapshot, (schema, found) in pictures.items():
            view = t.at(snapshot)
            assert view.schema == schema
            assert rows(view) == found
            for wanted in found[:: max(1, len(found) // 5)]:
                assert view.get(wanted["id"]) == wanted


def test_history_lists_what_was_altered(lake: il.Lake) -> None:
    t = lake.create_table("t", SCHEMA, primary_key="id")
    lake.create_table("other", SCHEMA).drop_column("v")
    t.add_column("x", pa.int8())
    t.rename_column("x", "y")
    t.widen_column("y", pa.int16())
    t.drop_column("y")
    t.set_config(retention=60)
    t.rename("u")
    operations = [s.operation for s in t.history()]
    assert operations == [
        "create table", "add column", "rename column", "widen column", "drop column", "set config", "rename table",
    ]  # fmt: skip
