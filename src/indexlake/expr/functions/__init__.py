"""The functions of expressions, by name and synonym.  To add one, add a row to the module of its group."""

from __future__ import annotations

from indexlake.expr.functions import choice, nested, numbers, space, text, times
from indexlake.expr.functions.function import Function

GROUPS: dict[str, tuple[Function, ...]] = {
    "Text": text.FUNCTIONS,
    "Numbers": numbers.FUNCTIONS,
    "Dates and times": times.FUNCTIONS,
    "Lists, structs and maps": nested.FUNCTIONS,
    "Geometries": space.FUNCTIONS,
    "Choice": choice.FUNCTIONS,
}

FUNCTIONS: dict[str, Function] = {
    name: function
    for functions in GROUPS.values()
    for function in functions
    for name in (function.name, *function.synonyms)
}

__all__ = ["FUNCTIONS", "GROUPS", "Function"]
