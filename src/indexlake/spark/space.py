"""Geometry functions in a query for Spark: our own, registered in the session under private names."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from indexlake.expr.functions.space import FUNCTIONS
from indexlake.sql.run.space_functions import OverBatches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PREFIX = "__il_"
_FUNCTIONS = {function.name: function for function in FUNCTIONS}
_SPARK_TYPES = {"BLOB": "binary", "VARCHAR": "string", "DOUBLE": "double", "BOOLEAN": "boolean"}


def name_space_functions(tree: Any) -> set[str]:
    """Rename calls of such functions to their private names, in place, and return the names of the functions found."""
    found: set[str] = set()
    for node in reversed(list(tree.find_all(exp.Func))):  # innermost calls first
        name = node.name.lower() if isinstance(node, exp.Anonymous) else node.sql_name().lower()
        if name in _FUNCTIONS:
            found.add(name)
            given = node.expressions if isinstance(node, exp.Anonymous) else [v for v in node.args.values() if v]
            node.replace(exp.Anonymous(this=f"{_PREFIX}{name}", expressions=[value.copy() for value in given]))
    return found


def register(spark: SparkSession, names: Collection[str]) -> None:
    """Register the functions that a query uses with a session."""
    from pyspark.sql.pandas.functions import arrow_udf

    make: Any = arrow_udf
    for name in names:
        ((types, result),) = _FUNCTIONS[name].signatures
        run = _annotated(OverBatches(name, tuple(map(str, types))), len(types))
        made = make(run, _SPARK_TYPES[str(result)])
        spark.udf.register(f"{_PREFIX}{name}", made)


def _annotated(run: OverBatches, arity: int) -> Callable[..., pa.Array]:
    """Return a function with the parameters and annotations that Spark inspects."""

    def one(a: pa.Array) -> pa.Array:
        return run(a)

    def two(a: pa.Array, b: pa.Array) -> pa.Array:
        return run(a, b)

    def three(a: pa.Array, b: pa.Array, c: pa.Array) -> pa.Array:
        return run(a, b, c)

    return (one, two, three)[arity - 1]
