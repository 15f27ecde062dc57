"""Blocks, segments and deletes of a table in the catalog: what readers cache.

``read_head`` is the one statement that tells a reader whether its cached layout is still complete; the other
functions fetch what was physically written since (``changed_in``), or everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pyroaring import BitMap

from indexlake.blocks.block import BlockRecord, SegmentRecord
from indexlake.blocks.delete_vector import positions_from_bytes, positions_to_bytes
from indexlake.catalog.clock import SERVER_CLOCK
from indexlake.catalog.driver import ReadTransaction, Transaction
from indexlake.catalog.tables import next_values

_BLOCK_COLUMNS = """data_file_id, table_id, relative_path, format, role, row_order, file_size_bytes, record_count,
    row_ids, min_row_id, max_row_id, min_snapshot, max_snapshot, column_stats, checksum, partition_id,
    schema_snapshot, begin_snapshot, end_snapshot, changed_in"""

# The newest snapshot as a scalar: joined as a table it costs SQLite five times as much.
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


def read_head(r: ReadTransaction | Transaction, table_id: int) -> Head | None:
    """None when the table's record is gone."""
    rows = r.rows(_HEAD, (table_id,))
    if not rows:
        return None
    (last, at, version, hot, hot_row, hist, hist_row, horizon, purge, end, changed, blocks, deletes, clock) = rows[0]
    return Head(
        last, at, version, (hot, hot_row), (hist, hist_row), horizon, purge, end, changed,
        -1 if blocks is None else blocks, -1 if deletes is None else deletes, clock,
    )  # fmt: skip


def read_blocks(r: ReadTransaction | Transaction, table_id: int, since: int = -1) -> list[BlockRecord]:
    rows = r.rows(
        f"select {_BLOCK_COLUMNS} from indexlake_data_file where table_id = ? and changed_in > ? order by data_file_id",
        (table_id, since),
    )
    return [BlockRecord(*row) for row in rows]


def block_ids(r: ReadTransaction | Transaction, table_id: int) -> list[int]:
    """Every block that has a record."""
    rows = r.rows("select data_file_id from indexlake_data_file where table_id = ?", (table_id,))
    return [file_id for (file_id,) in rows]


def live_block_ids(r: Transaction, file_ids: Sequence[int]) -> set[int]:
    """Those of the files that are still live."""
    found: set[int] = set()
    for file_id in file_ids:
        found.update(
            i
            for (i,) in r.rows(
                "select data_file_id from indexlake_data_file where data_file_id = ? and end_snapshot is null",
                (file_id,),
            )
        )
    return found


def live_blocks_with(r: Transaction, table_id: int, low: int, high: int, since: int) -> list[BlockRecord]:
    """Live data blocks written since, whose row ids may lie between the bounds, newest first."""
    rows = r.rows(
        f"""select {_BLOCK_COLUMNS} from indexlake_data_file where table_id = ? and changed_in > ?
        and end_snapshot is null and role <> 'history' and min_row_id <= ? and max_row_id >= ?
        order by data_file_id desc""",
        (table_id, since, high, low),
    )
    return [BlockRecord(*row) for row in rows]


def live_row_count(r: ReadTransaction | Transaction, table_id: int) -> int:
    """Rows in live data blocks that no delete covers."""
    files = r.rows(
        """select data_file_id, record_count from indexlake_data_file
        where table_id = ? and end_snapshot is null and role <> 'history'""",
        (table_id,),
    )
    total = sum(int(count) for _, count in files)
    for file_id, _ in files:
        dead = deleted_positions(r, file_id)
        total -= len(BitMap.union(*dead)) if dead else 0
    return total


def has_new_live_blocks(r: Transaction, table_id: int, since: int, newest_above: int = -1) -> bool:
    """Whether a live block was written, physically, after ``since``, with rows committed after ``newest_above``."""
    return bool(
        r.rows(
            """select 1 from indexlake_data_file where table_id = ? and changed_in > ? and end_snapshot is null
            and role <> 'history' and max_snapshot > ? limit 1""",
            (table_id, since, newest_above),
        )
    )


