"""Snapshots, tokens, and the row sets that commits leave behind for the validation of others: SQL only.

What they mean is the sequencer's business (`commit.sequencer`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from indexlake.catalog.clock import SERVER_CLOCK
from indexlake.catalog.driver import Catalog, ReadTransaction, Transaction

RESERVED = 2**62
"""Stands for the snapshot of rows that are locked by a writer whose turn it is: later than any transaction."""

_IN_LIMIT = 500
_ADD = """insert into indexlake_snapshot (snapshot_id, committed_at, operation, summary, commit_token)
    values (?, ?, ?, ?, ?)"""
_ENDS = "select (select min(snapshot_id) from indexlake_snapshot), (select max(snapshot_id) from indexlake_snapshot)"
_NEWEST = f"""select snapshot_id, committed_at, {SERVER_CLOCK} from indexlake_snapshot
    order by snapshot_id desc limit 1"""
_AT_LEAST = """select snapshot_id, committed_at from indexlake_snapshot where snapshot_id >= ?
    order by snapshot_id limit 1"""


def last_snapshot(r: ReadTransaction | Transaction) -> tuple[int, int]:
    """(snapshot id, commit time) of the newest commit."""
    rows = r.rows("select snapshot_id, committed_at from indexlake_snapshot order by snapshot_id desc limit 1")
    return rows[0][0], rows[0][1]


def newest(r: ReadTransaction | Transaction) -> tuple[int, int, int | None]:
    """The same, and what the server's clock says."""
    rows = r.rows(_NEWEST)
    return rows[0][0], rows[0][1], rows[0][2]


def lake_time(catalog: Catalog) -> int:
    """The present, by the lake's clock."""
    with catalog.read() as r:
        _, committed_at, server = newest(r)
    return catalog.time(server, committed_at)


def add_snapshot(
    tx: Transaction, snapshot: int, committed_at: int, operation: str, summary: str | None, token: str | None
) -> None:
    tx.send(_ADD, (snapshot, committed_at, operation, summary, token))


def add_snapshots(tx: Transaction, rows: Sequence[tuple[int, int, str, str | None, str | None]]) -> None:
    """Several at once: (snapshot, committed at, operation, summary, token)."""
    names = ("snapshot_id", "committed_at", "operation", "summary", "commit_token")
    tx.insert_rows("indexlake_snapshot", names, rows)


def snapshot_of_token(tx: Transaction, token: str) -> int | None:
    rows = tx.rows("select snapshot_id from indexlake_snapshot where commit_token = ?", (token,))
    return int(rows[0][0]) if rows else None


def snapshot_made(tx: Transaction, snapshot: int | None, committed_at: int) -> int | None:
    """The snapshot, if it is the one that was committed at that very microsecond."""
    rows = tx.rows(
        "select snapshot_id from indexlake_snapshot where snapshot_id = ? and committed_at = ?",
        (snapshot, committed_at),
    )
    return int(rows[0][0]) if rows else None


def write_over_lost_commit(tx: Transaction) -> None:
    """A COMMIT that failed may lie whole in SQLite's log, where a crash would bring it back: take its place."""
    tx.execute("update indexlake_lake set incarnation = incarnation")


def microseconds(time: datetime) -> int:
    """A moment as the catalog holds it, to the microsecond: a float would lose the last one."""
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def snapshot_at_time(r: ReadTransaction | Transaction, time: int) -> int | None:
    """The newest snapshot committed at or before a time.

    Times never go back as numbers grow, so they are searched by halves: an index on them would cost each commit a page.
    """
    first, last = r.rows(_ENDS)[0]
    found = None
    while first is not None and first <= last:
        middle = (first + last) // 2
        number, at = r.rows(_AT_LEAST, (middle,))[0]
        if at <= time:
            found, first = number, number + 1
        else:
            last = middle - 1
    return found


def list_snapshots(r: ReadTransaction | Transaction, since: int = -1) -> Iterator[tuple[int, int, str, str | None]]:
    return r.query(
        """select snapshot_id, committed_at, operation, summary from indexlake_snapshot
        where snapshot_id >= ? order by snapshot_id""",
        (since,),
    )


