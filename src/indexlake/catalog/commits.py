"""SQL for snapshots, tokens, and the row sets that commits leave behind to validate others.

Their meaning is explained in `commit.sequencer`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from indexlake.catalog.clock import SERVER_CLOCK
from indexlake.catalog.driver import Catalog, Query, ReadTransaction, Transaction

RESERVED = 2**62
"""Stands for the snapshot of rows locked by a writer whose turn it is: later than any transaction."""

_IN_LIMIT = 500
_KEEP = """insert into indexlake_token (token, snapshot_id, result, created_at) values (?, ?, ?, ?)
    on conflict (token) do update set
    snapshot_id = excluded.snapshot_id, result = excluded.result, created_at = excluded.created_at"""
_ADD = """insert into indexlake_snapshot (snapshot_id, committed_at, operation, summary, commit_token)
    values (?, ?, ?, ?, ?)"""
_ENDS = "select (select min(snapshot_id) from indexlake_snapshot), (select max(snapshot_id) from indexlake_snapshot)"
_NEWEST = f"""select snapshot_id, committed_at, {SERVER_CLOCK} from indexlake_snapshot
    order by snapshot_id desc limit 1"""
_TOUCHED_OR_LOCKED = """select snapshot_id, row_ids from indexlake_touched where table_id = ? and snapshot_id > ?
    union all select snapshot_id, row_ids from indexlake_locked where table_id = ? and snapshot_id > ?"""
_AT_LEAST = """select snapshot_id, committed_at from indexlake_snapshot where snapshot_id >= ?
    order by snapshot_id limit 1"""


def last_snapshot(r: ReadTransaction | Transaction) -> tuple[int, int]:
    """Return (snapshot id, commit time) of the newest commit."""
    rows = r.rows("select snapshot_id, committed_at from indexlake_snapshot order by snapshot_id desc limit 1")
    return rows[0][0], rows[0][1]


def newest(r: ReadTransaction | Transaction) -> tuple[int, int, int | None]:
    """Return the same with the server's time."""
    rows = r.rows(_NEWEST)
    return rows[0][0], rows[0][1], rows[0][2]


def lake_time(catalog: Catalog) -> int:
    """Return the present by the lake's clock."""
    with catalog.read() as r:
        _, committed_at, server = newest(r)
    return catalog.time(server, committed_at)


def add_snapshot(
    tx: Transaction, snapshot: int, committed_at: int, operation: str, summary: str | None, token: str | None
) -> None:
    tx.send(_ADD, (snapshot, committed_at, operation, summary, token))


def add_snapshots(tx: Transaction, rows: Sequence[tuple[int, int, str, str | None, str | None]]) -> None:
    """Add several snapshots: (snapshot, committed at, operation, summary, token)."""
    names = ("snapshot_id", "committed_at", "operation", "summary", "commit_token")
    tx.insert_rows("indexlake_snapshot", names, rows)


def snapshot_of_token(tx: Transaction, token: str) -> int | None:
    rows = tx.rows("select snapshot_id from indexlake_snapshot where commit_token = ?", (token,))
    return int(rows[0][0]) if rows else None


def snapshot_made(tx: Transaction, snapshot: int | None, committed_at: int) -> int | None:
    """Return the snapshot if it was committed at exactly this microsecond."""
    rows = tx.rows(
        "select snapshot_id from indexlake_snapshot where snapshot_id = ? and committed_at = ?",
        (snapshot, committed_at),
    )
    return int(rows[0][0]) if rows else None


def write_over_lost_commit(tx: Transaction) -> None:
    """Write something, because SQLite's log may hold a failed COMMIT whole, and a crash would bring it back."""
    tx.execute("update indexlake_lake set incarnation = incarnation")


