"""A short version of each trial, with seeds that stay, and proof that the trials can fail.

The long versions run by command: see docs/testing.md.  Of the random schema histories, the short version is
`tests/evolution/test_evolution.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

import indexlake as il
from indexlake.commit import absence, effects
from indexlake.commit.sequencer import Sequencer
from indexlake.commit.wanted import MergeValues
from indexlake.pipeline import rewrite
from tests.support.one_owner import in_memory
from tests.trials import kill_storm, list_append, transactions
from tests.trials.command import CATALOGS, Ground

SEED = int(os.environ.get("INDEXLAKE_SEED", "20261117"))


@pytest.fixture(params=CATALOGS)
def ground(request: pytest.FixtureRequest) -> Iterator[Ground]:
    dsn = request.getfixturevalue("postgres_dsn") if request.param == "postgres" else None
    with Ground(request.param, dsn) as ground:
        yield ground


def test_no_history_of_lists_has_a_cycle_that_snapshot_isolation_forbids(ground: Ground) -> None:
    processes = 1 if ground.catalog == "sqlite" else 0
    done = list_append.play(SEED, ground, transactions=12, processes=processes, threads=3)
    assert done["commits"] > 10
    assert done["jobs"] > 1


def test_random_transactions_agree_with_the_model_while_jobs_run(ground: Ground) -> None:
    done = transactions.play(SEED, ground, phases=1 if ground.catalog == "postgres" else 2)
    assert done["committed"] > 20
    assert done["jobs"] > 1


@pytest.mark.inline_only("several processes work and die; tests/hot/memory kills the owner")
def test_a_storm_of_kills_loses_nothing(ground: Ground) -> None:
    many = 2 if ground.catalog == "sqlite" else 1
    done = kill_storm.play(SEED, ground, storms=many, workers=many, most_lines=60)
    assert done["kills"] >= 1


def test_both_hold_where_the_newest_rows_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    in_memory(monkeypatch)
    with Ground() as ground:
        assert list_append.play(SEED, ground, transactions=8, processes=1, threads=3)["commits"] > 5
        assert transactions.play(SEED, ground, phases=1)["committed"] > 10


# ---------------------------------------------------------------- the trials can fail


check, swap_blocks = absence.check, effects.swap_blocks


def check_all_but_merges(tx: Any, head: Any, hot: Any, writes: Any, found: Any) -> None:
    if not isinstance(found.wanted, MergeValues):
        check(tx, head, hot, writes, found)


def swap_without_carry_over(tx: Any, t: int, inputs: Any, outputs: Any, touched: Any, s: int) -> None:
    swap_blocks(tx, t, inputs, outputs, [], s)


MUTANTS: dict[str, tuple[object, str, object]] = {
    "conflicts are not seen": (Sequencer, "first_conflict", lambda *_: None),
    "locks are not recorded": (Sequencer, "lock", lambda *_: None),
    "what a merge did not find may have been added": (absence, "check", check_all_but_merges),
    "a compaction forgets what was deleted meanwhile": (rewrite, "swap_blocks", swap_without_carry_over),
}


LATE = [rule for rule in MUTANTS if "seen" not in rule]
"""It takes many seeds to meet them."""


@pytest.mark.parametrize("rule", [pytest.param(r, marks=pytest.mark.long) if r in LATE else r for r in MUTANTS])
def test_the_model_notices_when(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MUTANTS[rule])  # type: ignore[arg-type]
    with pytest.raises((AssertionError, ValueError)):  # the engine may notice first
        _play_seeds(transactions.play, phases=1)


def _play_seeds(play: Any, **options: Any) -> None:
    with Ground() as ground:
        for seed in range(60):
            play(seed, ground, **options)


def read_what_is_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a transaction must not do: read the newest snapshot at each statement."""
    table, sql = il.Transaction.table, il.Transaction.sql

    def newest(tx: il.Transaction) -> il.Transaction:
        tx._base = tx._lake.snapshot_id
        return tx

    monkeypatch.setattr(il.Transaction, "table", lambda tx, name: table(newest(tx), name))
    monkeypatch.setattr(il.Transaction, "sql", lambda tx, *args: sql(newest(tx), *args))


def test_the_checker_of_lists_notices_reads_of_several_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    read_what_is_newest(monkeypatch)
    monkeypatch.setattr(list_append, "KEYS", [key for key in list_append.KEYS if key[0] != "entries"])
    with pytest.raises(AssertionError, match=r"lost update|incompatible order|G-single|G1c|internal|is there twice"):
        _play_seeds(list_append.play, transactions=15, processes=0, threads=4)
