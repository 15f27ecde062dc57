"""Arrow IPC blocks: small ones that wait for compaction, and the data and delta files of clustered tables.

Record batches have equal length (at most `BATCH_ROWS` rows, fewer if rows are large; the last may be shorter). The
length is in the schema metadata, so a row is found without reading other batches. Nothing is compressed: a batch of a
local file is read in place in the memory map, once its bytes have been verified, and results are copies, so they do not
depend on the file. Files with compressed buffers, written by earlier versions, can be read as well.

Each batch is preceded by its column statistics, as custom metadata of its message. A file of several batches ends with
an empty one whose metadata holds the row count and the statistics of all others: they are read at once, without the
chunks of the file that hold the batches. Files without statistics can be read as well.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from indexlake.arrow.batch_size import BATCH_BYTES
from indexlake.blocks.formats import ipc_rows
from indexlake.blocks.formats.batches import ahead, encoded, rechunked, stored_schema
from indexlake.blocks.formats.chunked import ChunkedReader
from indexlake.blocks.prune import Bounds, prune, read_bounds
from indexlake.blocks.statistics import StatisticsBuilder, stats_to_bytes
from indexlake.errors import CorruptionError
from indexlake.expr.test import columns_of
from indexlake.storage import InputFile, OutputFile
from indexlake.storage.failure import first_line
from indexlake.types import codec_of
from indexlake.types.convert import in_files, mapped_leaves

if TYPE_CHECKING:
    from indexlake.expr import Bound

BATCH_ROWS = 2_048
STATISTICS = b"indexlake.statistics"

_BATCH_ROWS = "indexlake.batch_rows"
_PLAIN = "indexlake.small"
"""Marks files whose buffers are not compressed."""
_ALL_ROWS = b"indexlake.row_count"
_ALL_STATISTICS = b"indexlake.batch_statistics"
_COLUMN_SETS = 16
_HELD = 1_024
"""For how many batches of a mapped file the places of their values are remembered."""

_SCHEMA = 8  # where the schema is in a file

_UNREADABLE = (pa.ArrowException, OSError)
_LENGTH = struct.Struct("<I")
_FOOTER_END = struct.Struct("<I6s")  # the length of the footer, and the mark at the end of a file


def write(out: OutputFile, schema: pa.Schema, batches: Iterable[pa.RecordBatch], metadata: Mapping[str, str]) -> int:
    """Write all batches and return how many rows they hold."""
    stored = stored_schema(schema, ipc_type)
    few, rows = ahead(encoded(batches, stored), BATCH_ROWS, BATCH_BYTES)
    batch_rows = _batch_rows(few)
    stored = stored.with_metadata({**metadata, _BATCH_ROWS: str(batch_rows), _PLAIN: "true"})
    options = pa.ipc.IpcWriteOptions(use_threads=False)
    row_count = 0
    statistics: list[bytes] = []
    with pa.ipc.new_file(pa.PythonFile(out, mode="w"), stored, options=options) as writer:
        for batch in rechunked(chain(few, rows or ()), batch_rows, equal=True):
            statistics.append(_statistics_of(batch))
            writer.write_batch(batch, custom_metadata={STATISTICS: statistics[-1]})
            row_count += batch.num_rows
        if len(statistics) > 1:
            joined = b"".join(_LENGTH.pack(len(each)) + each for each in statistics)
            nothing = pa.RecordBatch.from_pylist([], stored)
            writer.write_batch(nothing, custom_metadata={_ALL_ROWS: str(row_count), _ALL_STATISTICS: joined})
    return row_count


def open_reader(file: InputFile, schema: pa.Schema) -> ChunkedReader:
    return ChunkedReader(_Batches(file, schema), schema)


def ipc_type(type: Any) -> Any:
    """Return the Arrow type in which values of `type` are written: dictionaries and views as their values."""
    return mapped_leaves(type, in_files)


def _batch_rows(first: list[pa.RecordBatch]) -> int:
    """Return how many rows a record batch of this file gets, judged by the first rows."""
    rows = sum(batch.num_rows for batch in first)
    size = sum(int(batch.nbytes) for batch in first)
    return max(1, min(BATCH_ROWS, BATCH_BYTES * rows // max(size, 1))) if rows else BATCH_ROWS


def _statistics_of(batch: pa.RecordBatch) -> bytes:
    builder = StatisticsBuilder(batch.schema)
    builder.add(batch)
    return stats_to_bytes(builder.finish())


def _split(joined: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(joined):
        start = at + _LENGTH.size
        at = start + _LENGTH.unpack_from(joined, at)[0]
        yield joined[start:at]


class _Batches:
    def __init__(self, file: InputFile, schema: pa.Schema) -> None:
        self.path = file.path
        self._file = file
        self._schema = schema
        self.stored = stored_schema(schema, ipc_type)
        self._names = schema.names
        self._count = 0
        self._has_statistics = False
        self._bounds: dict[tuple[str, str], Bounds] = {}
        self._reader: Any = None  # of a mapped file; it reads verified bytes
        self._messages: list[ipc_rows.Message] = []  # of its batches
        self._layouts: dict[int, ipc_rows.Layout] = {}  # of batches from which rows were taken
        self._reads: dict[tuple[str, ...], list[ipc_rows.Read | None]] = {}  # how to take values, by columns
        self._arrays: dict[tuple[int, str], pa.Array] = {}  # columns that only Arrow can read
        self._idle: dict[tuple[str, ...], list[tuple[Any, bool]]] = {}  # by columns; each serves one thread at a time
        self._lock = threading.Lock()

    @property
    def bytes_read(self) -> int:
        return self._file.bytes_read

    @property
    def mapped(self) -> bool:
        return self._reader is not None

    def starts(self) -> Any:
        with self._guarded():
            reader = self._open_map() or self._open(self._names[:1])
            batch_rows = int((reader.schema.metadata or {})[_BATCH_ROWS.encode()])
            self._count = reader.num_record_batches
            if not self._count:
                return np.zeros(1, np.uint64)
            last, tail = _last(reader)
            if tail is None:
                rows = batch_rows * (self._count - 1) + last.num_rows
            else:
                rows = int(tail[_ALL_ROWS])
                self._has_statistics = True
                self._count -= 1
        starts = np.arange(self._count + 1, dtype=np.uint64) * np.uint64(batch_rows)
        starts[-1] = rows
        return starts

    def load(self, index: int, columns: list[str], *, referring: bool = False) -> pa.RecordBatch:
        if not self.mapped:
            return self._read(index, columns)
        batch = self._in_map(index)
        return batch if columns == self._names else batch.select(columns)

    def run_length(self, chunks: Sequence[int]) -> int:
        count = 1
        if self.mapped:
            most = self._messages[chunks[0]][0] + BATCH_BYTES
            while count < len(chunks) and chunks[count] == chunks[0] + count and self._end(chunks[count]) <= most:
                count += 1
        return count

    def load_run(self, first: int, count: int, columns: list[str]) -> pa.Table:
        """Do so in a single call of Arrow, which reads the part of the file as a stream."""
        begin, end = self._messages[first][0], self._end(first + count - 1)
        some = pa.ipc.IpcReadOptions(included_fields=sorted(map(self._names.index, columns)), use_threads=False)
        with self._guarded():
            for start, stop in ((_SCHEMA, self._messages[0][0]), (begin, end)):
                self._file.read_at(start, stop - start)  # verifies it
            source = pa.BufferReader(pa.py_buffer(self._file.map)[:end])
            source.seek(_SCHEMA)
            stream = pa.ipc.open_stream(source, options=some)
            source.seek(begin)
            return stream.read_all().replace_schema_metadata().select(columns)

    def values(self, index: int, place: int, columns: tuple[str, ...]) -> list[Any]:
        whole = self._file.map
        if whole is None or not self.mapped:
            batch = self._read(index, list(dict.fromkeys(columns)))
            return [batch.column(name)[place].as_py() for name in columns]
        layout = self._layouts.get(index)
        if layout is None:
            begin, head, _ = self._messages[index]
            with self._guarded():
                layout = ipc_rows.layout(self._message(index), begin, head)
            _bounded(self._layouts, _HELD)[index] = layout
        reads = self._reads.get(columns)
        if reads is None:
            reads = _bounded(self._reads, _COLUMN_SETS)[columns] = ipc_rows.reads(self.stored, columns)
        return [
            read(whole, layout, place) if read is not None else self._array(index, name)[place].as_py()
            for name, read in zip(columns, reads, strict=True)
        ]

    def _end(self, index: int) -> int:
        return sum(self._messages[index])

    def _array(self, index: int, column: str) -> pa.Array:
        found = self._arrays.get((index, column))
        if found is None:
            found = _bounded(self._arrays, _HELD)[index, column] = self._in_map(index).column(column)
        return found

    def surviving(self, predicate: Bound) -> Any:
        if not self._has_statistics:
            return None
        test = predicate.test()
        codecs = {name: codec_of(self._schema.field(name)) for name in columns_of(test)}
        return prune(test, codecs, self._count, self._bounds_of)

    def _bounds_of(self, column: str, kind: str) -> Bounds:
        found = self._bounds.get((column, kind))
        if found is None:
            with self._guarded(), self._lock:
                _, tail = _last(self._reader or self._open(self._names[:1]))
                statistics = list(_split(tail[_ALL_STATISTICS]))
            found = self._bounds[column, kind] = read_bounds(statistics, column, kind)
        return found

    def _open_map(self) -> Any:
        """Open a reader of the memory map, which verifies nothing; the footer and last batch are verified here."""
        if self._file.map is None:
            return None
        length, _ = _FOOTER_END.unpack(self._file.read_at(self._file.size() - _FOOTER_END.size, _FOOTER_END.size))
        end = self._file.size() - _FOOTER_END.size
        messages = ipc_rows.messages(self._file.read_at(end - length, length))
        reader = pa.ipc.open_file(pa.py_buffer(self._file.map))
        if _PLAIN.encode() not in (reader.schema.metadata or {}):
            return None
        self._messages, self._reader, self.stored = messages, reader, reader.schema.remove_metadata()
        if messages:
            self._message(-1)
        return reader

    def _message(self, index: int) -> memoryview:
        """Return the bytes of a batch of a mapped file, verified."""
        begin, head, body = self._messages[index]
        return self._file.read_at(begin, head + body)

    def _in_map(self, index: int) -> pa.RecordBatch:
        try:
            return pa.ipc.read_record_batch(pa.py_buffer(self._message(index)), self.stored)
        except _UNREADABLE as error:
            raise self._unreadable(error) from None

    def _read(self, index: int, columns: list[str]) -> pa.RecordBatch:
        """Read columns of a batch of a file that is not mapped."""
        idle = self._idle.get(tuple(columns))
        if idle is None:
            idle = _bounded(self._idle, _COLUMN_SETS)[tuple(columns)] = []
        try:
            try:
                reader, in_order = idle.pop()
            except IndexError:
                reader, in_order = self._open(columns), columns == [name for name in self._names if name in columns]
            batch = reader.get_batch(index)
        except _UNREADABLE as error:
            raise self._unreadable(error) from None
        idle.append((reader, in_order))
        return batch if in_order else batch.select(columns)

    def _open(self, columns: list[str]) -> Any:
        """Open a reader of some columns; it has state of its own, so threads do not share one."""
        # All columns of a batch are read at once; a selection is read buffer by buffer.
        some = [] if len(columns) == len(self._names) else sorted(map(self._names.index, columns))
        options = pa.ipc.IpcReadOptions(included_fields=some, use_threads=False)
        return pa.ipc.open_file(pa.PythonFile(self._file.duplicate(), mode="r"), options=options)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except (*_UNREADABLE, KeyError, ValueError, struct.error) as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: Exception) -> CorruptionError:
        return CorruptionError(
            f"file {self.path!r} matches its checksums but is not a readable Arrow file: {first_line(error)}",
            path=self.path,
        )


def _bounded(held: dict[Any, Any], most: int) -> dict[Any, Any]:
    """Return the dictionary, emptied first if it is full."""
    if len(held) >= most:
        held.clear()
    return held


def _last(reader: Any) -> tuple[pa.RecordBatch, Any]:
    """Return the last batch, and its metadata if that describes all batches."""
    batch, metadata = reader.get_batch_with_custom_metadata(reader.num_record_batches - 1)
    return batch, metadata if metadata is not None and _ALL_ROWS in metadata else None
