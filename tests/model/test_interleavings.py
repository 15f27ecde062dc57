"""Randomised interleavings of the real engine, and proof that the checks can fail.

`INDEXLAKE_SEEDS=<count>` runs so many seeds instead of a few, `INDEXLAKE_FIRST_SEED=<n>` begins at n,
`INDEXLAKE_STEPS=<n>` sets the length of a run.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from inspect import Parameter, signature
from types import SimpleNamespace
from typing import Any

import pytest
from pyroaring import BitMap64

from indexlake.catalog import activity, commits, data_files, definitions, delete_entries, table_heads
from indexlake.commit import absence, effects
from indexlake.commit.section import Section
from indexlake.commit.sequencer import Sequencer
from indexlake.commit.wanted import MergeValues
from indexlake.hot.inline import InlineStore, InlineTable
from indexlake.pipeline import dump, rewrite
from indexlake.scan import plan
from indexlake.snapshots import reading, state
from tests.model.interleaving import play, shrink
from tests.support.one_owner import in_memory

FIRST = int(os.environ.get("INDEXLAKE_FIRST_SEED", "0"))
STEPS = int(os.environ.get("INDEXLAKE_STEPS", "80"))
SEEDS = 12
MOST_SEEDS_OF_A_MUTANT = 60


@pytest.mark.timeout(0)
def test_every_interleaving_agrees_with_the_oracle() -> None:
    seeds, counts = run_seeds(SEEDS)
    wanted = ["committed", "conflict", "duplicate", "dump committed"]
    if seeds > 30:
        wanted += ["look 1", "history committed"]
    for seen in wanted:
        assert counts[seen], f"no run led to {seen!r}: the test is weaker than it looks"


@pytest.mark.timeout(0)
def test_every_interleaving_agrees_with_the_oracle_on_postgresql(postgres_dsn: str) -> None:
    _, counts = run_seeds(SEEDS // 3, postgres_dsn)
    assert counts["committed"]


def test_every_interleaving_in_memory_agrees_with_the_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    in_memory(monkeypatch)
    _, counts = run_seeds(SEEDS // 6)
    assert counts["committed"]


def run_seeds(count: int, postgres: str | None = None) -> tuple[int, Counter[str]]:
    """How many seeds were run, and what happened in them."""
    count = int(os.environ.get("INDEXLAKE_SEEDS", count))
    counts: Counter[str] = Counter()
    for seed in range(FIRST, FIRST + count):
        violation, ops, world = play(seed, STEPS, postgres=postgres)
        counts += world.counts
        if violation:
            fewer = ops if postgres else shrink(seed, ops, violation)
            again, _, shrunk = play(seed, 0, fewer, postgres)
            log = "\n".join((shrunk if again else world).log)
            pytest.fail(f"seed {seed}, {len(fewer)} operations of {len(ops)}: {violation}\n{log}", pytrace=False)
    print(f"{count} seeds: {dict(sorted(counts.items()))}")
    return count, counts


# ---------------------------------------------------------------- mutants: one rule switched off

BELOW = (-1, -1)
Patch = Callable[[pytest.MonkeyPatch], None]


def changed(record: Any, **values: Any) -> Any:
    """A copy of a record, whichever way records are made."""
    return record._replace(**values) if isinstance(record, tuple) else replace(record, **values)


def _around(module: Any, name: str, change: Callable[..., Any]) -> Patch:
    """Replace a function by `change(original, *args)`."""

    def patch(m: pytest.MonkeyPatch) -> None:
        original = getattr(module, name)
        taken = signature(original).parameters.values()
        keywords = [p.name for p in taken if p.kind is Parameter.KEYWORD_ONLY]
        positional = [p for p in taken if p.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)]
        signature(change).bind(original, *positional, **dict.fromkeys(keywords))
        m.setattr(module, name, lambda *args, **kwargs: change(original, *args, **kwargs))

    return patch


def _no_floor(name: str) -> Callable[..., Any]:
    def change(original: Any, hot: InlineTable, *args: Any) -> Any:
        return original(_below(hot, name), *args)

    return change


def _set_horizon_without_purge_number(original: Any, tx: Any, table_id: int, horizon: int, snapshot: int) -> None:
    tx.execute(
        "update indexlake_table set horizon = ?, changed_in = ? where table_id = ?",
        (horizon, snapshot, table_id),
    )


def _set_floor_blindly(original: Any, tx: Any, table_id: int, name: str, old: Any, new: Any, s: int) -> bool:
    table = definitions.read_table(tx, table_id)
    return bool(original(tx, table_id, name, getattr(table, name), new, s))


def _blocks_by_begin(original: Any, r: Any, table_id: int, since: int = -1) -> Any:
    return [b for b in original(r, table_id, since) if max(b.begin_snapshot, b.end_snapshot or 0) > since]


def _refresh_with_a_newer_cache(original: Any, r: Any, table_id: int, cached: Any, *args: Any) -> Any:
    try:
        return original(r, table_id, cached, *args)
    except state.Stale:
        return cached


def _task_of_any_version(original: Any, *args: Any) -> Any:
    task = original(*args)
    return changed(task, versions_up_to=None) if task.kind == "block" else task


def _begin_at_commit(original: Any, tx: Any, table_id: int, block: Any, s: int, **kwargs: Any) -> Any:
    if kwargs.get("role") != "history":
        kwargs["begin"] = s
    return original(tx, table_id, block, s, **kwargs)


def _below(hot: InlineTable, name: str = "hot_floor") -> InlineTable:
    """Hot rows among which those that lie in blocks still count."""
    return replace(hot, _floors=changed(hot._floors, **{name: BELOW}))


def _check_all_but_merges(original: Any, tx: Any, head: Any, hot: Any, writes: Any, found: Any) -> None:
    if not isinstance(found.wanted, MergeValues):
        original(tx, head, hot, writes, found)


def _see_nothing_for_merges(original: Any, before: Any, found: Any, *args: Any) -> Any:
    if isinstance(before.wanted, MergeValues):
        return before._replace(at=found.at, hot_at=found.at)
    return original(before, found, *args)


def _nothing_closed(original: Any, tx: Any, head: Any, hot: Any, writes: Any, found: Any) -> None:
    original(tx, head, hot, SimpleNamespace(state=writes.state, closed=BitMap64(), claimed=writes.claimed), found)


def _validated_before_all(m: pytest.MonkeyPatch) -> None:
    """In a group, what its earlier members have written is not seen."""
    began: dict[int, int] = {}
    init, conflict = Section.__init__, Sequencer.first_conflict

    def remember(self: Any, catalog: Any, hot: Any) -> None:
        init(self, catalog, hot)
        began[id(self.sequencer)] = self.sequencer.last

    def before_the_group(self: Any, table_id: int, since: int, rows: Any) -> int | None:
        found = conflict(self, table_id, since, rows)
        return found if found is not None and found <= began[id(self)] else None

    m.setattr(Section, "__init__", remember)
    m.setattr(Sequencer, "first_conflict", before_the_group)


MUTANTS: dict[str, Patch] = {
    # reading
    "hot_floor": _around(InlineTable, "_visible_rows", _no_floor("hot_floor")),
    "history_floor": _around(InlineTable, "_visible_rows", _no_floor("history_floor")),
    "row_version": _around(plan, "block_task", _task_of_any_version),
    "changed_in": _around(data_files, "read_blocks", _blocks_by_begin),
    "purge_number": _around(table_heads, "set_horizon", _set_horizon_without_purge_number),
    "cache_not_newer": _around(reading, "refresh", _refresh_with_a_newer_cache),
    # the commit
    "touched": _around(Sequencer, "first_conflict", lambda *_: None),
    "truncate_touches": _around(
        Sequencer,
        "touch",
        lambda original, self, t, s, rows: None if rows is None else original(self, t, s, rows),
    ),
    "truncate_conflicts": _around(Sequencer, "has_changed_since", lambda *_: False),
    "locked_recorded": _around(Sequencer, "lock", lambda *_: None),
    "tx_horizon": _around(table_heads, "read_head", lambda original, *a: (h := original(*a)) and changed(h, horizon=0)),
    "group_order": _validated_before_all,
    "look": _around(data_files, "has_new_live_blocks", lambda *_: False),
    "absent": _around(absence, "check", _check_all_but_merges),
    "absent_look": _around(absence, "look", _see_nothing_for_merges),
    "final_state": _around(absence, "check", _nothing_closed),
    "keys_above_floor": _around(
        absence, "check", lambda original, tx, head, hot, *a: original(tx, head, _below(hot), *a)
    ),
    "close_above_floor": _around(
        effects, "close_rows", lambda original, tx, writes, hot, *a: original(tx, writes, _below(hot), *a)
    ),
    "truncate_above_floor": _around(InlineTable, "close_all", _no_floor("hot_floor")),
    "resolve_live": _around(delete_entries, "deleted_positions", lambda *_: []),
    # jobs
    "floor_cas": _around(table_heads, "set_floor", _set_floor_blindly),
    "zero_carry": _around(dump, "touched_positions", lambda *_: iter(())),
    "dump_begin": _around(dump, "add_block", _begin_at_commit),
    "job_horizon": _around(
        dump, "require_plan", lambda original, section, job, t, at, *a, **k: original(section, job, t, 2**62, *a, **k)
    ),
    "purge": _around(InlineStore, "purge", lambda *_: 0),
    "inputs_live": _around(rewrite, "blocks_live", lambda *_: True),
    "carry_over": _around(
        rewrite,
        "swap_blocks",
        lambda original, tx, t, inputs, outputs, touched, s, **k: original(tx, t, inputs, outputs, [], s, **k),
    ),
    # expire
    "pins": _around(activity, "oldest_pin", lambda *_: None),
    "fold_at": _around(delete_entries, "fold_deletes", lambda original, tx, t, h, *a: original(tx, t, h + 1, *a)),
    "touched_at": _around(commits, "drop_touched_up_to", lambda original, tx, t, h, n: original(tx, t, h + 1, n)),
    "expire_end": _around(data_files, "drop_ended_blocks", lambda original, tx, t, h, *a: original(tx, t, h + 1, *a)),
}
QUICK = ("hot_floor", "changed_in", "purge_number", "touched", "zero_carry")
INLINE = ("hot_floor", "zero_carry")
"""Rules that the memory store does not have: it marks versions instead of a floor, and carries all deletes over."""


def _rules() -> list[Any]:
    found: list[Any] = []
    for rule in MUTANTS:
        marks = [] if rule in QUICK else [pytest.mark.long]
        marks += [pytest.mark.inline_only("the memory store has no such rule")] if rule in INLINE else []
        found.append(pytest.param(rule, marks=marks))
    return found


def test_every_rule_can_be_switched_off() -> None:
    """Each replacement takes what the function that it replaces takes."""
    broken = {}
    for rule, switch_off in MUTANTS.items():
        with pytest.MonkeyPatch.context() as m:
            try:
                switch_off(m)
            except TypeError as error:
                broken[rule] = str(error)
    assert not broken


@pytest.mark.timeout(0)
@pytest.mark.parametrize("rule", _rules())
def test_a_rule_switched_off_is_caught(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[rule](monkeypatch)
    for seed in range(MOST_SEEDS_OF_A_MUTANT if rule in QUICK else 400):
        violation, ops, _ = play(seed, STEPS)
        if violation:
            engine_noticed = violation.startswith("0 error: AssertionError")
            assert violation[0] != "0" or engine_noticed, f"the mutant itself is broken: {violation}"
            print(f"{rule}: caught by seed {seed} after {len(ops)} operations: {violation[:100]}")
            return
    pytest.fail(f"{rule} is off and nothing noticed")
