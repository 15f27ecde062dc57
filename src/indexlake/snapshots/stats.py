"""What a table reports about itself: where its rows are, and the commits that changed it."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

from indexlake.display import counted, html_facts, html_text
from indexlake.snapshots.partition_info import ClusteredStats
from indexlake.snapshots.state import TableState
from indexlake.storage.cache import CacheStats


class Summary(dict[str, Any]):
    """Rows inserted, updated and deleted, by table id; as text, the counts of one table."""

    table_id: int | None = None

    def __str__(self) -> str:
        counts = self.get(str(self.table_id))
        if not isinstance(counts, list):
            return ""
        counted_as = zip(counts, ("inserted", "updated", "deleted"), strict=False)
        return ", ".join(f"{count:,} {done}" for count, done in counted_as if count)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One commit."""

    snapshot_id: int
    committed_at: datetime
    operation: str
    summary: Summary

    def _repr_html_(self) -> str:
        return html_facts(f"snapshot {self.snapshot_id}", {f.name: getattr(self, f.name) for f in fields(self)})


@dataclass(frozen=True, slots=True)
class TableStats:
    """Where the rows of a table are; prints as a picture."""

    table: str
    snapshot_id: int
    rows: int
    hot_rows: int
    superseded_hot_rows: int
    blocks: int
    block_rows: int
    deleted_in_blocks: int
    history_blocks: int
    bytes: int
    by_format: dict[str, int]
    cache: CacheStats | None = None
    """What the local cache did for this table; None: there is no cache."""
    clustered: ClusteredStats | None = None
    """Statistics of its partitions; None: the table is a heap."""
    hot: str = "inline"
    """The hot store that holds the hot rows."""

    def __str__(self) -> str:
        width = 40
        total = max(1, self.hot_rows + self.block_rows - self.deleted_in_blocks)
        lines = [f"{self.table}: {counted(self.rows, 'row')} at snapshot {self.snapshot_id}"]
        for name, rows in [
            ("memory" if self.hot == "memory" else "hot", self.hot_rows),
            *sorted(self.by_format.items()),
        ]:
            bar = "█" * max(1 if rows else 0, round(width * rows / total))
            lines.append(f"  {name:8} {bar:{width}} {counted(rows, 'row')}")
        besides = (
            (self.deleted_in_blocks, "deleted row", " in them"),
            (self.superseded_hot_rows, "superseded row", " in the hot store"),
            (self.history_blocks, "history block", ""),
        )
        extra = "".join(f", {counted(count, noun)}{where}" for count, noun, where in besides if count)
        lines.append(f"  {counted(self.blocks, 'block')} of {counted(self.bytes, 'byte')}{extra}")
        if self.clustered is not None:
            lines.append(f"  {self.clustered}")
        if self.cache is not None:
            lines.append(f"  {self.cache}")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_text(str(self))


def table_stats(
    name: str, state: TableState, snapshot: int, rows: int, live: int, dead: int, cache: CacheStats | None,
    clustered: ClusteredStats | None, hot: str,
) -> TableStats:  # fmt: skip
    """Return the counts at a snapshot; ``live`` and ``dead`` are the current counts of hot rows."""
    visible = state.blocks.visible_at(snapshot)
    blocks = [b for b, seen in zip(state.blocks.records, visible, strict=True) if seen and b.role != "history"]
    history = [b for b in state.blocks.records if b.role == "history"]
    by_format: dict[str, int] = {}
    deleted = 0
    for b in blocks:
        log = state.deletes.get(b.data_file_id)
        gone = log.count_at(snapshot) if log is not None else 0
        deleted += gone
        by_format[b.format] = by_format.get(b.format, 0) + b.record_count - gone
    return TableStats(
        name, snapshot, rows, live, dead, len(blocks), sum(b.record_count for b in blocks), deleted, len(history),
        sum(b.size for b in [*blocks, *history]), by_format, cache, clustered, hot,
    )  # fmt: skip


def snapshot_of(row: tuple[int, int, str, str | None], table_id: int) -> Snapshot:
    """Return a commit from the catalog's record; its summary prints what it did to this table."""
    number, at, operation, summary = row
    counts = Summary(json.loads(summary) if summary else {})
    counts.table_id = table_id
    return Snapshot(number, datetime.fromtimestamp(at / 1e6, UTC), operation, counts)
