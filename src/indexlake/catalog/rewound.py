"""The definitions of an earlier snapshot, within a transaction that will be rolled back."""

from __future__ import annotations

from indexlake.catalog.definitions import former_names, namespace_id_of, read_table
from indexlake.catalog.driver import Transaction


def tables_changed_since(tx: Transaction, snapshot: int) -> set[int]:
    """Return the ids of the tables of a snapshot whose columns or names were changed since, or that were dropped."""
    rows = tx.rows(
        "select table_id from indexlake_table where begin_snapshot <= ? and schema_version > ?", (snapshot, snapshot)
    )
    return {table_id for (table_id,) in rows}


def tables_changed_in(tx: Transaction, snapshot: int) -> list[tuple[int, bool, bool]]:
    """Return (table id, whether it is new, whether it has ended) of tables whose definition a snapshot changes."""
    rows = tx.rows(
        "select table_id, begin_snapshot, end_snapshot from indexlake_table where changed_in = ?", (snapshot,)
    )
    return [(table_id, begin == snapshot, end is not None) for table_id, begin, end in rows]


def name_of(tx: Transaction, table_id: int) -> str:
    table = read_table(tx, table_id)
    return str(table_id) if table is None else table.full_name


def rewind(tx: Transaction, snapshot: int) -> None:
    """Take back what later commits have done to names: those of schemas, tables, views and the like.

    Columns and indexes stay as they are now.
    """
    names = former_names(tx, snapshot)
    for table_id, _, _ in names:  # two tables may have swapped their names
        tx.execute("update indexlake_table set folded_name = ? where table_id = ?", (f"\x01{table_id}", table_id))
    for table in ("namespace", "table", "named"):
        tx.execute(f"delete from indexlake_{table} where begin_snapshot > ?", (snapshot,))
        tx.execute(f"update indexlake_{table} set end_snapshot = null where end_snapshot > ?", (snapshot,))
    for table_id, namespace, name in names:
        tx.execute(
            "update indexlake_table set namespace_id = ?, table_name = ?, folded_name = ? where table_id = ?",
            (namespace_id_of(tx, namespace), name, name.lower(), table_id),
        )
