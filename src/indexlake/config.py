"""Table settings: persisted with the table, checked when they are made."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from datetime import timedelta
from typing import Any

from indexlake.errors import SchemaError

FORMATS = ("vortex", "parquet", "ipc")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableConfig:
    """How one table keeps its rows.

    Parameters
    ----------
    inline_row_count_limit
        Rows (live and superseded) in the hot store beyond which a background dump starts.
    direct_write_row_count
        Batches of at least this many rows go straight to blocks.
    block_row_count
        Rows of a full block.
    dump_format
        File format of new blocks: ``"vortex"``, ``"parquet"`` or ``"ipc"``.  Small blocks that a statement writes
        (fewer rows than 1/32 of a full one) are Arrow files instead of Vortex until they are compacted.
    retention
        How long past snapshots stay readable: a ``timedelta`` or seconds.  Zero still keeps the last 60 seconds.
    freeze_after
        ``pipeline.run`` turns blocks whose rows are all older than this into Parquet: a ``timedelta`` or seconds.
        None: never.
    """

    inline_row_count_limit: int = 100_000
    direct_write_row_count: int = 10_000
    block_row_count: int = 1_000_000
    dump_format: str = "vortex"
    retention: timedelta = timedelta(days=7)
    freeze_after: timedelta | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "retention", _time("retention", self.retention))
        if self.freeze_after is not None:
            object.__setattr__(self, "freeze_after", _time("freeze_after", self.freeze_after))
        for name in ("inline_row_count_limit", "direct_write_row_count", "block_row_count"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise SchemaError(f"{name} must be a whole number, 1 or more; got {value!r}.")
        if self.block_row_count > 1 << 31:
            raise SchemaError(f"block_row_count must be at most {1 << 31}; got {self.block_row_count}.")
        if self.dump_format not in FORMATS:
            raise SchemaError(f"dump_format must be one of {', '.join(FORMATS)}; got {self.dump_format!r}.")

    def to_json(self) -> str:
        seconds = {n: t.total_seconds() for n in ("retention", "freeze_after") if (t := getattr(self, n)) is not None}
        return json.dumps(asdict(self) | seconds, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> TableConfig:
        known = {f.name for f in fields(cls)}
        values: dict[str, Any] = {k: v for k, v in json.loads(text).items() if k in known}
        return cls(**values)


def _time(name: str, given: Any) -> timedelta:
    """What a timedelta or a number of seconds means."""
    with suppress(ValueError, OverflowError):
        time = timedelta(seconds=given) if type(given) in (int, float) else given
        if isinstance(time, timedelta) and time >= timedelta(0):
            return time
    raise SchemaError(f"{name} must be a timedelta or a number of seconds, zero or more; got {given!r}.")
