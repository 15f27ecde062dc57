"""What SQL takes a column for, where Arrow has no such type: a mark in the field's metadata names it.

Such a column holds the nearest type that Arrow has: a BIT, JSON or INTERVAL is text, the items of an ENUM[] are, and
a HUGEINT is a decimal.  That is what files, Spark and Python see; SQL casts it on its way in and out.
"""

from __future__ import annotations

from typing import Any

KEY = b"indexlake:sql_type"
_HUGEINT = b"HUGEINT"
_COLLATED = "VARCHAR COLLATE "


def mark(name: str) -> dict[bytes, bytes]:
    """The metadata for a type, as DuckDB prints it."""
    return {KEY: name.encode()}


def mark_of(field: Any) -> dict[bytes, bytes] | None:
    """The metadata of another field that holds the same values."""
    found = (field.metadata or {}).get(KEY)
    return None if found is None else {KEY: found}


def cast_type(field: Any) -> str | None:
    """The type that SQL has to cast a column to; a HUGEINT it takes as it is."""
    found: bytes | None = (field.metadata or {}).get(KEY)
    return None if found is None or found == _HUGEINT else found.decode()


def collation_of(field: Any) -> str | None:
    """How SQL compares the texts of a column, if not by their bytes."""
    found = cast_type(field) or ""
    return found.removeprefix(_COLLATED) if found.startswith(_COLLATED) else None


def collated(collation: str) -> dict[bytes, bytes]:
    return mark(f"{_COLLATED}{collation}")


def is_shown_as_held(field: Any) -> bool:
    """Whether a result has the values of a column as the table holds them: INTERVAL, UHUGEINT and UNION have types in
    Arrow, which something else stands for in a table."""
    found = cast_type(field)
    if found is None or found.startswith("ENUM("):
        return True
    return not (found.startswith("UNION(") or "INTERVAL" in found or "UHUGEINT" in found)
