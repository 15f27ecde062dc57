"""Reading formats whose rows lie in chunks that are decoded whole: Parquet row groups, IPC record batches."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from indexlake.arrow import kernels as pc
from indexlake.arrow.batch_size import BATCH_BYTES, cut
from indexlake.arrow.buffers import array_around, fixed_values, null_mask, truths
from indexlake.blocks.formats.batches import (
    BATCH_ROWS,
    copied,
    decoded,
    decoded_batches,
    distinct,
    record_batch,
    selected_rows,
    truth,
    with_columns_of,
)
from indexlake.types.convert import mapped_leaves, without_view
from indexlake.types.outside import in_python
from indexlake.types.python_rows import python_dicts
from indexlake.types.selection import as_mask, gather, others, remove

if TYPE_CHECKING:
    from indexlake.blocks.formats import Positions
    from indexlake.expr import Bound

Selected = tuple[int, int, Any, Any]
"""The first of some consecutive chunks and their number, the places of wanted rows in them (None: all), and the places
of rows to leave out (None: none)."""

_PLANS = 64
_CLOSE = 16


class Chunks(Protocol):
    """The chunks of one open file."""

    path: str
    stored: pa.Schema  # the types of the file

    @property
    def mapped(self) -> bool:
        """Whether loaded chunks lie in the file's memory map: they cost little, but must be copied to be given away."""

    @property
    def bytes_read(self) -> int: ...

    def starts(self) -> Any:
        """Return the position of the first row of each chunk, followed by the row count."""

    def load(self, index: int, columns: list[str], *, referring: bool = False) -> pa.RecordBatch:
        """Return a chunk's columns in stored types, in the given order; ``referring``: text may be dictionaries."""

    def run_length(self, chunks: Sequence[int]) -> int:
        """Return how many of these chunks, from the first one on, are best loaded together: 1 if not mapped."""

    def load_run(self, first: int, count: int, columns: list[str]) -> pa.Table:
        """Return consecutive chunks, in stored types."""

    def values(self, index: int, place: int, columns: tuple[str, ...]) -> list[Any]:
        """Return Arrow's Python values for a row of a chunk, as it is stored."""

    def surviving(self, predicate: Bound) -> Any:
        """Return, for each chunk, whether a row of it may match; None: any chunk may."""


