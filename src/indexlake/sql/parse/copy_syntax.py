"""Parses ``copy … to`` and ``copy … from``: what is copied, which file, and the options, with DuckDB's names."""

from __future__ import annotations

from indexlake.sql.parse import statement as st
from indexlake.sql.parse.fragment import Fragment, composed
from indexlake.sql.parse.token_reader import TableName, TokenReader
from indexlake.sql.parse.tokens import quoted, text_literal

_WITH_VALUE = ("delimiter", "delim", "sep", "null", "quote", "escape", "encoding", "format", "compression")
_WORDS = (*_WITH_VALUE, "csv", "header", "force", "parquet", "json", "ignore_errors", "auto_detect", "skip")


def copy(r: TokenReader) -> st.CopyTo | st.CopyFrom:
    r.expect("copy")
    if r.sees("from", "database"):
        r.fail("COPY FROM DATABASE is not supported. SQL runs on a single lake: copy tables one by one, through files.")
    table: TableName | None = None
    columns: tuple[str, ...] | None = None
    query: Fragment | None = None
    if r.sees_symbol("("):
        query = r.parenthesised()
    else:
        first = r.place
        table = r.table_name()
        name = r.since(first)
        if r.sees_symbol("("):
            columns = tuple(r.names())
        listed = "*" if columns is None else ", ".join(map(quoted, columns))
        query = composed([f"select {listed} from ", name], r.source)
    if r.take("to"):
        file = _file(r)
        return st.CopyTo(st.Query(query), file, None if r.at_end else r.rest())
    if table is None:
        r.expect("to")
    if not r.take("from"):
        r.fail("Expected TO or FROM here.")
    assert table is not None
    file = _file(r)
    return st.CopyFrom(table, columns, file, _options(r))


def _file(r: TokenReader) -> Fragment:
    first = r.place
    if r.sees_symbol("("):
        r.parenthesised()
    elif r.here is not None and r.here.kind in ("string", "parameter"):
        r.place += 1
    elif r.sees("stdin") or r.sees("stdout"):
        r.fail("There is no standard input or output here: name a file, or read and insert rows in Python.")
    else:
        r.fail("Expected the name of a file here, in single quotes.")
    return r.since(first)


def _options(r: TokenReader) -> tuple[st.CopyOption, ...]:
    """Parse ``[with] (name value, …)``, or the older ``csv header delimiter ';'``."""
    r.take("with")
    found: list[st.CopyOption] = []
    if r.sees_symbol("("):
        found = r.listed(lambda: _option(r))
        r.expect_end()
        return tuple(found)
    while not r.at_end:
        place = r.here.start if r.here is not None else 0
        name = r.name("an option").lower()
        if name in ("csv", "parquet", "json"):
            found.append(st.CopyOption("format", text_literal(name), place))
        elif name in _WITH_VALUE:
            r.take("as")
            found.append(st.CopyOption(name, _value(r, *_WORDS), place))
        elif name == "force" and r.take("not", "null"):
            names = [r.name("a column")]
            while r.take_symbol(","):
                names.append(r.name("a column"))
            found.append(st.CopyOption("force_not_null", _list(names), place))
        else:
            written = r.here is not None and r.here.is_word("true", "false")
            found.append(st.CopyOption(name, _value(r, *_WORDS) if written else "true", place))
    return tuple(found)


def _option(r: TokenReader) -> st.CopyOption:
    place = r.here.start if r.here is not None else 0
    name = r.name("an option").lower()
    r.take_symbol("=")
    if r.at_end or r.sees_symbol(",") or r.sees_symbol(")"):
        return st.CopyOption(name, "true", place)
    if r.sees_symbol("("):
        return st.CopyOption(name, _list(r.names()), place)
    return st.CopyOption(name, _value(r), place)


def _value(r: TokenReader, *words: str) -> str:
    """Parse a value and return it as an argument for DuckDB's functions, with words as texts."""
    written = r.operand("Expected the option's value here.", *words)
    if written.parameters:
        r.fail("Options of COPY must be constants.", written.tokens[0])
    first = written.tokens[0]
    if len(written.tokens) == 1 and first.kind in ("word", "name") and not first.is_word("true", "false"):
        return text_literal(first.text if first.kind == "word" else first.value)
    return written.text


def _list(names: list[str]) -> str:
    return f"[{', '.join(map(text_literal, names))}]"
