"""Predicates and scalar expressions: SQL text -> typed tree -> evaluation, pruning tests, pushdowns.

One evaluator decides (Arrow, SQL's three-valued logic, DuckDB's semantics).  The scalar path for single rows,
the necessary conditions for statistics and keys, and the pushdowns into file formats agree with it.
"""

from indexlake.expr.bound import Bound, compile
from indexlake.expr.test import ALWAYS, NEVER, All, Any_, ColumnTest, Test

__all__ = ["ALWAYS", "NEVER", "All", "Any_", "Bound", "ColumnTest", "Test", "compile"]
