"""The head of a table: what tells readers whether their copy is complete, and the counters in the table's record."""

from __future__ import annotations

from typing import NamedTuple

from indexlake.catalog.clock import SERVER_CLOCK
from indexlake.catalog.driver import Catalog, Query, ReadTransaction, Transaction

# The newest snapshot is a scalar subquery: joined as a table it costs SQLite five times as much.
_HEAD = f"""select (select max(snapshot_id) from indexlake_snapshot), (select committed_at from indexlake_snapshot
    where snapshot_id = (select max(snapshot_id) from indexlake_snapshot)), t.schema_version, t.hot_floor,
    t.hot_floor_row_id, t.history_floor, t.history_floor_row_id, t.horizon, t.purge_number, t.end_snapshot,
    t.changed_in, (select max(changed_in) from indexlake_data_file where table_id = t.table_id),
    (select max(changed_in) from indexlake_delete where table_id = t.table_id), {SERVER_CLOCK}
    from indexlake_table t where t.table_id = ?"""


class Head(NamedTuple):
    """The newest snapshot, a table's floors, and when its record, blocks and deletes were last written."""

    last: int
    committed_at: int
    schema_version: int
    hot_floor: tuple[int, int]
    history_floor: tuple[int, int]
    horizon: int
    purge_number: int
    end_snapshot: int | None
    changed_in: int
    blocks_changed_in: int  # -1: there are none
    deletes_changed_in: int
    server_clock: int | None


def head_query(table_id: int) -> Query:
    return _HEAD, (table_id,)


def read_head(r: ReadTransaction | Transaction, table_id: int) -> Head | None:
    """Return a table's head, or None if its record is gone."""
    rows = r.rows_again(*head_query(table_id))
    if not rows:
        return None
    (last, at, version, hot, hot_row, hist, hist_row, horizon, purge, end, changed, blocks, deletes, clock) = rows[0]
    return Head(
        last, at, version, (hot, hot_row), (hist, hist_row), horizon, purge, end, changed,
        -1 if blocks is None else blocks, -1 if deletes is None else deletes, clock,
    )  # fmt: skip


def last_if_known(catalog: Catalog, table_id: int) -> int | None:
    """Return the newest snapshot if nothing was committed since the table's head was last read; None if unknown."""
    rows = catalog.rows_as_before(*head_query(table_id))
    return int(rows[0][0]) if rows else None


def set_floor(
    tx: Transaction, table_id: int, name: str, old: tuple[int, int], new: tuple[int, int], snapshot: int
) -> bool:
    """Advance ``hot_floor`` or ``history_floor`` by compare-and-swap."""
    return bool(
        tx.execute(
            f"""update indexlake_table set {name} = ?, {name}_row_id = ?, changed_in = ?
            where table_id = ? and {name} = ? and {name}_row_id = ? and end_snapshot is null""",
            (*new, snapshot, table_id, *old),
        )
    )


def reserve_row_ids(tx: Transaction, table_id: int, count: int) -> int | None:
    """Return the first of ``count`` row ids reserved for the caller, or None if the table is gone."""
    rows = tx.rows(
        "update indexlake_table set next_row_id = next_row_id + ? where table_id = ? returning next_row_id",
        (count, table_id),
    )
    return int(rows[0][0]) - count if rows else None


def give_back_row_ids(tx: Transaction, table_id: int, end: int, kept: int) -> None:
    """Return unused row ids from ``kept`` up to ``end``, unless more were reserved since."""
    tx.execute(
        "update indexlake_table set next_row_id = ? where table_id = ? and next_row_id = ?", (kept, table_id, end)
    )


def set_horizon(tx: Transaction, table_id: int, horizon: int, snapshot: int) -> None:
    """Move the horizon and increment the purge number, so that every cache reloads."""
    tx.execute(
        """update indexlake_table set horizon = ?, purge_number = purge_number + 1, changed_in = ?
        where table_id = ?""",
        (horizon, snapshot, table_id),
    )


def lowest_horizon(tx: Transaction) -> int:
    """Return the snapshot below which no table of the lake can be read."""
    rows = tx.rows("select min(horizon) from indexlake_table where end_snapshot is null")
    return int(rows[0][0] or 0)


def count_bytes(tx: Transaction, table_id: int, size: int, *, given: bool) -> None:
    """Count the bytes of a new block; ``given`` means that its rows were in no block before."""
    tx.execute(
        """update indexlake_table set bytes_written = bytes_written + ?, bytes_given = bytes_given + ?
        where table_id = ?""",
        (size, size if given else 0, table_id),
    )


def count_bytes_anew(tx: Transaction, table_id: int) -> None:
    """Reset the byte counters of a table whose layout has changed."""
    tx.execute("update indexlake_table set bytes_written = 0, bytes_given = 0 where table_id = ?", (table_id,))


def read_bytes(r: ReadTransaction | Transaction, table_id: int) -> tuple[int, int]:
    """Return the bytes of blocks whose rows came from the hot store or users, and of all blocks ever added."""
    rows = r.rows("select bytes_given, bytes_written from indexlake_table where table_id = ?", (table_id,))
    return (int(rows[0][0]), int(rows[0][1])) if rows else (0, 0)


def touch_table(tx: Transaction, table_id: int, snapshot: int) -> None:
    """Tell readers that something about the table has changed."""
    tx.execute("update indexlake_table set changed_in = ? where table_id = ?", (snapshot, table_id))
