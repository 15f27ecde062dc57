"""When partitions are merged, folded, split, cut, moved and joined, and how large they become."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.blocks.block import BlockRecord
from indexlake.partitions.partition import Partition
from indexlake.pipeline import partition_policy
from indexlake.pipeline.partition_policy import Part, Step
from tests.support.waiting import wait_until

TEXT = "abc " * 500
"""2 KB that compress well: the target is of files, which are not compressed."""

T, DUMP = 2_000, 200
"""Rows of a partition and of a dump in simulations."""


def make(lake: il.Lake, name: str = "t", **config: Any) -> il.Table:
    settings = il.TableConfig(**{"direct_write_row_count": 100, **config})
    return lake.create_table(
        name, {"id": "int64", "text": "string"}, primary_key="id", layout="clustered", config=settings
    )


def keys(kind: str, count: int) -> list[int]:
    found = list(range(count))
    if kind == "random":
        random.Random(1).shuffle(found)
    return found


def rows(ids: Iterable[int], text: str = "x") -> pa.Table:
    ids = list(ids)
    return pa.table({"id": ids, "text": [text] * len(ids)})


def sizes(t: il.Table) -> list[int]:
    return sorted(p.data_bytes + p.delta_bytes for p in t.partitions())


@pytest.mark.parametrize("kind", ["sorted", "random"])
def test_a_large_insert_of_large_rows_makes_partitions_of_so_many_bytes(lake: il.Lake, kind: str) -> None:
    t = make(lake, partition_bytes=400_000)
    t.insert(rows(keys(kind, 2_000), TEXT))  # 4 MB
    lake.pipeline(runner="threads").run("t")
    assert 8 <= len(t.partitions()) <= 14
    assert sizes(t)[-1] <= 1.5 * 400_000
    assert t.stats().clustered.written_per_given < 1.2, "nearly all blocks have the right size as they are written"


def test_a_heap_of_large_rows_becomes_partitions_of_so_many_bytes(lake: il.Lake) -> None:
    t = lake.create_table(
        "t", {"id": "int64", "text": "string"}, "id",
        config=il.TableConfig(partition_bytes=400_000, direct_write_row_count=100),
    )  # fmt: skip
    t.insert(rows(keys("random", 2_000), TEXT))
    lake.cluster_table("t")
    assert 8 <= len(lake.table("t").partitions()) <= 14
    assert sizes(lake.table("t"))[-1] <= 1.5 * 400_000
    assert lake.table("t").stats().clustered.written_per_given == 1.0, "counted since the table is clustered"


@pytest.mark.parametrize("job", ["run", "merge"])
def test_a_dump_of_several_partitions_rows_is_split(lake: il.Lake, job: str) -> None:
    t = make(lake, partition_row_count=100, direct_write_row_count=10_000)
    t.insert(rows(keys("random", 1_000)))
    lake.pipeline(runner="threads").dump("t")
    getattr(lake.pipeline(runner="threads"), job)("t")
    assert [p.data_rows for p in t.partitions()] == [100] * 10


@pytest.mark.parametrize("job", ["run", "merge", "split"])
def test_partitions_are_split_when_the_table_asks_for_smaller_ones(lake: il.Lake, job: str) -> None:
    t = make(lake)
    t.insert(rows(keys("sorted", 1_000)))
    p = lake.pipeline(runner="threads")
    p.merge("t")
    t.set_config(partition_row_count=100)
    getattr(p, job)("t")
    assert [p.data_rows for p in t.partitions()] == [100] * 10
    t.set_config(partition_row_count=10_000)
    p.run("t")
    assert [p.data_rows for p in t.partitions()] == [1_000], "and joined when it asks for larger ones"


# ---------------------------------------------------------------- the policy alone: what it writes, and what it leaves


def block(number: int, of: int, found: list[int], role: Any) -> BlockRecord:
    first, last = (key.to_bytes(8, "big") for key in (found[0], found[-1]))
    return BlockRecord(
        number, 1, f"{number}", "ipc", role, "key", 0, len(found), b"", 0, 0, 0, 0, b"", of, 0, 0, None, 0,
        first, last, b"",
    )  # fmt: skip


class Simulation:
    """Does what the policy asks for, with keys instead of files."""

    def __init__(self, **config: Any) -> None:
        settings: dict[str, Any] = {"partition_row_count": T, "inline_row_count_limit": DUMP}
        self.config = il.TableConfig(**settings | config)
        self.begins = [0]  # of partitions, in order; their numbers are in the same order
        self.numbers = [1]
        self.keys: dict[int, list[int]] = {}  # by block
        self.blocks: dict[int, list[BlockRecord]] = {1: []}  # by partition
        self.used = 1
        self.given = self.written = self.most_deltas = 0
        self.kinds: dict[str, int] = {}

    def number(self) -> int:
        self.used += 1
        return self.used

    def write(self, partition: int, found: list[int], role: str) -> None:
        new = block(self.number(), partition, found, role)
        self.keys[new.data_file_id] = found
        self.blocks[partition].append(new)
        self.written += len(found)

    def parts(self) -> list[Part]:
        found = []
        for n, (number, begin) in enumerate(zip(self.numbers, self.begins, strict=True)):
            end = self.begins[n + 1].to_bytes(8, "big") if n + 1 < len(self.begins) else None
            partition = Partition(number, 1, begin.to_bytes(8, "big") if n else None, end, 0, None, 0)
            own = self.blocks[number]
            data, deltas = (tuple(b for b in own if b.role == role) for role in ("data", "delta"))
            rows = sum(b.record_count for b in own)
            live = len(set().union(*(self.keys[b.data_file_id] for b in own)))
            found.append(Part(partition, data, deltas, rows - live))
        return found

    def beyond(self, part: Part) -> int:
        last = max((self.keys[b.data_file_id][-1] for b in part.data), default=-1)
        return sum(key > last for b in part.deltas for key in self.keys[b.data_file_id])

    def dump(self, found: Iterable[int]) -> None:
        ordered = sorted(set(found))
        self.given += len(ordered)
        for n, number in reversed(list(enumerate(self.numbers))):
            own = [key for key in ordered if key >= self.begins[n]]
            ordered = ordered[: len(ordered) - len(own)]
            if own:
                self.write(number, own, "delta")
        while steps := partition_policy.due_among(self.parts(), self.config, self.beyond):
            for step in steps:
                self.do(step)
        self.most_deltas = max(self.most_deltas, *(len(p.deltas) for p in self.parts()))

    def do(self, step: Step) -> None:
        self.kinds[step.kind] = self.kinds.get(step.kind, 0) + 1
        old = [p.partition.partition_id for p in step.parts]
        rows = sorted(set().union(*(self.keys[b.data_file_id] for b in step.inputs)))
        inputs = {b.data_file_id for b in step.inputs}
        kept = [b for number in old for b in self.blocks[number] if b.data_file_id not in inputs]
        place = self.numbers.index(old[0])
        bounds = [int.from_bytes(bound, "big") for bound in step.bounds]
        if step.sizes:
            ends = [sum(step.sizes[: n + 1]) for n in range(len(step.sizes))]
            bounds = [rows[end] for end in ends]
        new = [self.number() for _ in range(1 + len(bounds))] if step.changes_ranges else old
        begins = [self.begins[place], *bounds]
        self.numbers[place : place + len(old)] = new
        self.begins[place : place + len(old)] = begins
        for number in old:
            del self.blocks[number]
        for n, number in enumerate(new):
            end = begins[n + 1] if n + 1 < len(begins) else float("inf")
            mine = [b for b in kept if begins[n] <= self.keys[b.data_file_id][0] < end]
            assert all(self.keys[b.data_file_id][-1] < end for b in mine), "a bound lies between blocks"
            if step.kind == "move":
                mine = [b._replace(role="data") for b in mine]
            self.blocks[number] = [b._replace(partition_id=number) for b in mine]
            if own := [key for key in rows if begins[n] <= key < end]:
                self.write(number, own, "delta" if step.kind == "fold" else "data")

    @property
    def amplification(self) -> float:
        return self.written / self.given

    @property
    def balance(self) -> float:
        """The largest partition by the median one."""
        found = sorted(sum(b.record_count for b in blocks) for blocks in self.blocks.values())
        return found[-1] / found[len(found) // 2]


SPACE = 1 << 40

WORKLOADS: dict[str, tuple[Callable[[random.Random, int], Iterable[int]], float]] = {
    "random": (lambda r, n: (r.randrange(SPACE) for _ in range(DUMP)), 4),
    "updated": (lambda r, n: (r.randrange(10 * T) for _ in range(DUMP)), 3.6),
    "appended": (lambda r, n: range(n * DUMP, (n + 1) * DUMP), 2.1),
    "appended, some late": (
        lambda r, n: (k - r.randrange(20 * DUMP) * (k > 20 * DUMP and r.random() < 0.02)
                      for k in range(n * DUMP, (n + 1) * DUMP)), 3.2,
    ),
    "sorted load": (lambda r, n: range(n * T, (n + 1) * T) if n % 10 == 0 else (), 1.0),
    "skewed": (lambda r, n: (int(r.paretovariate(0.7) * 10_000) for _ in range(DUMP)), 3.7),
}  # fmt: skip


@pytest.mark.parametrize("kind", WORKLOADS)
def test_what_is_written_and_what_it_leaves(kind: str) -> None:
    """As measured in the model of the policy: bytes written for those given, and how even partitions are."""
    keys_of, most = WORKLOADS[kind]
    chance, s = random.Random(1), Simulation()
    for n in range(120):
        if found := list(keys_of(chance, n)):
            s.dump(found)
    assert s.amplification <= most
    assert s.balance <= 3
    assert s.most_deltas <= 40
    assert len(s.numbers) > 3


def test_deltas_are_merged_at_the_ratio_that_the_table_asks_for() -> None:
    merges = {}
    for ratio in (0.25, 1.0, 4.0):
        s, chance = Simulation(merge_ratio=ratio), random.Random(1)
        for _ in range(60):
            s.dump(chance.randrange(SPACE) for _ in range(DUMP))
        merges[ratio] = s.kinds["merge"]
    assert merges[0.25] > merges[1.0] > merges[4.0]


def test_sixteen_deltas_of_one_size_are_folded_and_not_merged() -> None:
    s = Simulation(inline_row_count_limit=T)
    s.dump(range(T))
    kinds = s.kinds.copy()
    for n in range(16):
        s.dump([n])
    assert s.kinds == kinds | {"fold": 1}
    assert [b.record_count for b in s.blocks[s.numbers[0]]] == [T, 16]


def test_an_absolute_limit_merges_however_small_the_ratio_is() -> None:
    s = Simulation(delta_row_limit=100, merge_ratio=100.0)
    s.dump(range(0, 2 * T, 2))
    s.dump(range(1, 199, 2))
    assert [b.record_count for b in s.blocks[s.numbers[0]]] == [T, 99]
    s.dump([199])
    assert [b.record_count for b in s.blocks[s.numbers[0]]] == [T + 100]


def test_what_was_split_is_not_joined_at_once_and_small_neighbours_are() -> None:
    s, chance = Simulation(), random.Random(1)
    for _ in range(60):
        s.dump(chance.randrange(SPACE) for _ in range(DUMP))
    assert "join" not in s.kinds
    count = len(s.numbers)
    for number in s.numbers:  # most rows are deleted, and their blocks merged
        found = sorted(set().union(*(s.keys[b.data_file_id] for b in s.blocks[number])))
        s.blocks[number] = []
        s.write(number, found[::25], "data")
    s.dump([0])
    assert s.kinds["join"]
    assert len(s.numbers) < count / 2
    sizes = [sum(b.record_count for b in s.blocks[number]) for number in s.numbers]
    assert all(a + b >= T / 4 for a, b in pairwise(sizes))


def test_the_background_merges_what_was_only_deleted_from(tmp_path: Path) -> None:
    with il.connect(tmp_path / "lake") as lake:
        t = make(lake, partition_row_count=400)
        t.insert(rows(range(400)))
        t.insert(rows(range(400, 800)))
        wait_until(lambda: [p.data_rows for p in t.partitions()] == [400, 400], "two partitions")
        for first in range(0, 800, 80):
            t.delete("id between $first and $first + 70", params={"first": first})
        wait_until(lambda: sum(p.data_rows for p in t.partitions()) <= 400, "a merge")
        t.truncate()
        wait_until(lambda: len(t.partitions()) == 1, "a join")
