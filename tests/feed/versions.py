"""What a feed must say, by its definition: the versions of two neighbouring snapshots compared, row by row."""

from __future__ import annotations

from typing import Any

import indexlake as il
from indexlake.scan.execute import hot_pieces, read_task
from indexlake.scan.plan import plan_scan
from indexlake.schema import ROW_ID, VERSION

Versions = dict[int, tuple[int, dict[str, Any]]]
"""Row id → the commit that wrote the version, and its values."""


def versions_at(table: il.Table, snapshot: int) -> Versions:
    """Every row that a scan at the snapshot gives, with the commit that wrote it."""
    files = table._lake._files
    found: Versions = {}

    def add(row: dict[str, Any], version: int) -> None:
        row_id = row.pop(ROW_ID)
        assert row_id not in found, "a row is shown twice"
        found[row_id] = (version, row)

    with table._reading(snapshot) as reading:
        fields = reading.schema.fields
        plan = plan_scan(reading, files, predicate=None, columns=fields)
    for task in plan.tasks:
        for batch in read_task(task, files, fields, None, row_id=True, version=True):
            for row in batch.to_pylist():
                add(row, row.pop(VERSION))
    for piece in hot_pieces(plan, fields, row_id=True):
        for row, version in zip(piece.batch.to_pylist(), piece.begins.to_pylist(), strict=True):
            add(row, version)
    return found


def difference(before: Versions, after: Versions, snapshot: int) -> list[dict[str, Any]]:
    """The changes of one commit, in the order of the feed."""
    ended = {i: v for i, v in before.items() if i not in after or after[i][0] != v[0]}
    begun = {i: v for i, v in after.items() if i not in before or before[i][0] != v[0]}
    assert all(version == snapshot for version, _ in begun.values()), "a version begins with its commit"

    def change(row_id: int, row: dict[str, Any], kind: str) -> dict[str, Any]:
        return {**row, "_change_type": kind, "_snapshot_id": snapshot, ROW_ID: row_id}

    return [
        *(change(i, ended[i][1], "update_preimage" if i in begun else "delete") for i in sorted(ended)),
        *(change(i, begun[i][1], "update_postimage" if i in ended else "insert") for i in sorted(begun)),
    ]


def expected_feed(table: il.Table, since: int, until: int) -> list[dict[str, Any]]:
    """All of it, read snapshot by snapshot."""
    result: list[dict[str, Any]] = []
    before = versions_at(table, since)
    for snapshot in range(since + 1, until + 1):
        after = versions_at(table, snapshot)
        result += difference(before, after, snapshot)
        before = after
    return result


def replayed(rows: dict[int, dict[str, Any]], changes: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Rows by id after the changes.  Each change must fit what is there."""
    rows = dict(rows)
    for change in changes:
        kind, row_id = change["_change_type"], change[ROW_ID]
        values = {k: v for k, v in change.items() if k not in ("_change_type", "_snapshot_id", ROW_ID)}
        if kind in ("delete", "update_preimage"):
            assert rows.pop(row_id) == values
        else:
            assert row_id not in rows
            rows[row_id] = values
    return rows
