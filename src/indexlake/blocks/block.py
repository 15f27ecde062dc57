"""The catalog record of a block, as the rest of the code passes it around.

A plain immutable value: it can be printed, compared and pickled, and carries neither secrets nor open files. Tables
have up to a million of them, and a named tuple is created in a fifth of the time of a dataclass.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, SupportsBytes

BlockRole = Literal["data", "delta", "history"]
RowOrder = Literal["row_id", "key"]


class BlockRecord(NamedTuple):
    """One immutable data file of a table.

    `row_ids` is a serialised `RowIds` if `row_order` is "row_id"; otherwise it is empty and only the bounds are known.
    `column_stats` is the result of `stats_to_bytes`, by the file's own column names (`f<field_id>`); the bytes of
    `checksum` are a serialised `Checksums`. The file has the fields of the table as of `schema_snapshot`.
    `end_snapshot` is None while the block is live; `changed_in` is the commit that last wrote this record. The blocks
    of a partition are sorted by primary key; `first_key` and `last_key` are bytes in key order.
    """

    data_file_id: int
    table_id: int
    path: str
    format: str
    role: BlockRole
    row_order: RowOrder
    size: int
    record_count: int
    row_ids: bytes
    min_row_id: int
    max_row_id: int
    min_snapshot: int
    max_snapshot: int
    column_stats: bytes
    partition_id: int | None
    schema_snapshot: int
    begin_snapshot: int
    end_snapshot: int | None
    changed_in: int
    first_key: bytes | None
    last_key: bytes | None
    checksum: SupportsBytes

    def visible_at(self, snapshot_id: int) -> bool:
        """Return whether a reader at `snapshot_id` reads this block."""
        return self.begin_snapshot <= snapshot_id and (self.end_snapshot is None or self.end_snapshot > snapshot_id)
