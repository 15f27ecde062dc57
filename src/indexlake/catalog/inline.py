"""Rows in the catalog database: ``indexlake_inline_row_{table_id}``.

A row version is (_begin, row id, _end, encoded values).  A reader at S sees the versions with
``_begin <= S < _end`` that are not below the floors: those lie in blocks already and their inline copies wait
for the purge.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

from indexlake.catalog import dialect
from indexlake.catalog.definitions import TableRecord, inline_table
from indexlake.catalog.dialect import quote
from indexlake.catalog.driver import ReadTransaction, Transaction
from indexlake.expr.test import ALWAYS, All, Any_, ColumnTest, Test
from indexlake.types import Codec, SqlValue
from indexlake.types.floats import INFINITY, NEGATIVE_INFINITY, NEGATIVE_ZERO, is_float

Row = tuple[Any, ...]
"""(begin, row id, end, value, value …)"""

_ABOVE_HOT = "_end is null and (_begin > ? or (_begin = ? and _indexlake_row_id > ?))"
_ABOVE_HISTORY = "_end > ? and (_end > ? or (_end = ? and _indexlake_row_id > ?))"
_IN_LIMIT = 500


@lru_cache(4096)
def _select(table_id: int, columns: tuple[str, ...]) -> str:
    names = "".join(f", {quote(c)}" for c in columns)
    return f"select _begin, _indexlake_row_id, _end{names} from {quote(inline_table(table_id))}"


def visible_rows(
    r: ReadTransaction | Transaction,
    table: TableRecord,
    snapshot: int,
    columns: Sequence[str],
    test: Test = ALWAYS,
    codecs: Mapping[str, Codec] | None = None,
    since: Mapping[str, int] | None = None,
    *,
    newest: bool = False,
) -> Iterator[Row]:
    """Rows a reader at ``snapshot`` sees, prefiltered by a necessary condition on columns ``f<id>``.

    ``since`` names the columns that older rows do not hold, with the snapshot that added them: the condition says
    nothing about those rows.  ``newest`` promises that the snapshot is the last one: superseded versions need no look
    then.
    """
    visible, params = _visible(table, snapshot, newest=newest)
    condition, values = test_sql(test, codecs or {}, since or {})
    sql = f"{_select(table.table_id, tuple(columns))} where {visible} and {condition}"
    return r.query(sql, [*params, *values])


def count_visible(r: ReadTransaction | Transaction, table: TableRecord, snapshot: int, *, newest: bool) -> int:
    """How many rows ``visible_rows`` would give."""
    visible, params = _visible(table, snapshot, newest=newest)
    return int(r.rows(f"select count(*) from {quote(inline_table(table.table_id))} where {visible}", params)[0][0])


def has_more_visible(
    r: ReadTransaction | Transaction, table: TableRecord, snapshot: int, limit: int, *, newest: bool
) -> bool:
    """Whether ``visible_rows`` would give more than so many; the others are not looked at."""
    visible, params = _visible(table, snapshot, newest=newest)
    found = f"select 1 from {quote(inline_table(table.table_id))} where {visible} limit ?"
    return int(r.rows(f"select count(*) from ({found}) as found", [*params, limit + 1])[0][0]) > limit


def _visible(table: TableRecord, snapshot: int, *, newest: bool) -> tuple[str, list[int]]:
    hot, history = table.hot_floor, table.history_floor
    if newest:
        return f"({_ABOVE_HOT})", [hot[0], hot[0], hot[1]]
    return (
        f"_begin <= ? and (({_ABOVE_HOT}) or ({_ABOVE_HISTORY}))",
        [snapshot, hot[0], hot[0], hot[1], snapshot, history[0], history[0], history[1]],
    )


def rows_by_key(
    r: ReadTransaction | Transaction, table_id: int, columns: Sequence[str], where: str, values: Sequence[SqlValue]
) -> list[Row]:
    """Every inline version with that key, whatever its visibility.  ``where`` comes from ``key_condition``."""
    return r.rows(f"{_select(table_id, tuple(columns))} where {where}", values)


def rows_with_keys(
    r: ReadTransaction | Transaction,
    table_id: int,
    columns: tuple[str, ...],
    keys: Iterable[Sequence[SqlValue]],
    shown: tuple[str, ...] = (),
) -> Iterator[Row]:
    """(begin, row id, end, columns shown …) of every inline version with one of the encoded keys (no floats)."""
    remaining = iter(keys)
    while some := list(islice(remaining, _IN_LIMIT)):
        names = ", ".join(quote(c) for c in columns)
        if len(columns) == 1:
            condition = f"{names} in ({', '.join('?' * len(some))})"
        else:
            one = f"({', '.join('?' * len(columns))})"
            condition = f"({names}) in (values {', '.join([one] * len(some))})"
        yield from r.rows(f"{_select(table_id, shown)} where {condition}", [v for key in some for v in key])


def rows_by_id(r: ReadTransaction | Transaction, table_id: int, row_id: int, columns: Sequence[str]) -> list[Row]:
    """Every inline version of that row, whatever its visibility."""
    return r.rows(f"{_select(table_id, tuple(columns))} where _indexlake_row_id = ?", (row_id,))


def key_condition(
    columns: tuple[str, ...], codecs: tuple[Codec, ...], key: Sequence[SqlValue]
) -> tuple[str, Sequence[SqlValue]]:
    """SQL that finds an encoded key, floats compared as values rather than as bits."""
    plain = _plain_key_condition(columns, codecs)
    if plain is not None:
        return plain, key
    parts, values = [], []
    for column, codec, value in zip(columns, codecs, key, strict=True):
        text, params = compare_sql(column, "=", value, codec)
        parts.append(text)
        values += params
    return " and ".join(parts), values


@lru_cache(4096)
def _plain_key_condition(columns: tuple[str, ...], codecs: tuple[Codec, ...]) -> str | None:
    """The text for a key without floats, which is the same for every key."""
    if any(is_float(codec) for codec in codecs):
        return None
    return " and ".join(f"{quote(column)} = ?" for column in columns)


def is_visible(row: Row, snapshot: int, table: TableRecord) -> bool:
    """The visibility rule, for rows fetched by key or row id."""
    begin, row_id, end = row[0], row[1], row[2]
    if end is None:
        return bool(begin <= snapshot and (begin, row_id) > table.hot_floor)
    return bool(begin <= snapshot < end and (end, row_id) > table.history_floor)


def live_keys_since(
    r: ReadTransaction | Transaction, table_id: int, floor: tuple[int, int], since: int, columns: Sequence[str]
) -> Iterator[Row]:
    """Live versions above the floor that were committed after ``since``."""
    return r.query(
        f"{_select(table_id, tuple(columns))} where {_ABOVE_HOT} and _begin > ?", (floor[0], floor[0], floor[1], since)
    )


def count_rows(r: ReadTransaction | Transaction, table: TableRecord) -> tuple[int, int]:
    """(live, superseded) versions that have not been moved to blocks."""
    name = quote(inline_table(table.table_id))
    hot, history = table.hot_floor, table.history_floor
    live = r.rows(f"select count(*) from {name} where {_ABOVE_HOT}", (hot[0], hot[0], hot[1]))[0][0]
    dead = r.rows(
        f"select count(*) from {name} where {_ABOVE_HISTORY}", (table.horizon, history[0], history[0], history[1])
    )[0][0]
    return int(live), int(dead)


# ---------------------------------------------------------------- the change feed

_NOT_IN_HISTORY = "(_end > ? or (_end = ? and _indexlake_row_id > ?))"


def begun_between(
    r: ReadTransaction, table: TableRecord, since: int, until: int, columns: Sequence[str]
) -> Iterator[Row]:
    """Versions that no block holds yet and that began in (since, until], in (_begin, row id) order."""
    condition, params = _begun(table, since, until)
    sql = f"{_select(table.table_id, tuple(columns))} where {condition} order by _begin, _indexlake_row_id"
    return r.query(sql, params)


def ended_between(
    r: ReadTransaction, table: TableRecord, since: int, until: int, columns: Sequence[str]
) -> Iterator[Row]:
    """Versions that no block holds yet and that ended in (since, until], in (_end, row id) order."""
    condition, params = _ended(table, since, until)
    sql = f"{_select(table.table_id, tuple(columns))} where {condition} order by _end, _indexlake_row_id"
    return r.query(sql, params)


def count_changes(r: ReadTransaction, table: TableRecord, since: int, until: int) -> int:
    """How many rows ``begun_between`` and ``ended_between`` would give together."""
    (begun, first), (ended, second) = _begun(table, since, until), _ended(table, since, until)
    name = quote(inline_table(table.table_id))
    sql = f"select (select count(*) from {name} where {begun}), (select count(*) from {name} where {ended})"
    return int(sum(r.rows(sql, [*first, *second])[0]))


def _begun(table: TableRecord, since: int, until: int) -> tuple[str, list[int]]:
    hot, history = table.hot_floor, table.history_floor
    return (
        f"_begin > ? and _begin <= ? and (({_ABOVE_HOT}) or (_end is not null and {_NOT_IN_HISTORY}))",
        [since, until, hot[0], hot[0], hot[1], history[0], history[0], history[1]],
    )


def _ended(table: TableRecord, since: int, until: int) -> tuple[str, list[int]]:
    history = table.history_floor
    return f"_end > ? and _end <= ? and {_NOT_IN_HISTORY}", [since, until, history[0], history[0], history[1]]


# ---------------------------------------------------------------- writing, inside the critical section


def insert_rows(tx: Transaction, table_id: int, columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Rows are (begin, row id, value …)."""
    tx.insert_rows(inline_table(table_id), ("_begin", "_indexlake_row_id", *columns), rows)


