"""Rows in the catalog database: ``indexlake_inline_row_{table_id}``.

A row version is (_begin, row id, _end, encoded values). A reader at S sees the versions with ``_begin <= S < _end``
above the floors: those at or below are in blocks already, and their inline copies await the purge. Floors are (begin,
row id) for live versions and (end, row id) for superseded ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from indexlake.catalog import dialect
from indexlake.catalog.conditions import compare_sql, test_sql
from indexlake.catalog.dialect import quote
from indexlake.catalog.driver import Catalog, Query, Transaction
from indexlake.errors import SchemaError
from indexlake.expr.test import Test
from indexlake.schema import Field, TableSchema
from indexlake.types import Codec, SqlValue
from indexlake.types.floats import is_float
from indexlake.types.uuids import is_uuid

if TYPE_CHECKING:
    from indexlake.catalog.definitions import TableRecord
    from indexlake.catalog.table_heads import Head

Row = tuple[Any, ...]
"""(begin, row id, end, value, value …)"""

Change = Literal["_begin", "_end"]

_ABOVE_HOT = "_end is null and (_begin > ? or (_begin = ? and _indexlake_row_id > ?))"
_ABOVE_HISTORY = "_end > ? and (_end > ? or (_end = ? and _indexlake_row_id > ?))"
_NOT_IN_HISTORY = "(_end > ? or (_end = ? and _indexlake_row_id > ?))"
_LIVE_UP_TO = "_end is null and (_begin, _indexlake_row_id) <= (?, ?) order by _begin, _indexlake_row_id"
_DEAD_UP_TO = "_end is not null and (_end, _indexlake_row_id) <= (?, ?) order by _end, _indexlake_row_id"
_IN_LIMIT = 500
_OWN_COLUMNS = 3
_FEW_VERSIONS = 8


def inline_table(table_id: int) -> str:
    return f"indexlake_inline_row_{table_id}"


def _index_name(table_id: int, index_id: int) -> str:
    return f"{inline_table(table_id)}_k{index_id}"


class InlineTables:
    """Creates and changes the tables themselves."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def create(self, tx: Transaction, table_id: int, fields: Sequence[Field], key: Sequence[int]) -> None:
        self.check_width(tx, table_id)
        d, name = self._catalog.dialect, inline_table(table_id)
        columns = ", ".join(self._column(f) for f in fields)
        statements = [
            f"""create table {quote(name)} (_begin {d.int_type} not null, _indexlake_row_id {d.int_type} not null,
            _end {d.int_type}, {columns}, primary key (_begin, _indexlake_row_id)){d.clustered}""",
            f"create index {quote(name + '_row_id')} on {quote(name)} (_indexlake_row_id)",
            f"create index {quote(name + '_end')} on {quote(name)} (_end, _indexlake_row_id) where _end is not null",
        ]
        if key:
            parts = [next(f for f in fields if f.field_id == number) for number in key]
            kind = "using hash" if len(parts) == 1 and self._is_long(parts[0]) else ""
            columns = ", ".join(quote(f.column) for f in parts)
            statements.append(f"create index {quote(name + '_key')} on {quote(name)} {kind} ({columns})")
        tx.execute_batch(statements)

    def drop(self, tx: Transaction, table_id: int) -> None:
        tx.execute(f"drop table if exists {quote(inline_table(table_id))}")

    def check_width(self, tx: Transaction, table_id: int) -> None:
        query = "select count(*) from indexlake_field where table_id = ? and end_snapshot is null"
        columns, most = int(tx.rows(query, (table_id,))[0][0]), self._catalog.dialect.most_columns - _OWN_COLUMNS
        if columns > most:
            raise SchemaError(
                f"A table has at most {most:,} columns, because its newest rows lie in the catalog's database; this "
                f"one would have {columns:,}. Make one struct of columns that belong together, or several tables."
            )

    def add_columns(self, tx: Transaction, table_id: int, fields: Sequence[Field]) -> None:
        if fields:
            self.check_width(tx, table_id)
        name = quote(inline_table(table_id))
        tx.execute_batch([f"alter table {name} add column {self._column(f)}" for f in fields])

    def drop_column(self, tx: Transaction, table_id: int, field_id: int) -> None:
        tx.execute(f"alter table {quote(inline_table(table_id))} drop column {quote(f'f{field_id}')}")

    def add_index(self, tx: Transaction, table_id: int, index_id: int, fields: Sequence[Field]) -> None:
        """Create a database index on the encoded columns."""
        name, kind = inline_table(table_id), ""
        if long := [f for f in fields if self._is_long(f)]:
            fields, kind = long[:1], "using hash"
        columns = ", ".join(quote(f.column) for f in fields)
        of = quote(_index_name(table_id, index_id))
        tx.execute(f"create index if not exists {of} on {quote(name)} {kind} ({columns})")

    def drop_index(self, tx: Transaction, table_id: int, index_id: int) -> None:
        tx.execute(f"drop index if exists {quote(_index_name(table_id, index_id))}")

    def _is_long(self, f: Field) -> bool:
        """Return whether values may take a few thousand bytes, which PostgreSQL's ordered indexes refuse."""
        is_short = f.codec.kind == "int" or pa.types.is_decimal(f.type) or is_uuid(f.type)
        return not is_short and self._catalog.database() == "postgres"

    def _column(self, f: Field) -> str:
        """Return the SQL definition of the column that holds a field."""
        kinds = {"int": self._catalog.dialect.int_type, "bytes": self._catalog.dialect.bytes_type}
        return f"{quote(f.column)} {kinds[f.codec.kind]}"

    def bounds(self, tx: Transaction, table_id: int, f: Field) -> tuple[Any, Any] | None:
        if f.released:
            return None
        column, name = quote(f.column), quote(inline_table(table_id))
        some = f"select {column} from {name} where _end is null and {column} is not null order by {column}"
        # PostgreSQL has no min() of bytes.
        found = tx.rows(f"select ({some} limit 1), ({some} desc limit 1)")
        return found[0] if found[0][0] is not None else None

    def oldest(self, tx: Transaction, table_id: int) -> int | None:
        found: int | None = tx.rows(f"select min(_begin) from {quote(inline_table(table_id))}")[0][0]
        return found

    def purge(self, tx: Transaction, table: TableRecord, limit: int) -> int:
        name = quote(inline_table(table.table_id))
        hot, history = table.hot_floor, table.history_floor
        among = self._catalog.dialect.among
        live, dead = (
            f"delete from {name} where "
            + among("_begin, _indexlake_row_id", f"from {name} where {some} limit {int(limit)}")
            for some in (_LIVE_UP_TO, _DEAD_UP_TO)
        )
        if self._catalog.database() == "sqlite" and not self._has_others(tx, table):
            return tx.execute(f"delete from {name}")  # SQLite frees whole pages; readers keep the rows they see
        if self._catalog.database() == "postgres":  # or it reads and sorts a table that it has not analyzed yet
            tx.send("set local enable_sort = off")
        return tx.execute(live, hot) + tx.execute(dead, history) + tx.execute(dead, (table.horizon + 1, -1))

    def _has_others(self, tx: Transaction, table: TableRecord) -> bool:
        """Return whether any versions would survive a purge."""
        select, hot, history = (
            f"select 1 from {quote(inline_table(table.table_id))} where",
            table.hot_floor,
            table.history_floor,
        )
        superseded = max(table.horizon, history[0] - 1), history[0], history[0], history[1]
        return bool(
            tx.rows(f"{select} {_ABOVE_HOT} limit 1", (hot[0], hot[0], hot[1]))
            or tx.rows(f"{select} {_ABOVE_HISTORY} limit 1", superseded)
        )


