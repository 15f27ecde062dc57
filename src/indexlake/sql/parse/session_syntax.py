"""Parses statements other than queries and changes: prepared statements, engine settings, and unsupported ones.

An unsupported statement is refused with a hint at what to do instead.
"""

from __future__ import annotations

from collections.abc import Callable

from indexlake.sql.parse import statement as st
from indexlake.sql.parse.fragment import Fragment, composed, edited
from indexlake.sql.parse.token_reader import TokenReader
from indexlake.sql.parse.tokens import text_literal

_INSTEAD = {
    "attach": "SQL runs on a single lake: open another one with il.connect, and join their results in Python.",
    "detach": "SQL runs on a single lake; there is nothing to detach.",
    "install": "Extensions cannot be installed; geometries, JSON, Parquet and full-text search work without one.",
    "force": "Extensions cannot be installed. FORCE CHECKPOINT is accepted.",
    "export": "A lake is its folder and its catalog; copy a table with COPY … TO.",
    "import": "Insert files into a table: t.insert('folder/*.parquet'), or COPY … FROM.",
    "grant": "Who may read and write is decided where the lake is stored.",
    "revoke": "Who may read and write is decided where the lake is stored.",
    "savepoint": "Transactions have no savepoints.",
    "release": "Transactions have no savepoints.",
    "upsert": "Write INSERT OR REPLACE INTO …, or INSERT … ON CONFLICT DO UPDATE SET ….",
    "replace": "Write INSERT OR REPLACE INTO ….",
    "fetch": "There are no cursors: a result is read batch by batch, with to_batches().",
    "close": "There are no cursors: a result is read batch by batch, with to_batches().",
    "listen": "The change feed tells what others commit: t.changes(since=…).",
    "notify": "The change feed tells what others commit: t.changes(since=…).",
    "declare": "There are no cursors: a result is read batch by batch, with to_batches().",
    "lock": "Rows are locked by reading them in a transaction with scan(…, for_update=True).",
    "reindex": "Indexes are kept up to date automatically.",
}


def refuse_by_name(r: TokenReader) -> None:
    """Refuse an unsupported statement, if its first word is one that people are likely to try."""
    word = r.here.value if r.here is not None and r.here.kind == "word" else ""
    if word in _INSTEAD:
        r.fail(f"{word.upper()} is not supported. {_INSTEAD[word]}")


def prepare(r: TokenReader, inner: Callable[[TokenReader], st.Statement]) -> st.Prepare:
    r.expect("prepare")
    name = r.name_or_text("the name of the statement")
    if r.sees_symbol("("):
        r.fail("The types of parameters are inferred: leave the list out.")
    r.expect("as")
    if r.at_end:
        r.fail("Expected a statement here.")
    rest = TokenReader(r.source, r.tokens[r.place :], r.question_marks)
    statement = inner(rest)
    if isinstance(statement, st.Around | st.Control | st.Execute):
        r.fail("Only queries, changes and definitions can be prepared.")
    r.place = len(r.tokens)
    whole = TokenReader(r.source, rest.tokens, r.question_marks).rest()
    if len({name.isdigit() for name in whole.parameters}) > 1:
        r.fail("Parameters are all numbered ($1, ?) or all named ($name), not both.", rest.tokens[0])
    return st.Prepare(name, statement, whole)


def execute(r: TokenReader) -> st.Execute:
    r.expect("execute")
    place = r.here.start if r.here is not None else 0
    name = r.name_or_text("the name of a prepared statement")
    arguments: list[st.Argument] = []

    def argument() -> st.Argument:
        given = None
        after = r.tokens[r.place + 1] if r.place + 1 < len(r.tokens) else None
        if after is not None and after.is_symbol(":=", "=>"):
            given = r.name("the name of a parameter")
            r.place += 1
        return st.Argument(given, r.operand("Expected a value here."))

    if r.sees_symbol("(") and r.place + 1 < len(r.tokens) and r.tokens[r.place + 1].is_symbol(")"):
        r.place += 2
    elif r.sees_symbol("("):
        arguments = r.listed(argument)
    r.expect_end()
    return st.Execute(name, tuple(arguments), place)


def deallocate(r: TokenReader) -> st.Deallocate:
    r.expect("deallocate")
    r.take("prepare")
    place, every = r.here.start if r.here is not None else 0, r.take("all")
    name = None if every else r.name_or_text("the name of a prepared statement")
    r.expect_end()
    return st.Deallocate(name, place)


def set_setting(r: TokenReader) -> st.Setting | st.Variable:
    r.expect("set")
    if r.take("variable"):
        name = r.name("the name of a variable")
        if not r.take_symbol("=") and not r.take("to"):
            r.fail("Expected = here.")
        if r.sees("select") or r.sees("with") or r.sees("from") or r.sees("values"):
            r.fail("Put the query in parentheses: set variable v = (select …).")
        value = r.rest("a value")
        word = value.tokens[0]
        is_bare = len(value.tokens) == 1 and word.kind in ("word", "name") and not word.is_word(*_VALUES)
        if is_bare:  # a text, as in DuckDB
            text = text_literal(word.value if word.kind == "name" else word.text)
            value = edited(value, [(value.start, value.end, text)])
        one = composed(["select (select (", value, ")) as value"], r.source)  # several values are an error
        return st.Variable(name.lower(), st.Query(one))
    if r.sees("transaction"):
        r.fail("SET TRANSACTION is not supported: every transaction reads one snapshot, and the first to commit wins.")
    for scope in ("session", "global", "local"):
        r.take(scope)
    return _assigned(r)


