"""Loads a Spark DataFrame into a table: each Spark task writes its own blocks, and all are committed together.

Rows for a clustered table are staged as sorted runs, then sorted across all tasks: the frame is computed only once, and
keys are always compared in our own order.

The files of a task are named in its result.  Only files in the results that Spark accepts are ever committed, so tasks
that die, are repeated or run twice leave nothing but files for vacuum.  The batches of a stream are often small: then
the results carry the rows, and they go wherever a few rows go.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from indexlake.blocks.new_block import NewBlock
from indexlake.blocks.stream import Target
from indexlake.commit.token import TokenLike
from indexlake.commit.write_set import WriteResult
from indexlake.errors import JobError, SchemaError
from indexlake.pipeline.job import Job
from indexlake.pipeline.load import BY_KEY, replace_rows, write_by_key
from indexlake.pipeline.loader import IDS_PER_TASK, Loader, give_back_ids, reserve_ids
from indexlake.pipeline.runner import ThreadRunner
from indexlake.pipeline.sort_tasks import sorted_load
from indexlake.schema import ROW_ID, TableSchema, unknown_column
from indexlake.schema.change_columns import CHANGE_TYPE, SNAPSHOT_ID
from indexlake.spark.handover import handed_over
from indexlake.spark.load_tasks import (
    Carried,
    IndexLakeSort,
    IndexLakeStage,
    IndexLakeWrite,
    Staged,
    Work,
    Written,
    accepted,
    rows_of,
)
from indexlake.spark.runner import SparkRunner
from indexlake.spark.types import fits

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from indexlake.lake import Lake
    from indexlake.snapshots.state import TableState
    from indexlake.table import Table

FEWEST_PARTITIONS = 1 << 8
MOST_PARTITIONS = 1 << 20

IDS_OF_A_BATCH = 1 << 26
"""The row ids that a task of a stream gets: they may be lost with each batch, so they are fewer than for a load."""


def load_frame(
    lake: Lake, table: Table, frame: DataFrame, job: Job, *, mode: str, token: TokenLike | None,
    sequence_by: str | None = None, carries: bool = False,
) -> WriteResult:  # fmt: skip
    """Append the rows, replace all existing rows with them, upsert them by primary key, or apply them as changes.

    ``carries``: the frame is a batch of a stream, which may well have few rows.
    """
    runner = SparkRunner(frame.sparkSession, lake.storage)
    if mode in BY_KEY:
        return _by_key(lake, table, frame, runner, job, mode, sequence_by, token, carries=carries)
    overwrite = mode == "overwrite"
    source = _Frame(lake, frame, runner, job)
    if carries:
        few = source.few(lake._readings.latest(table._table_id))
        if few is not None:
            return put_rows(table, few, overwrite=overwrite, token=token)
    loader = Loader(lake, table._table_id, runner, job.check, source.blocks, overwrite=overwrite)
    return lake._autocommit("overwrite" if overwrite else "load", loader.apply, token)


class _Frame:
    """A frame whose rows Spark writes to blocks, which are not committed yet."""

    def __init__(self, lake: Lake, frame: DataFrame, runner: SparkRunner, job: Job) -> None:
        self._lake, self._frame, self._runner, self._job = lake, frame, runner, job
        self._ready: tuple[int, list[NewBlock]] | None = None  # schema version, blocks

    def few(self, state: TableState) -> list[Carried] | None:
        """Return the rows if they are few; otherwise they are in blocks by then."""
        return self._run(state, carries=True)

    def blocks(self, state: TableState) -> list[NewBlock]:
        """Return the blocks, in the columns that the table has now."""
        if self._ready is None or self._ready[0] != state.table.schema_version:
            self._run(state)
        assert self._ready is not None
        return self._ready[1]

    def _run(self, state: TableState, *, carries: bool = False) -> list[Carried] | None:
        lake, job, table_id = self._lake, self._job, state.table.table_id
        check_columns(self._frame.schema, state.current)
        target = Target.of(state, lake._writer_id())
        columns = self._frame.columns
        if target.ranges is not None:
            work: Work = IndexLakeSort(target, lake.storage, columns, carries=carries)
            found = self._results(work)
            if carries and only_carried(found):
                return accepted(found)
            staged = accepted(work.spilled(lake.storage, found))
            self._ready = state.table.schema_version, sorted_load(job, self._runner, target, staged)
            return None
        each = IDS_OF_A_BATCH if carries else IDS_PER_TASK
        partitions = FEWEST_PARTITIONS
        while True:
            first = reserve_ids(lake, table_id, partitions, each)
            work = IndexLakeWrite(target, lake.storage, first, partitions, columns, each=each, carries=carries)
            found = self._results(work)
            if all(w.partition < partitions for w in found):
                break
            if partitions == MOST_PARTITIONS:
                raise too_many(partitions)
            partitions *= 16  # there were more tasks than id ranges: discard this run
        if carries and only_carried(found):
            give_back_ids(lake, table_id, first, partitions, 0, each)
            return accepted(found)
        blocks = accepted(work.spilled(lake.storage, found))
        give_back_ids(lake, table_id, first, partitions, 1 + max((w.partition for w in found), default=-1), each)
        job.add(rows=sum(b.record_count for b in blocks), size=sum(b.file.size for b in blocks))
        self._ready = state.table.schema_version, blocks
        return None

    def _results(self, work: Work) -> list[Written]:
        return [pickle.loads(row) for row in handed_over(self._runner, self._frame, work, self._job.check)]


def only_carried(found: Sequence[Written]) -> bool:
    """Return whether the results of a load's tasks carry all rows."""
    return all(isinstance(file, Carried) for w in found for file in w.files)