@dataclass(slots=True, eq=False)
class InlineRows:
    """The rows of one table as one transaction sees them, at one snapshot.

    ``newest`` promises that the snapshot is the last one, so superseded versions can be ignored.
    """

    _tx: Transaction  # or a read transaction, outside the critical section
    _table_id: int
    _floors: TableRecord | Head
    _schema: TableSchema
    _snapshot: int
    _newest: bool

    @property
    def _name(self) -> str:
        return quote(inline_table(self._table_id))

    # ------------------------------------------------------------ reading

    def _visible_rows(self, columns: tuple[str, ...], test: Test) -> Iterator[Row]:
        """Yield the visible rows that may satisfy the test.

        Rows written before a tested column existed always pass.
        """
        visible, params = self._visible()
        condition, values = test_sql(test, self._schema.column_codecs, self._schema.column_since)
        sql = f"{select_rows(self._table_id, columns)} where {visible} and {condition}"
        return self._tx.query(sql, [*params, *values])

    def count(self) -> int:
        visible, params = self._visible()
        return int(self._tx.rows(f"select count(*) from {self._name} where {visible}", params)[0][0])

    def _has_more_than(self, limit: int) -> bool:
        """Return whether more rows than this are visible, counting no further."""
        visible, params = self._visible()
        found = f"select 1 from {self._name} where {visible} limit ?"
        return int(self._tx.rows(f"select count(*) from ({found}) as found", [*params, limit + 1])[0][0]) > limit

    def _visible(self) -> tuple[str, list[int]]:
        snapshot, hot, history = self._snapshot, self._floors.hot_floor, self._floors.history_floor
        if self._newest:
            return f"({_ABOVE_HOT})", [hot[0], hot[0], hot[1]]
        return (
            f"_begin <= ? and (({_ABOVE_HOT}) or ({_ABOVE_HISTORY}))",
            [snapshot, hot[0], hot[0], hot[1], snapshot, history[0], history[0], history[1]],
        )

    def _is_visible(self, row: Row) -> bool:
        """Apply the visibility rule to a row fetched by key."""
        begin, row_id, end = row[0], row[1], row[2]
        if end is None:
            return bool(begin <= self._snapshot and (begin, row_id) > self._floors.hot_floor)
        return bool(begin <= self._snapshot < end and (end, row_id) > self._floors.history_floor)

    def _visible_with_key(
        self, columns: tuple[str, ...], key: Sequence[SqlValue], key_columns: tuple[str, ...], codecs: tuple[Codec, ...]
    ) -> Row | None:
        """Return the visible version with a primary key.

        Many versions with the key may have been superseded, and only the one that began last up to the snapshot can be
        visible. If they are few, fetching all of them costs less.
        """
        condition, values = _key_condition(key, key_columns, codecs)
        some, last = _select_with_key(self._table_id, columns, condition)
        found = self._tx.rows(some, values)
        if len(found) > _FEW_VERSIONS:
            found = self._tx.rows(last, (*values, self._snapshot))
        for row in found:
            if self._is_visible(row):
                return row
        return None

    def _with_keys(
        self,
        columns: tuple[str, ...],
        keys: Iterable[Sequence[SqlValue]],
        key_columns: tuple[str, ...],
        codecs: tuple[Codec, ...],
    ) -> Iterator[Row]:
        """Yield every inline version with one of the encoded keys in some columns, visible or not."""
        for query in queries_by_key(self._table_id, columns, keys, key_columns, codecs):
            yield from self._tx.rows(*query)

    def _has_between(self, column: str, low: int, high: int) -> bool:
        """Return whether an inline version, visible or not, has a value from ``low`` to ``high``."""
        name = quote(column)
        return bool(self._tx.rows(f"select 1 from {self._name} where {name} >= ? and {name} <= ? limit 1", (low, high)))

    def _live_since(self, since: int, columns: tuple[str, ...]) -> Iterator[Row]:
        """Yield live versions above the floor that were committed after ``since``."""
        floor = self._floors.hot_floor
        sql = f"{select_rows(self._table_id, columns)} where {_ABOVE_HOT} and _begin > ?"
        return self._tx.query(sql, (floor[0], floor[0], floor[1], since))

    def is_live(self, row_id: int, begin: int) -> bool:
        sql = f"{select_rows(self._table_id, ())} where _indexlake_row_id = ?"
        return (begin, row_id) > self._floors.hot_floor and any(
            row[0] == begin and row[2] is None for row in self._tx.rows(sql, (row_id,))
        )

    def has_begun_since(self, since: int) -> bool:
        return bool(self._tx.rows(f"select 1 from {self._name} where _begin > ? limit 1", (since,)))

    def sizes(self) -> tuple[int, int]:
        name, hot, history = self._name, self._floors.hot_floor, self._floors.history_floor
        live = self._tx.rows(f"select count(*) from {name} where {_ABOVE_HOT}", (hot[0], hot[0], hot[1]))
        superseded = (self._floors.horizon, history[0], history[0], history[1])
        dead = self._tx.rows(f"select count(*) from {name} where {_ABOVE_HISTORY}", superseded)
        return int(live[0][0]), int(dead[0][0])

    def _oldest(self, floor: tuple[int, int], columns: tuple[str, ...], limit: int, *, history: bool) -> Iterator[Row]:
        """Yield live versions above a floor in (_begin, row id) order, or superseded ones in (_end, row id) order."""
        above, by = (f"_end is not null and {_NOT_IN_HISTORY}", "_end") if history else (_ABOVE_HOT, "_begin")
        # The first condition tells the database where to start: rows below may still await the purge.
        sql = f"{select_rows(self._table_id, columns)} where {by} >= ? and {above}"
        order = f"order by {by}, _indexlake_row_id limit {int(limit)}"
        return self._tx.query(f"{sql} {order}", (floor[0], floor[0], floor[0], floor[1]))

    # ------------------------------------------------------------ the change feed

    def _changes(self, kind: Change, since: int, until: int, columns: tuple[str, ...]) -> Iterator[Row]:
        """Yield versions that no block holds and that began or ended in (since, until], by that snapshot and row id."""
        condition, params = self._changed(kind, since, until)
        sql = f"{select_rows(self._table_id, columns)} where {condition} order by {kind}, _indexlake_row_id"
        return self._tx.query(sql, params)

    def count_changes(self, since: int, until: int) -> int:
        (begun, first), (ended, second) = self._changed("_begin", since, until), self._changed("_end", since, until)
        name = self._name
        sql = f"select (select count(*) from {name} where {begun}), (select count(*) from {name} where {ended})"
        return int(sum(self._tx.rows(sql, [*first, *second])[0]))

    def _changed(self, kind: Change, since: int, until: int) -> tuple[str, list[int]]:
        hot, history = self._floors.hot_floor, self._floors.history_floor
        between, params = f"{kind} > ? and {kind} <= ?", [history[0], history[0], history[1]]
        if kind == "_end":
            return f"{between} and {_NOT_IN_HISTORY}", [since, until, *params]
        above = f"({_ABOVE_HOT}) or (_end is not null and {_NOT_IN_HISTORY})"
        return f"{between} and ({above})", [since, until, hot[0], hot[0], hot[1], *params]

    # ------------------------------------------------------------ writing, inside the critical section

    def insert(self, columns: tuple[str, ...], rows: Collection[tuple[int, Sequence[SqlValue]]], snapshot: int) -> None:
        if len(rows) == 1:
            ((row_id, values),) = rows
            self._tx.send(_insert_sql(self._table_id, columns), (snapshot, row_id, *values))
            return
        names = ("_begin", "_indexlake_row_id", *columns)
        whole = ((snapshot, row_id, *values) for row_id, values in rows)
        self._tx.insert_rows(inline_table(self._table_id), names, whole)

    def close(self, versions: Mapping[int, int], snapshot: int) -> list[int]:
        hot, moved, floor = [], [], self._floors.hot_floor
        for row_id, begin in versions.items():
            if (begin, row_id) > floor:
                hot.append((snapshot, begin, row_id))
            else:
                moved.append(row_id)
        if hot:
            sql = _close_sql(self._table_id)
            if len(hot) == 1:
                self._tx.send(sql, hot[0], rows=1)
            elif self._tx.execute_many(sql, hot) != len(hot):
                raise AssertionError("a hot row that passed validation is nowhere")
        return moved

    def close_all(self, snapshot: int) -> int:
        floor = self._floors.hot_floor
        sql = f"update {self._name} set _end = ? where {_ABOVE_HOT}"
        return self._tx.execute(sql, (snapshot, floor[0], floor[0], floor[1]))


