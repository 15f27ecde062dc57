"""Splits a text into statements, each parsed according to its first keyword.  Parsed texts are cached."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from indexlake.errors import ExpressionError
from indexlake.sql.parse import copy_syntax, definition_syntax, named_syntax, session_syntax, write_syntax
from indexlake.sql.parse import statement as st
from indexlake.sql.parse.fragment import Fragment, composed, edited
from indexlake.sql.parse.token_reader import DATABASE, TokenReader
from indexlake.sql.parse.tokens import Source, Token, tokenize

MAX_PARSED = 512


@dataclass(frozen=True, eq=False)
class Script:
    """The statements of one text."""

    source: Source
    statements: tuple[st.Statement, ...]
    starts: tuple[int, ...]
    parameters: tuple[str, ...]
    texts: tuple[Fragment, ...]  # one per statement


_scripts: dict[str, Script] = {}
_lock = threading.Lock()


def parse(text: str) -> Script:
    """Parse every statement of the text; if any of them does not parse, none is run."""
    found = _scripts.get(text) if isinstance(text, str) else None
    if found is not None:
        return found
    if not isinstance(text, str):
        raise ExpressionError(f"SQL is text, not {type(text).__name__}.")
    script = _parse(Source(text))
    with _lock:
        while len(_scripts) >= MAX_PARSED:
            del _scripts[next(iter(_scripts))]
        return _scripts.setdefault(text, script)


def _parse(source: Source) -> Script:
    tokens = tokenize(source)
    parts = _split(tokens)
    of_call = [token for part in parts if not part[0].is_word("prepare") for token in part]
    numbered = _numbered(of_call)
    statements, starts, texts = [], [], []
    for part in parts:
        own = _numbered(part) if part[0].is_word("prepare") else numbered
        statements.append(_statement(TokenReader(source, part, own)))
        starts.append(part[0].start)
        texts.append(Fragment(source, part, numbered))
    if not statements:
        source.fail("The text contains no statement.")
    whole = Fragment(source, of_call, numbered)
    names = whole.parameters
    if any(n.isdigit() for n in names) and not all(n.isdigit() for n in names):
        source.fail("Parameters are all numbered ($1, ?) or all named ($name), not both.")
    return Script(source, tuple(statements), tuple(starts), names, tuple(texts))


def parse_statement(text: Fragment) -> st.Statement:
    """Parse a statement whose text was derived from another one."""
    return _statement(TokenReader(text.source, text.tokens, text.question_marks))


def _numbered(tokens: Sequence[Token]) -> dict[int, int]:
    """Return the number of each ``?``, by its place."""
    marks = [t for t in tokens if t.kind == "parameter" and t.text == "?"]
    return {t.start: n for n, t in enumerate(marks, 1)}


def _split(tokens: Sequence[Token]) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if token.is_symbol(";"):
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]


_QUERY_WORDS = ("select", "from", "values", "table", "summarize")
_PIVOTS = ("pivot", "unpivot", "pivot_wider", "pivot_longer")


def _statement(r: TokenReader) -> st.Statement:
    first = r.here
    assert first is not None
    prefix = _common_tables(r) if first.is_word("with") else None
    head = r.here
    if head is None:
        r.fail("Expected a statement after WITH.")
    if head.is_word(*_PIVOTS):
        r.place = 0
        return st.Query(_pivot(r))
    if head.is_symbol("(") or head.is_word(*_QUERY_WORDS):
        r.place = 0
        for token, after in zip(r.tokens, r.tokens[1:], strict=False):
            if token.is_word("into") and not after.is_word("name"):
                r.fail("SELECT … INTO is not supported: write CREATE TABLE … AS SELECT …", token)
        return st.Query(r.rest())
    writes: dict[str, Callable[[TokenReader, Fragment | None], st.Statement]] = {
        "insert": write_syntax.insert,
        "update": write_syntax.update,
        "delete": write_syntax.delete,
        "merge": write_syntax.merge,
    }
    if head.kind == "word" and head.value in writes:
        return writes[head.value](r, prefix)
    if prefix is None and head.kind == "word":
        others: dict[str, Callable[[TokenReader], st.Statement]] = {
            "truncate": write_syntax.truncate,
            "copy": copy_syntax.copy,
            "create": definition_syntax.create,
            "drop": definition_syntax.drop,
            "alter": definition_syntax.alter,
            "comment": named_syntax.comment,
            "prepare": lambda r: session_syntax.prepare(r, _statement),
            "execute": session_syntax.execute,
            "deallocate": session_syntax.deallocate,
            "set": session_syntax.set_setting,
            "reset": session_syntax.reset_setting,
            "pragma": session_syntax.pragma,
            "call": session_syntax.call,
            "use": session_syntax.use,
            "load": session_syntax.load,
            "checkpoint": session_syntax.nothing,
            "analyze": session_syntax.analyze,
            "vacuum": session_syntax.analyze,
            "explain": _explain,
            "describe": _describe,
            "desc": _describe,
            "show": _show,
        }
        if head.value in others:
            return others[head.value](r)
        for control, texts in _CONTROLS.items():
            if any(len(words) == len(r.tokens) and r.take(*words) for words in map(str.split, texts)):
                return st.Control(control, read_only=r.tokens[-1].is_word("only"))
        if head.value in {text.split()[0] for texts in _CONTROLS.values() for text in texts}:
            r.fail(
                "A transaction begins with BEGIN or BEGIN READ ONLY and ends with COMMIT or ROLLBACK, without further "
                "words.",
                r.tokens[-1],
            )
        if r.sees("force", "checkpoint"):
            return session_syntax.nothing(r)
    session_syntax.refuse_by_name(r)
    raise r.wrong(
        f"{head.text!r} is not a supported statement. Supported: select, insert, update, delete, merge, "
        "truncate, copy, create/drop/alter table, create/drop view, index, schema, sequence, type, macro, comment on, "
        "begin, commit, rollback, show, describe, explain, pivot, unpivot, summarize, prepare, execute, "
        "deallocate, set, reset, pragma, call."
    )


_CONTROLS: dict[Literal["begin", "commit", "rollback"], tuple[str, ...]] = {
    "begin": (
        "begin", "begin transaction", "begin work", "start transaction", "begin read write",
        "begin transaction read write", "start transaction read write", "begin read only",
        "begin transaction read only", "begin work read only", "start transaction read only",
    ),
    "commit": ("commit", "commit transaction", "commit work", "end", "end transaction"),
    "rollback": ("rollback", "rollback transaction", "rollback work", "abort", "abort transaction"),
}  # fmt: skip


def _common_tables(r: TokenReader) -> Fragment:
    """Parse ``with a as (…), b as (…)``, up to the statement that uses them."""
    return r.until("select", "from", "values", "insert", "update", "delete", "merge", "table", *_PIVOTS)


def _pivot(r: TokenReader) -> Fragment:
    """Parse ``pivot …``; before an order or a limit, wrap it in a subquery, as parsers only accept it there."""
    prefix = _common_tables(r) if r.sees("with") else None
    inner = r.until("order", "limit", "offset")
    if r.at_end:
        r.place = 0
        return r.rest()
    return composed(["select * from (", inner, ") ", r.rest()], r.source, prefix)


def _explain(r: TokenReader) -> st.Explain | st.ExplainOther:
    r.expect("explain")
    analyze, format = r.take("analyze"), None
    if r.sees_symbol("(") and r.tokens[r.place + 1].is_word("analyze", "format"):
        options = r.parenthesised()
        analyze = analyze or options.has_word("analyze")
        if options.has_word("format") and not options.has_word("text", "default"):
            format = options.tokens[-1].value
    if r.at_end:
        r.fail("Expected a statement here.")
    inner = _statement(TokenReader(r.source, r.tokens[r.place :], r.question_marks))
    if isinstance(inner, st.Query):
        return st.Explain(inner, analyze, format)
    if analyze:
        r.fail("EXPLAIN ANALYZE would run the change: use EXPLAIN, or explain the select that finds its rows.")
    return st.ExplainOther(r.rest())


def _describe(r: TokenReader) -> st.Reading:
    r.place += 1
    alone = len(r.tokens) == 2 and any(map(r.sees, ("tables", "databases", "schemas")))
    if alone or r.sees("all", "tables"):
        return _shown(r)
    if r.sees("select") or r.sees("from") or r.sees("with") or r.sees("values") or r.sees_symbol("("):
        return st.DescribeQuery(st.Query(r.rest()))
    if r.at_end:
        return _all_tables(r)
    r.take("table")
    table = r.table_name()
    r.expect_end()
    return st.DescribeTable(table)


def _all_tables(r: TokenReader) -> st.Query:
    """Return a query for every table with its columns, in DuckDB's format."""
    first = Fragment(r.source, r.tokens[:1], {})
    return st.Query(edited(first, [(first.start, first.end, "from (show all tables)")]))


