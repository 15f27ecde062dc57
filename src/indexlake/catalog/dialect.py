"""The differences between the two databases in SQL text: type names, clustering, and how to look for a table.

All other SQL is the same for both. `quote` is the one function that quotes identifiers.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from indexlake.catalog.driver import ReadTransaction, Transaction


def quote(identifier: str) -> str:
    """Quote an identifier for SQL text, whatever characters it contains."""
    if not identifier or "\0" in identifier:
        raise ValueError(f"{identifier!r} is not an identifier: it is empty or holds a NUL character.")
    return '"' + identifier.replace('"', '""') + '"'


@functools.lru_cache(maxsize=1024)
def insert_sql(table: str, columns: tuple[str, ...], rows: int = 1) -> str:
    names = ", ".join(quote(column) for column in columns)
    one = f"({', '.join('?' * len(columns))})"
    return f"insert into {quote(table)} ({names}) values {', '.join([one] * rows)}"


@dataclass(frozen=True, slots=True)
class Dialect:
    name: Literal["sqlite", "postgres"]
    int_type: str
    """64 bits, signed."""
    key_type: str
    """A single-column integer primary key (on SQLite: the row's own address, no second index)."""
    bytes_type: str
    text_type: str
    """Unicode text in binary order."""
    clustered: str
    """Appended to CREATE TABLE so that rows are stored in primary-key order, if the database can do that."""
    table_query: str
    most_columns: int
    """The most columns of a table."""

    def among(self, key: str, rest: str) -> str:
        """Return a condition for the rows that ``select {key} {rest}`` finds, without looking each one up again."""
        if self.name == "postgres":
            return f"ctid = any(array(select ctid {rest}))"
        return f"({key}) in (select {key} {rest})"

    def table_exists(self, transaction: ReadTransaction | Transaction, table: str) -> bool:
        return bool(transaction.rows(self.table_query, (table,)))


SQLITE = Dialect(
    name="sqlite",
    int_type="INTEGER",
    key_type="INTEGER",
    bytes_type="BLOB",
    text_type="TEXT",
    clustered=" WITHOUT ROWID",
    table_query="select 1 from sqlite_schema where type = 'table' and name = ?",
    most_columns=2000,
)

POSTGRES = Dialect(
    name="postgres",
    int_type="BIGINT",
    key_type="BIGINT",
    bytes_type="BYTEA",
    text_type='TEXT COLLATE "C"',
    clustered="",
    table_query="select 1 from pg_catalog.pg_tables where schemaname = current_schema() and tablename = ?",
    most_columns=1600,
)
