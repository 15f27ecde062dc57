"""Parses create, drop and alter."""

from __future__ import annotations

from typing import NoReturn

from indexlake.sql.parse import statement as st
from indexlake.sql.parse.fragment import Fragment, composed
from indexlake.sql.parse.index_syntax import create_index, drop_index
from indexlake.sql.parse.named_syntax import KINDS, create_named, drop_named
from indexlake.sql.parse.token_reader import TokenReader
from indexlake.sql.parse.tokens import quoted

_NUMBERING = ("autoincrement", "auto_increment", "identity", "generated")
_COLUMN_WORDS = ("not", "null", "default", "primary", "unique", "check", "references", "collate", "generated", "as",
                 "constraint", "using", "comment", *_NUMBERING)  # fmt: skip
_COMPRESSION = (
    "uncompressed", "rle", "dictionary", "pfor", "bitpacking", "fsst", "chimp", "patas", "alp", "alprd", "zstd",
    "roaring", "dict_fsst",
)  # fmt: skip
_AFTER_DEFAULT = ("not", "primary", "unique", "check", "references", "constraint", "collate", "using")
_TABLE_WORDS = ("primary", "unique", "check", "foreign", "constraint")


def create(r: TokenReader) -> st.Definition:
    r.expect("create")
    replace = r.take("or", "replace")
    if replace and (r.sees("index") or r.sees("unique") or r.sees("schema")):
        what = "SCHEMA" if r.sees("schema") else "INDEX"
        r.fail(f"CREATE OR REPLACE {what} is not supported: drop it first, or use IF NOT EXISTS.")
    if r.sees("local", "temp") or r.sees("local", "temporary"):
        r.take("local")
    temporary = r.take("temp") or r.take("temporary")
    if r.sees("unlogged", "table"):
        r.take("unlogged")
    if r.sees("recursive", "view"):
        r.place += 1
        return _create_view(r, replace, temporary, recursive=True)
    if r.sees("view"):
        return _create_view(r, replace, temporary)
    if r.here is not None and r.here.is_word(*KINDS):
        r.place += 1
        return create_named(r, replace, temporary, _if_not_exists(r, replace))
    if temporary:
        if not r.take("table"):
            what = r.here.text.upper() if r.here is not None else ""
            r.fail(f"CREATE TEMP {what} is not supported; there are CREATE TEMP TABLE, VIEW, TYPE and MACRO.")
        return _create_temporary_table(r, replace)
    if r.take("schema"):
        name = st.CreateSchema(if_not_exists=r.take("if", "not", "exists"), name=r.name_or_text("a schema name"))
        r.expect_end()
        return name
    if r.sees("index") or r.sees("unique"):
        return create_index(r)
    if not r.take("table"):
        _refuse_create(r)
    return _create_table(r, replace)


_INSTEAD = {
    "trigger": "use CHECK and GENERATED ALWAYS AS, or read the change feed",
    "secret": "give options to il.connect",
    "database": "use CREATE SCHEMA, or another lake",
    "materialized": "use CREATE OR REPLACE TABLE … AS, or a view",
}


def _refuse_create(r: TokenReader) -> NoReturn:
    what = r.here.text if r.here is not None else ""
    way = f": {_INSTEAD[what.lower()]}" if what.lower() in _INSTEAD else ""
    r.fail(
        f"CREATE {what.upper()} is not supported{way}. There are CREATE TABLE, VIEW, INDEX, SCHEMA, SEQUENCE, TYPE and "
        "MACRO."
    )


def _if_not_exists(r: TokenReader, replace: bool) -> bool:
    if replace and r.sees("if", "not", "exists"):
        r.fail("OR REPLACE and IF NOT EXISTS contradict each other: leave one of them out.")
    return r.take("if", "not", "exists")


