"""A lake changes its hot store in one call: nothing is lost, the handle goes on, others notice."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import indexlake as il
from tests.support.lakes import Address, connect

OTHER = {"inline": "memory", "memory": "inline"}


@pytest.fixture
def open_lake(any_address: Address, tmp_path: Path) -> Callable[..., il.Lake]:
    return lambda **options: any_address.connect(log_dir=tmp_path / "log", **options)


def fill(lake: il.Lake) -> None:
    """Rows in blocks and hot ones, of several commits; updated and deleted ones in both; columns that came and went."""
    t = lake.create_table("t", {"id": "int64", "v": "int64", "gone": "string"}, primary_key="id")
    t.create_index("by_v", "v")
    t.insert([{"id": n, "v": 0, "gone": "x"} for n in range(20)])
    lake.pipeline(runner="threads").dump("t")
    t.update({"v": 1}, "id < 10")
    t.delete("id = 3")
    t.drop_column("gone")
    t.add_column("w", "string", default="new")
    t.insert([{"id": n, "v": 2} for n in range(20, 30)])
    t.update({"v": 3, "w": "hot"}, "id in (21, 22, 4)")
    t.delete("id = 25")
    with lake.transaction(token="once") as tx:
        tx.table("t").insert({"id": 100, "v": 100})
        tx.table("t").delete("id = 19")
    dropped = lake.create_table("dropped", {"id": "int64"})
    dropped.insert({"id": 7})
    lake.drop_table("dropped")


def everything(lake: il.Lake) -> dict[str, Any]:
    """What all snapshots show, and what changed."""
    t, last = lake.table("t"), lake.snapshot_id
    with_gone = next(n for n in range(last, 0, -1) if "main.dropped" in lake.at(n).tables())
    return {
        "rows": {
            n: sorted(t.at(n).scan(with_row_id=True).to_pylist(), key=lambda row: row["id"]) for n in range(2, last + 1)
        },
        "changes": t.changes(since=1).to_pylist(),
        "by key": [t.get(n) for n in (1, 3, 4, 19, 21, 25, 100)],
        "by index": sorted(row["id"] for row in t.scan("v = 3")),
        "dropped": lake.at(with_gone).table("dropped").to_pylist(),
    }


def same_past(before: dict[str, Any], now: dict[str, Any]) -> None:
    """The conversion is a commit more, which changes nothing."""
    rows = now["rows"]
    last = max(before["rows"])
    assert {n: rows[n] for n in before["rows"]} == before["rows"]
    assert all(rows[n] == before["rows"][last] for n in rows if n > last)
    assert {k: v for k, v in now.items() if k != "rows"} == {k: v for k, v in before.items() if k != "rows"}


@pytest.mark.parametrize("hot", ["inline", "memory"])
def test_a_converted_lake_has_every_row_of_every_snapshot(open_lake: Callable[..., il.Lake], hot: str) -> None:
    with open_lake(hot=hot) as lake:
        fill(lake)
        before = everything(lake)
        t = lake.table("t")
        lake.convert(hot=OTHER[hot])
        assert lake.hot == OTHER[hot]
        same_past(before, everything(lake))
        t.insert({"id": 200, "v": 200})  # the handle of before goes on
        t.update({"v": 201}, "id in (200, 20, 5)")
        assert t.get(20)["v"] == t.get(5)["v"] == t.get(200)["v"] == 201
        assert lake.table("t").insert({"id": 999, "v": 0}, token="once").snapshot_id <= max(before["rows"])
        with pytest.raises(il.DuplicateKeyError):
            t.insert({"id": 21, "v": 0})
        before = everything(lake)
    with open_lake() as again:
        assert again.hot == OTHER[hot]
        same_past(before, everything(again))
        again.pipeline(runner="threads").dump("t")
        same_past(before, everything(again))
        again.convert(hot=hot)
        same_past(before, everything(again))
        again.table("t").insert({"id": 300, "v": 300})
    with open_lake() as again:
        assert (again.hot, again.table("t").get(300)["v"]) == (hot, 300)


def test_to_inline_leaves_no_file_of_the_log_and_frees_the_folder(tmp_path: Path) -> None:
    with connect(tmp_path / "lake", hot="memory") as lake:
        fill(lake)
        lake.convert(hot="inline")
        assert os.listdir(tmp_path / "lake" / "redo") == ["owner.lock"]
        with connect(tmp_path / "lake") as second:  # many may open it now
            second.table("t").insert({"id": 500, "v": 5})
            assert lake.table("t").get(500)["v"] == 5


def test_the_hot_store_that_the_lake_has_changes_nothing(tmp_path: Path) -> None:
    with connect(tmp_path / "lake") as lake:
        before = lake.snapshot_id
        lake.convert(hot="inline")
        assert lake.snapshot_id == before
        with pytest.raises(il.SchemaError, match="hot is one of"):
            lake.convert(hot="elsewhere")


def test_on_postgres_memory_needs_a_folder_and_says_so_before_anything_happens(
    new_address: Callable[[str], Address], tmp_path: Path
) -> None:
    with new_address("postgres").connect() as lake:
        with pytest.raises(il.SchemaError, match="pass log_dir="):
            lake.convert(hot="memory")
        assert lake.hot == "inline"
        lake.convert(hot="memory", log_dir=tmp_path / "log")
        assert lake.hot == "memory"


def test_others_that_have_an_inline_lake_open_notice_and_write_nothing_beside_the_owner(
    any_address: Address, tmp_path: Path
) -> None:
    with any_address.connect(hot="inline") as other, any_address.connect() as lake:
        lake.create_table("t", {"id": "int64"}, primary_key="id")
        t, waiting = other.table("t"), other.transaction()
        waiting.table("t").insert({"id": 2})
        t.insert({"id": 1})  # its own commit is the newest that it knows
        assert t.get(1) == {"id": 1}
        lake.convert(hot="memory", log_dir=tmp_path / "log")
        lake.table("t").insert({"id": 3})
        for refused in (
            waiting.commit,
            lambda: t.insert({"id": 4}),
            lambda: t.get(1),
            lambda: t.scan().to_pylist(),
            lambda: other.sql("select * from t"),
            lambda: other.create_table("u", {"id": "int64"}),
            lambda: other.pipeline(runner="threads").dump("t"),
        ):
            with pytest.raises(il.OwnershipError, match=r"was changed with lake\.convert"):
                refused()
        assert sorted(row["id"] for row in lake.table("t")) == [1, 3]


@pytest.mark.parametrize("after", ["hot", "dump"])
@pytest.mark.parametrize("hots", [["inline", "memory"], ["memory", "inline"], ["memory", "inline", "memory"]])
def test_a_transaction_that_began_before_a_conversion_still_conflicts(
    open_lake: Callable[..., il.Lake], hots: list[str], after: str
) -> None:
    def update(t: il.Table) -> None:
        t.update({"v": 1}, "id = 1")

    def delete(t: il.Table) -> None:
        t.delete("id = 1")

    def lock(t: il.Table) -> None:
        t.scan("id = 1", for_update=True).to_pylist()
        t.insert({"id": 3, "v": 3})

    with open_lake(hot=hots[0]) as lake:
        t = lake.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        t.insert([{"id": 1, "v": 0}, {"id": 2, "v": 0}])
        transactions = []
        for write in (update, delete, lock):
            transactions.append(lake.transaction())
            write(transactions[-1].table("t"))
        t.update({"v": 2}, "id = 1")
        for hot in hots[1:]:
            lake.convert(hot=hot)
        if after == "dump":
            lake.pipeline(runner="threads").dump("t")
        for tx in transactions:
            with pytest.raises(il.ConflictError):
                tx.commit()
        assert sorted(t.to_pylist(), key=lambda row: row["id"]) == [{"id": 1, "v": 2}, {"id": 2, "v": 0}]


@pytest.mark.parametrize("hot", ["inline", "memory"])
def test_a_transaction_that_changes_rows_goes_on_after_a_dump_and_a_conversion(
    open_lake: Callable[..., il.Lake], hot: str
) -> None:
    with open_lake(hot=hot) as lake:
        t = lake.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        t.insert([{"id": n, "v": 0} for n in range(4)])
        update, delete = lake.transaction(), lake.transaction()
        update.table("t").update({"v": 1}, "id < 2")
        delete.table("t").delete("id = 3")
        lake.pipeline(runner="threads").dump("t")
        t.insert({"id": 5, "v": 0})
        lake.convert(hot=OTHER[hot])
        update.commit()
        delete.commit()
        t.update({"v": 2}, "id in (1, 5)")
        rows = sorted(t.to_pylist(), key=lambda row: row["id"])
        assert [(row["id"], row["v"]) for row in rows] == [(0, 1), (1, 2), (2, 0), (5, 2)]
        lake.pipeline(runner="threads").dump("t")
        lake.convert(hot=hot)
        assert sorted(t.to_pylist(), key=lambda row: row["id"]) == rows


@pytest.mark.parametrize("hot", ["inline", "memory"])
def test_sequences_go_on_after_a_conversion(open_lake: Callable[..., il.Lake], hot: str) -> None:
    columns, numbered = {"id": "int64", "n": "int64"}, {"n": il.expr("nextval('numbers')")}
    with open_lake(hot=hot) as lake:
        lake.sql("create sequence numbers")
        t = lake.create_table("t", columns, primary_key="id", defaults=numbered)
        t.insert({"id": 0})
        tx = lake.transaction()
        tx.sql("create sequence own start 100")
        own = tx.create_table("own", columns, primary_key="id", defaults={"n": il.expr("nextval('own')")})
        own.insert({"id": 0})
        tx.table("t").insert({"id": 1})
        lake.convert(hot=OTHER[hot])
        assert lake.sql("select currval('numbers')").scalar() == 2
        t.insert({"id": 2})
        own.insert({"id": 1})
        tx.commit()
        lake.table("own").insert({"id": 2})
        lake.convert(hot=hot)
        t.insert({"id": 3})
        lake.table("own").insert({"id": 3})
        assert [t.get(n)["n"] for n in range(4)] == [1, 2, 3, 4]
        assert [lake.table("own").get(n)["n"] for n in range(4)] == [100, 101, 102, 103]


@pytest.mark.parametrize("hot", ["inline", "memory"])
def test_threads_that_convert_at_the_same_time_convert_once(tmp_path: Path, hot: str) -> None:
    with connect(tmp_path / "lake", hot=hot) as lake:
        fill(lake)
        before, everyone = lake.snapshot_id, threading.Barrier(4)

        def convert() -> None:
            everyone.wait()
            lake.convert(hot=OTHER[hot])

        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(convert) for _ in range(4)]:
                done.result()
        assert lake.hot == OTHER[hot]
        assert lake.snapshot_id == before + 1


@pytest.mark.parametrize("hot", ["inline", "memory"])
def test_writers_and_readers_of_the_same_handle_go_on_while_it_is_converted(tmp_path: Path, hot: str) -> None:
    with connect(tmp_path / "lake", hot=hot) as lake:
        t = lake.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        stop, failed, written = threading.Event(), [], []

        def write(first: int) -> None:
            n = first
            try:
                while not stop.is_set():
                    t.insert({"id": n, "v": 0})
                    t.update({"v": 1}, f"id = {n}")
                    written.append(n)
                    n += 10
            except BaseException as error:
                failed.append(error)

        def read() -> None:
            try:
                while not stop.is_set():
                    known = len(written)
                    rows = {row["id"]: row["v"] for row in t.scan()}
                    assert all(rows.get(n) == 1 for n in written[:known])
                    if known:
                        assert t.get(written[known - 1]) is not None
                        assert lake.sql("select count(*) n from t").to_pylist()[0]["n"] >= known
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=write, args=(n,)) for n in range(3)] + [threading.Thread(target=read)]
        for thread in threads:
            thread.start()
        for n in range(6):
            count = len(written)
            while len(written) < count + 20 and not failed:
                stop.wait(0.01)
            lake.convert(hot=OTHER[hot] if n % 2 == 0 else hot)
        stop.set()
        for thread in threads:
            thread.join()
        assert failed == []
        assert {row["id"]: row["v"] for row in t.scan()} == dict.fromkeys(written, 1)
    with connect(tmp_path / "lake") as again:
        assert {row["id"]: row["v"] for row in again.table("t").scan()} == dict.fromkeys(written, 1)


_CONVERT = """
import sys
import indexlake as il
with il.connect(sys.argv[1], automatic=False) as lake:
    lake.convert(hot=sys.argv[2])
