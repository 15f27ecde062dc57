"""Necessary conditions: what a row must satisfy for a predicate to be true.

A tree of tests of single columns against constants of the column's own type.  Code that prunes with it (statistics, SQL
prefilters, key look-ups, index probes) may drop rows that fail it and must recheck the others.  Floats compare as in
SQL: NaN equals itself and is the greatest, -0.0 equals 0.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Op: TypeAlias = Literal["=", "<", "<=", ">", ">=", "in", "is null", "is not null", "contains", "meets"]
"""``contains``: a list contains the value.  ``meets``: the bounding box of a geometry (WKB) meets the box given by four
values, (min x, min y, max x, max y).  Only indexes understand these two; otherwise they just mean that the column is
not null."""

INDEX_OPS = ("contains", "meets")


@dataclass(frozen=True, slots=True)
class ColumnTest:
    """A test of one column against constants.  `values` are valid for the column's Arrow type: counts for times."""

    column: str
    op: Op
    values: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class All:
    """All children hold.  Without children: always true."""

    children: tuple[Test, ...]


@dataclass(frozen=True, slots=True)
class Any_:  # noqa: N801 (`Any` is taken)
    """At least one child holds.  Without children: never true."""

    children: tuple[Test, ...]


Test: TypeAlias = ColumnTest | All | Any_

ALWAYS = All(())
NEVER = Any_(())


def all_of(tests: list[Test]) -> Test:
    """Return the flattened conjunction, without tests that are always true."""
    return _flat(All, tests, NEVER)


def any_of(tests: list[Test]) -> Test:
    """Return the flattened disjunction, without tests that are never true."""
    return _flat(Any_, tests, ALWAYS)


def columns_of(test: Test) -> set[str]:
    """Return the names of the columns in the test."""
    return {test.column} if isinstance(test, ColumnTest) else set().union(*map(columns_of, test.children))


def conjuncts(test: Test) -> list[Test]:
    """Return the tests that all have to hold, one by one."""
    if isinstance(test, All) or (isinstance(test, Any_) and len(test.children) == 1):
        return [part for child in test.children for part in conjuncts(child)]
    return [test]


def _flat(kind: type[All | Any_], tests: list[Test], decisive: Test) -> Test:
    flat: dict[Test, None] = {}
    for test in tests:
        for part in test.children if isinstance(test, kind) else (test,):
            if part == decisive:
                return decisive
            flat[part] = None
    return next(iter(flat)) if len(flat) == 1 else kind(tuple(flat))