def _create_view(r: TokenReader, replace: bool, temporary: bool, *, recursive: bool = False) -> st.CreateView:
    r.expect("view")
    if_not_exists = _if_not_exists(r, replace)
    view = r.table_name()
    first = r.place
    names = tuple(r.names()) if r.sees_symbol("(") else ()
    if recursive and not names:
        r.fail("A recursive view names its columns: CREATE RECURSIVE VIEW v (a, b) AS ….")
    listed = r.since(first) if recursive else None
    r.expect("as")
    text = r.rest("a query")
    if listed is not None:
        name = quoted(view.name)
        text = composed([f"with recursive {name} ", listed, " as (", text, f") select * from {name}"], r.source)
    return st.CreateView(view, if_not_exists, replace, temporary, names, st.Query(text))


def _create_table(r: TokenReader, replace: bool) -> st.CreateTable:
    if_not_exists = _if_not_exists(r, replace)
    table = r.table_name()
    columns: list[st.ColumnDefinition] = []
    key: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    constraints: list[st.Constraint] = []
    definition: Fragment | None = None
    if r.sees_symbol("("):
        names = _only_names(r)
        if not names:
            first = r.place
            columns, key, constraints = _elements(r)
            definition = r.since(first)
    options = r.options() if r.take("with") else ()
    query, with_data = None, True
    if r.take("as"):
        if columns:
            r.fail("CREATE TABLE … AS takes the types of its columns from the query: give names only, or none.")
        query = st.Query(r.rest("a query"))
        query, with_data = _without_data_clause(r, query)
    elif not columns:
        r.fail("Expected the columns in parentheses, or AS and a query.")
    if not r.take("on", "commit", "preserve", "rows") and not r.at_end:
        r.fail("Only WITH (option = value, …) can follow the columns. Write comments with COMMENT ON TABLE.")
    return st.CreateTable(
        table, if_not_exists, replace, tuple(columns), key, tuple(constraints), definition, names, query, with_data,
        options,
    )  # fmt: skip


def _create_temporary_table(r: TokenReader, replace: bool) -> st.CreateTemporaryTable:
    if_not_exists = _if_not_exists(r, replace)
    table = r.table_name()
    if table.namespace not in (None, "temp"):
        r.fail("A temporary table belongs to the open lake and has no schema: leave it out.", r.tokens[r.place - 3])
    names = _only_names(r) if r.sees_symbol("(") else ()
    if r.take("as"):
        query, with_data = _without_data_clause(r, st.Query(r.rest("a query")))
        return st.CreateTemporaryTable(table, if_not_exists, replace, None, (), names, query, with_data)
    if names or not r.sees_symbol("("):
        r.fail("Expected the columns with their types in parentheses, or AS and a query.")
    first = r.place
    types = tuple(t for t in r.listed(lambda: _element_type(r), trailing=True) if t is not None)
    definition = r.since(first)
    if not r.take("on", "commit", "preserve", "rows") and not r.at_end:
        r.fail("Nothing follows the columns of a temporary table: its rows stay until it is dropped.")
    r.expect_end()
    return st.CreateTemporaryTable(table, if_not_exists, replace, definition, types, (), None, True)


def _element_type(r: TokenReader) -> Fragment | None:
    """Step over a column or constraint, whose definition DuckDB parses; return the type of the column."""
    found = None
    if r.here is not None and not r.here.is_word(*_TABLE_WORDS):
        r.name("a column name")
        if not r.sees("generated") and not r.sees("as"):
            found = _type(r)
    if not r.sees_symbol(",") and not r.sees_symbol(")"):
        r.operand("Expected a constraint here.")
    return found


def _only_names(r: TokenReader) -> tuple[str, ...]:
    """Parse ``(a, b)`` without types.  If there are types, return nothing and read nothing."""
    start = r.place
    ahead = r.tokens[start + 1 :]
    closing = next((n for n, token in enumerate(ahead) if token.is_symbol(")")), len(ahead))
    inside = ahead[:closing]
    named = all(t.kind in ("word", "name") if n % 2 == 0 else t.is_symbol(",") for n, t in enumerate(inside))
    return tuple(r.names()) if inside and named and len(inside) % 2 else ()