def reset_setting(r: TokenReader) -> st.Setting | st.Variable:
    r.expect("reset")
    if r.take("variable"):
        name = r.name("the name of a variable")
        r.expect_end()
        return st.Variable(name.lower(), None)
    for scope in ("session", "global", "local"):
        r.take(scope)
    place = r.here.start if r.here is not None else 0
    name = r.name("a setting")
    r.expect_end()
    return st.Setting(name.lower(), None, place)


def _assigned(r: TokenReader) -> st.Setting:
    place = r.here.start if r.here is not None else 0
    if r.take("time", "zone"):
        return st.Setting("timezone", r.rest("a value"), place)
    name = r.name("a setting")
    if not r.take_symbol("=") and not r.take("to"):
        r.fail("Expected = here.")
    value = r.rest("a value")
    return st.Setting(name.lower(), None if value.is_default else value, place)


def use(r: TokenReader) -> st.Setting:
    r.expect("use")
    place = r.here.start if r.here is not None else 0
    return st.Setting("schema", r.rest("a namespace"), place)


def load(r: TokenReader) -> st.Nothing:
    """Accept LOAD of what is built in, which needs no loading."""
    r.expect("load")
    token = r.here
    if token is None or token.value.lower() not in _BUILT_IN:
        r.fail("LOAD is not supported: no extension is loaded. JSON, Parquet, ICU and full-text search are built in.")
    return nothing(r)


def pragma(r: TokenReader) -> st.Setting | st.Query | st.Nothing:
    """Parse ``pragma name``, ``pragma name = value`` or ``pragma function(…)``."""
    r.expect("pragma")
    first = r.here
    if first is None or first.kind != "word":
        r.fail("Expected the name of a pragma here.")
    after = r.tokens[r.place + 1] if r.place + 1 < len(r.tokens) else None
    name = first.value
    if after is not None and after.is_symbol("="):
        if name not in _FUNCTIONS:
            return _assigned(r)
        r.place += 2
        return st.Query(composed([f"from pragma_{name}(", r.rest("a value"), ")"], r.source))
    if name in _CHECKS and after is None:
        return nothing(r)
    if name in _SHOWN and after is None:
        return st.Query(composed([f"from (show {_SHOWN[name]}) as ", r.rest()], r.source))
    if name == "database_list" and after is None:
        return st.Query(composed(["from pragma_", r.rest()], r.source))
    if name in ("enable_profiling", "enable_profile"):
        r.fail("Queries are not profiled in general: EXPLAIN ANALYZE profiles a single one.")
    if name not in _FUNCTIONS:
        r.fail(
            f"PRAGMA {name} is not supported. There are table_info('t'), show_tables, version, database_size, "
            "collations, platform, and settings of the engine: threads, memory_limit, …"
        )
    arguments = "" if after is not None else "()"
    return st.Query(composed(["from pragma_", r.rest(), arguments], r.source))


def call(r: TokenReader) -> st.Query:
    r.expect("call")
    return st.Query(composed(["from ", r.rest("a function")], r.source))


def analyze(r: TokenReader) -> st.Nothing:
    """``[vacuum] [analyze] [t [(columns)]]``

    Statistics are kept with the blocks, and files that nobody needs are removed in the background.
    """
    r.place += 1
    r.take("analyze")
    if r.at_end:
        return nothing(r)
    first = r.place
    r.table_name()
    table = r.since(first)
    columns: Fragment | str = r.parenthesised() if r.sees_symbol("(") else "*"
    r.expect_end()
    return st.Nothing(st.Query(composed(["select ", columns, " from ", table], r.source)))


def nothing(r: TokenReader) -> st.Nothing:
    """Accept ``checkpoint``: commits are durable when they return."""
    r.place = len(r.tokens)
    return st.Nothing()


_VALUES = (
    "null", "true", "false", "default", "current_date", "current_time", "current_timestamp", "localtime",
    "localtimestamp", "current_user", "session_user", "user",
)  # fmt: skip
_FUNCTIONS = ("table_info", "version", "database_size", "show", "collations", "platform", "user_agent")
_SHOWN = {"show_tables": "tables", "show_tables_expanded": "all tables", "show_databases": "databases"}
_BUILT_IN = ("parquet", "json", "icu", "core_functions")
_CHECKS = frozenset({
    "enable_optimizer", "disable_optimizer", "enable_print_progress_bar", "disable_print_progress_bar",
    "enable_verification", "disable_verification", "verify_parallelism", "disable_verify_parallelism",
    "verify_external", "disable_verify_external", "verify_serializer", "verify_fetch_row", "disable_verify_fetch_row",
    "enable_progress_bar", "disable_progress_bar", "enable_object_cache", "disable_object_cache",
    "enable_checkpoint_on_shutdown", "disable_checkpoint_on_shutdown", "force_checkpoint", "disable_profiling",
    "disable_profile",
})  # fmt: skip
"""Settings for the engine's self-checks, its planner and its own database file: accepted without effect."""
