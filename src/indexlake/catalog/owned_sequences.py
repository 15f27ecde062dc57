"""Sequences and the tables that need them: by a default, or because a table owns them and takes them with it."""

from __future__ import annotations

from indexlake.catalog.driver import Transaction
from indexlake.catalog.fields import sequences_in
from indexlake.catalog.named import Named, end_named, list_named
from indexlake.catalog.sequence_calls import forget_calls
from indexlake.errors import SchemaError
from indexlake.schema.names import full_name

OWNER = "owner"
"""The key in a sequence's body for the id of the table that owns it."""


def tables_needing(tx: Transaction, sequence: Named) -> list[tuple[int, str, str | None]]:
    """Return the id and name of each table that needs a sequence, and the column with such a default, if any."""
    rows = tx.rows(
        """select t.table_id, t.table_name, f.field_name, f.default_sql from indexlake_field f
        join indexlake_table t on t.table_id = f.table_id
        where f.end_snapshot is null and t.end_snapshot is null and f.default_sql is not null"""
    )
    full = sequence.full_name.lower()
    found: list[tuple[int, str, str | None]] = [
        (table_id, table, column)
        for table_id, table, column, text in rows
        if full in [full_name(space, name).lower() for space, name in sequences_in(text)]
    ]
    if (owner := sequence.body.get(OWNER)) is not None:
        owners = tx.rows("select table_name from indexlake_table where table_id = ? and end_snapshot is null", (owner,))
        found += [(owner, name, None) for (name,) in owners]
    return found


def needed(sequence: Named, by: list[tuple[int, str, str | None]]) -> SchemaError:
    _, table, column = by[0]
    what = "belongs to" if column is None else f"is the default of column {column!r} of"
    rather = "" if column is None else "Drop the default first (ALTER TABLE … ALTER … DROP DEFAULT), or the table. "
    return SchemaError(
        f"The sequence {sequence.full_name!r} {what} table {table!r}. {rather}DROP SEQUENCE … CASCADE drops both.",
        column=column,
    )


def end_owned(tx: Transaction, table_id: int, snapshot: int) -> None:
    """Drop the sequences of a table that has just been dropped."""
    for sequence in list_named(tx, kinds=("sequence",)):
        if sequence.body.get(OWNER) == table_id:
            if others := tables_needing(tx, sequence):
                raise needed(sequence, others)
            forget_calls(tx, sequence.named_id)
            end_named(tx, sequence.named_id, snapshot)
