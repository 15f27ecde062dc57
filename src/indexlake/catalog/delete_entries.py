"""What commits deleted from blocks (``indexlake_delete``): positions, by block and snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from indexlake.blocks.delete_vector import positions_from_bytes, positions_to_bytes
from indexlake.catalog.driver import ReadTransaction, Transaction


def read_deletes(r: ReadTransaction | Transaction, table_id: int, since: int = -1) -> list[tuple[int, int, Any]]:
    """Return (data_file_id, snapshot_id, positions) in commit order."""
    rows = r.rows(
        """select data_file_id, snapshot_id, positions from indexlake_delete where table_id = ? and changed_in > ?
        order by changed_in, snapshot_id""",
        (table_id, since),
    )
    return [(file_id, snapshot, positions_from_bytes(data)) for file_id, snapshot, data in rows]


def deleted_positions(r: ReadTransaction | Transaction, file_id: int) -> list[Any]:
    rows = r.rows("select positions from indexlake_delete where data_file_id = ?", (file_id,))
    return [positions_from_bytes(data) for (data,) in rows]


def add_delete(tx: Transaction, table_id: int, file_id: int, snapshot: int, positions: Any, changed_in: int) -> None:
    tx.send(
        """insert into indexlake_delete (data_file_id, snapshot_id, table_id, positions, changed_in)
        values (?, ?, ?, ?, ?)""",
        (file_id, snapshot, table_id, positions_to_bytes(positions), changed_in),
    )


def add_deletes(tx: Transaction, rows: Sequence[tuple[int, int, int, Any]]) -> None:
    """Add several deletes: (table, data file, snapshot, positions)."""
    if rows:
        names = ("table_id", "data_file_id", "snapshot_id", "positions", "changed_in")
        tx.insert_rows("indexlake_delete", names, [(t, f, s, positions_to_bytes(p), s) for t, f, s, p in rows])


def unfolded(r: ReadTransaction | Transaction, table_id: int) -> list[tuple[int, int]]:
    """Return (first snapshot, data_file_id) of blocks with deletes newer than entry 0, the oldest last."""
    return r.rows(
        """select min(snapshot_id) as first, data_file_id from indexlake_delete where table_id = ? and snapshot_id > 0
        group by data_file_id order by first desc""",
        (table_id,),
    )


def fold_deletes(tx: Transaction, table_id: int, horizon: int, snapshot: int, file_ids: Sequence[int]) -> int:
    """Merge deletes up to the horizon, which hold at every retained snapshot, into entry 0 of their blocks."""
    if not file_ids:
        return 0
    rows = tx.rows(
        f"""select data_file_id, positions from indexlake_delete where snapshot_id <= ?
        and data_file_id in ({", ".join("?" * len(file_ids))})""",
        (horizon, *file_ids),
    )
    folded: dict[int, Any] = {}
    for file_id, data in rows:
        positions = positions_from_bytes(data)
        folded[file_id] = folded[file_id] | positions if file_id in folded else positions
    for file_id, positions in folded.items():
        tx.execute("delete from indexlake_delete where data_file_id = ? and snapshot_id <= ?", (file_id, horizon))
        add_delete(tx, table_id, file_id, 0, positions, snapshot)
    return len(rows) - len(folded)
