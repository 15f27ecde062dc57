"""Functions of expressions: name -> signatures -> evaluation.

A function is an Arrow kernel proven equal to DuckDB's, or DuckDB itself over the batch (`evaluate=None`).  To add
one, add a row to `FUNCTIONS`; the parity test picks it up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indexlake.expr import overloads
from indexlake.expr.sqltype import BOOL, INT64, VARCHAR, SqlType, decimal_shape, normal

Evaluate = Callable[[list[Any]], Any]


@dataclass(frozen=True, slots=True)
class Function:
    """One function: what it takes, what it returns, how it runs; `row` is the same on Python values."""

    name: str
    signatures: tuple[overloads.Signature, ...]
    evaluate: Evaluate | None
    row: Callable[..., Any] | None = None
    usage: str = ""

    def choose(self, operands: tuple[SqlType, ...]) -> overloads.Signature | None:
        chosen = overloads.choose(list(self.signatures), operands)
        if chosen is None:
            return None
        types, result = chosen
        if overloads.DECIMAL in types:
            types = tuple(
                normal(given) if want == overloads.DECIMAL else want
                for given, want in zip(operands, types, strict=True)
            )
            if any(decimal_shape(type) is None for type in types[:1]):
                return None
            result = types[0] if result == overloads.DECIMAL else result
        return types, result


def _abs(arguments: list[Any]) -> Any:
    (value,) = arguments
    if pa.types.is_decimal(value.type):
        return pc.abs(value).cast(value.type)
    return pc.call_function("abs_checked", [value])


def _characters(arguments: list[Any]) -> Any:
    return pc.utf8_length(arguments[0]).cast(pa.int64())


FUNCTIONS: dict[str, Function] = {
    function.name: function
    for function in (
        Function("abs", tuple(((t,), t) for t in overloads.NUMBERS), _abs, usage="a number"),
        Function("lower", (((VARCHAR,), VARCHAR),), lambda a: pc.utf8_lower(a[0]), usage="text"),
        Function("upper", (((VARCHAR,), VARCHAR),), lambda a: pc.utf8_upper(a[0]), usage="text"),
        Function("length", (((VARCHAR,), INT64),), _characters, len, usage="text"),
        Function("contains", (((VARCHAR, VARCHAR), BOOL),), None, lambda a, b: b in a, usage="text and text"),
        Function("starts_with", (((VARCHAR, VARCHAR), BOOL),), None, str.startswith, usage="text and text"),
        Function("replace", (((VARCHAR, VARCHAR, VARCHAR), VARCHAR),), None, usage="text, text and text"),
        Function("reverse", (((VARCHAR,), VARCHAR),), None, usage="text"),
        Function(
            "substring",
            (((VARCHAR, INT64), VARCHAR), ((VARCHAR, INT64, INT64), VARCHAR)),
            None,
            usage="text, a first position and perhaps a length",
        ),
    )
}


def name_of(syntax: Any) -> str | None:
    """The function that a piece of syntax calls; None if it is no call."""
    if syntax.key == "anonymous":
        return str(syntax.name).lower()
    if hasattr(syntax, "sql_names"):
        if any(isinstance(value, str) for value in syntax.args.values()):
            return None  # a variant that the class name does not tell, e.g. ltrim
        try:
            return str(syntax.sql_names()[0]).lower()
        except (IndexError, NotImplementedError):
            return None
    return None


def arguments_of(syntax: Any) -> list[Any]:
    """The arguments of a call in order."""
    if syntax.key == "anonymous":
        return list(syntax.expressions)
    arguments = []
    for name in syntax.arg_types:
        value = syntax.args.get(name)
        for item in value if isinstance(value, list) else [value]:
            if hasattr(item, "key"):
                arguments.append(item)
    return arguments
