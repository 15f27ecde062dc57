"""Parses insert, update, delete, merge and truncate."""

from __future__ import annotations

from indexlake.display import counted
from indexlake.sql.parse import statement as st
from indexlake.sql.parse.fragment import Fragment
from indexlake.sql.parse.search_call import NAME, call_at, is_call
from indexlake.sql.parse.token_reader import TokenReader


def insert(r: TokenReader, prefix: Fragment | None) -> st.Insert:
    r.expect("insert")
    conflict = None
    if r.take("or", "replace"):
        conflict = st.Conflict("replace", None)
    elif r.take("or", "ignore"):
        conflict = st.Conflict("nothing", None)
    r.expect("into")
    table = r.table_name()
    alias = r.name("an alias") if r.take("as") else None
    columns = tuple(r.names()) if r.sees_symbol("(") and not _begins_query(r) else None
    by_name = _by_name(r)
    if by_name and columns is not None:
        r.fail("BY NAME takes the columns from the query; leave the column list out.")
    if by_name and r.sees("values"):
        r.fail("BY NAME takes the columns from a query, and VALUES have no names: leave BY NAME out, or select them.")
    query = None
    if r.sees("default", "values") and (columns is not None or by_name):
        r.fail("DEFAULT VALUES is for all columns: leave the column list and BY NAME out.")
    if not r.take("default", "values"):
        query = st.Query(_query_before_conflict(r))
    if r.take("on", "conflict"):
        if conflict is not None:
            r.fail("Write either INSERT OR … or ON CONFLICT, not both.")
        conflict = _on_conflict(r)
    return st.Insert(table, alias, columns, by_name, query, conflict, prefix, _returning(r))


def _begins_query(r: TokenReader) -> bool:
    ahead = r.tokens[r.place + 1] if r.place + 1 < len(r.tokens) else None
    return ahead is not None and (ahead.is_word("select", "from", "values", "with", "table") or ahead.is_symbol("("))


def _query_before_conflict(r: TokenReader) -> Fragment:
    """Parse the source of the rows, up to ``on conflict`` or ``returning``; the ``on`` of a join does not end it."""
    first = r.place
    while True:
        r.until("on", "returning", what="the rows to insert")
        if r.at_end or r.sees("returning") or r.sees("on", "conflict"):
            break
        r.place += 1
        if r.at_end:
            break
    return r.since(first)


def _on_conflict(r: TokenReader) -> st.Conflict:
    columns = tuple(r.names()) if r.sees_symbol("(") else None
    r.expect("do")
    if r.take("nothing"):
        return st.Conflict("nothing", columns)
    r.expect("update", "set")
    assignments = _assignments(r, "where", "returning")
    where = r.until("returning") if r.take("where") else None
    return st.Conflict("update", columns, assignments, where)


def update(r: TokenReader, prefix: Fragment | None) -> st.Update:
    r.expect("update")
    table = r.table_name()
    alias = r.alias("set")
    r.expect("set")
    assignments = _assignments(r, "from", "where", "returning")
    for assignment in assignments:
        _refuse_windows(r, assignment.value)
    source = _source(r) if r.take("from") else None
    where = _where(r)
    return st.Update(table, alias, assignments, source, where, prefix, _returning(r))


def delete(r: TokenReader, prefix: Fragment | None) -> st.Delete:
    r.expect("delete")
    r.expect("from")
    table = r.table_name()
    alias = r.alias("where", "using", "returning", *_OF_QUERIES)
    source = _source(r) if r.take("using") else None
    where = _where(r)
    return st.Delete(table, alias, source, where, prefix, _returning(r))


_OF_QUERIES = ("order", "limit", "offset", "group", "having", "qualify", "window", "union", "intersect", "except")


def _source(r: TokenReader) -> Fragment:
    found = r.until("where", "returning", *_OF_QUERIES, what="a table")
    _refuse_query(r)
    return found


def _where(r: TokenReader) -> Fragment | None:
    _refuse_query(r)
    if not r.take("where"):
        return None
    found = r.until("returning", *_OF_QUERIES)
    _refuse_query(r)
    return found


