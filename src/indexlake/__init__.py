"""IndexLake: a lakehouse table you can write to one row at a time."""

from importlib import import_module
from typing import TYPE_CHECKING

from indexlake.commit.write_set import WriteResult
from indexlake.config import TableConfig
from indexlake.connect import connect
from indexlake.errors import (
    AlreadyExistsError,
    CatalogError,
    ConflictError,
    ConstraintError,
    CorruptionError,
    DuplicateKeyError,
    ExpressionError,
    IndexLakeError,
    JobError,
    MissingExtraError,
    NotFoundError,
    OwnershipError,
    SchemaError,
    SnapshotExpiredError,
    StorageError,
)
from indexlake.expr.expression import Expression
from indexlake.lake import Lake
from indexlake.restore import restore
from indexlake.scan.scan import Scan
from indexlake.snapshots.stats import Snapshot, TableStats
from indexlake.snapshots.time_travel import LakeView
from indexlake.table import Table
from indexlake.transaction import Transaction

# Last, so that the name is the function: importing the package indexlake.expr binds it to that package.
from indexlake.expr.expression import expr  # isort: skip


if TYPE_CHECKING:
    from indexlake import spark
    from indexlake.feed.changes import Changes
    from indexlake.sources.files import Files, files

_LATER = {"Changes": "indexlake.feed.changes", "Files": "indexlake.sources.files", "files": "indexlake.sources.files"}
"""Names that not every program uses, with the modules from which they are imported on first use."""


def __getattr__(name: str) -> object:
    if name == "spark":
        return import_module("indexlake.spark")
    if name in _LATER:
        found = globals()[name] = getattr(import_module(_LATER[name]), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return only what is meant for users: imported submodules would appear here otherwise."""
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])


__version__ = "0.1.0"

__all__ = [
    "AlreadyExistsError",
    "CatalogError",
    "Changes",
    "ConflictError",
    "ConstraintError",
    "CorruptionError",
    "DuplicateKeyError",
    "Expression",
    "ExpressionError",
    "Files",
    "IndexLakeError",
    "JobError",
    "Lake",
    "LakeView",
    "MissingExtraError",
    "NotFoundError",
    "OwnershipError",
    "Scan",
    "SchemaError",
    "Snapshot",
    "SnapshotExpiredError",
    "StorageError",
    "Table",
    "TableConfig",
    "TableStats",
    "Transaction",
    "WriteResult",
    "connect",
    "expr",
    "files",
    "restore",
    "spark",
]
