"""The rows of an insert, in the table's types.

As in SQL, any value that can be cast to its column's type is accepted.  The cells of ``values`` are cast one by one,
the columns of a query as a whole.  Rows of plain literals and parameters of the columns' own types need no engine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pyarrow as pa

from indexlake.display import counted
from indexlake.errors import ExpressionError
from indexlake.schema import Field, TableSchema
from indexlake.sources.rules import default_array
from indexlake.sql.parse import statement as st
from indexlake.sql.parse.fragment import Fragment, composed
from indexlake.sql.parse.parameters import Parameters
from indexlake.sql.parse.token_reader import TokenReader
from indexlake.sql.parse.tokens import Token, quoted
from indexlake.sql.plan.query import DEFAULTS
from indexlake.sql.plan.snapshot import Viewpoint
from indexlake.sql.run.engine import Engine
from indexlake.sql.run.merge_sides import generated_is_given
from indexlake.sql.run.planning import plan_query
from indexlake.sql.run.type_names import casts_to
from indexlake.types.enums import enum_of
from indexlake.types.marks import cast_type, collation_of
from indexlake.types.uuids import is_uuid

_WHOLE = re.compile(r"\d+")
_FRACTION = re.compile(r"\d+\.\d*|\.\d+")
_EXACT = 16
"""Decimals of up to this many characters are the same double to Python and DuckDB (which divides by powers)."""
MISSING: Any = object()


class InsertedRows:
    def __init__(self, engine: Engine, parameters: Parameters, statement: st.Insert, schema: TableSchema) -> None:
        self._engine = engine
        self._parameters = parameters
        self._statement = statement
        self._schema = schema
        names = statement.columns
        written = tuple(f for f in schema.fields if f.generated is None)
        self._fields: tuple[Field, ...] = written if names is None else schema.project(names)
        self._check_written(self._fields)
        if len({f.name for f in self._fields}) < len(self._fields):
            raise self._wrong("A column is named twice.")
        query = statement.query
        self._cells = None if query is None else cells_of(query)
        if self._cells is not None:
            for row in self._cells:
                self._check_count(len(row))

    def _wrong(self, problem: str) -> ExpressionError:
        query = self._statement.query
        if query is None:
            return ExpressionError(problem)
        return query.text.source.error(problem, query.text.start)

    def _check_count(self, given: int) -> None:
        if given != len(self._fields):
            names = [f.name for f in self._fields]
            raise self._wrong(
                f"{counted(given, 'value')} given for {counted(len(names), 'column')} ({', '.join(names)})."
            )

    def _check_written(self, fields: Sequence[Field]) -> None:
        for f in fields:
            if f.generated is not None:
                raise self._wrong(generated_is_given(f))

    # ------------------------------------------------------------ without an engine

    def python_rows(self) -> list[dict[str, Any]] | None:
        """Return rows of literals and parameters in their columns' own types, or None if the engine has to cast."""
        if self._statement.query is None:
            return [{}]
        if self._cells is None or self._statement.by_name or any(map(takes_a_cast, self._fields)):
            return None
        rows = []
        for cells in self._cells:
            row: dict[str, Any] = {}
            for cell, f in zip(cells, self._fields, strict=True):
                if cell.is_default:
                    continue
                value = self._plain(cell.tokens, f)
                if value is MISSING:
                    return None
                row[f.name] = value
            rows.append(row)
        return rows

    def _plain(self, cell: Sequence[Token], f: Field) -> Any:
        negative = len(cell) == 2 and cell[0].is_symbol("-")
        token = cell[-1]
        if len(cell) > 1 and not negative:
            return MISSING
        value: Any = MISSING
        if token.kind == "parameter" and not negative:
            assert self._statement.query is not None
            value = self._parameters.values[self._statement.query.text.key(token)]
        elif token.kind == "number" or (token.kind == "string" and not negative):
            value = literal(token.text, negative)
        elif token.is_word("null"):
            value = None
        elif token.is_word("true", "false"):
            value = token.value == "true"
        return MISSING if negative and token.kind != "number" else fitting(value, f)

    # ------------------------------------------------------------ with an engine

    def stream(self, view: Viewpoint) -> pa.RecordBatchReader:
        """Return the rows of a query as a stream of batches with the given columns."""
        fields, query, constants = self._cast_query(view)
        planned = plan_query(self._engine, view, query, self._parameters)
        planned.constants = {**planned.constants, **constants}
        schema, batches = planned.run()
        named = pa.schema([f.with_name(own.name) for f, own in zip(schema, fields, strict=True)])
        renamed = (pa.RecordBatch.from_arrays(batch.columns, schema=named) for batch in batches)
        return pa.RecordBatchReader.from_batches(named, renamed)

    def _cast_query(self, view: Viewpoint) -> tuple[Sequence[Field], st.Query, dict[str, pa.Table]]:
        query = self._statement.query
        assert query is not None
        if self._cells is not None:
            return self._fields, *self._cast_cells(query.text)
        whole = st.Query(composed([query.text], query.text.source, self._statement.prefix))
        planned = plan_query(self._engine, view, whole, self._parameters, points=False, scans_only=True)
        described = planned.describe()
        given = described.column("column_name").to_pylist()
        fields: Sequence[Field] = self._fields
        if self._statement.by_name:
            fields = self._schema.project(given)
            self._check_written(fields)
        else:
            self._check_count(len(given))
        every = enumerate(zip(fields, casts_to(self._engine, fields), strict=True), 1)
        casts = ", ".join(f"{before}#{n}{after} as {quoted(f.name)}" for n, (f, (before, after)) in every)
        text = composed([f"select {casts} from (", whole.text, ")"], whole.text.source)
        return fields, st.Query(text), {}

    def _cast_cells(self, text: Fragment) -> tuple[st.Query, dict[str, pa.Table]]:
        assert self._cells is not None
        casts = casts_to(self._engine, self._fields)
        parts: list[str | Fragment] = ["select * from (values "]
        defaults: dict[str, pa.Array] = {}
        for n, row in enumerate(self._cells):
            parts.append(", (" if n else "(")
            for place, (cell, f, (before, after)) in enumerate(zip(row, self._fields, casts, strict=True)):
                parts.append(", " if place else "")
                if cell.is_default:
                    defaults[f"{f.name} {n}"] = default_array(f, 1)
                    parts.append(f"{before}(select {quoted(f'{f.name} {n}')} from {DEFAULTS}){after}")
                else:
                    parts += [before, cell, after]
            parts.append(")")
        names = ", ".join(quoted(f.name) for f in self._fields)
        parts.append(f") as __il_rows({names})")
        constants = {DEFAULTS: pa.table(defaults)} if defaults else {}
        return st.Query(composed(parts, text.source, self._statement.prefix)), constants