def _without_data_clause(r: TokenReader, query: st.Query) -> tuple[st.Query, bool]:
    tokens = query.text.tokens
    for words, kept in ((("with", "no", "data"), False), (("with", "data"), True)):
        ahead = tokens[-len(words) :]
        if len(tokens) > len(words) and all(t.is_word(w) for t, w in zip(ahead, words, strict=True)):
            return st.Query(Fragment(r.source, tokens[: -len(words)], r.question_marks)), kept
    return query, True


def _elements(r: TokenReader) -> tuple[list[st.ColumnDefinition], tuple[str, ...], list[st.Constraint]]:
    """Parse the columns and table constraints between parentheses."""
    columns: list[st.ColumnDefinition] = []
    keys: list[tuple[str, ...]] = []
    constraints: list[st.Constraint] = []

    def element() -> None:
        name = r.name("a constraint name") if r.take("constraint") else None
        if r.take("primary", "key"):
            keys.append(tuple(r.names()))
        elif r.sees("check") or r.sees("unique"):
            constraints.append(_constraint(r, name))
        elif r.here is not None and r.here.is_word(*_TABLE_WORDS):
            _refuse_constraint(r)
        else:
            column, is_key, own = _column(r)
            columns.append(column)
            constraints.extend(own)
            if is_key:
                keys.append((column.name,))

    r.listed(element, trailing=True)
    if len(keys) > 1:
        r.fail("A table has one primary key; name several columns as PRIMARY KEY (a, b).", r.tokens[0])
    return columns, keys[0] if keys else (), constraints


def _constraint(r: TokenReader, name: str | None, column: str | None = None) -> st.Constraint:
    """Parse ``check (…)`` or ``unique (a, b)``; for the constraint of a column, just ``unique``."""
    place = r.here.start if r.here is not None else 0
    if r.take("check"):
        return st.Constraint(name, r.parenthesised(), (), place)
    r.expect("unique")
    return st.Constraint(name, None, tuple(r.names()) if column is None else (column,), place)


def _column(r: TokenReader) -> tuple[st.ColumnDefinition, bool, list[st.Constraint]]:
    place = r.here.start if r.here is not None else 0
    name = r.name("a column name")
    return _column_after_name(r, name, place)


def _column_after_name(r: TokenReader, name: str, place: int) -> tuple[st.ColumnDefinition, bool, list[st.Constraint]]:
    type_text = None if r.sees("generated") or r.sees("as") else _type(r)
    if type_text is not None and type_text.tokens[0].is_word("serial", "bigserial", "smallserial"):
        r.fail("Numbers come from a sequence: a BIGINT column with DEFAULT nextval('s').", type_text.tokens[0])
    nullable, is_key = True, False
    default: Fragment | None = None
    generated: Fragment | None = None
    collation: Fragment | None = None
    stored = False
    constraints: list[st.Constraint] = []
    while r.here is not None and not r.sees_symbol(",") and not r.sees_symbol(")"):
        own = r.name("a constraint name") if r.take("constraint") else None
        if r.take("not", "null"):
            nullable = False
        elif r.take("null"):
            nullable = True
        elif r.take("primary", "key"):
            is_key = True
        elif r.take("default"):
            default = r.operand("Expected the default's value here.", *_AFTER_DEFAULT)
        elif r.take("generated", "always", "as") or r.take("as"):
            generated = r.parenthesised()
            stored = r.take("stored")
            if not stored:
                r.take("virtual")
        elif r.take("collate"):
            collation = _collation(r)
        elif r.take("using", "compression"):  # blocks choose their own encodings
            kind = r.here
            if r.name("a kind of compression").lower() not in _COMPRESSION:
                r.fail(f"USING COMPRESSION can be {', '.join(_COMPRESSION)}, or left out.", kind)
        elif r.sees("check") or r.sees("unique"):
            constraints.append(_constraint(r, own, name))
        else:
            _refuse_constraint(r)
    column = st.ColumnDefinition(name, type_text, nullable and not is_key, default, place, generated, collation, stored)
    return column, is_key, constraints


