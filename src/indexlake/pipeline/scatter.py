"""Scatter and gather: the rows of many blocks are sorted into buckets by way of staged files.

A scatter task reads some blocks and writes one staged file, in runs that fit in memory, each run bucket after bucket. A
gather task reads one bucket out of all staged files and writes it as blocks, in row-id order. So every row is read
twice and written twice, whatever the number of buckets, and only file names and offsets go through the driver. Staged
files are named like all others, so vacuum finds what a killed job leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from indexlake.blocks.formats.batches import encoded, stored_schema
from indexlake.blocks.formats.ipc import ipc_type
from indexlake.blocks.open_files import OpenFiles
from indexlake.blocks.stream import Target
from indexlake.partitions.runs import by_size
from indexlake.pipeline.curve import Codes, Curve
from indexlake.pipeline.rewrite import Rewritten, in_row_id_order, live_rows, write_rows
from indexlake.scan.plan import BlockTask
from indexlake.schema import ROW_ID
from indexlake.storage import InputFile, OutputFile, Storage
from indexlake.storage.checksum import Checksums
from indexlake.storage.names import FileName
from indexlake.types.selection import with_dictionaries


@dataclass(frozen=True, slots=True)
class ScatterTask:
    """The live rows of some blocks, and where to cut the curve."""

    target: Target
    inputs: tuple[BlockTask, ...]
    curve: Curve
    cuts: Codes

    @property
    def size(self) -> int:
        return sum(t.size for t in self.inputs)


@dataclass(frozen=True, slots=True)
class StagedRun:
    """The rows of one bucket in one run: a place in a staged file."""

    bucket: int
    offset: int
    length: int
    rows: int
    first_row_id: int


@dataclass(frozen=True, slots=True)
class StagedFile:
    path: str
    checksum: bytes
    runs: tuple[StagedRun, ...]


@dataclass(frozen=True, slots=True)
class GatherTask:
    """One bucket: its runs in every staged file that has some."""

    target: Target
    files: tuple[StagedFile, ...]

    @property
    def rows(self) -> int:
        return sum(run.rows for file in self.files for run in file.runs)

    @property
    def size(self) -> int:
        return sum(run.length for file in self.files for run in file.runs)


def scatter(storage: Storage, task: ScatterTask, check: Callable[[], None]) -> StagedFile:
    """Write the rows of the inputs to one staged file, sorted into buckets."""
    path = FileName.new(task.target.table_id, "stage", task.target.writer_id, "arrow").path
    runs: list[StagedRun] = []
    files = OpenFiles(storage)
    try:
        with storage.create_file(path) as out:
            for batches in by_size(live_rows(task.inputs, files, task.target.schema), check):
                runs += _write_run(out, task, batches)
            out.close()
            return StagedFile(path, out.checksums.to_bytes(), tuple(runs))
    finally:
        files.clear()


def _write_run(out: OutputFile, task: ScatterTask, batches: list[pa.RecordBatch]) -> Iterator[StagedRun]:
    stored = stored_schema(task.target.schema.file, ipc_type)
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    codes = np.concatenate([task.curve.codes_of(batch) for batch in batches])
    buckets = np.searchsorted(task.cuts, codes, side="right")
    ids = np.concatenate([batch.column(ROW_ID).to_numpy() for batch in batches])
    order = np.lexsort((ids, buckets))
    rows = pa.Table.from_batches(encoded(batches, stored), stored).take(pa.array(order))
    buckets, ids = buckets[order], ids[order]
    starts = np.flatnonzero(np.diff(buckets, prepend=-1))
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(buckets)], strict=True):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, stored, options=options) as writer:
            writer.write_table(rows.slice(start, stop - start))
        data = sink.getvalue()
        offset = out.tell()
        out.write(data)
        yield StagedRun(int(buckets[start]), offset, len(data), stop - start, int(ids[start]))


def gather(storage: Storage, task: GatherTask, check: Callable[[], None]) -> Rewritten:
    """Write one bucket as blocks of equal size, about as large as a full block."""
    schema = task.target.schema
    per_block = -(-task.rows // max(1, round(task.rows / task.target.block_row_count)))
    with ExitStack() as opened:
        inputs = []
        for staged in task.files:
            file = opened.enter_context(storage.open_file(staged.path, Checksums.from_bytes(staged.checksum)))
            inputs += [(run.first_row_id, partial(_read, file, run)) for run in staged.runs]
        rows = (batch for stored in in_row_id_order(inputs) for batch in with_dictionaries(stored, schema.file))
        return write_rows(storage, task.target, rows, per_block, check)


def _read(file: InputFile, run: StagedRun) -> Iterator[pa.RecordBatch]:
    yield from pa.ipc.open_stream(pa.py_buffer(file.read_at(run.offset, run.length)))