def job_snapshots(r: ReadTransaction | Transaction, snapshots: Sequence[int]) -> set[int]:
    """Those of the snapshots that are commits of jobs: they have no summary, for they change no row."""
    found: set[int] = set()
    for start in range(0, len(snapshots), _IN_LIMIT):
        some = snapshots[start : start + _IN_LIMIT]
        sql = f"""select snapshot_id from indexlake_snapshot where snapshot_id in ({", ".join("?" * len(some))})
            and summary is null"""
        found.update(number for (number,) in r.rows(sql, some))
    return found


def drop_snapshots_below(tx: Transaction, horizon: int, limit: int) -> int:
    """Up to ``limit`` of them, the oldest first; how many they were."""
    return tx.execute(
        """delete from indexlake_snapshot where snapshot_id in
        (select snapshot_id from indexlake_snapshot where snapshot_id < ? order by snapshot_id limit ?)""",
        (horizon, limit),
    )


# ---------------------------------------------------------------- user tokens


def token_result(tx: ReadTransaction | Transaction, token: str) -> dict[str, Any] | None:
    rows = tx.rows("select result from indexlake_token where token = ?", (token,))
    return json.loads(rows[0][0]) if rows else None


def add_token(tx: Transaction, token: str, snapshot: int, result: dict[str, Any], now: int) -> None:
    tx.send("insert into indexlake_token values (?, ?, ?, ?)", (token, snapshot, json.dumps(result), now))


def drop_tokens_before(tx: Transaction, time: int) -> int:
    return tx.execute("delete from indexlake_token where created_at < ?", (time,))


# ---------------------------------------------------------------- touched and locked rows


def add_touched(tx: Transaction, table_id: int, snapshot: int, row_ids: bytes | None) -> None:
    tx.send("insert into indexlake_touched values (?, ?, ?)", (table_id, snapshot, row_ids))


def add_locked(tx: Transaction, table_id: int, snapshot: int, row_ids: bytes) -> None:
    tx.send("insert into indexlake_locked values (?, ?, ?)", (table_id, snapshot, row_ids))


def add_all_touched(tx: Transaction, rows: Sequence[tuple[int, int, bytes]]) -> None:
    """Several at once: (table, snapshot, row ids)."""
    _add_row_sets(tx, "indexlake_touched", rows)


def add_all_locked(tx: Transaction, rows: Sequence[tuple[int, int, bytes]]) -> None:
    _add_row_sets(tx, "indexlake_locked", rows)


def _add_row_sets(tx: Transaction, name: str, rows: Sequence[tuple[int, int, bytes]]) -> None:
    if rows:
        tx.insert_rows(name, ("table_id", "snapshot_id", "row_ids"), rows)


def clear_reservation(tx: Transaction, table_id: int) -> None:
    tx.send("delete from indexlake_locked where table_id = ? and snapshot_id = ?", (table_id, RESERVED))


def touched_since(tx: ReadTransaction | Transaction, table_id: int, since: int) -> list[tuple[int, bytes | None]]:
    return tx.rows(
        "select snapshot_id, row_ids from indexlake_touched where table_id = ? and snapshot_id > ?", (table_id, since)
    )


def touched_or_locked_since(tx: Transaction, table_id: int, since: int) -> list[tuple[int, bytes | None]]:
    return tx.rows(
        """select snapshot_id, row_ids from indexlake_touched where table_id = ? and snapshot_id > ?
        union all select snapshot_id, row_ids from indexlake_locked where table_id = ? and snapshot_id > ?""",
        (table_id, since, table_id, since),
    )


def changed_since(tx: Transaction, table_id: int, since: int) -> bool:
    """Whether a commit after ``since`` updated, deleted or locked rows, or added blocks.  Jobs only move versions."""
    return bool(
        tx.rows(
            f"""select 1 from indexlake_touched where table_id = ? and snapshot_id > ?
            union all select 1 from indexlake_locked where table_id = ? and snapshot_id > ? and snapshot_id < {RESERVED}
            union all select 1 from indexlake_data_file where table_id = ? and max_snapshot > ? limit 1""",
            (table_id, since, table_id, since, table_id, since),
        )
    )


def drop_touched_up_to(tx: Transaction, table_id: int, horizon: int, limit: int) -> int:
    """Up to ``limit`` of each kind; how many they were."""
    return sum(
        tx.execute(
            f"""delete from indexlake_{name} where table_id = ? and snapshot_id in
            (select snapshot_id from indexlake_{name} where table_id = ? and snapshot_id <= ? limit ?)""",
            (table_id, table_id, horizon, limit),
        )
        for name in ("touched", "locked")
    )
