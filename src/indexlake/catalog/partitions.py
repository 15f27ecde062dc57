"""The partitions of clustered tables (``indexlake_partition``).

A commit that begins or ends partitions must touch the table's record (``table_heads.touch_table``): readers look for
new partitions when that record has changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from indexlake.catalog.driver import ReadTransaction, Transaction
from indexlake.catalog.tables import next_values
from indexlake.partitions.partition import Partition

Bounds = tuple[int, bytes | None, bytes | None]
"""(partition id, first key, first key of the next partition)"""

_COLUMNS = "partition_id, table_id, begin_key, end_key, begin_snapshot, end_snapshot, changed_in"


def read_partitions(r: ReadTransaction | Transaction, table_id: int, since: int = -1) -> list[Partition]:
    rows = r.rows(
        f"select {_COLUMNS} from indexlake_partition where table_id = ? and changed_in > ? order by partition_id",
        (table_id, since),
    )
    return [Partition(*row) for row in rows]


def live_partitions(r: ReadTransaction | Transaction, table_id: int) -> list[Partition]:
    rows = r.rows(
        f"select {_COLUMNS} from indexlake_partition where table_id = ? and end_snapshot is null", (table_id,)
    )
    return [Partition(*row) for row in rows]


def has_any(r: ReadTransaction | Transaction, table_id: int) -> bool:
    """Return whether the table has any partition records, live or ended."""
    return bool(r.rows("select 1 from indexlake_partition where table_id = ? limit 1", (table_id,)))


def live_among(r: Transaction, partition_ids: Collection[int]) -> set[int]:
    """Return those of the partitions that are live."""
    found: set[int] = set()
    ids = list(partition_ids)
    for n in range(0, len(ids), 500):
        some = ids[n : n + 500]
        rows = r.rows(
            f"""select partition_id from indexlake_partition where end_snapshot is null
            and partition_id in ({", ".join("?" * len(some))})""",
            some,
        )
        found |= {number for (number,) in rows}
    return found


# ---------------------------------------------------------------- writing, inside the critical section


def new_partition_ids(tx: Transaction, count: int) -> list[int]:
    """Return ids that nobody else gets."""
    first = next_values(tx, "partition", count)
    return list(range(first, first + count))


def add_partitions(tx: Transaction, table_id: int, bounds: Iterable[Bounds], snapshot: int) -> None:
    """Begin partitions, each given by its id and range."""
    tx.execute_many(
        f"insert into indexlake_partition ({_COLUMNS}) values (?, ?, ?, ?, ?, null, ?)",
        [(number, table_id, begin, end, snapshot, snapshot) for number, begin, end in bounds],
    )


def end_partitions(tx: Transaction, partition_ids: Iterable[int], snapshot: int) -> None:
    tx.execute_many(
        "update indexlake_partition set end_snapshot = ?, changed_in = ? where partition_id = ?",
        [(snapshot, snapshot, partition_id) for partition_id in partition_ids],
    )


def drop_ended_partitions(tx: Transaction, table_id: int, horizon: int) -> None:
    """Remove ended partitions that no retained snapshot shows and no block belongs to."""
    tx.execute(
        """delete from indexlake_partition where table_id = ? and end_snapshot <= ? and not exists
        (select 1 from indexlake_data_file f where f.partition_id = indexlake_partition.partition_id)""",
        (table_id, horizon),
    )
