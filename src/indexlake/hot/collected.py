"""Row versions on their way to blocks, grouped by the columns that their blocks are written with.

All rows of a block have the same columns: those of the schema when they were written or, for rows older than the
horizon, of the schema at the horizon. So a chunk may become several blocks, one for each set of columns.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.blocks.writer import sorted_by_row_id
from indexlake.errors import ConstraintError
from indexlake.hot.store import ChunkPart
from indexlake.schema import END, SchemaHistory, TableSchema
from indexlake.schema.lineage import HeldColumns

Row = tuple[Any, ...]
"""(begin, row id, end, encoded value of each of ``columns`` …)"""


Numbers = npt.NDArray[np.int64]


class Collected:
    """Takes rows in any order and returns the parts of a chunk."""

    def __init__(self, schemas: SchemaHistory, horizon: int, oldest: int, *, history: bool) -> None:
        self._schemas = schemas
        self._horizon = horizon
        self._history = history
        self.bytes = 0
        self._batches: dict[tuple[str, ...], list[pa.RecordBatch]] = {}
        self._written_with: dict[tuple[str, ...], tuple[TableSchema, int]] = {}
        kept = schemas.since(max(horizon, oldest))
        self._held = HeldColumns({f.field_id: f for schema in kept for f in schema.fields}.values())
        self.columns = self._held.columns
        self._same_columns = all(schema.columns == kept[0].columns for schema in kept)

    def add(self, rows: list[Row]) -> None:
        if self._same_columns:
            self._add(rows, rows[0][0])
            return
        groups: dict[tuple[str, ...], list[Row]] = {}
        for row in rows:
            groups.setdefault(self._schema(row[0]).columns, []).append(row)
        for group in groups.values():
            self._add(group, group[0][0])

    def add_columns(self, begins: Numbers, row_ids: Numbers, ends: Numbers, columns: list[list[Any]]) -> None:
        """Add rows that are given column by column."""
        if self._same_columns:
            begin = int(begins[0])
            schema = self._schema(begin)
            with suppress(ConstraintError):  # otherwise they are added in halves until they fit
                self._keep(self._batch(begins, row_ids, ends, columns, schema), schema, begin)
                return
        self.add(list(zip(begins.tolist(), row_ids.tolist(), ends.tolist(), *columns, strict=True)))

    def _keep(self, batch: pa.RecordBatch, schema: TableSchema, begin: int) -> None:
        self._written_with.setdefault(schema.columns, (schema, max(begin, self._horizon)))
        self._batches.setdefault(schema.columns, []).append(batch)
        self.bytes += batch.nbytes

    def _schema(self, begin: int) -> TableSchema:
        """Return the schema for rows begun in a snapshot; nobody will read snapshots before the horizon again."""
        return self._schemas.at(max(begin, self._horizon))

    def _add(self, rows: list[Row], begin: int) -> None:
        schema = self._schema(begin)
        begins, row_ids, ends, *columns = zip(*rows, strict=True)
        try:
            batch = self._batch(begins, row_ids, ends, columns, schema)
        except ConstraintError:
            # A dictionary column has more distinct values than its index type can number: half as many rows may fit.
            half = len(rows) // 2
            if not half:
                raise
            self._add(rows[:half], begin)
            self._add(rows[half:], begin)
            return
        self._keep(batch, schema, begin)

    def _batch(self, begins: Any, row_ids: Any, ends: Any, columns: Any, schema: TableSchema) -> pa.RecordBatch:
        values = self._held.only(schema.fields).values(begins, columns)
        arrays = [f.codec.decode(column) for f, column in zip(schema.fields, values, strict=True)]
        arrays += [pa.array(row_ids, pa.int64()), pa.array(begins, pa.int64())]
        if self._history:
            arrays.append(pa.array(ends, pa.int64()))
        return pa.RecordBatch.from_arrays(arrays, schema=schema.history_file if self._history else schema.file)

    def parts(self) -> tuple[ChunkPart, ...]:
        found = []
        for key, batches in self._batches.items():
            schema, snapshot = self._written_with[key]
            rows = pa.Table.from_batches(batches)
            last_end = int(rows.column(END).to_numpy().max()) if self._history else None
            rows = rows if self._history else sorted_by_row_id(rows)
            found.append(ChunkPart(schema, snapshot, rows, last_end))
        return tuple(found)
