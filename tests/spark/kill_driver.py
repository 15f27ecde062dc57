"""Kills the driver of a job on Spark at each step it passes, by command:

python -m tests.spark.kill_driver [--job load] [--step rewrite.commit] [--most 2]

A job first runs through and says which steps the driver passes; then it is killed at each of them, every time on a
fresh lake with a Spark session of its own, and once more while its tasks are writing.  Afterwards nothing partial is
visible, nothing is doubled, the next job is not held up, and vacuum finds everything that was left behind.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

import indexlake as il
from indexlake.storage import faults
from tests.support.waiting import wait_until

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
CONFIG = il.TableConfig(block_row_count=100, direct_write_row_count=30)
JOBS = ("load", "overwrite", "upsert", "compact", "freeze")
TASKS_RUN = "tasks.run"
"""No step of the driver: its tasks have written a file, and are not done."""
LOADED = 500
TOKEN = "once"


# ---------------------------------------------------------------- the driver, in a process of its own


def drive(folder: str, job: str, fault: str) -> None:
    """Do the job; killed at the fault, or without one say on standard output which steps were passed."""
    from indexlake.spark import session

    conf = {"spark.master": "local[2]", "spark.driver.memory": "600m", "spark.sql.shuffle.partitions": "2"}
    spark = session(**conf)
    passed: list[str] = []
    with il.connect(folder, automatic=False) as lake:
        if fault.startswith(TASKS_RUN):
            threading.Thread(target=kill_when_written, args=(Path(folder),), daemon=True).start()
        else:
            faults.install(faults.from_text(fault) if fault else passed.append)  # here only, not in the workers
        run(lake, spark, job)
        faults.install(None)
    print(json.dumps(passed), flush=True)
    spark.stop()


def run(lake: il.Lake, spark: Any, job: str) -> None:
    pipeline = lake.pipeline(spark=spark)
    if job in ("compact", "freeze"):
        getattr(pipeline, job)("t")
        return
    first = 1_000 if job == "load" else 100
    frame = spark.range(first, first + LOADED, 1, 4).selectExpr("id", "concat('loaded ', id) name")
    pipeline.load(frame, "t", mode="append" if job == "load" else job, token=TOKEN)


def kill_when_written(folder: Path) -> None:
    before = set(files(folder))
    while not set(files(folder)) - before:
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGKILL)


def files(folder: Path) -> Iterator[Path]:
    """Files of blocks, segments and staged rows, unfinished ones too."""
    for found in (folder / "files" / "tables").rglob("*"):
        with suppress(FileNotFoundError):
            if found.is_file():
                yield found


# ---------------------------------------------------------------- the one who watches


def made(folder: Path) -> dict[int, str]:
    """A table of small blocks with deleted, changed and hot rows; what is in it."""
    with il.connect(folder, automatic=False) as lake:
        t = lake.create_table("t", SCHEMA, primary_key="id", config=CONFIG)
        for first in range(0, 240, 40):
            numbers = range(first, first + 40)
            t.insert(pa.table({"id": numbers, "name": [f"row {n}" for n in numbers]}))
        t.update({"name": "changed"}, "id % 9 = 0")
        t.delete("id % 7 = 3")
        return content(t)


def content(t: Any) -> dict[int, str]:
    rows = t.scan(with_row_id=True).to_pylist()
    assert len({row["_indexlake_row_id"] for row in rows}) == len(rows), "a row id twice"
    found = {row["id"]: row["name"] for row in rows}
    assert len(found) == len(rows), "a key twice"
    return found


def done(before: dict[int, str], job: str) -> dict[int, str]:
    """What the table holds when the job came through."""
    if job in ("compact", "freeze"):
        return before
    first = 1_000 if job == "load" else 100
    loaded = {n: f"loaded {n}" for n in range(first, first + LOADED)}
    return loaded if job == "overwrite" else before | loaded


def start(folder: Path, job: str, fault: str) -> tuple[int, str]:
    """The driver from its beginning to its end, and that of everything it has started."""
    top = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.kill_driver", "--folder", str(folder), "--job", job, "--fault", fault],
        cwd=top, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=240)
    finally:
        process.kill()
    wait_until(lambda: not list(session_of(process.pid)), "processes outlive their driver")
    return process.returncode, said


def session_of(leader: int) -> Iterator[int]:
    """The processes that belong to a session: the driver's JVM and its Python workers."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                state, _parent, _group, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                if int(session) == leader and state not in "ZX":
                    yield int(entry.name)