def _collation(r: TokenReader) -> Fragment:
    """``nocase.noaccent``"""
    first = r.place
    r.name("a collation")
    while r.take_symbol("."):
        r.name("a collation")
    return Fragment(r.source, r.tokens[first : r.place], r.question_marks)


def _type(r: TokenReader) -> Fragment:
    return r.operand("Expected a type here, for example BIGINT, VARCHAR, DOUBLE, DATE, TIMESTAMP.", *_COLUMN_WORDS)


_RATHER = (
    (("references", "foreign"), "Check what it refers to when you write."),
    (_NUMBERING, "Numbers come from a sequence: DEFAULT nextval('s')."),
    (("comment",), "Write comments with COMMENT ON."),
)


def _refuse_constraint(r: TokenReader) -> NoReturn:
    word = r.here.text.upper() if r.here is not None else ""
    hint = next((f" {way}" for words, way in _RATHER if word.lower() in words), "")
    r.fail(
        f"{word} is not supported in a table; there are NOT NULL, DEFAULT, PRIMARY KEY, UNIQUE, CHECK and GENERATED "
        f"ALWAYS AS.{hint}"
    )


def drop(r: TokenReader) -> st.DropTable | st.DropSchema | st.DropIndex | st.DropView | st.DropNamed:
    r.expect("drop")
    if r.sees("index"):
        return drop_index(r)
    found: st.DropTable | st.DropSchema | st.DropView | st.DropNamed
    if r.take("schema"):
        if_exists = r.take("if", "exists")
        name = r.name("a schema name")
        cascade = r.take("cascade")
        if not cascade:
            r.take("restrict")
        found = st.DropSchema(name, if_exists, cascade)
    elif r.take("table"):
        if_exists = r.take("if", "exists")
        found = st.DropTable(r.table_name(), if_exists)
        if not r.take("cascade"):
            r.take("restrict")
    elif r.take("view"):
        if_exists = r.take("if", "exists")
        found = st.DropView(r.table_name(), if_exists)
        if not r.take("cascade"):
            r.take("restrict")
    elif r.here is not None and r.here.is_word(*KINDS):
        found = drop_named(r)
    else:
        what = r.here.text.upper() if r.here is not None else ""
        r.fail(f"DROP {what} is not supported; there are DROP TABLE, VIEW, INDEX, SCHEMA, SEQUENCE, TYPE and MACRO.")
    if r.sees_symbol(","):
        r.fail("Drop one thing per statement; several statements are separated by semicolons.")
    r.expect_end()
    return found


def alter(r: TokenReader) -> st.AlterTable | st.RenameView | st.OwnSequence:
    r.expect("alter")
    if r.sees("sequence") and any(t.is_word("owned") for t in r.tokens):
        r.expect("sequence")
        if_exists = r.take("if", "exists")
        sequence = r.table_name("the name of the sequence")
        r.expect("owned", "by")
        owned = st.OwnSequence(sequence, r.table_name(), if_exists)
        r.expect_end()
        return owned
    for what, way in (
        ("schema", "make another and move its tables: ALTER TABLE s.t RENAME TO other.t"),
        ("index", "drop it and create it again"),
        ("sequence", "only OWNED BY is; CREATE OR REPLACE SEQUENCE … START with the next number"),
        ("type", "CREATE OR REPLACE TYPE"),
        ("macro", "CREATE OR REPLACE MACRO"),
        ("database", "a lake has no such settings"),
    ):
        if r.sees(what):
            r.fail(f"ALTER {what.upper()} is not supported: {way}.")
    if r.take("view"):
        if_exists = r.take("if", "exists")
        view = r.table_name()
        r.expect("rename", "to")
        renamed = st.RenameView(view, r.name("the new name"), if_exists)
        r.expect_end()
        return renamed
    r.expect("table")
    if_exists = r.take("if", "exists")
    table = r.table_name()
    action = _action(r)
    if r.sees_symbol(","):
        r.fail("Change one thing per ALTER TABLE; for several in one commit use table.alter() in Python.")
    r.expect_end()
    return st.AlterTable(table, if_exists, action)


