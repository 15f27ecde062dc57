"""A text as its statements, each parsed by its first keyword.  A text is parsed once and kept."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from indexlake.errors import ExpressionError
from indexlake.sql import change_syntax, definition_syntax
from indexlake.sql.fragment import Fragment
from indexlake.sql.statement import (
    Begin,
    Commit,
    DescribeQuery,
    DescribeTable,
    Explain,
    Query,
    Rollback,
    ShowSchemas,
    ShowTables,
    Statement,
)
from indexlake.sql.token_reader import TokenReader
from indexlake.sql.tokens import Source, Token, tokenize

MAX_PARSED = 512


@dataclass(frozen=True, eq=False)
class Script:
    """The statements of one text."""

    source: Source
    statements: tuple[Statement, ...]
    starts: tuple[int, ...]
    parameters: tuple[str, ...]


_scripts: dict[str, Script] = {}
_lock = threading.Lock()


def parse(text: str) -> Script:
    """Every statement of the text; a text that does not parse is refused before anything of it has run."""
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
    marks = [t for t in tokens if t.kind == "parameter" and t.text == "?"]
    numbered = {t.start: n for n, t in enumerate(marks, 1)}
    statements, starts = [], []
    for part in _split(tokens):
        reader = TokenReader(source, part, numbered)
        statements.append(_statement(reader))
        starts.append(part[0].start)
    if not statements:
        source.fail("The text holds no statement.")
    whole = Fragment(source, tokens, numbered)
    names = whole.parameters
    if any(n.isdigit() for n in names) and not all(n.isdigit() for n in names):
        source.fail("Parameters are all numbered ($1, ?) or all named ($name), not both.")
    return Script(source, tuple(statements), tuple(starts), names)


def _split(tokens: Sequence[Token]) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if token.is_symbol(";"):
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]


_QUERY_WORDS = ("select", "from", "values", "table", "pivot", "unpivot", "summarize")


def _statement(r: TokenReader) -> Statement:
    first = r.here
    assert first is not None
    prefix = _common_tables(r) if first.is_word("with") else None
    head = r.here
    if head is None:
        r.fail("Expected a statement after WITH.")
    if head.is_symbol("(") or head.is_word(*_QUERY_WORDS):
        r.place = 0
        return Query(r.rest())
    changes: dict[str, Callable[[TokenReader, Fragment | None], Statement]] = {
        "insert": change_syntax.insert,
        "update": change_syntax.update,
        "delete": change_syntax.delete,
        "merge": change_syntax.merge,
    }
    if head.kind == "word" and head.value in changes:
        return changes[head.value](r, prefix)
    if prefix is None and head.kind == "word":
        others: dict[str, Callable[[TokenReader], Statement]] = {
            "truncate": change_syntax.truncate,
            "create": definition_syntax.create,
            "drop": definition_syntax.drop,
            "alter": definition_syntax.alter,
            "explain": _explain,
            "describe": _describe,
            "desc": _describe,
            "show": _show,
        }
        if head.value in others:
            return others[head.value](r)
        for words, made in _TRANSACTION_WORDS:
            if len(words) == len(r.tokens) and r.take(*words):
                return made()
    raise r.wrong(
        f"{head.text!r} is not a supported statement. Supported: select, insert, update, delete, merge, "
        "truncate, create/drop/alter table, create/drop schema, begin, commit, rollback, show, describe, explain."
    )


_TRANSACTION_WORDS: list[tuple[tuple[str, ...], Callable[[], Statement]]] = [
    (("begin",), Begin),
    (("begin", "transaction"), Begin),
    (("start", "transaction"), Begin),
    (("commit",), Commit),
    (("commit", "transaction"), Commit),
    (("end",), Commit),
    (("rollback",), Rollback),
    (("rollback", "transaction"), Rollback),
    (("abort",), Rollback),
]


def _common_tables(r: TokenReader) -> Fragment:
    """``with a as (…), b as (…)``, up to the statement that uses them."""
    return r.until("select", "from", "values", "insert", "update", "delete", "merge", "pivot", "unpivot", "table")


def _explain(r: TokenReader) -> Explain:
    r.expect("explain")
    analyze = r.take("analyze")
    inner = _statement(TokenReader(r.source, r.tokens[r.place :], r.question_marks)) if not r.at_end else None
    if not isinstance(inner, Query):
        r.fail("explain is for queries.")
    return Explain(inner, analyze)


def _describe(r: TokenReader) -> DescribeTable | DescribeQuery:
    r.place += 1
    if r.sees("select") or r.sees("from") or r.sees("with") or r.sees("values") or r.sees_symbol("("):
        return DescribeQuery(Query(r.rest()))
    r.take("table")
    table = r.table_name()
    r.expect_end()
    return DescribeTable(table)


def _show(r: TokenReader) -> ShowTables | ShowSchemas | DescribeTable:
    r.expect("show")
    found: ShowTables | ShowSchemas | DescribeTable
    if r.take("all", "tables"):
        found = ShowTables(None, everywhere=True)
    elif r.take("tables"):
        found = ShowTables(r.name("a namespace") if r.take("from") or r.take("in") else None)
    elif r.take("schemas") or r.take("namespaces"):
        found = ShowSchemas()
    elif r.take("columns", "from") or r.take("columns", "in"):
        found = DescribeTable(r.table_name())
    else:
        r.fail(
            "Show what? Supported: show tables [from namespace], show all tables, show schemas, show columns from t."
        )
    r.expect_end()
    return found
