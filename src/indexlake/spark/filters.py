"""Turns the filters that Spark hands to a data source into a predicate of ours.

Only filters with exactly the same meaning on both sides are accepted; Spark applies the rest itself.  Each filter is
accepted or left on its own, since Spark joins them with AND.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as ds

from indexlake.errors import ExpressionError
from indexlake.expr import compile
from indexlake.schema import Field, TableSchema

_OPERATORS: dict[type[ds.Filter], str] = {
    ds.EqualTo: "=",
    ds.EqualNullSafe: "is not distinct from",
    ds.GreaterThan: ">",
    ds.GreaterThanOrEqual: ">=",
    ds.LessThan: "<",
    ds.LessThanOrEqual: "<=",
    ds.In: "in",
}
_TEXT_TESTS: dict[type[ds.Filter], str] = {
    ds.StringStartsWith: "starts_with",
    ds.StringEndsWith: "ends_with",
    ds.StringContains: "contains",
}


class Pushed:
    """The accepted filters, in addition to any existing condition: SQL text and its parameters."""

    def __init__(self, schema: TableSchema, where: str | None = None) -> None:
        self._schema = schema
        self._parts = [] if where is None else [f"({where}\n)"]
        self.params: dict[str, Any] = {}

    @property
    def where(self) -> str | None:
        return " and ".join(self._parts) or None

    def take(self, filters: Sequence[ds.Filter]) -> list[ds.Filter]:
        """Accept the filters that can be accepted, and return the rest."""
        return [f for f in filters if not self._take(f)]

    def _take(self, filter: ds.Filter) -> bool:
        name = f"p{len(self.params)}"
        found = _condition(filter, self._schema, name)
        if found is None:
            return False
        text, value = found
        params = {} if value is None else {name: value}
        try:
            compile(text, self._schema.arrow_with_row_id, params)
        except ExpressionError:
            return False
        self._parts.append(f"({text})")
        self.params |= params
        return True


def _condition(filter: ds.Filter, schema: TableSchema, name: str) -> tuple[str, Any] | None:
    """Return SQL text, and the value of its parameter if it has one; None if there is no equivalent."""
    if isinstance(filter, ds.Not):
        found = _condition(filter.child, schema, name)
        return None if found is None else (f"not ({found[0]})", found[1])
    attribute: tuple[str, ...] = getattr(filter, "attribute", ())
    field = schema.by_name.get(attribute[0].lower()) if len(attribute) == 1 else None
    if field is None:
        return None
    column = '"' + field.name.replace('"', '""') + '"'
    if isinstance(filter, ds.IsNull | ds.IsNotNull):
        return f"{column} is {'' if isinstance(filter, ds.IsNull) else 'not '}null", None
    test = _TEXT_TESTS.get(type(filter))
    if test is not None:
        return (f"{test}({column}, ${name})", filter.value) if _is_text(field.type) else None  # type: ignore[attr-defined]
    operator = _OPERATORS.get(type(filter))
    if operator is None:
        return None
    if isinstance(filter, ds.In):
        values = [_value(v, field) for v in filter.value]
        return None if not values or None in values else (f"{column} in ${name}", values)
    value = _value(filter.value, field)  # type: ignore[attr-defined]
    return None if value is None else (f"{column} {operator} ${name}", value)


def _value(value: Any, field: Field) -> Any:
    """Return the value as a parameter that compares with the column as in Spark, or None if that is not certain."""
    type, t = field.type, pa.types
    if t.is_boolean(type):
        return value if isinstance(value, bool) else None
    if t.is_uint64(type) and isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else None
    if t.is_integer(type):
        return value if isinstance(value, int) and not isinstance(value, bool) else None
    if t.is_float32(type) or t.is_float64(type):
        return value if isinstance(value, float) and math.isfinite(value) else None
    if _is_text(type):
        return value if isinstance(value, str) else None
    if t.is_date32(type):
        return value if isinstance(value, dt.date) and not isinstance(value, dt.datetime) else None
    if t.is_timestamp(type) and isinstance(value, dt.datetime):
        return value if (value.tzinfo is None) == (type.tz is None) else None
    if t.is_decimal128(type) and isinstance(value, Decimal):
        return value if -value.as_tuple().exponent <= type.scale else None  # type: ignore[operator]
    return None


def _is_text(type: Any) -> bool:
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type) or pa.types.is_string_view(type))
