"""The functions of geometries in Spark: those of predicates, under names of their own, for Spark has some like them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from indexlake.expr.functions import space

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PREFIX = "__il_"
_RESULTS = {"blob": "binary", "bool": "boolean", "double": "double", "varchar": "string"}
_NAMES = {function.name: function for function in space.FUNCTIONS}


def rename_calls(tree: exp.Expression) -> list[str]:
    """Let a query call the functions by the names that they have in Spark; which ones it calls."""
    found = []
    for node in list(tree.find_all(exp.Func)):
        name = (node.name if isinstance(node, exp.Anonymous) else node.sql_name()).lower()
        if name in _NAMES:
            arguments = node.expressions or [node.args[key] for key in ("this", "expression") if node.args.get(key)]
            node.replace(exp.Anonymous(this=_PREFIX + name, expressions=arguments))
            found.append(name)
    return found


def register(spark: SparkSession, names: Iterable[str]) -> None:
    """Make functions known to a session."""
    from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]  # its stubs lack it

    for name in set(names):
        ((_, result),) = _NAMES[name].signatures
        made = arrow_udf(_over_arrays(name), _RESULTS[result.kind])
        spark.udf.register(_PREFIX + name, made)


def _over_arrays(name: str) -> Callable[..., Any]:
    def apply(*columns: pa.Array) -> pa.Array:
        return space.over_columns(name, columns)

    return apply
