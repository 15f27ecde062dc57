"""The catalog record of a partition, a range of primary keys.

A plain immutable value. A range never changes: a split or a join ends records and begins others.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Partition:
    """The keys from ``begin_key`` up to but not including ``end_key``, as bytes in key order; None is unbounded.

    ``end_snapshot`` is None while the partition is live; ``changed_in`` is the commit that last wrote this record.
    """

    partition_id: int
    table_id: int
    begin_key: bytes | None
    end_key: bytes | None
    begin_snapshot: int
    end_snapshot: int | None
    changed_in: int

    def holds(self, first: bytes, last: bytes) -> bool:
        """Return whether two keys, and all between them, lie inside."""
        return (self.begin_key is None or self.begin_key <= first) and (self.end_key is None or last < self.end_key)

    def visible_at(self, snapshot_id: int) -> bool:
        return self.begin_snapshot <= snapshot_id and (self.end_snapshot is None or self.end_snapshot > snapshot_id)