@lru_cache(4096)
def _insert_sql(table_id: int, columns: tuple[str, ...]) -> str:
    return dialect.insert_sql(inline_table(table_id), ("_begin", "_indexlake_row_id", *columns))


def insert_row(
    tx: Transaction, table_id: int, columns: tuple[str, ...], begin: int, row_id: int, values: Sequence[SqlValue]
) -> None:
    tx.send(_insert_sql(table_id, columns), (begin, row_id, *values))


def close_rows(tx: Transaction, table_id: int, rows: Sequence[tuple[int, int]], snapshot: int) -> int:
    """Close versions given as (begin, row id); how many were live."""
    sql = f"""update {quote(inline_table(table_id))} set _end = ?
        where _begin = ? and _indexlake_row_id = ? and _end is null"""
    if len(rows) == 1:
        return tx.execute(sql, (snapshot, *rows[0]))
    return tx.execute_many(sql, [(snapshot, begin, row_id) for begin, row_id in rows])


def close_all(tx: Transaction, table_id: int, floor: tuple[int, int], snapshot: int) -> int:
    return tx.execute(
        f"update {quote(inline_table(table_id))} set _end = ? where {_ABOVE_HOT}",
        (snapshot, floor[0], floor[0], floor[1]),
    )


# ---------------------------------------------------------------- dump and purge


