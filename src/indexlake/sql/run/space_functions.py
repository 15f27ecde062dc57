"""Geometry functions for engines that have none of their own: ours, applied to their batches.

Arguments that are the same for all rows of a batch are passed as constants, so that one geometry is prepared once and
compared with many.
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

_TAKEN = "st_geomfromwkb"
"""DuckDB's function of this name takes the same arguments but returns a GEOMETRY; a macro takes precedence over it."""


def register(connection: Any) -> None:
    """Register the functions with a database, for all of its cursors."""
    for function in FUNCTIONS:
        for types, result in function.signatures:
            names = tuple(map(str, types))
            run = _with_arity(OverBatches(function.name, names), len(names))
            name = f"indexlake_{function.name}" if function.name == _TAKEN else function.name
            connection.create_function(name, run, list(names), str(result), type="arrow", null_handling="special")
    connection.execute(f"create macro {_TAKEN}(bytes) as indexlake_{_TAKEN}(bytes)")


class OverBatches:
    """One function, applied to batches of its arguments.  Picklable."""

    def __init__(self, name: str, types: tuple[str, ...]) -> None:
        self._types = [_ARROW[type] for type in types]
        self._name = name
        self._schemas: dict[tuple[int, ...], pa.Schema] = {}  # one for each set of non-constant arguments

    def __call__(self, *arguments: pa.Array | pa.ChunkedArray) -> pa.Array:
        arrays = [_array(a).cast(type) for a, type in zip(arguments, self._types, strict=True)]
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
            raise ExpressionError(str(error).partition(" (in `")[0]) from None  # leave out our own generated text
        return _array(found)


def _with_arity(run: Callable[..., pa.Array], arity: int) -> Callable[..., pa.Array]:
    """Return a function with the given number of parameters, which DuckDB determines from the signature."""
    return (lambda a: run(a), lambda a, b: run(a, b), lambda a, b, c: run(a, b, c))[arity - 1]


def _array(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _is_one(array: pa.Array) -> bool:
    """Return whether all rows have the same value, not null."""
    if len(array) < 2 or array.null_count or array[-1] != array[0]:
        return False
    return bool(pc.all(pc.equal(array, array[0])).as_py())
