"""``lake.pipeline()``: the jobs, as methods. Each is safe to kill, to repeat, and to run next to any other."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from indexlake.catalog import definitions
from indexlake.catalog.index_definitions import no_index
from indexlake.commit.token import TokenLike
from indexlake.commit.write_set import WriteResult
from indexlake.display.progress import ProgressBar
from indexlake.errors import IndexLakeError, SchemaError
from indexlake.indexes.keys import encode_key, key_to_bytes
from indexlake.pipeline.build_index import BuildResult, build_index
from indexlake.pipeline.compact import compact
from indexlake.pipeline.dump import DumpResult, dump
from indexlake.pipeline.expire import ExpireResult, expire
from indexlake.pipeline.freeze import freeze, thaw
from indexlake.pipeline.job import JobStopped
from indexlake.pipeline.load import load, stream_sink
from indexlake.pipeline.merge_index import FoldResult, merge_index
from indexlake.pipeline.meta import publish_meta
from indexlake.pipeline.reshape import ReshapeResult, merge, split
from indexlake.pipeline.rewrite import RewriteResult
from indexlake.pipeline.run import Due, RunResult, run
from indexlake.pipeline.runner import Runner
from indexlake.pipeline.vacuum import GRACE, WHOLE_LAKE, VacuumResult, vacuum
from indexlake.pipeline.verify import VerifyResult, verify
from indexlake.scan.by_keys import encoded_key
from indexlake.snapshots.partition_info import how_to_cluster
from indexlake.snapshots.state import TableState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from indexlake.lake import Lake

log = logging.getLogger("indexlake")

R = TypeVar("R")


class Pipeline:
    """Returned by ``lake.pipeline()``.  ``table=None`` means every table."""

    def __init__(self, lake: Lake, runner: Runner, *, progress: bool | None = None) -> None:
        self._lake = lake
        self._runner = runner
        self._progress = progress
        self._running: weakref.WeakSet[threading.Event] = weakref.WeakSet()  # stops each running call

    def __repr__(self) -> str:
        return f"<Pipeline of {self._lake.catalog.location} on {self._runner!r}>"

    def cancel(self) -> None:
        """Stop whatever is running, from another thread, at its next step.  Nothing is lost."""
        for stop in list(self._running):
            stop.set()

    def load(
        self,
        source: Any,
        table: str,
        mode: str = "append",
        *,
        sequence_by: str | None = None,
        token: TokenLike | None = None,
    ) -> WriteResult:
        """Add many rows in one commit: a Spark DataFrame, files, or anything that ``insert`` takes.

        Parameters
        ----------
        mode
            ``"append"``; ``"overwrite"``: replace all existing rows; ``"upsert"``: by primary key; ``"changes"``: do
            what the changes say, as ``t.apply_changes`` does.
        sequence_by
            For the latter two: of several rows with one key, the one with the greatest value in this column counts.
        token
            Makes it safe to repeat the load: the second one only returns the result of the first.

        Examples
        --------
        >>> lake.pipeline().load("orders/*.parquet", "sales.orders", mode="upsert")
        """
        bar = self._bar(f"load {table}")
        result = load(
            self._lake, source, table, mode, self._runner, token=token, sequence_by=sequence_by,
            stop=self._begin(), bar=bar,
        )  # fmt: skip
        publish_meta(self._lake, self._lake.table(table)._table_id)
        return result

    def sink(
        self, table: str, mode: str = "append", *, sequence_by: str | None = None
    ) -> Callable[[DataFrame, int], None]:
        """Return a function that writes each batch of a stream to a table exactly once: ``foreachBatch(sink)``.

        ``mode`` and ``sequence_by`` are those of ``load``.  The lake's own process commits, so it also works with
        ``hot="memory"``.

        Examples
        --------
        >>> sink = lake.pipeline().sink("sales.orders", mode="upsert")
        """
        return stream_sink(self._lake, table, mode, sequence_by)

    def dump(self, table: str | None = None) -> dict[str, DumpResult]:
        """Move hot rows to blocks."""
        return self._each("dump", table, partial(dump, self._lake, runner=self._runner))

    def compact(
        self, table: str | None = None, *, cluster_by: Sequence[str] | None = None, order: str = "sort"
    ) -> dict[str, RewriteResult | ReshapeResult]:
        """Combine small and delete-heavy blocks into full ones.  For a clustered table, merge all deltas.

        With ``cluster_by``, all rows of the table are redistributed so that each block covers a narrow range of those
        columns, and scans that filter by one of them read few blocks: in the order of the columns (``order="sort"``),
        or with equal weight for each of them (``"zorder"``).

        Examples
        --------
        >>> lake.pipeline().compact("sales.orders", cluster_by=["customer", "day"], order="zorder")
        """
        if cluster_by is None:
            if order != "sort":
                raise SchemaError(f"order={order!r} says how to cluster: give cluster_by=[…] too.")
            return self._each("compact", table, partial(compact, self._lake, runner=self._runner))
        if table is None:
            raise SchemaError("cluster_by names columns of one table: give its name too.")
        from indexlake.pipeline.cluster import cluster

        job = partial(cluster, self._lake, runner=self._runner, columns=cluster_by, order=order)
        return self._each("compact", table, job)

    def merge(self, table: str | None = None) -> dict[str, ReshapeResult]:
        """Merge the deltas of clustered tables into their data, due or not, and split what becomes too large."""
        return self._each_clustered("merge", table, partial(merge, self._lake, runner=self._runner))

    def split(self, table: str | None = None, *, at: Any = None) -> dict[str, ReshapeResult]:
        """Split the partitions of clustered tables that are too large.

        With ``at``, a primary key, a table gets a bound there: rows from this key on are in a different partition from
        those before it.
        """
        if at is None:
            return self._each_clustered("split", table, partial(split, self._lake, runner=self._runner))
        if table is None:
            raise SchemaError("at=… is a key of one table: give its name too.")
        state = self._lake._readings.latest(self._lake.table(table)._table_id)
        if state.ranges is None:
            raise _is_a_heap(state, "split")
        schema = state.current
        key = key_to_bytes(encode_key(schema.key_codecs, encoded_key(schema, at, table)))
        return self._each_clustered("split", table, partial(split, self._lake, runner=self._runner, at=key))

    def _each_clustered(self, kind: str, table: str | None, job: Callable[..., R]) -> dict[str, R]:
        stop, results = self._begin(), {}
        for t in self._tables(table):
            state = self._lake._readings.latest(t.table_id)
            if state.ranges is not None:
                results[t.name] = job(table_id=t.table_id, stop=stop, bar=self._bar(f"{kind} {t.name}"))
                publish_meta(self._lake, t.table_id)
            elif table is not None:
                raise _is_a_heap(state, kind)
        return results

    def freeze(self, table: str | None = None, *, older_than: timedelta = timedelta(0)) -> dict[str, RewriteResult]:
        """Turn warm blocks whose rows are all older than this into Parquet, which every engine can read."""
        if not isinstance(older_than, timedelta):
            raise SchemaError(f"older_than must be a timedelta; got {older_than!r}.")
        return self._each("freeze", table, partial(freeze, self._lake, runner=self._runner, older_than=older_than))

    def thaw(self, table: str | None = None) -> dict[str, RewriteResult]:
        """Turn Parquet blocks back into warm ones."""
        return self._each("thaw", table, partial(thaw, self._lake, runner=self._runner))

    def build_index(
        self,
        table: str | None = None,
        index: str | None = None,
        *,
        group_rows: int | None = None,
        rebuild: bool = False,
    ) -> dict[str, BuildResult]:
        """Write missing index segments, for blocks that are older than the index or whose segment failed.

        ``group_rows`` limits the memory of a task: it indexes neighbouring blocks of up to that many rows together.
        ``rebuild`` replaces the segments that there are, because files of them are damaged or lost.
        """
        if group_rows is not None and (not isinstance(group_rows, int) or group_rows < 1):
            raise SchemaError(f"group_rows must be a whole number, 1 or more; got {group_rows!r}.")
        job = partial(build_index, runner=self._runner, group_rows=group_rows, rebuild=rebuild)
        return self._each_index("build_index", table, index, job)

    def merge_index(self, table: str | None = None, index: str | None = None) -> dict[str, FoldResult]:
        """Fold small index segments into larger ones, so that look-ups have fewer to search."""
        return self._each_index("merge_index", table, index, partial(merge_index, runner=self._runner))

    def _each_index(self, kind: str, table: str | None, index: str | None, job: Callable[..., R]) -> dict[str, R]:
        """Run a job for each index, by the names of table and index; one that fails does not stop the others."""
        if index is not None and not isinstance(index, str):
            raise SchemaError(f"index is the name of an index; got {index!r}.")
        if index is not None and table is None:
            raise SchemaError("index=… names an index of one table: give the table's name too.")
        stop, results = self._begin(), {}
        failed: list[Exception] = []
        for t in self._tables(table):
            state = self._lake._readings.latest(t.table_id)
            found = state.live_indexes
            if index is not None:
                found = tuple(i for i in found if i.name.lower() == index.lower())
                if not found:
                    raise no_index(t.name, index, [i.name for i in state.live_indexes if not i.is_primary])
            for each in found:
                name = f"{t.name}.{each.name}"
                try:
                    results[name] = job(
                        self._lake, t.table_id, each.index_id, stop=stop, bar=self._bar(f"{kind} {name}")
                    )
                except JobStopped:
                    raise
                except Exception as error:  # whatever the kind raises, which may be of another package
                    error.add_note(f"in {kind} of {name}; the other indexes had their turn")
                    failed.append(error)
            publish_meta(self._lake, t.table_id)
        if failed:
            raise failed[0]
        return results

    def expire(self, table: str | None = None) -> dict[str, ExpireResult]:
        """Drop history that is older than the retention."""
        stop = self._begin()
        return {t.name: expire(self._lake, t.table_id, stop=stop) for t in self._tables(table, dropped=True)}

    def vacuum(self, *, dry_run: bool = True, grace: timedelta = GRACE) -> VacuumResult:
        """Find files that nothing refers to; with ``dry_run=False``, delete them."""
        bar = self._bar("vacuum")
        return vacuum(self._lake, self._runner, dry_run=dry_run, grace=grace, stop=self._begin(), bar=bar)

    def verify(self, table: str | None = None) -> VerifyResult:
        """Read every byte and compare it with its checksum, and the catalog with the storage."""
        tables = [(t.name, t.table_id) for t in self._tables(table, dropped=True)]
        lease = tables[0][1] if table is not None else WHOLE_LAKE
        return verify(self._lake, tables, self._runner, lease, stop=self._begin(), bar=self._bar("verify"))

    def run(self, table: str | None = None) -> RunResult:
        """Do whatever is due: expire, dump, compact, freeze if configured, build and fold indexes, vacuum."""
        return self._run(table, self._begin())

    def watch(
        self,
        table: str | None = None,
        *,
        every: timedelta = timedelta(minutes=1),
        stop: threading.Event | None = None,
        each: Callable[[RunResult], object] | None = None,
    ) -> None:
        """Call ``run`` again and again until ``stop`` is set or ``cancel`` is called; ``each`` gets every result.

        Failures are logged and retried.
        """
        if not isinstance(every, timedelta) or every <= timedelta(0):
            raise SchemaError(f"every must be a timedelta above zero; got {every!r}.")
        stop = self._begin(stop)
        while not stop.is_set():
            try:
                result = self._run(table, stop)
                if each is not None:
                    each(result)
            except JobStopped:
                return
            except IndexLakeError as error:
                log.warning("a run of the pipeline failed and will be tried again: %s", error)
            stop.wait(every.total_seconds())

    def _run(self, table: str | None, stop: threading.Event) -> RunResult:
        return run(self._lake, self._tables(table, dropped=True), self._runner, stop, self._bar)

    def _begin(self, stop: threading.Event | None = None) -> threading.Event:
        """Return the event that ``cancel`` sets while the call runs."""
        stop = stop or threading.Event()
        self._running.add(stop)
        return stop

    def _each(self, kind: str, table: str | None, job: Callable[..., R]) -> dict[str, R]:
        stop, results = self._begin(), {}
        for t in self._tables(table):
            results[t.name] = job(table_id=t.table_id, stop=stop, bar=self._bar(f"{kind} {t.name}"))
            publish_meta(self._lake, t.table_id)
        return results

    def _bar(self, label: str) -> ProgressBar:
        return ProgressBar(label, self._progress)

    def _tables(self, table: str | None, *, dropped: bool = False) -> list[Due]:
        """Return the named table, or all of them; ``dropped`` adds those that were dropped but have not expired."""
        if table is not None:
            named = self._lake.table(table)
            return [Due(named.name, named._table_id, False)]
        self._lake._check()
        with self._lake._seen() as seen:
            found = [Due(t.full_name, t.table_id, False) for t in definitions.list_tables(seen.r, seen.at)]
            if dropped:
                gone = definitions.list_dropped_tables(seen.r)
                found += [Due(f"{t.full_name} (dropped)", t.table_id, True) for t in gone]
        return found


def _is_a_heap(state: TableState, kind: str) -> SchemaError:
    name = state.table.full_name
    return SchemaError(f"Table {name!r} is a heap: it has no partitions to {kind}. {how_to_cluster(state)}")
