"""A short version of each trial, with seeds that stay, and proof that the trials can fail.

The long versions run by command: see docs/testing.md.  Of the random schema histories, `tests/alter/test_evolution.py`
is the short version.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
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
    with Ground() as ground, pytest.raises(AssertionError, match="lost update|incompatible order|G-single|G1c|internal"):
        for seed in range(20):
            list_append.play(seed, ground, transactions=15, processes=0, threads=4)
