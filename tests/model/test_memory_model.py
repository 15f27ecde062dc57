"""Random plays of `memory_world`.

`INDEXLAKE_MEMORY_PLAYS=<plays>` (or `<plays>x<steps>`) plays as many from a random seed on.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.model.memory_world import play

TEXT = os.environ.get("INDEXLAKE_MEMORY_PLAYS", "")
PLAYS, _, STEPS = TEXT.partition("x")
FIRST = random.SystemRandom().randrange(10**9) if TEXT else 0


@pytest.mark.inline_only("it chooses its hot store itself")
@pytest.mark.timeout(0 if TEXT else 300)
@pytest.mark.parametrize("seed", range(FIRST, FIRST + int(PLAYS or 2)))
def test_a_lake_in_memory_agrees_with_plain_dictionaries(seed: int) -> None:
    done = play(seed, int(STEPS or 50))
    assert done["committed"] + done["write"] > 5