def _namespace(r: TokenReader) -> str:
    first = r.here
    parts = r.parts("a namespace")
    if len(parts) > 2 or (len(parts) == 2 and parts[0].lower() != DATABASE):
        r.fail("A namespace is a single name.", first)
    return parts[-1]


def _show(r: TokenReader) -> st.Reading:
    r.expect("show")
    return _shown(r)


def _shown(r: TokenReader) -> st.Reading:
    found: st.Reading
    if r.at_end or r.take("all", "tables"):
        found = _all_tables(r)
    elif r.sees("databases") or r.sees("schemas") or r.sees("variables"):
        what = "duckdb_variables()" if r.sees("variables") else f"(show {r.name().lower()})"
        r.place = len(r.tokens)
        first = Fragment(r.source, r.tokens[:1], {})
        found = st.Query(edited(first, [(first.start, first.end, f"from {what}")]))
    elif r.sees("select") or r.sees("from") or r.sees("with") or r.sees("values") or r.sees_symbol("("):
        return st.DescribeQuery(st.Query(r.rest()))
    elif r.take("tables"):
        found = st.ShowTables(_namespace(r) if r.take("from") or r.take("in") else None)
    elif r.take("all", "indexes"):
        found = st.ShowIndexes(None, everywhere=True)
    elif r.take("indexes"):
        found = st.ShowIndexes(r.table_name() if r.take("from") or r.take("in") else None)
    elif r.take("columns", "from") or r.take("columns", "in"):
        found = st.DescribeTable(r.table_name())
    elif r.sees("create"):
        r.fail("SHOW CREATE is not supported: select sql from duckdb_tables() or duckdb_views().")
    elif r.sees("index", "from") or r.sees("index", "in"):
        r.fail("Write show indexes [from t], or show all indexes.")
    else:
        found = st.DescribeTable(r.table_name())
    r.expect_end()
    return found
