"""The world of interleavings with a clustered table, whose partitions are reshaped all the time.

Merge, fold, split, join, cut and move run step by step, by the engine's own functions, with inputs and bounds chosen at
random.  Checked besides what the world checks, after every step:

  8 ranges   at every retained snapshot the partitions cover all keys without overlap; every block is sorted by key,
             has the first and last key that its record says, and lies in the range of its own partition; a live block
             lies in a live partition
  9 tidy     after a dump and a merge of everything each partition is at most one block of data
"""

from __future__ import annotations

import random
import uuid
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import indexlake as il
from indexlake.blocks.stream import Target
from indexlake.catalog import data_files
from indexlake.indexes.keys import encode_key, key_to_bytes
from indexlake.pipeline import partition_policy, reshape
from indexlake.pipeline.job import Job
from indexlake.pipeline.partition_policy import Part, Step
from indexlake.pipeline.runner import ThreadRunner
from indexlake.schema import ROW_ID
from indexlake.snapshots.state import TableState
from tests.model.interleaving import ACTIVITIES, Activity, Steps, Violation, World
from tests.model.model_table import COMPOSITE, INTEGER, Kind, contents
from tests.support.partitions import range_problems


class PartitionWorld(World):
    keys = 12

    def __init__(self, seed: int, postgres: str | None = None) -> None:
        self.looked_into: dict[str, tuple[bytes, bytes]] = {}
        super().__init__(seed, postgres)

    def choose_kind(self, rng: random.Random) -> Kind:
        return rng.choice((INTEGER, INTEGER, COMPOSITE))

    def create(self, rng: random.Random) -> None:
        config = il.TableConfig(
            direct_write_row_count=rng.choice((3, 50)), block_row_count=rng.choice((2, 3, 5)), retention=timedelta(0),
            partition_row_count=rng.choice((2, 3, 4)),
        )  # fmt: skip
        self.lakes[0].create_table("t", self.kind.schema, self.kind.key, layout="clustered", config=config)

    @property
    def activities(self) -> dict[str, tuple[Activity, float]]:
        others = {name: found for name, found in ACTIVITIES.items() if name != "rewrite"}
        return others | {"reshaping": (reshaping, 7.0), "keep_shape": (keep_shape, 1.0)}

    def check(self, lake: il.Lake, *, thorough: bool = False) -> None:
        super().check(lake, thorough=thorough)
        self.check_ranges(lake)
        rng = random.Random(self.steps)
        snapshot = rng.choice(list(self.model.retained()))
        low, high = sorted((rng.randrange(self.keys), rng.randrange(self.keys)))
        found = self.table(lake, snapshot).scan("id between $a and $b", params={"a": low, "b": high}, with_row_id=True)
        rows = [{name: v for name, v in row.items() if name != ROW_ID} for row in found.to_pylist()]
        if contents(rows) != contents(r for r in self.model.states[snapshot].values() if low <= r["id"] <= high):
            raise Violation(f"1 read: ids {low} to {high} at {snapshot}: {rows}")
        direction, limit = rng.choice(("asc", "desc")), rng.choice((None, 1, 3))
        order = [(column, direction) for column in self.kind.key]
        rows = self.table(lake, snapshot).scan(order_by=order, limit=limit).to_pylist()
        wanted = sorted(self.model.states[snapshot].values(), key=self.kind.key_of, reverse=direction == "desc")
        if rows != wanted[:limit]:
            raise Violation(f"1 read: {limit} rows at {snapshot} by {order}: {rows}, oracle {wanted[:limit]}")

    def check_ranges(self, lake: il.Lake) -> None:
        for problem in range_problems(lake, self.table_id, self.model.retained(), self.looked_into):
            raise Violation(f"8 ranges: {problem}")

    def tidy(self, lake: il.Lake) -> None:
        reshape.merge(lake, self.table_id, ThreadRunner(lake.storage))
        self.job_committed()
        with lake.catalog.read() as r:
            blocks = [b for b in data_files.read_blocks(r, self.table_id) if b.end_snapshot is None]
        blocks = [b for b in blocks if b.role != "history"]
        if any(b.role != "data" for b in blocks) or len({b.partition_id for b in blocks}) < len(blocks):
            raise Violation(f"9 tidy: {[(b.partition_id, b.role, b.record_count) for b in blocks]}")


