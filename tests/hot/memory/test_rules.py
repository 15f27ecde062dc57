"""The rules of the memory store, one scenario each, and proof that the scenario fails without the rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.commit import effects
from indexlake.commit.log_section import LogSequencer
from indexlake.hot.memory.page import Page
from indexlake.hot.memory.store import MemoryStore
from indexlake.hot.memory.view import MemoryTable
from indexlake.pipeline.dump import commit_chunk, plan_chunk, run_task
from indexlake.pipeline.job import Job
from indexlake.storage import faults
from tests.support.grouped import together
from tests.support.lakes import connect

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.int64())])


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[il.Lake]:
    with connect(tmp_path / "lake", hot="memory") as lake:
        config = il.TableConfig(direct_write_row_count=1000)
        lake.create_table("t", SCHEMA, "id", config=config)
        yield lake


def rows(lake: il.Lake) -> dict[int, int]:
    found = [(row["id"], row["v"]) for row in lake.table("t").scan().to_pylist()]
    assert len(found) == len(dict(found)), "a row twice"
    return dict(found)


# ---------------------------------------------------------------- the scenarios


def two_of_a_group_change_one_row(lake: il.Lake) -> None:
    t = lake.table("t")
    t.insert({"id": 1, "v": 0})

    def change() -> None:
        with lake.transaction() as tx:
            tx.table("t").update({"v": tx.table("t").get(1)["v"] + 1}, "id = 1")

    _, *results = together(lake, lambda: t.insert({"id": 9, "v": 9}), change, change)
    assert sorted(isinstance(r, il.ConflictError) for r in results) == [False, True], results
    assert rows(lake) == {1: 1, 9: 9}


def two_of_a_group_insert_one_key(lake: il.Lake) -> None:
    t = lake.table("t")
    _, *results = together(lake, *(lambda n=n: t.insert({"id": max(n, 1), "v": n}) for n in (9, 0, 1)))
    assert [type(r) for r in results] == [il.WriteResult, il.DuplicateKeyError], results
    assert rows(lake) == {1: 0, 9: 9}


def two_of_a_group_have_one_token(lake: il.Lake) -> None:
    t = lake.create_table("keyless", SCHEMA)
    tokens = ("first", "once", "once")
    _, one, other = together(lake, *(lambda token=token: t.insert({"id": 1, "v": 1}, token=token) for token in tokens))
    assert one == other
    assert len(t) == 2


def a_checkpoint_comes_while_somebody_reads(lake: il.Lake) -> None:
    t = lake.table("t")
    t.insert([{"id": n, "v": n} for n in range(5)])
    with t._reading() as before:
        lake.pipeline().dump("t")
        assert before.hot.count() == 5, "their state has no block"
        with t._reading() as after:
            assert after.hot.count() == 0
        assert before.hot.row((3,)) is not None, "pages stay while somebody needs them"
    assert rows(lake) == {n: n for n in range(5)}


def a_state_is_offered_late(lake: il.Lake) -> None:
    """One thread reads the catalog slowly; meanwhile another deletes a row of a block."""
    t = lake.table("t")
    t.insert([{"id": n, "v": n} for n in range(5)])
    lake.pipeline().dump("t")
    states, late = lake._readings.states, lake._readings.latest(t._table_id)
    states.forget(t._table_id)
    t.delete("id = 3")
    states.forget(t._table_id)
    states.offer(late)
    assert rows(lake) == {0: 0, 1: 1, 2: 2, 4: 4}


def a_commit_fails_after_it_has_written(lake: il.Lake) -> None:
    t = lake.table("t")
    t.insert([{"id": 1, "v": 1}, {"id": 2, "v": 2}])

    def fail(step: str) -> None:
        if step == "commit.applied":
            raise OSError("here")

    before = faults.install(fail)
    try:
        tx = lake.transaction()
        tx.table("t").update({"v": 9}, "id = 1")
        tx.table("t").insert({"id": 3, "v": 3})
        with pytest.raises(OSError, match="here"):
            tx.commit()
    finally:
        faults.install(before)
    lake.create_table("another", SCHEMA).insert({"id": 1, "v": 1})  # it takes the number
    assert rows(lake) == {1: 1, 2: 2}
    t.insert({"id": 3, "v": 4})
    assert rows(lake) == {1: 1, 2: 2, 3: 4}
    assert t.scan("id = 3").to_pylist() == [{"id": 3, "v": 4}]


def a_row_changes_twice_while_its_chunk_is_written(lake: il.Lake) -> None:
    t = lake.table("t")
    since = lake.snapshot_id
    t.insert({"id": 1, "v": 0})
    task = plan_chunk(lake, t._table_id, history=False)
    assert task is not None
    blocks = run_task(lake.storage, task, lambda: None)
    t.update({"v": 1}, "id = 1")
    t.update({"v": 2}, "id = 1")
    with Job(lake, "dump", t._table_id) as job:
        assert commit_chunk(lake, job, task, blocks)
    assert rows(lake) == {1: 2}
    found = [(row["_change_type"], row["v"]) for row in t.changes(since).to_pylist()]
    ends, begins = "update_preimage", "update_postimage"
    assert found == [("insert", 0), (ends, 0), (begins, 1), (ends, 1), (begins, 2)]


SCENARIOS: list[Callable[[il.Lake], None]] = [
    two_of_a_group_change_one_row, two_of_a_group_insert_one_key, two_of_a_group_have_one_token,
    a_checkpoint_comes_while_somebody_reads, a_state_is_offered_late, a_commit_fails_after_it_has_written,
    a_row_changes_twice_while_its_chunk_is_written,
]  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.__name__)
def test_it_holds_when(lake: il.Lake, scenario: Callable[[il.Lake], None]) -> None:
    scenario(lake)


# ---------------------------------------------------------------- each rule switched off


class Forgetful(dict[int, int]):
    def __setitem__(self, table_id: int, number: int) -> None:
        """It is not marked."""


def without_marks(patch: pytest.MonkeyPatch, lake: il.Lake) -> None:
    patch.setattr(lake._hot, "marked", Forgetful())


def without_moved(patch: pytest.MonkeyPatch, lake: il.Lake) -> None:
    visible = Page.visible
    patch.setattr(Page, "visible", lambda self, snapshot, at: visible(self, snapshot, -1))


def without_readers(patch: pytest.MonkeyPatch, lake: il.Lake) -> None:
    def purge(self: MemoryStore, tx: Any, table: Any, limit: int) -> int:
        return self.versions(table.table_id).release(self.visible, table.horizon)

    patch.setattr(MemoryStore, "purge", purge)


def without_undo(patch: pytest.MonkeyPatch, lake: il.Lake) -> None:
    patch.setattr(MemoryStore, "undo", lambda *_: None)


def without_the_group(patch: pytest.MonkeyPatch, lake: il.Lake) -> None:
    patch.setattr(LogSequencer, "first_conflict", lambda self, *what: self._store.conflict(*what))


def without_pending_keys(patch: pytest.MonkeyPatch, lake: il.Lake) -> None:
    holders = MemoryTable.holders

    def visible(self: MemoryTable, *what: Any, indexed: bool) -> Any:
        return [row for row in holders(self, *what, indexed=indexed) if row.begin <= self._store.visible]

    patch.setattr(MemoryTable, "holders", visible)


def without_pending_tokens(patch: pytest.MonkeyPatch, lake: il.Lake) -> None:
    patch.setattr(LogSequencer, "result_of", lambda self, token: self._store.token(token))


def with_every_touch(patch: pytest.MonkeyPatch, lake: il.Lake) -> None:
    first = effects.touched_positions

    def every(touched: Any, block: Any) -> Any:
        return [each for some in touched for each in first([some], block)]

    patch.setattr(effects, "touched_positions", every)


MUTANTS = {
    with_every_touch: a_row_changes_twice_while_its_chunk_is_written,
    without_marks: a_state_is_offered_late,
    without_moved: a_checkpoint_comes_while_somebody_reads,
    without_readers: a_checkpoint_comes_while_somebody_reads,
    without_undo: a_commit_fails_after_it_has_written,
    without_the_group: two_of_a_group_change_one_row,
    without_pending_keys: two_of_a_group_insert_one_key,
    without_pending_tokens: two_of_a_group_have_one_token,
}


@pytest.mark.parametrize(("rule", "scenario"), list(MUTANTS.items()), ids=lambda f: f.__name__)
def test_it_does_not_hold(lake: il.Lake, rule: Any, scenario: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rule(monkeypatch, lake)
    with pytest.raises((AssertionError, ValueError)):
        scenario(lake)
