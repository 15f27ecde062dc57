"""Translates DuckDB's errors into errors of ours, with the place in the text that the user wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa

from indexlake import errors
from indexlake.errors import ConstraintError, ExpressionError, IndexLakeError, MissingExtraError, StorageError
from indexlake.sql.parse.fragment import Spliced
from indexlake.sql.parse.tokens import Source
from indexlake.storage.exchange import refusal


class Unparsed(Exception):
    """DuckDB's own description of a syntax error."""


_OF_OURS = re.compile(
    r"Python exception occurred while executing the UDF: (?P<type>\w+): (?P<message>.*?)(?:\n\nAt:.*)?", re.DOTALL
)
"""Matches DuckDB's message for an error raised by one of our functions."""
_FORBIDDEN = re.compile(r'Cannot access \w+ "(?P<path>.*)" - file system operations are disabled by configuration')
_TYPES_OF_STORAGE = ("IO", "HTTP", "Permission")


@contextmanager
def translating(source: Source, spliced: Spliced) -> Iterator[None]:
    """Translate errors of DuckDB."""
    try:
        yield
    except BaseException as error:
        made = translated(error, source, spliced)
        if made is None:
            raise
        raise made from None


def translated(
    error: BaseException, source: Source, spliced: Spliced, suggestion: Callable[[str], str] | None = None
) -> IndexLakeError | None:
    """Return DuckDB's error as one of ours, with the place in the user's text, or None if it is not DuckDB's."""
    import duckdb

    if isinstance(error, IndexLakeError) or not isinstance(
        error, duckdb.Error | pa.ArrowException | OSError | Unparsed
    ):
        return None
    details: dict[str, Any] = {}
    if isinstance(error, Unparsed):
        details = error.args[0]
        details.setdefault("exception_message", details.get("error_message", ""))
    else:
        text = str(error)
        start = text.find('{"exception_type"')
        if start >= 0:
            with suppress(json.JSONDecodeError):
                details = json.JSONDecoder().raw_decode(text, start)[0]
        if not details:
            details = {"exception_message": text.strip().splitlines()[0]}
    message = str(details.get("exception_message", "")).strip()
    kind = str(details.get("exception_type", ""))
    if of_ours := _OF_OURS.fullmatch(message):
        message = of_ours["message"]
        if of_ours["type"] == MissingExtraError.__name__:
            return MissingExtraError(message, extra="geo")
        own = getattr(errors, of_ours["type"], ExpressionError)
        if own is not ExpressionError and isinstance(own, type) and issubclass(own, IndexLakeError):
            return own(message)
    if suggestion is not None and details.get("error_subtype") == "COLUMN_NOT_FOUND" and "name" in details:
        message = f"{message.splitlines()[0]}\n{suggestion(str(details['name']))}".strip()
    if details.get("error_subtype") == "COLUMN_NOT_FOUND" and f'"{details.get("name")}"' in source.text:
        text = str(details["name"]).replace("'", "''")
        message = f"{message}\nIf {details['name']!r} is text, write it in single quotes: '{text}'."
    if message.startswith("SELECT locking clause"):
        message = (
            "SELECT … FOR UPDATE is not supported: in a transaction, t.scan(…, for_update=True) locks what it reads."
        )
    if message.endswith("cannot contain DEFAULT clause"):
        found = re.search(r"\bdefault\b", source.text, re.IGNORECASE)
        return source.error(
            "DEFAULT can only be the whole value of a column, not a part of an expression.",
            None if found is None else found.start(),
        )
    if kind == "Constraint":  # violated by a temporary table
        return ConstraintError(message)
    if (file := _FORBIDDEN.match(message)) is not None:
        path, at = file["path"], source.text.find(file["path"])
        return StorageError(str(source.error(refusal(path), at if at >= 0 else None)), path=path)
    if kind in _TYPES_OF_STORAGE:
        return StorageError(message)
    if "Out of Memory" in kind or isinstance(error, duckdb.OutOfMemoryException):
        return ExpressionError(f"The query needs more memory than it may use: {message}", text=source.text)
    place = None
    if str(details.get("position", "")).isdigit():
        given = spliced.text.encode()[: int(details["position"])].decode(errors="ignore")
        place = spliced.original(len(given))
    return source.error(message, place)
