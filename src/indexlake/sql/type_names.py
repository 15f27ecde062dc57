"""What DuckDB calls the types of our columns, and what it makes of type names."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from indexlake.errors import ExpressionError, SchemaError
from indexlake.sql.engine import Engine, translating
from indexlake.sql.fragment import Fragment
from indexlake.sql.types import storable, taken_as

_names: dict[pa.DataType, str] = {}


def sql_names(engine: Engine, types: Sequence[pa.DataType]) -> list[str]:
    """The SQL name of each Arrow type."""
    unknown = [t for t in dict.fromkeys(types) if t not in _names]
    if unknown:
        empty = pa.table({f"c{n}": pa.array([], taken_as(t)) for n, t in enumerate(unknown)})
        with engine.cursor() as cursor:
            cursor.register("__il_types", empty)
            rows = cursor.execute('describe "__il_types"').fetchall()
            cursor.unregister("__il_types")
        _names.update({t: str(row[1]) for t, row in zip(unknown, rows, strict=True)})
    return [_names[t] for t in types]


def arrow_type(engine: Engine, written: Fragment, column: str) -> pa.DataType:
    """The Arrow type of a column declared with a SQL type."""
    spliced = written.spliced(prefix="select cast(null as ", suffix=") as c")
    try:
        with translating(written.source, spliced):
            found = engine.table(spliced.text).schema.field(0).type
    except ExpressionError as error:
        raise SchemaError(f"Column {column!r}: {error}", column=column) from None
    return storable(found, column, written.written)
