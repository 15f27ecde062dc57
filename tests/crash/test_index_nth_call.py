"""The Nth SQL statement or storage call of an index job fails: every answer stays right, and a repeated call heals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.pipeline import build_index, merge_index
from tests.crash.failing import failing, picture

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.int64()), pa.field("note", pa.string())])
CONFIG = il.TableConfig(direct_write_row_count=10, block_row_count=100)
MANY = 600


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_index, "FOLD", 2)
    monkeypatch.setattr(build_index, "GROUP_ROWS", 25)


def rows(start: int, count: int) -> pa.Table:
    made = [{"id": n, "v": n * 3, "note": f"late w{n % 7}"} for n in range(start, start + count)]
    return pa.Table.from_pylist(made, SCHEMA)


def fill(lake: il.Lake) -> il.Table:
    t = lake.create_table("t", SCHEMA, primary_key="id", config=CONFIG)
    for n in range(2):
        t.insert(rows(n * 20, 20))
    t.delete("id in (5, 25)")
    t.update({"v": 1000}, "id = 7")
    return t


def _calls(lake: il.Lake, prefix: str) -> range:
    """Statements are many: every third on SQLite; those of PostgreSQL are the same, only slower."""
    return range(1, MANY, 1 if prefix == "storage." else 3 if lake.catalog.database() == "sqlite" else 11)


def answers_are_right(lake: il.Lake) -> None:
    """With look-ups, without them, and by search, if there is an index to search."""
    t = lake.table("t")
    everything = t.scan().to_pylist()
    assert len(everything) >= 38
    for use in ("always", "never"):
        lake._files.use_indexes = use
        for value in (15, 21, 63, 1000, 5):
            found = {r["id"] for r in t.scan("v = $v", params={"v": value}).to_pylist()}
            assert found == {r["id"] for r in everything if r["v"] == value}
    lake._files.use_indexes = "auto"
    if any(info.name == "text" for info in t.indexes()):
        found = {r["id"] for r in t.search("text", "w3", k=100).to_pylist()}
        assert found == {r["id"] for r in everything if r["note"].endswith("w3")}


def fail_at_each(
    lake: il.Lake, prefix: str, prepare: Callable[[], Any], act: Callable[[], Any], heal: Callable[[], Any]
) -> int:
    """The first call fails, then a later one, …, until it passes untouched; how many there were."""
    for nth in _calls(lake, prefix):
        prepare()
        before = picture(lake)
        with failing(prefix, nth=nth) as failure:
            try:
                act()
            except il.IndexLakeError:
                assert failure.fired is not None
        assert picture(lake) == before, f"{prefix} {nth} at {failure.fired}"
        answers_are_right(lake)
        if failure.fired is None:
            return nth - 1
        heal()
        answers_are_right(lake)
        for info in lake.table("t").indexes():
            assert info.state == "ready", f"{prefix} {nth} at {failure.fired}: {info}"
    raise AssertionError("it never ran untouched")


@pytest.mark.parametrize("prefix", ["sql.", "storage."])
@pytest.mark.parametrize("kind", ["btree", "unique", "bm25"])
def test_creating_an_index_failed_at_each_call_loses_nothing_and_the_next_try_completes_it(
    any_lake: il.Lake, prefix: str, kind: str
) -> None:
    if (kind, prefix) != ("unique", "sql.") and any_lake.catalog.database() == "postgres":
        pytest.skip("the same statements as on SQLite, only slower")
    t = fill(any_lake)

    def create() -> None:
        if kind == "bm25":
            t.create_index("text", "note", kind="bm25")
        else:
            t.create_index("by_v", "v", unique=kind == "unique")

    def prepare() -> None:
        for info in t.indexes():
            t.drop_index(info.name)

    failed = fail_at_each(any_lake, prefix, prepare, create, create)
    assert failed >= 4
    if kind == "unique":
        with pytest.raises(il.DuplicateKeyError):
            t.insert({"id": 100, "v": 3})
        prepare()
        t.insert({"id": 100, "v": 3})
        for nth in range(1, MANY, 11):
            with failing(prefix, nth=nth) as failure, pytest.raises(il.IndexLakeError) as raised:
                create()
            if failure.fired is None:
                break
            t.drop_index("by_v", missing_ok=True)
        assert isinstance(raised.value, il.DuplicateKeyError)
        assert t.indexes() == []


@pytest.mark.parametrize("prefix", ["sql.", "storage."])
def test_a_fold_failed_at_each_call_loses_nothing_and_the_next_one_completes_it(lake: il.Lake, prefix: str) -> None:
    t = fill(lake)

    def prepare() -> None:
        for info in t.indexes():
            t.drop_index(info.name)
        merge_index.FOLD = 1000
        t.create_index("by_v", "v")
        t.create_index("text", "note", kind="bm25")
        merge_index.FOLD = 2
        assert {info.segments for info in t.indexes()} == {2}

    def fold() -> None:
        lake._files.clear()
        lake.pipeline().merge_index("t")

    assert fail_at_each(lake, prefix, prepare, fold, fold) >= 4
    assert {info.segments for info in t.indexes()} == {1}


@pytest.mark.parametrize("prefix", ["sql.", "storage."])
def test_a_write_of_a_block_with_indexes_failed_at_each_call_changes_nothing_or_all(lake: il.Lake, prefix: str) -> None:
    t = fill(lake)
    t.create_index("by_v", "v", unique=True)
    t.create_index("text", "note", kind="bm25")
    for nth in _calls(lake, prefix):
        before = picture(lake)
        with failing(prefix, nth=nth) as failure:
            try:
                t.insert(rows(1000, 30))
            except il.IndexLakeError:
                assert failure.fired is not None
                assert picture(lake) == before, f"{prefix} {nth} at {failure.fired}"
        answers_are_right(lake)
        t.delete("id >= 1000")
        if failure.fired is None:
            break
    else:
        raise AssertionError("it never ran untouched")
