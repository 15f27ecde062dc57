"""What a function of expressions is: a row of a table.

A function is an Arrow kernel proven equal to DuckDB's, or DuckDB itself over the batch.  A kernel that covers only
some arguments (a constant pattern, dates of the usual years) raises `NotCovered` for the others.
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
# From the types of the arguments and, where they are literals, their values.
Resolve = Callable[[tuple[SqlType, ...], tuple[Any, ...]], Signature | None]


@dataclass(frozen=True, slots=True)
class Function:
    """One function.

    `takes` and `gives` say in words what the arguments and the result are.  The types follow from `signatures` or
    from `resolve`.  `kernel` evaluates Arrow arrays and scalars, `row` makes the same of Python values (called with
    the bound call once, when the expression is compiled).  `expand` says the call by other nodes where it can.
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
    strict: bool = True  # null for a null argument
    synonyms: tuple[str, ...] = ()
    sql: str | None = None  # how DuckDB is asked, where it is not `name(arguments)`

    def arities(self) -> tuple[int, int | None]:
        """The least and the greatest number of arguments."""
        if self.arity is not None:
            return self.arity
        lengths = [len(signature[0]) for signature in self.signatures]
        return min(lengths), max(lengths)

    def choose(self, operands: tuple[SqlType, ...], literals: tuple[Any, ...]) -> Signature | None:
        """The types that the arguments are converted to, and the type of the result."""
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
        """Whether an argument of that type can stand at that place; for the text of errors."""
        fitting = [types for types, _ in self.signatures if len(types) == arguments]
        return not fitting or any(implicit_cost(type, types[place]) is not None for types in fitting)

    def template(self, arguments: int) -> str:
        """The call as DuckDB reads it, with a place for each argument."""
        if self.sql is not None:
            return self.sql
        return f"{self.name}({', '.join(f'{{{place}}}' for place in range(arguments))})"


def same_for_all(function: Row) -> Callable[[tree.Call], Row]:
    """A row function that is the same for all types."""
    return lambda call: function


def constant(value: Any) -> Any:
    """The Python value of an argument that is the same for all rows; `NotCovered` if it is not."""
    if not isinstance(value, pa.Scalar):
        raise NotCovered
    return value.as_py()
