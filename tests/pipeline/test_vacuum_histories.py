"""Vacuum without grace, at random moments of random histories: nothing that anybody can reach is ever deleted.

Several handles write, fail, die, read and pin; jobs run; tables come and go.  After each vacuum every file that the
catalog names is whole, and past snapshots read as they were.  At the end, when all have left, no orphan remains.
"""

from __future__ import annotations

import os
import random
import shutil
import uuid
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import indexlake as il
from indexlake.catalog import files as catalog_files
from indexlake.errors import IndexLakeError
from tests.pipeline.job_tables import files, rows, table
from tests.support.folders import new_folder
from tests.support.lakes import clock_of, connect

NOW = timedelta(0)
NAMES = ("t", "u", "w")
WEIGHTS = {
    "block": 5, "few": 4, "update": 3, "delete": 3, "truncate": 0.7, "drop_and_create": 0.5, "failed_insert": 2,
    "begin_write": 2, "end_write": 2, "pin": 0.7, "unpin": 0.7, "killed_writer": 1, "reopen": 0.7, "job": 7,
    "expire": 3, "vacuum": 4,
}  # fmt: skip


class History:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.folder = new_folder("vacuum")
        self.lakes = [self.connect() for _ in range(2)]
        self.fresh = 0
        self.log: list[str] = []
        self.past: dict[int, dict[str, Any]] = {}
        self.pinned: list[tuple[il.Lake, il.Transaction, dict[str, Any]]] = []
        self.open: list[il.Transaction] = []
        self.vacuumed = self.deleted = 0
        for name in NAMES:
            self.create(name)

    def connect(self) -> il.Lake:
        return connect(self.folder / "lake")

    def lake(self) -> il.Lake:
        return self.chance.choice(self.lakes)

    def create(self, name: str) -> None:
        formats = ("vortex", "parquet", "ipc")
        table(self.lakes[0], name, block=30, retention=0, dump_format=self.chance.choice(formats))

    def some(self) -> il.Table:
        lake = self.lake()
        return lake.table(self.chance.choice(lake.tables()))

    # ------------------------------------------------------------ what happens

    def block(self) -> None:
        t, count = self.some(), self.chance.randrange(10, 70)
        t.insert(rows(self.fresh, count))
        self.fresh += count

    def few(self) -> None:
        t, count = self.some(), self.chance.randrange(1, 9)
        t.insert(rows(self.fresh, count).to_pylist())
        self.fresh += count

    def update(self) -> None:
        self.some().update({"text": f"u{self.chance.random()}"}, f"id % {self.chance.randrange(2, 6)} = 0")

    def delete(self) -> None:
        self.some().delete(f"id % {self.chance.randrange(2, 6)} = 1")

    def truncate(self) -> None:
        self.some().truncate()

    def drop_and_create(self) -> None:
        t = self.some()
        self.lake().drop_table(t.name)
        self.create(t.name)

    def failed_insert(self) -> None:
        """Its blocks are written, its commit is refused."""
        t = self.some()
        there = t.scan(columns=["id"], limit=1).to_pylist()
        if there:
            with pytest.raises(il.DuplicateKeyError):
                t.insert(rows(there[0]["id"], 20))

    def begin_write(self) -> None:
        """Blocks that wait for their commit."""
        lake = self.lake()
        tx = lake.transaction()
        tx.table(self.chance.choice(lake.tables())).insert(rows(self.fresh, 25))
        self.fresh += 25
        self.open.append(tx)

    def end_write(self) -> None:
        if self.open:
            tx = self.open.pop(self.chance.randrange(len(self.open)))
            with suppress(il.ConflictError, il.NotFoundError, il.SnapshotExpiredError):
                tx.commit() if self.chance.random() < 0.7 else tx.rollback()

    def pin(self) -> None:
        lake = self.lake()
        tx = lake.transaction()
        tx._pin.started -= 100
        lake._maintenance._beat_once()
        self.pinned.append((lake, tx, self.read(tx)))

    def unpin(self) -> None:
        if self.pinned:
            lake, tx, seen = self.pinned.pop(0)
            assert self.read(tx) == seen
            tx.rollback()
            lake._maintenance._beat_once()

    def killed_writer(self) -> None:
        """A process that wrote blocks and half a file and was never heard of again."""
        lake = self.connect()
        lake.transaction().table(self.chance.choice(lake.tables())).insert(rows(10**6 + self.fresh, 25))
        writer = lake._maintenance.writer_id
        folder = Path(lake.storage.root, "tables", "1", "data")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f".{writer}-{uuid.uuid4().hex}.vortex.{uuid.uuid4().hex[:12]}.tmp").write_bytes(b"half")
        lake._maintenance.stop(wait=False)
        lake._maintenance.writer_id = lake._maintenance._pin_id = None
        lake.close()
        if self.chance.random() < 0.7:
            with self.lakes[0].catalog.transaction() as tx:
                tx.execute("update indexlake_writer set expires_at = 5 where writer_id = ?", (writer,))
                tx.commit()

    def reopen(self) -> None:
        """A handle leaves and another comes."""
        held = {id(lake) for lake, _, _ in self.pinned} | {id(tx._lake) for tx in self.open}
        free = [n for n, lake in enumerate(self.lakes) if id(lake) not in held]
        if free:
            n = self.chance.choice(free)
            self.lakes[n].close()
            self.lakes[n] = self.connect()

    def job(self) -> None:
        p = self.lake().pipeline(runner="threads")
        t = self.some().name
        self.chance.choice(
            (
                lambda: p.dump(t),
                lambda: p.compact(t),
                lambda: p.compact(t, cluster_by=["v"]),
                lambda: p.freeze(t),
                lambda: p.thaw(t),
            )
        )()

    def expire(self) -> None:
        lake = self.lake()
        with lake.catalog.read() as r:
            times = [at for (at,) in r.rows("select committed_at from indexlake_snapshot order by 1")]
        moment = self.chance.choice(times[len(times) // 2 :]) + 60_000_000
        with clock_of(lake).stopped(moment):
            lake.pipeline(runner="threads").expire()

    def vacuum(self) -> None:
        self.vacuumed += 1
        self.deleted += self.lake().pipeline(runner="threads").vacuum(dry_run=False, grace=NOW).files
        self.check()

    # ------------------------------------------------------------ checks

    def read(self, view: Any) -> dict[str, Any]:
        names = view.tables() if hasattr(view, "tables") else self.lakes[0].tables()
        return {name: view.table(name).scan(order_by="id", with_row_id=True).to_pylist() for name in names}

    def check(self) -> None:
        verified = self.lake().pipeline(runner="threads").verify()
        assert verified.ok, verified
        lake = self.lake()
        for snapshot in sorted(self.past):
            try:
                found = self.read(lake.at(snapshot))
            except (il.SnapshotExpiredError, il.NotFoundError):
                del self.past[snapshot]
                continue
            assert found == self.past[snapshot], f"snapshot {snapshot}"
        for _, tx, seen in self.pinned:
            assert self.read(tx) == seen

    def remember(self) -> None:
        lake = self.lake()
        snapshot = lake.snapshot_id
        if len(self.past) < 12 or self.chance.random() < 0.2:
            self.past[snapshot] = self.read(lake.at(snapshot))

    def run(self, steps: int) -> None:
        for _ in range(steps):
            (what,) = self.chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
            self.log.append(what)
            getattr(self, what)()
            self.remember()
        self.finish()

    def finish(self) -> None:
        """All leave; what is unreachable then goes, and nothing else."""
        self.check()
        while self.pinned:
            self.unpin()
        for tx in self.open:
            tx.rollback()
        for lake in self.lakes:
            lake.close()
        with self.connect() as lake:
            now = self.read(lake.at(lake.snapshot_id))
            with lake.catalog.transaction() as tx:
                tx.execute("update indexlake_writer set expires_at = 5")
                tx.commit()
            clock_of(lake).stop()
            p = lake.pipeline(runner="threads")
            p.expire()
            p.vacuum(dry_run=False, grace=NOW)
            with lake.catalog.read() as r:
                reachable = set(catalog_files.reachable_paths(r))
                assert r.rows("select count(*) from indexlake_garbage") == [(0,)]
                assert r.rows("select count(*) from indexlake_writer") == [(0,)]
            assert files(lake) == reachable, "no orphan is left, nothing that is needed is gone"
            assert self.read(lake.at(lake.snapshot_id)) == now
            assert p.verify().ok

    def close(self) -> None:
        for lake in self.lakes:
            lake.close(wait=False)
        shutil.rmtree(self.folder, ignore_errors=True)


def play(seed: int, steps: int) -> History:
    history = History(seed)
    try:
        history.run(steps)
    except (AssertionError, IndexLakeError) as error:
        error.add_note(f"seed {seed}, after {history.log}")
        raise
    finally:
        history.close()
    return history


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_vacuum_at_random_moments_deletes_nothing_that_is_reachable_and_leaves_no_orphan(seed):
    history = play(seed, 50)
    assert history.vacuumed > 1
    assert history.deleted > 0


@pytest.mark.long
def test_many_random_histories():
    for seed in range(int(os.environ.get("INDEXLAKE_SEED", "1000")), 10**9):
        play(seed, 150)
        print(f"seed {seed}", flush=True)
        if seed % 100 == 99:
            break
