"""Values that Python, pandas and polars cannot represent and would silently show as others.

A HUGEINT of 39 digits is a decimal with more digits than its Arrow type allows.  Python gets it exactly; what other
readers of Arrow data make of it is not defined, and most do not check.

Python's times end before 24:00:00 and have no nanoseconds; pyarrow cuts them off.  pandas has no infinite times and
takes the least integer for NaT.  polars counts seconds in milliseconds and does not check whether they fit.  Values
that these libraries refuse themselves, such as the year 10000 in Python, are not checked here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexlake.arrow.buffers import chunks, fields_of, fixed_values
from indexlake.types.hugeint import HELD_AS
from indexlake.types.nested import list_parts
from indexlake.types.validity import TICKS_OF_DAY

_HIGH = 2**63 - 1  # as a timestamp, this is infinity


class Limits(NamedTuple):
    """The ticks or whole numbers that can be represented: from low to high, in steps."""

    low: int
    high: int
    step: int = 1

    def hold(self, ticks: int) -> bool:
        return self.low <= ticks <= self.high and ticks % self.step == 0


def in_python(type: Any) -> Limits | None:
    """Return the limits of a non-container type; None: every value can be represented, or is refused."""
    if pa.types.is_time(type):
        return Limits(0, TICKS_OF_DAY[type.unit] - 1, 1000 if type.unit == "ns" else 1)
    return in_pandas(type) if getattr(type, "unit", None) == "ns" else None


def in_pandas(type: Any) -> Limits | None:
    if pa.types.is_timestamp(type):
        return Limits(1 - _HIGH, _HIGH - 1)
    if pa.types.is_duration(type):
        return Limits(-_HIGH, _HIGH)
    return in_python(type) if pa.types.is_time(type) else None


def in_arrow(type: Any) -> Limits | None:
    """Return the limits of a type that hold for everyone who takes Arrow data."""
    return Limits(1 - 10**38, 10**38 - 1) if type == HELD_AS else None


def in_polars(type: Any) -> Limits | None:
    if pa.types.is_time(type):
        return Limits(0, TICKS_OF_DAY[type.unit] - 1)
    if (pa.types.is_timestamp(type) or pa.types.is_duration(type)) and type.unit == "s":
        return Limits(-_HIGH // 1000 + 1, _HIGH // 1000)
    return None


def any_outside(array: Any, limits: Callable[[Any], Limits | None]) -> bool:
    """Return whether an array or chunked array has a value, at any depth, outside the limits of its type."""
    return _limited(array.type, limits) and any(_outside(chunk, limits) for chunk in chunks(array))


def python_value(scalar: Any) -> Any:
    """Return the Python value of an Arrow scalar, or the scalar itself if Python cannot represent it."""
    if _limited(scalar.type, in_python) and _outside(pa.repeat(scalar, 1), in_python):
        return scalar
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        return scalar


@cache
def _limited(type: Any, limits: Callable[[Any], Limits | None]) -> bool:
    if pa.types.is_dictionary(type):
        return _limited(type.value_type, limits)
    return limits(type) is not None or any(_limited(field.type, limits) for field in fields_of(type))


def _outside(array: Any, limits: Callable[[Any], Limits | None]) -> bool:
    type, t = array.type, pa.types
    if not _limited(type, limits):
        return False
    if t.is_dictionary(type):
        return _outside(array.dictionary.take(array.indices.unique().drop_null()), limits)
    if t.is_struct(type):
        return any(_outside(part, limits) for part in array.flatten())
    if t.is_nested(type):
        return _outside(list_parts(array.drop_null())[2], limits)
    own = limits(type)
    assert own is not None
    ticks = array
    if not t.is_decimal(type):
        ticks = array.view(pa.int32() if type.bit_width == 32 else pa.int64())
    elif _has_few_digits(array):
        return False
    ticks = ticks.drop_null()
    if len(ticks) == 0:
        return False
    ends = pc.min_max(ticks)
    if ends["min"].as_py() < own.low or ends["max"].as_py() > own.high:
        return True
    return own.step > 1 and bool((ticks.to_numpy() % own.step).any())


def _has_few_digits(array: Any) -> bool:
    """Return whether the upper halves of all numbers, also below nulls, are far from those of 39 digits."""
    upper = fixed_values(array, np.int64, 2)[1::2]
    return len(upper) == 0 or bool(upper.min() > -(1 << 62) and upper.max() < 1 << 62)
