"""Streams of rows that are each in key order, merged into one: a batch of each is in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from indexlake.indexes.keys import Key, KeyColumn
from indexlake.partitions.ranges import key_column, upper_bound
from indexlake.schema import TableSchema
from indexlake.types.selection import gather


@dataclass(slots=True)
class _Head:
    """The rows of a stream that come next."""

    rows: pa.RecordBatch
    keys: KeyColumn
    rest: Iterator[pa.RecordBatch]

    @property
    def last(self) -> Key:
        return self.keys[len(self.keys) - 1]


def merged_by_key(
    streams: Iterable[Iterator[pa.RecordBatch]], schema: TableSchema
) -> Iterator[tuple[pa.RecordBatch, KeyColumn]]:
    """The rows of all streams in key order, with their keys.  Rows are as they lie in files."""
    heads = [head for stream in streams if (head := _next(stream, schema)) is not None]
    while len(heads) > 1:
        limit = min(head.last for head in heads)
        parts: list[tuple[pa.RecordBatch, KeyColumn]] = []
        going: list[_Head] = []
        for head in heads:
            count = upper_bound(head.keys, limit)
            if count:
                parts.append((head.rows.slice(0, count), head.keys.slice(0, count)))
            if count < len(head.keys):
                going.append(_Head(head.rows.slice(count), head.keys.slice(count), head.rest))
            elif (following := _next(head.rest, schema)) is not None:
                going.append(following)
        heads = going
        yield from _sorted(parts)
    for head in heads:
        yield head.rows, head.keys
        for batch in head.rest:
            if batch.num_rows:
                yield batch, key_column(batch, schema)


def _next(stream: Iterator[pa.RecordBatch], schema: TableSchema) -> _Head | None:
    for batch in stream:
        if batch.num_rows:
            return _Head(batch, key_column(batch, schema), stream)
    return None


def _sorted(parts: list[tuple[pa.RecordBatch, KeyColumn]]) -> Iterator[tuple[pa.RecordBatch, KeyColumn]]:
    if len(parts) == 1:
        yield parts[0]
        return
    keys = KeyColumn.concat([keys for _, keys in parts])
    order = keys.argsort()
    keys = keys.take(order)
    at = 0
    for batch in gather([rows for rows, _ in parts], pa.array(order.astype(np.int64)), parts[0][0].schema):
        yield batch, keys.slice(at, batch.num_rows)
        at += batch.num_rows
