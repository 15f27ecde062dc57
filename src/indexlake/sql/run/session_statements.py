"""Prepared statements, settings and variables: what a lake's engine remembers from one text to the next."""

from __future__ import annotations

from collections.abc import Sequence

from indexlake.commit.write_set import WriteResult
from indexlake.errors import NotFoundError
from indexlake.expr.constants import plain
from indexlake.sql.parse import statement as st
from indexlake.sql.parse.fragment import Fragment, composed, edited
from indexlake.sql.parse.parameters import Parameters
from indexlake.sql.parse.script import parse_statement
from indexlake.sql.parse.tokens import Source, Token, quoted
from indexlake.sql.plan.select_items import names
from indexlake.sql.plan.snapshot import Viewpoint
from indexlake.sql.run.constant_values import constant_value
from indexlake.sql.run.engine import Engine
from indexlake.sql.run.engine_errors import translating
from indexlake.sql.run.named_definitions import takes_numbers, with_own_names
from indexlake.sql.run.planning import parsed_query, plan_query
from indexlake.sql.run.result import SqlChange
from indexlake.sql.run.search_path import located
from indexlake.sql.run.settings import set_setting
from indexlake.sql.run.temporary_tables import is_temporary

VARIABLES = "__il_variable_"
_AS_TEXT = ("BIT", "HUGEINT", "UHUGEINT", "BIGNUM", "TIME WITH TIME ZONE")
"""Types of arguments that Python has no values for."""


def meant(engine: Engine, statement: st.Execute, source: Source) -> st.Prepare:
    """Return the prepared statement to be executed."""
    found = engine.prepared.get(statement.name.lower())
    if found is None:
        raise NotFoundError(
            str(source.error(f"There is no prepared statement {statement.name!r}: PREPARE it first.", statement.place)),
            name=statement.name,
        )
    return found


def filled(
    engine: Engine, view: Viewpoint, prepared: st.Prepare, statement: st.Execute, given: Parameters, source: Source
) -> tuple[st.Statement, Fragment, Parameters]:
    """Return a prepared statement with the values of its parameters.  They keep their types: ``1::tinyint``."""
    values: dict[str, object] = {}
    types: dict[str, str] = {}
    for n, argument in enumerate(statement.arguments, 1):
        name = str(n) if argument.name is None else argument.name
        values[name], type = _typed(engine, _expanded(engine, view, argument.value), given)
        if type is not None:
            types[name] = type
    wanted = set(prepared.parameters)
    if values.keys() != wanted:
        known = ", ".join(f"${name}" for name in prepared.parameters) or "none"
        source.fail(
            f"{prepared.name!r} has the parameters {known}; {len(values)} given: {', '.join(values) or 'none'}.",
            statement.place,
        )
    inner, text = prepared.statement, prepared.text
    plain = _integers(statement)
    if types or plain:
        marks = [(n, t, text.key(t)) for n, t in enumerate(text.tokens) if t.kind == "parameter"]
        edits = [(t.start, t.end, f"cast(${k} as {types[k]})") for _, t, k in marks if k in types]
        edits += [(t.start, t.end, plain[k]) for n, t, k in marks if k in plain and _in_arithmetic(text.tokens, n)]
        if edits:
            text = edited(text, [*edits, *names(text, edits, engine.printed)])
            inner = parse_statement(text)
    return inner, text, Parameters.of_values(values)


def _integers(statement: st.Execute) -> dict[str, str]:
    """Return the arguments that are written as integers.

    In arithmetic their type is that of what they are computed with, which no value has.
    """
    given = ((str(n) if a.name is None else a.name, a.value.tokens) for n, a in enumerate(statement.arguments, 1))
    written = ((name, "".join(token.text for token in tokens)) for name, tokens in given)
    return {name: f"({text})" if text[0] == "-" else text for name, text in written if text.removeprefix("-").isdigit()}


def _in_arithmetic(tokens: Sequence[Token], place: int) -> bool:
    around = [*tokens[max(0, place - 1) : place], *tokens[place + 1 : place + 2]]
    return any(token.is_symbol("+", "-", "*", "/", "//", "%") for token in around)


def _expanded(engine: Engine, view: Viewpoint, written: Fragment) -> Fragment:
    """Return an argument with the lake's macros, types and sequences replaced."""
    if len(written.tokens) == 1:
        return written
    whole = composed(["values (", written, ")"], written.source)
    _, made = with_own_names(engine, view, st.Query(whole), whole)
    return Fragment(made.source, made.tokens[2:-1], made.question_marks)


