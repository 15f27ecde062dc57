"""What defines a function of expressions: a row of a table.

A function is an Arrow kernel proven equal to DuckDB's, or DuckDB itself over the batch.  A kernel that covers only some
arguments (a constant pattern, dates of ordinary years) raises `NotCovered` for the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indexlake.expr import overloads, tree
from indexlake.expr.coercion import decimal_shape, implicit_cost
from indexlake.expr.constants import NotCovered
from indexlake.expr.sqltype import SqlType, normal

if TYPE_CHECKING:
    from indexlake.expr.build import Builder

Signature = overloads.Signature
Kernel = Callable[[list[Any], tree.Call], Any]
Row = Callable[..., Any]
# Takes the types of the arguments and, for literals, their values.
Resolve = Callable[[tuple[SqlType, ...], tuple[Any, ...]], Signature | None]


@dataclass(frozen=True, slots=True)
class Function:
    """One function.

    `takes` and `gives` describe the arguments and the result in words.  The types follow from `signatures` or from
    `resolve`.  `kernel` evaluates Arrow arrays and scalars; `row` returns a function of Python values with the same
    result (it is called with the bound call once, when the expression is compiled).  `expand` expresses the call
    through other nodes if possible.
    """

    name: str
    takes: str
    gives: str
    signatures: tuple[Signature, ...] = ()
    resolve: Resolve | None = None
    arity: tuple[int, int | None] | None = None
    kernel: Kernel | None = None
    row: Callable[[tree.Call], Row] | None = None
    expand: Callable[[Builder, list[tree.Node]], tree.Node | None] | None = None
    strict: bool = True  # null if an argument is null
    synonyms: tuple[str, ...] = ()
    sql: str | None = None  # SQL for DuckDB, if it is not `name(arguments)`

    def arities(self) -> tuple[int, int | None]:
        """Return the least and the greatest number of arguments."""
        if self.arity is not None:
            return self.arity
        lengths = [len(signature[0]) for signature in self.signatures]
        return min(lengths), max(lengths)

    def choose(self, operands: tuple[SqlType, ...], literals: tuple[Any, ...]) -> Signature | None:
        """Return the types to which the arguments are converted, and the type of the result."""
        if self.resolve is not None:
            return self.resolve(operands, literals)
        chosen = overloads.choose(list(self.signatures), operands)
        if chosen is None or overloads.DECIMAL not in chosen[0]:
            return chosen
        types = tuple(
            normal(given) if want == overloads.DECIMAL else want
            for given, want in zip(operands, chosen[0], strict=True)
        )
        if decimal_shape(types[0]) is None:
            return None
        return types, types[0] if chosen[1] == overloads.DECIMAL else chosen[1]

    def accepts(self, place: int, type: SqlType, arguments: int) -> bool:
        """Return whether an argument may have that type at that place; used for error messages."""
        fitting = [types for types, _ in self.signatures if len(types) == arguments]
        return not fitting or any(implicit_cost(type, types[place]) is not None for types in fitting)

    def template(self, arguments: int) -> str:
        """Return the call in DuckDB's SQL, with a placeholder for each argument."""
        if self.sql is not None:
            return self.sql
        return f"{self.name}({', '.join(f'{{{place}}}' for place in range(arguments))})"


def same_for_all(function: Row) -> Callable[[tree.Call], Row]:
    """Make a row function that is the same for all types."""
    return lambda call: function


def constant(value: Any) -> Any:
    """Return the Python value of an argument that is the same for all rows; raises `NotCovered` if it is not."""
    if not isinstance(value, pa.Scalar):
        raise NotCovered
    return value.as_py()
