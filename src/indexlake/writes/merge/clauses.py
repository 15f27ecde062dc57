"""The clauses of a merge: what is done with which rows, and the names that their expressions may use.

In a condition and in ``il.expr``, a column of the table is ``t.name`` and one of the source ``s.name``. A bare name
means the column that has it; if both sides have it, that is an error. A clause for rows without a match can only use
the side that exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from indexlake.errors import ExpressionError, SchemaError
from indexlake.expr.expression import Expression
from indexlake.schema import Field, TableSchema, unknown_column
from indexlake.types.hugeint import hugeints
from indexlake.types.marks import mark_of
from indexlake.writes.assignments import Assignments

if TYPE_CHECKING:
    from indexlake.expr import Bound

When = Literal["matched", "not matched", "not matched by source"]
Action = Literal["update", "delete", "insert", "nothing"]
Params = Mapping[str, Any] | Sequence[Any] | None


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause as the caller gave it. ``values`` None: all columns of the source, by name."""

    when: When
    action: Action
    values: Mapping[str, Any] | None = None
    condition: str | None = None
    params: Params = None

    def __str__(self) -> str:
        text = f"when {self.when}{f' and {self.condition}' if self.condition is not None else ''} then "
        text += "do nothing" if self.action == "nothing" else self.action
        if self.action in ("delete", "nothing"):
            return text
        if self.values is None:
            return f"{text} all columns of the source"
        shown = ", ".join(f"{name} = {_shown(value)}" for name, value in self.values.items())
        return f"{text} {'set' if self.action == 'update' else 'values'} {shown}"


def _shown(value: Any) -> str:
    if isinstance(value, Expression):
        return value.text
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


class Scope:
    """The columns that expressions may name, and where each comes from."""

    def __init__(self, target: TableSchema | None, source: pa.Schema | None) -> None:
        self.origin: dict[str, tuple[str, str]] = {}  # as expressions name it -> (side, column)
        self._missing = {side for side, schema in (("t", target), ("s", source)) if schema is None}
        fields: list[pa.Field] = []
        sides = [("t", target.arrow_with_row_id)] if target is not None else []
        sides += [("s", source)] if source is not None else []
        seen: list[str] = []
        for side, schema in sides:
            for f in schema:
                fields.append(pa.field(f"{side}.{f.name}", f.type, metadata=mark_of(f)))
                self.origin[f"{side}.{f.name}"] = side, f.name
                seen.append(f.name.lower())
        self._both = {name for name in seen if seen.count(name) > 1}
        self.schema = pa.schema(fields)

    def bind(self, text: str, params: Params, target: Field | None = None) -> Bound:
        """Bind an expression; ``target`` is the column that the value is for."""
        from indexlake.expr import compile, of_column

        self.check_names(text)
        wanted = None if target is None else of_column(target)
        return compile(text, self.schema, params, qualifiers=("t", "s"), target=wanted)

    def condition(self, text: str | None, params: Params) -> Bound | None:
        if text is None:
            if params:
                raise ExpressionError("params is given without a condition that could use it.")
            return None
        if not isinstance(text, str):
            raise ExpressionError(f'A condition is SQL text, not {type(text).__name__}. Write for example "t.v < s.v".')
        bound = self.bind(text, params)
        if not pa.types.is_boolean(bound.type) and not pa.types.is_null(bound.type):
            raise ExpressionError(f"{text!r} is of type {bound.type}; a condition is true or false.", text=text)
        return bound

    def check_names(self, text: str) -> None:
        """Refuse ambiguous names, and names of a side that is missing, before the text is compiled."""
        from sqlglot import exp

        from indexlake.expr.parse import parse

        for column in parse(text).tree.find_all(exp.Column):
            parts = [part.name for part in column.parts]
            if len(parts) == 1 and parts[0].lower() in self._both:
                raise ExpressionError(
                    f"{parts[0]!r} is a column of the table and of the source: write t.{parts[0]} or s.{parts[0]} "
                    f"(in `{text}`).",
                    text=text,
                )
            if len(parts) > 1 and parts[0].lower() in self._missing:
                side = "table" if parts[0].lower() == "t" else "source"
                raise ExpressionError(
                    f"{'.'.join(parts)!r}: the rows of this clause have no match in the {side} (in `{text}`).",
                    text=text,
                )

    def columns(self, side: str, names: Iterable[str]) -> list[str]:
        """Return the columns of one side behind these names, without duplicates."""
        return list(dict.fromkeys(column for name in names for s, column in (self.origin[name],) if s == side))


