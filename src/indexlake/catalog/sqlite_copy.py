"""Copy a SQLite catalog page by page: one state of it to a new file, and a file over another catalog.

Others read and write the first catalog meanwhile; readers of the second see it before or after, and a process that dies
leaves it as it was.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

import apsw

from indexlake.catalog.driver import ReadTransaction
from indexlake.catalog.sqlite import SqliteCatalog
from indexlake.catalog.sqlite_errors import translate
from indexlake.storage import faults

PAGES = 1000
"""How many pages are copied at a time."""


def copy_state(r: ReadTransaction, path: str) -> None:
    """Write the state that a read transaction sees to a new file."""
    r.rows("select count(*) from sqlite_schema")  # the first statement fixes the state
    reading: Any = r
    _copy(reading._session.connection, path, None)


def replace_catalog(catalog: SqliteCatalog, path: str) -> None:
    """Replace everything in a catalog by the contents of a file, in one transaction."""
    catalog.lock.acquire()
    try:
        session = catalog.take()
        try:
            _copy(None, path, session.connection)
        finally:
            catalog.sessions.give_back(session)
    finally:
        catalog.lock.release()
    catalog.checkpoint()


def _copy(source: Any, path: str, target: Any) -> None:
    """Copy from or to the file at ``path``; None stands for it."""
    try:
        with closing(apsw.Connection(path)) as file:
            target = target or file
            with target.backup("main", source or file, "main") as copy:
                while not copy.done:
                    copy.step(PAGES)
                    faults.step("backup.pages")
    except (apsw.Error, OSError) as error:
        raise translate(error, path, "backup") from None