def takes_a_cast(f: Field) -> bool:
    """Return whether the engine has to cast a value before the table can hold it."""
    return cast_type(f) is not None and enum_of(f) is None and collation_of(f) is None


def literal(text: str, negative: bool) -> Any:
    """Return the value of a number or text literal if Python represents it exactly; else ``MISSING``."""
    if text.startswith("'"):
        return text[1:-1].replace("''", "'")
    if _WHOLE.fullmatch(text):
        return -int(text) if negative else int(text)
    if _FRACTION.fullmatch(text) and len(text) <= _EXACT:
        return -float(text) if negative else float(text)
    return MISSING


def fitting(value: Any, f: Field) -> Any:
    """Return the value if the column accepts it as it is; else ``MISSING``: the engine has to cast or refuse it."""
    if value is None:
        return None
    kind = _KINDS.get(type(value))
    return value if kind is not None and kind(f.type) else MISSING


def _is_text(type: pa.DataType) -> bool:
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type))


def _is_binary(type: pa.DataType) -> bool:
    return bool(pa.types.is_binary(type) or pa.types.is_large_binary(type))


_KINDS: dict[type, Callable[[pa.DataType], bool]] = {
    int: pa.types.is_integer, float: pa.types.is_float64, bool: pa.types.is_boolean, bytes: _is_binary, str: _is_text,
    UUID: is_uuid,
}  # fmt: skip


def cells_of(query: st.Query) -> list[list[Fragment]] | None:
    """Return the cells of ``values (…), (…)``, or None if the rows come from another query.  Cached with the query."""
    found: dict[str, list[list[Fragment]] | None] = query.__dict__
    if "cells" not in found:
        found["cells"] = _cells(query.text)
    return found["cells"]


def _cells(text: Fragment) -> list[list[Fragment]] | None:
    r = TokenReader(text.source, text.tokens, text.question_marks)
    rows: list[list[Fragment]] = []
    if not r.take("values"):
        return None

    def cell() -> Fragment:
        return r.operand("This parenthesis is not closed." if r.at_end else "Expected a value here.")

    while not r.at_end:
        if not r.take_symbol("("):
            return None
        row = [cell()]
        while r.take_symbol(",") and not r.sees_symbol(")"):
            row.append(cell())
        if r.at_end:
            r.fail("This parenthesis is not closed.")
        r.expect_symbol(")")
        rows.append(row)
        if not r.at_end and not r.take_symbol(","):
            return None
    return rows or None
