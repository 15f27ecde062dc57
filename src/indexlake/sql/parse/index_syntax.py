"""Parses create index and drop index.

An index belongs to its table, and so does its name.  Its keys are plain columns: expressions and conditions are
refused here, and each error says what to do instead.
"""

from __future__ import annotations

from indexlake.sql.parse import statement as st
from indexlake.sql.parse.token_reader import TableName, TokenReader

DEFAULT_KIND = "btree"
"""Also stands for DuckDB's own kind, ART."""
_EXPRESSION = "An index is over columns, not expressions: add a column that holds the value, and index that one."
_WRITE_DROP = "Write DROP INDEX name ON table, or DROP INDEX table.name."


def create_index(r: TokenReader) -> st.CreateIndex:
    """Parse the rest of a statement after ``create``, at ``unique`` or ``index``."""
    unique = r.take("unique")
    r.expect("index")
    if_not_exists = r.take("if", "not", "exists")
    if r.sees("on") and not (len(r.tokens) > r.place + 1 and r.tokens[r.place + 1].is_word("on")):
        r.fail("Give the index a name: CREATE INDEX name ON table (column).")
    name = r.name("a name for the index")
    if r.sees_symbol("."):
        r.fail("An index belongs to its table, whatever namespace that is in: name it without a dot.")
    r.expect("on")
    table = r.table_name()
    kind = r.name("a kind of index").lower() if r.take("using") else DEFAULT_KIND
    kind = DEFAULT_KIND if kind == "art" else kind
    columns = tuple(dict.fromkeys(r.listed(lambda: _column(r))))
    include = tuple(r.listed(lambda: _column(r))) if r.take("include") else ()
    options = r.options() if r.take("with") else ()
    if r.sees("where"):
        r.fail("An index over some of the rows is not supported: leave WHERE out. Queries may still have conditions.")
    if r.sees("using"):
        r.fail("The kind comes before the columns: CREATE INDEX name ON table USING kind (column).")
    r.expect_end()
    return st.CreateIndex(name, table, if_not_exists, kind, columns, include, unique, options)


def _column(r: TokenReader) -> str:
    first, around = r.here, 0
    while r.take_symbol("("):
        around += 1
    if r.here is not None and r.here.kind not in ("word", "name") and not r.sees_symbol(")") and not r.sees_symbol(","):
        r.fail(_EXPRESSION, first)
    name = ".".join(r.parts("a column"))
    for _ in range(around):
        if not r.take_symbol(")"):
            r.fail(_EXPRESSION, first)
    if not r.take("asc"):  # which says nothing: rows are found in both directions
        r.take("desc")
    if not r.take("nulls", "first"):
        r.take("nulls", "last")
    if r.sees_symbol(",") or r.sees_symbol(")"):
        return name
    if r.here is not None and r.here.kind != "symbol":
        r.fail("Expected ',' or ')' here: an index is over plain columns.")
    raise r.wrong(_EXPRESSION, first)


def drop_index(r: TokenReader) -> st.DropIndex:
    """Parse the rest of a statement after ``drop``, at ``index``."""
    r.expect("index")
    if_exists = r.take("if", "exists")
    first = r.here
    parts = r.parts("the name of an index")
    assert first is not None
    table = None
    if len(parts) > 3 or (len(parts) > 1 and r.sees("on")):
        r.fail(_WRITE_DROP, first)
    if r.take("on"):
        table = r.table_name()
    elif len(parts) > 1:
        table = TableName(parts[0] if len(parts) == 3 else None, parts[-2], first.start)
    if not r.take("cascade"):
        r.take("restrict")
    r.expect_end()
    return st.DropIndex(parts[-1], table, if_exists)
