"""The functions of geometries in DuckDB: those of predicates, batch by batch.

DuckDB knows a type GEOMETRY; here geometries are WKB in BLOB columns, as everywhere in a lake.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from indexlake.expr import geometries
from indexlake.expr.fallback import sql_name
from indexlake.expr.functions import space

_CALL = re.compile(rf"\b({'|'.join(function.name for function in space.FUNCTIONS)})\"?\s*\(", re.IGNORECASE)
_TAKEN = "st_geomfromwkb"
"""DuckDB has a function of this name for the same arguments; a macro comes before it."""


def calls_geometry_function(sql: str) -> bool:
    """Whether a text may call one of the functions."""
    return _CALL.search(sql) is not None


def add_geometry_functions(database: Any) -> None:
    """Make the functions known to a database.  Raises ``MissingExtraError`` if what computes them is missing."""
    geometries.library()
    for function in space.FUNCTIONS:
        ((types, result),) = function.signatures
        name = f"indexlake_{function.name}" if function.name == _TAKEN else function.name
        made = _of_batches(function.name, len(types))
        parameters = [sql_name(type) for type in types]
        database.create_function(name, made, parameters, sql_name(result), type="arrow", null_handling="special")
    database.execute(f"create macro {_TAKEN}(bytes) as indexlake_{_TAKEN}(bytes)")


def _of_batches(name: str, count: int) -> Callable[..., Any]:
    """The function over columns of DuckDB, which wants to see how many it takes."""

    def apply(*columns: Any) -> Any:
        return space.over_columns(name, [column.combine_chunks() for column in columns])

    by_count: dict[int, Callable[..., Any]] = {
        1: lambda a: apply(a),
        2: lambda a, b: apply(a, b),
        3: lambda a, b, c: apply(a, b, c),
    }
    return by_count[count]
