"""Random lives of tables: alterations, changes, dumps, compaction, expiry and reopening, against a model in Python.

``INDEXLAKE_EVOLUTIONS=1000:2000`` runs those seeds instead, as a campaign.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.evolution.evolving_model import Evolution

FIRST, _, LAST = os.environ.get("INDEXLAKE_EVOLUTIONS", "0:4").partition(":")
STEPS = 40


@pytest.mark.parametrize("seed", range(int(FIRST), int(LAST)))
def test_every_retained_snapshot_of_an_evolving_table_agrees_with_the_model(new_address: Any, seed: int) -> None:
    live("sqlite", new_address, seed, STEPS)


def test_a_table_evolves_in_the_same_way_on_postgres(new_address: Any) -> None:
    live("postgres", new_address, 77, STEPS // 2)


def live(database: str, new_address: Any, seed: int, steps: int) -> None:
    address = new_address(database)
    life = Evolution(seed, lambda: address.connect(automatic=False))
    try:
        for _ in range(steps):
            life.step()
        life.check_all()
    finally:
        life.close()
