"""Reading formats whose rows lie in chunks that are decoded whole: Parquet row groups, IPC record batches."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from indexlake.arrow.batch_size import cut
from indexlake.blocks.formats.batches import decoded, decoded_batches, distinct, matching, record_batch, with_columns_of
from indexlake.types.python_rows import python_dicts
from indexlake.types.selection import gather

if TYPE_CHECKING:
    from indexlake.blocks.formats import Positions
    from indexlake.expr import Bound


class Chunks(Protocol):
    """The chunks of one open file."""

    path: str

    @property
    def bytes_read(self) -> int: ...

    def starts(self) -> Any:
        """The position of the first row of each chunk, and after them the row count."""

    def load(self, index: int, columns: list[str]) -> pa.RecordBatch:
        """A chunk's columns in their stored types, in the order asked for."""

    def glance(self, index: int, columns: list[str]) -> pa.RecordBatch:
        """The same for a moment: it may lie in the file's memory map, and is not given away."""

    def surviving(self, predicate: Bound) -> Any:
        """For each chunk whether a row of it may match (None: any may)."""


class ChunkedReader:
    """An open Parquet or IPC block."""

    def __init__(self, chunks: Chunks, schema: pa.Schema) -> None:
        self.path = chunks.path
        self.schema = schema
        self._chunks = chunks
        self._starts: Positions = chunks.starts()

    @property
    def row_count(self) -> int:
        return int(self._starts[-1])

    @property
    def bytes_read(self) -> int:
        return self._chunks.bytes_read

    def chunk_starts(self) -> Positions:
        return self._starts

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
        survivors = self._chunks.surviving(predicate) if predicate is not None else None
        for index, rows in self._selected(positions):
            if survivors is not None and not survivors[index]:
                continue
            if not fetched:
                count = int(self._starts[index + 1] - self._starts[index]) if rows is None else len(rows)
                batch = record_batch([], pa.schema([]), count)
            else:
                batch = self._rows_of(index, fetched, rows)
            if predicate is not None:
                batch = matching(batch, predicate, self.schema)
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
        rows = []
        for index, inside in self._selected(wanted):
            rows.append(self._rows_of(index, list(dict.fromkeys(columns)), inside))
        if places is not None and rows:
            rows = gather(rows, pa.array(places), rows[0].schema)
        return pa.Table.from_batches([part for batch in rows for part in decoded_batches(batch, logical)], logical)

    def row(self, position: int, columns: Sequence[str]) -> dict[str, Any]:
        if not 0 <= position < self.row_count:
            raise self._outside(position)
        index = self._chunk_of(position)
        batch = self._chunks.glance(index, list(dict.fromkeys(columns))).slice(position - int(self._starts[index]), 1)
        logical = pa.schema([self.schema.field(name) for name in columns])
        return python_dicts(decoded(batch, logical))[0]

    def location(self, position: int) -> str:
        index = self._chunk_of(position)
        return f"{index}:{position - int(self._starts[index])}"

    def _rows_of(self, index: int, columns: list[str], inside: Any) -> pa.RecordBatch:
        """Rows of a chunk at these places (None: all of them), as memory of their own."""
        if inside is None:
            return self._chunks.load(index, columns)
        return self._chunks.glance(index, columns).take(pa.array(inside))

    def _chunk_of(self, position: int) -> int:
        return int(np.searchsorted(self._starts, position, side="right")) - 1

    def _selected(self, positions: Any) -> Iterator[tuple[int, Any]]:
        """Each chunk that holds wanted rows, with their places inside it (None: all of them)."""
        if positions is None:
            yield from ((index, None) for index in range(len(self._starts) - 1))
            return
        if len(positions) == 0:
            return
        self._check(positions)
        bounds = np.searchsorted(positions, self._starts)
        for index in np.flatnonzero(bounds[1:] > bounds[:-1]).tolist():
            inside = positions[bounds[index] : bounds[index + 1]] - self._starts[index]
            whole = len(inside) == self._starts[index + 1] - self._starts[index]
            yield index, None if whole else inside

    def _check(self, positions: Any) -> None:
        if len(positions) and int(positions[-1]) >= self.row_count:
            raise self._outside(int(positions[-1]))

    def _outside(self, position: int) -> IndexError:
        return IndexError(f"{self.path!r} has {self.row_count} rows, none at {position}")
