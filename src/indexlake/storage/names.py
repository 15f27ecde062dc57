"""Names of files: every path below the storage root is built and parsed here.

A file of a table is ``tables/<table>/<role>/<writer>-<attempt>.<extension>``.  The attempt is random, so no name is
used twice.  The writer is in the name so that vacuum knows who could still commit the file.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from typing import Literal

OWNER = "indexlake.json"
"""Says whose files these are."""

TABLES = "tables"
"""The folder that holds the files of all tables."""

Role = Literal["data", "history", "index", "stage"]

_FILE = re.compile(rf"{TABLES}/(\d+)/([a-z]+)/(\.?)([0-9a-f]{{12}})-([0-9a-f]{{32}})\.(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class FileName:
    """The name of a file of a table.

    A parsed name may have a role that only another version of this program knows.
    """

    table_id: int
    role: str
    writer_id: str
    attempt: str
    extension: str
    finished: bool = True

    @staticmethod
    def new(table_id: int, role: Role, writer_id: str, extension: str) -> FileName:
        return FileName(table_id, role, writer_id, uuid.uuid4().hex, extension)

    @staticmethod
    def parse(path: str) -> FileName | None:
        """None: this program did not write the file."""
        found = _FILE.match(path)
        if found is None:
            return None
        table_id, role, dot, writer_id, attempt, extension = found.groups()
        return FileName(int(table_id), role, writer_id, attempt, extension, not dot)

    @property
    def path(self) -> str:
        dot = "" if self.finished else "."
        return f"{table_folder(self.table_id)}/{self.role}/{dot}{self.writer_id}-{self.attempt}.{self.extension}"


def table_folder(table_id: int) -> str:
    """Where the files of a table live."""
    return f"{TABLES}/{table_id}"


def new_writer_id() -> str:
    return uuid.uuid4().hex[:12]


def unfinished(name: str) -> str:
    """What a file in a folder is called while it is written, and ever after if its writer is killed."""
    return f".{name}.{uuid.uuid4().hex[:12]}.tmp"
