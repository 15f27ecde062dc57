"""Sequences, types and macros: creating, dropping and finding them in statements; and comments."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from indexlake.catalog.named import find_named, list_named
from indexlake.catalog.named_definitions import ChangeNamed, CreateNamed, DropNamed, OwnSequence
from indexlake.errors import (
    AlreadyExistsError,
    ExpressionError,
    IndexLakeError,
    NotFoundError,
    OwnershipError,
    SchemaError,
)
from indexlake.pipeline.meta import publish_meta
from indexlake.schema.names import full_name
from indexlake.sql.parse import statement as st
from indexlake.sql.parse.fragment import Fragment, composed
from indexlake.sql.parse.parameters import Parameters
from indexlake.sql.parse.script import parse_statement
from indexlake.sql.parse.tokens import Source, quoted, tokenize
from indexlake.sql.plan.macro_body import names_something
from indexlake.sql.plan.own_names import (
    NEXT,
    NO_MACROS,
    Definitions,
    Meaning,
    asks,
    drafted,
    put_in,
    replaced,
    types_of,
)
from indexlake.sql.plan.query_tables import TEMPORARY
from indexlake.sql.plan.snapshot import Viewpoint
from indexlake.sql.run.constant_values import constant_value
from indexlake.sql.run.definitions_in_duckdb import sequence_text
from indexlake.sql.run.engine import Engine
from indexlake.sql.run.engine_errors import translating
from indexlake.sql.run.index_definitions import comment_on_index
from indexlake.sql.run.planning import plan_query
from indexlake.sql.run.search_path import namespace_of
from indexlake.sql.run.sequence_functions import check_numbers, draft_with_sequences

_KINDS = ("macro", "table macro", "type")
_Naming = (
    st.Query | st.Explain | st.DescribeQuery | st.CopyTo | st.Write | st.CreateTable | st.CreateTemporaryTable
    | st.CreateView | st.CreateNamed | st.AlterTable
)  # fmt: skip


def takes_numbers(text: Fragment) -> bool:
    return text.has_word(NEXT, drafted(NEXT), "nextval")  # the latter is of a temporary sequence


# ---------------------------------------------------------------- in statements


def with_own_names(engine: Engine, view: Viewpoint, statement: st.Meant, text: Fragment) -> tuple[st.Meant, Fragment]:
    """Return the statement with its macros, types and sequences replaced; cached with its text."""
    if not isinstance(statement, _Naming) or (isinstance(statement, st.CreateNamed) and statement.kind != "type"):
        return statement, text
    types = types_of(statement)
    named, sequences = asks(text, types)
    if not named and not sequences:
        return statement, text
    known = _definitions(engine, view) if named else Definitions()
    if not known and not sequences and len(view.path) == 1:
        return statement, text
    if sequences and view.snapshot is not None:
        raise OwnershipError(f"The lake at snapshot {view.snapshot} is read-only: its sequences give no numbers.")
    stored = isinstance(statement, st.AlterTable) or (isinstance(statement, st.CreateTable) and statement.query is None)
    aggregates = engine.aggregates if known else frozenset()
    sequence_in = partial(namespace_of, view, kind="sequence")
    lasting = stored or (isinstance(statement, st.CreateView) and not statement.temporary)
    temporary = () if lasting else {name for kind, name in engine.temporary_names if kind == "sequence"}
    draft = None if isinstance(statement, st.CreateView) else draft_with_sequences(engine, view)
    meaning = Meaning(
        view.path, known, engine.printed, aggregates, stored, sequence_in=sequence_in, temporary=temporary, draft=draft
    )
    made = replaced(text, types, meaning)
    check_numbers(view, made)
    if made is text:
        return statement, text
    cache: dict[str, tuple[st.Meant, Fragment]] = text.__dict__.setdefault("with_own_names", {})
    if made.source.text not in cache:
        if len(cache) > 16:
            cache.clear()
        again = parse_statement(made)
        assert isinstance(again, st.Meant)
        cache[made.source.text] = again, made
    return cache[made.source.text]


def _definitions(engine: Engine, view: Viewpoint) -> Definitions:
    with view.seen() as seen:
        found = list_named(seen.r, seen.at, _KINDS)
    by_kind: dict[str, dict[tuple[str, str], Any]] = {kind: {} for kind in _KINDS}
    for named in found:
        by_kind[named.kind][named.namespace.lower(), named.name.lower()] = named.body
    for (kind, name), body in engine.temporary_names.items():
        if kind in by_kind:
            by_kind[kind][TEMPORARY, name] = body
    return Definitions(*(by_kind[kind] for kind in _KINDS))


# ---------------------------------------------------------------- create and drop


def create_named(engine: Engine, view: Viewpoint, statement: st.CreateNamed, parameters: Parameters) -> None:
    body = dict(statement.body)
    if statement.kind == "type":
        body["text"] = _type_text(engine, view, statement, parameters)
    elif statement.kind != "sequence":
        for text in statement.texts:
            prefix, suffix = ("", "") if statement.kind == "table macro" else ("select (", ")")
            spliced = text.spliced(prefix=prefix, suffix=suffix)
            with translating(text.source, spliced):
                engine.syntax_tree(spliced.text)
        _check_macro(engine, view, statement)
    if statement.temporary or statement.name.namespace == TEMPORARY:
        key = statement.kind, statement.name.name.lower()
        if key in engine.temporary_names and not statement.replace:
            if statement.if_not_exists:
                return
            raise AlreadyExistsError(
                f"There is a temporary {statement.kind} {statement.name.name!r} already. Replace it with CREATE OR "
                "REPLACE, accept it with IF NOT EXISTS, or drop it first.",
                name=statement.name.name,
            )
        if statement.kind == "sequence":
            body["name"] = statement.name.name
            _drop_in_engine(engine, body["name"])
            with engine.cursor() as cursor:
                cursor.execute(sequence_text(quoted(body["name"]), body))
        engine.temporary_names[key] = body
        return
    namespace = statement.name.namespace or view.namespace
    change = CreateNamed(
        statement.kind, namespace, statement.name.name, body, statement.replace, statement.if_not_exists
    )
    view.within._define(change, f"create {statement.kind}")


def _check_macro(engine: Engine, view: Viewpoint, statement: st.CreateNamed) -> None:
    name, source = statement.name, statement.texts[0].source
    if name.name.lower() in NO_MACROS:
        source.fail(f"{name.name.upper()} has a meaning of its own in SQL: give the macro another name.", name.place)
    space = TEMPORARY if statement.temporary else name.namespace or view.namespace
    known, key = _definitions(engine, view), (space.lower(), name.name.lower())
    if statement.kind == "macro":
        known = replace(known, macros={**known.macros, key: statement.body})
    else:
        known = replace(known, table_macros={**known.table_macros, key: statement.body})
    sequence_in = partial(namespace_of, view, kind="sequence")
    meaning = Meaning(view.path, known, engine.printed, engine.aggregates, sequence_in=sequence_in)
    for overload in statement.body["overloads"]:
        for parameter, _, default in overload["parameters"]:
            if default is not None and names_something(default):
                source.fail(
                    f"The default of {parameter} cannot refer to columns or other parameters.",
                    name.place,
                )
        nothing = {parameter.lower(): "null" for parameter, _, _ in overload["parameters"]}
        is_table = statement.kind == "table macro"
        text = put_in(space, name.name, overload, nothing, meaning, (source, name.place), is_table=is_table)
        if is_table:
            _check_tables(engine, view, text)
        else:
            _check_columns(engine, view, text)


def _check_columns(engine: Engine, view: Viewpoint, text: str) -> None:
    """Check that a scalar macro names only its parameters; whether types fit is checked where it is called."""
    source = Source(f"select ({text})")
    query = st.Query(Fragment(source, tokenize(source), {}))
    try:
        plan_query(engine, view, query, Parameters.of_values({}), points=False, scans_only=True).describe()
    except ExpressionError as error:
        if str(error).startswith(("* expression", "STAR")):
            raise ExpressionError("A macro that is a value cannot be `*`: write create macro … as table.") from None
        if str(error).startswith(("Referenced column", "Scalar Function with name")):
            raise ExpressionError(
                f"The macro refers to something other than its parameters: {str(error).splitlines()[0]}"
            ) from None
    except NotFoundError as error:
        if not _is_of_parameter(error):
            raise


def _check_tables(engine: Engine, view: Viewpoint, text: str) -> None:
    """Check that the tables a table macro reads are there; what else is wrong depends on its arguments."""
    source = Source(f"from {text}")
    query = st.Query(Fragment(source, tokenize(source), {}))
    try:
        plan_query(engine, view, query, Parameters.of_values({}), points=False, scans_only=True)
    except IndexLakeError as error:
        if isinstance(error, NotFoundError) and not _is_of_parameter(error):
            raise


def _is_of_parameter(error: NotFoundError) -> bool:
    """Return whether what is missing is named by a parameter, which is NULL in these checks."""
    return str(error.details.get("name")).rpartition(".")[2].lower() == "null"


def _type_text(engine: Engine, view: Viewpoint, statement: st.CreateNamed, parameters: Parameters) -> str:
    """Return the type in DuckDB's own spelling."""
    if statement.query is not None:
        text = composed(
            ["select #1::varchar, columns(*) from (", statement.query.text, ")"], statement.query.text.source
        )
        schema, batches = plan_query(engine, view, st.Query(text), parameters).run()
        values = dict.fromkeys(value for batch in batches for value in batch.column(0).to_pylist())
        values.pop(None, None)
        if len(schema) != 2 or not values:
            statement.query.text.source.fail(
                "The query of an ENUM must return one column with at least one text.", statement.query.text.start
            )
        written = ", ".join("'" + value.replace("'", "''") + "'" for value in values)
        return f"ENUM({written})"
    (text,) = statement.texts
    name = statement.name.name
    with translating(text.source, text.spliced(suffix=name)):
        engine.bind(f"create temp type {quoted(name)} as integer")  # DuckDB's own types keep their names
    spliced = text.spliced(prefix="select cast(null as ", suffix=") as c")
    with translating(text.source, spliced):
        (type,) = engine.types(spliced.text)
    return str(type)


