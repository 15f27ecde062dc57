"""Makes the Nth storage or SQL call fail, and takes a picture of everything a lake holds."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import indexlake as il
from indexlake.storage import faults
from tests.support.threads import is_heartbeat


@dataclass
class Failure:
    """The Nth step whose name begins with one of the prefixes raises; `fired` names it.

    Heartbeats are not counted: lakes of other tests, which live as long as the tests run, have them too.
    """

    prefixes: tuple[str, ...]
    nth: int
    code: int = errno.EIO
    always: bool = False
    fired: str | None = None
    count: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, name: str) -> None:
        if not name.startswith(self.prefixes) or (not self.always and is_heartbeat()):
            return
        with self._lock:
            self.count += 1
            hit = self.count == self.nth or (self.always and self.count > self.nth)
        if hit:
            self.fired = name
            raise OSError(self.code, os.strerror(self.code) + f", injected at {name} {self.nth}")


@contextmanager
def failing(*prefixes: str, nth: int = 1, code: int = errno.EIO, always: bool = False) -> Iterator[Failure]:
    failure = Failure(prefixes, nth, code, always)
    before = faults.install(failure)
    try:
        yield failure
    finally:
        faults.install(before)


def picture(lake: il.Lake) -> dict[str, Any]:
    """Namespaces, tables, their rows, and the database tables that hold them."""
    tables = {name: lake.table(name) for name in lake.tables()}
    rows = {
        name: sorted(table.scan(with_row_id=True).to_pylist(), key=lambda row: row["_indexlake_row_id"])
        for name, table in tables.items()
    }
    assert not orphans(lake)
    return {"namespaces": lake.namespaces(), "rows": rows}


def orphans(lake: il.Lake) -> set[str]:
    """Database tables of hot rows without a record that refers to them, and the reverse."""
    sql = "select name from sqlite_schema where type = 'table' and name like 'indexlake_inline_row_%' order by 1"
    if lake.catalog.database() == "postgres":
        sql = """select table_name::text from information_schema.tables
            where table_schema = current_schema() and table_name like 'indexlake_inline_row_%' order by 1"""
    recorded = {f"indexlake_inline_row_{i}" for (i,) in lake.catalog.query("select table_id from indexlake_table")}
    return recorded ^ {str(name) for (name,) in lake.catalog.query(sql)}
