"""Turns rules of tables, as SQL writes them, into the text that is stored.

Columns lose the table name before them, and a generated column used in another one's expression is replaced by its own
expression, so that each is computed from written columns only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from indexlake.errors import ExpressionError
from indexlake.sql.parse import statement as st
from indexlake.sql.parse.fragment import Fragment
from indexlake.sql.parse.token_reader import TableName
from indexlake.sql.plan.qualifiers import own_names, requalified


def rule_text(written: Fragment, what: str, table: TableName, namespace: str, columns: Sequence[str]) -> str:
    """Return a rule's text.  ``columns``: those of the table, which take precedence over the table's own name."""
    if written.parameters:
        written.source.fail(f"{what} is stored, so it cannot have parameters: write the value.", written.start)
    names = own_names(table.name, table.namespace or namespace, None)
    own = {name.lower() for name in columns}
    try:
        text = requalified(written, {name: new for name, new in names.items() if name not in own})
    except ExpressionError:
        return written.text  # the error is reported when it is stored
    return written.text if text is None else text


def generated_texts(columns: Sequence[st.ColumnDefinition], texts: Mapping[str, str]) -> dict[str, str]:
    """Return each generated column's expression in terms of written columns; ``texts``: the expressions as given."""
    given = {c.name.lower(): c for c in columns if c.generated is not None}
    done: dict[str, str] = {}

    def resolved(name: str, within: tuple[str, ...]) -> str:
        column = given[name]
        assert column.generated is not None
        if name in within:
            column.generated.source.fail(f"Column {column.name!r} is computed from itself.", column.generated.start)
        if name not in done:
            text = texts[column.name]
            named = {t.value.lower() for t in column.generated.tokens if t.kind in ("word", "name")} & given.keys()
            values = {other: _value(given[other], resolved(other, (*within, name))) for other in sorted(named)}
            done[name] = put_in(text, values) if values else text
        return done[name]

    return {c.name: resolved(name, ()) for name, c in given.items()}


def _value(column: st.ColumnDefinition, text: str) -> str:
    return f"({text})" if column.type is None else f"cast(({text}) as {column.type.text})"


def put_in(text: str, values: Mapping[str, str]) -> str:
    """Return the text with columns, named in lower case, replaced by values."""
    from sqlglot import exp

    from indexlake.expr.parse import parse

    edits = []
    for column in parse(text).tree.find_all(exp.Column):
        first = column.parts[0]
        if first.name.lower() in values and "start" in first.meta:
            edits.append((int(first.meta["start"]), int(first.meta["end"]) + 1, values[first.name.lower()]))
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text
