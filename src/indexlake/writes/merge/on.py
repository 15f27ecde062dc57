"""``on`` of a merge: which columns must be equal for rows of both sides to match, and what else must hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as pt

from indexlake.errors import ExpressionError, SchemaError
from indexlake.schema import ROW_ID, Field, TableSchema
from indexlake.writes.merge.clauses import Params, Scope, scope_of, source_column
from indexlake.writes.merge.keys import plain_type

if TYPE_CHECKING:
    from indexlake.expr import Bound


@dataclass(frozen=True, slots=True)
class On:
    pairs: tuple[tuple[Field, str], ...]  # table column = source column
    rest: Bound | None  # the whole condition, if it says more than the pairs

    @property
    def fields(self) -> tuple[Field, ...]:
        return tuple(f for f, _ in self.pairs)

    @property
    def equal(self) -> dict[str, set[str]]:
        """The source columns that each table column equals."""
        found: dict[str, set[str]] = {}
        for f, column in self.pairs:
            found.setdefault(f.name, set()).add(column)
        return found

    def covers_key(self, schema: TableSchema) -> bool:
        """Return whether rows can be found by primary key; if so, ``pairs`` begin with the key."""
        return bool(schema.primary_key) and self.fields[: len(schema.key_fields)] == schema.key_fields

    def is_key(self, schema: TableSchema) -> bool:
        return self.covers_key(schema) and len(self.pairs) == len(schema.key_fields)


def bind_on(on: Any, schema: TableSchema, source: pa.Schema, params: Params) -> On:
    """Bind ``on`` given as ``"id"``, ``["a", "b"]``, or SQL text over ``t`` and ``s``."""
    if isinstance(on, str) and on.lower() not in schema.by_name:
        return _from_text(on, schema, source, params)
    if params:
        raise ExpressionError("params is given, but on= names columns and no condition that could use it.")
    names = [on] if isinstance(on, str) else list(on) if isinstance(on, list | tuple) else []
    if not names:
        raise SchemaError(
            f"on= says which rows match: a column, a list of columns, or a condition such as 't.id = s.id', not {on!r}."
        )
    pairs = [(schema.field(name), source_column(name, source)) for name in names]
    return On(_ordered(pairs, schema, source), None)


def _from_text(text: str, schema: TableSchema, source: pa.Schema, params: Params) -> On:
    from sqlglot import exp

    from indexlake.expr.parse import parse

    tree = parse(text).tree
    if isinstance(tree, exp.Column) and len(tree.parts) == 1:
        schema.field(tree.name)  # raises if there is no such column
    scope = scope_of("matched", schema, source)
    scope.check_names(text)
    pairs: list[tuple[Field, str]] = []
    only = True
    for part in _conjuncts(tree):
        found = _equality(part, scope, schema)
        if found is None:
            only = False
        else:
            pairs.append(found)
    if not pairs:
        raise ExpressionError(
            f"on={text!r} needs at least one equality between a table column and a source column, such as "
            "'t.id = s.id'; add other conditions with `and`.",
            text=text,
        )
    rest = scope.condition(text, params)
    return On(_ordered(pairs, schema, source), None if only else rest)


def _conjuncts(tree: Any) -> Iterator[Any]:
    from sqlglot import exp

    if isinstance(tree, exp.Paren):
        yield from _conjuncts(tree.this)
    elif isinstance(tree, exp.And):
        yield from _conjuncts(tree.left)
        yield from _conjuncts(tree.right)
    else:
        yield tree


def _equality(part: Any, scope: Scope, schema: TableSchema) -> tuple[Field, str] | None:
    from sqlglot import exp

    if not isinstance(part, exp.EQ):
        return None
    sides: dict[str, str] = {}
    for operand in (part.left, part.right):
        if not isinstance(operand, exp.Column):
            return None
        name = ".".join(p.name for p in operand.parts).lower()
        for known, (side, column) in scope.origin.items():
            if known.lower() == name:
                sides[side] = column
                break
        else:
            return None
    if len(sides) < 2 or sides["t"] == ROW_ID:
        return None
    return schema.field(sides["t"]), sides["s"]


def _ordered(pairs: list[tuple[Field, str]], schema: TableSchema, source: pa.Schema) -> tuple[tuple[Field, str], ...]:
    """Check the pairs, and put the columns of the primary key first if all of them are there."""
    for f, column in pairs:
        given = source.field(column).type
        if not f.codec.ordered:
            raise SchemaError(f"on: column {f.name!r} of type {f.type} cannot be compared.", column=f.name)
        if not _comparable(given, plain_type(f)):
            raise SchemaError(
                f"on: column {f.name!r} is of type {f.type} and the source's {column!r} of type {given}, which are not "
                "compared exactly. Cast the source's column first.",
                column=f.name,
            )
    key = [next((p for p in pairs if p[0] == f), None) for f in schema.key_fields]
    if key and None not in key:
        pairs = [p for p in key if p is not None] + [p for p in pairs if p not in key]
    return tuple(dict.fromkeys(pairs))


_EXACT = (
    lambda t: pt.is_integer(t) or pt.is_decimal(t),
    pt.is_floating,
    pt.is_boolean,
    lambda t: pt.is_string(t) or pt.is_large_string(t),
    lambda t: pt.is_binary(t) or pt.is_large_binary(t) or pt.is_fixed_size_binary(t),
    lambda t: pt.is_date(t) or (pt.is_timestamp(t) and t.tz is None),
    lambda t: pt.is_timestamp(t) and t.tz is not None,
    pt.is_time,
    pt.is_duration,
)


def _comparable(given: pa.DataType, wanted: pa.DataType) -> bool:
    return given == wanted or pt.is_null(given) or any(kind(given) and kind(wanted) for kind in _EXACT)
