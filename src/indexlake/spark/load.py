"""Loads a Spark DataFrame into a table: straight to blocks, each Spark task its own, all in one commit.

Row ids come in ranges that the driver reserves, one for each Spark partition; attempts of one partition share its
range, and only the files of the attempt whose result Spark accepts are committed.  Primary keys are checked on what
was written, never on a second evaluation of the DataFrame.  Files of a load that fails are left to vacuum.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from indexlake.blocks.checksum import Checksums
from indexlake.blocks.formats import open_reader, write_file
from indexlake.blocks.new_block import NewBlock, NewFile
from indexlake.blocks.writer import file_batch, write_block
from indexlake.catalog import layout
from indexlake.commit.key_check import decode_key, duplicate
from indexlake.commit.loaded import LoadedKeys
from indexlake.commit.write_set import WriteResult
from indexlake.errors import IndexLakeError, JobError, SchemaError
from indexlake.pipeline.job import Job
from indexlake.pipeline.key_tasks import first_repeated, probe_tasks, run_probe
from indexlake.pipeline.runner import ThreadRunner
from indexlake.rows import conform
from indexlake.schema import TableSchema, unknown_column
from indexlake.spark.runner import SparkRunner, opened
from indexlake.spark.types import from_spark
from indexlake.storage import Storage, StorageSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from indexlake.keys.encoding import Key
    from indexlake.lake import Lake
    from indexlake.state import TableState
    from indexlake.table import Table
    from indexlake.transaction import Transaction

IDS_PER_PARTITION = 1 << 30
FEWEST_PARTITIONS = 1 << 8
MOST_PARTITIONS = 1 << 20
_SLICE = 65_536


def load_frame(lake: Lake, table: Table, frame: DataFrame, job: Job, *, mode: str, token: str | None) -> WriteResult:
    """Append the rows, put them in the place of all that are there, or upsert them by primary key."""
    runner = SparkRunner(frame.sparkSession, lake.storage)
    if mode == "upsert":
        return _upsert(lake, table, frame, runner, job, token)
    loader = _Loader(lake, table._table_id, frame, runner, job, overwrite=mode == "overwrite")
    return lake._autocommit(mode if mode == "overwrite" else "load", loader.apply, token)


class _Loader:
    """One load, whose commit may have to be tried again; the blocks are written once per schema."""

    def __init__(
        self, lake: Lake, table_id: int, frame: DataFrame, runner: SparkRunner, job: Job, *, overwrite: bool
    ) -> None:
        self._lake = lake
        self._table_id = table_id
        self._frame = frame
        self._runner = runner
        self._job = job
        self._overwrite = overwrite
        self._written: tuple[int, list[NewBlock]] | None = None  # schema version, blocks

    def apply(self, tx: Transaction) -> int:
        lake = self._lake
        with lake._reading(self._table_id) as (_, state, last):
            tx._set_base(last)
        if self._written is None or self._written[0] != state.table.schema_version:
            self._written = state.table.schema_version, self._write(state)
        blocks = self._written[1]
        writes = tx.writes(state)
        if self._overwrite:
            writes.truncate_all()
        for block in blocks:
            writes.insert_block(block)
            writes.inserted += block.record_count
        if state.current.primary_key and blocks and not self._overwrite:
            loaded = LoadedKeys(blocks, self._probe, claimed=False)
            with lake._reading(self._table_id) as (r, newest, _last):
                hot = loaded.hot_since(r, newest)
            loaded.look(newest, hot, lake._files, writes.closed)
            writes.loaded = loaded
        return sum(block.record_count for block in blocks)

    # ------------------------------------------------------------ writing

    def _write(self, state: TableState) -> list[NewBlock]:
        frame = self._frame.select(_matched(self._frame.columns, state.current))
        partitions = FEWEST_PARTITIONS
        while True:
            first = self._reserve(partitions)
            work = IndexLakeWrite(state, self._lake, first, partitions)
            results = self._runner.collect(frame.mapInArrow(work, "result binary"), self._job.check)
            found = [_Written(*pickle.loads(row)) for row in results]
            if any(w.partition >= partitions for w in found) and partitions < MOST_PARTITIONS:
                partitions *= 16  # more tasks than ranges: nothing of this run is used
                continue
            break
        _check(found)
        self._give_back(first, partitions, 1 + max((w.partition for w in found), default=-1))
        blocks: list[NewBlock] = [block for w in sorted(found, key=lambda w: w.partition) for block in w.files]
        self._job.add(rows=sum(b.record_count for b in blocks), size=sum(b.file.size for b in blocks))
        if state.current.primary_key:
            repeated = first_repeated(self._lake.storage, blocks, self._runner, self._job.check)
            if repeated is not None:
                raise duplicate(state, decode_key(state, repeated), "is given twice")
        return blocks

    def _reserve(self, partitions: int) -> int:
        with self._lake.catalog.transaction() as tx:
            first = layout.reserve_row_ids(tx, self._table_id, partitions * IDS_PER_PARTITION)
            tx.commit()
        if first is None:
            raise SchemaError("The table was dropped while it was loaded. Nothing was changed.")
        return first

    def _give_back(self, first: int, reserved: int, used: int) -> None:
        """Ranges that no partition has used, unless others have taken ids since."""
        with self._lake.catalog.transaction() as tx:
            end, kept = first + reserved * IDS_PER_PARTITION, first + used * IDS_PER_PARTITION
            layout.give_back_row_ids(tx, self._table_id, end, kept)
            tx.commit()

    # ------------------------------------------------------------ keys

    def _probe(self, state: TableState, blocks: Sequence[NewBlock], since: int) -> list[tuple[int, int, Key]]:
        tasks = probe_tasks(state, blocks, since)
        runner = self._runner if since < 0 else ThreadRunner(self._lake.storage)
        return [holder for found in runner.map(run_probe, tasks, self._job.check) for holder in found]


def _matched(names: Sequence[str], schema: TableSchema) -> list[str]:
    """The columns of a frame that belong to columns of the table; all of them have to."""
    for name in names:
        if name.lower() not in schema.by_name:
            raise unknown_column(name, schema.names)
    folded = [name.lower() for name in names]
    again = next((name for n, name in enumerate(names) if name.lower() in folded[:n]), None)
    if again is not None:
        raise SchemaError(f"The frame has column {again!r} twice. Rename or drop one.", column=again)
    return [f"`{name.replace('`', '``')}`" for name in names]


@dataclass(frozen=True, slots=True)
class _Written:
    """What a Spark task has to say: its files, or why there are none."""

    partition: int
    files: tuple[Any, ...]
    error: IndexLakeError | None = None


class _Work:
    """Turns the rows of one Spark partition into files, on an executor; the driver gets a small record of them."""

    def __init__(self, state: TableState, lake: Lake) -> None:
        self._table = state.table
        self._schema = state.current
        self._writer_id = lake._writer_id()
        self._spec: StorageSpec = lake.storage.spec()
        self._options: Mapping[str, str] = dict(lake.storage.secrets)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._spec.root!r}, {self._table.folder!r})"  # no options: they are secrets

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        partition = context.partitionId()
        said: tuple[int, tuple[Any, ...], IndexLakeError | None]
        try:
            said = (partition, tuple(self._files(opened(self._spec, self._options), batches, partition)), None)
        except IndexLakeError as error:
            if error.retryable:
                raise
            said = (partition, (), error)
        yield pa.RecordBatch.from_pydict({"result": pa.array([pickle.dumps(said)], pa.binary())})

    def _files(self, storage: Storage, batches: Iterator[pa.RecordBatch], partition: int) -> Iterator[Any]:
        raise NotImplementedError


class IndexLakeWrite(_Work):
    """Writes blocks."""

    def __init__(self, state: TableState, lake: Lake, first: int, partitions: int) -> None:
        super().__init__(state, lake)
        self._first = first
        self._partitions = partitions

    def _files(self, storage: Storage, batches: Iterator[pa.RecordBatch], partition: int) -> Iterator[NewBlock]:
        if partition >= self._partitions:
            return  # no ids are left for it: the driver will see and begin again with more
        table, config = self._table, self._table.config
        rows = _Numbered(batches, self._schema, self._first + partition * IDS_PER_PARTITION)
        while rows.more():
            block = write_block(
                storage, table.folder, self._writer_id, self._schema, table.schema_version, config.dump_format,
                rows.take(config.block_row_count),
            )  # fmt: skip
            block.keys = None  # the segment has them
            yield block


class IndexLakeStage(_Work):
    """Writes the rows as they are to one file, for the driver to take as the source of an upsert."""

    def _files(self, storage: Storage, batches: Iterator[pa.RecordBatch], partition: int) -> Iterator[NewFile]:
        first = next(batches, None)
        if first is None:
            return
        head = _typed(first, self._schema)
        rows = chain([head], (_typed(batch, self._schema) for batch in batches))
        path = f"{self._table.folder}/stage/{self._writer_id}-{uuid.uuid4().hex}.arrow"
        written = write_file(storage, path, "ipc", head.schema, rows, {})
        yield NewFile(written.path, written.size, written.checksums.to_bytes())


def _upsert(
    lake: Lake, table: Table, frame: DataFrame, runner: SparkRunner, job: Job, token: str | None
) -> WriteResult:
    """Spark writes the rows to files, and this process upserts what is in them, in bounded memory."""
    with table._reading(None) as (_, state, _snapshot):
        pass
    names = _matched(frame.columns, state.current)
    schema = pa.schema([state.current.field(name).arrow().with_nullable(True) for name in frame.columns])
    staged = frame.select(names).mapInArrow(IndexLakeStage(state, lake), "result binary")
    found = [_Written(*pickle.loads(row)) for row in runner.collect(staged, job.check)]
    _check(found)
    files = [file for w in sorted(found, key=lambda w: w.partition) for file in w.files]

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


def _check(found: Sequence[_Written]) -> None:
    failed = next((w.error for w in found if w.error is not None), None)
    if failed is not None:
        raise failed


class _Numbered:
    """Batches of Spark as batches of a file, with consecutive row ids, cut into blocks."""

    def __init__(self, batches: Iterator[pa.RecordBatch], schema: TableSchema, first: int) -> None:
        self._batches = batches
        self._schema = schema
        self._next = first
        self._end = first + IDS_PER_PARTITION
        self._rest: pa.RecordBatch | None = None

    def more(self) -> bool:
        while self._rest is None or not self._rest.num_rows:
            found = next(self._batches, None)
            if found is None:
                return False
            self._rest = conform(_typed(found, self._schema), self._schema)
        return True

    def take(self, rows: int) -> Iterator[pa.RecordBatch]:
        while rows and self.more():
            assert self._rest is not None
            part = self._rest.slice(0, min(rows, _SLICE))
            self._rest = self._rest.slice(part.num_rows)
            rows -= part.num_rows
            start, self._next = self._next, self._next + part.num_rows
            if self._next > self._end:
                raise JobError(f"A Spark partition holds more than {IDS_PER_PARTITION:,} rows. Repartition the frame.")
            ids = pa.array(np.arange(start, self._next, dtype=np.int64))
            yield file_batch(part, self._schema, ids, None)


def _typed(batch: pa.RecordBatch, schema: TableSchema) -> pa.RecordBatch:
    """Spark's values in the types of the table's columns."""
    fields = [schema.field(name) for name in batch.schema.names]
    arrays = [from_spark(array, f.type, f.name) for array, f in zip(batch.columns, fields, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=[f.name for f in fields])
