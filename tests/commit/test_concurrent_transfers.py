"""Money moves between rows in threads and processes while dumps run: nothing is lost, at any snapshot."""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import asdict
from typing import Any

import pytest

import indexlake as il
from tests.commit.bank import ACCOUNTS, START, TABLE, Record, open_bank, tellers, work
from tests.commit.history_checker import anomalies
from tests.support.one_owner import in_memory, other_processes

SEED = int(os.environ.get("INDEXLAKE_SEED", "20261115"))


def test_transfers_in_processes_and_threads_while_dumps_run(any_address: Any) -> None:
    stop = threading.Event()
    dumped: list[int] = []
    with any_address.connect() as lake:
        t = open_bank(lake, inline_row_count_limit=60, block_row_count=25)
        first = lake.snapshot_id

        def dump() -> None:
            while not stop.is_set():
                with contextlib.suppress(il.JobError):  # another process is at it
                    dumped.append(lake.pipeline().dump(TABLE)[TABLE].blocks)
                stop.wait(0.05)

        dumper = threading.Thread(target=dump)
        dumper.start()
        with other_processes(2) as pool:
            others = [pool.submit(work, asdict(any_address), f"process {n}", 2, 12, SEED) for n in range(2)]
            records = tellers(lake, "main", 2, 12, SEED)
            for other in others:
                records += other.result(timeout=200)
        stop.set()
        dumper.join()
        assert sum(dumped) >= 1, "a dump ran meanwhile"
        _check(t, records, first)
        lake.pipeline().dump()
        _check(t, records, first)
    with any_address.connect() as lake:
        _check(lake.table(TABLE), records, first)


def _check(t: il.Table, records: list[Record], first: int) -> None:
    found = anomalies(records, first)
    assert not found, (f"seed {SEED}", found[:10])
    committed = sorted((r for r in records if r.commit is not None and r.writes), key=lambda r: r.commit or 0)
    assert len(committed) >= 35
    last = dict.fromkeys(range(ACCOUNTS), "initial")
    by_commit = {r.commit: r for r in committed}
    snapshots = [s.snapshot_id for s in t.history() if s.snapshot_id >= first]
    assert set(by_commit) <= set(snapshots), "an acknowledged commit is not in the history"
    assert len(snapshots) == len(committed) + 1, "a commit that nobody was told of"
    checked = set(snapshots[:: max(1, len(snapshots) // 40)]) | {snapshots[-1]}
    for snapshot in snapshots:
        if snapshot in by_commit:
            last |= dict.fromkeys(by_commit[snapshot].writes, by_commit[snapshot].tag)
        if snapshot in checked:
            rows = t.at(snapshot).scan().to_pylist()
            assert sum(r["balance"] for r in rows) == ACCOUNTS * START, snapshot
            assert {r["id"]: r["writer"] for r in rows} == last, snapshot
    assert {r["id"]: r["writer"] for r in t.scan().to_pylist()} == last


@pytest.mark.parametrize("hot", ["inline", "memory"])
def test_transfers_while_the_hot_store_dumps_itself(
    new_address: Any, hot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if hot == "memory":
        in_memory(monkeypatch)
    address = new_address("sqlite")
    with address.connect(automatic=True) as lake:
        t = open_bank(lake, inline_row_count_limit=30, block_row_count=20)
        first = lake.snapshot_id
        records = tellers(lake, "main", 4, 25, SEED)
        _check(t, records, first)
    with address.connect() as lake:
        jobs = {(job.kind, job.state) for job in lake.jobs()}
        assert {state for _, state in jobs} <= {"done", "cancelled"}
        assert not {("dump", "cancelled"), ("expire", "cancelled")} & jobs  # closing does not wait for the others
        assert any(job.kind == "dump" for job in lake.jobs())
        _check(lake.table(TABLE), records, first)
