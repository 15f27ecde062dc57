"""The SQL type of a column, where Arrow has no such type: a mark in the field's metadata names it.

Such a column holds the nearest type that Arrow has: BIT, JSON and INTERVAL are held as text, like the items of an
ENUM[], and HUGEINT as a decimal.  Files, Spark and Python see that type; SQL casts it on the way in and out.
"""

from __future__ import annotations

from typing import Any

KEY = b"indexlake:sql_type"
_HUGEINT = b"HUGEINT"
_COLLATED = "VARCHAR COLLATE "


def mark(name: str) -> dict[bytes, bytes]:
    """Return the metadata for a type, as DuckDB prints it."""
    return {KEY: name.encode()}


def mark_of(field: Any) -> dict[bytes, bytes] | None:
    """Return the metadata for another field with the same values."""
    found = (field.metadata or {}).get(KEY)
    return None if found is None else {KEY: found}


def cast_type(field: Any) -> str | None:
    """Return the type that SQL has to cast a column to, if any; DuckDB takes a HUGEINT as it is."""
    found: bytes | None = (field.metadata or {}).get(KEY)
    return None if found is None or found == _HUGEINT else found.decode()


def collation_of(field: Any) -> str | None:
    """Return the collation of a column, if it has one."""
    found = cast_type(field) or ""
    return found.removeprefix(_COLLATED) if found.startswith(_COLLATED) else None


def collated(collation: str) -> dict[bytes, bytes]:
    return mark(f"{_COLLATED}{collation}")


def is_shown_as_held(field: Any) -> bool:
    """Return whether results show the values of a column as the table holds them.

    INTERVAL, UHUGEINT and UNION have Arrow types that results use, and tables do not."""
    found = cast_type(field)
    if found is None or found.startswith("ENUM("):
        return True
    return not (found.startswith("UNION(") or "INTERVAL" in found or "UHUGEINT" in found)