def read_deletes(r: ReadTransaction | Transaction, table_id: int, since: int = -1) -> list[tuple[int, int, Any]]:
    """(data_file_id, snapshot_id, positions) in commit order."""
    rows = r.rows(
        """select data_file_id, snapshot_id, positions from indexlake_delete where table_id = ? and changed_in > ?
        order by changed_in, snapshot_id""",
        (table_id, since),
    )
    return [(file_id, snapshot, positions_from_bytes(data)) for file_id, snapshot, data in rows]


def deleted_positions(r: ReadTransaction | Transaction, file_id: int) -> list[Any]:
    rows = r.rows("select positions from indexlake_delete where data_file_id = ?", (file_id,))
    return [positions_from_bytes(data) for (data,) in rows]


def read_segments(r: ReadTransaction | Transaction, table_id: int, since: int = -1) -> list[SegmentRecord]:
    rows = r.rows(
        """select s.index_file_id, s.index_id, s.relative_path, s.file_size_bytes, s.checksum, s.min_key, s.max_key,
        s.begin_snapshot, s.end_snapshot, s.changed_in, b.data_file_id
        from indexlake_index_file s join indexlake_index_file_block b on b.index_file_id = s.index_file_id
        where s.table_id = ? and s.changed_in > ? order by s.index_file_id, b.data_file_id""",
        (table_id, since),
    )
    files: dict[int, tuple[Any, list[int]]] = {}
    for *record, block_id in rows:
        files.setdefault(record[0], (record, []))[1].append(block_id)
    return [SegmentRecord(r[0], r[1], tuple(blocks), *r[2:10]) for r, blocks in files.values()]


# ---------------------------------------------------------------- writing, inside the critical section


def add_block(tx: Transaction, block: BlockRecord) -> int:
    """Insert the record under a fresh id, which is returned."""
    file_id = next_values(tx, "data_file")
    values = [getattr(block, name) for name in BlockRecord.__slots__]
    tx.execute(
        f"insert into indexlake_data_file ({_BLOCK_COLUMNS}) values ({', '.join('?' * len(values))})",
        (file_id, *values[1:]),
    )
    return file_id


