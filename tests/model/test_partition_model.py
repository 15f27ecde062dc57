"""Randomised interleavings on clustered tables, whose partitions merge, split, join, fold, move and are cut.

`INDEXLAKE_SEEDS=<count>` runs so many seeds instead of a few, `INDEXLAKE_FIRST_SEED=<n>` begins at n,
`INDEXLAKE_STEPS=<n>` sets the length of a run.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.model.interleaving import play, shrink
from tests.model.partition_world import PartitionWorld
from tests.partitions.test_races import RULES

FIRST = int(os.environ.get("INDEXLAKE_FIRST_SEED", "0"))
STEPS = int(os.environ.get("INDEXLAKE_STEPS", "80"))
SEEDS = 10
MOST_SEEDS_OF_A_MUTANT = 300
QUICK = ("inputs_live", "carry")


@pytest.mark.timeout(0)
def test_every_interleaving_agrees_with_the_oracle_while_partitions_change() -> None:
    counts = run_seeds(SEEDS)
    wanted = ["committed", "conflict", "duplicate", "dump committed", "merge committed", "join committed"]
    wanted += ["cut committed", "fold committed"]
    for seen in wanted if not os.environ.get("INDEXLAKE_SEEDS") else ():
        assert counts[seen], f"no run led to {seen!r}: the test is weaker than it looks"


def run_seeds(count: int, postgres: str | None = None) -> Counter[str]:
    """What happened in them."""
    count = int(os.environ.get("INDEXLAKE_SEEDS", count))
    counts: Counter[str] = Counter()
    for seed in range(FIRST, FIRST + count):
        violation, ops, world = play(seed, STEPS, postgres=postgres, world=PartitionWorld)
        counts += world.counts
        if violation:
            fewer = ops if postgres else shrink(seed, ops, violation, PartitionWorld)
            again, _, shrunk = play(seed, 0, fewer, postgres, PartitionWorld)
            log = "\n".join((shrunk if again else world).log)
            pytest.fail(f"seed {seed}, {len(fewer)} operations of {len(ops)}: {violation}\n{log}", pytrace=False)
    print(f"{count} seeds: {dict(sorted(counts.items()))}")
    return counts


@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    "rule", [r if r in QUICK else pytest.param(r, marks=pytest.mark.long) for r in RULES if r != "adopt_whole"]
)
def test_a_rule_switched_off_is_caught(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    RULES[rule][1](monkeypatch)
    for seed in range(MOST_SEEDS_OF_A_MUTANT):
        violation, ops, _ = play(seed, STEPS, world=PartitionWorld)
        if violation:
            print(f"{rule}: caught by seed {seed} after {len(ops)} operations: {violation[:100]}")
            return
    pytest.fail(f"{rule} is off and nothing noticed")
