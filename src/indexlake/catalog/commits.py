"""Snapshots, tokens, and the row sets that commits leave behind for the validation of others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pyroaring import BitMap64

from indexlake.catalog.driver import ReadTransaction, Transaction

_ADD = """insert into indexlake_snapshot (snapshot_id, committed_at, operation, summary, commit_token)
    values (?, ?, ?, ?, ?)"""


def last_snapshot(r: ReadTransaction | Transaction) -> tuple[int, int]:
    """(snapshot id, commit time) of the newest commit."""
    rows = r.rows("select snapshot_id, committed_at from indexlake_snapshot order by snapshot_id desc limit 1")
    return rows[0][0], rows[0][1]


def add_snapshot(
    tx: Transaction, snapshot: int, committed_at: int, operation: str, summary: str | None, token: str | None
) -> None:
    tx.execute(_ADD, (snapshot, committed_at, operation, summary, token))


def snapshot_of_token(tx: Transaction, token: str) -> int | None:
    rows = tx.rows("select snapshot_id from indexlake_snapshot where commit_token = ?", (token,))
    return int(rows[0][0]) if rows else None


def snapshot_at_time(r: ReadTransaction | Transaction, time: int) -> int | None:
    """The newest snapshot committed at or before a time."""
    rows = r.rows(
        """select snapshot_id from indexlake_snapshot where committed_at <= ?
        order by committed_at desc, snapshot_id desc limit 1""",
        (time,),
    )
    return int(rows[0][0]) if rows else None


def list_snapshots(r: ReadTransaction, since: int = -1) -> Iterator[tuple[int, int, str, str | None]]:
    return r.query(
        """select snapshot_id, committed_at, operation, summary from indexlake_snapshot
        where snapshot_id >= ? order by snapshot_id""",
        (since,),
    )


def drop_snapshots_below(tx: Transaction, horizon: int) -> int:
    return tx.execute("delete from indexlake_snapshot where snapshot_id < ?", (horizon,))


# ---------------------------------------------------------------- user tokens


def token_result(tx: ReadTransaction | Transaction, token: str) -> dict[str, Any] | None:
    rows = tx.rows("select result from indexlake_token where token = ?", (token,))
    return json.loads(rows[0][0]) if rows else None


def add_token(tx: Transaction, token: str, snapshot: int, result: dict[str, Any], now: int) -> None:
    tx.execute("insert into indexlake_token values (?, ?, ?, ?)", (token, snapshot, json.dumps(result), now))


def drop_tokens_before(tx: Transaction, time: int) -> int:
    return tx.execute("delete from indexlake_token where created_at < ?", (time,))


# ---------------------------------------------------------------- touched and locked rows


def add_touched(tx: Transaction, table_id: int, snapshot: int, row_ids: BitMap64 | None) -> None:
    """None: the commit may have touched any row (truncate)."""
    data = None if row_ids is None else row_ids.serialize()
    tx.execute("insert into indexlake_touched values (?, ?, ?)", (table_id, snapshot, data))


def add_locked(tx: Transaction, table_id: int, snapshot: int, row_ids: BitMap64) -> None:
    tx.execute("insert into indexlake_locked values (?, ?, ?)", (table_id, snapshot, row_ids.serialize()))


def touched_since(tx: Transaction, table_id: int, since: int) -> list[tuple[int, BitMap64 | None]]:
    """(snapshot, row ids touched; None = all) of the commits after ``since``."""
    rows = tx.rows(
        "select snapshot_id, row_ids from indexlake_touched where table_id = ? and snapshot_id > ?", (table_id, since)
    )
    return [(s, None if data is None else BitMap64.deserialize(data)) for s, data in rows]


def conflicting_since(tx: Transaction, table_id: int, since: int, row_ids: BitMap64) -> int | None:
    """The first commit after ``since`` that touched or locked one of the rows."""
    rows = tx.rows(
        """select snapshot_id, row_ids from indexlake_touched where table_id = ? and snapshot_id > ?
        union all select snapshot_id, row_ids from indexlake_locked where table_id = ? and snapshot_id > ?""",
        (table_id, since, table_id, since),
    )
    for snapshot, data in sorted(rows, key=lambda row: row[0]):
        if data is None or not row_ids.isdisjoint(BitMap64.deserialize(data)):
            return int(snapshot)
    return None


def drop_touched_up_to(tx: Transaction, table_id: int, horizon: int) -> None:
    for name in ("touched", "locked"):
        tx.execute(f"delete from indexlake_{name} where table_id = ? and snapshot_id <= ?", (table_id, horizon))
