"""Translates a query to Spark's dialect: whatever would silently mean something else is rewritten or refused.

``//`` is for integers only: Spark's also takes decimals and returns a bigint that wraps around.  ``/`` returns doubles,
as in DuckDB; Spark's would round decimals to a few digits.  Shifts are refused, because Spark's silently drop bits.
UUIDs are text in Spark, so whatever is compared with one is converted to their canonical spelling.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import sqlglot
from sqlglot import exp

from indexlake.spark.space import name_space_functions
from indexlake.spark.types import MOST_DIGITS
from indexlake.spark.uuid_text import UuidText
from indexlake.sql.parse.tokens import quoted
from indexlake.sql.plan.query import sampled, search_name, view_name

if TYPE_CHECKING:
    from indexlake.sql.run.planned_query import PlannedQuery

INSTEAD = "Use engine='duckdb'."
INTEGERS = "// is for integers of up to 64 bits in Spark. Cast both sides to bigint, or use engine='duckdb'."

_SHIFTS: dict[Any, str] = {exp.BitwiseLeftShift: "<<", exp.BitwiseRightShift: ">>"}
_DIFFERENT = frozenset(
    ("bit_count", "bitwise_count", "factorial", "format", "hash", "kurtosis", "levenshtein", "skewness", "unicode")
)
"""Functions that both engines have but that return something else in Spark."""


class SparkText:
    """The translated text, over views with these names for tables and searches, and the values of its parameters."""

    def __init__(self, planned: PlannedQuery, names: Sequence[str], searches: Sequence[str] = ()) -> None:
        self._source = planned.query.fragment.source
        self._values = planned.parameters
        self.arguments: dict[str, Any] = {}
        tree = self._parsed(planned, names, searches)
        self._refuse_different(tree)
        self.of_space = name_space_functions(tree)
        fields = [f for t in planned.tables for f in t.fields] + [f for s in planned.searches for f in s.rows.schema]
        UuidText(tree, fields, self._values, self._error).rewrite()
        self.divides = tree.find(exp.IntDiv) is not None
        for whole in list(tree.find_all(exp.IntDiv)):
            whole.replace(exp.IntDiv(this=_integer(whole.this), expression=_integer(whole.expression)))
        for ratio in list(tree.find_all(exp.Div)):
            ratio.replace(exp.Div(this=_double(ratio.this), expression=_double(ratio.expression)))
        for parameter in list(tree.find_all(exp.Parameter, exp.Placeholder)):
            parameter.replace(self._argument(parameter.name))
        try:
            self.text = tree.sql(dialect="spark", unsupported_level=sqlglot.ErrorLevel.RAISE)
        except sqlglot.UnsupportedError as error:
            raise self._error(f"Spark does not support this: {error} {INSTEAD}") from None

    def _parsed(self, planned: PlannedQuery, names: Sequence[str], searches: Sequence[str]) -> Any:
        views = {view_name(number): quoted(name) for number, name in enumerate(names)}
        views |= {search_name(number): quoted(name) for number, name in enumerate(searches)}

        def renamed(text: str) -> str:
            for view, name in views.items():
                text = text.replace(sampled(view), name).replace(quoted(view), name)
            return text

        query = planned.query
        edits = query.edits_apart([table.found.schema.by_name.keys() for table in planned.tables], planned.namespaces)
        text = query.fragment.spliced([(start, end, renamed(new)) for start, end, new in edits]).text
        try:
            return sqlglot.parse_one(text, read="duckdb")
        except Exception:  # whatever the parser raises
            raise self._error(f"This query cannot be translated into Spark's dialect. {INSTEAD}") from None

    def _refuse_different(self, tree: exp.Expression) -> None:
        for node in tree.find_all(*_SHIFTS, exp.Func, exp.DataType):
            if type(node) in _SHIFTS:
                raise self._error(f"In Spark, {_SHIFTS[type(node)]} drops bits that do not fit. {INSTEAD}")
            name = node.name if isinstance(node, exp.Anonymous) else getattr(node, "sql_name", str)()
            if name.lower() in _DIFFERENT:
                raise self._error(f"{name.lower()} gives a different result in Spark. {INSTEAD}")
            if isinstance(node, exp.RegexpReplace) and node.text("modifiers") != "g":
                raise self._error("regexp_replace replaces every match in Spark: give it 'g', or use engine='duckdb'.")
            if isinstance(node, exp.DataType) and node.this == exp.DataType.Type.UTINYINT:
                raise self._error("Spark has no utinyint. Cast to smallint, or use engine='duckdb'.")

    def _argument(self, name: str) -> exp.Expression:
        """Return the expression for a parameter, since Spark supports fewer parameter types than we do."""
        marker = f"p{name}" if name.isdigit() else name
        value = self._values[name]
        shown: exp.Expression = exp.Placeholder(this=marker)
        if isinstance(value, UUID):
            value = str(value)
        elif isinstance(value, datetime):  # Spark would interpret it in this process's time zone
            kind = exp.DataType.Type.TIMESTAMPNTZ if value.tzinfo is None else exp.DataType.Type.TIMESTAMPLTZ
            shown, value = exp.cast(shown, kind), value.isoformat(" ")
        elif isinstance(value, int) and not -(2**63) <= value < 2**63:
            if abs(value) >= 10**MOST_DIGITS:
                raise self._error(f"Parameter ${name} has more than {MOST_DIGITS} digits, Spark's limit.")
            value = Decimal(value)
        elif isinstance(value, dict):
            raise self._error(
                f"Parameter ${name} is a dict; with engine='spark' a parameter is one value. Give each of its values "
                "as a parameter of its own, or use engine='duckdb'."
            )
        self.arguments[marker] = value
        return shown

    def _error(self, message: str) -> Exception:
        return self._source.error(message, None)


def _integer(node: exp.Expression) -> exp.Expression:
    """Return an expression with the same integer; for any other type, Spark raises an error."""
    return exp.paren(exp.BitwiseOr(this=exp.paren(node), expression=exp.Literal.number(0)))


def _double(node: exp.Expression) -> exp.Expression:
    return exp.cast(node, exp.DataType.Type.DOUBLE)
