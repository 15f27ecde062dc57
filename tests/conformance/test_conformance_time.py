"""Snapshots: history and reading the past, of a table and of the whole lake."""

from __future__ import annotations

import datetime
import time
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from tests.conformance.orders import EVERYTHING, SCHEMA, content, dump, row, rows, tiered


def test_every_past_snapshot_reads_as_it_was_whatever_happens_after(lake: il.Lake, make: Any) -> None:
    t = make(SCHEMA, "id", direct_write_row_count=20)
    model: dict[int, dict[str, Any]] = {}
    past: list[tuple[int, list[dict[str, Any]]]] = []

    def remember() -> None:
        past.append((lake.snapshot_id, [model[k] for k in sorted(model)]))

    def check() -> None:
        for snapshot, expected in past:
            view = t.at(snapshot)
            assert content(view) == expected, snapshot
            assert len(view) == len(expected)
            for key in (1, 7, 33):
                assert view.get(key) == next((r for r in expected if r["id"] == key), None), (snapshot, key)
            assert view.scan("id = 7").to_pylist() == [r for r in expected if r["id"] == 7]

    remember()
    for step in range(4):
        t.insert(rows(range(step * 10, step * 10 + 10)))
        model |= {n: row(n) for n in range(step * 10, step * 10 + 10)}
        remember()
        t.update({"city": f"s{step}"}, "id % 3 = 1")
        model |= {n: {**r, "city": f"s{step}"} for n, r in model.items() if n % 3 == 1}
        remember()
        t.delete(f"id % 10 = {step + 5}")
        model = {n: r for n, r in model.items() if n % 10 != step + 5}
        remember()
        if step % 2:
            dump(t)
            remember()
    check()
    t.insert(rows(range(100, 130)))
    t.truncate()
    model = {}
    remember()
    dump(t)
    check()


def test_history_lists_the_commits_of_the_table_oldest_first(make: Any) -> None:
    t, other = make(SCHEMA, "id"), make(SCHEMA, "id")
    first = t.insert(rows([1, 2]))
    other.insert(rows([1]))
    second = t.update({"city": "x"}, "id = 1")
    dump(t)
    third = t.delete("true")
    fourth = t.truncate()
    found = t.history()
    assert [s.operation for s in found] == ["create table", "insert", "update", "delete", "truncate"]
    assert [s.snapshot_id for s in found[1:]] == [x.snapshot_id for x in (first, second, third, fourth)]
    times = [s.committed_at for s in found]
    assert times == sorted(times)
    assert all(x.tzinfo is not None for x in times)
    assert datetime.datetime.now(datetime.UTC) - times[-1] < datetime.timedelta(minutes=5)
    assert found[1].summary == {str(t._table_id): [2, 0, 0]}


def test_a_time_reads_the_newest_snapshot_committed_by_then(lake: il.Lake, make: Any) -> None:
    t = make(SCHEMA, "id")
    t.insert(rows([1]))
    time.sleep(0.002)
    moment = datetime.datetime.now(datetime.UTC)
    time.sleep(0.002)
    t.insert(rows([2]))
    berlin = moment.astimezone(datetime.timezone(datetime.timedelta(hours=1)))
    for when in (moment, berlin):
        assert content(t.at(time=when)) == rows([1])
        assert content(lake.at(time=when).table(t.name)) == rows([1])
    assert content(t.at(time=datetime.datetime.now(datetime.UTC))) == rows([1, 2])


def test_the_whole_lake_is_read_at_one_snapshot(lake: il.Lake, make: Any, namespace: str) -> None:
    a = make(SCHEMA, "id", name="a")
    a.insert(rows([1]))
    then = lake.snapshot_id
    b = make(SCHEMA, "id", name="b")
    b.insert(rows([1]))
    a.truncate()
    lake.drop_table(a.name)
    view = lake.at(then)
    assert view.snapshot_id == then
    assert [n for n in view.tables() if n.startswith(namespace)] == [a.name]
    assert content(view.table(a.name.upper())) == rows([1])
    with pytest.raises(il.NotFoundError):
        view.table(b.name)
    assert [n for n in lake.tables() if n.startswith(namespace)] == [b.name]


def test_views_of_the_past_are_read_only(lake: il.Lake, make: Any) -> None:
    t = tiered(make)
    view = t.at(lake.snapshot_id)
    for write in (
        lambda: view.insert(row(99)),
        lambda: view.update({"city": "x"}, "true"),
        lambda: view.delete("true"),
        lambda: view.truncate(),
    ):
        with pytest.raises(il.OwnershipError, match="read-only"):
            write()
    assert content(t) == EVERYTHING


def test_snapshots_that_do_not_exist_are_errors(lake: il.Lake, make: Any) -> None:
    before = lake.snapshot_id
    t = make(SCHEMA, "id")
    with pytest.raises(il.NotFoundError, match="was created in snapshot"):
        t.at(before)
    future = lake.snapshot_id + 1000
    with pytest.raises(il.NotFoundError, match=f"no snapshot {future} yet"):
        t.at(future)
    with pytest.raises(il.NotFoundError, match=f"no snapshot {future} yet"):
        lake.at(future)
    with pytest.raises(il.SchemaError, match="time zone"):
        t.at(time=datetime.datetime(2026, 1, 1))
    with pytest.raises(il.SnapshotExpiredError):
        t.at(time=datetime.datetime(1999, 1, 1, tzinfo=datetime.UTC))
    for wrong in (
        {},
        {"snapshot": 1, "time": datetime.datetime.now(datetime.UTC)},
        {"snapshot": "1"},
        {"snapshot": True},
    ):
        with pytest.raises(il.SchemaError):
            t.at(**wrong)


def test_a_dropped_table_is_not_there_after_its_drop(lake: il.Lake, make: Any) -> None:
    t = tiered(make)
    before = lake.snapshot_id
    lake.drop_table(t.name)
    assert content(t.at(before)) == EVERYTHING
    with pytest.raises(il.NotFoundError):
        t.at(lake.snapshot_id).scan().to_pylist()


def test_the_schema_of_a_recreated_table_belongs_to_its_time(lake: il.Lake, make: Any) -> None:
    old = make(SCHEMA, "id", name="same")
    old.insert(rows([1]))
    then = lake.snapshot_id
    lake.drop_table(old.name)
    new = make(pa.schema({"id": pa.string()}), "id", name="same")
    new.insert({"id": "x"})
    assert lake.at(then).table(old.name).schema == SCHEMA
    assert lake.at(then).table(old.name).get(1) == row(1)
    assert lake.table(old.name).get("x") == {"id": "x"}
