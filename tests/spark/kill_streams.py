"""Kills a streaming query over and over, by command:

python -m tests.spark.kill_streams [--kills 20] [--seed 1] [--hot memory]

Files of rows arrive in a folder.  A query streams them into a table, through the format and through the sink of the
process in turn; driver, JVM and workers are killed together at random moments, and the query starts again from its
checkpoint.  Another query follows the second table, in which rows are also changed and deleted, with a copy.  In the
end every row of every file is in the tables once, each batch was one commit, the copy is what its source is, and
nothing that was left behind is more than vacuum removes.  A lake in memory is only written through the sink of its
owner, and nobody else reads or changes it.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import indexlake as il

SCHEMA = pa.schema([("id", pa.int64()), ("file", pa.int64()), ("text", pa.string())])
READY = "streaming"
LARGE = 12_000


def drive(folder: Path, how: str, hot: str) -> None:
    """Stream until killed, or until a file says that no more files will come."""
    from indexlake.spark import session

    spark = session(**{"spark.master": "local[2]", "spark.driver.memory": "600m"})
    source = spark.readStream.schema("id long, file long, text string").option("maxFilesPerTrigger", 2)
    writer = source.parquet(str(folder / "in")).writeStream.option("checkpointLocation", str(folder / how))
    with il.connect(folder / "lake") as lake:
        assert lake.hot == hot
        if how == "format":
            queries = [writer.format("indexlake").option("table", how).start(str(folder / "lake"))]
        else:
            queries = [writer.foreachBatch(lake.pipeline().sink(how)).start()]
        if how == "sink" and hot == "inline":
            follow = spark.readStream.format("indexlake").options(table=how, changes="true").load(str(folder / "lake"))
            copy = follow.writeStream.format("indexlake").options(table="copy", write_mode="changes")
            queries.append(copy.option("checkpointLocation", str(folder / "copy")).start(str(folder / "lake")))
        print(READY, flush=True)
        while not (folder / "end").exists():
            for query in queries:
                if query.exception() is not None:
                    raise query.exception()
            time.sleep(0.05)
        for query in queries:
            query.processAllAvailable()
            query.stop()


class Trial:
    def __init__(self, folder: Path, seed: int, hot: str) -> None:
        self.folder = folder
        self.hot = hot
        self.random = random.Random(seed)
        self.files = 0
        self.rows = 0
        (folder / "in").mkdir()
        with il.connect(folder / "lake", hot=hot) as lake:
            for name in ("format", "sink", "copy"):
                lake.create_table(name, SCHEMA, primary_key="id", config=il.TableConfig(inline_row_count_limit=500))

    def put(self) -> None:
        """Add a file, whole at once."""
        count = LARGE if self.random.random() < 0.3 else self.random.randrange(1, 200)
        ids = range(self.rows, self.rows + count)
        rows = pa.table({"id": ids, "file": [self.files] * count, "text": [f"row {id}" for id in ids]}, SCHEMA)
        draft = self.folder / "draft"
        pq.write_table(rows, draft)
        draft.rename(self.folder / "in" / f"{self.files:06}.parquet")
        self.files, self.rows = self.files + 1, self.rows + count

    def change(self) -> None:
        """Change some rows, delete some, and add them again: so that in the end every row of every file is there."""
        with il.connect(self.folder / "lake", automatic=False) as lake:
            table, low = lake.table("sink"), self.random.randrange(max(1, self.rows))
            table.update({"text": il.expr("text || '!'")}, "id between $low and $low + 20", params={"low": low})
            gone = table.scan("id between $low and $low + 5", params={"low": low}).to_arrow()
            table.delete("id between $low and $low + 5", params={"low": low})
            if self.random.random() < 0.5:
                lake.pipeline(runner="threads").dump("sink")
            table.insert(gone)

    def start(self, how: str) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-m",
            "tests.spark.kill_streams",
            "--drive",
            how,
            "--folder",
            str(self.folder),
            "--hot",
            self.hot,
        ]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
        )
        assert process.stdout is not None
        said = process.stdout.readline().strip()
        assert said == READY, f"the driver said {said!r}"
        return process

    def kill(self, how: str) -> None:
        process = self.start(how)
        until = time.monotonic() + self.random.uniform(0.0, 6.0)
        while time.monotonic() < until:
            self.put()
            if how == "sink" and self.hot == "inline":
                self.change()
            time.sleep(self.random.uniform(0.0, 0.5))
        assert process.poll() is None, "the driver ended by itself"
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def end(self, how: str) -> None:
        (self.folder / "end").touch()
        process = self.start(how)
        assert process.wait(300) == 0
        (self.folder / "end").unlink()

    def check(self, how: str) -> str:
        """Look whether every row is there once, and return what there is."""
        with il.connect(self.folder / "lake", automatic=False) as lake:
            table = lake.table(how)
            found = sorted(table.scan(columns=["id", "file", "text"]).to_arrow().column("id").to_pylist())
            assert found == list(range(self.rows)), f"{len(found):,} rows of {self.rows:,}"
            batches = 1 + max(int(file.name) for file in (self.folder / how / "commits").glob("[0-9]*"))
            if how == "sink" and self.hot == "inline":
                copy = lake.table("copy").scan(order_by="id").to_arrow()
                assert copy.equals(table.scan(order_by="id").to_arrow()), "the copy is another"
            else:
                assert table.changes(0).count() == self.rows
                written = [s.summary for s in table.history() if s.operation in ("insert", "load")]
                assert len(written) == batches, f"{len(written)} commits for {batches} batches"
            pipeline = lake.pipeline(runner="threads")
            assert pipeline.verify().ok
            left = pipeline.vacuum(dry_run=False, grace=timedelta(0))
            return f"{how}: {self.rows:,} rows of {self.files} files in {batches} batches, all once; {left}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.kill_streams", description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 16))
    parser.add_argument("--hot", choices=("inline", "memory"), default="inline")
    parser.add_argument("--drive", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.drive:
        drive(given.folder, given.drive, given.hot)
        return
    folder = Path(tempfile.mkdtemp(prefix="indexlake-streams-"))
    print(f"seed {given.seed}, in {folder}", flush=True)
    trial = Trial(folder, given.seed, given.hot)
    ways = ("format", "sink") if given.hot == "inline" else ("sink",)
    for number in range(given.kills):
        how = ways[number % len(ways)]
        trial.kill(how)
        print(f"kill {number + 1}: {how}, {trial.rows:,} rows put", flush=True)
    for how in ways:
        trial.end(how)
        print(trial.check(how), flush=True)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