def _typed(engine: Engine, written: Fragment, given: Parameters) -> tuple[object, str | None]:
    """Return the value of an argument, and DuckDB's type of it if the value alone would have another one."""
    if len(written.tokens) == 1 or takes_numbers(written):  # which are taken once
        return _value(engine, written, given), None
    asked = written.spliced(prefix="select typeof((", suffix="))")
    with translating(written.source, asked):
        type = engine.table(asked.text, given.of(written.parameters)).column(0)[0].as_py()
    if type in _AS_TEXT:
        asked = written.spliced(prefix="select cast((", suffix=") as varchar)")
        with translating(written.source, asked):
            return engine.table(asked.text, given.of(written.parameters)).column(0)[0].as_py(), type
    value = plain(_value(engine, written, given))
    if type == '"NULL"' or isinstance(value, tuple):  # a row of values without names, whose type cannot be written
        return value, None
    if type.startswith("MAP(") and isinstance(value, list):
        value = {"key": [k for k, _ in value], "value": [v for _, v in value]}  # as DuckDB takes it from Python
    own = engine.table("select typeof($value)", {"value": value}).column(0)[0].as_py()
    return value, None if own == type else type


def _value(engine: Engine, written: Fragment, given: Parameters) -> object:
    token = written.tokens[-1]
    if len(written.tokens) == 1 and token.kind == "number" and token.text.isdigit():
        return int(token.text)
    return constant_value(engine, written, given)


def around(engine: Engine, view: Viewpoint, statement: st.Around, given: Parameters, source: Source) -> SqlChange:
    if isinstance(statement, st.Prepare):
        _bind(engine, view, statement)
        engine.prepared[statement.name.lower()] = statement
    elif isinstance(statement, st.Deallocate) and statement.name is None:
        engine.prepared.clear()
    elif isinstance(statement, st.Deallocate):
        assert statement.name is not None
        engine.prepared.pop(statement.name.lower(), None)
    elif isinstance(statement, st.Setting):
        set_setting(engine, view, statement.name, _setting(engine, statement, given), statement, source)
    elif isinstance(statement, st.Nothing) and statement.looked_at is not None:
        plan_query(engine, view, statement.looked_at, given, points=False, scans_only=True).describe()
    elif isinstance(statement, st.Variable):
        _set_variable(engine, view, statement, given)
    return SqlChange(type(statement).__name__.lower(), WriteResult(0))


def _bind(engine: Engine, view: Viewpoint, prepared: st.Prepare) -> None:
    """Raise what is wrong with a statement before it is executed, as far as it does not depend on its parameters."""
    inner = prepared.statement
    if not isinstance(inner, st.Meant):
        return
    statement, _ = with_own_names(engine, view, inner, prepared.text)
    if isinstance(statement, st.Query):
        unknown = Parameters.of_values(dict.fromkeys(prepared.parameters))
        parsed = parsed_query(engine, statement)
        if not parsed.searches and not any(r.at is not None for r in parsed.references):
            plan_query(engine, view, statement, unknown, points=False, scans_only=True).bind()
    elif isinstance(statement, st.Insert | st.Update | st.Delete) and not is_temporary(engine, statement.table):
        name = located(engine, view, statement).table
        view.table(name.full(view.namespace))


def _setting(engine: Engine, statement: st.Setting, given: Parameters) -> object:
    """Return the new value of a setting, or None for its default.  Words stand for themselves."""
    written = statement.value
    if written is None:
        return None
    plain = all(t.kind in ("word", "name") or t.is_symbol(".") for t in written.tokens)
    return "".join(t.value for t in written.tokens) if plain else _value(engine, written, given)


def _set_variable(engine: Engine, view: Viewpoint, statement: st.Variable, given: Parameters) -> None:
    """Set a variable.  Its value is kept in one of DuckDB's own tables, with its type."""
    table = quoted(f"{VARIABLES}{statement.name}")
    if statement.value is None:
        engine.set_variable(statement.name, None)
        with engine.cursor() as cursor:
            cursor.execute(f"drop table if exists {table}")
        return
    planned = plan_query(engine, view, statement.value, given, points=False, scans_only=True)
    planned.execute(f"create or replace table {table} as ")
    engine.set_variable(statement.name, f"(select value from {table})")