def drop_named(engine: Engine, view: Viewpoint, statement: st.DropNamed) -> None:
    """Drop what has the name.  ``drop macro`` drops a table macro if no other macro has its name."""
    name, namespace = statement.name, statement.name.namespace or view.namespace
    kinds = [statement.kind, "table macro"] if statement.kind == "macro" else [statement.kind]
    if name.namespace in (None, TEMPORARY):
        for kind in kinds:
            if (kind, name.name.lower()) not in engine.temporary_names:
                continue
            if kind == "sequence":
                _drop_in_engine(engine, name.name)
            del engine.temporary_names[kind, name.name.lower()]
            return
    with view.seen() as seen:
        there = (kind for kind in kinds if find_named(seen.r, kind, namespace, name.name, seen.at))
        kind = next(there, statement.kind)
    change = DropNamed(kind, namespace, name.name, statement.if_exists, statement.cascade)
    view.within._define(change, f"drop {kind}")
    if view.transaction is None:
        for table_id in change.found:
            publish_meta(view.lake, table_id)


def own_sequence(view: Viewpoint, statement: st.OwnSequence) -> None:
    name, owner = statement.name, statement.owner
    space = owner.namespace or namespace_of(view, owner.name)
    change = OwnSequence(name.namespace or view.namespace, name.name, space, owner.name, statement.if_exists)
    view.within._define(change, "alter sequence")