@dataclass(frozen=True, slots=True)
class BoundClause:
    """A clause bound to the columns of one table and one source."""

    action: Action
    scope: Scope
    condition: Bound | None
    setter: Assignments | None
    names: frozenset[str]  # the columns used for the new values, as the scope names them

    @property
    def all_names(self) -> frozenset[str]:
        return self.names if self.condition is None else self.names | self.condition.columns


def bind_clause(clause: Clause, schema: TableSchema, source: pa.Schema) -> BoundClause:
    """Bind a clause; everything that is wrong with it is found here, before a row is read."""
    scope = scope_of(clause.when, schema, source)
    condition = scope.condition(clause.condition, clause.params)
    setter = None
    names: set[str] = set()
    if clause.action in ("update", "insert"):
        setter = _setter(clause, schema, source, scope)
        names |= setter.columns
        if clause.action == "update":
            names |= {f"t.{f.name}" for f in schema.fields if not setter.changes((f.name,))}
    return BoundClause(clause.action, scope, condition, setter, frozenset(names))


def scope_of(when: When, schema: TableSchema, source: pa.Schema) -> Scope:
    return _scope(when, schema, source, hugeints(source))


@lru_cache(256)
def _scope(when: When, schema: TableSchema, source: pa.Schema, marked: tuple[str, ...]) -> Scope:
    return Scope(
        None if when == "not matched" else schema,
        None if when == "not matched by source" else source,
    )


def _setter(clause: Clause, schema: TableSchema, source: pa.Schema, scope: Scope) -> Assignments:
    def bind(expression: Expression, target: Field) -> Bound:
        return scope.bind(expression.text, expression.params, target)

    if clause.values is not None:
        what = "set" if clause.action == "update" else "values"
        return Assignments(clause.values, schema, bind=bind, what=what)
    copies = {}
    for name in source.names:
        if name.lower() not in schema.by_name:
            what = "set" if clause.action == "update" else "values"
            raise SchemaError(
                f"The source has a column {name!r} that the table does not have. Say what to do with the others: "
                f"{what}={{'column': il.expr('s.column'), …}}. The table's columns are {', '.join(schema.names)}.",
                column=name,
            )
        copies[schema.by_name[name.lower()].name] = f"s.{name}"
    return Assignments({}, schema, bind=bind, copies=copies)


def source_column(name: str, source: pa.Schema) -> str:
    """Return the source's column of that name, ignoring case."""
    for known in source.names:
        if isinstance(name, str) and known.lower() == name.lower():
            return str(known)
    raise SchemaError(f"In the source: {unknown_column(name, source.names)}", column=str(name))


def keeps_key(setter: Assignments, schema: TableSchema, equal: Mapping[str, set[str]]) -> bool:
    """Return whether rows keep their primary keys: no key column is set, or only to what ``on`` says it equals."""
    return all(not setter.changes((f.name,)) or _takes(setter, f, equal) for f in schema.key_fields)


def takes_key(setter: Assignments, schema: TableSchema, equal: Mapping[str, set[str]]) -> bool:
    """Return whether new rows have the primary keys that were looked up."""
    return all(_takes(setter, f, equal) for f in schema.key_fields)


def _takes(setter: Assignments, f: Field, equal: Mapping[str, set[str]]) -> bool:
    return setter.copied(f) in {f"s.{column}" for column in equal.get(f.name, ())}