def steps(job: str, most: int) -> list[str]:
    """Every step that the driver of a job passes, each so many times."""
    folder = Path(tempfile.mkdtemp(prefix="indexlake-driver-"))
    try:
        before = made(folder / "lake")
        code, said = start(folder / "lake", job, "")
        assert code == 0, f"{job} without a fault ended with {code}"
        with il.connect(folder / "lake", automatic=False) as lake:
            assert content(lake.table("t")) == done(before, job)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    passed: list[str] = json.loads(said.splitlines()[-1])
    found = {name: passed.count(name) for name in dict.fromkeys(passed)}
    # The first times and the last: what comes in between is more of the same.
    chosen = {n: sorted({*range(1, min(most, times) + 1), times}) for n, times in found.items()}
    return [*(f"{name}:{n}" for name, numbers in chosen.items() for n in numbers), TASKS_RUN]


def kill(job: str, step: str) -> str:
    """Kill the driver of a job at a step and look at what it leaves; how it ended, in a word."""
    folder = Path(tempfile.mkdtemp(prefix="indexlake-driver-"))
    try:
        before = made(folder / "lake")
        code, _ = start(folder / "lake", job, f"{step}=kill")
        assert code in (-signal.SIGKILL, 0), f"{job} at {step}: the driver ended with {code}"
        found = _check(folder / "lake", job, before)
        return found if code else f"it did not come there this time; {found}"  # beats are passed now and then
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check(folder: Path, job: str, before: dict[int, str]) -> str:
    after = done(before, job)
    begun = time.monotonic()
    with il.connect(folder, automatic=False) as lake:
        t, first = lake.table("t"), lake.snapshot_id
        found = content(t)
        assert found in (before, after), "half of it"
        for key in (0, 9, 100, 1_000, 1_234):
            assert (row := t.get(key)) is None or row["name"] == found[key]
            assert (row is None) == (key not in found)
        pipeline = lake.pipeline(runner="threads")
        _again(lake, job)
        assert content(t) == after
        assert content(t.at(first)) == found, "the past stays"
        assert {j.state for j in lake.jobs() if j.kind == job} <= {"done", "lost", "running"}
        assert time.monotonic() - begun < 30, "the next job was held up"
        with lake.catalog.transaction() as tx:  # as if the killed one had not been heard of for a while
            tx.execute("update indexlake_writer set expires_at = 5 where owner not like ?", (f"%:{os.getpid()}",))
            tx.commit()
        lake._maintenance.forget()
        pipeline.vacuum(dry_run=False, grace=timedelta(0))
        verified = pipeline.verify()
        assert verified.ok, verified
        assert not verified.unreachable_files, "vacuum leaves no orphan"
        assert content(t) == after
        assert content(t.at(first)) == found, "vacuum deletes nothing that can be reached"
    if before == after:
        return "no row had changed"
    return "nothing of it was there" if found == before else "all of it was there"


def _again(lake: il.Lake, job: str) -> None:
    """The same job once more, without Spark; a load with its token, so that nothing doubles."""
    pipeline = lake.pipeline(runner="threads")
    if job in ("compact", "freeze"):
        getattr(pipeline, job)("t")
        return
    first = 1_000 if job == "load" else 100
    numbers = range(first, first + LOADED)
    rows = pa.table({"id": numbers, "name": [f"loaded {n}" for n in numbers]})
    pipeline.load(rows, "t", mode="append" if job == "load" else job, token=TOKEN)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.kill_driver", description=__doc__)
    parser.add_argument("--job", action="append", choices=JOBS, help="this job; may be repeated (default: all)")
    parser.add_argument("--step", action="append", help="this step, such as rewrite.commit:1 (default: all)")
    parser.add_argument("--most", type=int, default=2, help="a step that is passed often: the first so many times")
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--fault", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.folder is not None:
        drive(given.folder, given.job[0], given.fault)
        return
    kills = 0
    for job in given.job or JOBS:
        for step in given.step or steps(job, given.most):
            print(f"{job} killed at {step}: {kill(job, step)}", flush=True)
            kills += 1
    print(f"{kills} kills; nothing partial, nothing doubled, nothing left behind")


if __name__ == "__main__":
    main()
