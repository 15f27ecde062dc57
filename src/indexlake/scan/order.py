"""Sorting of results: SQL order with nulls last in both directions, NaN greatest, strings by their bytes.

Memory is bounded: with a small limit only the rows that can still be in the answer are kept, otherwise what does not
fit is sorted in a temporary file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from indexlake.arrow import kernels as pc
from indexlake.arrow.batch_size import batch_bytes
from indexlake.arrow.buffers import chunks
from indexlake.errors import SchemaError
from indexlake.scan.sorted_runs import BATCH_ROWS, RUN_BYTES, SortedRuns
from indexlake.schema import ROW_ID, TableSchema, unknown_column
from indexlake.storage.spill import TEMPORARY, Spill
from indexlake.types import codec_for
from indexlake.types.selection import gather

OrderBy = Sequence[tuple[str, str]]
_ENOUGH = 100_000
"""Limits up to this are served from memory, holding up to this many more rows before the worse ones are dropped."""


def check_order(order_by: Any, schema: TableSchema) -> list[tuple[str, str]]:
    """Return columns, spelt as in the schema, and directions, given ``"total"`` or ``[("total", "desc"), "id"]``."""
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
            if (meant := _meant(order_by, schema)) is not None:
                raise SchemaError(f"There is no column {column!r}. Write order_by={meant!r}.", column=str(column))
            raise unknown_column(column, schema.names)
        if not f.codec.ordered:
            raise SchemaError(f"Column {f.name!r} of type {f.type} has no order to sort by.", column=f.name)
        result.append((f.name, direction))
    return result


def _meant(order_by: Any, schema: TableSchema) -> list[str | tuple[str, str]] | None:
    """Return the accepted form of an order written as SQL, ``"total desc, id"``, or None if it is not one."""
    items = order_by if isinstance(order_by, list | tuple) else [order_by]
    if not all(isinstance(item, str) for item in items):
        return None
    found: list[str | tuple[str, str]] = []
    for item in ",".join(items).split(","):
        name, _, direction = item.strip().rpartition(" ") if " " in item.strip() else (item.strip(), "", "asc")
        if item.strip().startswith("-"):
            name, direction = item.strip()[1:], "desc"
        known = schema.by_name.get(name.strip().lower())
        if known is None or direction.lower() not in ("asc", "desc"):
            return None
        found.append((known.name, "desc") if direction.lower() == "desc" else known.name)
    return found


def _is_pair(item: object) -> bool:
    return isinstance(item, tuple) and len(item) == 2 and item[1] in ("asc", "desc")


def sort_indices(table: pa.Table, order: OrderBy, places: Any = None) -> pa.Array:
    """Return the indices that sort the rows.  Ties are in the order of ``places``, by default that of the rows."""
    keys, columns = [], {}
    for n, (name, direction) in enumerate(order):
        column = table.column(name)
        codec = codec_for(column.type)
        if codec.kind == "int":
            encoded = codec.canonical_array(column)
            null = np.asarray(column.is_null())
            columns[f"null{n}"] = pa.array(null)
            columns[f"key{n}"] = pa.array(encoded, mask=null)
        else:
            columns[f"null{n}"] = column.is_null()
            parts = [codec.canonical_array(chunk) for chunk in chunks(column)]  # joined, they may be too large
            columns[f"key{n}"] = pa.chunked_array(parts, pa.binary())
        keys += [(f"null{n}", "ascending"), (f"key{n}", f"{direction}ending")]
    columns["place"] = pa.array(np.arange(table.num_rows)) if places is None else places
    return pc.sort_indices(pa.table(columns), [*keys, ("place", "ascending")])


def ordered(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, order: OrderBy, most: int | None, spill: Spill = TEMPORARY
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the batches in order, at most ``most`` of them."""
    rest = iter(batches)
    if most is not None and most <= _ENOUGH:
        held, ended = _first(rest, schema, order, most)
        if ended:
            for batch in held:
                for start in range(0, batch.num_rows, BATCH_ROWS):
                    yield batch.slice(start, BATCH_ROWS)
            return
        rest = chain(held, rest)
    runs = SortedRuns(schema, [name for name, _ in order], partial(_by, order), spill)
    for batch in rest:
        runs.add(batch)
    for batch in runs.batches():
        yield batch if most is None else batch.slice(0, most)
        if most is not None:
            most -= batch.num_rows
            if most <= 0:
                return


def _by(order: OrderBy, table: pa.Table, places: Any) -> pa.Array:
    return sort_indices(table, order, places)


def _first(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, order: OrderBy, most: int
) -> tuple[list[pa.RecordBatch], bool]:
    """Return the first ``most`` rows in order and True.  If they do not fit in memory: the best so far, and False."""
    held: list[pa.RecordBatch] = []
    count = size = kept = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        size += batch_bytes(batch)
        if count > most + _ENOUGH or size > kept + RUN_BYTES:
            held = _best(held, schema, order, most)
            count = sum(some.num_rows for some in held)
            size = kept = sum(map(batch_bytes, held))
            if kept > RUN_BYTES:
                return held, False
    return _best(held, schema, order, most), True


def _best(batches: list[pa.RecordBatch], schema: pa.Schema, order: OrderBy, most: int) -> list[pa.RecordBatch]:
    table = pa.Table.from_batches(batches, schema)
    return gather(batches, sort_indices(table, order).slice(0, most), schema)