def _refuse_query(r: TokenReader) -> None:
    if r.here is not None and r.here.is_word(*_OF_QUERIES):
        r.fail(
            f"{r.here.text.upper()} belongs to queries: choose the rows by WHERE, for example where rowid in (select "
            "rowid from t order by … limit …)."
        )


def _refuse_windows(r: TokenReader, value: Fragment) -> None:
    """Refuse window functions outside of subqueries: a new value is computed from its own row only."""
    queries: list[bool] = []
    for n, token in enumerate(value.tokens):
        if token.is_symbol("("):
            after = value.tokens[n + 1 : n + 2]
            queries.append(bool(after) and after[0].is_word("select", "from", "with"))
        elif token.is_symbol(")") and queries:
            queries.pop()
        elif token.is_word("over") and n and value.tokens[n - 1].is_symbol(")") and not any(queries):
            r.fail("UPDATE has no window functions: compute them in FROM (select …), and join by a key.", token)


def truncate(r: TokenReader) -> st.Truncate:
    r.expect("truncate")
    r.take("table")
    tables = [r.table_name()]
    while r.take_symbol(","):
        tables.append(r.table_name())
    if r.take("as") or not (r.at_end or r.sees("cascade") or r.sees("restrict")):
        r.name("a name, which nothing refers to")
    if not r.take("cascade"):
        r.take("restrict")
    r.expect_end()
    return st.Truncate(tuple(tables))


def merge(r: TokenReader, prefix: Fragment | None) -> st.Merge:
    r.expect("merge")
    r.expect("into")
    table = r.table_name()
    alias = r.alias("using")
    r.expect("using")
    is_query = r.sees_symbol("(")
    if is_query:
        source = r.parenthesised()
        name = None
    elif not r.at_end and is_call(r.tokens, r.place):
        first, name = r.place, None
        call_at(r)
        source = r.since(first)
    else:
        first = r.place
        name = r.table_name()
        source = r.since(first)
    given = r.alias("on", "using")
    source_alias = given or (None if is_query else NAME if name is None else name.name)
    if source_alias is None:
        r.fail("Give the source of the merge a name: using (…) as s.")
    source_columns = tuple(r.names()) if r.sees_symbol("(") else None
    on: Fragment | None = None
    using: tuple[str, ...] = ()
    if r.take("using"):
        using = tuple(r.names())
    else:
        r.expect("on")
        on = r.until("when")
    clauses = []
    while r.sees("when"):
        clauses.append(_clause(r))
        of_all = [clause for clause in clauses if clause.rows == clauses[-1].rows and clause.condition is None]
        if len(of_all) > 1:
            raise r.source.error(
                f"Another WHEN {of_all[0].rows.upper()} without a condition precedes it.", of_all[1].place
            )
    if not clauses:
        r.fail("A merge needs at least one WHEN … THEN ….")
    source_table = None if given else name
    return st.Merge(
        table, alias, source, is_query, source_alias, source_table, source_columns, on, using, tuple(clauses), prefix,
        _returning(r),
    )  # fmt: skip


def _clause(r: TokenReader) -> st.MergeClause:
    place = r.tokens[r.place].start
    r.expect("when")
    rows = "not matched" if r.take("not", "matched") else "matched"
    if rows == "matched":
        r.expect("matched")
    elif r.take("by", "source"):
        rows = "not matched by source"
    else:
        r.take("by", "target")
    condition = r.until("then") if r.take("and") else None
    r.expect("then")
    if r.take("do", "nothing"):
        return st.MergeClause(rows, condition, "nothing", None, place)
    if r.take("error"):
        message = None if r.at_end or r.sees("when") or r.sees("returning") else r.until("when", "returning")
        return st.MergeClause(rows, condition, "error", None, place, values=None if message is None else (message,))
    if rows != "not matched" and r.take("delete"):
        return st.MergeClause(rows, condition, "delete", None, place)
    if rows != "not matched" and r.take("update"):
        if r.take("set") and not r.take_symbol("*"):
            return st.MergeClause(rows, condition, "update", _assignments(r, "when", "returning"), place)
        return st.MergeClause(rows, condition, "update", None, place, by_name=_by_name(r))
    if rows == "not matched" and r.take("insert"):
        return _insert_clause(r, condition, place)
    what = "INSERT" if rows == "not matched" else "UPDATE or DELETE"
    raise r.wrong(f"After WHEN {rows.upper()} comes {what}, or DO NOTHING, or ERROR.")


