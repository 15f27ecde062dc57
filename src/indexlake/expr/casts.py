"""Casts between SQL types with DuckDB's rounding and range checks.

Arrow does what it does exactly; DuckDB does the rest over the batch, such as parsing text or printing floats.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexlake.errors import ExpressionError
from indexlake.expr import fallback, intervals
from indexlake.expr.infinite import MOMENTS, holds_infinite
from indexlake.expr.sqltype import (
    DURATIONS,
    FLOATS,
    INT_RANGE,
    INTEGERS,
    INTERVAL,
    NESTED_KINDS,
    PER_SECOND,
    TIMESTAMP,
    TIMESTAMPS,
    SqlType,
    to_arrow,
)
from indexlake.types.hugeint import WIDE


def load(array: Any, type: SqlType) -> Any:
    """Return a column of any Arrow type in the representation in which its SQL type is evaluated."""
    arrow = array.type
    if pa.types.is_dictionary(arrow):
        array = array.cast(arrow.value_type)
        arrow = array.type
    if type.kind == "varchar":
        return array.cast(pa.large_string()) if arrow == pa.string_view() else array
    if type.kind == "blob":
        if arrow == pa.binary_view():
            return array.cast(pa.large_binary())
        return array.cast(pa.binary()) if pa.types.is_fixed_size_binary(arrow) else array
    if type.kind == "nested":
        return array
    if type.kind == "uuid":
        return array.cast(to_arrow(type))
    wanted = to_arrow(type)
    if arrow == wanted:
        return array
    if type.kind in NESTED_KINDS:
        nothing = array.null_count == len(array)  # Arrow fails on an empty dictionary inside
        return pa.nulls(len(array), wanted) if nothing else _arrow(array, wanted, type)
    if type.kind == "date":  # date64 with any time of day
        return pc.cast(array, wanted, safe=False)
    return _arrow(array, wanted, type)


def cast(array: Any, source: SqlType, target: SqlType, lenient: bool) -> Any:
    """Cast an array or scalar; an impossible value is an error, or null if `lenient`."""
    if isinstance(array, pa.Scalar):
        one = pa.array([None], array.type) if not array.is_valid else pa.repeat(array, 1)
        return cast(one, source, target, lenient)[0]
    if source.kind == "null" or array.null_count == len(array):
        return pa.nulls(len(array), to_arrow(target))
    if source != target and {source.kind, target.kind} <= MOMENTS and holds_infinite(array, source):
        return _by_duckdb(array, source, target, lenient)
    if lenient and fallible(source, target):
        return _by_duckdb(array, source, target, lenient=True)
    return _cast(array, source, target)


def _cast(array: Any, source: SqlType, target: SqlType) -> Any:
    if source.kind == "bool":
        return _from_bool(array, source, target)
    if source.kind in INTEGERS:
        return _from_int(array, source, target)
    if source.kind in FLOATS:
        return _from_float(array, source, target)
    if source.kind == "decimal":
        return _from_decimal(array, source, target)
    if source.kind == "date" and target.kind in TIMESTAMPS:
        return _arrow(array, to_arrow(target), target)
    if source.kind in TIMESTAMPS and target.kind in TIMESTAMPS:
        return _between_timestamps(array, source, target)
    if source.kind in TIMESTAMPS and target.kind == "date":
        if PER_SECOND[source.kind] > PER_SECOND["timestamp"]:  # via microseconds, as DuckDB does
            array, source = _between_timestamps(array, source, TIMESTAMP), TIMESTAMP
        days = _floor_divide(pc.cast(array, pa.int64()), 86_400 * PER_SECOND[source.kind])
        return pc.cast(days, pa.int32()).cast(pa.date32())
    if source.kind in DURATIONS and target.kind in DURATIONS:
        return _arrow(array, to_arrow(target), target)
    if source.kind in DURATIONS and target.kind == "interval":
        return intervals.from_duration(array)
    if source.kind == "interval" and target.kind in DURATIONS:
        return _arrow(intervals.to_duration(array), to_arrow(target), target)
    if source.kind == "time" and target.kind == "time_ns":
        return _arrow(array, to_arrow(target), target)
    if source.kind in DURATIONS or target.kind in DURATIONS:  # durations are converted to text as intervals are
        return _cast(_cast(array, source, INTERVAL), INTERVAL, target)
    if source.kind == target.kind and to_arrow(source) == to_arrow(target):
        return array
    return _by_duckdb(array, source, target)


def fallible(source: SqlType, target: SqlType) -> bool:
    """Return whether a cast may raise for some value."""
    if source.kind in INTEGERS and target.kind in INTEGERS:
        low, high = INT_RANGE[source.kind]
        return not (INT_RANGE[target.kind][0] <= low and high <= INT_RANGE[target.kind][1])
    if source.kind in INTEGERS | {"bool", "float", "decimal"}:
        return target.kind not in ("double", "varchar", "bool")
    return (source.kind, target.kind) not in (("varchar", "varchar"), ("date", "timestamp_s"))


def _by_duckdb(array: Any, source: SqlType, target: SqlType, lenient: bool = False) -> Any:
    name = fallback.sql_name(target)
    word = "TRY_CAST" if lenient else "CAST"
    # Cast to the source type first, so that DuckDB sees the same SQL type as the binder (e.g. HUGEINT).
    sql = f"{word}(CAST(a0 AS {fallback.sql_name(source)}) AS {name})"
    return fallback.evaluate(sql, [fallback.handed_over(array, source)], target, f"a cast from {source} to {target}")


def _arrow(array: Any, wanted: pa.DataType, target: SqlType, safe: bool = True) -> Any:
    try:
        return pc.cast(array, wanted, safe=safe)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ExpressionError(f"a value is out of range for {target}: {error}") from None


def _from_bool(array: Any, source: SqlType, target: SqlType) -> Any:
    if target.kind in FLOATS | INTEGERS - {"hugeint"} | {"varchar"}:
        return pc.cast(array, to_arrow(target))
    if target.kind in ("decimal", "hugeint"):
        return _from_int(pc.cast(array, pa.int8()), SqlType("int8"), target)
    return _by_duckdb(array, source, target)


def _from_int(array: Any, source: SqlType, target: SqlType) -> Any:
    wanted = to_arrow(target)
    if target.kind == "bool":
        zero = pa.scalar(0, pa.int64()).cast(array.type)
        return pc.not_equal(array, zero)
    if source.kind == "hugeint":
        if target.kind in INTEGERS:
            return array if target.kind == "hugeint" else _arrow(array, wanted, target)
        if target.kind == "decimal":
            return _rescale(pc.cast(array, WIDE), target)
        return _by_duckdb(array, source, target)
    if target.kind in ("hugeint", "varchar"):
        return pc.cast(array, wanted)
    if target.kind in INTEGERS:
        return _arrow(array, wanted, target)
    if target.kind in FLOATS:
        return pc.cast(array, wanted, safe=False)
    if target.kind == "decimal":
        return _rescale(pc.cast(array, pa.decimal128(20, 0)), target)
    return _by_duckdb(array, source, target)


def _from_float(array: Any, source: SqlType, target: SqlType) -> Any:
    if target.kind == "double":
        return pc.cast(array, pa.float64())
    if target.kind == "float":
        narrow = pc.cast(array, pa.float32(), safe=False)
        lost = pc.and_(pc.is_inf(narrow), pc.invert(pc.is_inf(array)))
        if pc.any(lost).as_py():
            raise ExpressionError(f"a value is out of range for {target}")
        return narrow
    if target.kind in INTEGERS - {"hugeint"}:
        return _arrow(pc.round(array, round_mode="half_to_even"), to_arrow(target), target)
    if target.kind == "bool":
        return pc.invert(pc.equal(array, pa.scalar(0.0, array.type)))
    return _by_duckdb(array, source, target)


def _from_decimal(array: Any, source: SqlType, target: SqlType) -> Any:
    if target.kind == "decimal":
        return _rescale(array, target)
    if target.kind in FLOATS:
        return _decimal_to_float(array, source, target)
    if target.kind in INTEGERS:
        whole = _rescale(array, SqlType("decimal", 38, 0))
        return whole if target.kind == "hugeint" else _arrow(whole, to_arrow(target), target)
    return _by_duckdb(array, source, target)


def _rescale(array: Any, target: SqlType) -> Any:
    """Change width and scale; when digits are dropped, halves round away from zero, as in DuckDB."""
    scale = array.type.scale
    wide = pa.decimal256(76, max(scale, target.scale))
    try:
        if target.scale < scale:
            array = pc.round(pc.cast(array, wide), target.scale, "half_towards_infinity")
        elif array.type.precision + target.scale - scale > 38:
            array = pc.cast(array, wide)
        return pc.cast(array, to_arrow(target))
    except pa.ArrowInvalid as error:
        raise ExpressionError(f"a value does not fit in {target}: {error}") from None


def unscaled(array: Any) -> np.ndarray[Any, Any]:
    """Return the 64-bit unscaled integers of a decimal128 array of at most 18 digits; arbitrary where it is null."""
    data = array.buffers()[1]
    words = np.frombuffer(data, dtype="<i8", count=2 * (len(array) + array.offset))
    return words[2 * array.offset :: 2]


def from_unscaled(values: np.ndarray[Any, Any], type: pa.DataType, mask: np.ndarray[Any, Any]) -> pa.Array:
    """Return a decimal128 array of 64-bit unscaled integers, null where `mask` is set."""
    words = np.empty(2 * len(values), dtype="<i8")
    words[::2] = values
    words[1::2] = values >> 63
    valid = np.packbits(~mask, bitorder="little") if mask.any() else None
    return pa.Array.from_buffers(
        type, len(values), [None if valid is None else pa.py_buffer(valid), pa.py_buffer(words)]
    )


def _decimal_to_float(array: Any, source: SqlType, target: SqlType) -> Any:
    if source.width > 18:
        return _by_duckdb(array, source, target)
    values = unscaled(array)
    real: Any = np.float32 if target.kind == "float" else np.float64
    power = real(10.0**source.scale)
    result = values.astype(real) / power
    large = np.abs(values) > (2**24 if target.kind == "float" else 2**53)
    if source.scale and large.any():
        divisor = 10**source.scale
        rest = np.fmod(values, divisor)
        split = ((values - rest) // divisor).astype(real) + rest.astype(real) / power
        result = np.where(large, split, result)
    mask = pc.is_null(array).to_numpy(zero_copy_only=False)
    return pa.array(result, to_arrow(target), mask=mask)


def _floor_divide(array: Any, divisor: int) -> Any:
    values = np.floor_divide(pc.fill_null(array, 0).to_numpy(), divisor)
    return pa.array(values, pa.int64(), mask=pc.is_null(array).to_numpy(zero_copy_only=False))


def _between_timestamps(array: Any, source: SqlType, target: SqlType) -> Any:
    have, want = PER_SECOND[source.kind], PER_SECOND[target.kind]
    if want >= have:
        moved = pc.cast(array, pa.timestamp(array.type.unit, to_arrow(target).tz), safe=False)
        return _arrow(moved, to_arrow(target), target)
    values = pc.fill_null(pc.cast(array, pa.int64()), 0).to_numpy()
    divisor = have // want
    if have == PER_SECOND["timestamp"]:  # microseconds round half away from zero, nanoseconds are truncated
        rest = np.fmod(values, divisor)
        counts = (values - rest) // divisor + np.sign(rest) * (2 * np.abs(rest) >= divisor)
    else:
        counts = (values - np.fmod(values, divisor)) // divisor
    mask = pc.is_null(array).to_numpy(zero_copy_only=False)
    return pa.array(counts, pa.int64(), mask=mask).cast(to_arrow(target))
