"""What the catalog alone tells about a clustered table's partitions, without opening a file."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from indexlake.blocks.block import BlockRecord
from indexlake.catalog import table_heads
from indexlake.display import Listing, counted, html_facts
from indexlake.errors import IndexLakeError, SchemaError
from indexlake.indexes.keys import decode_key
from indexlake.partitions.partition import Partition
from indexlake.partitions.ranges import Ranges
from indexlake.schema import TableSchema
from indexlake.snapshots.state import TableState

if TYPE_CHECKING:
    from indexlake.snapshots.reading import Reading

_OPEN = "…"
_BAR = 16


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition: its keys, from ``begin_key`` up to but not including ``end_key`` (None: no bound), and its files.

    Keys of several columns are tuples. Deleted rows count in ``deleted_rows``, and also in the rows of the files that
    still contain them.
    """

    partition_id: int
    begin_key: Any
    end_key: Any
    data_rows: int
    data_bytes: int
    delta_blocks: int
    delta_rows: int
    delta_bytes: int
    deleted_rows: int
    formats: tuple[str, ...]
    files: tuple[str, ...]

    @property
    def rows(self) -> int:
        """The number of rows that are not deleted."""
        return self.data_rows + self.delta_rows - self.deleted_rows

    def _repr_html_(self) -> str:
        return html_facts(f"partition {self.partition_id}", {name: getattr(self, name) for name in self.__slots__})


class Partitions(Listing[PartitionInfo]):
    """The partitions of a table in key order; prints as a table with a bar for the rows of each."""

    def _table(self) -> tuple[list[str], list[list[object]]]:
        most = max(p.data_rows + p.delta_rows for p in self)
        names = ["id", "keys from", "before", "data rows", "bytes", "deltas", "delta rows", "delta bytes", "deleted",
                 "format", "files", "data █ delta ░"]  # fmt: skip
        rows: list[list[object]] = [
            [
                p.partition_id, _shown(p.begin_key), _shown(p.end_key), p.data_rows, p.data_bytes, p.delta_blocks,
                p.delta_rows, p.delta_bytes, p.deleted_rows, ", ".join(p.formats), len(p.files),
                _bar(p.data_rows, most, "█") + _bar(p.delta_rows, most, "░"),
            ]
            for p in self
        ]  # fmt: skip
        return names, rows


@dataclass(frozen=True, slots=True)
class ClusteredStats:
    """All partitions of a table taken together.

    ``bytes_given`` counts blocks whose rows came from the hot store or from users; ``bytes_written`` counts all blocks
    ever added, including those from merges and splits.  Both start when the table became clustered, at any snapshot.
    """

    partitions: int
    largest_partition_rows: int
    median_partition_rows: int
    delta_blocks: int
    delta_rows: int
    bytes_given: int
    bytes_written: int
    written_per_given: float | None  # None: nothing was given yet

    def __str__(self) -> str:
        ratio = self.written_per_given
        written = f"{counted(self.bytes_written, 'byte')} written for {self.bytes_given:,} given"
        return (
            f"{counted(self.partitions, 'partition')}, the largest of {counted(self.largest_partition_rows, 'row')}, "
            f"the median {self.median_partition_rows:,}; {counted(self.delta_blocks, 'delta block')} with "
            f"{counted(self.delta_rows, 'row')}; {written}" + ("" if ratio is None else f" ({ratio:.2f} each)")
        )


def partitions(reading: Reading) -> Partitions:
    """Return the partitions at a snapshot, with the files that a reader of it uses.

    A file may have been written later for a range that did not exist then; it is listed where its first key belongs.
    """
    state, snapshot = reading.state, reading.snapshot
    ranges = None if state.ranges is None else state.ranges.at(snapshot)
    if state.ranges is None or ranges is None or not ranges.live:
        name = state.table.full_name
        if state.ranges is not None:
            raise SchemaError(f"Table {name!r} was a heap at snapshot {snapshot}: it had no partitions then.")
        raise SchemaError(f"Table {name!r} is a heap: it has no partitions. {how_to_cluster(state)}")
    blocks: dict[int, list[BlockRecord]] = defaultdict(list)
    for block, seen in zip(state.blocks.records, state.blocks.visible_at(snapshot), strict=True):
        if seen and block.partition_id is not None:
            blocks[partition_of(block, ranges)].append(block)
    return Partitions(_info(p, blocks[p.partition_id], state, reading.schema, snapshot) for p in ranges.live)


def how_to_cluster(state: TableState) -> str:
    """Return advice on how to get a clustered table from a heap."""
    if not state.current.key_fields:
        return "It has no primary key to sort by either: insert its rows into a new table with primary_key=…."
    return (
        f"lake.cluster_table({state.table.full_name!r}) sorts its rows by primary key; a new table is clustered with "
        'create_table(…, layout="clustered").'
    )


def partition_of(block: BlockRecord, ranges: Ranges) -> int:
    """Return the id of the partition, among those of a snapshot, to which a block is assigned."""
    if block.partition_id in ranges.by_id:
        return block.partition_id
    first = block.first_key or b""
    found = ranges.holding(first, first)
    assert found is not None, "ranges cover all keys"
    return found.partition_id


def clustered_stats(reading: Reading) -> ClusteredStats | None:
    """Return the statistics, or None for a table that was a heap at that snapshot."""
    if reading.state.ranges is None or not reading.state.ranges.at(reading.snapshot).live:
        return None
    found = partitions(reading)
    sizes = [p.rows for p in found]
    given, written = table_heads.read_bytes(reading.transaction, reading.state.table.table_id)
    return ClusteredStats(
        len(found), max(sizes), int(statistics.median(sizes)), sum(p.delta_blocks for p in found),
        sum(p.delta_rows for p in found), given, written,
        written / given if given else None,
    )  # fmt: skip


def _info(
    partition: Partition, blocks: Sequence[BlockRecord], state: TableState, schema: TableSchema, snapshot: int
) -> PartitionInfo:
    data = [b for b in blocks if b.role == "data"]
    deltas = [b for b in blocks if b.role == "delta"]
    logs = [state.deletes[b.data_file_id] for b in blocks if b.data_file_id in state.deletes]
    return PartitionInfo(
        partition.partition_id, key_values(schema, partition.begin_key), key_values(schema, partition.end_key),
        sum(b.record_count for b in data), sum(b.size for b in data), len(deltas),
        sum(b.record_count for b in deltas), sum(b.size for b in deltas), sum(log.count_at(snapshot) for log in logs),
        tuple(sorted({b.format for b in blocks})), tuple(b.path for b in blocks),
    )  # fmt: skip


def key_values(schema: TableSchema, key: bytes | None) -> Any:
    """Return the bound of a range as users write keys: a value, or a tuple for several columns."""
    if key is None:
        return None
    codecs = schema.key_codecs
    is_int = len(codecs) == 1 and codecs[0].kind == "int"
    try:
        encoded = decode_key(codecs, int.from_bytes(key, "big") if is_int else key)
        values = tuple(codec.show_one(value) for codec, value in zip(codecs, encoded, strict=True))
    except (IndexError, IndexLakeError):  # a bound need not be the key of a row
        return key
    return values[0] if len(values) == 1 else values


def _shown(key: Any) -> str:
    if key is None:
        return _OPEN
    return repr(key) if isinstance(key, str | bytes | tuple) else str(key)


def _bar(rows: int, most: int, mark: str) -> str:
    return mark * max(1 if rows else 0, round(_BAR * rows / max(1, most)))
