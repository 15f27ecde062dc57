"""Necessary conditions on encoded columns as SQL: they exclude only rows that cannot satisfy a test.

Floats compare by value: -0.0 equals 0.0, NaN equals itself and is the greatest.
"""

from __future__ import annotations

from collections.abc import Mapping

from indexlake.catalog.dialect import quote
from indexlake.expr.test import INDEX_OPS, All, Any_, ColumnTest, Test
from indexlake.types import Codec, SqlValue
from indexlake.types.floats import INFINITY, NEGATIVE_INFINITY, NEGATIVE_ZERO, is_float

_IN_LIMIT = 500


def test_sql(test: Test, codecs: Mapping[str, Codec], since: Mapping[str, int]) -> tuple[str, list[SqlValue]]:
    """Return SQL that holds for every row that satisfies the test; columns are named as in the inline table.

    A test of very many conditions becomes always true, because databases limit the depth of expressions.
    """
    return _test_sql(test, codecs, since) if _size(test) <= _IN_LIMIT else ("1 = 1", [])


def _size(test: Test) -> int:
    """Return the number of conditions."""
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
    if test.op in INDEX_OPS:
        return f"{quote(test.column)} is not null", []
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
    """Return SQL for ``column op value`` on encoded values; for floats, -0.0 = 0.0 and NaN is the greatest."""
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
