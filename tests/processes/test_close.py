"""close(): what runs is finished or stopped, and nothing works afterwards."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.storage import faults
from tests.support.waiting import wait_until

CONFIG = il.TableConfig(inline_row_count_limit=500, direct_write_row_count=100_000, block_row_count=250)


@pytest.fixture
def steps() -> Iterator[list[str]]:
    """The steps that were passed; each written chunk of a dump takes a while."""
    passed: list[str] = []

    def slow(name: str) -> None:
        passed.append(name)
        if name == "dump.written":
            time.sleep(0.2)

    faults.install(slow)
    yield passed
    faults.install(None)


def _begin_dump(path: Path, steps: list[str]) -> il.Lake:
    lake = il.connect(path)
    t = lake.create_table("t", pa.schema([pa.field("id", pa.int64(), False)]), primary_key="id", config=CONFIG)
    t.insert([{"id": i} for i in range(2000)])
    wait_until(lambda: "dump.planned" in steps, "the automatic dump does not begin")
    return lake


def test_close_finishes_the_dump_that_runs(tmp_path: Path, steps: list[str]) -> None:
    lake = _begin_dump(tmp_path, steps)
    lake.close()
    with il.connect(tmp_path, automatic=False) as again:
        assert again.table("t").stats().hot_rows == 0
        assert [job.state for job in again.jobs() if job.kind == "dump"] == ["done"]
        assert len(again.table("t")) == 2000


def test_close_without_waiting_stops_the_dump_at_its_next_step(tmp_path: Path, steps: list[str]) -> None:
    lake = _begin_dump(tmp_path, steps)
    begun = time.monotonic()
    lake.close(wait=False)
    assert time.monotonic() - begun < 5
    with il.connect(tmp_path, automatic=False) as again:
        assert again.table("t").stats().hot_rows > 0
        (job,) = [job for job in again.jobs() if job.kind == "dump"]
        assert job.state == "cancelled"
        assert "nothing is lost" in (job.error or "")
        assert len(again.table("t")) == 2000


def test_every_use_after_close_raises_and_says_to_connect_again(filled_lake: il.Lake) -> None:
    t, scan, tx = filled_lake.table("t"), filled_lake.table("t").scan(), filled_lake.transaction()
    in_tx = tx.table("t")
    filled_lake.close()
    filled_lake.close()
    uses: list[Callable[[], Any]] = [
        lambda: filled_lake.snapshot_id, filled_lake.tables, filled_lake.namespaces, filled_lake.transaction,
        filled_lake.jobs, filled_lake.pipeline,
        lambda: filled_lake.table("t"), lambda: filled_lake.create_table("u", [{"x": 1}]), lambda: filled_lake.at(1),
        lambda: t.schema, lambda: len(t), lambda: t.get(1), lambda: t.insert({"id": -1, "name": ""}),
        lambda: t.update({"name": ""}, "id = 1"), lambda: t.delete("id = 1"), t.stats, t.history, scan.to_arrow,
        scan.count, tx.commit, lambda: in_tx.insert({"id": -1, "name": ""}), lambda: in_tx.get(1),
    ]  # fmt: skip
    for use in uses:
        with pytest.raises((il.OwnershipError, il.CatalogError), match=r"closed.*[Cc]onnect"):
            use()
    assert "closed" in repr(filled_lake)


def test_a_scan_that_is_being_read_survives_close(filled_lake: il.Lake) -> None:
    batches = filled_lake.table("t").scan().to_batches()
    first = next(batches)
    filled_lake.close()
    assert first.num_rows + sum(batch.num_rows for batch in batches) == 4010


def test_close_from_two_threads_at_once_is_harmless(tmp_path: Path, steps: list[str]) -> None:
    lake = _begin_dump(tmp_path, steps)
    threads = [threading.Thread(target=lake.close) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    with il.connect(tmp_path, automatic=False) as again:
        assert again.table("t").stats().hot_rows == 0


def test_writers_in_other_threads_get_an_error_or_are_committed_when_the_lake_closes(tmp_path: Path) -> None:
    lake = il.connect(tmp_path, automatic=False)
    t = lake.create_table("t", pa.schema([pa.field("id", pa.int64(), False)]), primary_key="id", config=CONFIG)
    acknowledged: list[int] = []
    odd: list[BaseException] = []

    def write(first: int) -> None:
        for n in range(first, first + 100_000):
            try:
                t.insert({"id": n})
                acknowledged.append(n)
            except (il.OwnershipError, il.CatalogError):
                return
            except BaseException as error:
                odd.append(error)
                return

    threads = [threading.Thread(target=write, args=(i * 1_000_000,)) for i in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    lake.close()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert odd == []
    with il.connect(tmp_path) as again:
        found = set(again.table("t").scan().to_arrow().column("id").to_pylist())
    assert set(acknowledged) == found
