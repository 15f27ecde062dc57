"""What a sorted run of keys can answer of a predicate: equality on the first columns, then a range of the next one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from indexlake.errors import ConstraintError
from indexlake.expr.test import ColumnTest, Test, conjuncts
from indexlake.indexes.btree.partial import NULL, after, partial_part, values_begin
from indexlake.indexes.keys import Key, encode_key, encode_part, key_to_bytes
from indexlake.types import Codec

if TYPE_CHECKING:
    from indexlake.schema import Field

MOST_KEYS = 10_000
"""Up to this many combinations of values are looked up."""

Ranges = tuple[tuple[Key | None, Key | None], ...]
"""Ranges from a key (inclusive) to a key (exclusive), None meaning unbounded; ascending and disjoint."""

_RANGE_OPS = ("<", "<=", ">", ">=")


@dataclass(frozen=True, slots=True)
class KeyProbe:
    """Whole keys or ranges of keys to look up.  Everything found satisfies the tests that the probe was made from."""

    terms: tuple[Any, ...]  # printed with str()
    keys: tuple[Key, ...] = ()  # ascending
    ranges: Ranges = ()
    partial: Ranges = ()  # in the run of keys with nulls
    nulls: bool = False  # look up the rows whose only key column is null
    fixed: frozenset[str] = frozenset()  # file columns that have the same value in all rows found
    exact: bool = True

    def __str__(self) -> str:
        return " and ".join(map(str, self.terms))

    def meets(self, low: bytes, high: bytes) -> bool:
        """Return whether a segment with these bounds (`SegmentFile.min_key` and `max_key`) may hold a match."""
        if self.nulls or (self.partial and not self.ranges):
            return True  # bounds do not cover nulls
        at = bisect_left(self.keys, low, key=key_to_bytes)
        return (at < len(self.keys) and key_to_bytes(self.keys[at]) <= high) or any(
            (first is None or key_to_bytes(first) <= high) and (end is None or key_to_bytes(end) > low)
            for first, end in self.ranges
        )


def key_probe(fields: Sequence[Field], test: Test) -> KeyProbe | None:
    """Return the part of a condition on file columns that an index on these fields can answer, or None."""
    by_column: dict[str, list[ColumnTest]] = {}
    for part in conjuncts(test):
        if isinstance(part, ColumnTest):
            by_column.setdefault(part.column, []).append(part)
    try:
        return _probe(fields, [by_column.get(f.column, []) for f in fields])
    except ConstraintError:  # a constant that the column cannot hold
        return None


def _probe(fields: Sequence[Field], tests: Sequence[Sequence[ColumnTest]]) -> KeyProbe | None:
    codecs = [f.codec for f in fields]
    choices: list[list[Any]] = []
    terms: list[_Equality | _Interval] = []
    count = 1
    for field, its in zip(fields, tests, strict=True):
        values = _equal_values(field.codec, its)
        if values is None or count * len(values) > MOST_KEYS:
            break
        count *= len(values)
        choices.append(values)
        terms.append(_Equality(field, values))
    fixed = frozenset(f.column for f, values in zip(fields, choices, strict=False) if len(values) == 1)
    if len(choices) == len(fields):
        return KeyProbe(tuple(terms), keys=tuple(sorted(_keys(codecs, choices))), fixed=fixed)
    field = fields[len(choices)]
    interval = _interval(field, tests[len(choices)])
    if interval is None and not choices:
        return None
    if interval is not None:
        terms.append(interval)
    if len(fields) == 1:
        assert interval is not None
        if interval.null:
            return KeyProbe(tuple(terms), nulls=True)
        return KeyProbe(tuple(terms), ranges=(_key_range(field.codec, interval),))
    last = len(choices) == len(fields) - 1
    plain, partial = [b""], [b""]
    for codec, values in zip(codecs, choices, strict=False):
        plain = [before + encode_part(codec, v, last=False) for before in plain for v in values]
        partial = [before + partial_part(codec, v) for before in partial for v in values]
    return KeyProbe(
        tuple(terms),
        ranges=() if interval is not None and interval.null else
        tuple(sorted((_plain_range(before, field.codec, interval, last=last) for before in plain), key=_from)),
        partial=tuple(sorted((_partial_range(before, field.codec, interval) for before in partial), key=_from)),
        fixed=fixed,
    )  # fmt: skip


def _from(bounds: tuple[Key | None, Key | None]) -> Any:
    return bounds[0] or b""


def _keys(codecs: Sequence[Codec], choices: Sequence[Sequence[Any]]) -> set[Any]:
    if len(codecs) == 1:
        return {encode_key(codecs, [value]) for value in choices[0]}
    found = [b""]
    for n, (codec, values) in enumerate(zip(codecs, choices, strict=True)):
        last = n == len(codecs) - 1
        found = [before + encode_part(codec, v, last=last) for before in found for v in values]
    return set(found)


# One column


def _equal_values(codec: Codec, tests: Sequence[ColumnTest]) -> list[Any] | None:
    """Return the distinct canonical values that the column must be among, or None if the tests do not name any."""
    named = [t.values for t in tests if t.op in ("=", "in")]
    if not named:
        return None
    values = [codec.canonical(codec.encode_constant(v)) for v in min(named, key=len) if v is not None]
    return list(dict.fromkeys(values))


@dataclass(frozen=True, slots=True)
class _Equality:
    """The column is one of some canonical values."""

    field: Field
    values: Sequence[Any]

    def __str__(self) -> str:
        name, codec, values = self.field.name, self.field.codec, self.values
        if len(values) == 1:
            return f"{name} = {shown(codec, values[0])}"
        if len(values) > 5:
            return f"{name} in ({len(values):,} values)"
        return f"{name} in ({', '.join(shown(codec, v) for v in values)})"


@dataclass(frozen=True, slots=True)
class _Interval:
    """Canonical values from `low` to `high`, each with a flag that says whether it is included; or null."""

    field: Field
    low: tuple[Any, bool] | None = None
    high: tuple[Any, bool] | None = None
    null: bool = False

    def __str__(self) -> str:
        name, codec = self.field.name, self.field.codec
        bounds = [
            f"{name} {sign}{'=' * bound[1]} {shown(codec, bound[0])}"
            for sign, bound in ((">", self.low), ("<", self.high))
            if bound is not None
        ]
        return " and ".join(bounds) or f"{name} is {'null' if self.null else 'not null'}"


def _interval(field: Field, tests: Sequence[ColumnTest]) -> _Interval | None:
    if any(t.op == "is null" for t in tests):
        return _Interval(field, null=True)
    codec = field.codec
    low: tuple[Any, bool] | None = None
    high: tuple[Any, bool] | None = None
    for test in tests:
        if test.op not in _RANGE_OPS or test.values[0] is None:
            continue
        value, included = codec.canonical(codec.encode_constant(test.values[0])), "=" in test.op
        if test.op[0] == ">":
            if low is None or (value, not included) > (low[0], not low[1]):
                low = value, included
        elif high is None or (value, included) < high:
            high = value, included
    bounded = low is not None or high is not None
    return _Interval(field, low, high) if bounded or any(t.op == "is not null" for t in tests) else None


def _key_range(codec: Codec, interval: _Interval) -> tuple[Key | None, Key | None]:
    """Return the range of one-column keys in an interval."""

    def bound(of: tuple[Any, bool], *, behind: bool) -> Key | None:
        key = encode_key([codec], [of[0]])
        if not behind:
            return key
        if isinstance(key, bytes):
            return key + b"\x00"
        return key + 1 if key + 1 < 1 << 64 else None

    low, high = interval.low, interval.high
    first = None if low is None else bound(low, behind=not low[1])
    if low is not None and first is None:
        return 0, 0  # nothing is greater than the greatest key
    return first, None if high is None else bound(high, behind=high[1])


def _plain_range(before: bytes, codec: Codec, interval: _Interval | None, *, last: bool) -> tuple[Key, Key | None]:
    """Return the range of composite keys that start with ``before`` and have the next column in an interval."""

    def bound(of: tuple[Any, bool], *, behind: bool) -> bytes | None:
        key = before + encode_part(codec, of[0], last=last)
        if not behind:
            return key
        return key + b"\x00" if last and codec.kind == "bytes" else after(key)

    low, high = (None, None) if interval is None else (interval.low, interval.high)
    first = before if low is None else bound(low, behind=not low[1])
    if first is None:
        return b"", b""
    return first, after(before) if high is None else bound(high, behind=high[1])


def _partial_range(before: bytes, codec: Codec, interval: _Interval | None) -> tuple[Key, Key | None]:
    """Return the same range for keys with nulls."""
    if interval is None:
        return before, after(before)
    if interval.null:
        return before + NULL, after(before + NULL)
    low, high = interval.low, interval.high
    first: bytes | None = before + values_begin(codec)
    end: bytes | None = before + NULL
    if low is not None:
        key = before + partial_part(codec, low[0])
        first = key if low[1] else after(key)
    if high is not None:
        key = before + partial_part(codec, high[0])
        end = after(key) if high[1] else key
    assert first is not None  # the marker byte is small, so there is a greater key
    return first, end


# Display


def shown(codec: Codec, value: Any) -> str:
    found = codec.show_one(value)
    if isinstance(found, bool):
        return str(found).lower()
    if isinstance(found, int | float | Decimal):
        return str(found)
    text = str(found)
    text = text if len(text) <= 40 else f"{text[:37]}..."
    return "'" + text.replace("'", "''") + "'"
