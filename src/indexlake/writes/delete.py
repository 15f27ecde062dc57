"""Delete and truncate: versions of rows are closed where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexlake.expr.moment import as_statement
from indexlake.scan.point import read_values
from indexlake.writes.edit import Edit, change_row
from indexlake.writes.find import PredicateOf, Scanned, Target, find, find_by_scan

if TYPE_CHECKING:
    from indexlake.transaction import Transaction


@as_statement
def delete(tx: Transaction, table_id: int, predicate_of: PredicateOf) -> int:
    """Delete the rows that satisfy the predicate, and return their number."""
    rows = find(tx, table_id, predicate_of, ())
    if isinstance(rows, Target):
        if rows.held_exactly(rows.tested):
            return _delete_one(tx, rows)
        rows = find_by_scan(tx, table_id, predicate_of, ())
    return _delete_found(tx, rows)


def _delete_one(tx: Transaction, target: Target) -> int:
    if target.row is None:
        return 0
    names = target.tested
    row = target.key_row(names)
    if row is None:
        row = target.python_row(read_values(target.row), names)
    if not target.is_met(row):
        return 0
    return change_row(tx, target.state, target.row, None)


def _delete_found(tx: Transaction, rows: Scanned) -> int:
    state, found = rows
    edit = Edit(tx, state)
    for piece in found:
        edit.delete(piece)
    return edit.apply()


def truncate(tx: Transaction, table_id: int) -> None:
    """Delete every row that exists when this commits."""
    tx.writes(tx.state_to_write(table_id)).truncate_all(blind=tx.is_statement)
