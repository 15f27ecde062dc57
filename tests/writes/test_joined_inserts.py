"""Threads that insert single rows at once share statements and commits, and each gets its own result or error."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from tests.support.threads import in_threads, is_heartbeat

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("thread", pa.int64(), False)])
SLOW = "sql.commit.before", "log.sync"
Steps = Callable[[Callable[[str], Any] | None], Any]


def wait_for_the_disk(step: str) -> None:
    if step in SLOW:
        time.sleep(0.002)


@pytest.fixture(params=["heap", "clustered"])
def table(request: pytest.FixtureRequest, any_lake: il.Lake) -> il.Table:
    return any_lake.create_table("t", SCHEMA, primary_key="id", layout=request.param)


def test_each_row_is_there_once_and_each_thread_gets_its_result(
    table: il.Table, any_lake: il.Lake, on_step: Steps
) -> None:
    begun = any_lake.snapshot_id
    on_step(wait_for_the_disk)

    def work(n: int) -> None:
        for i in range(30):
            key = n * 1000 + i
            result = table.insert({"id": key, "thread": n})
            assert (result.rows, result.inserted) == (1, 1)
            assert table.get(key) == {"id": key, "thread": n}, "an acknowledged row is visible"
            assert table.at(result.snapshot_id).get(key) is not None
            assert table.at(result.snapshot_id - 1).get(key) is None

    in_threads(8, work)
    expected = sorted(n * 1000 + i for n in range(8) for i in range(30))
    assert sorted(row["id"] for row in table) == expected
    changes = table.changes(since=begun).to_pylist()
    assert sorted(c["id"] for c in changes) == expected
    assert {c["_change_type"] for c in changes} == {"insert"}
    commits = [s for s in table.history() if s.operation == "insert"]
    assert len(commits) <= 0.6 * 240, "threads that wait are served together"


def test_whose_row_is_refused_fails_alone(table: il.Table, on_step: Steps) -> None:
    on_step(wait_for_the_disk)
    table.insert({"id": 7, "thread": -1})
    bad: list[tuple[dict[str, Any], type[il.IndexLakeError]]] = [
        ({"id": 7, "thread": 0}, il.DuplicateKeyError),
        ({"id": 50, "thread": None}, il.ConstraintError),
        ({"id": "fifty", "thread": 0}, il.ConstraintError),
        ({"id": 51, "thread": 0, "nosuch": 1}, il.SchemaError),
    ]

    def work(n: int) -> None:
        for i in range(10):
            if n < len(bad):
                row, kind = bad[n]
                with pytest.raises(kind):
                    table.insert(row)
            else:
                assert table.insert({"id": n * 1000 + i, "thread": n}).inserted == 1

    in_threads(8, work)
    assert sorted(row["id"] for row in table) == [7, *(n * 1000 + i for n in range(4, 8) for i in range(10))]


def test_a_value_whose_class_fails_concerns_its_own_thread_only(table: il.Table, on_step: Steps) -> None:
    on_step(wait_for_the_disk)

    class Failing:
        @property
        def __class__(self) -> Any:
            raise ZeroDivisionError

    def work(n: int) -> None:
        for i in range(20):
            if n == 0:
                with pytest.raises(ZeroDivisionError):
                    table.insert({"id": i, "thread": Failing()})
            else:
                assert table.insert({"id": n * 1000 + i, "thread": n}).inserted == 1

    in_threads(6, work)
    assert len(table) == 100


def test_a_thread_may_insert_while_it_inserts(any_lake: il.Lake, on_step: Steps) -> None:
    """A handler of log messages may keep them in the table that they are about."""
    table = any_lake.create_table("t", SCHEMA, primary_key="id")
    on_step(wait_for_the_disk)

    class Telling:
        def __init__(self, key: int) -> None:
            self.key = key

        @property
        def __class__(self) -> Any:
            with suppress(il.DuplicateKeyError):
                table.insert({"id": self.key, "thread": -1})
            return Telling

    def work(n: int) -> None:
        for i in range(10):
            with pytest.raises(il.ConstraintError):
                table.insert({"id": n * 100 + i, "thread": Telling(n * 100 + i)})

    in_threads(4, work)
    assert sorted(row["id"] for row in table) == [n * 100 + i for n in range(4) for i in range(10)]


def test_of_equal_keys_one_wins(table: il.Table, on_step: Steps) -> None:
    on_step(wait_for_the_disk)
    won: list[int] = []

    def work(n: int) -> None:
        for i in range(20):
            with suppress(il.DuplicateKeyError):
                table.insert({"id": i, "thread": n})
                won.append(i)

    in_threads(6, work)
    assert sorted(won) == list(range(20))
    assert len(table) == 20


def test_joined_rows_stay_hot_however_few_a_write_may_have(any_lake: il.Lake, on_step: Steps) -> None:
    table = any_lake.create_table("t", SCHEMA, primary_key="id", config=il.TableConfig(direct_write_row_count=3))
    on_step(wait_for_the_disk)
    in_threads(8, lambda n: [table.insert({"id": n * 100 + i, "thread": n}) for i in range(10)])
    assert table.stats().hot_rows == 80


def test_a_commit_that_fails_fails_for_all_and_inserts_nothing(any_lake: il.Lake, on_step: Steps) -> None:
    table = any_lake.create_table("t", SCHEMA, primary_key="id")
    failing = threading.Event()

    def fail(step: str) -> None:
        if step == "commit.applied" and failing.is_set() and not is_heartbeat():
            raise il.StorageError("The disk is gone.")
        wait_for_the_disk(step)

    on_step(fail)
    refused: list[int] = []
    accepted: list[int] = []

    def work(n: int) -> None:
        for i in range(30):
            if n == 0:
                (failing.set if 10 <= i < 20 else failing.clear)()
            try:
                table.insert({"id": n * 100 + i, "thread": n})
                accepted.append(n * 100 + i)
            except il.StorageError:
                refused.append(n * 100 + i)

    in_threads(8, work)
    failing.clear()
    assert refused
    assert sorted(row["id"] for row in table) == sorted(accepted)
    assert table.insert({"id": 10_000, "thread": 0}).inserted == 1


def test_when_the_thread_that_works_is_interrupted_the_others_are_told(any_lake: il.Lake, on_step: Steps) -> None:
    """Nobody waits for ever, nobody is told a row is there that is not, and inserts go on."""
    table = any_lake.create_table("t", SCHEMA, primary_key="id")
    commits = itertools.count()

    class Interrupt(BaseException):
        pass

    def interrupt(step: str) -> None:
        wait_for_the_disk(step)
        if step == "commit.begin" and next(commits) in (5, 11):
            raise Interrupt

    accepted: list[int] = []
    outcomes: list[BaseException] = []

    def work(n: int) -> None:
        for i in range(40):
            try:
                table.insert({"id": n * 100 + i, "thread": n})
                accepted.append(n * 100 + i)
            except (Interrupt, il.CatalogError) as error:
                outcomes.append(error)

    on_step(interrupt)
    in_threads(8, work)
    found = {row["id"] for row in table}
    assert set(accepted) <= found
    assert len(found) + len(outcomes) >= 320
    assert sum(isinstance(error, Interrupt) for error in outcomes) == 2
    assert any("not known" in str(error) for error in outcomes)
