"""Merges and other commits, interleaved by hand: what was absent must be so at the commit, and jobs disturb nobody."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.commit.group import ROUNDS_OUTSIDE, _Ticket
from indexlake.storage import faults
from tests.support.lakes import clock_of

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("v", pa.int64())])
CONFIG = il.TableConfig(direct_write_row_count=3, block_row_count=10)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def lakes(request: pytest.FixtureRequest, new_address: Any) -> Iterator[tuple[il.Lake, il.Lake]]:
    """Two open handles of one lake, as two processes would have."""
    address = new_address(request.param)
    with address.connect() as one, address.connect() as two:
        yield one, two


@pytest.fixture
def table(lakes: tuple[il.Lake, il.Lake]) -> il.Table:
    """Without a primary key: nothing but the merge keeps names apart."""
    t = lakes[0].create_table(f"m.t{uuid.uuid4().hex}", SCHEMA, config=CONFIG)
    t.insert([{"id": 1, "name": "old", "v": 0}])
    lakes[0].pipeline().dump(t.name)
    t.insert([{"id": 2, "name": "hot", "v": 0}])
    return t


def merge(t: il.Table, *names: str | None) -> Any:
    """Count names: add 1 to those that are there, add the others."""
    rows = pa.table({"name": pa.array(names, pa.string()), "v": [1] * len(names)})
    return t.merge(rows, on="name").when_matched_update({"v": il.expr("t.v + s.v")}).when_not_matched_insert().execute()


def names(t: il.Table) -> dict[str, int]:
    found = t.scan(columns=["name", "v"]).to_pylist()
    assert len({row["name"] for row in found}) == len(found), f"a name is there twice: {found}"
    return {row["name"]: row["v"] for row in found}


def insert(t: il.Table) -> None:
    t.insert({"name": "x", "v": 10})


def insert_block(t: il.Table) -> None:
    t.insert([{"name": name, "v": 10} for name in ("x", "y", "z")])


def insert_and_dump(t: il.Table) -> None:
    t.insert({"name": "x", "v": 10})
    t._lake.pipeline().dump(t.name)


def rename(t: il.Table) -> None:
    t.update({"name": "x"}, "name = 'old'")


def rename_and_dump(t: il.Table) -> None:
    t.update({"name": "x"}, "name = 'hot'")
    t._lake.pipeline().dump(t.name)


def merge_it(t: il.Table) -> None:
    merge(t, "x")


@pytest.mark.parametrize("other", [insert, insert_block, insert_and_dump, rename, rename_and_dump, merge_it])
def test_the_first_to_add_a_value_wins_and_the_other_conflicts(
    lakes: tuple[il.Lake, il.Lake], table: il.Table, other: Callable[[il.Table], None]
) -> None:
    tx = lakes[0].transaction()
    assert merge(tx.table(table.name), "x").inserted == 1
    other(lakes[1].table(table.name))
    after = names(table)
    with pytest.raises(il.ConflictError, match="added rows") as caught:
        tx.commit()
    assert caught.value.retryable
    assert names(table) == after


@pytest.mark.parametrize("other", [insert, insert_block, insert_and_dump, rename, rename_and_dump, merge_it])
def test_a_single_merge_that_loses_is_run_again_and_then_matches(
    lakes: tuple[il.Lake, il.Lake], table: il.Table, other: Callable[[il.Table], None]
) -> None:
    with at_step("commit.begin", lambda: other(lakes[1].table(table.name))):
        result = merge(table, "x", "w")
    assert (result.inserted, result.updated) == (1, 1)
    assert names(table)["x"] in (1, 2, 11)
    assert names(table)["w"] == 1


class at_step:  # noqa: N801 (reads as a statement)
    """Do something when a step is passed for the first time, in this thread."""

    def __init__(self, step: str, action: Callable[[], None], times: int = 1) -> None:
        self.step, self.action, self.left = step, action, times
        self.busy = False
        self.thread = threading.get_ident()

    def __enter__(self) -> at_step:
        self.previous = faults.install(self)
        return self

    def __exit__(self, *_: object) -> None:
        faults.install(self.previous)

    def __call__(self, step: str) -> None:
        if step == self.step and self.left and not self.busy and threading.get_ident() == self.thread:
            self.busy = True
            self.left -= 1
            self.action()
            self.busy = False


@pytest.mark.parametrize("dumped", [False, True])
def test_what_does_not_concern_the_values_does_not_conflict(
    lakes: tuple[il.Lake, il.Lake], table: il.Table, dumped: bool
) -> None:
    one, two = lakes
    tx = one.transaction()
    merge(tx.table(table.name), "x", None)
    other = two.table(table.name)
    other.insert([{"name": "y", "v": 5}, {"name": None, "v": 5}])
    other.insert([{"name": name, "v": 5} for name in ("p", "q", "r")])
    other.update({"v": 7}, "name = 'old'")
    other.insert({"name": "x", "v": 5})
    other.delete("name = 'x'")  # it came and went
    if dumped:
        two.pipeline().dump(table.name)
    tx.commit()
    assert table.scan("name = 'x'").to_pylist() == [{"id": None, "name": "x", "v": 1}]
    assert table.scan("name is null").count() == 2


def test_a_job_that_moves_rows_between_merge_and_commit_disturbs_nothing(
    lakes: tuple[il.Lake, il.Lake], table: il.Table
) -> None:
    one, two = lakes
    tx = one.transaction()
    merge(tx.table(table.name), "x", "hot", "old")
    two.pipeline().dump(table.name)
    tx.commit()
    assert names(table) == {"old": 1, "hot": 1, "x": 1}


@pytest.mark.inline_only("counts the rounds; one more goes to the log")
def test_new_blocks_in_every_round_are_looked_at_inside_the_section_at_last(
    lakes: tuple[il.Lake, il.Lake], table: il.Table
) -> None:
    other = lakes[1].table(table.name)
    count = 0

    def another_block() -> None:
        nonlocal count
        count += 1
        other.insert([{"name": f"{n}{count}", "v": 0} for n in "abc"])

    rounds = ROUNDS_OUTSIDE + 3
    with at_step("commit.begin", another_block, rounds) as step:
        result = merge(table, "x")
    assert step.left == rounds - ROUNDS_OUTSIDE - 1, "after a few rounds the section looks for itself"
    assert (result.inserted, result.updated) == (1, 0)
    assert names(table)["x"] == 1


def test_a_value_that_comes_in_a_block_in_the_last_round_is_found(
    lakes: tuple[il.Lake, il.Lake], table: il.Table
) -> None:
    other = lakes[1].table(table.name)
    count = 0

    def another_block() -> None:
        nonlocal count
        count += 1
        name = "x" if count == ROUNDS_OUTSIDE + 1 else f"x{count}"
        other.insert([{"name": name, "v": 0}, *({"name": f"{n}{count}", "v": 0} for n in "bc")])

    with at_step("commit.begin", another_block, ROUNDS_OUTSIDE + 1):
        result = merge(table, "x")
    assert (result.inserted, result.updated) == (0, 1)
    assert names(table)["x"] == 1


def test_of_two_merges_in_one_group_the_second_conflicts(lakes: tuple[il.Lake, il.Lake], table: il.Table) -> None:
    lake = lakes[0]
    committer = lake._committer
    made = []
    for added in ("x", "x", "y"):
        tx = lake.transaction()
        merge(tx.table(table.name), added)
        made.append(_Ticket(tx.write_set, committer._first_looks(tx.write_set), None, False))
    committer._commit_group(made, made[0])
    assert [type(ticket.error) for ticket in made] == [type(None), il.ConflictError, type(None)]
    assert names(table) == {"old": 0, "hot": 0, "x": 1, "y": 1}


def test_a_merge_that_adds_nothing_does_not_conflict(lakes: tuple[il.Lake, il.Lake], table: il.Table) -> None:
    tx = lakes[0].transaction()
    rows = pa.table({"name": ["x", "hot"]})
    tx.table(table.name).merge(rows, on="name").when_matched_update({"v": 9}).execute()
    insert(lakes[1].table(table.name))
    tx.commit()
    assert names(table) == {"old": 0, "hot": 9, "x": 10}


def test_rows_that_further_conditions_exclude_do_not_conflict_forever(
    lakes: tuple[il.Lake, il.Lake], table: il.Table
) -> None:
    rows = pa.table({"name": ["old", "hot"], "v": [5, 5]})
    found = table.merge(rows, on="t.name = s.name and t.v > s.v").when_not_matched_insert().execute()
    assert found.inserted == 2
    assert len(table) == 4


def test_two_merges_of_one_transaction_see_each_other(lakes: tuple[il.Lake, il.Lake], table: il.Table) -> None:
    with lakes[0].transaction() as tx:
        merge(tx.table(table.name), "x")
        assert merge(tx.table(table.name), "x", "y").updated == 1
    assert names(table) == {"old": 0, "hot": 0, "x": 2, "y": 1}


def test_after_a_truncate_of_its_own_a_merge_adds_all(lakes: tuple[il.Lake, il.Lake], table: il.Table) -> None:
    tx = lakes[0].transaction()
    tx.table(table.name).truncate()
    merge(tx.table(table.name), "x", "old")
    lakes[1].pipeline().dump(table.name)
    tx.commit()
    assert names(table) == {"x": 1, "old": 1}


# ---------------------------------------------------------------- primary keys


@pytest.fixture
def keyed(lakes: tuple[il.Lake, il.Lake]) -> il.Table:
    t = lakes[0].create_table(f"m.t{uuid.uuid4().hex}", SCHEMA, primary_key="id", config=CONFIG)
    t.insert([{"id": 1, "name": "old", "v": 0}])
    lakes[0].pipeline().dump(t.name)
    return t


def add_7(t: il.Table) -> None:
    t.insert({"id": 7, "v": 10})


def add_7_dumped(t: il.Table) -> None:
    t.insert({"id": 7, "v": 10})
    t._lake.pipeline().dump(t.name)


def add_7_in_a_block(t: il.Table) -> None:
    t.insert([{"id": n, "v": 10} for n in (7, 8, 9)])


WRITES: dict[str, Callable[[il.Table], Any]] = {
    "upsert of a dict": lambda t: t.upsert({"id": 7, "v": 1}),
    "upsert of a table": lambda t: t.upsert(pa.table({"id": [7, 70], "v": [1, 1]})),
    "upsert of many": lambda t: t.upsert(pa.table({"id": [7, *range(100, 200)], "v": [1] * 101})),
    "merge": lambda t: t.merge([{"id": 7, "v": 1}], on="id").when_matched_update().when_not_matched_insert().execute(),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("other", [add_7, add_7_dumped, add_7_in_a_block])
def test_losing_the_race_for_a_key_is_a_conflict_and_a_statement_is_run_again(
    lakes: tuple[il.Lake, il.Lake], keyed: il.Table, other: Callable[[il.Table], None], write: str
) -> None:
    tx = lakes[0].transaction()
    WRITES[write](tx.table(keyed.name))
    other(lakes[1].table(keyed.name))
    with pytest.raises(il.ConflictError, match="whose key"):
        tx.commit()
    assert keyed.get(7) == {"id": 7, "name": None, "v": 10}
    keyed.delete("id >= 7")
    with at_step("commit.begin", lambda: other(lakes[1].table(keyed.name))):
        result = WRITES[write](keyed)
    assert result.updated == 1
    assert keyed.get(7) == {"id": 7, "name": None, "v": 1}


def test_a_plain_insert_in_the_same_transaction_is_still_a_duplicate(
    lakes: tuple[il.Lake, il.Lake], keyed: il.Table
) -> None:
    tx = lakes[0].transaction()
    tx.table(keyed.name).upsert({"id": 5, "v": 1})
    tx.table(keyed.name).insert({"id": 7, "v": 1})
    add_7(lakes[1].table(keyed.name))
    with pytest.raises(il.DuplicateKeyError, match="id = 7 already exists"):
        tx.commit()


def test_a_key_that_is_there_but_does_not_match_is_a_duplicate(lakes: tuple[il.Lake, il.Lake], keyed: il.Table) -> None:
    with pytest.raises(il.DuplicateKeyError, match="id = 1 already exists"):
        keyed.merge([{"id": 1, "v": 5}], on="t.id = s.id and t.v > s.v").when_not_matched_insert().execute()


def test_a_row_that_is_changed_meanwhile_conflicts_and_is_merged_again(
    lakes: tuple[il.Lake, il.Lake], keyed: il.Table
) -> None:
    def change() -> None:
        lakes[1].table(keyed.name).update({"v": 100}, "id = 1")

    with at_step("commit.begin", change):
        keyed.merge([{"id": 1, "v": 1}], on="id").when_matched_update({"v": il.expr("t.v + s.v")}).execute()
    assert keyed.get(1) == {"id": 1, "name": "old", "v": 101}


def test_a_long_merge_keeps_its_snapshot_from_expiring(
    any_two_handles: tuple[il.Lake, il.Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = any_two_handles
    monkeypatch.setattr("indexlake.pipeline.maintenance.PIN_AFTER", 0)
    config = il.TableConfig(direct_write_row_count=3, block_row_count=10, retention=0)  # type: ignore[arg-type]
    t = one.create_table(f"m.t{uuid.uuid4().hex}", SCHEMA, primary_key="id", config=config)
    t.insert([{"id": n, "v": 0} for n in range(5)])
    began = one.snapshot_id
    reached: list[int] = []

    def expire() -> None:
        one._maintenance._beat_once()
        two.table(t.name).insert({"id": 100, "v": 0})
        with two.catalog.read() as r:
            newest = r.rows("select max(committed_at) from indexlake_snapshot")[0][0]
        with clock_of(two).stopped(newest + 120_000_000):
            reached.append(two.pipeline().expire(t.name)[t.name].horizon)

    with at_step("block.begin", expire):
        rows = pa.table({"id": range(5), "v": [1] * 5})
        t.merge(rows, on="id").when_matched_update({"v": il.expr("t.v + s.v")}).execute()
    assert reached == [began], "the horizon went no further than the merge's snapshot, and the merge was run once"
    assert [row["v"] for row in t.scan("id < 100").to_pylist()] == [1] * 5
    one._maintenance._beat_once()
