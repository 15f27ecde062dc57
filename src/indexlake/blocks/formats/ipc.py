"""Arrow IPC blocks: small ones that wait for compaction, and the data and delta files of clustered tables.

Record batches of equal length (at most 64 Ki rows, fewer if rows are large; the last may be shorter), buffers
compressed with lz4.  The length is in the schema metadata, so a row is found without reading other batches.

A small file, of up to 32 Ki rows and 64 MiB, is not compressed and has batches of at most 8 Ki rows: a single row is
read where it lies in the memory map, without decoding.  Batches that are given away are copies: no result changes
with a file.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from indexlake.arrow.batch_size import BATCH_BYTES
from indexlake.blocks.formats.batches import (
    BATCH_ROWS,
    ahead,
    encoded,
    rechunked,
    stored_schema,
)
from indexlake.blocks.formats.chunked import ChunkedReader
from indexlake.errors import CorruptionError
from indexlake.storage import InputFile, OutputFile
from indexlake.storage.failure import first_line
from indexlake.types.convert import in_files, mapped_leaves

if TYPE_CHECKING:
    from indexlake.expr import Bound

_BATCH_ROWS = "indexlake.batch_rows"
_SMALL = "indexlake.small"
_SMALL_ROWS = 32_768
_SMALL_BATCH_ROWS = 8_192


def write(out: OutputFile, schema: pa.Schema, batches: Iterable[pa.RecordBatch], metadata: Mapping[str, str]) -> int:
    """Write all batches and return how many rows they hold."""
    stored = stored_schema(schema, ipc_type)
    few, rows = ahead(encoded(batches, stored), _SMALL_ROWS + 1, BATCH_BYTES)
    batch_rows = _batch_rows(few)
    small = rows is None
    marks = {_BATCH_ROWS: str(batch_rows)}
    if small:
        batch_rows = min(batch_rows, _SMALL_BATCH_ROWS)
        marks = {_BATCH_ROWS: str(batch_rows), _SMALL: "true"}
    stored = stored.with_metadata({**metadata, **marks})
    options = pa.ipc.IpcWriteOptions(compression=None if small else "lz4", use_threads=False)
    row_count = 0
    with pa.ipc.new_file(pa.PythonFile(out, mode="w"), stored, options=options) as writer:
        for batch in rechunked(chain(few, rows or ()), batch_rows, equal=True):
            writer.write_batch(batch)
            row_count += batch.num_rows
    return row_count


def open_reader(file: InputFile, schema: pa.Schema) -> ChunkedReader:
    return ChunkedReader(_Batches(file, schema), schema)


def ipc_type(type: Any) -> Any:
    """The Arrow type in which values of `type` are written: dictionaries and views as their values."""
    return mapped_leaves(type, in_files)


def _batch_rows(first: list[pa.RecordBatch]) -> int:
    """How many rows a record batch of this file gets, judged by the first rows."""
    rows = sum(batch.num_rows for batch in first)
    size = sum(int(batch.nbytes) for batch in first)
    return max(1, min(BATCH_ROWS, BATCH_BYTES * rows // max(size, 1))) if rows else BATCH_ROWS


class _Batches:
    def __init__(self, file: InputFile, schema: pa.Schema) -> None:
        self.path = file.path
        self._file = file
        self._names = schema.names
        self._count = 0
        self._mapped: dict[int, pa.RecordBatch] | None = None  # of a small file, as they lie in the memory map
        self._reader: Any = None  # of a small file
        self._lock = threading.Lock()

    @property
    def bytes_read(self) -> int:
        return self._file.bytes_read

    def starts(self) -> Any:
        reader = self._open(self._names, self._file.duplicate()) if self._file.is_mapped else None
        if reader is not None and _SMALL.encode() in (reader.schema.metadata or {}):
            self._mapped, self._reader = {}, reader
        else:
            reader = self._open(self._names[:1])
        self._count = reader.num_record_batches
        metadata = reader.schema.metadata or {}
        try:
            batch_rows = int(metadata[_BATCH_ROWS.encode()])
        except (KeyError, ValueError) as error:
            raise self._unreadable(error) from None
        starts = np.arange(self._count + 1, dtype=np.uint64) * np.uint64(batch_rows)
        if self._count:
            last = self._batch(reader, self._count - 1)
            starts[-1] = starts[-2] + np.uint64(last.num_rows)
            if self._mapped is not None:
                self._mapped[self._count - 1] = last
        return starts

    def load(self, index: int, columns: list[str]) -> pa.RecordBatch:
        if self._mapped is None:
            return self._batch(self._open(columns), index).select(columns)
        batch = self.glance(index, columns)
        copies = [pa.concat_arrays([column]) for column in batch.columns]
        return pa.RecordBatch.from_arrays(copies, schema=batch.schema)

    def glance(self, index: int, columns: list[str]) -> pa.RecordBatch:
        if self._mapped is None:
            return self.load(index, columns)
        batch = self._mapped.get(index)
        if batch is None:
            with self._lock:
                batch = self._mapped[index] = self._batch(self._reader, index)
        return batch.select(columns)

    def surviving(self, predicate: Bound) -> Any:
        return None

    def _open(self, columns: list[str], file: InputFile | None = None) -> Any:
        """A reader of some columns; it keeps state of its own, so threads do not share one."""
        # All columns of a batch come in one read; a selection is read buffer by buffer.
        some = [] if len(columns) == len(self._names) else sorted(map(self._names.index, columns))
        options = pa.ipc.IpcReadOptions(included_fields=some, use_threads=False)
        try:
            return pa.ipc.open_file(pa.PythonFile(file or self._file.copying(), mode="r"), options=options)
        except (pa.ArrowException, OSError) as error:
            raise self._unreadable(error) from None

    def _batch(self, reader: Any, index: int) -> pa.RecordBatch:
        try:
            return reader.get_batch(index)
        except (pa.ArrowException, OSError) as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: Exception) -> CorruptionError:
        return CorruptionError(
            f"file {self.path!r} matches its checksums but is not a readable Arrow file: {first_line(error)}",
            path=self.path,
        )