"""


@pytest.mark.parametrize(
    ("hot", "step"),
    [
        ("memory", "log.catalog"),
        ("memory", "convert.commit"),
        ("memory", "convert.committed"),
        ("memory", "convert.removed"),
        ("inline", "convert.commit"),
        ("inline", "convert.committed"),
        ("inline", "recovery.epoch"),
        ("inline", "recovery.listed"),
        ("inline", "recovery.done"),
    ],
)
def test_a_process_that_is_killed_while_it_converts_loses_nothing(tmp_path: Path, hot: str, step: str) -> None:
    with connect(tmp_path / "lake", hot=hot) as lake:
        fill(lake)
        before = everything(lake)
    after = hot if step in ("log.catalog", "convert.commit") else OTHER[hot]
    killed = subprocess.run(
        [sys.executable, "-c", _CONVERT, str(tmp_path / "lake"), OTHER[hot]],
        env={**os.environ, "INDEXLAKE_FAULTS": f"{step}=kill"},
    )
    assert killed.returncode == -9
    with connect(tmp_path / "lake") as lake:
        assert lake.hot == after
        same_past(before, everything(lake))
        lake.table("t").update({"v": 77}, "id in (1, 21)")
        lake.convert(hot=OTHER[hot])
        assert (lake.table("t").get(1)["v"], lake.table("t").get(21)["v"]) == (77, 77)
    with connect(tmp_path / "lake") as lake:
        assert lake.hot == OTHER[hot]
        assert (lake.table("t").get(1)["v"], lake.table("t").get(21)["v"]) == (77, 77)


def test_a_commit_of_the_conversion_that_fails_leaves_the_lake_as_it_was(
    tmp_path: Path, on_step: Callable[..., Any]
) -> None:
    def fail(name: str) -> None:
        if name == "convert.commit":
            raise il.CatalogError("injected")

    for hot in ("inline", "memory"):
        with connect(tmp_path / hot, hot=hot) as lake:
            fill(lake)
            before = everything(lake)
            on_step(fail)
            with pytest.raises(il.CatalogError, match="injected"):
                lake.convert(hot=OTHER[hot])
            on_step(None)
            assert lake.hot == hot
            same_past(before, everything(lake))
            lake.table("t").insert({"id": 1000, "v": 1})
            lake.convert(hot=OTHER[hot])
            assert lake.table("t").get(1000)["v"] == 1


def test_rows_of_the_log_survive_checkpoints_of_other_tables_after_a_conversion(
    open_lake: Callable[..., il.Lake],
) -> None:
    """The catalog holds the rows of the table that are older than the conversion, and only the log the newer ones."""
    with open_lake(hot="inline") as lake:
        t, other = [lake.create_table(name, {"id": "int64"}, primary_key="id") for name in ("t", "other")]
        t.insert({"id": 1})
        lake.convert(hot="memory")
        t.insert({"id": 2})
        other.insert({"id": 3})
        lake.pipeline(runner="threads").dump("other")
        t.insert({"id": 4})
    with open_lake() as lake:
        assert sorted(row["id"] for row in lake.table("t")) == [1, 2, 4]


def test_rows_of_the_log_survive_the_drop_of_a_table_that_was_converted(open_lake: Callable[..., il.Lake]) -> None:
    with open_lake(hot="inline") as lake:
        t, other = [lake.create_table(name, {"id": "int64"}, primary_key="id") for name in ("t", "other")]
        t.insert({"id": 1})
        lake.convert(hot="memory")
        t.insert({"id": 2})
        before = lake.snapshot_id
        lake.drop_table("t")
        other.insert({"id": 3})
        lake.pipeline(runner="threads").dump("other")
    with open_lake() as lake:
        assert sorted(row["id"] for row in lake.at(before).table("t")) == [1, 2]


def test_rows_of_the_catalog_that_were_deleted_after_a_conversion_stay_deleted(
    open_lake: Callable[..., il.Lake],
) -> None:
    """The catalog's own record of the row has no end, so the deletion must not be forgotten or taken for granted."""

    def tomorrow() -> int:
        return int((time.time() + 86_400) * 1e6)

    with open_lake(hot="inline", clock=tomorrow) as lake:
        t = lake.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id", config=il.TableConfig(retention=0))
        other = lake.create_table("other", {"id": "int64"})
        t.insert([{"id": n, "v": 0} for n in range(3)])
        lake.convert(hot="memory")
        before = lake.snapshot_id
        t.delete("id = 1")
        t.update({"v": 1}, "id = 2")
        other.insert({"id": 1})
        lake.pipeline(runner="threads").dump("other")
        lake.pipeline(runner="threads").expire("t")
        with open_lake(read_only=True) as beside:
            assert beside.snapshot_id == before
            assert sorted(row["id"] for row in beside.table("t")) == [0, 1, 2]
    with open_lake() as lake:
        t = lake.table("t")
        assert sorted(t.to_pylist(), key=lambda row: row["id"]) == [{"id": 0, "v": 0}, {"id": 2, "v": 1}]
        assert t.get(1) is None


