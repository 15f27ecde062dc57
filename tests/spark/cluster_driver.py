"""The driver of the cluster test, in a process of its own: one process has one Spark session.

← how to reach the lake and the cluster, as JSON on the first line
→ {"application": …, "page": …, "tasks": {step: {executor: tasks}}, "rows": {reader: rows}}
← any line: it may end
"""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

import indexlake as il
from indexlake.spark.runner import SparkRunner

ROWS = 3_000


class Steps:
    """Counts the tasks that each executor was given in each step."""

    def __init__(self, page: str, application: str) -> None:
        self._address = f"{page}/api/v1/applications/{application}/executors"
        self._before: dict[str, int] = {}
        self.tasks: dict[str, dict[str, int]] = {}

    def done(self, name: str) -> None:
        time.sleep(0.5)  # the page follows events; it is a moment behind
        executors = self._executors()
        while any(one["activeTasks"] for one in executors):  # the slow attempts: they hold a core until they are killed
            time.sleep(0.2)
            executors = self._executors()
        now = {one["id"]: int(one["totalTasks"]) for one in executors}
        self.tasks[name] = {id: count - self._before.get(id, 0) for id, count in now.items() if id != "driver"}
        self._before = now

    def _executors(self) -> list[dict[str, Any]]:
        with urllib.request.urlopen(self._address) as answer:
            found: list[dict[str, Any]] = json.load(answer)
        return found


def slow_at_the_end(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first attempt of one task stands still when it has given all its rows, and the first block is written."""
    yield from batches
    stand_still()


class Slow(SparkRunner):
    """The first attempt of one task stands still when it has written its files."""

    def map(self, run: Any, tasks: Any, check: Any) -> Any:
        def slow(storage: Any, task: Any, check: Any) -> Any:
            result = run(storage, task, check)
            stand_still()
            return result

        return super().map(slow, tasks, check)


def stand_still() -> None:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    if context.partitionId() == 0 and context.attemptNumber() == 0:
        time.sleep(100)


def speculative(address: str) -> int:
    """How many tasks Spark has started a second time because the first took so long."""
    with urllib.request.urlopen(address) as answer:
        stages = json.load(answer)
    return sum(bool(task["speculative"]) for stage in stages for task in stage.get("tasks", {}).values())


def main() -> None:
    given = json.loads(sys.stdin.readline())
    spark = il.spark.session(**given["conf"])
    context = spark.sparkContext
    page, application = context.uiWebUrl, context.applicationId
    assert page is not None
    steps = Steps(page, application)
    with il.connect(**given["lake"], automatic=False) as lake:
        t = lake.table("t")
        pipeline = lake.pipeline(spark=spark)
        for first in (0, ROWS):
            frame = spark.range(first, first + ROWS, 1, 3).selectExpr("id", "concat('row ', id) name", "id % 7 n")
            if first == 0:
                frame = frame.mapInArrow(slow_at_the_end, frame.schema)
            assert pipeline.load(frame, "t").inserted == ROWS
        steps.done("load")
        t.update({"name": "changed"}, "id % 10 = 3")
        t.delete("id % 4 = 0")
        pipeline._runner = Slow(spark, lake.storage)
        compacted = pipeline.compact("t")["main.t"]
        assert compacted.blocks_before > compacted.blocks_after > 0, compacted
        steps.done("compact")
        rows = {"to_spark": collected(t.to_spark(spark))}
        steps.done("to_spark")
        source = spark.read.format("indexlake").options(**given["options"], table="t").load(given["path"])
        rows["format"] = collected(source)
        steps.done("format")
    said = {
        "application": application, "page": page, "tasks": steps.tasks, "rows": rows,
        "speculative": speculative(f"{page}/api/v1/applications/{application}/stages?details=true"),
    }  # fmt: skip
    print(json.dumps(said), flush=True)
    sys.stdin.readline()
    spark.stop()


def collected(frame: Any) -> list[list[Any]]:
    return sorted([row["id"], row["name"], row["n"]] for row in frame.collect())


if __name__ == "__main__":
    main()
