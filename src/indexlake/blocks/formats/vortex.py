"""Vortex blocks: the warm tier. Point reads in tens of microseconds, scans at memory speed.

Vortex has no integrity check and may return wrong rows or abort on a damaged file, so it reads through `InputFile`,
which verifies each chunk before handing it over. For a local file it gets slices of a memory map, without copies. An
error raised there reaches us as text only, so it is kept and raised again here.

It panics on decimals with more digits than their type allows, so a HUGEINT is written with 39 digits, which takes no
more space.  Older files have 38: what a file has, it says itself.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from indexlake.arrow import batch_size, native_vortex
from indexlake.arrow.batch_size import cut
from indexlake.arrow.buffers import array_around, children_of, fixed_values
from indexlake.arrow.malloc import keep_freed_memory
from indexlake.blocks.formats.batches import (
    BATCH_ROWS,
    decoded_batches,
    distinct,
    encoded,
    matching,
    record_batch,
    stored_schema,
    with_columns_of,
)
from indexlake.blocks.formats.vortex_rows import RowScan, part_ranges
from indexlake.errors import CorruptionError, IndexLakeError
from indexlake.schema import ROW_ID
from indexlake.storage import InputFile, OutputFile
from indexlake.storage.failure import failure, first_line
from indexlake.types import selection
from indexlake.types.convert import mapped_leaves, without_view
from indexlake.types.dictionaries import TEXT, is_text
from indexlake.types.hugeint import HELD_AS, WIDE, hugeints
from indexlake.types.vortex import vortex_type

if TYPE_CHECKING:
    from indexlake.blocks.formats import Positions
    from indexlake.expr import Bound

_PREPARED_SCANS = 16
_SOME_ROWS = 1024
"""Up to this many rows are read without a scan, and then compared with a predicate: Vortex takes longer to do that."""
_FEW_ROWS = 24
"""Up to this many rows of a part are read one by one. Depending on the columns, each takes 1 to 5 µs, and taking them
together 30 to 200 µs a part."""
_DICTIONARY = "vortex.dict"
_TOO_LARGE = "does not fit in i32"
"""Vortex's message for text that takes more than 2 GiB in one batch."""

keep_freed_memory()


def write(out: OutputFile, schema: pa.Schema, batches: Iterable[pa.RecordBatch], metadata: Mapping[str, str]) -> int:
    """Write all batches and return how many rows they hold."""
    stored = _with_types(stored_schema(schema, _written_type), dict.fromkeys(hugeints(schema), WIDE))
    rows = _CountedBatches(_whole(batch) for batch in encoded(batches, stored))
    with out.as_local_path() as path:
        try:
            native_vortex.io.write(pa.RecordBatchReader.from_batches(stored, rows), path)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic in Vortex is not an Exception
            if rows.error is not None:
                raise rows.error from None
            raise failure("write", out.path, RuntimeError(str(error))) from None
    return rows.count


def open_reader(file: InputFile, schema: pa.Schema) -> VortexReader:
    return VortexReader(file, schema)


