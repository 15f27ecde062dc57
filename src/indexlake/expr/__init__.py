"""Predicates and scalar expressions: SQL text -> typed tree -> evaluation, pruning tests, pushdowns.

One evaluator is authoritative (Arrow, SQL's three-valued logic, DuckDB's semantics).  The scalar path for single rows,
the necessary conditions for statistics and keys, and the pushdowns into file formats agree with it.
"""

from typing import TYPE_CHECKING, Any

from indexlake.expr.moment import statement
from indexlake.expr.test import ALWAYS, NEVER, All, Any_, ColumnTest, Test

if TYPE_CHECKING:
    from indexlake.expr.bound import Bound
    from indexlake.expr.compiler import compile
    from indexlake.expr.sqltype import of_column

__all__ = ["ALWAYS", "NEVER", "All", "Any_", "Bound", "ColumnTest", "Test", "compile", "of_column", "statement"]


def __getattr__(name: str) -> Any:
    """Load the compiler with the first expression; tests are plain values and need no loading."""
    if name not in ("Bound", "compile", "of_column"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from indexlake.expr import bound, compiler, sqltype

    globals().update(Bound=bound.Bound, compile=compiler.compile, of_column=sqltype.of_column)
    return globals()[name]
