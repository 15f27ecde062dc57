"""Loads a Spark DataFrame into a table: each Spark task writes its own blocks, and all are committed together.

Rows for a clustered table are staged as sorted runs, then sorted across all tasks: the frame is computed only once, and
keys are always compared in our own order.

The files of a task are named in its result.  Only files in the results that Spark accepts are ever committed, so tasks
that die, are repeated or run twice leave nothing but files for vacuum.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indexlake.blocks.formats import open_reader
from indexlake.blocks.formats.batches import BATCH_ROWS, rechunked
from indexlake.blocks.new_block import NewBlock, NewFile
from indexlake.blocks.stream import Target
from indexlake.commit.write_set import WriteResult
from indexlake.errors import IndexLakeError, JobError, SchemaError
from indexlake.partitions.writing import without_ids, write_many
from indexlake.pipeline.job import Job
from indexlake.pipeline.loader import IdRange, Loader, give_back_ids, reserve_ids
from indexlake.pipeline.sort_tasks import StagedRuns, sorted_load, stage
from indexlake.schema import TableSchema, unknown_column
from indexlake.sources.rules import conform
from indexlake.spark.handover import handed_over
from indexlake.spark.portion import Stage
from indexlake.spark.runner import SparkRunner, opened
from indexlake.spark.types import fits, from_spark
from indexlake.storage import Storage, StorageSpec
from indexlake.storage.checksum import Checksums
from indexlake.storage.names import table_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from indexlake.lake import Lake
    from indexlake.snapshots.state import TableState
    from indexlake.table import Table

FEWEST_PARTITIONS = 1 << 8
MOST_PARTITIONS = 1 << 20


def load_frame(lake: Lake, table: Table, frame: DataFrame, job: Job, *, mode: str, token: str | None) -> WriteResult:
    """Append the rows, replace all existing rows with them, or upsert them by primary key."""
    runner = SparkRunner(frame.sparkSession, lake.storage)
    if mode == "upsert":
        return _upsert(lake, table, frame, runner, job, token)
    write = partial(_written, lake, frame, runner, job)
    loader = Loader(lake, table._table_id, runner, job.check, write, overwrite=mode == "overwrite")
    return lake._autocommit(mode if mode == "overwrite" else "load", loader.apply, token)


def _written(lake: Lake, frame: DataFrame, runner: SparkRunner, job: Job, state: TableState) -> list[NewBlock]:
    """Have Spark write the rows of a frame to blocks, which are not committed yet."""
    table_id = state.table.table_id
    check_columns(frame.schema, state.current)
    target = Target.of(state, lake._writer_id())
    if target.ranges is not None:
        sort = IndexLakeSort(target, lake.storage, frame.columns)
        staged = accepted([pickle.loads(row) for row in handed_over(runner, frame, sort, job.check)])
        return sorted_load(job, runner, target, staged)
    partitions = FEWEST_PARTITIONS
    while True:
        first = reserve_ids(lake, table_id, partitions)
        work = IndexLakeWrite(target, lake.storage, first, partitions, frame.columns)
        found: list[Written] = [pickle.loads(row) for row in handed_over(runner, frame, work, job.check)]
        if all(w.partition < partitions for w in found):
            break
        if partitions == MOST_PARTITIONS:
            raise too_many(partitions)
        partitions *= 16  # there were more tasks than id ranges: discard this run
    blocks = accepted(found)
    give_back_ids(lake, table_id, first, partitions, 1 + max((w.partition for w in found), default=-1))
    job.add(rows=sum(b.record_count for b in blocks), size=sum(b.file.size for b in blocks))
    return blocks


def check_columns(frame: StructType, schema: TableSchema) -> None:
    """Refuse a frame with columns that the table does not have, or whose types do not fit."""
    seen: set[str] = set()
    for field in frame.fields:
        name = field.name
        if name.lower() not in schema.by_name:
            raise unknown_column(name, schema.names)
        if name.lower() in seen:
            raise SchemaError(f"The frame has column {name!r} twice. Rename or drop one.", column=name)
        seen.add(name.lower())
        column = schema.field(name)
        if not fits(field.dataType, column.arrow()):
            raise SchemaError(
                f"Column {column.name!r} is {column.type} but the DataFrame has {field.dataType.simpleString()}. Cast "
                "it first.",
                column=column.name,
            )


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a Spark task: its files, or why there are none."""

    partition: int
    files: tuple[Any, ...]
    error: IndexLakeError | None = None


