"""Time travel: which snapshot a number or a time means, whether a table still has it, and the lake at that snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from indexlake.catalog import commits, definitions
from indexlake.catalog.definitions import TableRecord
from indexlake.errors import NotFoundError, SchemaError, SnapshotExpiredError

if TYPE_CHECKING:
    from indexlake.lake import Lake
    from indexlake.sql.run.result import SqlResult
    from indexlake.table import Table


class LakeView:
    """The lake at one snapshot, read-only."""

    def __init__(self, lake: Lake, snapshot: int) -> None:
        self._lake = lake
        self.snapshot_id = snapshot

    def __repr__(self) -> str:
        return f"<Lake {self._lake.catalog.location} at snapshot {self.snapshot_id}>"

    def table(self, name: str) -> Table:
        """A read-only handle to a table as it was at this snapshot."""
        view = self._lake._table(name, snapshot=self.snapshot_id)
        with view._reading():
            return view

    def tables(self) -> list[str]:
        """Names of the tables at this snapshot, with their namespaces."""
        with self._lake.catalog.read() as r:
            return [t.full_name for t in definitions.list_tables(r, self.snapshot_id)]

    def sql(
        self,
        text: str,
        params: Mapping[str, Any] | Sequence[Any] | None = None,
        *,
        namespace: str | None = None,
        engine: str = "duckdb",
    ) -> SqlResult:
        """``lake.sql`` at this snapshot: queries only."""
        return self._lake.sql(text, params, namespace=namespace, engine=engine, at=self.snapshot_id)


def snapshot_number(lake: Lake, snapshot: int | None, time: datetime | None) -> int:
    """Return the snapshot that is requested by number or by time."""
    lake._check()
    if (snapshot is None) == (time is None):
        raise SchemaError("at() takes either a snapshot number or time=…")
    if snapshot is not None:
        if isinstance(snapshot, datetime):
            raise SchemaError(f"A snapshot is a whole number; for a time write at(time={snapshot!r}).")
        if not isinstance(snapshot, int) or isinstance(snapshot, bool):
            raise SchemaError(f"A snapshot is a whole number, not {snapshot!r}; for a time write at(time=…).")
        if snapshot > (last := lake.snapshot_id):
            raise NotFoundError(f"There is no snapshot {snapshot} yet; the newest is {last}.", name=str(snapshot))
        return snapshot
    assert time is not None
    if not isinstance(time, datetime) or time.tzinfo is None:
        raise SchemaError("at(time=…) takes a datetime with a time zone, for example datetime.now(UTC).")
    with lake.catalog.read() as r:
        found = commits.snapshot_at_time(r, commits.microseconds(time))
        first = next(commits.list_snapshots(r)) if found is None else None
    if found is not None:
        return min(found, lake.snapshot_id)
    assert first is not None
    made = datetime.fromtimestamp(first[1] / 1e6, UTC).isoformat(timespec="seconds")
    which = "first snapshot" if first[0] == 0 else "oldest snapshot that is kept"  # snapshot 0 created the lake
    raise SnapshotExpiredError(f"The {which} was made at {made}, after {time.isoformat()}.")


def check_snapshot(wanted: int, last: int, table: TableRecord) -> None:
    """Refuse a snapshot at which a table did not exist or is not available; ``last`` is the newest snapshot."""
    if wanted > last:
        raise NotFoundError(f"There is no snapshot {wanted} yet; the newest is {last}.", name=str(wanted))
    if wanted < table.begin_snapshot:
        raise NotFoundError(
            f"Table {table.full_name!r} was created in snapshot {table.begin_snapshot}, after {wanted}.",
            name=table.full_name,
        )
    if table.end_snapshot is not None and wanted >= table.end_snapshot:
        raise NotFoundError(
            f"Table {table.full_name!r} was dropped in snapshot {table.end_snapshot}; read an earlier one.",
            name=table.full_name,
        )
    if wanted < table.horizon:
        raise SnapshotExpiredError(
            f"Snapshot {wanted} of {table.full_name!r} has expired; history is kept from {table.horizon} on "
            f"(retention {table.config.retention}).",
            snapshot_id=wanted,
            horizon=table.horizon,
        )
