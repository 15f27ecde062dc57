"""The checks that keep texts out of a column that are not valid for its SQL type.

They are ordinary checks of the table, so they apply to every way of writing.  There are none for JSON and for types
inside others: SQL raises an error when it reads an invalid text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from indexlake.schema import TableSchema
from indexlake.schema.rules import Check
from indexlake.sql.parse.tokens import quoted
from indexlake.types.enums import enum_of
from indexlake.types.marks import cast_type

_CLOCK = r"[0-9]+:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?"
_PATTERNS = {
    "BIT": "[01]+",
    "UHUGEINT": "[0-9]{1,39}",
    "BIGNUM": "-?[0-9]+",
    "TIME WITH TIME ZONE": _CLOCK + r"[+-][0-9]{2}(:[0-9]{2}){0,2}",
    "INTERVAL": rf"(-?[0-9]+ (years?|months?|days?) ?)*(-?{_CLOCK})?",
}


def type_checks(fields: Sequence[Any]) -> list[tuple[str, str]]:
    """Return the names and conditions of the checks of these columns."""
    return [(_name(f), condition) for f in fields if (condition := _condition(f)) is not None]


def is_type_check(check: Check, schema: TableSchema) -> bool:
    columns = [schema.by_root[number] for number in check.condition.columns]
    return len(columns) == 1 and cast_type(columns[0]) is not None and check.name.endswith(("_enum", "_type"))


def _name(field: Any) -> str:
    return f"{field.name}_{'type' if enum_of(field) is None else 'enum'}"


def _condition(field: Any) -> str | None:
    if (enum := enum_of(field)) is not None:
        return f"{quoted(field.name)} in {enum.removeprefix('ENUM')}"
    pattern = _PATTERNS.get(cast_type(field) or "")
    return None if pattern is None else f"regexp_full_match({quoted(field.name)}, '{pattern}')"
