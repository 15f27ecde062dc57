"""Answers that a scan, a count or a read by key gives without DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indexlake.scan.execute import pieces
from indexlake.scan.key_order import rows_in_key_order
from indexlake.scan.order import ordered
from indexlake.scan.plan import arrow_schema
from indexlake.scan.scan import _window
from indexlake.schema import TableSchema
from indexlake.sql.plan.plain_select import PlainSelect
from indexlake.sql.plan.point_select import Row
from indexlake.sql.plan.table_plan import TablePlan
from indexlake.sql.run.result import Batches
from indexlake.sql.run.table_stream import row_counts
from indexlake.types.marks import mark_of

if TYPE_CHECKING:
    from indexlake.lake import Lake


def scan_answer(lake: Lake, table: TablePlan, plain: PlainSelect, parameters: Mapping[str, Any]) -> Batches:
    if plain.count is not None:
        return _count(lake, table, plain.count)
    shown = _shown(plain, table.found.schema)
    order = list(plain.order or ())
    limit = None if plain.limit is None else plain.limit.value(parameters)
    offset = 0 if plain.offset is None else plain.offset.value(parameters) or 0

    def batches() -> Iterator[pa.RecordBatch]:
        scan, files, threads, fields, row_id = table.scan, lake._files, lake._scan_threads, table.fields, table.row_id
        most = None if limit is None else limit + offset
        if scan.key_bounds is not None:
            rows = rows_in_key_order(scan, files, threads, fields, order, most, row_id=row_id)
        else:
            rows = (piece.batch for piece in pieces(scan, files, threads, fields, row_id=row_id))
            if order:
                rows = ordered(rows, arrow_schema(fields, row_id=row_id), order, most, lake.storage.spill)
        for batch in _window(rows, offset, limit):
            arrays = [batch.column(old) for old, _ in plain.columns or ()]
            yield pa.RecordBatch.from_arrays(arrays, schema=shown)
            lake._check_process()

    return shown, batches()


def _count(lake: Lake, table: TablePlan, name: str) -> Batches:
    schema = pa.schema({name: pa.int64()})

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_arrays([pa.array([sum(row_counts(lake, table.scan))])], schema=schema)

    return schema, batches()


def point_answer(read: Callable[[], Row | None], schema: TableSchema, plain: PlainSelect) -> Batches:
    shown = _shown(plain, schema)

    def batches() -> Iterator[pa.RecordBatch]:
        row = read()
        if row is not None:
            named = zip(plain.columns or (), shown, strict=True)
            yield pa.RecordBatch.from_arrays([pa.array([row[old]], f.type) for (old, _), f in named], schema=shown)

    return shown, batches()


def _shown(plain: PlainSelect, schema: TableSchema) -> pa.Schema:
    """Return the schema of the result."""
    fields = [(new, schema.field(old)) for old, new in plain.columns or ()]
    return pa.schema([pa.field(new, f.type, metadata=mark_of(f)) for new, f in fields])
