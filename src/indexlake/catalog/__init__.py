"""The catalog: the database that holds snapshots, definitions, hot rows and the records of blocks.

`driver` defines what is expected of a database; `sqlite` and `postgres` implement it. The other files hold the SQL of
the catalog's tables. No SQL text is sent to the catalog from anywhere else.
"""

from __future__ import annotations

from indexlake.catalog.dialect import Dialect, quote
from indexlake.catalog.driver import (
    Catalog,
    CommitUnknown,
    DatabaseError,
    ReadTransaction,
    Row,
    SqlValue,
    Transaction,
)

__all__ = [
    "Catalog",
    "CommitUnknown",
    "DatabaseError",
    "Dialect",
    "ReadTransaction",
    "Row",
    "SqlValue",
    "Transaction",
    "quote",
]
