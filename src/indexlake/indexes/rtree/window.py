"""What an rtree looks up for a predicate: rows whose boxes meet all of one or more windows.

A window is closed.  NaN is the greatest number, as in SQL.  Bounds are rounded to floats in the same way as points, so
that no row that satisfies a comparison lies outside.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.expr.test import All, ColumnTest, Test

if TYPE_CHECKING:
    from indexlake.schema import Field

Floats = npt.NDArray[np.float64]

_EXACT_BITS = 32  # integers of up to this many bits are exact as floats
_SLACK = 2.0**-48  # decimals are rounded more than once on the way to floats


@dataclass(frozen=True, slots=True)
class Interval:
    """The numbers from low to high (none if low is greater than high), with or without NaN."""

    low: float = -math.inf
    high: float = math.inf
    nan: bool = True

    def __and__(self, other: Interval) -> Interval:
        return Interval(max(self.low, other.low), min(self.high, other.high), self.nan and other.nan)

    def has(self, values: Floats) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = (values >= self.low) & (values <= self.high)
        return found | np.isnan(values) if self.nan else found

    def text(self, name: str) -> str:
        if self.low > self.high:
            return f"{name} is NaN" if self.nan else f"no {name}"
        if self.low == self.high:
            return f"{name} = {self.low:g}"
        if self.high == math.inf:
            return f"{name} >= {self.low:g}"
        if self.low == -math.inf:
            return f"{name} <= {self.high:g}"
        return f"{name} between {self.low:g} and {self.high:g}"


ALL = Interval()
NAN = Interval(math.inf, -math.inf)
NUMBERS = Interval(nan=False)
NONE = Interval(math.inf, -math.inf, nan=False)


@dataclass(frozen=True, slots=True)
class Window:
    """A window.  Where the interval is None, the coordinate may be anything, including null."""

    x: Interval | None
    y: Interval | None

    @classmethod
    def of_box(cls, box: Sequence[float]) -> Window:
        low_x, low_y, high_x, high_y = box
        return cls(Interval(low_x, high_x, False), Interval(low_y, high_y, False))

    @property
    def box(self) -> tuple[float, float, float, float]:
        """(min x, min y, max x, max y)"""
        x, y = self.x or ALL, self.y or ALL
        return x.low, y.low, x.high, y.high


@dataclass(frozen=True, slots=True)
class RTreeProbe:
    """Looks up boxes that meet every one of the windows."""

    names: tuple[str, ...]  # of the columns, for display
    windows: tuple[Window, ...]
    exact: bool

    def __str__(self) -> str:
        if len(self.names) == 1:
            shown = [", ".join(f"{edge:g}" for edge in window.box) for window in self.windows]
            return " and ".join(f"{self.names[0]} meets ({edges})" for edges in shown)
        axes = [(name, axis) for w in self.windows for name, axis in zip(self.names, (w.x, w.y), strict=True)]
        return " and ".join(axis.text(name) for name, axis in axes if axis is not None)


def probe_of(fields: Sequence[Field], test: Test) -> RTreeProbe | None:
    """Return what the conjuncts say about the columns of an index, or None if they say nothing."""
    conjuncts = [part for part in (test.children if isinstance(test, All) else (test,)) if isinstance(part, ColumnTest)]
    names = tuple(f.name for f in fields)
    if len(fields) == 1:
        meets = [part.values for part in conjuncts if part.column == fields[0].column and part.op == "meets"]
        return RTreeProbe(names, tuple(map(Window.of_box, meets)), False) if meets else None
    x, y = (_interval(f, conjuncts) for f in fields)
    if (x or ALL) == ALL and (y or ALL) == ALL:
        return None
    return RTreeProbe(names, (Window(x, y),), all(_is_exact(f.type) for f in fields))


def _is_exact(type: pa.DataType) -> bool:
    """Return whether every value of the type is exact as a 64-bit float."""
    return bool(pa.types.is_floating(type) or (pa.types.is_integer(type) and type.bit_width <= _EXACT_BITS))


def _interval(field: Field, conjuncts: list[ColumnTest]) -> Interval | None:
    tests = [part for part in conjuncts if part.column == field.column and part.op in ("=", "<", "<=", ">", ">=")]
    return (
        reduce(operator.and_, (_satisfying(part.op, part.values[0], field.type) for part in tests)) if tests else None
    )


def _satisfying(op: str, value: Any, type: pa.DataType) -> Interval:
    """Return an interval with all floats that satisfy a comparison, slightly wider if values are rounded to floats."""
    bound = float(value)
    if math.isnan(bound):
        return {"=": NAN, ">=": NAN, ">": NONE, "<": NUMBERS, "<=": ALL}[op]
    slack = abs(bound) * _SLACK if pa.types.is_decimal(type) else 0.0
    if op == "=":
        return Interval(bound - slack, bound + slack, False)
    if not _is_exact(type):
        op = op[0] + "="
    if op == ">=":
        return Interval(bound - slack)
    if op == "<=":
        return Interval(high=bound + slack, nan=False)
    if op == ">":
        return NAN if bound == math.inf else Interval(math.nextafter(bound, math.inf))
    return NONE if bound == -math.inf else Interval(high=math.nextafter(bound, -math.inf), nan=False)