def test_rows_that_were_converted_are_dumped_in_several_chunks_after_their_history_has_expired(
    open_lake: Callable[..., il.Lake],
) -> None:
    """A chunk may end before the horizon: what has ended since then up to it is forgotten, and must not come back."""
    config = il.TableConfig(retention=0, block_row_count=2)
    with open_lake(hot="inline", clock=lambda: int((time.time() + 86_400) * 1e6)) as lake:
        t = lake.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id", config=config)
        for n in range(6):
            t.insert({"id": n, "v": 0})
        t.delete("id = 0")
        lake.convert(hot="memory")
        t.update({"v": 1}, "id in (1, 5)")
        t.delete("id = 2")
        jobs = lake.pipeline(runner="threads")
        jobs.dump("t")
        lake.convert(hot="inline")
        for n in range(6, 12):
            t.insert({"id": n, "v": 0})
        t.delete("id = 6")
        t.update({"v": 2}, "id = 7")
        lake.convert(hot="memory")
        jobs.expire("t")
        before = lake.snapshot_id
        t.delete("id in (5, 8)")
        rows = sorted(t.to_pylist(), key=lambda row: row["id"])
        too_long = threading.Timer(60, jobs.cancel)
        too_long.start()
        jobs.dump("t")
        too_long.cancel()
        assert t.stats().hot_rows == 0
        assert sorted(t.to_pylist(), key=lambda row: row["id"]) == rows
        assert [row["id"] for row in rows] == [1, 3, 4, 7, 9, 10, 11]
        assert sorted(row["id"] for row in t.at(before)) == [1, 3, 4, 5, 7, 8, 9, 10, 11]
    with open_lake() as lake:
        assert sorted(lake.table("t").to_pylist(), key=lambda row: row["id"]) == rows
