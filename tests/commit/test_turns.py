"""Writers that compete for one row all get through, each once, and nobody else pays for it."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import indexlake as il
from indexlake.catalog import commits
from indexlake.commit import turns
from tests.commit import counters
from tests.commit.counters import TABLE
from tests.support.one_owner import other_processes
from tests.support.waiting import wait_until

SPAWN = multiprocessing.get_context("spawn")
databases = pytest.mark.parametrize("database", ["sqlite", "postgres"])


def total(lake: il.Lake) -> int:
    return int(lake.table(TABLE).get(1)["n"])


def reservations(lake: il.Lake) -> int:
    with lake.catalog.read() as r:
        return len(r.rows("select 1 from indexlake_locked where snapshot_id = ?", (commits.RESERVED,)))


@databases
@pytest.mark.parametrize(("threads", "times"), [(12, 8), (50, 2)])
def test_every_increment_of_a_hot_row_arrives_once(new_address: Any, database: str, threads: int, times: int) -> None:
    with new_address(database).connect(automatic=False) as lake:
        counters.create(lake)
        counters.add_in_threads(lake, threads, times, counters.add_by_statement)
        assert total(lake) == threads * times
        assert not lake._turns.wanted
        assert not reservations(lake)


@databases
def test_every_function_that_changes_a_hot_row_gets_through(new_address: Any, database: str) -> None:
    with new_address(database).connect(automatic=False) as lake:
        counters.create(lake)
        counters.add_in_threads(lake, 12, 4, counters.add_by_run)
        assert total(lake) == 12 * 4


@pytest.mark.parametrize(
    ("database", "processes", "threads"),
    [
        ("sqlite", 2, 6),
        ("postgres", 2, 4),
        pytest.param("sqlite", 8, 8, marks=pytest.mark.long),
        pytest.param("postgres", 8, 4, marks=pytest.mark.long),
    ],
)
def test_processes_take_turns_too(new_address: Any, database: str, processes: int, threads: int) -> None:
    address = new_address(database)
    with address.connect(automatic=False) as lake, other_processes(processes) as pool:
        counters.create(lake)
        running = [pool.submit(counters.in_process, asdict(address), threads, 10) for _ in range(processes)]
        for one in running:
            one.result(timeout=120)
        assert total(lake) == processes * threads * 10
        assert not reservations(lake)


@databases
@pytest.mark.inline_only("another process competes")
def test_a_slow_function_gets_through_against_fast_statements_of_another_process(
    new_address: Any, database: str, tmp_path: Path
) -> None:
    """They never lose to it, so they would never wait: the row is reserved for the one whose turn it is."""
    address, stop = new_address(database), tmp_path / "stop"
    with address.connect(automatic=False) as lake, other_processes(1) as pool:
        counters.create(lake)
        added = pool.submit(counters.until_told, asdict(address), str(stop))
        while not total(lake):
            time.sleep(0.01)
        tries = 0

        def slow(tx: il.Transaction) -> None:
            nonlocal tries
            tries += 1
            t = tx.table(TABLE)
            n = t.get(1)["n"]
            time.sleep(0.3)
            t.update({"n": n + 1}, "id = 1")

        try:
            lake.run(slow)
        finally:
            stop.touch()
        assert turns.FREE_LOSSES < tries <= turns.FREE_LOSSES + 3
        others = added.result(timeout=60)
        assert total(lake) == others + 1
        assert not reservations(lake)


@databases
@pytest.mark.inline_only("another process has the turn")
def test_a_turn_and_its_reservation_go_with_the_process_that_is_killed(
    new_address: Any, database: str, tmp_path: Path
) -> None:
    address, ready = new_address(database), tmp_path / "ready"
    with address.connect(automatic=False) as lake:
        counters.create(lake, rows=2)
        holder = SPAWN.Process(target=counters.hold_a_turn, args=(asdict(address), str(ready)), daemon=True)
        holder.start()
        wait_until(ready.exists, "the other process does not begin")
        assert reservations(lake) == 1
        lake.table(TABLE).update({"n": 7}, "id = 2")  # another row is free
        lake._turns.timeout = 0.3
        with pytest.raises(
            il.ConflictError, match=r"whose turn it is\. It waited 0\.\d s for its turn \(retry_timeout=0\.3;"
        ):
            counters.add_by_statement(lake)
        tx = lake.transaction()  # nobody can run it again: it waits at its commit
        tx.table(TABLE).update({"n": il.expr("n + 1")}, "id = 1")
        lake._turns.timeout = 60.0
        threading.Timer(0.3, holder.kill).start()
        tx.commit()
        assert total(lake) == 1
        assert not reservations(lake)
        holder.join()


def test_a_statement_that_never_gets_through_says_how_long_it_was_tried(tmp_path: Path) -> None:
    with il.connect(tmp_path / "lake", automatic=False, retry_timeout=0.5) as lake:
        t = counters.create(lake)

        def always_late(tx: il.Transaction) -> None:
            tx.table(TABLE).update({"n": 0}, "id = 1")
            t.update({"n": il.expr("n + 1")}, "id = 1")

        began = time.monotonic()
        with pytest.raises(
            il.ConflictError,
            match=r"were changed by commit \d+ after it began at \d+\. It was tried for 0\.\d s and lost \d+ times "
            r"\(retry_timeout=0\.5; a longer one gives it more time\)\.$",
        ):
            lake.run(always_late)
        assert 0.5 <= time.monotonic() - began < 5
        with pytest.raises(il.ConflictError, match=r"lost 1 times \(retry_timeout=0;"):
            lake.run(always_late, retry_timeout=0)
        with pytest.raises(il.ConflictError, match=r"lost 3 times \(retries=2\)\.$"):
            lake.run(always_late, retries=2)
        for wrong in (-1, "3", float("nan"), True):
            with pytest.raises(il.SchemaError, match=r"retry_timeout must be a number of seconds, zero or more"):
                lake.run(always_late, retry_timeout=wrong)  # type: ignore[arg-type]
            with pytest.raises(il.SchemaError, match=r"retry_timeout must be a number of seconds"):
                il.connect(tmp_path / "none", retry_timeout=wrong)  # type: ignore[arg-type]
        assert not (tmp_path / "none").exists()


def test_turns_cost_nothing_as_long_as_nobody_loses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with il.connect(tmp_path / "lake", automatic=False) as lake:
        counters.create(lake)

        def refuse(*_: Any) -> Any:
            raise AssertionError("nobody has lost yet")

        monkeypatch.setattr(lake.catalog, "turn", refuse)
        monkeypatch.setattr(turns.Turns, "check", refuse)
        monkeypatch.setattr(turns.Turn, "lost", refuse)
        counters.add_by_statement(lake)
        counters.add_by_run(lake)
        assert total(lake) == 2
    assert not [name for name in os.listdir(tmp_path / "lake") if "turn" in name]


def test_statements_inside_a_function_whose_turn_it_is_do_not_wait_for_it(tmp_path: Path) -> None:
    with il.connect(tmp_path / "lake", automatic=False, retry_timeout=20) as lake:
        t = counters.create(lake, rows=3)
        tries = 0

        def nested(tx: il.Transaction) -> None:
            nonlocal tries
            tries += 1
            tx.table(TABLE).update({"n": tries}, "id = 1")
            if tries < 6:
                t.update({"n": il.expr("n + 1")}, "id in (1, 2)")
                lake.run(lambda inner: inner.table(TABLE).update({"n": il.expr("n + 1")}, "id in (1, 3)"))
                with lake.transaction() as own:
                    own.table(TABLE).update({"n": 0}, "id = 1")

        began = time.monotonic()
        lake.run(nested)
        assert time.monotonic() - began < 10
        assert [row["n"] for row in t.scan(order_by=["id"]).to_pylist()] == [6, 5, 5]
        assert not lake._turns.wanted
        assert not reservations(lake)


def test_functions_that_lose_on_several_tables_do_not_wait_for_each_other_in_a_circle(tmp_path: Path) -> None:
    with il.connect(tmp_path / "lake", automatic=False, retry_timeout=25) as lake:
        names = [f"t{n}" for n in range(4)]
        for name in names:
            lake.create_table(name, counters.SCHEMA, primary_key="id").insert({"id": 1, "n": 0})
        order = threading.local()
        numbers = iter(range(100))

        def add(lake: il.Lake) -> None:
            if not hasattr(order, "names"):
                n = next(numbers)
                order.names = names[n % 4 :] + names[: n % 4]
                order.names = order.names[:: 1 if n % 2 else -1]

            def all_of_them(tx: il.Transaction) -> None:
                for name in order.names:
                    tx.table(name).update({"n": il.expr("n + 1")}, "id = 1")

            lake.run(all_of_them)

        counters.add_in_threads(lake, 8, 6, add)
        assert [lake.table(name).get(1)["n"] for name in names] == [48] * 4


def test_a_function_that_truncates_gets_through_against_inserts(tmp_path: Path) -> None:
    with il.connect(tmp_path / "lake", automatic=False) as lake:
        t = counters.create(lake)
        sums = lake.create_table("sums", counters.SCHEMA)
        stop = threading.Event()
        inserted = [0, 0]

        def insert(me: int) -> None:
            while not stop.is_set():
                t.insert({"id": 1_000_000 * (me + 1) + inserted[me], "n": 1})
                inserted[me] += 1

        def settle(tx: il.Transaction) -> None:
            found = sum(row["n"] for row in tx.table(TABLE).scan().to_pylist())
            time.sleep(0.1)
            tx.table("sums").insert({"id": 0, "n": found})
            tx.table(TABLE).truncate()

        threads = [threading.Thread(target=insert, args=(n,)) for n in range(2)]
        for thread in threads:
            thread.start()
        try:
            lake.run(settle)
            lake.run(settle)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        lake.run(settle)
        assert sum(row["n"] for row in sums.scan().to_pylist()) == sum(inserted)


def test_an_interrupted_wait_leaves_the_queue_in_order(tmp_path: Path) -> None:
    with il.connect(tmp_path / "lake", automatic=False) as lake:
        counters.create(lake)
        lock = lake.catalog.turn(lake.table(TABLE)._table_id % turns.SLOTS)
        assert lock.acquire(1)
        failures: list[BaseException] = []

        def interrupted(tx: il.Transaction) -> None:
            raise KeyboardInterrupt

        def wait() -> None:
            try:
                with turns.Turn(lake._turns) as turn:
                    tx = lake.transaction()
                    tx.table(TABLE).update({"n": 1}, "id = 1")
                    turn.take(list(tx.write_set.tables), tx.write_set, il.ConflictError("lost"))
                    interrupted(tx)
            except KeyboardInterrupt as error:
                failures.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.1)
        lock.release()
        thread.join()
        assert failures
        assert not lake._turns.wanted
        counters.add_in_threads(lake, 4, 5, counters.add_by_statement)
        assert total(lake) == 20
