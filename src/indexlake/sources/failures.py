"""Turns failures to read a file into errors of this package that name the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from indexlake.errors import ConstraintError, CorruptionError, IndexLakeError, SchemaError, StorageError
from indexlake.sources.files import SourceFile


@contextmanager
def naming(file: SourceFile) -> Iterator[None]:
    """Turn errors raised inside into errors of this package that name the file."""
    try:
        yield
    except IndexLakeError as error:
        if "path" in error.details:
            raise
        raise type(error)(f"{file.path}: {error}", **error.details, path=file.path) from None
    except OSError as error:
        if error.errno is not None:
            raise StorageError(f"{file.path!r} cannot be read: {error.strerror}.", path=file.path) from None
        raise damaged(file, error) from None
    except RecursionError:
        raise SchemaError(f"{file.path}: a value in it is nested too deeply to be read.", path=file.path) from None
    except (pa.ArrowException, UnicodeDecodeError, EOFError) as error:
        raise damaged(file, error) from None


def damaged(file: SourceFile, error: object) -> CorruptionError:
    return CorruptionError(
        f"{file.path!r} cannot be read as {file.format}: {one_line(error)}. It is damaged, cut off, or another kind of "
        "file; nothing of it was loaded.",
        path=file.path,
    )


def bad_value(column: str, type: Any, place: str, problem: object) -> ConstraintError:
    """Return the error for a value that its column cannot take; ``naming`` adds the file."""
    return ConstraintError(
        f"{place}, column {column!r}: the value does not fit into {type}: {one_line(problem)}.", column=column
    )


def bad_row(place: str, problem: object) -> SchemaError:
    return SchemaError(f"{place}: {one_line(problem)}.")


def one_line(problem: object) -> str:
    text = " ".join(str(problem).split()).rstrip(".")
    return text if len(text) <= 300 else text[:299] + "…"
