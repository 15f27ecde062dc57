"""A plain select that names one primary key: answered like ``table.get``, without the fixed costs of a scan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from indexlake.scan.point import find_in_blocks, find_recent, key_in, read_row
from indexlake.snapshots.reading import Reading
from indexlake.sql.plan.plain_select import PlainSelect

if TYPE_CHECKING:
    from indexlake.expr import Bound
    from indexlake.lake import Lake

Row = Mapping[str, Any]


def point_read(
    lake: Lake, table: Reading, predicate: Bound | None, plain: PlainSelect
) -> Callable[[], Row | None] | None:
    """Return a function that reads the one row that can satisfy the predicate, or None if this needs a scan.

    Only for columns whose values Python holds exactly, and not in a transaction that has written to the table: later
    writes must not show in an earlier result.
    """
    schema = table.schema
    if predicate is None or plain.columns is None or plain.order or plain.count is not None:
        return None
    if plain.limit is not None or plain.offset is not None or table.writes is not None or not schema.primary_key:
        return None
    if not predicate.columns.union(column for column, _ in plain.columns) <= schema.plain_names:
        return None
    key = key_in(predicate, schema)
    if key is None:
        return None
    found = find_recent(table, lake._files, key)

    def read() -> Row | None:
        row = read_row(schema, found or find_in_blocks(table, lake._files, key))
        return row if row is not None and predicate.evaluate_row(row) is True else None

    return read