def oldest_live(
    r: ReadTransaction, table_id: int, floor: tuple[int, int], columns: tuple[str, ...], limit: int
) -> Iterator[Row]:
    """Live versions above the floor in (_begin, row id) order."""
    sql = f"{_select(table_id, columns)} where {_ABOVE_HOT} order by _begin, _indexlake_row_id limit {int(limit)}"
    return r.query(sql, (floor[0], floor[0], floor[1]))


def oldest_dead(
    r: ReadTransaction, table_id: int, floor: tuple[int, int], columns: tuple[str, ...], limit: int
) -> Iterator[Row]:
    """Superseded versions above the history floor in (_end, row id) order."""
    sql = f"""{_select(table_id, columns)} where _end is not null and (_end > ? or
        (_end = ? and _indexlake_row_id > ?)) order by _end, _indexlake_row_id limit {int(limit)}"""
    return r.query(sql, (floor[0], floor[0], floor[1]))


def purge(tx: Transaction, table: TableRecord, limit: int) -> int:
    """Remove up to ``limit`` versions that lie in blocks or that no retained snapshot can see."""
    name = quote(inline_table(table.table_id))
    hot, history = table.hot_floor, table.history_floor
    live = f"""delete from {name} where (_begin, _indexlake_row_id) in (select _begin, _indexlake_row_id from {name}
        where _end is null and (_begin < ? or (_begin = ? and _indexlake_row_id <= ?)) limit {int(limit)})"""
    dead = f"""delete from {name} where (_begin, _indexlake_row_id) in (select _begin, _indexlake_row_id from {name}
        where _end is not null and (_end < ? or (_end = ? and _indexlake_row_id <= ?)) limit {int(limit)})"""
    gone = tx.execute(live, (hot[0], hot[0], hot[1]))
    gone += tx.execute(dead, (history[0], history[0], history[1]))
    return gone + tx.execute(dead, (table.horizon + 1, -1, -1))