# ---------------------------------------------------------------- activities: one yield per step


def choose_step(w: World, state: TableState, rng: random.Random) -> Step | None:
    """Any step that may be made, whether the policy would ask for it or not."""
    parts = partition_policy.parts_of(state)
    n = rng.randrange(len(parts))
    part = parts[n]
    kind = rng.choice(("merge", "merge", "split", "split", "fold", "cut", "join", "join", "move"))
    if kind == "join":
        some = parts[n : n + rng.choice((2, 2, 3))]
        return partition_policy.join(some) if len(some) > 1 else None
    if kind == "cut":
        schema = state.current
        row = w.kind.row(rng.randrange(w.keys))
        values = [codec.encode_one(row[name]) for codec, name in zip(schema.key_codecs, w.kind.key, strict=True)]
        return next(iter(partition_policy.split_at(state, key_to_bytes(encode_key(schema.key_codecs, values)))), None)
    if kind == "move":
        return partition_policy._move(part, 1, part.live_rows)
    if kind == "fold":
        deltas = rng.sample(part.deltas, rng.randint(0, len(part.deltas)))
        return Step("fold", (part,), tuple(deltas)) if deltas else None
    if not part.blocks:
        return None
    return Step("merge", (part,), part.blocks, _sizes(part, rng) if kind == "split" else ())


def _sizes(part: Part, rng: random.Random) -> tuple[int, ...]:
    return tuple(rng.randint(1, max(1, part.live_rows // 2)) for _ in range(rng.randint(1, 2)))


def reshaping(w: World, lake: il.Lake, rng: random.Random) -> Steps:
    """One step, as slowly as may be; pinned or not."""
    with ExitStack() as stack:
        job = stack.enter_context(Job(lake, "merge", w.table_id, scope=uuid.uuid4().hex))
        state = lake._readings.latest(w.table_id)
        step = next((found for _ in range(4) if (found := choose_step(w, state, rng)) is not None), None)
        if step is None:
            return
        if rng.random() < 0.7:
            stack.enter_context(lake._pins.pin(state.at)).started -= 31
            lake._maintenance._beat_once()
            w.pins[w.current] = state.at
        plan = reshape._plan(lake, state, Target.of(state, lake._writer_id()), step)
        yield f"{step.kind} planned at {state.at}: {_shown(plan)}"
        if plan.inputs:
            blocks = reshape.run_task(lake.storage, reshape._task(plan), lambda: None)
            reshape._take(plan, blocks)
            for _ in range(rng.choice((1, 1, 8))):
                yield f"wrote {[b.record_count for b in blocks]}"
        while True:
            late = reshape._publish(job, plan) if step.kind != "move" else [] if reshape._move(job, [plan]) else None
            w.job_committed()
            w.counts[f"{step.kind} {'dropped' if late is None else 'late' if late else 'committed'}"] += 1
            if not late:
                break
            yield f"blocks {[b.data_file_id for b in late]} came late"
            reshape._cut_late(job, plan, lake._readings.latest(w.table_id), late)
            yield "cut them"
        yield "dropped" if late is None else f"committed {_shown(plan)}"


def _shown(plan: Any) -> str:
    blocks = [b.data_file_id for b in plan.inputs]
    return f"partitions {[p.partition_id for p in plan.old]} -> {plan.ranges}, blocks {blocks}"


def keep_shape(w: World, lake: il.Lake, rng: random.Random) -> Steps:
    """What is due, at once."""
    done = reshape.keep_shape(lake, w.table_id, ThreadRunner(lake.storage))
    w.job_committed()
    yield f"kept its shape: {done}"