class VortexReader:
    """An open Vortex block."""

    def __init__(self, file: InputFile, schema: pa.Schema) -> None:
        self.path = file.path
        self.schema = schema
        self._input = file
        self._bytes = _Bytes(file)
        self._scans: dict[tuple[str, ...], RowScan] = {}
        self._is_dictionary: dict[str, bool] = {}
        self._known_ids: tuple[Positions, Any] | None = None
        self._lock = threading.Lock()
        self._file = self._opened()
        self._stored = _with_types(stored_schema(schema, _returned_type), self._wide())
        self.row_count = len(self._file)

    @property
    def bytes_read(self) -> int:
        return self._input.bytes_read

    def chunk_starts(self) -> Positions:
        return np.append(np.arange(0, self.row_count, BATCH_ROWS), self.row_count).astype(np.uint64)

    def surviving(self, predicate: Bound) -> None:
        return None

    def read(
        self,
        columns: Sequence[str],
        positions: Positions | None = None,
        predicate: Bound | None = None,
        batch_rows: int = 65536,
        dictionaries: Collection[str] = (),
        rows: tuple[int, int] | None = None,
        without: Positions | None = None,
    ) -> Iterator[pa.RecordBatch]:
        self._check(positions)
        self._check(without)
        if rows is not None and positions is None:
            positions = np.arange(rows[0], min(rows[1], self.row_count), dtype=np.uint64)
            if without is not None:
                positions, without = np.setdiff1d(positions, without, assume_unique=True), None
        if positions is not None and len(positions) == self.row_count:
            positions = None
        if positions is not None and not dictionaries and self._are_few(positions):
            scan = self._scan(with_columns_of(columns, predicate, self.schema))
            few = scan.exact_rows(positions.tolist())
            if few is not None:
                kept = few if predicate is None else [row for row in few if predicate.row_value(row)]
                if kept:
                    batch = scan.as_batch(kept)
                    yield batch if batch.num_columns == len(columns) else batch.select(columns)
                return
        logical = pa.schema([self.schema.field(name) for name in columns])
        many = positions is None or len(positions) > _SOME_ROWS
        known = without is None or ROW_ID in self.schema.names  # filtered rows have lost their positions
        pushed = predicate.vortex() if predicate is not None and many and known else None
        expression, exact = pushed if pushed is not None else (None, False)
        recheck = None if exact else predicate
        fetched = with_columns_of(columns, recheck, self.schema)
        if not fetched:
            if expression is None:
                count = self.row_count if positions is None else len(positions)
                yield from _counted(count - (0 if without is None else len(without)), batch_rows)
                return
            fetched = [self.schema.names[0]]
        if positions is not None and len(positions) == 0:
            return
        by_id = without is not None and expression is not None
        with_ids = [*fetched, ROW_ID] if by_id and ROW_ID not in fetched else fetched
        batches = self._batches(with_ids, positions, expression, batch_rows, dictionaries)
        if without is not None:
            batches = self._left(batches, without, fetched, by_id=by_id)
        for batch in batches:
            if recheck is not None:
                batch = matching(batch, recheck, self.schema)
            if batch.num_rows:
                yield from decoded_batches(batch, _with_dictionaries(logical, batch, dictionaries))

    def _left(
        self, batches: Iterator[pa.RecordBatch], without: Positions, columns: list[str], *, by_id: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield columns without the rows at some positions; ``by_id``: batches hold only some rows, and their ids."""
        start = 0
        ids = self._ids_at(without) if by_id else None
        for batch in batches:
            gone: Any
            if ids is not None:
                found = fixed_values(batch.column(ROW_ID), np.int64)
                gone = np.flatnonzero(ids[np.minimum(np.searchsorted(ids, found), len(ids) - 1)] == found)
                batch = batch.select(columns)
            else:
                first, end = np.searchsorted(without, [start, start + batch.num_rows])
                gone = without[first:end] - np.uint64(start)
                start += batch.num_rows
            yield from selection.without(batch, gone)

    def _ids_at(self, positions: Positions) -> Any:
        """Return the sorted row ids at some positions; remembered, since the next read often excludes the same ones."""
        if self._known_ids is None or not np.array_equal(self._known_ids[0], positions):
            self._known_ids = (
                positions,
                np.sort(fixed_values(self.take(positions, [ROW_ID]).column(0).combine_chunks(), np.int64)),
            )
        return self._known_ids[1]

    def _are_few(self, positions: Positions) -> bool:
        """Return whether reading rows one by one costs less than taking those of each part together."""
        count = len(positions)
        if count <= _FEW_ROWS or count > _FEW_ROWS * len(self._ranges):
            return 0 < count <= _FEW_ROWS
        starts = np.array([start for start, _ in self._ranges], np.uint64)
        return count <= _FEW_ROWS * len(np.unique(np.searchsorted(starts, positions, "right")))

    def dictionary_columns(self, columns: Sequence[str]) -> list[str]:
        for name in columns:
            if name not in self._is_dictionary:
                self._is_dictionary[name] = is_text(self.schema.field(name).type) and self._begins_as_dictionary(name)
        return [name for name in columns if self._is_dictionary[name]]

    def take(self, positions: Any, columns: Sequence[str]) -> pa.Table:
        wanted, places = distinct(positions)
        logical = pa.schema([self.schema.field(name) for name in columns])
        self._check(wanted)
        if not columns or len(wanted) == 0:
            return pa.Table.from_batches(_counted(len(positions), BATCH_ROWS), logical)
        rows = list(self._batches(list(dict.fromkeys(columns)), wanted, None, BATCH_ROWS))
        if places is not None:
            rows = selection.gather(rows, array_around(places), rows[0].schema)
        return pa.Table.from_batches([part for batch in rows for part in decoded_batches(batch, logical)], logical)

    def row(self, position: int, columns: Sequence[str]) -> dict[str, Any]:
        if not 0 <= position < self.row_count:
            raise self._outside(position)
        return self._scan(columns).row(position)

    def few_rows(self, positions: Sequence[int], columns: Sequence[str]) -> list[dict[str, Any]] | None:
        return self._scan(columns).exact_rows(positions) if len(positions) <= _FEW_ROWS else None

    def location(self, position: int) -> str:
        return f"0:{position}"

    def _batches(
        self,
        columns: list[str],
        positions: Positions | None,
        expression: Any,
        batch_rows: int,
        dictionaries: Collection[str] = (),
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches of stored types, with fewer rows if rows are large, and fewer still if they turn out larger."""
        given = 0
        rows = max(1, min(batch_rows, batch_size.BATCH_BYTES * self.row_count // max(1, self._input.size())))
        while True:
            again = given
            try:
                for batch in self._scanned(columns, positions, expression, rows, dictionaries):
                    seen = min(again, batch.num_rows)  # rows already yielded before the scan had to start again
                    again -= seen
                    for part in cut(batch.slice(seen)) if seen < batch.num_rows else ():
                        given += part.num_rows
                        yield part
                return
            except CorruptionError as error:
                if rows == 1 or _TOO_LARGE not in str(error):
                    raise
                rows = max(1, rows // 32)

    def _scanned(
        self,
        columns: list[str],
        positions: Positions | None,
        expression: Any,
        batch_rows: int,
        dictionaries: Collection[str],
    ) -> Iterator[pa.RecordBatch]:
        if positions is not None and expression is None and len(positions) <= min(_SOME_ROWS, batch_rows):
            yield from self._scan(columns).batches(positions)
            return
        stored = pa.schema([self._stored.field(name) for name in columns])
        with self._guarded():
            indices = None if positions is None else native_vortex.arrays.Array.from_arrow(array_around(positions))
            options = {"expr": expression, "indices": indices, "batch_size": batch_rows}
            if dictionaries:
                arrays = self._usable().scan(columns, **options)
            else:
                reader = self._usable().to_arrow(columns, **options, schema=stored)
        if dictionaries:
            yield from self._column_by_column(arrays, stored, dictionaries)
            return
        while True:
            with self._guarded():
                batch = next(reader, None)
            if batch is None:
                return
            yield batch

    def _begins_as_dictionary(self, column: str) -> bool:
        with self._guarded():
            first = next(self._usable().scan([column], limit=1), None)
            return first is not None and first.field(column).id == _DICTIONARY

    def _column_by_column(
        self, arrays: Any, stored: pa.Schema, dictionaries: Collection[str]
    ) -> Iterator[pa.RecordBatch]:
        """Decode each column separately, so that its encoding can be seen: requested dictionaries are kept."""
        while True:
            with self._guarded():
                rows = next(arrays, None)
                if rows is None:
                    return
                columns = []
                for field in stored:
                    held = rows.field(field.name)
                    type = TEXT if field.name in dictionaries and held.id == _DICTIONARY else field.type
                    columns.append(held.to_arrow_array(arrow_type=type, combine_chunks=True))
            fields = [field.with_type(column.type) for field, column in zip(stored, columns, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))

    def _check(self, positions: Any) -> None:
        if positions is not None and len(positions) and int(positions[-1]) >= self.row_count:
            raise self._outside(int(positions[-1]))

    def _outside(self, position: int) -> IndexError:
        return IndexError(f"{self.path!r} has {self.row_count} rows, none at {position}")

    def _scan(self, columns: Sequence[str]) -> RowScan:
        """Return the prepared scan for a few rows of these columns."""
        key = tuple(columns)
        file = self._usable()
        scan = self._scans.get(key)
        if scan is None:
            logical, stored = (pa.schema([of.field(name) for name in key]) for of in (self.schema, self._stored))
            with self._guarded():
                scan = RowScan(file, self._ranges, logical, stored, self._bytes.explained)
            with self._lock:
                if len(self._scans) >= _PREPARED_SCANS:
                    self._scans.pop(next(iter(self._scans)))
                self._scans[key] = scan
        return scan

    def _opened(self) -> Any:
        with self._guarded():
            file = native_vortex.file.open_readable(self._bytes)
            self._ranges = part_ranges(file, self._input.size(), mapped=self._input.map is not None)
            return file

    def _wide(self) -> dict[str, Any]:
        """Return the types of the whole numbers that the file has with 39 digits."""
        columns = [field.name for field in self.schema if field.type == HELD_AS]
        if not columns:
            return {}
        held = self._file.dtype.to_arrow_schema()
        return {name: WIDE for name in columns if held.field(name).type == WIDE}

    def _usable(self) -> Any:
        """Return the open file, reopened after a failed read, since Vortex tries only once to read what it shares."""
        if self._bytes.is_spoiled:
            with self._lock:
                if self._bytes.is_spoiled:
                    self._file = self._opened()
                    self._scans = {}
                    self._bytes.is_spoiled = False
        return self._file

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Raise what our own reader raised, or say that verified bytes could not be decoded."""
        try:
            yield
        except BaseException as error:  # a panic in Vortex is not an Exception
            raise self._bytes.explained(error) from None


class _Bytes:
    """The file as Vortex reads it, from its own threads; keeps the errors that it would turn into text.

    It does not refer to the reader: a reader that nobody uses any more closes its file at once.
    """

    def __init__(self, file: InputFile) -> None:
        self._file = file
        self._errors: deque[BaseException] = deque(maxlen=32)
        self.is_spoiled = False  # a read has failed

    def size(self) -> int:
        return self._file.size()

    def read_at(self, offset: int, length: int) -> memoryview:
        try:
            return self._file.read_at(offset, length)
        except BaseException as error:
            self._errors.append(error)
            raise

    def explained(self, error: BaseException) -> BaseException:
        """Return the error to raise for one that Vortex has raised."""
        if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit | IndexLakeError):
            return error
        text = str(error)
        for known in reversed(self._errors):
            if str(known) in text:
                self.is_spoiled = True
                return known
        return CorruptionError(
            f"file {self._file.path!r} matches its checksums but Vortex cannot read it: {first_line(error)}",
            path=self._file.path,
        )


class _CountedBatches:
    """An iterator of batches that counts their rows and keeps the error that ended it."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self.count = 0
        self.error: BaseException | None = None

    def __iter__(self) -> _CountedBatches:
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            batch = next(self._batches)
        except StopIteration:
            raise
        except BaseException as error:
            self.error = error
            raise
        self.count += batch.num_rows
        return batch


def _with_types(schema: pa.Schema, types: Mapping[str, Any]) -> pa.Schema:
    return pa.schema([field.with_type(types.get(field.name, field.type)) for field in schema])


def _whole(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch without slices of nested arrays, in which Vortex reads struct fields at the wrong place."""
    columns = [pa.concat_arrays([column]) if _is_nested_slice(column) else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _is_nested_slice(array: Any) -> bool:
    return pa.types.is_nested(array.type) and (array.offset > 0 or any(map(_is_nested_slice, children_of(array))))


def _counted(row_count: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield batches without columns."""
    for start in range(0, row_count, batch_rows):
        yield record_batch([], pa.schema([]), min(batch_rows, row_count - start))


def _with_dictionaries(logical: pa.Schema, batch: pa.RecordBatch, dictionaries: Collection[str]) -> pa.Schema:
    """Return the schema for a batch in which columns read as dictionaries stay so."""
    for place, field in enumerate(logical):
        if field.name in dictionaries and batch.schema.field(field.name).type == TEXT:
            logical = logical.set(place, field.with_type(TEXT))
    return logical


def _written_type(type: Any) -> Any:
    """Return the type to hand to the writer: text as views, which Vortex would otherwise create itself, more slowly."""
    found = vortex_type(type)
    return pa.string_view() if pa.types.is_string(found) else found


def _returned_type(type: Any) -> Any:
    """Return the type to request from a scan: strings, not Vortex's views, from which pyarrow cannot select rows."""
    return mapped_leaves(vortex_type(type), without_view)
