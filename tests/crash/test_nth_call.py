"""The Nth SQL statement or storage call fails: a typed error and nothing changed, or success; the lake works on."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from tests.crash.failing import failing, picture
from tests.support.lakes import clock_of

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.int64())])
CONFIG = il.TableConfig(direct_write_row_count=50, block_row_count=100, inline_row_count_limit=1000)
MANY = 400
Operation = Callable[[il.Lake], Any]


def fill(lake: il.Lake) -> None:
    """A table with hot rows, blocks, deleted and superseded rows; and another one."""
    t = lake.create_table("t", SCHEMA, primary_key="id", config=CONFIG)
    t.insert(pa.table({"id": range(60), "v": [0] * 60}))
    t.insert([{"id": 100 + i, "v": 0} for i in range(20)])
    t.update({"v": 1}, "id in (3, 104)")
    lake.pipeline().dump("t")
    t.delete("id in (5, 107)")
    t.insert([{"id": 200 + i, "v": 0} for i in range(10)])
    t.update({"v": 2}, "id in (4, 203)")
    lake.create_table("other.u", SCHEMA, config=CONFIG).insert({"id": 1, "v": 1})


def fail_at_each(lake: il.Lake, operation: Operation, prefix: str, *, undo: Operation, code: int = errno.EIO) -> int:
    """Run the operation with its first call failing, its second, …, until it passes untouched; how many failed."""
    for nth in range(1, MANY):
        before = picture(lake)
        error: BaseException | None = None
        with failing(prefix, nth=nth, code=code) as failure:
            try:
                operation(lake)
            except il.IndexLakeError as raised:
                error = raised
        begun = time.monotonic()
        after = picture(lake)
        where = f"{prefix} {nth} failed at {failure.fired}, raised {error!r}"
        if error is not None:
            assert after == before, where
        else:
            assert after != before, where
            undo(lake)
        lake.create_namespace(f"still works {nth}")
        assert time.monotonic() - begun < 10, f"{where}: the lake was held up"
        if failure.fired is None:
            assert error is None
            return nth - 1
    raise AssertionError("it never ran untouched")


def rebuild(lake: il.Lake) -> None:
    """Back to the beginning, for operations that succeeded although a call failed."""
    for name in lake.tables():
        lake.drop_table(name)
    lake.drop_namespace("other", missing_ok=True)
    fill(lake)


DEFINITIONS: dict[str, tuple[Operation, Operation]] = {
    "create a table": (
        lambda lake: lake.create_table("fresh.new", SCHEMA, primary_key="id"),
        lambda lake: lake.drop_namespace("fresh", cascade=True),
    ),
    "create a table from rows": (
        lambda lake: lake.create_table("new", [{"id": 1, "v": 2}, {"id": 2, "v": 3}], primary_key="id"),
        lambda lake: lake.drop_table("new"),
    ),
    "drop a table": (lambda lake: lake.drop_table("t"), rebuild),
    "create a namespace": (
        lambda lake: lake.create_namespace("spaces"), lambda lake: lake.drop_namespace("spaces"),
    ),
    "drop a namespace with its tables": (lambda lake: lake.drop_namespace("other", cascade=True), rebuild),
}  # fmt: skip

WRITES: dict[str, tuple[Operation, Operation]] = {
    "insert one row": (
        lambda lake: lake.table("t").insert({"id": 90, "v": 1}), lambda lake: lake.table("t").delete("id = 90"),
    ),
    "insert a few rows": (
        lambda lake: lake.table("t").insert([{"id": 900 + i, "v": 1} for i in range(5)]),
        lambda lake: lake.table("t").delete("id >= 900"),
    ),
    "insert a block": (
        lambda lake: lake.table("t").insert(pa.table({"id": range(900, 1100), "v": range(200)})),
        lambda lake: lake.table("t").delete("id >= 900"),
    ),
    "update rows in the hot store and in a block": (
        lambda lake: lake.table("t").update({"v": il.expr("v + 10")}, "id in (1, 2, 201)"), rebuild,
    ),
    "update so many rows that they become a block": (
        lambda lake: lake.table("t").update({"v": il.expr("v + 10")}, "true"), rebuild,
    ),
    "delete": (lambda lake: lake.table("t").delete("id in (1, 2, 201)"), rebuild),
    "truncate": (lambda lake: lake.table("t").truncate(), rebuild),
    "transaction over two tables": (lambda lake: lake.run(_both), rebuild),
}  # fmt: skip


ON_BOTH = ("insert one row", "insert a block", "transaction over two tables")


def _both(tx: il.Transaction) -> None:
    tx.table("t").delete("id = 1")
    tx.table("t").insert({"id": 901, "v": 1})
    tx.table("other.u").update({"v": 5}, "id = 1")


@pytest.mark.parametrize("name", DEFINITIONS)
def test_creating_and_dropping_failed_at_each_statement_leaves_all_or_nothing(any_lake: il.Lake, name: str) -> None:
    fill(any_lake)
    operation, undo = DEFINITIONS[name]
    assert fail_at_each(any_lake, operation, "sql.", undo=undo) >= 4


@pytest.mark.parametrize("name", WRITES)
def test_a_write_failed_at_each_statement_changes_nothing_or_all(any_lake: il.Lake, name: str) -> None:
    if any_lake.catalog.database() == "postgres" and name not in ON_BOTH:
        pytest.skip("the same statements as on SQLite, only slower")
    fill(any_lake)
    operation, undo = WRITES[name]
    assert fail_at_each(any_lake, operation, "sql.", undo=undo) >= 4


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC], ids=["io error", "disk full"])
@pytest.mark.parametrize(
    "name", ["insert a block", "update so many rows that they become a block", "delete", "insert one row"]
)
def test_a_write_failed_at_each_storage_call_changes_nothing_or_all(lake: il.Lake, name: str, code: int) -> None:
    fill(lake)
    operation, undo = WRITES[name]

    def cold(lake: il.Lake) -> None:
        lake._files.clear()
        operation(lake)

    assert fail_at_each(lake, cold, "storage.", code=code, undo=undo) >= 1


@pytest.mark.parametrize("prefix", ["sql.", "storage."])
def test_a_dump_failed_at_each_call_changes_nothing_that_a_reader_sees(any_lake: il.Lake, prefix: str) -> None:
    fill(any_lake)
    past = {s.snapshot_id: _at(any_lake, s.snapshot_id) for s in any_lake.table("t").history()}
    numbers = iter(range(1000, 2000))

    def dump(any_lake: il.Lake) -> None:
        any_lake.pipeline().dump("t")

    def more(any_lake: il.Lake) -> None:
        any_lake.table("t").insert({"id": next(numbers), "v": 0})
        any_lake.table("t").update({"v": il.expr("v + 1")}, "id >= 1000")

    failed = 0
    for nth in range(1, MANY):
        more(any_lake)
        before = picture(any_lake)
        with failing(prefix, nth=nth) as failure:
            try:
                dump(any_lake)
            except il.IndexLakeError:
                assert failure.fired is not None
        assert picture(any_lake) == before, f"{prefix} {nth} at {failure.fired}"
        if failure.fired is None:
            break
        failed += 1
    assert failed >= 4
    assert any_lake.table("t").stats().hot_rows == 0
    assert {s: _at(any_lake, s) for s in past} == past
    states = {job.state for job in any_lake.jobs()}
    assert "failed" in states
    assert states <= {"done", "failed", "lost"}
    errors = [job.error or "" for job in any_lake.jobs() if job.state == "failed"]
    assert all("error" in error.lower() for error in errors), errors


def _at(lake: il.Lake, snapshot: int) -> list[dict[str, Any]]:
    return sorted(lake.table("t").at(snapshot).scan().to_pylist(), key=lambda row: row["id"])


def test_an_expire_failed_at_each_statement_changes_nothing_that_a_reader_sees(any_lake: il.Lake) -> None:
    fill(any_lake)
    clock_of(any_lake).advance(days=7)

    def expire(any_lake: il.Lake) -> None:
        clock_of(any_lake).advance(seconds=1)
        any_lake.table("t").update({"v": il.expr("v + 1")}, "id in (1, 2, 202)")

    for nth in range(1, MANY):
        expire(any_lake)
        before = picture(any_lake)
        with failing("sql.", nth=nth) as failure:
            try:
                any_lake.pipeline().expire("t")
            except il.IndexLakeError:
                assert failure.fired is not None
        assert picture(any_lake) == before, f"sql. {nth} at {failure.fired}"
        if failure.fired is None:
            break
    assert any_lake.table("t").stats().superseded_hot_rows == 0


@pytest.mark.parametrize("prefix", ["sql.", "storage."])
def test_a_read_failed_at_each_call_raises_and_the_next_one_works(any_lake: il.Lake, prefix: str) -> None:
    fill(any_lake)
    reads: list[Operation] = [
        lambda any_lake: any_lake.table("t").scan("v >= 0").to_pylist(),
        lambda any_lake: any_lake.table("t").get(4),
        lambda any_lake: any_lake.table("t").get_many([1, 2, 203]),
        lambda any_lake: any_lake.table("t").at(any_lake.table("t").history()[2].snapshot_id).scan().count(),
    ]
    for read in reads:
        expected = read(any_lake)
        for nth in range(1, MANY):
            any_lake._files.clear()
            with failing(prefix, nth=nth) as failure:
                try:
                    found = read(any_lake)
                    assert found == expected
                except il.IndexLakeError:
                    assert failure.fired is not None
            if failure.fired is None:
                break
        assert read(any_lake) == expected


def test_connecting_failed_at_each_call_leaves_a_lake_or_none(tmp_path: Any) -> None:
    for prefix in ("sql.", "storage."):
        for nth in range(1, MANY):
            place = tmp_path / f"{prefix}{nth}"
            with failing(prefix, nth=nth) as failure:
                try:
                    il.connect(place, automatic=False).close()
                except il.IndexLakeError:
                    assert failure.fired is not None
            with il.connect(place, automatic=False) as again:
                assert again.create_table("t", SCHEMA).insert({"id": 1, "v": 1}).rows == 1
                assert (place / "files" / "indexlake.json").exists(), f"{prefix}{nth} at {failure.fired}"
            if failure.fired is None:
                break
