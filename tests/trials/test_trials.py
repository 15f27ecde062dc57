"""A short version of each trial, with seeds that stay, and proof that the trials can fail.

The long versions run by command: see docs/testing.md.  Of the random schema histories, `tests/alter/test_evolution.py`
is the short version.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

import indexlake as il

from . import list_append
from .command import CATALOGS, Ground

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


def commit_at_the_newest_snapshot(tx: il.Transaction) -> Any:
    """What a commit must not do: take what others have committed meanwhile for read."""
    tx.write_set.base = tx._lake.snapshot_id
    return _commit(tx)


_commit = il.Transaction.commit


def test_the_checker_of_lists_notices_when_conflicts_go_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(il.Transaction, "commit", commit_at_the_newest_snapshot)
    with Ground() as ground, pytest.raises(AssertionError, match=r"lost update|G-single|G0|G1c|incompatible order"):
        for seed in range(20):
            list_append.play(seed, ground, transactions=15, processes=0, threads=4)
