"""What the Spark tasks of a load do with the rows of a partition, on an executor.

A task returns a small record of the files it has written, or the rows themselves if they are few and the load asked for
that.  Errors that a retry would not fix are results too.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa

from indexlake.blocks.formats import open_reader
from indexlake.blocks.formats.batches import BATCH_ROWS, ahead, rechunked
from indexlake.blocks.new_block import NewBlock, NewFile
from indexlake.blocks.stream import Target
from indexlake.errors import IndexLakeError
from indexlake.partitions.writing import without_ids, write_many
from indexlake.pipeline.loader import IDS_PER_TASK, IdRange
from indexlake.pipeline.sort_tasks import StagedRuns, stage
from indexlake.schema import TableSchema
from indexlake.sources.rules import conform
from indexlake.spark.portion import Stage
from indexlake.spark.runner import opened
from indexlake.spark.types import from_spark
from indexlake.storage import Storage, StorageSpec
from indexlake.storage.checksum import Checksums
from indexlake.storage.names import table_folder

CARRIED_ROWS = 10_000
CARRIED_BYTES = 512 << 10
"""A task's rows are carried with its result if they are fewer and smaller than this."""


@dataclass(frozen=True, slots=True)
class Carried:
    """The rows of a task, as an Arrow stream."""

    data: bytes

    @staticmethod
    def of(batches: Sequence[pa.RecordBatch]) -> Carried:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return Carried(sink.getvalue().to_pybytes())

    def batches(self) -> list[pa.RecordBatch]:
        with pa.ipc.open_stream(self.data) as reader:
            return list(reader)


@dataclass(frozen=True, slots=True)
class Staged:
    """The rows of a task, in a file."""

    file: NewFile
    schema: bytes

    def batches(self, storage: Storage) -> Iterator[pa.RecordBatch]:
        schema = pa.ipc.read_schema(pa.py_buffer(self.schema))
        file = self.file
        reader = open_reader(storage, file.path, "ipc", file.size, Checksums.from_bytes(file.checksum), schema)
        yield from reader.read(schema.names)


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a Spark task: its files or rows, or why there are none."""

    partition: int
    files: tuple[Any, ...]
    error: IndexLakeError | None = None


def accepted(found: Sequence[Written]) -> list[Any]:
    """Return the files of all tasks, in the order of the partitions; raise the error of a failed task."""
    failed = next((w.error for w in found if w.error is not None), None)
    if failed is not None:
        raise failed
    return [file for w in sorted(found, key=lambda w: w.partition) for file in w.files]


class Work(ABC):
    """Turns the rows of one Spark partition into files, on an executor; the driver gets a small record of them."""

    def __init__(self, target: Target, storage: Storage, columns: Sequence[str], *, carries: bool = False) -> None:
        self._target = target
        self._columns = list(columns)  # names of the rows' columns; the names used on the way are irrelevant
        self._carries = carries  # few rows are returned as they are
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
            rows: Iterator[pa.RecordBatch] = (_typed(batch, self._target.schema) for batch in joined)
            if self._carries:
                few, rest = ahead(rows, CARRIED_ROWS, CARRIED_BYTES)
                if rest is None:
                    return Written(partition, (Carried.of(few),) if few else ())
                rows = chain(few, rest)
            return Written(partition, tuple(self.files(opened(self._spec, self._options), rows, partition)))
        except IndexLakeError as error:
            if error.retryable:
                raise
            return Written(partition, (), error)

    def spilled(self, storage: Storage, found: Sequence[Written]) -> list[Written]:
        """Return the results with files in place of the rows that some of them carry."""
        return [
            Written(w.partition, tuple(self.files(storage, iter(w.files[0].batches()), w.partition)), w.error)
            if w.files and isinstance(w.files[0], Carried)
            else w
            for w in found
        ]

    def _rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the rows with the columns and types of the table."""
        return (conform(batch, self._target.schema) for batch in batches)

    @abstractmethod
    def files(self, storage: Storage, batches: Iterator[pa.RecordBatch], partition: int) -> Iterator[Any]:
        """Write the rows and yield the files."""


class IndexLakeWrite(Work):
    """Writes blocks."""

    def __init__(
        self, target: Target, storage: Storage, first: int, partitions: int, columns: Sequence[str],
        *, each: int = IDS_PER_TASK, carries: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(target, storage, columns, carries=carries)
        self._first = first
        self._partitions = partitions
        self._each = each

    def files(self, storage: Storage, batches: Iterator[pa.RecordBatch], partition: int) -> Iterator[NewBlock]:
        if partition >= self._partitions:
            return  # there are no ids left for it, which the driver will notice
        ids = IdRange(self._first, partition, self._each)
        for block in write_many(storage, self._target, self._rows(batches), ids.take):
            block.keys = {}  # the segment has them
            yield block


class IndexLakeSort(Work):
    """Stages rows for a clustered table, sorted by key."""

    def files(self, storage: Storage, batches: Iterator[pa.RecordBatch], partition: int) -> Iterator[StagedRuns]:
        rows = without_ids(self._rows(batches), self._target.schema)
        if (staged := stage(storage, self._target, rows)) is not None:
            yield staged


class IndexLakeStage(Work):
    """Writes the rows as they are to one file, which the driver uses as the source of an upsert."""

    def files(self, storage: Storage, batches: Iterator[pa.RecordBatch], partition: int) -> Iterator[Staged]:
        target = self._target
        first = next(batches, None)
        if first is None:
            return
        stage = Stage(storage, target.table_id, lambda: target.writer_id)
        file = stage.write(first.schema, chain([first], batches))
        yield Staged(file, first.schema.serialize().to_pybytes())


def rows_of(storage: Storage, parts: Iterable[Carried | Staged]) -> Iterator[pa.RecordBatch]:
    """Yield the rows that tasks have carried or staged."""
    for part in parts:
        yield from part.batches() if isinstance(part, Carried) else part.batches(storage)


def _typed(batch: pa.RecordBatch, schema: TableSchema) -> pa.RecordBatch:
    """Return Spark's values in the types of the table's columns; other columns stay as they are."""
    arrays, names = [], []
    for array, name in zip(batch.columns, batch.schema.names, strict=True):
        column = schema.by_name.get(name.lower())
        arrays.append(array if column is None else from_spark(array, column.type, column.name))
        names.append(name if column is None else column.name)
    return pa.RecordBatch.from_arrays(arrays, names=names)
