"""The address book: where each row is, streamed from the block index rather than stored per row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indexlake.scan.execute import pieces
from indexlake.scan.plan import plan_scan
from indexlake.scan.scan import bind_predicate
from indexlake.schema import ROW_ID

if TYPE_CHECKING:
    from indexlake.table import Table

ADDRESS_SCHEMA = pa.schema(
    [
        pa.field(ROW_ID, pa.int64(), False),
        pa.field("location", pa.string(), False),
        pa.field("deleted", pa.bool_(), False),
    ]
)


def addresses(
    table: Table, where: str | None, params: Mapping[str, Any] | Sequence[Any] | None
) -> Iterator[pa.RecordBatch]:
    """Yield the address of each live row of the snapshot.  Dead rows have none, so ``deleted`` is always false."""
    lake = table._lake
    with table._reading() as reading:
        schema, state = reading.schema, reading.state
        predicate = None if where is None else bind_predicate(where, schema, params)
        needed = tuple(f for f in schema.fields if predicate is not None and f.name in predicate.columns)
        plan = plan_scan(reading, lake._files, predicate=predicate, columns=needed)
    for piece in pieces(plan, lake._files, lake._scan_threads, (), row_id=True):
        ids = piece.batch.column(ROW_ID)
        record = state.blocks.record(piece.file_id) if piece.kind == "block" else None
        if piece.kind in ("hot", "own"):
            places = lake._hot.locations(table._table_id, ids.to_pylist())
        elif record is None:
            places = [piece.kind] * len(ids)
        else:
            reader = lake._files.reader(record, state.schema.at(record.schema_snapshot).file)
            positions = state.addresses(record, lake._files).positions_of(ids.to_numpy())
            places = [f"{record.format}:{record.path}:{reader.location(p)}" for p in positions.tolist()]
        yield pa.RecordBatch.from_arrays(
            [ids, pa.array(places, pa.string()), pa.array([False] * len(ids))], schema=ADDRESS_SCHEMA
        )
