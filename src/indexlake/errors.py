"""Every error that IndexLake raises.

Each error says what was asked, what is wrong and what to do, and carries what a program needs to react to it.
An operation that raises has changed nothing, unless the error says otherwise.

A traceback ends with our sentence and shows no other error above it.  The sentence includes what a library raised,
which is also available as ``__context__`` for debugging; only errors in the user's own code are shown as the cause.
"""

from __future__ import annotations

from typing import Any


class IndexLakeError(Exception):
    """Base of all errors raised on purpose by this package."""

    retryable: bool = False

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        for name, value in details.items():
            setattr(self, name, value)
        self.details = details

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), str(self), self.details)


def _rebuild(kind: type[IndexLakeError], message: str, details: dict[str, Any]) -> IndexLakeError:
    return kind(message, **details)


class ConflictError(IndexLakeError):
    """Another commit changed the same rows or definitions first.  Run the transaction again."""

    retryable = True
    table: str | None = None


class ConstraintError(IndexLakeError):
    """A value breaks a rule of its column or table: a null where none is allowed, a value out of range or of the
    wrong type, a check that is false."""

    column: str | None = None
    constraint: str | None = None
    table: str | None = None


class DuplicateKeyError(ConstraintError):
    """A key already exists or is given twice, in the primary key or a unique index."""

    table: str | None = None
    key: Any = None
    index: str | None = None


class SchemaError(IndexLakeError):
    """A column, type or table definition is wrong or not supported."""

    column: str | None = None


class ExpressionError(IndexLakeError):
    """A predicate or expression cannot be parsed, bound to the table or evaluated."""

    text: str | None = None


class NotFoundError(IndexLakeError):
    """The named table, namespace, snapshot or row does not exist."""

    name: str | None = None


class AlreadyExistsError(IndexLakeError):
    """The name is taken."""

    name: str | None = None


class CorruptionError(IndexLakeError):
    """A file is damaged or missing.  No row of it has been returned."""

    path: str | None = None


class StorageError(IndexLakeError):
    """The file system or object store refused or failed."""

    path: str | None = None


class CatalogError(IndexLakeError):
    """The catalog database refused, failed, or cannot be reached."""


class SnapshotExpiredError(IndexLakeError):
    """The snapshot is older than the history that is kept."""

    snapshot_id: int | None = None
    horizon: int | None = None


class OwnershipError(IndexLakeError):
    """The lake handle belongs to another process, thread or owner."""


class ConvertedError(OwnershipError):
    """The lake's hot store was changed after it was opened.  Connect again."""


class MissingExtraError(IndexLakeError, ImportError):
    """An optional dependency is not installed."""

    extra: str | None = None


class JobError(IndexLakeError):
    """A background job failed or was cancelled."""

    job: str | None = None
