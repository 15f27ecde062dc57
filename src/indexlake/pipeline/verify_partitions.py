"""What verify checks about clustered tables.

At every retained snapshot, the ranges cover all keys without overlap. A block is sorted by key and lies inside the
range of its own partition, which is live while the block is. A live key exists once: in a block, or hot.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from indexlake.blocks.block import BlockRecord
from indexlake.blocks.delete_vector import positions_from_bytes
from indexlake.blocks.open_files import OpenFiles
from indexlake.indexes.keys import KeyColumn, key_to_bytes
from indexlake.partitions.partition import Partition
from indexlake.partitions.ranges import Ranges, key_column
from indexlake.schema import TableSchema
from indexlake.snapshots.partition_info import key_values
from indexlake.snapshots.reading import Reading
from indexlake.snapshots.state import TableState
from indexlake.storage import Storage


@dataclass(frozen=True, slots=True)
class LiveBlock:
    """A block of a partition, the schema of its file and its deleted positions."""

    block: BlockRecord
    schema: TableSchema
    deleted: bytes | None


@dataclass(frozen=True, slots=True)
class PartitionTask:
    """The live blocks of a partition, and the keys of the hot rows that belong to it."""

    table: str
    partition: Partition
    schema: TableSchema
    blocks: tuple[LiveBlock, ...]
    hot: KeyColumn

    @property
    def size(self) -> int:
        return sum(b.block.size for b in self.blocks)


def wrong_records(state: TableState) -> Iterator[tuple[str | None, str]]:
    """Yield what is wrong with ranges and labels, each with the file that it concerns."""
    ranges = state.ranges
    if ranges is None:
        return
    changed = {p.begin_snapshot for p in ranges.by_id.values()} | {state.at}
    for snapshot in sorted(s for s in changed if state.table.horizon <= s <= state.at):
        when = "" if snapshot == state.at else f" at snapshot {snapshot}"
        for wrong in _wrong_cover(ranges.at(snapshot).live, state.current):
            yield None, wrong + when
    for block in state.blocks.records:
        if block.role == "history":
            continue
        if block.partition_id is None:
            if block.end_snapshot is None:  # a heap had ended ones
                yield block.path, "belongs to no partition"
        elif block.partition_id not in ranges.by_id:
            yield block.path, f"belongs to partition {block.partition_id}, which has no record"
        elif block.end_snapshot is None and not ranges.is_live(block.partition_id):
            yield block.path, f"is live, and its partition {block.partition_id} is not"


def _wrong_cover(live: Sequence[Partition], schema: TableSchema) -> Iterator[str]:
    if not live:
        yield "has no partitions"
        return
    if live[0].begin_key is not None:
        yield f"keys before {_shown(schema, live[0].begin_key)} belong to no partition"
    for left, right in pairwise(live):
        begin = right.begin_key or b""
        if left.end_key is None or left.end_key > begin:
            yield f"partitions {left.partition_id} and {right.partition_id} overlap"
        elif left.end_key < begin:
            between = f"{_shown(schema, left.end_key)} and {_shown(schema, begin)}"
            yield f"keys between {between} belong to no partition"
    if live[-1].end_key is not None:
        yield f"keys from {_shown(schema, live[-1].end_key)} on belong to no partition"


class KeyOrder:
    """Checks that the rows of a block are in key order, inside a range and as the record says."""

    def __init__(self, block: BlockRecord, partition: Partition, schema: TableSchema) -> None:
        self._block = block
        self._partition = partition
        self._schema = schema
        self._first: bytes | None = None
        self._last: bytes | None = None
        self._wrong: str | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        if self._wrong is not None or not batch.num_rows:
            return
        keys = key_column(batch, self._schema)
        first, last = key_to_bytes(keys[0]), key_to_bytes(keys[len(keys) - 1])
        if not keys.is_sorted() or (self._last is not None and first < self._last):
            self._wrong = "is not sorted by its keys"
        elif not self._partition.holds(first, last):
            self._wrong = (
                f"has keys from {_shown(self._schema, first)} to {_shown(self._schema, last)}, "
                f"which its partition {self._partition.partition_id} does not hold"
            )
        self._first = first if self._first is None else self._first
        self._last = last

    def wrong(self) -> str | None:
        """Return what is wrong, after all rows were added."""
        recorded = self._block.first_key, self._block.last_key
        if self._wrong is not None or recorded == (self._first, self._last):
            return self._wrong
        found, expected = (
            " to ".join("nothing" if key is None else _shown(self._schema, key) for key in keys)
            for keys in ((self._first, self._last), recorded)
        )
        return f"has keys from {found}; its record says {expected}"


def partition_tasks(name: str, reading: Reading) -> Iterator[PartitionTask]:
    """Yield a task for each live partition that has blocks, inside the read transaction."""
    state = reading.state
    if state.ranges is None or state.table.end_snapshot is not None:
        return
    hot = _hot_keys(reading)
    cut = {p.partition_id: hot.slice(start, end - start) for p, start, end in _cut(state.ranges, hot)}
    blocks: dict[int, list[LiveBlock]] = defaultdict(list)
    for block in state.blocks.records:
        if block.end_snapshot is None and block.partition_id is not None:
            log = state.deletes.get(block.data_file_id)
            gone = log.at(state.at) if log is not None else None
            schema = state.schema.at(block.schema_snapshot)
            blocks[block.partition_id].append(LiveBlock(block, schema, gone.serialize() if gone else None))
    none = hot.slice(0, 0)
    for partition in state.ranges.live:
        own = cut.get(partition.partition_id, none)
        if blocks[partition.partition_id]:
            yield PartitionTask(name, partition, state.current, tuple(blocks[partition.partition_id]), own)


def _cut(ranges: Ranges, keys: KeyColumn) -> Iterable[tuple[Partition, int, int]]:
    return ranges.cut(keys) if ranges.live and ranges.live[0].begin_key is None else ()


def _hot_keys(reading: Reading) -> KeyColumn:
    """Return the keys of hot rows, sorted."""
    schema = reading.schema
    rows = reading.hot.rows(schema.key_fields)
    keys = key_column(pa.Table.from_batches(rows.batches(), rows.schema), schema)
    return keys.take(keys.argsort())


def key_twice(storage: Storage, task: PartitionTask) -> str | None:
    """Return an error with the smallest key that two live rows of a partition have, or None."""
    files = OpenFiles(storage)
    parts = [task.hot]
    for each in task.blocks:
        live: Any = None
        if each.deleted is not None:
            kept = np.ones(each.block.record_count, np.bool_)
            kept[np.frombuffer(positions_from_bytes(each.deleted).to_array(), np.uint32)] = False
            live = np.flatnonzero(kept).astype(np.uint64)
        reader = files.reader(each.block, each.schema.file)
        parts += [key_column(batch, each.schema) for batch in reader.read([*each.schema.key_columns], live)]
    keys = KeyColumn.concat(parts)
    again = keys.first_duplicate()
    if again is None:
        return None
    key = _shown(task.schema, key_to_bytes(keys[again]))
    return f"partition {task.partition.partition_id} has live rows with the same key {key}"


def _shown(schema: TableSchema, key: bytes) -> str:
    return repr(key_values(schema, key))