def _drop_in_engine(engine: Engine, sequence: str) -> None:
    import duckdb

    try:
        with engine.cursor() as cursor:
            cursor.execute(f"drop sequence if exists {quoted(sequence)}")
    except duckdb.DependencyException:
        raise SchemaError(
            f"A temporary table takes numbers from the sequence {sequence!r}: drop the table first.", name=sequence
        ) from None


# ---------------------------------------------------------------- comments


def comment_on(engine: Engine, view: Viewpoint, statement: st.CommentOn, parameters: Parameters) -> None:
    comment = None if statement.comment is None else constant_value(engine, statement.comment, parameters)
    if comment is not None and not isinstance(comment, str):
        assert statement.comment is not None
        statement.comment.source.fail("A comment must be a text, or NULL for none.", statement.comment.start)
    namespace = statement.name.namespace or view.namespace
    full = full_name(namespace, statement.name.name)
    kind, changes = statement.kind, {"comment": comment}
    if kind == "index":
        comment_on_index(view, statement.name, comment)
        return
    if kind in ("table", "view", "column"):
        try:
            table = view.table(full)
        except NotFoundError as error:
            if "is a view" not in str(error):
                raise
        else:
            table.set_comment(comment, statement.column)
            return
        kind = "view"
    if statement.column is not None:
        _check_column_of_view(engine, view, statement)
        changes = {f"comment on {statement.column.lower()}": comment}
    view.within._define(ChangeNamed(kind, namespace, statement.name.name, changes), "comment")


def _check_column_of_view(engine: Engine, view: Viewpoint, statement: st.CommentOn) -> None:
    name, column = statement.name, statement.column
    assert column is not None
    source = Source(f"from {quoted(name.namespace or view.namespace)}.{quoted(name.name)}")
    query = st.Query(Fragment(source, tokenize(source), {}))
    planned = plan_query(engine, view, query, Parameters.of_values({}), points=False, scans_only=True)
    if column.lower() not in [str(own).lower() for own in planned.describe().column("column_name").to_pylist()]:
        raise NotFoundError(f"View {name.name!r} has no column {column!r}.", name=column)
