"""The records of blocks (``indexlake_data_file``).

Readers cache them and fetch what was physically written since (``changed_in``), or everything but the checksums.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from pyroaring import BitMap

from indexlake.blocks.block import BlockRecord
from indexlake.catalog import delete_entries, segments
from indexlake.catalog.checksums import Kept
from indexlake.catalog.driver import ReadTransaction, Row, Transaction, all_rows
from indexlake.catalog.tables import next_values

_BLOCK_COLUMNS = """data_file_id, table_id, relative_path, format, role, row_order, file_size_bytes, record_count,
    row_ids, min_row_id, max_row_id, min_snapshot, max_snapshot, column_stats, partition_id,
    schema_snapshot, begin_snapshot, end_snapshot, changed_in, first_key, last_key"""
_PATH = BlockRecord._fields.index("path")


def read_blocks(r: ReadTransaction | Transaction, table_id: int, since: int = -1) -> list[BlockRecord]:
    """Return the records written after ``since``, sorted here: the database would need a copy of them all to do so."""
    sql = f"select {_BLOCK_COLUMNS} from indexlake_data_file where table_id = ? and changed_in > ?"
    return sorted(_records(r, all_rows(r, since)(sql, (table_id, since))), key=attrgetter("data_file_id"))


def _records(r: ReadTransaction | Transaction, rows: Iterable[Row]) -> Iterator[BlockRecord]:
    catalog, make = r.catalog, BlockRecord._make
    return (make((*row, Kept(catalog, row[_PATH]))) for row in rows)


def block_ids(r: ReadTransaction | Transaction, table_id: int) -> list[int]:
    rows = r.rows("select data_file_id from indexlake_data_file where table_id = ?", (table_id,))
    return [file_id for (file_id,) in rows]


def live_block_ids(r: Transaction, file_ids: Sequence[int]) -> set[int]:
    """Return those of the blocks that are still live."""
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


def live_ids(r: Transaction, table_id: int) -> set[int]:
    """Return the ids of all live data blocks of a table."""
    rows = r.rows(
        """select data_file_id from indexlake_data_file where table_id = ? and end_snapshot is null
        and role <> 'history'""",
        (table_id,),
    )
    return {file_id for (file_id,) in rows}


def live_blocks_with(r: Transaction, table_id: int, low: int, high: int, since: int) -> list[BlockRecord]:
    """Return live data blocks written since whose row ids may lie within the bounds, newest first."""
    rows = r.rows(
        f"""select {_BLOCK_COLUMNS} from indexlake_data_file where table_id = ? and changed_in > ?
        and end_snapshot is null and role <> 'history' and min_row_id <= ? and max_row_id >= ?
        order by data_file_id desc""",
        (table_id, since, high, low),
    )
    return list(_records(r, rows))


def live_row_count(r: ReadTransaction | Transaction, table_id: int) -> int:
    """Return the number of rows in live data blocks that are not deleted."""
    files = r.rows(
        """select data_file_id, record_count from indexlake_data_file
        where table_id = ? and end_snapshot is null and role <> 'history'""",
        (table_id,),
    )
    total = sum(int(count) for _, count in files)
    for file_id, _ in files:
        dead = delete_entries.deleted_positions(r, file_id)
        total -= len(BitMap.union(*dead)) if dead else 0
    return total


def has_new_live_blocks(r: Transaction, table_id: int, since: int, newest_above: int = -1) -> bool:
    """Return whether a live block was physically written after ``since`` with rows committed after ``newest_above``."""
    return bool(
        r.rows(
            """select 1 from indexlake_data_file where table_id = ? and changed_in > ? and end_snapshot is null
            and role <> 'history' and max_snapshot > ? limit 1""",
            (table_id, since, newest_above),
        )
    )


def has_new_keyed_blocks(r: Transaction, table_id: int, since: int) -> bool:
    """Return whether a live block that is not in row-id order was physically written after ``since``."""
    return bool(
        r.rows(
            """select 1 from indexlake_data_file where table_id = ? and changed_in > ? and end_snapshot is null
            and role <> 'history' and row_order <> 'row_id' limit 1""",
            (table_id, since),
        )
    )


def relabel(tx: Transaction, labels: Iterable[tuple[int, int]], snapshot: int, *, role: str | None = None) -> None:
    """Assign blocks (first) to other partitions (second), and give them another role if one is given."""
    tx.execute_many(
        """update indexlake_data_file set partition_id = ?, role = coalesce(?, role), changed_in = ?
        where data_file_id = ?""",
        [(partition_id, role, snapshot, file_id) for file_id, partition_id in labels],
    )


def label(r: Transaction, file_id: int) -> int:
    """Return the partition that a block of a clustered table is in."""
    return int(r.rows("select partition_id from indexlake_data_file where data_file_id = ?", (file_id,))[0][0])


def live_blocks_of(r: Transaction, partition_ids: Sequence[int]) -> list[BlockRecord]:
    found: list[BlockRecord] = []
    for partition_id in partition_ids:
        rows = r.rows(
            f"""select {_BLOCK_COLUMNS} from indexlake_data_file where partition_id = ? and end_snapshot is null
            order by data_file_id""",
            (partition_id,),
        )
        found += _records(r, rows)
    return found


def recorded(r: Transaction, file_ids: Sequence[int]) -> set[int]:
    """Return those of the blocks that have a record, live or not."""
    found: set[int] = set()
    for n in range(0, len(file_ids), 500):
        some = file_ids[n : n + 500]
        marks = ", ".join("?" * len(some))
        rows = r.rows(f"select data_file_id from indexlake_data_file where data_file_id in ({marks})", some)
        found |= {file_id for (file_id,) in rows}
    return found


# ---------------------------------------------------------------- writing, inside the critical section


def add_block(tx: Transaction, block: BlockRecord) -> int:
    """Insert the record under a fresh id, and return the id."""
    file_id = next_values(tx, "data_file")
    insert_blocks(tx, [block._replace(data_file_id=file_id)])
    return file_id


def insert_blocks(tx: Transaction, blocks: Iterable[BlockRecord]) -> None:
    """Insert records under the ids that they have."""
    marks = ", ".join("?" * len(BlockRecord._fields))
    sql = f"insert into indexlake_data_file ({_BLOCK_COLUMNS}, checksum) values ({marks})"
    tx.execute_many(sql, [(*block[:-1], bytes(block.checksum)) for block in blocks])


def end_live_blocks(tx: Transaction, table_id: int, snapshot: int) -> None:
    """End every live data block of a truncated table."""
    end_blocks(tx, sorted(live_ids(tx, table_id)), snapshot)


def end_blocks(tx: Transaction, file_ids: Sequence[int], snapshot: int) -> None:
    """End blocks, so that no snapshot from this one on reads them; their segments stay for earlier snapshots."""
    tx.execute_many(
        "update indexlake_data_file set end_snapshot = ?, changed_in = ? where data_file_id = ?",
        [(snapshot, snapshot, file_id) for file_id in file_ids],
    )


# ---------------------------------------------------------------- expire, inside the critical section


def drop_ended_blocks(tx: Transaction, table_id: int, horizon: int, now: int, limit: int) -> int:
    """Remove up to ``limit`` blocks that no retained snapshot needs; return how many."""
    rows = tx.rows(
        "select data_file_id from indexlake_data_file where table_id = ? and end_snapshot <= ? limit ?",
        (table_id, horizon, limit),
    )
    return _drop(tx, table_id, [file_id for (file_id,) in rows], now)


def drop_any_blocks(tx: Transaction, table_id: int, now: int, limit: int) -> int:
    """Remove up to ``limit`` blocks of a removed table; return how many."""
    rows = tx.rows("select data_file_id from indexlake_data_file where table_id = ? limit ?", (table_id, limit))
    return _drop(tx, table_id, [file_id for (file_id,) in rows], now)


def _drop(tx: Transaction, table_id: int, file_ids: Sequence[int], now: int) -> int:
    """Remove the records of blocks with their deletes and links, and remember their files as garbage."""
    if not file_ids:
        return 0
    segments.drop_links_of(tx, table_id, file_ids, now)
    these = f"data_file_id in ({', '.join('?' * len(file_ids))})"
    tx.execute(
        f"""insert into indexlake_garbage (relative_path, table_id, unreachable_at, checksum)
        select relative_path, table_id, {int(now)}, checksum from indexlake_data_file where {these}
        on conflict (relative_path) do nothing""",
        file_ids,
    )
    tx.execute(f"delete from indexlake_delete where {these}", file_ids)
    return tx.execute(f"delete from indexlake_data_file where {these}", file_ids)
