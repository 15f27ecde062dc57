"""Sorting more rows than memory should hold: sorted runs in a temporary file, merged as a stream.

Rows are collected until they exceed the budget, then sorted and written as a run, in small pieces.  To merge, pieces of
all runs are loaded in the order of their first rows, as many as the budget allows; whatever sorts before the first row
of the next piece is in its final order.  So each row is sorted little more than twice, and equal rows stay in the order
they came.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from indexlake.scan.spool import Spool
from indexlake.storage.spill import Spill
from indexlake.types.selection import gather, take

RUN_BYTES = 64 << 20
PIECE_BYTES = 512 << 10
BATCH_ROWS = 65_536

PLACE = "_place"
"""The column with a row's original place among all rows, which breaks ties."""


class SortedRuns:
    """One sort: ``add`` all rows, then read them in order, once.  ``sort(table, places)`` returns sorting indices."""

    def __init__(self, schema: pa.Schema, keys: Sequence[str], sort: Any, spill: Spill) -> None:
        self._schema = schema
        self._keys = list(dict.fromkeys(keys))
        self._sort = sort
        self._stored = schema.append(pa.field(PLACE, pa.int64(), False))
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0
        self._rows = 0
        self._pieces = Spool(0, spill)
        self._firsts: list[pa.RecordBatch] = []  # keys and place of each piece's first row

    def add(self, batch: pa.RecordBatch) -> None:
        places = pa.array(np.arange(self._rows, self._rows + batch.num_rows))
        self._rows += batch.num_rows
        self._held.append(pa.RecordBatch.from_arrays([*batch.columns, places], schema=self._stored))
        self._bytes += batch.nbytes
        if self._bytes > RUN_BYTES:
            self._end_run()

    def _end_run(self) -> None:
        for rows in self._sorted(self._held):
            size = max(1, PIECE_BYTES * rows.num_rows // max(1, rows.nbytes))
            for start in range(0, rows.num_rows, size):
                piece = rows.slice(start, size)
                self._pieces.add(piece)
                self._firsts.append(take(piece.select([*self._keys, PLACE]), pa.array([0])))
        self._held, self._bytes = [], 0

    def _sorted(self, batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        table = pa.Table.from_batches(batches, self._stored)
        return gather(batches, self._sort(table, table.column(PLACE)), self._stored)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order."""
        if not self._firsts:
            yield from self._shown(self._sorted(self._held) if self._held else ())
            return
        if self._held:
            self._end_run()
        yield from self._shown(self._merged())

    def _merged(self) -> Iterator[pa.RecordBatch]:
        firsts = pa.Table.from_batches(self._firsts)
        order = self._sort(firsts, firsts.column(PLACE)).to_pylist()
        rest: list[pa.RecordBatch] = []
        at = 0
        while at < len(order):
            loaded, size = rest, sum(batch.nbytes for batch in rest)
            begun = at
            while at < len(order) and (size < RUN_BYTES or at == begun):
                loaded.append(self._pieces.batch(order[at]))
                size += loaded[-1].nbytes
                at += 1
            following = self._firsts[order[at]] if at < len(order) else None
            done, left = self._divided(loaded, following)
            yield from gather(loaded, done, self._stored)
            rest = gather(loaded, left, self._stored) if len(left) else []

    def _divided(self, batches: list[pa.RecordBatch], following: pa.RecordBatch | None) -> tuple[pa.Array, pa.Array]:
        """Return the order of the rows that sort before ``following``, and that of the others."""
        keys = [batch.select([*self._keys, PLACE]) for batch in batches]
        table = pa.Table.from_batches([*keys, following] if following is not None else keys)
        indices = self._sort(table, table.column(PLACE))
        if following is None:
            return indices, indices.slice(len(indices))
        at = int(np.flatnonzero(np.asarray(indices) == table.num_rows - 1)[0])
        return indices.slice(0, at), indices.slice(at + 1)

    def _shown(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = batch.select(self._schema.names)
            for start in range(0, rows.num_rows, BATCH_ROWS):
                yield rows.slice(start, BATCH_ROWS)
