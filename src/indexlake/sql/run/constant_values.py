"""Values given in a statement as constants or parameters: options of tables and indexes, arguments of a search."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa

from indexlake.sql.parse.fragment import Fragment
from indexlake.sql.parse.parameters import Parameters
from indexlake.sql.run.engine import Engine
from indexlake.sql.run.engine_errors import translating


def constant_value(engine: Engine, written: Fragment, parameters: Parameters) -> Any:
    """Return the value of a constant expression: a lone parameter as given, anything else computed by DuckDB."""
    if len(written.tokens) == 1:
        token = written.tokens[0]
        if token.kind == "parameter":
            return parameters.values[written.key(token)]
        if token.kind == "string" and token.text.startswith("'"):
            return token.value
    spliced = written.spliced(prefix="select (", suffix=") as c")
    with translating(written.source, spliced):
        value = engine.table(spliced.text, parameters.of(written.parameters)).column(0)[0]
        value = tuple(value[n].as_py() for n in range(len(value.type))) if _is_row(value.type) else value.as_py()
    if isinstance(value, pa.MonthDayNano):
        return timedelta(days=value.days, microseconds=value.nanoseconds // 1000)
    return value


def _is_row(type: pa.DataType) -> bool:
    """Return whether it is a row of unnamed values: ``(1.5, 2)``."""
    return bool(pa.types.is_struct(type)) and not any(field.name for field in type)
