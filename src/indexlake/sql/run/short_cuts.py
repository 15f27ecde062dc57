"""One-row statements that are repeated: a select by primary key, an insert of values.

A text is recognised by its shape, that is, everything but its literals.  What its first call found out about the table
is reused as long as the table stays the same, which every call checks.  Anything unusual takes the normal path, which
also reports what is wrong.  So a short cut only ever decides: this is that statement, with these values.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from indexlake.errors import IndexLakeError, NotFoundError
from indexlake.expr.constants import plain
from indexlake.scan.point import find_in_blocks, find_recent, read_row
from indexlake.sql.parse import statement as st
from indexlake.sql.parse.fragment import Fragment
from indexlake.sql.parse.parameters import Params
from indexlake.sql.parse.script import parse
from indexlake.sql.parse.tokens import Token
from indexlake.sql.run.inserted_rows import MISSING, cells_of, fitting, literal, takes_a_cast
from indexlake.sql.run.result import RowResult, SqlChange, SqlResult
from indexlake.types.marks import collation_of, is_shown_as_held, mark_of
from indexlake.writes.insert import Insert

if TYPE_CHECKING:
    from indexlake.catalog.definitions import TableRecord
    from indexlake.lake import Lake
    from indexlake.schema import Field, TableSchema
    from indexlake.snapshots.reading import Reading
    from indexlake.sql.run.engine import Engine
    from indexlake.table import Table
    from indexlake.transaction import Transaction

MOST = 512
LONGEST = 2_000
_LITERAL = re.compile(r"""'(?:[^']|'')*'|(?<![\w$."'])\d+(?:\.\d+)?(?![\w."'])""")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a value comes from: a literal of the text by its number, a parameter by its name, or a constant."""

    literal: int | None = None
    parameter: str | None = None
    constant: Any = None
    negative: bool = False


_Find = Callable[[Fragment, Token, bool], Source | None]


class ShortCuts:
    """The short cuts of one opened lake."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], _ShortCut | None] = {}

    def answer(self, lake: Lake, engine: Engine, text: str, params: Params, namespace: str) -> SqlResult | None:
        """Return the result, or None to take the normal path."""
        if len(text) > LONGEST or engine.temporary_tables or engine.temporary_views or engine.changed:
            return None
        key = namespace, "\0".join(_LITERAL.split(text))
        found: Any = self._known.get(key, MISSING)
        if found is None:
            return None
        literals = _LITERAL.findall(text)
        try:
            if found is MISSING:
                if len(self._known) >= MOST:
                    self._known.clear()
                found = self._known[key] = _made(lake, engine, text, literals, namespace)
                if found is None:
                    return None
            short: _ShortCut = found
            if short.prepared is not None and engine.prepared.get(short.prepared.name.lower()) is not short.prepared:
                raise _Changed
            values = short.values(literals, params)
            result = None if values is None else short.run(lake, values)
        except (_Changed, NotFoundError):
            self._known.pop(key, None)
            return None
        if result is not None:
            result._storage = lake.storage
        return result


class _Changed(Exception):
    """What the text names has changed, or does not exist yet."""


@dataclass
class _ShortCut(ABC):
    table: Table
    record: TableRecord
    schema: TableSchema
    sources: Sequence[Source]
    parameters: frozenset[str]  # a call has to give exactly these
    prepared: st.Prepare | None

    def values(self, literals: Sequence[str], params: Params) -> list[Any] | None:
        if params is None:
            given: Mapping[str, Any] = {}
        elif isinstance(params, Mapping):
            given = params
        elif type(params) in (list, tuple):
            given = {str(n): value for n, value in enumerate(params, 1)}
        else:
            return None
        if given.keys() != self.parameters:
            return None
        found = []
        for source in self.sources:
            if source.literal is not None:
                value = literal(literals[source.literal], source.negative)
                if value is MISSING:
                    return None
            elif source.parameter is not None:
                value = given[source.parameter]
                if type(value) is str and not value.isascii():
                    value = plain(value)
            else:
                value = source.constant
            found.append(value)
        return found

    def check(self, reading: Reading) -> None:
        """Check that the table still has its name and its columns."""
        if reading.state.table is not self.record or reading.schema is not self.schema:
            raise _Changed

    @abstractmethod
    def run(self, lake: Lake, values: list[Any]) -> SqlResult | None:
        """Run it, or return None to take the normal path."""


@dataclass
class _Select(_ShortCut):
    columns: tuple[str, ...]

    def __post_init__(self) -> None:
        import pyarrow as pa

        fields = [self.schema.field(name) for name in self.columns]
        self._shown = pa.schema([pa.field(f.name, f.type, metadata=mark_of(f)) for f in fields])
        self._names = tuple(f.name for f in fields)
        (self._key,) = self.schema.key_fields
        (self._codec,) = self.schema.key_codecs

    def run(self, lake: Lake, values: list[Any]) -> SqlResult | None:
        value = fitting(values[0], self._key)
        if value is MISSING or value is None or type(value) is float:  # different floats can be equal
            return None
        try:
            wanted = [self._codec.encode_one(value)]
        except IndexLakeError:
            return None
        lake._check()
        files = lake._files
        with self.table._reading() as reading:
            self.check(reading)
            found = find_recent(reading, files, wanted)
        row = read_row(self.schema, found or find_in_blocks(reading, files, wanted))
        shown = None if row is None else tuple([row[name] for name in self._names])
        return RowResult(self._shown, shown, reading.snapshot)


@dataclass
class _Insert(_ShortCut):
    rows: list[list[Field]]  # the columns given in each row

    def run(self, lake: Lake, values: list[Any]) -> SqlResult | None:
        given = iter(values)
        rows = []
        for fields in self.rows:
            row: dict[str, Any] = {}
            for f in fields:
                value = fitting(next(given), f)
                if value is MISSING:
                    return None
                row[f.name] = value
            rows.append(row)
        own = rows[0] if len(rows) == 1 else rows
        return SqlChange("insert", self.table._write("insert", _OfKnown(self, own), None))


class _OfKnown(Insert):
    """Inserts rows into the table as the short cut knows it.  A commit that finds a changed table runs it again."""

    def __init__(self, short: _ShortCut, rows: Any) -> None:
        super().__init__(short.table._table_id, rows, None)
        self._short = short

    def __call__(self, tx: Transaction) -> int:
        state = tx.state_to_write(self._table_id)
        if state.table is not self._short.record or state.current is not self._short.schema:
            raise _Changed
        return super().__call__(tx)


# ---------------------------------------------------------------- recognising a text


def _made(lake: Lake, engine: Engine, text: str, literals: Sequence[str], namespace: str) -> _ShortCut | None:
    try:
        script = parse(text)
        if len(script.statements) != 1:
            return None
        whole, statement = script.texts[0], script.statements[0]
        if [t.text for t in whole.tokens if t.kind in ("number", "string")] != list(literals):
            return None  # some of them are only parts of literals or expressions
        places = {t.start: n for n, t in enumerate([t for t in whole.tokens if t.kind in ("number", "string")])}

        def written(fragment: Fragment, token: Token, negative: bool) -> Source | None:
            if token.kind == "parameter":
                return None if negative else Source(parameter=fragment.key(token))
            if token.start in places:
                return Source(literal=places[token.start], negative=negative)
            return None

        source: _Find = written
        prepared = None
        parameters = frozenset(script.parameters)
        if isinstance(statement, st.Execute):
            prepared = engine.prepared.get(statement.name.lower())
            if prepared is None:
                raise _Changed
            inner = _arguments(statement, prepared, source)
            if inner is None:
                return None
            whole, statement, source = prepared.text, prepared.statement, inner
        if isinstance(statement, st.Query):
            return _select(lake, whole, source, namespace, parameters, prepared)
        if isinstance(statement, st.Insert):
            return _insert(lake, statement, source, namespace, parameters, prepared)
    except IndexLakeError:
        return None
    return None


def _arguments(statement: st.Execute, prepared: st.Prepare, outer: _Find) -> _Find | None:
    """Return a lookup of a prepared statement's parameters and its own literals, or None if they do not fit."""
    given: dict[str, Source] = {}
    for n, argument in enumerate(statement.arguments, 1):
        found = _one(argument.value, outer)
        if found is None:
            return None
        given[str(n) if argument.name is None else argument.name] = found
    if given.keys() != set(prepared.parameters):
        return None

    def source(fragment: Fragment, token: Token, negative: bool) -> Source | None:
        if token.kind == "parameter":
            return None if negative else given[fragment.key(token)]
        value = literal(token.text, negative) if token.kind in ("number", "string") else MISSING
        return None if value is MISSING else Source(constant=value)

    return source


def _one(cell: Fragment, source: _Find) -> Source | None:
    """Return the source of a fragment that is just a literal or a parameter; else None."""
    tokens = cell.tokens
    negative = len(tokens) == 2 and tokens[0].is_symbol("-") and tokens[1].kind == "number"
    if len(tokens) > 1 and not negative:
        return None
    token = tokens[-1]
    if token.is_word("null"):
        return Source()
    if token.is_word("true", "false"):
        return Source(constant=token.value == "true")
    return source(cell, token, negative)


def _found(lake: Lake, name: str) -> tuple[Table, TableRecord, TableSchema]:
    try:
        table = lake.table(name)
    except NotFoundError:
        raise _Changed from None
    with table._reading() as reading:
        return table, reading.state.table, reading.schema


def _select(
    lake: Lake, text: Fragment, source: _Find, namespace: str, parameters: frozenset[str], prepared: st.Prepare | None
) -> _Select | None:
    """Recognise ``select * | a, b from [s.]t where key = value``."""
    tokens = [*text.tokens]
    names = ("word", "name")
    if not tokens or not tokens[0].is_word("select"):
        return None
    place = next((n for n, t in enumerate(tokens) if t.is_word("from")), 0)
    listed = tokens[1:place]
    n = place + 1
    if not place or n >= len(tokens) or tokens[n].kind not in names:
        return None
    name = tokens[n].value if tokens[n].kind == "name" else tokens[n].text
    if n + 2 < len(tokens) and tokens[n + 1].is_symbol("."):
        if tokens[n + 2].kind not in names:
            return None
        space, n = name, n + 2
        name = f"{space}.{tokens[n].value if tokens[n].kind == 'name' else tokens[n].text}"
    else:
        name = f"{namespace}.{name}"
    rest = tokens[n + 1 :]
    if len(rest) < 4 or not rest[0].is_word("where") or rest[1].kind not in names or not rest[2].is_symbol("="):
        return None
    value = _one(Fragment(text.source, rest[3:], text.question_marks), source)
    if value is None or name.count(".") != 1:
        return None
    table, record, schema = _found(lake, name)
    key = schema.key_names
    if len(key) != 1 or key[0].lower() != rest[1].value.lower() or key[0] not in schema.plain_names:
        return None
    columns = _columns(listed, schema)
    if columns is None or not set(columns) <= schema.plain_names:
        return None
    own = schema.field(key[0])
    if (
        takes_a_cast(own)
        or collation_of(own) is not None
        or not all(is_shown_as_held(schema.field(name)) for name in columns)
    ):
        return None
    return _Select(table, record, schema, [value], parameters, prepared, columns)


def _columns(listed: Sequence[Token], schema: TableSchema) -> tuple[str, ...] | None:
    if len(listed) == 1 and listed[0].is_symbol("*"):
        return schema.names
    found = []
    for n, token in enumerate(listed):
        if n % 2:
            if not token.is_symbol(","):
                return None
        elif token.kind not in ("word", "name") or token.value.lower() not in schema.by_name:
            return None
        else:
            found.append(schema.by_name[token.value.lower()].name)
    return tuple(found) if len(listed) % 2 and len(set(found)) == len(found) else None


def _insert(
    lake: Lake,
    statement: st.Insert,
    source: _Find,
    namespace: str,
    parameters: frozenset[str],
    prepared: st.Prepare | None,
) -> _Insert | None:
    query = statement.query
    if query is None or statement.conflict is not None or statement.returning is not None:
        return None
    if statement.by_name or statement.prefix is not None:
        return None
    cells = cells_of(query)
    if cells is None:
        return None
    table, record, schema = _found(lake, statement.table.full(namespace))
    fields = [f for f in schema.fields if f.generated is None]
    if statement.columns is not None:
        fields = list(schema.project(statement.columns))
        if len({f.name for f in fields}) < len(fields):
            return None
    if any(takes_a_cast(f) or f.generated is not None for f in fields):
        return None
    sources: list[Source] = []
    rows: list[list[Field]] = []
    for row in cells:
        if len(row) != len(fields):
            return None
        given = []
        for cell, f in zip(row, fields, strict=True):
            if cell.is_default:
                continue
            found = _one(cell, source)
            if found is None:
                return None
            sources.append(found)
            given.append(f)
        rows.append(given)
    return _Insert(table, record, schema, sources, parameters, prepared, rows)
