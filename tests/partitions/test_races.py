"""The races of clustered tables: one operation is stopped between two of its steps, and another process commits there.

Each is about one rule.  It holds on the engine as it is, and is broken when the rule is switched off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.catalog import data_files, table_heads
from indexlake.catalog import partitions as partition_records
from indexlake.commit import effects, moved, requirements
from indexlake.commit.write_set import TableWrites
from indexlake.partitions import ranges
from indexlake.partitions.partition import Partition
from indexlake.pipeline import dump as dump_job
from indexlake.pipeline import partition_policy, reshape
from indexlake.pipeline.runner import ThreadRunner
from indexlake.snapshots import state
from indexlake.storage import faults
from tests.model.interleaving import _plain
from tests.support.lakes import clock_of
from tests.support.partitions import range_problems

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.int64())])


class Stage:
    """Two processes on one table, and what it must show at every snapshot."""

    def __init__(self, one: il.Lake, two: il.Lake) -> None:
        self.one, self.two = one, two
        config = il.TableConfig(direct_write_row_count=2, block_row_count=100, retention=timedelta(0))
        self.t = one.create_table("t", SCHEMA, primary_key="id", layout="clustered", config=config)
        self.u = two.table("t")
        self.table_id = self.t._table_id
        self.expected: dict[int, dict[int, int]] = {}
        self.steps: list[str] = []
        self.waiting: dict[str, Callable[[], Any]] = {}

    def block(self, keys: Iterable[int], *, on: il.Lake | None = None) -> None:
        """One direct insert.  What is made of several that interleave has its row ids in no order."""
        keys = [*keys][::-1]
        (on or self.one).table("t").insert(pa.table({"id": keys, "v": [k * 10 for k in keys]}, SCHEMA))

    def note(self) -> int:
        """What the table shows now, it has to show of this snapshot for ever."""
        self.expected[self.one.snapshot_id] = {r["id"]: r["v"] for r in self.t.scan().to_pylist()}
        return self.one.snapshot_id

    def during(self, name: str, act: Callable[[], Any]) -> None:
        """Once, when that step is passed."""
        self.waiting[name] = act
        faults.install(self._at)

    def _at(self, step: str) -> None:
        self.steps.append(step)
        if act := self.waiting.pop(step, None):
            act()

    def split(self, key: int, lake: il.Lake | None = None) -> None:
        done = (lake or self.one).pipeline(runner="threads").split("t", at=key)["main.t"]
        assert done.splits == 1

    def merge(self, lake: il.Lake | None = None) -> reshape.ReshapeResult:
        """Side by side with other merges: leases save work, nothing else."""
        lake = lake or self.one
        scope = "one" if lake is self.one else "two"
        runner = ThreadRunner(lake.storage)
        return reshape.reshape(lake, self.table_id, "merge", everything_as_one, runner, scope)

    def dump(self, lake: il.Lake | None = None) -> None:
        (lake or self.one).pipeline(runner="threads").dump("t")

    def check(self, now: dict[int, int], since: int | None = None) -> None:
        """All that must hold, in both processes."""
        before = faults.install(None)
        last = self.one.snapshot_id
        since = min(self.expected, default=last) if since is None else since
        for lake in (self.one, self.two):
            assert not list(range_problems(lake, self.table_id, range(since, last + 1)))
            for snapshot, rows in ({s: r for s, r in self.expected.items() if s >= since} | {last: now}).items():
                then = lake.table("t").at(snapshot)
                found = [(r["id"], r["v"]) for r in then.scan().to_pylist()]
                assert sorted(found) == sorted(rows.items()), f"at {snapshot}"
                for key in {*rows, *now, 1000}:
                    row = then.get(key)
                    assert (row and row["v"]) == rows.get(key), f"{key} at {snapshot}"
            with lake._readings.open(self.table_id) as reading:
                fresh = state.load(reading.transaction, self.table_id, reading.snapshot)
            assert _plain(reading.state) == _plain(fresh)
        assert self.one.pipeline().verify("t").ok
        faults.install(before)


def everything_as_one(found: Any, beyond: Any) -> list[partition_policy.Step]:
    """Each partition with several blocks, or with deltas, becomes one block."""
    parts = partition_policy.parts_of(found)
    return [partition_policy.Step("merge", (p,), p.blocks) for p in parts if p.deltas or len(p.blocks) > 1]


def tens(keys: Iterable[int]) -> dict[int, int]:
    return {k: k * 10 for k in keys}


@pytest.fixture
def stage(two_handles: tuple[il.Lake, il.Lake]) -> Any:
    yield Stage(*two_handles)
    faults.install(None)


# ---------------------------------------------------------------- the races


def dump_route(s: Stage) -> None:
    """A split between the routing of a dump and its commit, through what was written: it is cut."""
    for key in (3, 7, 1, 9):
        s.t.insert({"id": key, "v": key * 10})
    s.note()
    s.during("dump.written", lambda: s.split(5, s.two))
    s.dump()
    s.check(tens((1, 3, 7, 9)))


def load_route(s: Stage) -> None:
    """The same for a direct insert."""
    s.note()
    s.during("commit.begin", lambda: s.split(5, s.two))
    s.block(range(10))
    s.check(tens(range(10)))


def adopt_whole(s: Stage) -> None:
    """A split beside what a dump has written: its file is adopted, and not written again."""
    for key in (3, 1):
        s.t.insert({"id": key, "v": key * 10})
    s.note()
    s.during("dump.written", lambda: s.split(5, s.two))
    s.dump()
    assert "dump.cut" not in s.steps
    s.check(tens((1, 3)))


def unsorted(s: Stage) -> None:
    for key in (3, 7, 1, 9):
        s.t.insert({"id": key, "v": key * 10})
    s.dump()
    s.check(tens((1, 3, 7, 9)))


def zero_carry(s: Stage) -> None:
    """An update while a dump runs: one version is left."""
    for key in (3, 1):
        s.t.insert({"id": key, "v": key * 10})
    s.note()
    s.during("dump.written", lambda: s.u.update({"v": 0}, "id = 3"))
    s.dump()
    s.check({1: 10, 3: 0})


def resolve_again(s: Stage) -> None:
    """A row is located, its block merged away, then the delete comes."""
    s.block(range(0, 20, 2))
    s.block(range(1, 20, 2))
    s.note()
    tx = s.two.transaction()
    tx.table("t").delete("id in (3, 12)")
    assert s.merge().merges == 1
    tx.commit()
    s.check(tens(k for k in range(20) if k not in (3, 12)))


def located_in_the_past(s: Stage) -> None:
    """A transaction locates rows at its own snapshot, when its process has heard of the merge already."""
    s.block(range(0, 20, 2))
    s.block(range(1, 20, 2))
    s.note()
    tx = s.two.transaction()
    assert s.merge().merges == 1
    assert len(s.u) == 20
    tx.table("t").update({"v": 1}, "id in (3, 12)")
    tx.commit()
    s.check(tens(range(20)) | {3: 1, 12: 1})


def look_again(s: Stage) -> None:
    """A key was looked for in vain, and has arrived in a new delta before the commit."""
    s.block(range(10))
    s.during("commit.begin", lambda: s.block([20, 21], on=s.two))
    with pytest.raises(il.DuplicateKeyError):
        s.t.insert({"id": 20, "v": 1})
    s.check(tens([*range(10), 20, 21]))


def partitions_live(s: Stage) -> None:
    """A bound between the blocks that a merge reads, without a word to the blocks: the merge is dropped."""
    s.block(range(10))
    s.block(range(10, 20))
    s.note()
    s.during("reshape.written", lambda: s.split(10, s.two))
    s.merge()
    s.check(tens(range(20)))


def inputs_live(s: Stage) -> None:
    """Two merges of one partition."""
    s.block(range(0, 20, 2))
    s.block(range(1, 20, 2))
    s.note()
    s.during("reshape.written", lambda: s.merge(s.two))
    s.merge()
    s.check(tens(range(20)))


def late_blocks(s: Stage) -> None:
    """A delta that came while a partition was split gets the label of the range that holds it."""
    s.block(range(10))
    s.note()
    s.during("reshape.written", lambda: s.block([20, 21], on=s.two))
    s.split(5)
    assert "reshape.late" not in s.steps
    s.check(tens([*range(10), 20, 21]))


def late_cut(s: Stage) -> None:
    """One that lies across the new bound is cut."""
    s.block(range(0, 20, 2))
    s.note()
    s.during("reshape.written", lambda: s.block([3, 13], on=s.two))
    s.split(5)
    assert "reshape.late" in s.steps
    s.check(tens([*range(0, 20, 2), 3, 13]))


def late_own_plan(s: Stage) -> None:
    """Rows changed since the plan are dumped into the late delta: what is carried over must not delete them there."""
    s.block(range(10))
    s.note()

    def change_and_dump() -> None:
        s.u.update({"v": 1}, "id = 2")
        s.u.update({"v": 1}, "id = 8")
        s.dump(s.two)

    s.during("reshape.written", change_and_dump)
    s.split(5)
    assert "reshape.late" in s.steps
    s.check(tens(range(10)) | {2: 1, 8: 1})


def carry(s: Stage) -> None:
    """Updates and deletes while a merge runs."""
    s.block(range(0, 20, 2))
    s.block(range(1, 20, 2))
    s.note()

    def change() -> None:
        s.u.update({"v": 1}, "id = 4")
        s.note()
        s.u.delete("id = 7")
        s.note()

    s.during("reshape.written", change)
    assert s.merge().merges == 1
    s.check({k: v for k, v in (tens(range(20)) | {4: 1}).items() if k != 7})


def prospective(s: Stage) -> None:
    """Before the merge its result is not there."""
    s.block(range(0, 20, 2))
    s.block(range(1, 20, 2))
    s.note()
    assert s.merge().merges == 1
    s.check(tens(range(20)))


def relabelling(s: Stage) -> None:
    """A bound between blocks: both are moved as they are, at every snapshot, in every process."""
    s.block(range(10))
    s.block(range(10, 20))
    s.note()
    assert len(s.u) == 20  # the other process knows the blocks
    s.split(10)
    s.check(tens(range(20)))


def move(s: Stage) -> None:
    """The only delta of a partition becomes its data, as it is."""
    s.block(range(10))
    s.note()
    assert len(s.u) == 10
    assert s.one.pipeline(runner="threads").merge("t")["main.t"].moves == 1
    s.check(tens(range(10)))


def expired(s: Stage) -> None:
    """Ranges go with the snapshots that need them, not before; and every process learns of it."""
    for first in (0, 10, 20):
        s.block(range(first, first + 10))
    s.split(10)
    kept = s.note()
    with s.one.catalog.read() as r:
        [(moment,)] = r.rows("select committed_at from indexlake_snapshot where snapshot_id = ?", (kept,))
    s.split(20)
    assert len(s.u) == 30
    clock_of(s.one).stop(moment + 60_000_000)
    assert s.one.pipeline().expire("t")["main.t"].horizon == kept
    s.check(tens(range(30)), since=kept)


def older_row(s: Stage) -> None:
    """A row is dumped after a split, into a partition that did not exist when the row was written."""
    s.t.insert({"id": 3, "v": 30})
    s.t.insert({"id": 7, "v": 70})
    s.note()
    s.split(5)
    s.note()
    s.dump()
    s.check(tens((3, 7)))


def kept_delta(s: Stage) -> None:
    """A delta that came during a merge stays beside its result, and is read."""
    s.block(range(0, 20, 2))
    s.block(range(1, 20, 2))
    s.note()
    s.during("reshape.written", lambda: s.block([30, 31], on=s.two))
    s.during("reshape.committed", lambda: s.check(tens([*range(20), 30, 31])))
    assert s.merge().merges == 2
    s.check(tens([*range(20), 30, 31]))


# ---------------------------------------------------------------- the rules, and what switches each of them off

Patch = Callable[[pytest.MonkeyPatch], None]


def _set(module: Any, name: str, value: Any) -> Patch:
    return lambda m: m.setattr(module, name, value)


def _changed(module: Any, name: str, change: Callable[..., Any]) -> Patch:
    """Replace a function by `change(original, *args)`."""

    def patch(m: pytest.MonkeyPatch) -> None:
        original = getattr(module, name)
        m.setattr(module, name, lambda *args, **kwargs: change(original, *args, **kwargs))

    return patch


def _placed_blindly(module: Any) -> Patch:
    kept = module.placement
    blind = SimpleNamespace(place=lambda *_: None, cut=kept.cut, CutNeeded=kept.CutNeeded)
    return _set(module, "placement", blind)


def _as_of_the_first_plan(original: Any, job: Any, plan: Any, *rest: Any) -> None:
    original(job, plan, *rest)
    plan.outputs = [(block, plan.state.at) for block, _ in plan.outputs]


def _first_range(original: Any, block: Any, bounds: Any, begins: Any) -> Any:
    inside = [n for n, begin, end in bounds if (begin is None or begin <= block.first_key)]
    return inside[-1]


def _begin_with_their_rows(original: Any, tx: Any, table_id: int, block: Any, s: int, **how: Any) -> Any:
    if how.get("given") is False:
        how["begin"] = block.versions[0]
    return original(tx, table_id, block, s, **how)


def _begin_anew(original: Any, tx: Any, labels: Any, snapshot: int, **how: Any) -> None:
    labels = list(labels)
    original(tx, labels, snapshot, **how)
    tx.execute_many(
        "update indexlake_data_file set begin_snapshot = ? where data_file_id = ?", [(snapshot, f) for f, _ in labels]
    )


def _quietly(original: Any, tx: Any, labels: Any, snapshot: int, *, role: str | None = None) -> None:
    tx.execute_many(
        "update indexlake_data_file set partition_id = ?, role = coalesce(?, role) where data_file_id = ?",
        [(partition, role, f) for f, partition in labels],
    )


def _located_now(original: Any, self: TableWrites, found: Any, base: int) -> None:
    original(self, found, base)
    self.located_at = found.at


def _without_purge_number(original: Any, tx: Any, table_id: int, horizon: int, snapshot: int) -> None:
    tx.execute(
        "update indexlake_table set horizon = ?, changed_in = ? where table_id = ?", (horizon, snapshot, table_id)
    )


def _where_it_begins(original: Any, self: ranges.Ranges, first: bytes, last: bytes) -> Partition | None:
    return original(self, first, first)  # type: ignore[no-any-return]


def _never_adopted(original: Any, self: ranges.Ranges, number: int, *keys: bytes) -> Partition | None:
    return self.by_id[number] if self.is_live(number) else None


RULES: dict[str, tuple[Callable[[Stage], None], Patch]] = {
    "dump_route": (dump_route, _placed_blindly(dump_job)),
    "load_route": (load_route, _placed_blindly(requirements)),
    "adopt_fits": (dump_route, _changed(ranges.Ranges, "holding", _where_it_begins)),
    "adopt_whole": (adopt_whole, _changed(ranges.Ranges, "adopter", _never_adopted)),
    "sorted": (unsorted, _set(ranges, "sorted_by_key", lambda rows, schema: (rows, ranges.key_column(rows, schema)))),
    "zero_carry": (zero_carry, _set(dump_job, "touched_positions", lambda *_: iter(()))),
    "resolve_again": (resolve_again, _set(moved, "check", lambda *_: None)),
    "located at its snapshot": (located_in_the_past, _changed(TableWrites, "__init__", _located_now)),
    "look_again": (look_again, _set(data_files, "has_new_live_blocks", lambda *_: False)),
    "partitions_live": (partitions_live, _set(partition_records, "live_among", lambda _, ids: set(ids))),
    "inputs_live": (inputs_live, _set(reshape, "blocks_live", lambda *_: True)),
    "late_blocks": (late_blocks, _set(data_files, "live_blocks_of", lambda *_: [])),
    "late_cut": (late_cut, _changed(reshape, "_range_of", _first_range)),
    "late_own_plan": (late_own_plan, _changed(reshape, "_cut_late", _as_of_the_first_plan)),
    "carry": (carry, _changed(reshape, "swap_blocks", lambda original, *a: original(*a[:4], [], a[5]))),
    "prospective": (prospective, _changed(effects, "add_block", _begin_with_their_rows)),
    "keep_begin": (relabelling, _changed(data_files, "relabel", _begin_anew)),
    "keep_begin of a move": (move, _changed(data_files, "relabel", _begin_anew)),
    "relabel_changed": (relabelling, _changed(data_files, "relabel", _quietly)),
    "one_commit": (
        relabelling,
        _changed(partition_records, "add_partitions", lambda original, tx, t, new, s: original(tx, t, new, s + 1)),
    ),
    "ranges_retained": (
        expired,
        _changed(partition_records, "drop_ended_partitions", lambda original, tx, t, horizon: original(tx, t, 2**62)),
    ),
    "purge_partitions": (expired, _changed(table_heads, "set_horizon", _without_purge_number)),
}


@pytest.mark.parametrize("race", dict.fromkeys([*(race for race, _ in RULES.values()), older_row, kept_delta]))
def test_a_race_harms_nobody(stage: Stage, race: Callable[[Stage], None]) -> None:
    race(stage)


_INLINE = {"zero_carry": "a dump of memory carries deletes over by another rule, which the next ones switch off"}


@pytest.mark.parametrize(
    "rule", [pytest.param(r, marks=pytest.mark.inline_only(_INLINE[r]) if r in _INLINE else ()) for r in RULES]
)
def test_without_the_rule_a_race_is_lost(stage: Stage, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    race, switch_off = RULES[rule]
    switch_off(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception, IndexError)):
        race(stage)
