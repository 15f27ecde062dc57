"""Jobs of every kind at the same time, beside writes: the table is right at every moment."""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress
from datetime import timedelta

import pytest

import indexlake as il
from indexlake.pipeline.job import JobBusy
from tests.pipeline.job_tables import content, expire_everything, files, rows, table

STEPS = 40
KINDS = {"dump", "compact", "cluster", "freeze", "thaw", "vacuum"}


class Jobs:
    """Threads that do nothing but one kind of job each, on handles of their own."""

    def __init__(self, address) -> None:
        self.lakes = [address.connect(automatic=False) for _ in range(2)]
        self.stop = threading.Event()
        self.errors: list[BaseException] = []
        self.done: set[str] = set()
        one, two = (lake.pipeline(runner="threads") for lake in self.lakes)
        self.threads = [
            threading.Thread(target=self.repeat, args=(name, job))
            for name, job in {
                "dump": lambda: one.dump("t"),
                "compact": lambda: two.compact("t"),
                "cluster": lambda: one.compact("t", cluster_by=["v"]),
                "freeze": lambda: one.freeze("t"),
                "thaw": lambda: two.thaw("t"),
                "vacuum": lambda: two.vacuum(dry_run=False, grace=timedelta(0)),
            }.items()
        ]

    def repeat(self, name, job) -> None:
        try:
            while not self.stop.is_set():
                with suppress(JobBusy):
                    job()
                    self.done.add(name)
                time.sleep(0.002)
        except BaseException as error:
            self.errors.append(error)
            self.stop.set()

    def more(self, steps: int, wanted: int) -> bool:
        """So many steps, and more until each kind of job came through."""
        return not self.stop.is_set() and (steps < wanted or (self.done != KINDS and steps < 50 * wanted))

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join(60)
        for lake in self.lakes:
            lake.close()
        if self.errors:
            raise self.errors[0]


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_compact_freeze_truncate_updates_and_dumps_at_once_give_the_right_table(new_address, database):
    address = new_address(database)
    chance = random.Random(5)
    with address.connect(automatic=False) as lake:
        t = table(lake, block=40)
        wanted: dict[int, str] = {}
        fresh, checks = 0, 0
        past: list[tuple[int, dict[int, str]]] = []
        with Jobs(address) as jobs:
            while jobs.more(checks, STEPS):
                what = chance.choices(["block", "few", "update", "delete", "truncate"], [3, 4, 6, 4, 0.2])[0]
                if what in ("block", "few"):
                    count = chance.randrange(10, 60) if what == "block" else chance.randrange(1, 9)
                    new = rows(fresh, count)
                    t.insert(new if what == "block" else new.to_pylist())
                    wanted |= {n: f"row {n}" for n in range(fresh, fresh + count)}
                    fresh += count
                elif what == "truncate":
                    t.truncate()
                    wanted = {}
                else:
                    modulus, rest = chance.choice((3, 7, 50)), chance.randrange(3)
                    hit = [n for n in wanted if n % modulus == rest]
                    params = {"m": modulus, "r": rest}
                    if what == "update":
                        assert t.update({"text": f"u{checks}"}, "id % $m = $r", params).rows == len(hit)
                        wanted |= dict.fromkeys(hit, f"u{checks}")
                    else:
                        assert t.delete("id % $m = $r", params).rows == len(hit)
                        wanted = {n: text for n, text in wanted.items() if n % modulus != rest}
                checks += 1
                if checks % 4 == 0:
                    assert {r["id"]: r["text"] for r in content(t)} == wanted
                if checks % 25 == 0:
                    past.append((lake.snapshot_id, dict(wanted)))
        assert {r["id"]: r["text"] for r in content(t)} == wanted
        for snapshot, then in past:
            assert {r["id"]: r["text"] for r in content(t.at(snapshot))} == then
        assert jobs.done == KINDS
        verified = lake.pipeline(runner="threads").verify()
        assert verified.ok, verified
        lake.pipeline(runner="threads").dump("t")
        expire_everything(lake)
        lake._maintenance.forget()
        lake.pipeline(runner="threads").vacuum(dry_run=False, grace=timedelta(0))
        assert lake.pipeline(runner="threads").verify().unreachable_files == 0
        assert {r["id"]: r["text"] for r in content(t)} == wanted
        assert files(lake) or not wanted


def test_writers_never_conflict_with_a_job(new_address):
    """First committer wins among users; a job is no committer in that sense."""
    address = new_address("sqlite")
    with address.connect(automatic=False) as lake:
        t = table(lake, block=40)
        t.insert(rows(0, 200))
        conflicts = 0
        with Jobs(address) as jobs:
            n = 0
            while jobs.more(n, 30):
                tx = lake.transaction()
                mine = tx.table("t")
                assert mine.update({"v": n}, "id % 20 = $r", {"r": n % 20}).rows == 10
                mine.update({"text": str(n)}, "id = $id", {"id": n % 200})
                try:
                    tx.commit()
                except il.ConflictError:
                    conflicts += 1
                n += 1
        assert conflicts == 0
        assert len(t) == 200
