"""Reading formats whose rows lie in chunks that are decoded whole: Parquet row groups, IPC record batches."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from indexlake.arrow.batch_size import BATCH_BYTES, cut
from indexlake.blocks.formats.batches import (
    BATCH_ROWS,
    copied,
    decoded,
    decoded_batches,
    distinct,
    matching,
    record_batch,
    with_columns_of,
)
from indexlake.types.convert import mapped_leaves, without_view
from indexlake.types.outside import in_python
from indexlake.types.python_rows import python_dicts
from indexlake.types.selection import gather

if TYPE_CHECKING:
    from indexlake.blocks.formats import Positions
    from indexlake.expr import Bound

_PLANS = 64
_CLOSE = 16


class Chunks(Protocol):
    """The chunks of one open file."""

    path: str
    stored: pa.Schema  # the types of the file

    @property
    def mapped(self) -> bool:
        """Whether loaded chunks lie in the file's memory map: they cost next to nothing, and are not given away."""

    @property
    def bytes_read(self) -> int: ...

    def starts(self) -> Any:
        """The position of the first row of each chunk, and after them the row count."""

    def load(self, index: int, columns: list[str]) -> pa.RecordBatch:
        """A chunk's columns in their stored types, in the order asked for."""

    def values(self, index: int, place: int, columns: tuple[str, ...]) -> list[Any]:
        """The Python values that Arrow has for a row of a chunk, as it is stored."""

    def surviving(self, predicate: Bound) -> Any:
        """For each chunk whether a row of it may match (None: any may)."""


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
    ) -> Iterator[pa.RecordBatch]:
        logical = pa.schema([self.schema.field(name) for name in columns])
        fetched = with_columns_of(columns, predicate, self.schema)
        few = self._chunks.mapped and positions is not None and self._are_close(positions)
        survivors = self._chunks.surviving(predicate) if predicate is not None and not few else None
        for batch, is_own in self._joined(fetched, positions, survivors, batch_rows):
            found = batch if predicate is None else matching(batch, predicate, self.schema)
            batch = copied(found) if found is batch and not is_own else found
            for start in range(0, batch.num_rows, batch_rows):
                for part in cut(batch.slice(start, batch_rows)):
                    yield from decoded_batches(part, logical)

    def dictionary_columns(self, columns: Sequence[str]) -> list[str]:
        return []

    def take(self, positions: Any, columns: Sequence[str]) -> pa.Table:
        wanted, places = distinct(positions)
        logical = pa.schema([self.schema.field(name) for name in columns])
        if not columns:
            self._check(wanted)
            return pa.Table.from_batches([record_batch([], logical, len(positions))])
        joined = self._joined(list(dict.fromkeys(columns)), wanted, None, BATCH_ROWS)
        rows = [batch if is_own else copied(batch) for batch, is_own in joined]
        if places is not None and rows:
            rows = gather(rows, pa.array(places), rows[0].schema)
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
        self, columns: list[str], positions: Any, survivors: Any, batch_rows: int
    ) -> Iterator[tuple[pa.RecordBatch, bool]]:
        """The wanted rows of chunks that survive, of several chunks together where these are short.

        With each batch whether it is memory of its own.
        """
        parts: list[tuple[pa.RecordBatch, bool]] = []
        rows = size = 0
        for index, inside in self._selected(positions, survivors):
            part, is_own = self._rows_of(index, columns, inside)
            more = part.get_total_buffer_size() if inside is None else part.nbytes
            if parts and (rows + part.num_rows > batch_rows or size + more > BATCH_BYTES):
                yield _concatenated(parts)
                parts, rows, size = [], 0, 0
            parts.append((part, is_own))
            rows += part.num_rows
            size += more
        if parts:
            yield _concatenated(parts)

    def _rows_of(self, index: int, columns: list[str], inside: Any) -> tuple[pa.RecordBatch, bool]:
        """Rows of a chunk at these places (None: all of them), and whether they are memory of their own."""
        if not columns:
            count = int(self._starts[index + 1] - self._starts[index]) if inside is None else len(inside)
            return record_batch([], pa.schema([]), count), True
        chunk, is_own = self._chunks.load(index, columns), not self._chunks.mapped
        if inside is None:
            return chunk, is_own
        first, end = int(inside[0]), int(inside[-1]) + 1
        if end - first == len(inside):
            return chunk.slice(first, end - first), is_own
        return chunk.take(pa.array(inside)), True

    def _are_close(self, positions: Any) -> bool:
        """Whether so few chunks hold them that to ask which of these survive takes longer than to look at them."""
        return len(positions) == 0 or self._chunk_of(int(positions[-1])) - self._chunk_of(int(positions[0])) < _CLOSE

    def _chunk_of(self, position: int) -> int:
        return bisect_right(self._firsts, position) - 1

    def _selected(self, positions: Any, survivors: Any = None) -> Iterator[tuple[int, Any]]:
        """Each chunk that survives and holds wanted rows, with their places inside it (None: all of them)."""
        if positions is None:
            every = range(len(self._starts) - 1)
            yield from ((index, None) for index in (every if survivors is None else np.flatnonzero(survivors).tolist()))
            return
        if len(positions) == 0:
            return
        self._check(positions)
        bounds = np.searchsorted(positions, self._starts)
        held = bounds[1:] > bounds[:-1]
        for index in np.flatnonzero(held if survivors is None else held & survivors).tolist():
            inside = positions[bounds[index] : bounds[index + 1]] - self._starts[index]
            whole = len(inside) == self._starts[index + 1] - self._starts[index]
            yield index, None if whole else inside

    def _check(self, positions: Any) -> None:
        if len(positions) and int(positions[-1]) >= self.row_count:
            raise self._outside(int(positions[-1]))

    def _outside(self, position: int) -> IndexError:
        return IndexError(f"{self.path!r} has {self.row_count} rows, none at {position}")


def _concatenated(parts: list[tuple[pa.RecordBatch, bool]]) -> tuple[pa.RecordBatch, bool]:
    if len(parts) == 1:
        return parts[0]
    batches = [batch for batch, _ in parts]
    if not batches[0].num_columns:
        return record_batch([], batches[0].schema, sum(batch.num_rows for batch in batches)), True
    return pa.concat_batches(batches), True


def _is_plain(type: Any, stored: Any) -> bool:
    """Whether Arrow gives the Python value of a stored value as it is."""
    return not pa.types.is_nested(type) and mapped_leaves(type, without_view) == stored and in_python(stored) is None
