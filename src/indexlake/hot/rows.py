"""Hot rows that have been read: kept as Arrow, and spilled to a temporary file if there are many."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.arrow.batch_size import row_chunks
from indexlake.arrow.buffers import fixed_values
from indexlake.arrow.values import array_of
from indexlake.errors import ConstraintError
from indexlake.schema import ROW_ID, VERSION, Field, TableSchema
from indexlake.storage.spill import TEMPORARY, Spill
from indexlake.types.selection import as_mask, keep

BATCH_ROWS = 20_000
"""Rows that are decoded at a time."""

MEMORY_BYTES = 64 << 20

_finishing = threading.Lock()
"""Held while a spilled file is completed. Not an attribute of the rows, because those are pickled with their plan."""


class HotRows:
    """Batches of file columns plus row id and version, the snapshot in which the row began.

    Rows of the reading transaction itself come last and have a null version.
    """

    def __init__(self, fields: Sequence[Field], spill: Spill = TEMPORARY) -> None:
        self._place = spill
        self.fields = tuple(fields)
        self.count = 0
        self._batches: list[pa.RecordBatch] = []
        self.size = 0
        self._spill: Any = None
        self._writer: Any = None

    @property
    def schema(self) -> pa.Schema:
        hidden = [pa.field(ROW_ID, pa.int64(), False), pa.field(VERSION, pa.int64(), True)]
        return pa.schema([f.arrow(f.column).with_nullable(True) for f in self.fields] + hidden)

    def read_own(self, rows: Mapping[int, Sequence[Any]], schema: TableSchema) -> None:
        """Add the buffered rows of a transaction."""
        place = {f.field_id: n for n, f in enumerate(schema.fields)}
        wanted = [place[f.field_id] for f in self.fields]
        own = ((row_id, *[values[n] for n in wanted]) for row_id, values in rows.items())
        for chunk in row_chunks(own, BATCH_ROWS):
            row_ids, *columns = zip(*chunk, strict=True)
            self.add(columns, row_ids, [None] * len(row_ids))

    def add(self, columns: Sequence[Sequence[Any]], row_ids: Sequence[int], begins: Sequence[int | None]) -> None:
        """Add encoded values, one column for each field."""
        try:
            arrays = [f.codec.decode(values) for f, values in zip(self.fields, columns, strict=True)]
        except ConstraintError:
            # A dictionary column has more distinct values than its index type can number: half as many rows may fit.
            half = len(row_ids) // 2
            if not half:
                raise
            self.add([c[:half] for c in columns], row_ids[:half], begins[:half])
            self.add([c[half:] for c in columns], row_ids[half:], begins[half:])
            return
        self.add_arrays(arrays, row_ids, begins)

    def add_arrays(self, arrays: Sequence[Any], row_ids: Any, begins: Any) -> None:
        """Add Arrow arrays, one for each field."""
        numbers = array_of(row_ids, pa.int64()), array_of(begins, pa.int64())
        self._keep(pa.RecordBatch.from_arrays([*arrays, *numbers], schema=self.schema))

    def _keep(self, batch: pa.RecordBatch) -> None:
        self.count += batch.num_rows
        self.size += batch.nbytes
        self._batches.append(batch)
        if self._writer is None and self.size <= MEMORY_BYTES:
            return
        with self._place.writing():
            if self._writer is None:
                self._spill = self._place.file()
                self._writer = pa.ipc.new_stream(self._spill, self.schema)
            for held in self._batches:
                self._writer.write_batch(held)
        self._batches = []

    def batches(self) -> Iterator[pa.RecordBatch]:
        if self._writer is None:
            yield from self._batches
            return
        with _finishing, self._place.writing():
            self._writer.close()
            self._spill.flush()
        # Mapped, so that each of several readers has its own position in the file.
        mapped = mmap.mmap(self._spill.fileno(), 0, access=mmap.ACCESS_READ)
        with pa.ipc.open_stream(pa.py_buffer(mapped)) as reader:
            yield from reader

    def without(self, hidden: npt.NDArray[np.int64] | None) -> HotRows:
        """Return these rows except those with the given row ids."""
        if hidden is None or not self.count:
            return self
        kept = HotRows(self.fields, self._place)
        for batch in self.batches():
            mask = ~np.isin(fixed_values(batch.column(ROW_ID), np.int64), hidden)
            rest = keep(batch, as_mask(mask))
            if rest.num_rows:
                kept._keep(rest)
        return kept

    def __del__(self) -> None:
        if self._spill is not None:
            with suppress(OSError):  # what could not be written need not be
                self._spill.close()
