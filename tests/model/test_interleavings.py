"""Randomised interleavings of the real engine, and proof that the checks can fail.

`INDEXLAKE_SEEDS=<count>` runs so many seeds instead of a few seconds' worth, `INDEXLAKE_FIRST_SEED=<n>` begins at n,
`INDEXLAKE_STEPS=<n>` sets the length of a run.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from interleaving import play, shrink
from pyroaring import BitMap, BitMap64

from indexlake import state
from indexlake.catalog import activity, commits, definitions, inline, layout
from indexlake.commit import group, key_check, section
from indexlake.commit.absent import AbsentLook
from indexlake.pipeline import dump, rewrite
from indexlake.scan import plan

FIRST = int(os.environ.get("INDEXLAKE_FIRST_SEED", "0"))
STEPS = int(os.environ.get("INDEXLAKE_STEPS", "80"))
SECONDS = 12.0
MOST_SEEDS_OF_A_MUTANT = 60


@pytest.mark.timeout(0)
def test_every_interleaving_agrees_with_the_oracle() -> None:
    seeds, counts = run_seeds(SECONDS)
    assert seeds > 3
    if seeds > 30:
        for seen in ("committed", "conflict", "duplicate", "look 1", "dump committed", "history committed"):
            assert counts[seen], f"no run led to {seen!r}: the test is weaker than it looks"


@pytest.mark.timeout(0)
def test_every_interleaving_agrees_with_the_oracle_on_postgresql(postgres_dsn: str) -> None:
    seeds, _ = run_seeds(SECONDS / 3, postgres_dsn)
    assert seeds


def run_seeds(seconds: float, postgres: str | None = None) -> tuple[int, Counter[str]]:
    """How many seeds were run, and what happened in them."""
    wanted = int(os.environ.get("INDEXLAKE_SEEDS", "0"))
    counts: Counter[str] = Counter()
    began, seed = time.monotonic(), FIRST
    while seed < FIRST + wanted if wanted else time.monotonic() - began < seconds:
        violation, ops, world = play(seed, STEPS, postgres=postgres)
        counts += world.counts
        if violation:
            fewer = ops if postgres else shrink(seed, ops, violation)
            again, _, shrunk = play(seed, 0, fewer, postgres)
            log = "\n".join((shrunk if again else world).log)
            pytest.fail(f"seed {seed}, {len(fewer)} operations of {len(ops)}: {violation}\n{log}", pytrace=False)
        seed += 1
    print(f"{seed - FIRST} seeds: {dict(sorted(counts.items()))}")
    return seed - FIRST, counts


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
        m.setattr(module, name, lambda *args, **kwargs: change(original, *args, **kwargs))

    return patch


def _no_floor(name: str) -> Callable[..., Any]:
    def change(original: Any, r: Any, table: Any, *args: Any, **kwargs: Any) -> Any:
        return original(r, changed(table, **{name: BELOW}), *args, **kwargs)

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


def _refresh_with_a_newer_cache(original: Any, r: Any, table_id: int, cached: Any) -> Any:
    try:
        return original(r, table_id, cached)
    except state.Stale:
        return cached, commits.last_snapshot(r)[0]


def _task_of_any_version(original: Any, *args: Any) -> Any:
    task = original(*args)
    return changed(task, versions_up_to=None) if task.kind == "block" else task


def _begin_at_commit(original: Any, tx: Any, table_id: int, index: Any, block: Any, s: int, **kwargs: Any) -> Any:
    if kwargs.get("role") != "history":
        kwargs["begin"] = s
    return original(tx, table_id, index, block, s, **kwargs)


def _commit_above_any_horizon(original: Any, *args: Any) -> Any:
    def read_table(tx: Any, table_id: int) -> Any:
        table = definitions.read_table(tx, table_id)
        return table and changed(table, horizon=0)

    with pytest.MonkeyPatch.context() as m:
        m.setattr(dump, "definitions", SimpleNamespace(read_table=read_table))
        return original(*args)


def _swap_whatever_became_of_the_inputs(original: Any, *args: Any) -> Any:
    known = {name: getattr(layout, name) for name in ("end_blocks", "add_delete")}
    with pytest.MonkeyPatch.context() as m:
        m.setattr(rewrite, "layout", SimpleNamespace(live_block_ids=lambda tx, ids: set(ids), **known))
        return original(*args)


def _nothing_closed(original: Any, tx: Any, head: Any, writes: Any, *args: Any) -> Any:
    return original(tx, head, SimpleNamespace(state=writes.state, closed=BitMap64(), claimed=writes.claimed), *args)


def _validated_before_all(m: pytest.MonkeyPatch) -> None:
    """In a group, what its earlier members have written is not seen."""
    began: dict[int, int] = {}
    init, conflicting = section.Section.__init__, commits.conflicting_since

    def remember(self: Any, catalog: Any, tx: Any) -> None:
        init(self, catalog, tx)
        began[id(tx)] = self.last

    def before_the_group(tx: Any, table_id: int, since: int, rows: Any) -> int | None:
        found = conflicting(tx, table_id, since, rows)
        return found if found is not None and found <= began[id(tx)] else None

    m.setattr(section.Section, "__init__", remember)
    m.setattr(commits, "conflicting_since", before_the_group)


MUTANTS: dict[str, Patch] = {
    # reading
    "hot_floor": _around(inline, "visible_rows", _no_floor("hot_floor")),
    "history_floor": _around(inline, "visible_rows", _no_floor("history_floor")),
    "row_version": _around(plan, "block_task", _task_of_any_version),
    "changed_in": _around(layout, "read_blocks", _blocks_by_begin),
    "purge_number": _around(layout, "set_horizon", _set_horizon_without_purge_number),
    "cache_not_newer": _around(state, "refresh", _refresh_with_a_newer_cache),
    # the commit
    "touched": _around(commits, "conflicting_since", lambda *_: None),
    "truncate_touches": _around(
        commits,
        "add_touched",
        lambda original, tx, t, s, rows: None if rows is None else original(tx, t, s, rows),
    ),
    "truncate_conflicts": _around(commits, "changed_since", lambda *_: False),
    "locked_recorded": _around(commits, "add_locked", lambda *_: None),
    "tx_horizon": _around(layout, "read_head", lambda original, *a: (h := original(*a)) and changed(h, horizon=0)),
    "group_order": _validated_before_all,
    "look": _around(layout, "has_new_live_blocks", lambda *_: False),
    "absent": _around(section, "check_absent", lambda *_: None),
    "absent_look": _around(group, "look_for_absent", lambda original, found, *_: AbsentLook(found.at)),
    "final_state": _around(key_check, "_check_hot", _nothing_closed),
    "keys_above_floor": _around(
        section, "check_keys", lambda original, tx, head, *a: original(tx, changed(head, hot_floor=BELOW), *a)
    ),
    "close_above_floor": _around(
        section.Section,
        "_close",
        lambda original, self, writes, head, s: original(self, writes, changed(head, hot_floor=BELOW), s),
    ),
    "truncate_above_floor": _around(
        inline, "close_all", lambda original, tx, table_id, floor, s: original(tx, table_id, BELOW, s)
    ),
    "resolve_live": _around(layout, "deleted_positions", lambda *_: []),
    # jobs
    "floor_cas": _around(layout, "set_floor", _set_floor_blindly),
    "zero_carry": _around(dump, "_superseded", lambda *_: BitMap()),
    "dump_begin": _around(dump, "add_block", _begin_at_commit),
    "job_horizon": _around(dump, "commit_chunk", _commit_above_any_horizon),
    "purge": _around(inline, "purge", lambda *_: 0),
    "inputs_live": _around(rewrite, "commit", _swap_whatever_became_of_the_inputs),
    "carry_over": _around(rewrite, "_carried_over", lambda *_: iter(())),
    # expire
    "pins": _around(activity, "oldest_pin", lambda *_: None),
    "fold_at": _around(layout, "fold_deletes", lambda original, tx, t, h, s: original(tx, t, h + 1, s)),
    "touched_at": _around(commits, "drop_touched_up_to", lambda original, tx, t, h: original(tx, t, h + 1)),
    "expire_end": _around(layout, "drop_ended_blocks", lambda original, tx, t, h, now: original(tx, t, h + 1, now)),
}
QUICK = ("hot_floor", "changed_in", "purge_number", "touched", "zero_carry")


@pytest.mark.timeout(0)
@pytest.mark.parametrize("rule", [r if r in QUICK else pytest.param(r, marks=pytest.mark.long) for r in MUTANTS])
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