def _by_name(r: TokenReader) -> bool:
    """Parse ``by name`` or ``by position``, which is the default; return whether columns are matched by name."""
    if r.take("by", "name"):
        return True
    r.take("by", "position")
    return False


def _insert_clause(r: TokenReader, condition: Fragment | None, place: int) -> st.MergeClause:
    rows, action = "not matched", "insert"
    if r.take("default", "values"):
        return st.MergeClause(rows, condition, action, (), place)
    by_name = _by_name(r)
    if r.take_symbol("*") or r.at_end or r.sees("when") or r.sees("returning"):
        return st.MergeClause(rows, condition, action, None, place, by_name=by_name)
    opening = r.here
    columns = r.names() if r.sees_symbol("(") else None
    r.expect("values")
    values = r.listed(lambda: r.operand("Expected a value here."))
    if columns is None:
        return st.MergeClause(rows, condition, action, None, place, values=tuple(values))
    if len(columns) != len(values):
        r.fail(f"{counted(len(columns), 'column')} named, but {counted(len(values), 'value')} given.", opening)
    assert opening is not None
    assignments = [st.Assignment(c, v, opening.start) for c, v in zip(columns, values, strict=True)]
    return st.MergeClause(rows, condition, action, _once_each(r, assignments), place)


def _assignments(r: TokenReader, *ends: str) -> tuple[st.Assignment, ...]:
    found: list[st.Assignment] = []
    while not found or r.take_symbol(","):
        place = r.here.start if r.here is not None else 0
        if r.sees_symbol("("):
            found += _row_assignment(r, *ends)
            continue
        column = r.name("a column")
        if r.sees_symbol("."):
            r.fail("A column is set by its name alone, and as a whole, not a field of it.", r.tokens[r.place - 1])
        r.expect_symbol("=")
        found.append(st.Assignment(column, r.until(*ends, comma=True), place))
    return _once_each(r, found)


def _once_each(r: TokenReader, found: list[st.Assignment]) -> tuple[st.Assignment, ...]:
    set_already: set[str] = set()
    for assignment in found:
        if assignment.column.lower() in set_already:
            raise r.source.error(f"Column {assignment.column!r} is set twice.", assignment.place)
        set_already.add(assignment.column.lower())
    return tuple(found)


def _row_assignment(r: TokenReader, *ends: str) -> list[st.Assignment]:
    """Parse ``(a, b) = (…, …)``, or with a single value for all of them."""
    opening = r.here
    assert opening is not None
    columns = r.names()
    r.expect_symbol("=")
    first = r.place
    whole = r.until(*ends, comma=True)
    after, r.place = r.place, first
    is_row = r.take("row")
    if not r.sees_symbol("("):
        r.place = after
        return [st.Assignment(c, whole, opening.start) for c in columns]
    if _begins_query(r):
        r.fail("Expected a row of values here: (a, b) = (…, …). Give each column that a subquery computes its own.")
    values = r.listed(lambda: r.operand("Expected a value here."))
    if r.place < after or (len(values) == 1 and not is_row):
        r.place = after
        values = [whole] * len(columns)
    if len(columns) != len(values):
        r.fail(f"{counted(len(columns), 'column')} named, but {counted(len(values), 'value')} given.", opening)
    return [st.Assignment(c, v, opening.start) for c, v in zip(columns, values, strict=True)]


def _returning(r: TokenReader) -> Fragment | None:
    """Parse ``returning …`` at the end of a statement, if present."""
    if r.take("returning"):
        if r.sees("distinct"):
            r.fail("RETURNING returns one row for each changed row; select distinct ones afterwards.")
        return r.rest("columns or expressions")
    r.expect_end()
    return None