def put_rows(table: Table, few: Sequence[Carried], *, overwrite: bool, token: TokenLike | None) -> WriteResult:
    """Insert the rows that tasks have carried, in place of all others if asked for."""
    batches = list(rows_of(table._lake.storage, few))
    rows = pa.Table.from_batches(batches) if batches else None
    if overwrite:
        return replace_rows(table, rows, token)
    return WriteResult(0) if rows is None else table.insert(rows, token=token)


def commit_blocks(
    lake: Lake, table_id: int, schema_version: int, blocks: list[NewBlock], *, overwrite: bool, token: TokenLike | None
) -> None:
    """Commit blocks that tasks have written, in a process that Spark ends when the query is cancelled."""

    def written(state: TableState) -> list[NewBlock]:
        if state.table.schema_version != schema_version:
            raise JobError("The table's columns were changed while Spark wrote. Nothing was changed; start again.")
        return blocks

    def check() -> None:
        """Do nothing: nobody can ask for a stop."""

    loader = Loader(lake, table_id, ThreadRunner(lake.storage), check, written, overwrite=overwrite)
    lake._autocommit("overwrite" if overwrite else "load", loader.apply, token)


def check_columns(frame: StructType, schema: TableSchema, *, others: Sequence[str] = ()) -> None:
    """Refuse a frame with columns that the table does not have, or whose types do not fit."""
    seen: set[str] = set()
    for field in frame.fields:
        name = field.name
        if name.lower() in seen:
            raise SchemaError(f"The frame has column {name!r} twice. Rename or drop one.", column=name)
        seen.add(name.lower())
        if name.lower() not in schema.by_name:
            if name.lower() in others:
                continue
            raise unknown_column(name, schema.names)
        column = schema.field(name)
        if not fits(field.dataType, column.arrow()):
            raise SchemaError(
                f"Column {column.name!r} is {column.type} but the DataFrame has {field.dataType.simpleString()}. Cast "
                "it first.",
                column=column.name,
            )


def _by_key(
    lake: Lake, table: Table, frame: DataFrame, runner: SparkRunner, job: Job, mode: str,
    sequence_by: str | None, token: TokenLike | None, *, carries: bool,
) -> WriteResult:  # fmt: skip
    """Have Spark write the rows to files, and upsert or apply them in this process, in bounded memory."""
    with table._reading() as reading:
        state = reading.state
    check_columns(frame.schema, state.current, others=others_than_the_tables(mode, sequence_by))
    work = IndexLakeStage(Target.of(state, lake._writer_id()), lake.storage, frame.columns, carries=carries)
    results = handed_over(runner, frame, work, job.check)
    parts = accepted([pickle.loads(row) for row in results])
    result = apply_by_key(table, parts, mode, sequence_by, token)
    job.add(rows=result.rows, size=sum(part.file.size for part in parts if isinstance(part, Staged)))
    return result


def others_than_the_tables(mode: str, sequence_by: str | None) -> list[str]:
    """Return the columns that rows may have besides those of the table, in lower case."""
    own = [] if sequence_by is None else [sequence_by.lower()]
    return [CHANGE_TYPE, SNAPSHOT_ID, ROW_ID, *own] if mode == "changes" else own


def apply_by_key(
    table: Table, parts: Sequence[Carried | Staged], mode: str, sequence_by: str | None, token: TokenLike | None
) -> WriteResult:
    """Upsert rows that tasks have carried or staged, or apply them as changes, and remove the files."""
    storage = table._lake.storage
    rows = rows_of(storage, parts)
    try:
        first = next(rows, None)
        if first is None:
            return WriteResult(0)
        reader = pa.RecordBatchReader.from_batches(first.schema, chain([first], rows))
        return write_by_key(table, reader, mode, sequence_by, token)
    finally:
        for part in parts:
            if isinstance(part, Staged):
                storage.delete(part.file.path)


def too_many(partitions: int) -> JobError:
    return JobError(f"A load can have at most {partitions:,} partitions. Call df.coalesce(…) first.")