@lru_cache(4096)
def select_rows(table_id: int, columns: tuple[str, ...]) -> str:
    """Return SQL that selects begin, row id, end and values of all versions."""
    names = "".join(f", {quote(c)}" for c in columns)
    return f"select _begin, _indexlake_row_id, _end{names} from {quote(inline_table(table_id))}"


def queries_by_key(
    table_id: int,
    columns: tuple[str, ...],
    keys: Iterable[Sequence[SqlValue]],
    key_columns: tuple[str, ...],
    codecs: tuple[Codec, ...],
) -> Iterator[Query]:
    """Yield queries for all inline versions with one of the encoded keys in some columns."""
    select, remaining = select_rows(table_id, columns), iter(keys)
    together = _IN_LIMIT if _plain_key_condition(key_columns, codecs) is not None else 1
    while some := list(islice(remaining, together)):
        if len(some) == 1:
            condition, values = _key_condition(some[0], key_columns, codecs)
            yield f"{select} where {condition}", values
        else:
            some += [some[-1]] * ((1 << (len(some) - 1).bit_length()) - len(some))  # few different texts
            yield f"{select} where {_keys_condition(key_columns, len(some))}", [v for key in some for v in key]


@lru_cache(4096)
def _keys_condition(columns: tuple[str, ...], count: int) -> str:
    names = ", ".join(map(quote, columns))
    if len(columns) == 1:
        return f"{names} in ({', '.join('?' * count)})"
    one = f"({', '.join('?' * len(columns))})"
    return f"({names}) in (values {', '.join([one] * count)})"


