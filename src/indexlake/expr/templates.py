"""Rules of tables: turns the text that a user writes into a ``Template`` over the columns of a table."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

import pyarrow as pa

from indexlake.errors import ExpressionError, IndexLakeError, SchemaError
from indexlake.expr.compiler import compile
from indexlake.expr.parse import parse
from indexlake.expr.sqltype import of_column, quoted
from indexlake.schema import Field, TableSchema
from indexlake.schema.lineage import line
from indexlake.schema.rules import Template

VOLATILE = ("random", "uuid", "gen_random_uuid", "uuidv4", "uuidv7")
"""Functions that give a different value for every row; allowed in defaults."""
NEXT = "nextval"
"""As does the next number of a sequence."""


def template_of(text: str, fields: Sequence[Field]) -> Template:
    """Return the text with columns replaced by their numbers.  Anything that is not a column stays as written."""
    from sqlglot import exp

    parsed = parse(text)
    if parsed.parameters:
        raise ExpressionError(f"a table rule is stored, so it cannot have parameters: write the value (in `{text}`)")
    by_name = {f.name.lower(): root_of(f) for f in fields}
    places: dict[int, tuple[int, int]] = {}
    for column in parsed.tree.find_all(exp.Column):
        first = column.parts[0]
        number = by_name.get(first.name.lower())
        start, end = first.meta.get("start"), first.meta.get("end")
        if number is not None and start is not None and end is not None:
            places[start] = end + 1, number
    parts: list[str | int] = []
    done = 0
    for start, (end, number) in sorted(places.items()):
        parts += [text[done:start], number]
        done = end
    return Template((*parts, text[done:]))


def root_of(f: Field) -> int:
    return [g.field_id for g in line(f)][-1]


def written(template: Template, schema: TableSchema) -> str:
    """Return the text with the names that the columns have in a schema."""
    return template.written(lambda number: quoted(schema.by_root[number].name))


def shown(template: Template, schema: TableSchema) -> str:
    """Return the text as a user would write it."""

    def name(number: int) -> str:
        found = schema.by_root[number].name
        return found if re.fullmatch(r"[a-z_][a-z0-9_]*", found) else quoted(found)

    return template.written(name)


def check_rules(schema: TableSchema) -> None:
    """Refuse rules that cannot be computed over these columns."""
    for check in schema.checks:
        with_rule(f"Check {check.name!r}", lambda check=check: _check_condition(check.condition, schema))  # type: ignore[misc]
    for f in schema.fields:
        if f.generated is not None:
            with_rule(f"Generated column {f.name!r}", lambda f=f: _check_generated(f, schema))  # type: ignore[misc]
        if f.default_sql is not None:
            with_rule(f"The default of column {f.name!r}", lambda f=f: default_parts(f.default_sql, of_column(f)))  # type: ignore[misc]


def with_rule(what: str, then: Callable[[], object]) -> None:
    """Turn errors of an expression into errors of the rule that it belongs to."""
    try:
        then()
    except KeyError:
        raise SchemaError(f"{what} needs a column that would be dropped. Drop the rule first.") from None
    except IndexLakeError as error:
        raise SchemaError(f"{what}: {error}") from None


def _check_condition(condition: Template, schema: TableSchema) -> None:
    text = written(condition, schema)
    _refuse_changing(text)
    bound = compile(text, schema.arrow)
    if not pa.types.is_boolean(bound.type) and not pa.types.is_null(bound.type):
        raise ExpressionError(f"a check must be a condition, but this is of type {bound.type} (in `{text}`)")


def _check_generated(f: Field, schema: TableSchema) -> None:
    assert f.generated is not None
    text = written(f.generated, schema)
    for number in f.generated.columns:
        if schema.by_root[number].generated is not None:
            name = schema.by_root[number].name
            raise ExpressionError(f"{name!r} is generated itself: use the columns behind it (in `{text}`)")
    if f.default is not None or f.default_sql is not None:
        raise ExpressionError("a column cannot both be generated and have a default")
    if f.field_id in schema.primary_key:
        raise ExpressionError("a column of the primary key cannot be generated")
    _refuse_changing(text)
    compile(text, schema.arrow, target=of_column(f))


def _refuse_changing(text: str) -> None:
    """Refuse rules that do not give the same result for the same row at any time."""
    if calls(text):
        name = calls(text)[0][2].partition(" ")[0]
        raise ExpressionError(f"{name}() gives a different value each time (in `{text}`)")
    if compiles_to_moment(text):
        raise ExpressionError(f"the current time changes; only a default may use it (in `{text}`)")


def compiles_to_moment(text: str) -> bool:
    from sqlglot import exp

    words = {"now", "current_timestamp", "current_date", "current_time", "localtime", "localtimestamp", "today",
             "get_current_timestamp", "transaction_timestamp"}  # fmt: skip
    tree = parse(text).tree
    kinds = (exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentTime)
    return any(isinstance(node, kinds) or (isinstance(node, exp.Anonymous) and node.name.lower() in words)
               for node in tree.walk())  # fmt: skip


@lru_cache(256)
def calls(text: str) -> tuple[tuple[int, int, str], ...]:
    """Find calls of functions that give a different value for every row: start, end, name.

    For ``nextval`` the name includes that of the sequence.
    """
    from sqlglot.dialects.duckdb import DuckDB

    tokens = DuckDB().tokenize(text)
    found = []
    for name, opening, closing, after in zip(tokens, tokens[1:], tokens[2:], [*tokens[3:], None], strict=False):
        called = name.text.lower()
        if called in VOLATILE and opening.text == "(" and closing.text == ")":
            found.append((name.start, closing.end + 1, called))
        elif called == NEXT and opening.text == "(" and after is not None and after.text == ")":
            found.append((name.start, after.end + 1, f"{NEXT} {closing.text}"))
    return tuple(found)


@lru_cache(256)
def default_parts(text: str, target: object) -> tuple[str, pa.Schema, tuple[str, ...]]:
    """Split a default into an expression over the values of its calls, the columns with these values, and the calls.

    Raises an error if it cannot be computed.
    """
    found = calls(text)
    kinds = {"random": pa.float64(), NEXT: pa.int64()}
    fields = [pa.field(f"v{n}", kinds.get(name.partition(" ")[0], pa.uuid())) for n, (_, _, name) in enumerate(found)]
    new, done = "", 0
    for n, (start, end, _) in enumerate(found):
        new += f'{text[done:start]}"v{n}"'
        done = end
    new += text[done:]
    schema = pa.schema(fields)
    compile(new, schema, target=target)  # type: ignore[arg-type]
    return new, schema, tuple(name for _, _, name in found)
