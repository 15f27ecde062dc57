"""Names of files: every path below the storage root is built and parsed here.

A file of a table is ``tables/<table>/<role>/<writer>-<attempt>.<extension>``. Rows of clustered tables are in
``schema_<n>/table_<t>/table_<t>_part_<p>.<version>.<writer>-<attempt>.data`` or ``.delta``. Beside them, without a
partition, are the ``.meta`` files from which a lost catalog is rebuilt. The attempt is random, so no name is used
twice. The writer is in the name so that vacuum knows who could still commit the file.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from typing import Literal

OWNER = "indexlake.json"
"""The file that says whose files these are."""

TABLES = "tables"
"""The folder that holds the files of all tables."""

Role = Literal["data", "delta", "meta", "history", "index", "stage"]

_ATTEMPT = r"([0-9a-f]{12})-([0-9a-f]{32})"
_FILE = re.compile(rf"{TABLES}/(\d+)/([a-z]+)/(\.?){_ATTEMPT}\.(.*)", re.DOTALL)
_CLUSTERED = re.compile(
    rf"schema_(\d+)/table_(\d+)/(\.?)table_\2(?:_part_(\d+))?\.(\d+)\.{_ATTEMPT}\.(data|delta|meta)\b\.?(.*)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Clustered:
    """What else the names of a clustered table's files contain; partition None means the whole table."""

    namespace_id: int
    partition_id: int | None
    version: int  # the snapshot that the file was planned at, or describes


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
    clustered: Clustered | None = None

    @staticmethod
    def new(table_id: int, role: Role, writer_id: str, extension: str, clustered: Clustered | None = None) -> FileName:
        return FileName(table_id, role, writer_id, uuid.uuid4().hex, extension, clustered=clustered)

    @staticmethod
    def parse(path: str) -> FileName | None:
        """Parse a path; return None if this program did not write the file."""
        if (found := _FILE.match(path)) is not None:
            table_id, role, dot, writer_id, attempt, extension = found.groups()
            return FileName(int(table_id), role, writer_id, attempt, extension, not dot)
        if (found := _CLUSTERED.match(path)) is not None:
            space, table_id, dot, partition, version, writer_id, attempt, role, extension = found.groups()
            clustered = Clustered(int(space), None if partition is None else int(partition), int(version))
            return FileName(int(table_id), role, writer_id, attempt, extension, not dot, clustered)
        return None

    @property
    def path(self) -> str:
        dot = "" if self.finished else "."
        if (c := self.clustered) is not None:
            part = "" if c.partition_id is None else f"_part_{c.partition_id}"
            name = f"{dot}table_{self.table_id}{part}.{c.version}.{self.writer_id}-{self.attempt}.{self.role}"
            extension = f".{self.extension}" if self.extension else ""
            return f"{clustered_folder(c.namespace_id, self.table_id)}/{name}{extension}"
        return f"{table_folder(self.table_id)}/{self.role}/{dot}{self.writer_id}-{self.attempt}.{self.extension}"


def table_folder(table_id: int) -> str:
    """Return the folder of a table's files."""
    return f"{TABLES}/{table_id}"


def namespace_folder(namespace_id: int) -> str:
    """Return the folder of a namespace's clustered tables."""
    return f"schema_{namespace_id}"


def clustered_folder(namespace_id: int, table_id: int) -> str:
    """Return the folder of a clustered table's rows."""
    return f"{namespace_folder(namespace_id)}/table_{table_id}"


def new_writer_id() -> str:
    return uuid.uuid4().hex[:12]


def unfinished(name: str) -> str:
    """Return the name of a file while it is being written, which it keeps if its writer is killed."""
    return f".{name}.{uuid.uuid4().hex[:12]}.tmp"