def add_segment(tx: Transaction, table_id: int, segment: SegmentRecord) -> int:
    segment_id = next_values(tx, "index_file")
    tx.execute(
        """insert into indexlake_index_file (index_file_id, index_id, table_id, relative_path, file_size_bytes,
        checksum, min_key, max_key, begin_snapshot, changed_in) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        (segment_id, segment.index_id, table_id, segment.path, segment.size, segment.checksum, segment.min_key,
         segment.max_key, segment.begin_snapshot, segment.changed_in),
    )  # fmt: skip
    tx.execute_many(
        "insert into indexlake_index_file_block (index_file_id, data_file_id) values (?, ?)",
        [(segment_id, file_id) for file_id in segment.data_file_ids],
    )
    return segment_id


def add_delete(tx: Transaction, table_id: int, file_id: int, snapshot: int, positions: Any, changed_in: int) -> None:
    tx.send(
        """insert into indexlake_delete (data_file_id, snapshot_id, table_id, positions, changed_in)
        values (?, ?, ?, ?, ?)""",
        (file_id, snapshot, table_id, positions_to_bytes(positions), changed_in),
    )


def end_live_blocks(tx: Transaction, table_id: int, snapshot: int) -> None:
    """Truncate: every live data block ends here."""
    live = tx.rows(
        """select data_file_id from indexlake_data_file where table_id = ? and end_snapshot is null
        and role <> 'history'""",
        (table_id,),
    )
    end_blocks(tx, [file_id for (file_id,) in live], snapshot)


def end_blocks(tx: Transaction, file_ids: Sequence[int], snapshot: int) -> None:
    """The blocks and their segments are read by no snapshot from this one on."""
    rows = [(snapshot, snapshot, file_id) for file_id in file_ids]
    tx.execute_many("update indexlake_data_file set end_snapshot = ?, changed_in = ? where data_file_id = ?", rows)
    tx.execute_many(
        """update indexlake_index_file set end_snapshot = ?, changed_in = ? where index_file_id in
        (select index_file_id from indexlake_index_file_block where data_file_id = ?)""",
        rows,
    )


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
    """The first of ``count`` row ids that nobody else will get; None when the table is gone."""
    rows = tx.rows(
        "update indexlake_table set next_row_id = next_row_id + ? where table_id = ? returning next_row_id",
        (count, table_id),
    )
    return int(rows[0][0]) - count if rows else None


def give_back_row_ids(tx: Transaction, table_id: int, end: int, kept: int) -> None:
    """Of the row ids up to ``end`` only those below ``kept`` were used; nothing happens if more were reserved since."""
    tx.execute(
        "update indexlake_table set next_row_id = ? where table_id = ? and next_row_id = ?", (kept, table_id, end)
    )


# ---------------------------------------------------------------- expire, inside the critical section


def fold_deletes(tx: Transaction, table_id: int, horizon: int, snapshot: int) -> int:
    """Deletes up to the horizon hold at every retained snapshot: they become the file's entry 0."""
    rows = tx.rows(
        """select data_file_id, positions from indexlake_delete where table_id = ? and snapshot_id <= ?
        and data_file_id in (select data_file_id from indexlake_delete
                             where table_id = ? and snapshot_id > 0 and snapshot_id <= ?)""",
        (table_id, horizon, table_id, horizon),
    )
    folded: dict[int, Any] = {}
    for file_id, data in rows:
        positions = positions_from_bytes(data)
        folded[file_id] = folded[file_id] | positions if file_id in folded else positions
    for file_id, positions in folded.items():
        tx.execute("delete from indexlake_delete where data_file_id = ? and snapshot_id <= ?", (file_id, horizon))
        add_delete(tx, table_id, file_id, 0, positions, snapshot)
    return len(rows) - len(folded)


def drop_ended_blocks(tx: Transaction, table_id: int, horizon: int, now: int, since: int = -1) -> int:
    """Remove the records of blocks and segments that no retained snapshot reaches; remember their files.

    ``since`` is the horizon of the last time: what ended before is gone, and what ended after was written after.
    """
    ended = "table_id = ? and changed_in > ? and end_snapshot is not null and end_snapshot <= ?"
    for kind in ("data_file", "index_file"):
        tx.execute(
            f"""insert into indexlake_garbage (relative_path, table_id, unreachable_at)
            select relative_path, table_id, {int(now)} from indexlake_{kind} where {ended}
            on conflict (relative_path) do nothing""",
            (table_id, since, horizon),
        )
    files = tx.rows(f"select data_file_id from indexlake_data_file where {ended}", (table_id, since, horizon))
    tx.execute_many("delete from indexlake_delete where data_file_id = ?", files)
    tx.execute_many("delete from indexlake_index_file_block where data_file_id = ?", files)
    tx.execute(f"delete from indexlake_index_file where {ended}", (table_id, since, horizon))
    return tx.execute(f"delete from indexlake_data_file where {ended}", (table_id, since, horizon))


def set_horizon(tx: Transaction, table_id: int, horizon: int, snapshot: int) -> None:
    """Move the horizon and bump the purge number, so that every cache reloads."""
    tx.execute(
        """update indexlake_table set horizon = ?, purge_number = purge_number + 1, changed_in = ?
        where table_id = ?""",
        (horizon, snapshot, table_id),
    )


def lowest_horizon(tx: Transaction) -> int:
    """Below it no table of the lake can be read."""
    rows = tx.rows("select min(horizon) from indexlake_table where end_snapshot is null")
    return int(rows[0][0] or 0)