def _action(r: TokenReader) -> st.AlterAction:
    if r.take("add"):
        return _addition(r)
    if r.take("drop", "constraint"):
        if_exists = r.take("if", "exists")
        dropped = st.DropConstraint(r.name("a constraint name"), if_exists)
        if not r.take("cascade"):
            r.take("restrict")
        return dropped
    if r.take("drop"):
        r.take("column")
        if_exists = r.take("if", "exists")
        name = ".".join(r.parts("a column name"))
        cascade = r.take("cascade")
        if not cascade:
            r.take("restrict")
        return st.DropColumn(name, if_exists, cascade)
    if r.take("rename", "to"):
        return st.RenameTable(r.table_name())
    if r.take("rename"):
        r.take("column")
        old = ".".join(r.parts("a column name"))
        r.expect("to")
        return st.RenameColumn(old, r.name("a column name"))
    if r.take("alter"):
        r.take("column")
        column_name = ".".join(r.parts("a column name"))
        if r.take("set", "not", "null") or r.sees("drop", "not", "null"):
            return st.SetNotNull(column_name, not r.take("drop", "not", "null"))
        if r.take("set", "default"):
            return st.SetDefault(column_name, r.rest("the default's value"))
        if r.take("drop", "default"):
            return st.SetDefault(column_name, None)
        if not r.take("set", "data", "type") and not r.take("set", "type") and not r.take("type"):
            r.fail("A column can be altered by TYPE t [USING …], SET or DROP DEFAULT, SET or DROP NOT NULL.")
        if r.sees("using"):
            r.fail("Name the type before USING.")
        return st.ChangeType(column_name, _type(r), r.rest("an expression") if r.take("using") else None)
    if r.take("set"):
        return st.SetOptions(r.options())
    raise r.wrong(
        "Supported: ADD COLUMN, DROP COLUMN, RENAME COLUMN … TO …, RENAME TO, ALTER COLUMN … TYPE | SET | DROP, ADD "
        "CONSTRAINT, DROP CONSTRAINT, SET (option = …)."
    )


def _addition(r: TokenReader) -> st.AddColumn | st.AddConstraint:
    name = r.name("a constraint name") if r.take("constraint") else None
    if r.sees("primary", "key"):
        place = r.tokens[r.place].start
        r.expect("primary", "key")
        return st.AddConstraint(st.Constraint(name, None, tuple(r.names()), place, is_key=True))
    if name is not None or r.sees("check") or r.sees("unique"):
        if not r.sees("check") and not r.sees("unique"):
            _refuse_constraint(r)
        return st.AddConstraint(_constraint(r, name))
    r.take("column")
    if_not_exists = r.take("if", "not", "exists")
    place = r.here.start if r.here is not None else 0
    column, is_key, constraints = _column_after_name(r, ".".join(r.parts("a column name")), place)
    if is_key:
        r.fail("Add the column first, then ALTER TABLE … ADD PRIMARY KEY (…).", r.tokens[0])
    if constraints or column.generated is not None:
        what = "A generated column is" if column.generated is not None else "Constraints of a new column are"
        how = "when the table is created" if column.generated is not None else "with ADD CONSTRAINT, after the column"
        r.fail(f"{what} given {how}.", r.tokens[0])
    return st.AddColumn(column, if_not_exists)
