"""How many numbers were taken from a sequence, kept in the catalog's own counters."""

from __future__ import annotations

from indexlake.catalog.driver import ReadTransaction, Transaction
from indexlake.catalog.tables import next_values


def calls_of(r: ReadTransaction | Transaction, named_id: int) -> int:
    rows = r.rows("select next_value from indexlake_sequence where name = ?", (_counter(named_id),))
    return int(rows[0][0]) - 1 if rows else 0


def take_calls(tx: Transaction, named_id: int, count: int) -> None:
    next_values(tx, _counter(named_id), count)


def forget_calls(tx: Transaction, named_id: int) -> None:
    tx.execute("delete from indexlake_sequence where name = ?", (_counter(named_id),))


def _counter(named_id: int) -> str:
    return f"sequence {named_id}"