def drop(tx: Transaction, table_id: int) -> None:
    tx.execute(f"drop table if exists {quote(inline_table(table_id))}")


# ---------------------------------------------------------------- necessary conditions as SQL


def test_sql(test: Test, codecs: Mapping[str, Codec], since: Mapping[str, int]) -> tuple[str, list[SqlValue]]:
    """SQL that holds for every row that satisfies the test; columns are named as in the inline table.

    A test of very many conditions gives none: databases limit how deep an expression is.
    """
    return _test_sql(test, codecs, since) if _size(test) <= _IN_LIMIT else ("1 = 1", [])


def _size(test: Test) -> int:
    """How many conditions there are."""
    count, rest = 0, [test]
    while rest:
        one = rest.pop()
        count += 1
        if isinstance(one, All | Any_):
            rest += one.children
    return count


def _test_sql(test: Test, codecs: Mapping[str, Codec], since: Mapping[str, int]) -> tuple[str, list[SqlValue]]:
    if isinstance(test, All | Any_):
        if not test.children:
            return ("1 = 1" if isinstance(test, All) else "1 = 0"), []
        texts: list[str] = []
        values: list[SqlValue] = []
        for child in test.children:
            text, params = _test_sql(child, codecs, since)
            texts.append(text)
            values += params
        joined = (" and " if isinstance(test, All) else " or ").join(texts)
        return f"({joined})", values
    assert isinstance(test, ColumnTest)
    if test.column in since:
        condition, values = _column_sql(test, codecs)
        return f"(_begin < ? or {condition})", [since[test.column], *values]
    return _column_sql(test, codecs)


def _column_sql(test: ColumnTest, codecs: Mapping[str, Codec]) -> tuple[str, list[SqlValue]]:
    codec = codecs.get(test.column)
    if test.op in ("is null", "is not null"):
        return f"{quote(test.column)} {test.op}", []
    if codec is None or not codec.ordered or len(test.values) > _IN_LIMIT:
        return "1 = 1", []
    encoded = [codec.encode_constant(v) for v in test.values]
    if test.op == "in":
        parts = [compare_sql(test.column, "=", v, codec) for v in encoded]
        plain = [p[1] for p in parts if p[0] == f"{quote(test.column)} = ?"]
        if len(plain) == len(parts) and parts:
            return f"{quote(test.column)} in ({', '.join('?' * len(parts))})", [v[0] for v in plain]
        return "(" + " or ".join(p[0] for p in parts) + ")", [v for p in parts for v in p[1]]
    return compare_sql(test.column, test.op, encoded[0], codec)


def compare_sql(column: str, op: str, value: SqlValue, codec: Codec) -> tuple[str, list[SqlValue]]:
    """``column op value`` on encoded values; floats by value: -0.0 = 0.0, NaN equals itself and is the greatest."""
    name = quote(column)
    if not is_float(codec):
        return f"{name} {op} ?", [value]
    number = codec.canonical(value)
    assert isinstance(number, int)
    least = NEGATIVE_ZERO if number == 0 else number  # the lowest encoding of an equal value
    nan = f"({name} > ? or {name} < ?)"
    texts: dict[str, tuple[str, list[SqlValue]]]
    if number > INFINITY:  # the constant is NaN
        texts = {
            "=": (nan, [INFINITY, NEGATIVE_INFINITY]),
            ">=": (nan, [INFINITY, NEGATIVE_INFINITY]),
            ">": ("1 = 0", []),
            "<": (f"{name} between ? and ?", [NEGATIVE_INFINITY, INFINITY]),
            "<=": (f"{name} is not null", []),
        }
    else:
        texts = {
            "=": (f"{name} between ? and ?", [least, number]),
            ">": (f"({name} > ? or {name} < ?)", [number, NEGATIVE_INFINITY]),
            ">=": (f"({name} >= ? or {name} < ?)", [least, NEGATIVE_INFINITY]),
            "<": (f"({name} >= ? and {name} < ?)", [NEGATIVE_INFINITY, least]),
            "<=": (f"{name} between ? and ?", [NEGATIVE_INFINITY, number]),
        }
    return texts[op]
