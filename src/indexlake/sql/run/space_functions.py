"""The functions of geometries in DuckDB, which has none by itself: our own, over its batches.

Arguments that are the same for all rows of a batch are constants to the function, so that one geometry is prepared once
and compared with many.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indexlake.errors import ExpressionError
from indexlake.expr import compile
from indexlake.expr.functions.space import FUNCTIONS

_ARROW = {"BLOB": pa.binary(), "VARCHAR": pa.string(), "DOUBLE": pa.float64(), "BOOLEAN": pa.bool_()}


def register(connection: Any) -> None:
    """Give a database the functions; every cursor of it has them."""
    for function in FUNCTIONS:
        for types, result in function.signatures:
            names = tuple(map(str, types))
            run = _with_arity(_Batches(function.name, names).run, len(names))
            connection.create_function(
                function.name, run, list(names), str(result), type="arrow", null_handling="special"
            )


class _Batches:
    """One function, over batches of its arguments."""

    def __init__(self, name: str, types: tuple[str, ...]) -> None:
        self._types = [_ARROW[type] for type in types]
        self._name = name
        self._schemas: dict[tuple[int, ...], pa.Schema] = {}  # one for each choice of arguments that are no constants

    def run(self, *arguments: pa.ChunkedArray) -> pa.Array:
        arrays = [a.combine_chunks().cast(type) for a, type in zip(arguments, self._types, strict=True)]
        varying = tuple(n for n, array in enumerate(arrays) if not _is_one(array)) or (0,)
        schema = self._schemas.get(varying)
        if schema is None:
            schema = self._schemas[varying] = pa.schema([(f"a{n}", self._types[n]) for n in varying])
        batch = pa.RecordBatch.from_arrays([arrays[n] for n in varying], schema=schema)
        constants = {f"a{n}": array[0].as_py() for n, array in enumerate(arrays) if n not in varying}
        written = ", ".join(f"a{n}" if n in varying else f"$a{n}" for n in range(len(arrays)))
        try:
            found = compile(f"{self._name}({written})", schema, constants or None).evaluate(batch)
        except ExpressionError as error:
            raise ExpressionError(str(error).partition(" (in `")[0]) from None  # our own text is nobody's business
        return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _with_arity(run: Callable[..., pa.Array], arity: int) -> Callable[..., pa.Array]:
    """DuckDB counts the parameters of a function."""
    return (lambda a: run(a), lambda a, b: run(a, b), lambda a, b, c: run(a, b, c))[arity - 1]


def _is_one(array: pa.Array) -> bool:
    """Whether all rows have the same value, which is not null."""
    if len(array) < 2 or array.null_count or array[-1] != array[0]:
        return False
    return bool(pc.all(pc.equal(array, array[0])).as_py())