@lru_cache(4096)
def _select_with_key(table_id: int, columns: tuple[str, ...], condition: str) -> tuple[str, str]:
    """Return SQL for a few versions with a key, and SQL for the one that began last up to a snapshot."""
    select = f"{select_rows(table_id, columns)} where {condition}"
    return f"{select} limit {_FEW_VERSIONS + 1}", f"{select} and _begin <= ? order by _begin desc limit 1"


@lru_cache(4096)
def _close_sql(table_id: int) -> str:
    version = "_begin = ? and _indexlake_row_id = ? and _end is null"
    return f"update {quote(inline_table(table_id))} set _end = ? where {version}"


@lru_cache(4096)
def _insert_sql(table_id: int, columns: tuple[str, ...]) -> str:
    return dialect.insert_sql(inline_table(table_id), ("_begin", "_indexlake_row_id", *columns))


def _key_condition(
    key: Sequence[SqlValue], columns: tuple[str, ...], codecs: tuple[Codec, ...]
) -> tuple[str, Sequence[SqlValue]]:
    condition = _plain_key_condition(columns, codecs)
    if condition is not None:
        return condition, key
    found = zip(columns, codecs, key, strict=True)
    parts = [compare_sql(column, "=", value, codec) for column, codec, value in found]
    return " and ".join(text for text, _ in parts), [v for _, values in parts for v in values]


@lru_cache(4096)
def _plain_key_condition(columns: tuple[str, ...], codecs: tuple[Codec, ...]) -> str | None:
    """Return the condition for any key without floats; None with floats, which compare by value, not as bits."""
    if any(is_float(codec) for codec in codecs):
        return None
    return " and ".join(f"{quote(column)} = ?" for column in columns)