class _Work(ABC):
    """Turns the rows of one Spark partition into files, on an executor; the driver gets a small record of them."""

    def __init__(self, target: Target, storage: Storage, columns: Sequence[str]) -> None:
        self._target = target
        self._columns = list(columns)  # names of the rows' columns; the names used on the way are irrelevant
        self._spec: StorageSpec = storage.spec()
        self._options: Mapping[str, str] = dict(storage.secrets)

    def __repr__(self) -> str:
        folder = table_folder(self._target.table_id)
        return f"{type(self).__name__}({self._spec.root!r}, {folder!r})"  # leaves out the options, which are secret

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        said = pickle.dumps(self.written(batches))
        yield pa.RecordBatch.from_pydict({"result": pa.array([said], pa.binary())})

    def written(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """Return the result of this task, including any error that a retry would not fix."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        partition = context.partitionId()
        try:
            joined = rechunked((batch.rename_columns(self._columns) for batch in batches), BATCH_ROWS)
            return Written(partition, tuple(self._files(opened(self._spec, self._options), joined, partition)))
        except IndexLakeError as error:
            if error.retryable:
                raise
            return Written(partition, (), error)

    def _rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the rows with the columns and types of the table."""
        schema = self._target.schema
        return (conform(_typed(batch, schema), schema) for batch in batches)

    @abstractmethod
    def _files(self, storage: Storage, batches: Iterator[pa.RecordBatch], partition: int) -> Iterator[Any]:
        """Write the rows and yield the files."""


class IndexLakeWrite(_Work):
    """Writes blocks."""

    def __init__(self, target: Target, storage: Storage, first: int, partitions: int, columns: Sequence[str]) -> None:
        super().__init__(target, storage, columns)
        self._first = first
        self._partitions = partitions

    def _files(self, storage: Storage, batches: Iterator[pa.RecordBatch], partition: int) -> Iterator[NewBlock]:
        if partition >= self._partitions:
            return  # there are no ids left for it, which the driver will notice
        rows = self._rows(batches)
        for block in write_many(storage, self._target, rows, IdRange(self._first, partition).take):
            block.keys = {}  # the segment has them
            yield block


class IndexLakeSort(_Work):
    """Stages rows for a clustered table, sorted by key."""

    def _files(self, storage: Storage, batches: Iterator[pa.RecordBatch], partition: int) -> Iterator[StagedRuns]:
        rows = without_ids(self._rows(batches), self._target.schema)
        if (staged := stage(storage, self._target, rows)) is not None:
            yield staged


class IndexLakeStage(_Work):
    """Writes the rows as they are to one file, which the driver uses as the source of an upsert."""

    def _files(self, storage: Storage, batches: Iterator[pa.RecordBatch], partition: int) -> Iterator[NewFile]:
        target = self._target
        first = next(batches, None)
        if first is None:
            return
        head = _typed(first, target.schema)
        rows = chain([head], (_typed(batch, target.schema) for batch in batches))
        yield Stage(storage, target.table_id, lambda: target.writer_id).write(head.schema, rows)


def _upsert(
    lake: Lake, table: Table, frame: DataFrame, runner: SparkRunner, job: Job, token: str | None
) -> WriteResult:
    """Have Spark write the rows to files, and upsert their contents in this process, in bounded memory."""
    with table._reading() as reading:
        state = reading.state
    check_columns(frame.schema, state.current)
    schema = pa.schema([state.current.field(name).arrow().with_nullable(True) for name in frame.columns])
    stage = IndexLakeStage(Target.of(state, lake._writer_id()), lake.storage, frame.columns)
    files = accepted([pickle.loads(row) for row in handed_over(runner, frame, stage, job.check)])

    def rows() -> Iterator[pa.RecordBatch]:
        for file in files:
            reader = open_reader(lake.storage, file.path, "ipc", file.size, Checksums.from_bytes(file.checksum), schema)
            yield from reader.read(schema.names)

    try:
        result = table.upsert(pa.RecordBatchReader.from_batches(schema, rows()), token=token)
    finally:
        for file in files:
            lake.storage.delete(file.path)
    job.add(rows=result.rows, size=sum(file.size for file in files))
    return result


def too_many(partitions: int) -> JobError:
    return JobError(f"A load can have at most {partitions:,} partitions. Call df.coalesce(…) first.")


def accepted(found: Sequence[Written]) -> list[Any]:
    """Return the files of all tasks, in the order of the partitions; raise the error of a failed task."""
    failed = next((w.error for w in found if w.error is not None), None)
    if failed is not None:
        raise failed
    return [file for w in sorted(found, key=lambda w: w.partition) for file in w.files]


def _typed(batch: pa.RecordBatch, schema: TableSchema) -> pa.RecordBatch:
    """Return Spark's values in the types of the table's columns."""
    fields = [schema.field(name) for name in batch.schema.names]
    arrays = [from_spark(array, f.type, f.name) for array, f in zip(batch.columns, fields, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=[f.name for f in fields])
