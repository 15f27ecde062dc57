"""Sorting of results: SQL order with nulls last both ways, NaN the greatest, strings by their bytes.

With a limit only the rows that can still be in the answer are kept, so memory follows the limit and not the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from indexlake import kernels as pc
from indexlake.errors import SchemaError
from indexlake.schema import ROW_ID, TableSchema, unknown_column
from indexlake.types import codec_for
from indexlake.types.selection import take

OrderBy = Sequence[tuple[str, str]]
_ENOUGH = 100_000


def check_order(order_by: Any, schema: TableSchema) -> list[tuple[str, str]]:
    """``"total"``, ``[("total", "desc"), "id"]`` → column and direction, spelt as in the schema."""
    if order_by is None:
        return []
    items = [order_by] if isinstance(order_by, str) or _is_pair(order_by) else order_by
    result: list[tuple[str, str]] = []
    for item in items if isinstance(items, list | tuple) else [items]:
        if not isinstance(item, str) and not (isinstance(item, list | tuple) and len(item) == 2):
            raise SchemaError(f"order_by takes column names and pairs (name, 'asc' or 'desc'), not {item!r}.")
        column, direction = (item, "asc") if isinstance(item, str) else item
        if direction not in ("asc", "desc"):
            raise SchemaError(f"order_by: the direction of {column!r} is 'asc' or 'desc', not {direction!r}.")
        if column == ROW_ID:
            result.append((column, direction))
            continue
        f = schema.by_name.get(str(column).lower())
        if f is None:
            raise unknown_column(column, schema.names)
        if not f.codec.ordered:
            raise SchemaError(f"Column {f.name!r} of type {f.type} has no order to sort by.", column=f.name)
        result.append((f.name, direction))
    return result


def _is_pair(item: object) -> bool:
    return isinstance(item, tuple) and len(item) == 2 and item[1] in ("asc", "desc")


def sort_indices(table: pa.Table, order: OrderBy) -> pa.Array:
    """Stable: equal rows stay in the order they came."""
    keys, columns = [], {}
    for n, (name, direction) in enumerate(order):
        column = table.column(name)
        codec = codec_for(column.type)
        encoded = codec.canonical_array(column)
        if codec.kind == "int":
            null = np.asarray(column.is_null())
            columns[f"null{n}"] = pa.array(null)
            columns[f"key{n}"] = pa.array(encoded, mask=null)
        else:
            columns[f"null{n}"] = column.is_null()
            columns[f"key{n}"] = encoded
        keys += [(f"null{n}", "ascending"), (f"key{n}", f"{direction}ending")]
    columns["place"] = pa.array(np.arange(table.num_rows))
    return pc.sort_indices(pa.table(columns), [*keys, ("place", "ascending")])


def ordered(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, order: OrderBy, most: int | None
) -> Iterator[pa.RecordBatch]:
    """The batches as one sorted stream, at most ``most`` rows of it."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        if most is not None and count > most + _ENOUGH:
            best = _best(held, schema, order, most)
            held, count = best.to_batches(), best.num_rows
    yield from _best(held, schema, order, most).to_batches(max_chunksize=65_536)


def _best(batches: list[pa.RecordBatch], schema: pa.Schema, order: OrderBy, most: int | None) -> pa.Table:
    table = pa.Table.from_batches(batches, schema)
    indices = sort_indices(table, order)
    return take(table, indices if most is None else indices.slice(0, most))
