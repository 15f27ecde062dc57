"""The partitions of one clustered table, and which of them a key belongs to.

The live ones cover all keys without overlap. Immutable: tasks get a copy, and threads share it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from indexlake.blocks.new_block import Placed
from indexlake.indexes.keys import Key, KeyColumn, key_to_bytes
from indexlake.partitions.partition import Partition
from indexlake.types.selection import gather

if TYPE_CHECKING:
    from indexlake.schema import TableSchema


class Ranges:
    """All partitions that have a record, including ended ones."""

    def __init__(self, records: Iterable[Partition] = ()) -> None:
        self.by_id = {p.partition_id: p for p in records}

    def __repr__(self) -> str:
        return f"Ranges({len(self.live)} live of {len(self.by_id)})"

    @cached_property
    def live(self) -> tuple[Partition, ...]:
        """The live partitions in key order."""
        return tuple(
            sorted((p for p in self.by_id.values() if p.end_snapshot is None), key=lambda p: p.begin_key or b"")
        )

    @cached_property
    def _begins(self) -> list[bytes]:
        return [p.begin_key or b"" for p in self.live]

    def with_partitions(self, changed: Collection[Partition]) -> Ranges:
        return Ranges((self.by_id | {p.partition_id: p for p in changed}).values()) if changed else self

    def only_live(self) -> Ranges:
        """Return only the live partitions, which is what a task needs."""
        return Ranges(self.live)

    def at(self, snapshot: int) -> Ranges:
        """Return the partitions of a snapshot, all of them as live."""
        return Ranges(replace(p, end_snapshot=None) for p in self.by_id.values() if p.visible_at(snapshot))

    def is_live(self, partition_id: int) -> bool:
        found = self.by_id.get(partition_id)
        return found is not None and found.end_snapshot is None

    def of_key(self, key: Key) -> Partition:
        return self.live[bisect_right(self._begins, key_to_bytes(key)) - 1]

    def holding(self, first: bytes, last: bytes) -> Partition | None:
        """Return the live partition that holds two keys and all between them, if there is one."""
        found = self.live[bisect_right(self._begins, first) - 1]
        return found if found.holds(first, last) else None

    def adopter(self, partition_id: int, first: bytes, last: bytes) -> Partition | None:
        """Return the live partition for rows written for a partition: that one, or whichever holds them all."""
        found = self.by_id.get(partition_id)
        return found if found is not None and found.end_snapshot is None else self.holding(first, last)

    def place(self, rows: pa.Table, schema: TableSchema) -> Iterator[tuple[Placed, pa.Table]]:
        """Sort rows in file format by key, and cut them by live partition."""
        rows, keys = sorted_by_key(rows, schema)
        for partition, start, end in self.cut(keys):
            first, last = key_to_bytes(keys[start]), key_to_bytes(keys[end - 1])
            yield Placed(partition.partition_id, first, last), rows.slice(start, end - start)

    def cut(self, keys: KeyColumn) -> Iterator[tuple[Partition, int, int]]:
        """Cut sorted keys by live partition: each that has some, with where they begin and end."""
        start = 0
        while start < len(keys):
            partition = self.of_key(keys[start])
            end = len(keys) if partition.end_key is None else lower_bound(keys, partition.end_key, start)
            yield partition, start, end
            start = end


def lower_bound(keys: KeyColumn, bound: bytes, start: int = 0) -> int:
    """Return how many of the sorted keys are less than a bound."""
    if keys.ints is not None:
        return int(np.searchsorted(keys.ints, np.uint64(int.from_bytes(bound, "big"))))
    return bisect_left(range(len(keys)), bound, start, key=lambda n: keys.binary[n].as_py())


def upper_bound(keys: KeyColumn, key: Key) -> int:
    """Return how many of the sorted keys are not greater than one."""
    if keys.ints is not None:
        return int(np.searchsorted(keys.ints, np.uint64(key), "right"))
    return bisect_right(range(len(keys)), key, key=lambda n: keys.binary[n].as_py())


def key_column(rows: pa.Table | pa.RecordBatch, schema: TableSchema) -> KeyColumn:
    """Return the primary keys of rows in file format."""
    return KeyColumn.from_arrays(schema.key_codecs, [rows.column(name) for name in schema.key_columns])


def sorted_by_key(rows: pa.Table, schema: TableSchema) -> tuple[pa.Table, KeyColumn]:
    """Return rows in file format sorted by key, with their keys."""
    keys = key_column(rows, schema)
    if keys.is_sorted():
        return rows, keys
    order = keys.argsort()
    return pa.Table.from_batches(gather(rows.to_batches(), pa.array(order), rows.schema), rows.schema), keys.take(order)
