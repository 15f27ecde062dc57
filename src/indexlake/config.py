"""Table settings: stored with the table, and checked when they are created."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from datetime import timedelta
from functools import lru_cache
from typing import Any

from indexlake.errors import SchemaError

FORMATS = ("vortex", "parquet", "ipc")
_COUNTS = (
    *("inline_row_count_limit", "direct_write_row_count", "block_row_count"),
    *("partition_row_count", "partition_bytes", "delta_row_limit"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableConfig:
    """How one table keeps its rows.

    Parameters
    ----------
    inline_row_count_limit
        A background dump starts when the hot store has more rows than this, live and superseded ones together.
    direct_write_row_count
        Writes of at least this many rows go straight to blocks.
    block_row_count
        Rows of a full block.
    dump_format
        File format of new blocks: ``"vortex"``, ``"parquet"`` or ``"ipc"``.  Small blocks that a statement writes
        (fewer rows than 1/32 of a full one) are Arrow files instead of Vortex until they are compacted.
    retention
        How long past snapshots stay readable: a ``timedelta`` or seconds.  The last 60 seconds are always kept.
    freeze_after
        ``pipeline.run`` turns blocks whose rows are all older than this into Parquet: a ``timedelta`` or seconds.
        None: never.
    partition_row_count
        The size of a full partition of a clustered table, in rows; partitions half as large again are split.
    partition_bytes
        The same, in bytes of its files.
    merge_ratio
        A partition is merged when its delta rows reach this ratio to its other rows.
    delta_row_limit
        A partition is merged when it has this many delta rows, whatever the ratio.  None: no such limit.  With random
        keys, a limit makes a table write every row many times.
    comment
        A description of the table.
    """

    inline_row_count_limit: int = 100_000
    direct_write_row_count: int = 10_000
    block_row_count: int = 1_000_000
    dump_format: str = "vortex"
    retention: timedelta = timedelta(days=7)
    freeze_after: timedelta | None = None
    partition_row_count: int = 1_000_000
    partition_bytes: int = 250_000_000
    merge_ratio: float = 1.0
    delta_row_limit: int | None = None
    comment: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "retention", _time("retention", self.retention))
        if self.freeze_after is not None:
            object.__setattr__(self, "freeze_after", _time("freeze_after", self.freeze_after))
        for name in _COUNTS:
            value = getattr(self, name)
            if value is None and name == "delta_row_limit":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise SchemaError(f"{name} must be a whole number, 1 or more; got {value!r}.")
        if self.block_row_count > 1 << 31:
            raise SchemaError(f"block_row_count must be at most {1 << 31}; got {self.block_row_count}.")
        if type(self.merge_ratio) not in (int, float) or not 0 < self.merge_ratio <= 100:
            raise SchemaError(f"merge_ratio must be a number above 0, at most 100; got {self.merge_ratio!r}.")
        if self.comment is not None and not isinstance(self.comment, str):
            raise SchemaError(f"comment is a text, or None; got {self.comment!r}.")
        if self.dump_format not in FORMATS:
            raise SchemaError(f"dump_format must be one of {', '.join(FORMATS)}; got {self.dump_format!r}.")

    def to_json(self) -> str:
        seconds = {n: t.total_seconds() for n in ("retention", "freeze_after") if (t := getattr(self, n)) is not None}
        return json.dumps(asdict(self) | seconds, sort_keys=True)

    @classmethod
    @lru_cache(256)
    def from_json(cls, text: str) -> TableConfig:
        """Cached by text, since it is called with every read of a table's record."""
        known = {f.name for f in fields(cls)}
        values: dict[str, Any] = {k: v for k, v in json.loads(text).items() if k in known}
        return cls(**values)


def _time(name: str, given: Any) -> timedelta:
    """Return a setting given as a timedelta or a number of seconds as a timedelta."""
    with suppress(ValueError, OverflowError):
        time = timedelta(seconds=given) if type(given) in (int, float) else given
        if isinstance(time, timedelta) and time >= timedelta(0):
            return time
    raise SchemaError(f"{name} must be a timedelta or a number of seconds, zero or more; got {given!r}.")