class ChunkedReader:
    """An open Parquet or IPC block."""

    def __init__(self, chunks: Chunks, schema: pa.Schema) -> None:
        self.path = chunks.path
        self.schema = schema
        self._chunks = chunks
        self._starts: Positions = chunks.starts()
        self._firsts: list[int] = self._starts.tolist()
        self._plain: dict[tuple[str, ...], bool] = {}  # whether Arrow gives the Python values of these columns

    @property
    def row_count(self) -> int:
        return int(self._starts[-1])

    @property
    def bytes_read(self) -> int:
        return self._chunks.bytes_read

    def chunk_starts(self) -> Positions:
        return self._starts

    def surviving(self, predicate: Bound) -> Any:
        return self._chunks.surviving(predicate)

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
        logical = pa.schema([self.schema.field(name) for name in columns])
        fetched = with_columns_of(columns, predicate, self.schema)
        few = self._chunks.mapped and positions is not None and self._are_close(positions)
        survivors = self._chunks.surviving(predicate) if predicate is not None and not few else None
        selected = self._selected(positions, survivors, rows, without, batch_rows)
        for batch, is_own in self._joined(fetched, selected, batch_rows, predicate):
            whole = batch if is_own else copied(batch)
            for start in range(0, whole.num_rows, batch_rows):
                for part in cut(whole.slice(start, batch_rows)):
                    yield from decoded_batches(part, logical)

    def dictionary_columns(self, columns: Sequence[str]) -> list[str]:
        return []

    def take(self, positions: Any, columns: Sequence[str]) -> pa.Table:
        wanted, places = distinct(positions)
        logical = pa.schema([self.schema.field(name) for name in columns])
        if not columns:
            self._check(wanted)
            return pa.Table.from_batches([record_batch([], logical, len(positions))])
        joined = self._joined(list(dict.fromkeys(columns)), self._selected(wanted), BATCH_ROWS, None)
        rows = [batch if is_own else copied(batch) for batch, is_own in joined]
        if places is not None and rows:
            rows = gather(rows, array_around(places), rows[0].schema)
        return pa.Table.from_batches([part for batch in rows for part in decoded_batches(batch, logical)], logical)

    def row(self, position: int, columns: Sequence[str]) -> dict[str, Any]:
        if not 0 <= position < self.row_count:
            raise self._outside(position)
        index = self._chunk_of(position)
        place = position - self._firsts[index]
        names = tuple(columns)
        plain = self._plain.get(names)
        if plain is None:
            if len(self._plain) >= _PLANS:
                self._plain = {}
            types = [(self.schema.field(name).type, self._chunks.stored.field(name).type) for name in names]
            plain = self._plain[names] = all(_is_plain(type, stored) for type, stored in types)
        if plain:
            with suppress(OverflowError, ValueError):  # raised below, with the name of the column
                return dict(zip(names, self._chunks.values(index, place, names), strict=True))
        logical = pa.schema([self.schema.field(name) for name in names])
        batch = self._chunks.load(index, list(dict.fromkeys(names)))
        return python_dicts(decoded(batch.slice(place, 1), logical))[0]

    def few_rows(self, positions: Sequence[int], columns: Sequence[str]) -> list[dict[str, Any]] | None:
        return None

    def location(self, position: int) -> str:
        index = self._chunk_of(position)
        return f"{index}:{position - int(self._starts[index])}"

    def _joined(
        self, columns: list[str], selected: Iterable[Selected], batch_rows: int, predicate: Bound | None
    ) -> Iterator[tuple[pa.RecordBatch, bool]]:
        """Yield the selected rows that match the predicate, joining short chunks, and whether they own their memory."""
        parts: list[tuple[Any, bool]] = []
        lost: list[Any] = []
        rows = size = 0
        for part, is_own, gone in self._parts(columns, selected, predicate):
            if not part.num_rows:
                continue
            more = part.nbytes if is_own else part.get_total_buffer_size()
            if parts and (rows + part.num_rows > batch_rows or size + more > BATCH_BYTES):
                yield self._selected_rows(parts, lost, predicate)
                parts, lost, rows, size = [], [], 0, 0
            parts.append((part, is_own))
            if gone is not None:
                lost.append(gone + rows)
            rows += part.num_rows
            size += more
        if parts:
            yield self._selected_rows(parts, lost, predicate)

    def _parts(
        self, columns: list[str], selected: Iterable[Selected], predicate: Bound | None
    ) -> Iterator[tuple[Any, bool, Any]]:
        """Yield selected rows in batches or tables, whether they own their memory, and the places of rows to leave out.

        Only parts of a memory map have rows left to leave out or to compare with the predicate.
        """
        for index, count, inside, gone in selected:
            if count > 1 and columns:
                yield self._chunks.load_run(index, count, columns), False, gone
            elif predicate is not None and not self._chunks.mapped:
                yield self._matching(index, columns, inside, gone, predicate), True, None
            elif gone is not None and columns and not self._chunks.mapped:
                chunk = self._chunks.load(index, columns, referring=True)
                yield looked_up(remove(chunk, gone)), True, None
            else:
                yield *self._rows_of(index, count, columns, inside), gone

    def _selected_rows(
        self, parts: list[tuple[Any, bool]], lost: list[Any], predicate: Bound | None
    ) -> tuple[pa.RecordBatch, bool]:
        """Return several parts as one, without lost rows and, if the parts are mapped, those that do not match."""
        gone = np.concatenate(lost) if lost else None
        compared = predicate if self._chunks.mapped else None
        first, is_own = parts[0]
        if len(parts) == 1 and isinstance(first, pa.RecordBatch) and compared is None and gone is None:
            return first, is_own
        if not first.num_columns:
            count = sum(part.num_rows for part, _ in parts) - (0 if gone is None else len(gone))
            return record_batch([], first.schema, count), True
        tables = [part if isinstance(part, pa.Table) else pa.Table.from_batches([part]) for part, _ in parts]
        rows = pa.concat_tables(tables)
        found = selected_rows(rows, compared, self.schema, gone)
        return found, is_own or rows.column(0).num_chunks > 1 or found.num_rows < rows.num_rows

    def _rows_of(self, index: int, count: int, columns: list[str], inside: Any) -> tuple[pa.RecordBatch, bool]:
        """Return rows of a chunk at these places (None: all of them), and whether they own their memory."""
        if not columns:
            rows = self._firsts[index + count] - self._firsts[index] if inside is None else len(inside)
            return record_batch([], pa.schema([]), rows), True
        chunk, is_own = self._chunks.load(index, columns), not self._chunks.mapped
        if inside is None:
            return chunk, is_own
        first, end = int(inside[0]), int(inside[-1]) + 1
        if end - first == len(inside):
            return chunk.slice(first, end - first), is_own
        return chunk.take(array_around(inside)), True

    def _matching(self, index: int, columns: list[str], inside: Any, gone: Any, predicate: Bound) -> pa.RecordBatch:
        """Return the matching rows of a chunk; columns not in the predicate are loaded only if there are any."""
        named = [name for name in columns if name in predicate.columns] or columns[:1]
        rest = [name for name in columns if name not in named]
        first = self._chunks.load(index, named, referring=True)
        if inside is None and (gone is None or not predicate.fallible):
            mask = self._truth(first, predicate)
            mask = mask if gone is None else pc.and_(mask, others(len(mask), gone))
        else:  # the predicate is not evaluated for unwanted rows
            places = np.delete(np.arange(first.num_rows), gone) if inside is None else inside
            found = self._truth(first.take(array_around(places)), predicate)
            mask = pc.invert(others(first.num_rows, places[truths(found)]))
        if not mask.true_count:
            return first.slice(0, 0)
        if rest:
            more = self._chunks.load(index, rest, referring=True)
            arrays = dict(zip([*named, *rest], [*first.columns, *more.columns], strict=True))
            first = pa.RecordBatch.from_arrays([arrays[name] for name in columns], columns)
        return looked_up(first if mask.true_count == len(mask) else first.filter(mask))

    def _truth(self, batch: pa.RecordBatch, predicate: Bound) -> Any:
        """Return for which rows the predicate is true; a single dictionary column is evaluated once per value."""
        column = batch.columns[0]
        if batch.num_columns > 1 or not pa.types.is_dictionary(column.type) or predicate.fallible:
            return truth(looked_up(batch), predicate, self.schema)
        values = pa.concat_arrays([column.dictionary, pa.nulls(1, column.dictionary.type)])
        known = truth(pa.RecordBatch.from_arrays([values], batch.schema.names), predicate, self.schema)
        references = fixed_values(column.indices, np.int32)
        if (nulls := null_mask(column.indices)) is not None:
            references = np.where(nulls, len(values) - 1, references)
        return as_mask(truths(known)[references])

    def _are_close(self, positions: Any) -> bool:
        """Return whether the positions span so few chunks that reading them is faster than pruning them."""
        return len(positions) == 0 or self._chunk_of(int(positions[-1])) - self._chunk_of(int(positions[0])) < _CLOSE

    def _chunk_of(self, position: int) -> int:
        return bisect_right(self._firsts, position) - 1

    def _selected(
        self,
        positions: Any,
        survivors: Any = None,
        rows: tuple[int, int] | None = None,
        without: Any = None,
        batch_rows: int = BATCH_ROWS,
    ) -> Iterator[Selected]:
        """Yield the chunks that survive and hold wanted rows, together as far as that makes a batch."""
        if positions is None:
            first, end = (0, self.row_count) if rows is None else rows
            first, end = (bisect_left(self._firsts, row, hi=len(self._firsts) - 1) for row in (first, end))
            chunks = np.arange(first, end) if survivors is None else np.flatnonzero(survivors[first:end]) + first
            bounds = None
            if without is not None:
                self._check(without)
                bounds = np.searchsorted(without, self._starts).tolist()
            wanted, at = chunks.tolist(), 0
            while at < len(wanted):
                most = max(1, batch_rows // max(1, self._firsts[1]))
                index, count = wanted[at], self._chunks.run_length(wanted[at : at + most])
                at += count
                low, high = (0, 0) if bounds is None else (bounds[index], bounds[index + count])
                yield index, count, None, without[low:high] - self._starts[index] if low < high else None
            return
        if len(positions) == 0:
            return
        self._check(positions)
        bounds = np.searchsorted(positions, self._starts)
        held = bounds[1:] > bounds[:-1]
        for index in np.flatnonzero(held if survivors is None else held & survivors).tolist():
            inside = positions[bounds[index] : bounds[index + 1]] - self._starts[index]
            whole = len(inside) == self._starts[index + 1] - self._starts[index]
            yield index, 1, None if whole else inside, None

    def _check(self, positions: Any) -> None:
        if len(positions) and int(positions[-1]) >= self.row_count:
            raise self._outside(int(positions[-1]))

    def _outside(self, position: int) -> IndexError:
        return IndexError(f"{self.path!r} has {self.row_count} rows, none at {position}")


def looked_up(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch of stored types with dictionaries replaced by their values."""
    if not any(map(pa.types.is_dictionary, batch.schema.types)):
        return batch
    columns = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in batch.columns]
    fields = [field.with_type(c.type) for field, c in zip(batch.schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _is_plain(type: Any, stored: Any) -> bool:
    """Return whether Arrow gives the Python value of a stored value unchanged."""
    return not pa.types.is_nested(type) and mapped_leaves(type, without_view) == stored and in_python(stored) is None
