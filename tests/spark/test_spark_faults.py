"""Jobs on Spark when things go wrong: workers die at named steps, the storage fails, the driver is killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from tests.pipeline.job_tables import content
from tests.spark import kill_driver

Faults = Callable[[str], AbstractContextManager[None]]

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
CONFIG = il.TableConfig(block_row_count=100, direct_write_row_count=30)


@pytest.fixture
def in_workers(spark: Any) -> Faults:
    """Workers that begin from here on have these faults; each counts for itself."""

    @contextmanager
    def faults(text: str) -> Iterator[None]:
        environment = spark.sparkContext.environment
        environment["INDEXLAKE_FAULTS"] = text
        try:
            yield
        finally:
            del environment["INDEXLAKE_FAULTS"]

    return faults


def filled(lake: il.Lake, blocks: int = 8) -> il.Table:
    """Pairs of small blocks, with deleted and changed rows."""
    t = lake.create_table("t", SCHEMA, primary_key="id", config=CONFIG)
    for n in range(blocks):
        numbers = range(n * 45, n * 45 + 45)
        t.insert(pa.table({"id": numbers, "name": [f"row {n}" for n in numbers]}))
    t.update({"name": "changed"}, "id % 9 = 0")
    t.delete("id % 13 = 0")
    return t


def leaves_no_orphan(lake: il.Lake) -> None:
    """Vacuum finds what attempts that came to nothing have written, and everything else is whole."""
    pipeline = lake.pipeline(runner="threads")
    lake._maintenance.forget()
    pipeline.vacuum(dry_run=False, grace=timedelta(0))
    verified = pipeline.verify()
    assert verified.ok, verified
    assert not verified.unreachable_files


def orphans(lake: il.Lake) -> int:
    return lake.pipeline(runner="threads").verify().unreachable_files


def frame(spark: Any, partitions: int, count: int = 200) -> Any:
    return spark.range(0, count, 1, partitions).selectExpr("id + 20000 id", "concat('row ', id) name")


# ---------------------------------------------------------------- workers


@pytest.mark.parametrize(
    ("job", "step"),
    [
        ("load", "storage.publish:2"),  # between the block and its segment
        ("compact", "storage.published:2"),
        pytest.param("load", "storage.published:2", marks=pytest.mark.long),
        pytest.param("load", "storage.write:1", marks=pytest.mark.long),
        pytest.param("compact", "storage.publish:2", marks=pytest.mark.long),
        pytest.param("compact", "storage.read:1", marks=pytest.mark.long),
        pytest.param("dump", "storage.publish:2", marks=pytest.mark.long),
        pytest.param("freeze", "storage.write:1", marks=pytest.mark.long),
    ],
)
def test_a_worker_killed_at_a_step_is_replaced_and_nothing_doubles(
    lake: il.Lake, spark: Any, in_workers: Faults, tmp_path: Path, job: str, step: str
) -> None:
    p, died = lake.pipeline(spark=spark), tmp_path / "died"
    t = filled(lake)
    t.insert([{"id": 10_000 + n, "name": "hot"} for n in range(20)])
    wanted = [(r["id"], r["name"]) for r in content(t)]
    with in_workers(f"{step}=kill@{died}"):
        if job == "load":
            assert p.load(frame(spark, 6), "t").inserted == 200
            wanted += [(20_000 + n, f"row {n}") for n in range(200)]
        else:
            getattr(p, job)("t")
    assert died.exists()
    assert [(r["id"], r["name"]) for r in content(t)] == wanted
    assert t.get(9) == {"id": 9, "name": "changed"}
    if "publish" in step:
        assert orphans(lake), "it died with a file in hand"
    leaves_no_orphan(lake)
    assert [(r["id"], r["name"]) for r in content(t)] == wanted


@pytest.mark.parametrize(
    "job",
    [
        "load",
        "compact",
        "dump",
        pytest.param("overwrite", marks=pytest.mark.long),
        pytest.param("freeze", marks=pytest.mark.long),
    ],
)
def test_a_storage_that_fails_in_the_middle_leaves_everything_as_it_was(
    lake: il.Lake, spark: Any, in_workers: Faults, job: str
) -> None:
    t = filled(lake)
    t.insert([{"id": 10_000 + n, "name": "hot"} for n in range(20)])
    before, snapshot = content(t), lake.snapshot_id
    p = lake.pipeline(spark=spark)

    def run() -> Any:
        if job in ("load", "overwrite"):
            mode = "append" if job == "load" else job
            return p.load(frame(spark, 4), "t", mode=mode)
        return getattr(p, job)("t")

    # Every worker publishes some files and then none any more.
    nth = 1 if job == "dump" else 3
    with in_workers(f"storage.publish:{nth}+=enospc"), pytest.raises(il.IndexLakeError, match="the disk is full"):
        run()
    assert (content(t), lake.snapshot_id) == (before, snapshot)
    assert lake.jobs()[0].state == "failed"
    run()
    after = content(t)
    if job in ("load", "overwrite"):
        assert {r["id"] for r in after} == {20_000 + n for n in range(200)} | (
            {r["id"] for r in before} if job == "load" else set()
        )
    else:
        assert after == before
    assert content(t.at(snapshot)) == before
    leaves_no_orphan(lake)
    assert content(t) == after


# ---------------------------------------------------------------- the driver


def test_a_driver_killed_in_its_commit_leaves_nothing_partial() -> None:
    """The other steps and jobs: python -m tests.spark.kill_driver"""
    assert kill_driver.kill("compact", "rewrite.commit:1") == "no row had changed"
