"""Runs the tasks of a job on Spark: one Spark task each, with small records as results.

Executors get the storage's description and its options, but never the catalog.  A task that fails or is run twice
writes files under different names; only the files in the results that come back here are ever committed.  An error in a
task arrives here as that error; Spark itself only retries when workers die.
"""

from __future__ import annotations

import logging
import pickle
import threading
import traceback
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indexlake.errors import IndexLakeError, JobError
from indexlake.pipeline.runner import Check, Result, Task, Work
from indexlake.spark.failure import reason_of, with_workers
from indexlake.storage import Storage, StorageSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("indexlake")

CHECK_SECONDS = 0.2
ROUND = 4
"""Tasks per core given to Spark at once: enough to keep it busy, few enough to show progress."""

ROUND_BYTES = 128 << 20
"""The most data that the tasks of one round carry: all of it passes through the memory of Spark's driver."""

LARGE = 64 << 20
"""Spark passes on no task of more than 128 MiB.  A task that carries more than this is run here instead."""


class SparkRunner:
    """Runs tasks on a Spark session."""

    def __init__(self, spark: SparkSession, storage: Storage) -> None:
        if storage.root.startswith("memory:"):
            raise JobError("Files in memory cannot be reached by Spark. Use lake.pipeline(runner='threads').")
        if not hasattr(type(spark), "sparkContext") or "connect" in type(spark).__module__:
            raise JobError(
                f"Jobs need a Spark session of this process, not {type(spark).__module__}.{type(spark).__name__}: "
                "Spark Connect cannot run our tasks. Use il.spark.session() or lake.pipeline(runner='threads')."
            )
        if spark.sparkContext._jsc is None:
            raise JobError("This Spark session is stopped. Make another one with il.spark.session().")
        self._spark = spark
        self._storage = storage
        self.width = ROUND * max(1, spark.sparkContext.defaultParallelism)

    def __repr__(self) -> str:
        return f"Spark {self._spark.sparkContext.master}"

    def map(self, run: Work[Task, Result], tasks: Sequence[Task], check: Check) -> Generator[Result, None, None]:
        """Yield the results in the order of the tasks, one round of tasks at a time."""
        round: list[bytes] = []
        for task in tasks:
            packed = pickle.dumps(task, protocol=pickle.HIGHEST_PROTOCOL)
            large = len(packed) > LARGE
            if round and (large or len(round) == self.width or sum(map(len, round)) + len(packed) > ROUND_BYTES):
                yield from self._round(run, round, check)
                round = []
            if large:
                check()
                yield run(self._storage, task, check)
            else:
                round.append(packed)
        if round:
            yield from self._round(run, round, check)

    def _round(self, run: Work[Task, Result], tasks: Sequence[bytes], check: Check) -> list[Result]:
        remote = _Remote(run, self._storage.spec(), self._storage.secrets)
        context = self._spark.sparkContext
        found: list[Any] = self._watched(
            lambda: context.parallelize(tasks, len(tasks)).map(remote).collect(), f"{len(tasks)} tasks", check
        )
        failed = next((r for r in found if isinstance(r, _Failure)), None)
        if failed is not None:
            log.debug("a task failed on Spark:\n%s", failed.trace)
            if failed.lacks_module:
                raise JobError(with_workers(str(failed.error), self._spark))
            raise failed.error
        return found

    def collect(self, frame: DataFrame, check: Check) -> list[Any]:
        """Return the values of a frame with one column."""
        return [row[0] for row in self._watched(frame.collect, "a load", check)]

    def _watched(self, work: Callable[[], list[Any]], what: str, check: Check) -> list[Any]:
        """Run one Spark job in another thread, while this one watches for a reason to stop it."""
        from pyspark import InheritableThread

        check()
        context = self._spark.sparkContext
        group = f"indexlake-{uuid.uuid4().hex}"
        outcome: list[Any] = []

        def submit() -> None:
            try:
                context.setJobGroup(group, f"IndexLake: {what}", interruptOnCancel=True)
                outcome.append(work())
            except BaseException as error:
                outcome.append(error)

        thread = InheritableThread(target=submit, name="indexlake-spark", daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(CHECK_SECONDS)
                check()
        except BaseException:
            while thread.is_alive():  # repeatedly, since the job may not have been submitted yet
                context.cancelJobGroup(group)
                thread.join(CHECK_SECONDS)
            raise
        (found,) = outcome
        if isinstance(found, BaseException):
            log.debug("a Spark job failed", exc_info=found)
            raise JobError(f"Spark could not run the tasks: {reason_of(found, self._spark)}") from None
        return found  # type: ignore[no-any-return]


class _Failure:
    """An error of a task, returned like any other result, so that Spark neither retries nor wraps it."""

    def __init__(self, error: IndexLakeError, trace: str, *, lacks_module: bool) -> None:
        self.error = error
        self.trace = trace
        self.lacks_module = lacks_module


class _Remote:
    """What is sent to an executor: the function, and how to open the storage there."""

    def __init__(self, run: Callable[..., Any], spec: StorageSpec, options: Mapping[str, str]) -> None:
        self._run = run
        self._spec = spec
        self._options = dict(options)

    def __call__(self, packed: bytes) -> Any:
        try:
            storage = opened(self._spec, self._options)
            return self._run(storage, pickle.loads(packed), _no_check)
        except IndexLakeError as error:
            return _Failure(error, traceback.format_exc(), lacks_module=isinstance(error, ImportError))
        except Exception as error:
            failed = JobError(f"A task failed on Spark: {type(error).__name__}: {error}")
            return _Failure(failed, traceback.format_exc(), lacks_module=isinstance(error, ImportError))

    def __repr__(self) -> str:
        return f"_Remote({self._run.__name__}, {self._spec.root!r})"  # leaves out the options, which are secret


_storages: dict[bytes, Storage] = {}
_lock = threading.Lock()


def opened(spec: StorageSpec, options: Mapping[str, str]) -> Storage:
    """Return the storage in this worker process, which is opened once."""
    key = pickle.dumps((spec, sorted(options.items())))
    with _lock:
        found = _storages.get(key)
        if found is None:
            pa.set_cpu_count(1)  # Spark runs as many workers as there are cores
            found = _storages[key] = spec.open(options)
        return found


def _no_check() -> None:
    """Nothing to check: Spark stops executors itself."""