def microseconds(time: datetime) -> int:
    """Return a moment in microseconds, as the catalog holds it; a float would lose precision."""
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def snapshot_at_time(r: ReadTransaction | Transaction, time: int) -> int | None:
    """Return the newest snapshot committed at or before a time.

    Times never go back as numbers grow, so a binary search finds it: an index on times would cost each commit a page.
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


class RowCounts(NamedTuple):
    """How many rows of a table a commit changed."""

    snapshot: int
    inserted: int
    updated: int
    deleted: int


def row_changes(r: ReadTransaction | Transaction, table_id: int, since: int, until: int) -> Iterator[RowCounts]:
    """Yield the commits in (since, until] that changed rows of a table, oldest first."""
    rows = r.query(
        """select snapshot_id, summary from indexlake_snapshot
        where snapshot_id > ? and snapshot_id <= ? and summary like ? order by snapshot_id""",
        (since, until, f'%"{table_id}":[%'),
    )
    for snapshot, summary in rows:
        counts = RowCounts(snapshot, *json.loads(summary)[str(table_id)])
        if any(counts[1:]):
            yield counts


def job_snapshots(r: ReadTransaction | Transaction, snapshots: Sequence[int]) -> set[int]:
    """Return those snapshots that are commits of jobs, which have no summary because they change no rows."""
    found: set[int] = set()
    for start in range(0, len(snapshots), _IN_LIMIT):
        some = snapshots[start : start + _IN_LIMIT]
        sql = f"""select snapshot_id from indexlake_snapshot where snapshot_id in ({", ".join("?" * len(some))})
            and summary is null"""
        found.update(number for (number,) in r.rows(sql, some))
    return found


def drop_snapshots_below(tx: Transaction, horizon: int, limit: int) -> int:
    """Remove up to ``limit`` of the oldest snapshots below the horizon; return how many."""
    return tx.execute(
        """delete from indexlake_snapshot where snapshot_id in
        (select snapshot_id from indexlake_snapshot where snapshot_id < ? order by snapshot_id limit ?)""",
        (horizon, limit),
    )


# ---------------------------------------------------------------- user tokens


def token_query(token: str) -> Query:
    return "select result from indexlake_token where token = ?", (token,)


def token_result(tx: ReadTransaction | Transaction, token: str) -> dict[str, Any] | None:
    rows = tx.rows(*token_query(token))
    return json.loads(rows[0][0]) if rows else None


def add_token(tx: Transaction, token: str, snapshot: int, result: dict[str, Any], now: int) -> None:
    """Keep the result under the token, in place of an earlier one with a smaller number."""
    tx.send(_KEEP, (token, snapshot, json.dumps(result), now))


def drop_tokens_before(tx: Transaction, time: int) -> int:
    """Forget older tokens, but for those with numbers: a stream may go on after any time."""
    return tx.execute("""delete from indexlake_token where created_at < ? and result not like '%"number"%'""", (time,))


# ---------------------------------------------------------------- touched and locked rows


def add_touched(tx: Transaction, table_id: int, snapshot: int, row_ids: bytes | None) -> None:
    tx.send("insert into indexlake_touched values (?, ?, ?)", (table_id, snapshot, row_ids))


def add_locked(tx: Transaction, table_id: int, snapshot: int, row_ids: bytes) -> None:
    tx.send("insert into indexlake_locked values (?, ?, ?)", (table_id, snapshot, row_ids))


def add_all_touched(tx: Transaction, rows: Sequence[tuple[int, int, bytes]]) -> None:
    """Add the touched rows of several commits: (table, snapshot, row ids)."""
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


def touched_or_locked_query(table_id: int, since: int) -> Query:
    """Return a query for (snapshot, row ids) of the commits after ``since`` that touched or locked rows."""
    return _TOUCHED_OR_LOCKED, (table_id, since, table_id, since)


def changed_since(tx: Transaction, table_id: int, since: int) -> bool:
    """Return whether a commit after ``since`` updated, deleted or locked rows, or added blocks; jobs do not count."""
    return bool(
        tx.rows(
            f"""select 1 from indexlake_touched where table_id = ? and snapshot_id > ?
            union all select 1 from indexlake_locked where table_id = ? and snapshot_id > ? and snapshot_id < {RESERVED}
            union all select 1 from indexlake_data_file where table_id = ? and max_snapshot > ? limit 1""",
            (table_id, since, table_id, since, table_id, since),
        )
    )


def drop_touched_up_to(tx: Transaction, table_id: int, horizon: int, limit: int) -> int:
    """Remove up to ``limit`` records each of touched and locked rows; return how many."""
    return sum(
        tx.execute(
            f"""delete from indexlake_{name} where table_id = ? and snapshot_id in
            (select snapshot_id from indexlake_{name} where table_id = ? and snapshot_id <= ? limit ?)""",
            (table_id, table_id, horizon, limit),
        )
        for name in ("touched", "locked")
    )
