"""A crash at every step of a working lake, also one with the power: the image of the disk is opened and compared.

The steps are those of commits, of the log, of dumps and of the catalog's transactions, in a process that lives on; so
hundreds of crashes cost little.  `tests/crash` kills real processes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import indexlake as il
from indexlake.hot.memory import redo
from indexlake.storage import faults
from tests.hot.memory.disk import Disk
from tests.support.lakes import connect

OnStep = Callable[[faults.Callback | None], object]
Rows = dict[int, int]

OPERATIONS = 60
TIMES = (1, 2, 5, 11, 23, 47)
"""When a worker comes to a step for so many times, the lake crashes."""
STEPS = (
    "log.append", "log.sync", "log.synced", "log.published", "log.create", "log.rotate", "log.sealed", "log.truncate",
    "log.catalog", "sql.commit.before", "sql.commit.after", "dump.planned", "dump.written", "dump.commit",
    "dump.committed", "dump.purged", "commit.applied",
)  # fmt: skip


class Worker:
    """Writes to a table, and knows what must be there and what may be."""

    def __init__(self, lake: il.Lake, disk: Disk, seed: int) -> None:
        self.random = random.Random(seed)
        self.arrives = random.Random(seed)
        self.disk = disk
        self.lake = lake
        self.table = lake.create_table(
            "t",
            {"id": "int64", "value": "int64"},
            primary_key="id",
            config=il.TableConfig(direct_write_row_count=20, block_row_count=20, dump_format="ipc"),
        )
        self.steps: Counter[str] = Counter()
        self.acknowledged: Rows = {}
        self.next: Rows = {}
        self.images: list[tuple[str, Path, list[Rows]]] = []

    def step(self, name: str) -> None:
        self.steps[name] += 1
        if name in STEPS and self.steps[name] in TIMES:
            image = self.disk.image(power_cut=len(self.images) % 2 == 1, arrives=self.arrives)
            self.images.append((name, image, [dict(self.acknowledged), dict(self.next)]))

    def do(self) -> None:
        rows, number = self.next, self.random.random()
        keys = self.random.sample(sorted(rows), min(len(rows), self.random.choice((1, 1, 5))))
        if number < 0.35:
            new = {
                self.random.randrange(10**9): number_of(self.random) for _ in range(self.random.choice((1, 1, 3, 25)))
            }
            rows |= new
            self.table.insert([{"id": key, "value": value} for key, value in new.items()])
        elif number < 0.55:
            value = number_of(self.random)
            rows |= dict.fromkeys(keys, value)
            self.table.update({"value": value}, "id in $keys", {"keys": keys})
        elif number < 0.7:
            for key in keys:
                del rows[key]
            self.table.delete("id in $keys", {"keys": keys})
        elif number < 0.85:
            new = {key: number_of(self.random) for key in [*keys, *(self.random.randrange(10**9) for _ in range(20))]}
            rows |= new
            self.table.upsert([{"id": key, "value": value} for key, value in new.items()])
        elif number < 0.97:
            self.lake.pipeline(runner="threads").dump("t")
        else:
            rows.clear()
            self.table.truncate()
        self.acknowledged = dict(rows)


def number_of(chance: random.Random) -> int:
    return chance.randrange(1000)


def _read(lake: il.Lake) -> Rows:
    rows = lake.table("t").scan().to_pylist()
    found = {row["id"]: row["value"] for row in rows}
    assert len(found) == len(rows), "a row is there twice"
    return found


def _check(image: Path, allowed: list[Rows], step: str) -> None:
    with connect(image) as lake:
        there = _read(lake)
        assert there in allowed, f"{step}: {image}"
        for key in sorted(allowed[0] | allowed[1])[::7]:
            row: Any = lake.table("t").get(key)
            assert (None if row is None else row["value"]) == there.get(key)
        lake.table("t").insert({"id": -1, "value": 1})
        lake.pipeline().dump()
    with connect(image) as lake:
        assert _read(lake) == {**there, -1: 1}, f"{step}: {image}"
        assert lake.pipeline().verify().ok


@pytest.mark.parametrize("seed", [1, 2])
def test_a_crash_at_any_step_loses_nothing_that_was_acknowledged(
    disk: Disk, on_step: OnStep, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(redo, "SEGMENT_BYTES", 800)
    with connect(disk.lake, hot="memory") as lake:
        worker = Worker(lake, disk, seed)
        on_step(worker.step)
        for _ in range(OPERATIONS):
            worker.do()
        on_step(None)
        assert _read(lake) == worker.acknowledged
    assert {name for name, _, _ in worker.images} == set(STEPS)
    assert len(worker.images) > 70
    for step, image, allowed in worker.images:
        _check(image, allowed, step)
