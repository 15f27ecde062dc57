"""The memory of a hot store is bounded: checkpoints make room in the background, and writers wait for them."""

from __future__ import annotations

import gc
import logging
import threading
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import indexlake as il
from indexlake.hot.memory import pressure
from tests.support.lakes import connect
from tests.support.waiting import wait_until

LIMIT = 4 << 20


def _open(folder: Path, **options: Any) -> il.Lake:
    return connect(folder, **{"hot": "memory", "hot_bytes": LIMIT, "automatic": True, "durability": "none", **options})


def _table(lake: il.Lake) -> il.Table:
    return lake.create_table("t", {"id": "int64", "v": "string"}, primary_key="id")


def _rows(first: int, count: int = 100) -> list[dict[str, Any]]:
    return [{"id": n, "v": "x" * 100} for n in range(first, first + count)]


def _fill_up(t: il.Table) -> None:
    for n in range(1000):
        t.insert(_rows(n * 100))


def _size(lake: il.Lake) -> int:
    return lake._hot.size  # type: ignore[attr-defined,no-any-return]


def test_a_few_large_values_do_not_pass_the_limit_unnoticed(tmp_path: Path) -> None:
    with _open(tmp_path / "lake") as lake:
        t = _table(lake)
        most = 0
        for n in range(12):
            t.insert({"id": n, "v": "x" * (LIMIT // 8)})
            most = max(most, _size(lake))
        assert most < LIMIT * 1.2
        assert len(t) == 12


@pytest.mark.parametrize("automatic", [False, True])
def test_superseded_versions_go_to_blocks_as_well(tmp_path: Path, automatic: bool) -> None:
    config = il.TableConfig(inline_row_count_limit=20)
    with connect(tmp_path / "lake", hot="memory", automatic=automatic) as lake:
        t = lake.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id", config=config)
        t.insert({"id": 1, "v": 0})
        for n in range(1, 50):
            t.update({"v": n}, "id = 1")
        if automatic:
            wait_until(lambda: t.stats().superseded_hot_rows < 20, "a dump in the background")
        else:
            lake.pipeline(runner="threads").run()
            assert t.stats().superseded_hot_rows == t.stats().hot_rows == 0
        assert t.to_pylist() == [{"id": 1, "v": 49}]
        assert len(t.changes(0).to_pylist()) == 1 + 2 * 49


def test_dropped_indexes_do_not_fill_the_memory(tmp_path: Path) -> None:
    with connect(tmp_path / "lake", hot="memory") as lake:
        t = lake.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id")
        t.insert([{"id": n, "v": n} for n in range(1_000)])
        sizes = [lake._hot.size]
        t.create_index("by_v", "v")
        sizes.append(lake._hot.size)
        with suppress(RuntimeError), lake.transaction() as tx:
            tx.table("t").drop_index("by_v")
            raise RuntimeError
        sizes.append(lake._hot.size)
        t.drop_index("by_v")
        assert sizes[0] < sizes[1] == sizes[2]
        assert lake._hot.size == sizes[0]


def test_dropped_tables_do_not_fill_the_memory(tmp_path: Path) -> None:
    """Their rows can be read at past snapshots until they expire, but not from memory."""
    seen = []
    with _open(tmp_path / "lake", retry_timeout=10) as lake:
        for k in range(8):
            t = lake.create_table(f"t{k}", {"id": "int64", "v": "string"}, primary_key="id")
            t.insert(_rows(0, 2_500))
            t.delete("id = 7")
            seen.append(lake.snapshot_id)
            lake.drop_table(t.name)
        assert _size(lake) < LIMIT
        assert [len(lake.at(n).table(f"t{k}")) for k, n in enumerate(seen)] == [2_499] * 8
        assert lake.at(seen[0]).table("t0").get(7) is None
        assert lake.at(seen[0]).table("t0").get(8) is not None
    with _open(tmp_path / "lake") as lake:
        lake.pipeline(runner="threads").dump()
        assert [len(lake.at(n).table(f"t{k}")) for k, n in enumerate(seen)] == [2_499] * 8
        lake.create_table("another", {"id": "int64"}).insert({"id": 1})
        lake.pipeline(runner="threads").dump("another")
        assert _size(lake) == 0
        lake.convert(hot="inline")
        assert [len(lake.at(n).table(f"t{k}")) for k, n in enumerate(seen)] == [2_499] * 8


def test_writers_that_outpace_the_limit_never_pass_it_by_much(tmp_path: Path) -> None:
    with _open(tmp_path / "lake") as lake:
        t = _table(lake)
        most = 0
        for n in range(600):
            t.insert(_rows(n * 100))
            most = max(most, _size(lake))
        assert most < LIMIT * 1.2
        assert most > LIMIT / 4
        assert len(t) == 60_000
        assert t.stats().blocks > 0
        assert t.get(59_999) is not None
    with _open(tmp_path / "lake") as again:
        assert len(again.table("t")) == 60_000


def test_a_checkpoint_that_fails_gives_writers_one_clear_error_in_time(
    tmp_path: Path, on_step: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    def fail(name: str) -> None:
        if name == "dump.written":
            raise il.StorageError("the disk is full")

    with _open(tmp_path / "lake", retry_timeout=0.5) as lake:
        t = _table(lake)
        on_step(fail)
        with pytest.raises(il.StorageError) as refused, caplog.at_level(logging.WARNING, "indexlake"):
            _fill_up(t)
        said = str(refused.value)
        assert said.startswith("Nothing was written: the newest rows take 4,")
        assert f"of hot_bytes={LIMIT:,}; the last checkpoint failed: the disk is full" in said
        assert "no memory was freed in 0.5 s" in said
        assert any("writers wait: the newest rows take" in record.message for record in caplog.records)
        waiting = [job for job in lake.jobs() if job.kind == "writers wait"]
        assert waiting
        assert "hot_bytes" in (waiting[0].error or "")
        count = len(t)
        assert t.get(count - 1) is not None
        t.delete("id = 0")  # what takes no memory goes on
        on_step(None)
        lake.pipeline(runner="threads").dump("t")
        t.insert(_rows(count))
        assert len(t) == count + 99
        t.insert([{"id": -n - 1, "v": ""} for n in range(20)])
        assert [job for job in lake.jobs() if job.kind == "writers wait"] == []


def test_without_background_work_the_error_says_what_to_call(tmp_path: Path) -> None:
    with _open(tmp_path / "lake", automatic=False, retry_timeout=0.1) as lake:
        t = _table(lake)
        with pytest.raises(il.StorageError, match=r"automatic=False: call lake\.pipeline\(\)\.dump\(\)"):
            _fill_up(t)
        lake.pipeline(runner="threads").dump("t")
        t.insert(_rows(len(t)))


def test_a_writer_that_is_stopped_goes_on_when_a_checkpoint_has_made_room(tmp_path: Path) -> None:
    with _open(tmp_path / "lake", automatic=False, retry_timeout=30) as lake:
        t, done = _table(lake), threading.Event()

        def write() -> None:
            for n in range(300):
                t.insert(_rows(n * 100))
            done.set()

        thread = threading.Thread(target=write)
        thread.start()
        while _size(lake) < LIMIT:
            time.sleep(0.01)
        assert not done.wait(0.2)
        while not done.wait(0.05):
            lake.pipeline(runner="threads").dump("t")
        thread.join()
        assert len(t) == 30_000


def test_rows_that_have_been_in_memory_for_a_while_go_to_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from indexlake.pipeline import maintenance

    monkeypatch.setattr(maintenance, "RETRY_SECONDS", 0.1)
    monkeypatch.setattr(pressure, "OLD_SECONDS", 0.5)
    with _open(tmp_path / "lake") as lake:
        t = _table(lake)
        t.insert(_rows(0, 10))
        assert t.stats().blocks == 0
        ends = time.monotonic() + 20
        while t.stats().blocks == 0 and time.monotonic() < ends:
            time.sleep(0.05)
        assert (t.stats().blocks, t.stats().hot_rows, len(t)) == (1, 0, 10)


def _bytes_of(folder: Path) -> int:
    """The bytes of the log's files, of which any may be deleted at this moment."""
    found = 0
    for file in folder.glob("*.log"):
        with suppress(FileNotFoundError):
            found += file.stat().st_size
    return found


def test_a_file_of_the_log_may_be_deleted_while_its_size_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint deletes files; whoever looks for what is due goes on."""
    with _open(tmp_path / "lake", hot_bytes=1 << 30) as lake:
        _table(lake).insert(_rows(0))
        late, numbers_of = tmp_path / "lake" / "redo" / "redo.1.999.log", pressure.numbers_of
        late.write_bytes(b"x" * 100)

        def deleted_now(name: str) -> Any:
            if name == late.name:
                late.unlink()
            return numbers_of(name)

        monkeypatch.setattr(pressure, "numbers_of", deleted_now)
        assert lake._pressure is not None
        assert lake._pressure.due() == []
        assert not late.exists()


def test_a_long_log_makes_all_rows_due_and_becomes_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from indexlake.pipeline import maintenance

    monkeypatch.setattr(maintenance, "RETRY_SECONDS", 0.1)
    monkeypatch.setattr(pressure, "LOG_BYTES", 1 << 20)
    with _open(tmp_path / "lake", hot_bytes=1 << 30) as lake:
        t = _table(lake)
        for n in range(150):
            t.insert(_rows(n * 100))
        folder, ends = tmp_path / "lake" / "redo", time.monotonic() + 60
        while (left := _bytes_of(folder)) > 1 << 20 and time.monotonic() < ends:
            time.sleep(0.05)
        assert left <= 1 << 20
        assert t.stats().blocks > 0


@pytest.mark.parametrize("wrong", [0, 1000, 1.5, True, "1 GiB"])
def test_a_limit_that_is_none_is_refused(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(il.SchemaError, match="hot_bytes must be a number of bytes"):
        connect(tmp_path / "lake", hot="memory", hot_bytes=wrong)


@pytest.mark.parametrize("columns", ["numbers", "texts", "nulls", "indexed"])
def test_the_estimate_is_near_what_is_taken(columns: str) -> None:
    types = {"numbers": "int64", "texts": "string", "nulls": "int64", "indexed": "int64"}
    values = {"numbers": lambda n: n, "texts": lambda n: f"{n:050}", "nulls": lambda n: None, "indexed": lambda n: n}
    with connect(":memory:", hot="memory") as lake:
        kind, value = types[columns], values[columns]
        t = lake.create_table("t", {"id": "int64", "a": kind, "b": kind, "c": kind}, primary_key="id")
        if columns == "indexed":
            t.create_index("by_a", "a")
        t.insert({"id": -1, "a": None, "b": None, "c": None})
        gc.collect()
        tracemalloc.start()
        before, estimated = tracemalloc.get_traced_memory()[0], _size(lake)
        for first in range(1000, 31_000, 500):
            numbers = range(first, first + 500)
            t.insert([{"id": n, "a": value(2 * n), "b": value(3 * n), "c": value(5 * n)} for n in numbers])
        lake.jobs()
        gc.collect()
        taken, estimated = tracemalloc.get_traced_memory()[0] - before, _size(lake) - estimated
        tracemalloc.stop()
    assert 0.7 < estimated / taken < 1.3


def test_what_the_catalog_is_not_told_of_does_not_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from indexlake.commit import log_section

    monkeypatch.setattr(log_section, "MOST_UNTOLD", 50)
    with connect(tmp_path / "lake", hot="memory", durability="none") as lake:
        t = lake.create_table("t", {"id": "int64"}, primary_key="id")
        store: Any = lake._hot
        for n in range(220):
            t.insert({"id": n}, token=f"token {n}")
            assert len(store.untold) <= 50
            assert len(store._tokens) <= 50
        assert t.insert({"id": 1000}, token="token 3").inserted == 1
        assert len(t) == 220
