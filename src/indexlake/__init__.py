"""IndexLake: a lakehouse table you can write to one row at a time."""

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
from indexlake.expression import Expression
from indexlake.feed.changes import Changes
from indexlake.lake import Lake, LakeView
from indexlake.scan.scan import Scan
from indexlake.sources.files import Files, files
from indexlake.stats import Snapshot, TableStats
from indexlake.table import Table
from indexlake.transaction import Transaction

# Last: the name of a function here, and of the package that was imported on the way.
from indexlake.expression import expr  # isort: skip


def __getattr__(name: str) -> object:
    if name == "spark":
        import importlib

        return importlib.import_module("indexlake.spark")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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
]
