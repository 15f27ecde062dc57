"""Clocks that are wrong: no commit is hidden, nothing is deleted too early, and nothing stays for ever."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.catalog import activity, clock, commits
from indexlake.catalog.clock import DAY, SECOND, now
from tests.support.lakes import clock_of

YEAR = 365 * DAY
SCHEMA = pa.schema({"id": pa.int64(), "v": pa.int64()})
databases = pytest.mark.parametrize("database", ["sqlite", "postgres"])
Connect = Callable[..., il.Lake]


@pytest.fixture
def connect(new_address: Any) -> Iterator[Connect]:
    """Handles to one lake, as processes have them; ``ahead`` is how wrong the clock of such a process is."""
    addresses: dict[str, Any] = {}
    with ExitStack() as stack:

        def one(database: str = "sqlite", ahead: int = 0) -> il.Lake:
            address = addresses.setdefault(database, new_address(database))
            lake: il.Lake = stack.enter_context(address.connect())
            set_clock(lake, ahead)
            return lake

        yield one


def set_clock(lake: il.Lake, ahead: int, *, machine: bool = False) -> None:
    """Of the process alone, or of the whole machine with its file system.  A server has a clock of its own."""
    if lake.catalog.database() == "sqlite":
        lake.catalog.clock.machine = lambda: now() + ahead  # type: ignore[attr-defined]
        if machine:
            lake.catalog.clock.file_time = lambda: now() + ahead  # type: ignore[attr-defined]


def create(lake: il.Lake) -> il.Table:
    config = il.TableConfig(direct_write_row_count=3, dump_format="ipc")
    return lake.create_table("t", SCHEMA, "id", config=config)


def dates(lake: il.Lake) -> dict[int, int]:
    with lake.catalog.read() as r:
        return dict(r.rows("select snapshot_id, committed_at from indexlake_snapshot"))


def seen_now(lake: il.Lake) -> int:
    return len(lake.at(time=datetime.now(UTC)).table("t"))


@pytest.mark.inline_only("only one process commits")
@databases
@pytest.mark.parametrize("ahead", [YEAR, 2 * 3600 * SECOND, -YEAR])
def test_a_process_whose_clock_is_wrong_hides_no_commit(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, database: str, ahead: int
) -> None:
    lake = connect(database)
    create(lake).insert({"id": 1, "v": 1})
    with monkeypatch.context() as m:
        m.setattr(clock, "now", lambda: now() + ahead)
        wrong = connect(database, ahead)
        with caplog.at_level(logging.WARNING, "indexlake"):
            wrong.table("t").insert({"id": 2, "v": 2})
            wrong.table("t").insert({"id": 3, "v": 3})
    assert len([r for r in caplog.records if "clock" in r.message]) == (database == "sqlite")
    lake.table("t").insert({"id": 4, "v": 4})
    assert max(dates(lake).values()) <= now()
    assert min(dates(lake).values()) > now() - 600 * SECOND
    assert seen_now(lake) == 4


@databases
def test_a_vacuum_whose_clock_is_ahead_leaves_the_files_of_open_transactions(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    lake = connect(database)
    create(lake)
    tx = lake.transaction()
    tx.table("t").insert([{"id": n, "v": n} for n in range(5)])
    monkeypatch.setattr(clock, "now", lambda: now() + YEAR)
    wrong = connect(database, YEAR)
    result = wrong.pipeline("threads").vacuum(dry_run=False)
    assert result.files == 0
    tx.commit()
    assert len(lake.table("t").scan().to_pylist()) == 5


def test_a_lake_that_was_idle_for_a_year_is_dated_as_it_is(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    lake = connect()
    create(lake).insert({"id": 1, "v": 1})
    set_clock(lake, YEAR, machine=True)
    with caplog.at_level(logging.WARNING, "indexlake"):
        lake.table("t").insert({"id": 2, "v": 2})
    assert abs(dates(lake)[lake.snapshot_id] - now() - YEAR) < 60 * SECOND
    assert seen_now(lake) == 1
    assert not caplog.records


def test_commits_of_a_machine_whose_clock_was_ahead_are_dated_again_by_the_next_one(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    lake = connect()
    t = create(lake)
    t.insert({"id": 1, "v": 1})
    good = dates(lake)
    set_clock(lake, YEAR, machine=True)
    t.insert({"id": 2, "v": 2}, token="ahead")
    t.insert({"id": 3, "v": 3})
    lake._maintenance.keep(lake.snapshot_id)
    lake._writer_id()
    assert max(dates(lake).values()) > now() + YEAR // 2
    set_clock(lake, 0, machine=True)
    with caplog.at_level(logging.WARNING, "indexlake"):
        t.insert({"id": 4, "v": 4})
    assert [r.message for r in caplog.records if "dated" in r.message] == [
        f"commits after snapshot {max(good)} were dated up to {YEAR // SECOND} s ahead of now, by a clock that was "
        "wrong; they are dated to now."
    ]
    found = dates(lake)
    assert {s: at for s, at in found.items() if s in good} == good
    assert max(found.values()) <= now()
    assert list(found.values()) == sorted(found.values())
    assert seen_now(lake) == 4
    with lake.catalog.read() as r:
        assert r.rows("select count(*) from indexlake_token where created_at > ?", (now() + 60 * SECOND,)) == [(0,)]
        for name in ("pin", "writer"):
            rows = r.rows(f"select expires_at from indexlake_{name}")
            assert rows
            assert max(rows)[0] <= now() + DAY + 60 * SECOND
    with caplog.at_level(logging.WARNING, "indexlake"):
        caplog.clear()
        t.insert({"id": 5, "v": 5})
    assert not caplog.records


@pytest.mark.inline_only("the horizon does not pass what is in memory alone")
def test_history_of_a_clock_that_was_ahead_is_kept_and_expires_in_time(connect: Connect) -> None:
    lake = connect()
    t = create(lake)
    t.insert({"id": 1, "v": 1})
    set_clock(lake, YEAR, machine=True)
    t.update({"v": 2}, "id = 1")
    set_clock(lake, 0, machine=True)
    t.update({"v": 3}, "id = 1")
    third = lake.snapshot_id
    clock_of(lake).advance(days=6)
    assert lake.pipeline("threads").expire("t")["main.t"].horizon < third - 2
    assert [t.at(third - n).get(1)["v"] for n in range(3)] == [3, 2, 1]
    clock_of(lake).advance(days=2)
    assert lake.pipeline("threads").expire("t")["main.t"].horizon >= third


def test_a_clock_that_is_behind_changes_no_date(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    lake = connect()
    t = create(lake)
    for month in range(4):
        set_clock(lake, month * 30 * DAY, machine=True)
        t.insert({"id": month, "v": month})
    before = dates(lake)
    set_clock(lake, 40 * DAY, machine=True)  # as a machine without a battery may begin
    with caplog.at_level(logging.WARNING, "indexlake"):
        t.insert({"id": 9, "v": 9})
    after = dates(lake)
    assert after.pop(lake.snapshot_id) == max(before.values())
    assert after == before
    assert "this clock, which seems to be behind" in caplog.text


def test_files_of_a_writer_that_is_taken_for_dead_have_the_grace_period_from_then_on(connect: Connect) -> None:
    """Also when the clock of the whole machine jumps: its writers are taken for dead, and lose no file."""
    lake = connect()
    create(lake)
    tx = lake.transaction()
    tx.table("t").insert([{"id": n, "v": n} for n in range(5)])
    other = connect()
    set_clock(other, YEAR, machine=True)
    result = other.pipeline("threads").vacuum(dry_run=False)
    assert (result.files, result.waiting) == (0, 2)
    with pytest.raises(il.StorageError, match="declared dead"):
        tx.commit()
    lake._maintenance._beat_once()
    with lake.transaction() as again:
        again.table("t").insert([{"id": n, "v": n} for n in range(5)])
    assert len(lake.table("t").scan().to_pylist()) == 5
    assert lake.pipeline("threads").vacuum(dry_run=False).waiting == 2  # from now on
    clock_of(lake).advance(days=1, minutes=1)
    assert lake.pipeline("threads").vacuum(dry_run=False).files == 2
    assert len(lake.table("t").scan().to_pylist()) == 5


@databases
def test_every_date_in_the_catalog_comes_from_one_clock(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    """Heartbeats, leases, pins, writers, tokens and garbage of a process whose own clock is wrong."""
    create(connect(database)).insert({"id": 1, "v": 1})
    monkeypatch.setattr(clock, "now", lambda: now() + YEAR)
    wrong = connect(database, YEAR)
    wrong.table("t").insert([{"id": n, "v": n} for n in range(10, 15)], token="once")
    wrong._maintenance.keep(wrong.snapshot_id)
    wrong._maintenance._beat_once()
    wrong.pipeline("threads").compact("t")
    clock_of(wrong).advance(days=2 * 365)
    wrong.pipeline("threads").expire("t")
    columns = {
        "snapshot": ["committed_at"], "token": ["created_at"], "writer": ["started_at", "expires_at"],
        "pin": ["expires_at"], "job": ["started_at", "heartbeat_at", "finished_at"],
    }  # fmt: skip
    with wrong.catalog.read() as r:
        for table, names in columns.items():
            for name in names:
                found = [at for (at,) in r.rows(f"select {name} from indexlake_{table} where {name} is not null")]
                assert found, f"no {table}.{name} was written"
                assert all(now() - 600 * SECOND < at <= now() + DAY for at in found), f"{table}.{name}"


@pytest.mark.inline_only("one thread reads the catalog inside its own transaction of it")
def test_a_pin_that_a_wrong_clock_made_does_not_hold_history_for_a_year(connect: Connect) -> None:
    lake = connect()
    t = create(lake)
    t.insert({"id": 1, "v": 1})
    set_clock(lake, YEAR, machine=True)
    with lake.catalog.transaction() as tx:
        activity.set_pin(tx, "of a process that died", commits.last_snapshot(tx)[0], "x", lake._now() + 60 * SECOND)
        tx.commit()
    t.update({"v": 2}, "id = 1")
    set_clock(lake, 0, machine=True)
    t.update({"v": 3}, "id = 1")
    with lake.catalog.read() as r:
        assert r.rows("select expires_at from indexlake_pin")[0][0] <= now() + DAY + 60 * SECOND


def test_the_time_of_a_snapshot_is_found_to_the_second(connect: Connect) -> None:
    lake = connect()
    t = create(lake)
    for day in range(5):
        set_clock(lake, day * DAY, machine=True)
        t.insert({"id": day, "v": day})
    start = datetime.now(UTC)
    assert [len(lake.at(time=start + timedelta(days=day, seconds=-30)).table("t")) for day in range(1, 5)] == [
        1,
        2,
        3,
        4,
    ]


@pytest.mark.inline_only("the horizon does not pass what is in memory alone")
def test_a_clock_of_the_caller_measures_ages_and_dates_nothing(tmp_path: Path) -> None:
    time = now()
    with il.connect(tmp_path / "lake", automatic=False, clock=lambda: time) as lake:
        t = create(lake)
        t.insert({"id": 1, "v": 1})
        first = lake.snapshot_id
        t.update({"v": 2}, "id = 1")
        assert lake.pipeline("threads").expire("t")["main.t"].horizon < first
        time += 8 * DAY
        t.update({"v": 3}, "id = 1")
        newest = lake.snapshot_id
        assert lake.pipeline("threads").expire("t")["main.t"].horizon == newest
        assert max(dates(lake).values()) < now() + SECOND
