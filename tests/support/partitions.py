"""What must hold of the partitions of a clustered table after every step of anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import indexlake as il
from indexlake.blocks.block import BlockRecord
from indexlake.catalog import data_files
from indexlake.catalog.partitions import read_partitions
from indexlake.indexes.keys import key_to_bytes
from indexlake.partitions.partition import Partition
from indexlake.partitions.ranges import key_column

Bounds = tuple[bytes, bytes]


def range_problems(
    lake: il.Lake, table_id: int, snapshots: Iterable[int], known: dict[str, Bounds] | None = None
) -> Iterator[str]:
    """Partitions that do not cover all keys at a snapshot, blocks that are not sorted or not where they belong.

    ``known``: the first and last key of files that were read before.
    """
    known = {} if known is None else known
    with lake.catalog.read() as r:
        partitions = {p.partition_id: p for p in read_partitions(r, table_id)}
        blocks = data_files.read_blocks(r, table_id)
    for snapshot in snapshots:
        yield from _uncovered(snapshot, [p for p in partitions.values() if p.visible_at(snapshot)])
    schema = lake._readings.latest(table_id).schema
    for block in blocks:
        if block.role == "history":
            if block.partition_id is not None:
                yield f"a history block in a partition: {block}"
            continue
        if block.path not in known:
            keys = key_column(_rows(lake, block), schema.at(block.schema_snapshot))
            if not keys.is_sorted():
                yield f"not sorted: {block} {keys.to_list()}"
            known[block.path] = key_to_bytes(keys[0]), key_to_bytes(keys[len(keys) - 1])
        first, last = known[block.path]
        partition = partitions.get(block.partition_id or -1)
        if (block.first_key, block.last_key) != (first, last):
            yield f"first and last key are {first!r} and {last!r} in {block}"
        if partition is None or not partition.holds(first, last):
            yield f"{block} lies in {partition}"
        elif block.end_snapshot is None and partition.end_snapshot is not None:
            yield f"live {block} in ended {partition}"


def _rows(lake: il.Lake, block: BlockRecord) -> Any:
    with lake.storage.open_file(block.path) as file:
        data = pa.BufferReader(bytes(file.read()))
    return pa.ipc.open_file(data).read_all() if block.format == "ipc" else pq.read_table(data)


def _uncovered(snapshot: int, partitions: list[Partition]) -> Iterator[str]:
    """Their ranges must follow each other, from no bound to no bound."""
    ordered = sorted(partitions, key=lambda p: p.begin_key or b"")
    begins = [*(p.begin_key for p in ordered), None]
    ends = [None, *(p.end_key for p in ordered)]
    if not ordered or begins != ends or None in begins[1:-1]:
        yield f"at {snapshot} {[(p.partition_id, p.begin_key, p.end_key) for p in ordered]}"
