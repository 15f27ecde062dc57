"""Many kills, by command:

python -m tests.crash.campaign --kills 5000 [--hot memory [--light]] [--postgres] [--seed N]

Every lake lives through a few random kills and a few at named steps, then another one begins, in another format.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Mapping
from contextlib import ExitStack

from tests.crash.ledger import LakeUnderTest, new_lake, remove
from tests.crash.nursery import Nursery
from tests.crash.worker import WEIGHTS

KILLS_PER_LAKE = 10
FORMATS = ("vortex", "parquet", "ipc")
STEPS = (
    "commit.begin", "commit.validated", "commit.applied",
    "sql.begin", "sql.execute", "sql.query", "sql.commit.before", "sql.commit.after",
    "block.begin", "storage.create", "storage.write", "storage.publish", "storage.published", "block.written",
    "block.segment", "dump.planned", "dump.written", "dump.commit", "dump.committed", "dump.purged",
    "storage.open", "storage.read", "storage.delete",
    "rewrite.planned", "rewrite.written", "rewrite.commit", "rewrite.committed", "vacuum.listed", "vacuum.read",
    "build_index.planned", "build_index.written", "build_index.commit", "build_index.published",
    "merge_index.planned", "merge_index.written", "merge_index.commit", "merge_index.committed",
    "publish_unique.validated", "publish_unique.commit",
    "reshape.planned", "reshape.written", "reshape.commit", "reshape.committed", "convert.round", "convert.commit",
)  # fmt: skip
"""Every named step of commit, direct write and jobs; `test_kill` checks that none is missing."""

LOG_STEPS = (
    "log.append", "log.sync", "log.synced", "log.published", "log.create", "log.rotate", "log.sealed", "log.truncate",
    "log.catalog", "recovery.epoch", "recovery.copied", "recovery.listed", "recovery.done",
)  # fmt: skip
"""Those of a redo log, and of opening a lake that has one."""

LOG_WEIGHTS = {"one": 8, "few": 3, "block": 0.5, "update": 6, "delete": 3, "both": 4, "dump": 1, "define": 0.3}
"""What a worker does where the log matters."""


def kill_at_log_step(lake: LakeUnderTest, step: str, count: int) -> None:
    """Kill a worker, or one that opens the lake, at a step of the log."""
    if step == "recovery.copied":
        lake.leave_a_tail()
    lake.kill_at(f"{step}:{1 if step.startswith('recovery.') else count}=kill", weights=LOG_WEIGHTS, seconds=60.0)


def kill_at_step(lake: LakeUnderTest, step: str, count: int, weights: Mapping[str, float] = WEIGHTS) -> None:
    """Kill a worker when it comes to the step for so many times; one that does jobs more often where they have it."""
    jobs: dict[str, int] = {}
    if step.startswith(("rewrite.", "vacuum.", "storage.delete")):
        jobs = {"compact": 2, "cluster": 1, "vacuum": 2}
    if step.startswith(("build_index.", "merge_index.", "publish_unique.")):
        jobs = {"index": 4, "fold": 2, "block": 3}
    if step.startswith("reshape."):
        jobs = {"reshape": 4, "block": 3}
    if step.startswith("convert."):
        jobs = {"convert": 4, "block": 3}
    if step in LOG_STEPS:
        kill_at_log_step(lake, step, min(count, 3))
        return
    lake.kill_at(f"{step}:{min(count, 3) if jobs else count}=kill", weights={**weights, **jobs}, seconds=60.0)


def run(
    kills: int,
    seed: int,
    *,
    dsn: str | None = None,
    hot: str = "inline",
    light: bool = False,
    named: float = 0.3,
    most_lines: int = 60,
    report: float = 30.0,
) -> str:
    """Kill that often; what came of it, in one line.  Raises AssertionError with the seed at the first damage.

    ``light``: only what concerns a redo log, with less work between the kills and fewer checks after each.
    """
    chance = random.Random(seed)
    begun = reported = time.monotonic()
    done = acknowledged = in_flight = kept = 0
    steps = LOG_STEPS if light else (*STEPS, *3 * LOG_STEPS) if hot == "memory" else STEPS
    nursery = Nursery()
    try:
        while done < kills:
            lake_seed = chance.getrandbits(30)
            lake = new_lake(nursery, lake_seed, dsn=dsn, format=FORMATS[lake_seed % 3], hot=hot)
            lake.light, lake.request.weights = light, LOG_WEIGHTS if light else {}
            try:
                for _ in range(min(KILLS_PER_LAKE * (5 if light else 1), kills - done)):
                    if chance.random() >= named:
                        lake.kill_at_random(most_lines)
                    else:
                        kill_at_step(lake, chance.choice(steps), chance.choice((1, 2, 3, 5, 8)))
                    done += 1
                lake.finish(most=5 if light else 40)
            except BaseException as error:
                error.add_note(f"seed {seed}, lake seed {lake_seed}, kill {done}, lake kept in {lake.folder}")
                raise
            acknowledged += lake.acknowledged
            in_flight += lake.in_flight
            kept += lake.kept_in_flight
            remove(lake)
            if time.monotonic() - reported > report:
                reported = time.monotonic()
                print(f"{done} kills, {acknowledged} acknowledged writes, {reported - begun:.0f} s", flush=True)
    finally:
        nursery.close()
    return (
        f"{done} kills in {time.monotonic() - begun:.0f} s: {acknowledged} acknowledged writes all there once; "
        f"of {in_flight} in flight {kept} were committed whole, the others left nothing (seed {seed})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.campaign", description=__doc__)
    parser.add_argument("--kills", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(30))
    parser.add_argument("--postgres", action="store_true", help="the catalog in a PostgreSQL server of its own")
    parser.add_argument("--hot", choices=["inline", "memory"], default="inline", help="the hot store of the lakes")
    parser.add_argument("--light", action="store_true", help="only what concerns a redo log")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with ExitStack() as stack:
        dsn = None
        if options.postgres:
            from tests.support.servers import postgres_server

            dsn = stack.enter_context(postgres_server()).database()
        print(run(options.kills, options.seed, dsn=dsn, hot=options.hot, light=options.light))


if __name__ == "__main__":
    main()
