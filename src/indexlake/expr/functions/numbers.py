"""Functions of numbers.  If the result is out of the range of its type, that is an error, as in DuckDB."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indexlake.errors import ExpressionError
from indexlake.expr import casts, tree
from indexlake.expr.build import Builder
from indexlake.expr.coercion import combine_all, decimal_shape
from indexlake.expr.compare import compare
from indexlake.expr.constants import NotCovered
from indexlake.expr.functions.function import Function, Row, Signature, constant, same_for_all
from indexlake.expr.overloads import DECIMAL, INTEGER_TYPES, NUMBERS, choose
from indexlake.expr.sqltype import (
    BOOL,
    DATE,
    DOUBLE,
    FLOAT,
    FLOATS,
    INT32,
    INT64,
    INT_RANGE,
    INTEGERS,
    NESTED_KINDS,
    TIMESTAMP,
    TIMESTAMPTZ,
    SqlType,
    normal,
    to_arrow,
)

_INT8 = SqlType("int8")
_ROUNDED = (_INT8, SqlType("int16"), INT32, INT64, SqlType("hugeint"), FLOAT, DOUBLE, DECIMAL)
_REAL = (((DOUBLE,), DOUBLE),)
_REALS = (((DOUBLE, DOUBLE), DOUBLE),)


def _abs(values: list[Any], call: tree.Call) -> Any:
    (value,) = values
    if call.type.kind == "hugeint":
        raise NotCovered
    if pa.types.is_decimal(value.type):
        return pc.abs(value).cast(value.type)
    return pc.call_function("abs_checked", [value])


def _abs_row(call: tree.Call) -> Row:
    kind = call.type.kind
    high = INT_RANGE[kind][1] if kind in INTEGERS else None

    def absolute(value: Any) -> Any:
        result = abs(value) if kind != "decimal" else value.copy_abs()
        if high is not None and result > high:
            raise ExpressionError(f"the result of abs() is out of range for {call.type}")
        return result

    return absolute


# -- rounding ----------------------------------------------------------------------------------------------


def _round_types(operands: tuple[SqlType, ...], literals: tuple[Any, ...]) -> Signature | None:
    given = operands[0]
    signatures: list[Signature] = [((type, *(INT32,) * (len(operands) - 1)), type) for type in _ROUNDED]
    chosen = choose(signatures, operands)
    if chosen is None or chosen[1] != DECIMAL:
        return chosen
    shape = decimal_shape(given)
    assert shape is not None
    if len(operands) == 1:
        return (normal(given),), SqlType("decimal", shape[0], 0)
    digits = literals[1]
    if not isinstance(digits, int):
        return None
    return (normal(given), INT32), SqlType("decimal", shape[0], min(max(digits, 0), shape[1]))


def _round(values: list[Any], call: tree.Call) -> Any:
    kind = call.arguments[0].type.kind
    if kind == "decimal":
        if len(values) > 1 and constant(values[1]) < 0:
            raise NotCovered
        return casts.cast(values[0], call.arguments[0].type, call.type, False)
    if len(values) == 1:
        return values[0] if kind in INTEGERS else pc.round(values[0], 0, "half_towards_infinity")
    raise NotCovered


def _half_away(value: float) -> float:
    if math.isinf(value) or value != value or abs(value) >= 2.0**52:
        return value
    whole = math.floor(abs(value))
    return math.copysign(whole + 1 if abs(value) - whole >= 0.5 else whole, value)


def _round_row(call: tree.Call) -> Row:
    kind, digits = call.type.kind, len(call.arguments) - 1
    if kind in INTEGERS and not digits:
        return lambda value: value
    if kind in FLOATS and not digits:
        return _half_away
    if kind == "double":
        return _round_digits
    raise NotCovered


def _round_digits(value: float, digits: int) -> float:
    if abs(digits) > 300:
        raise NotCovered
    power = math.pow(10, abs(digits))
    if digits < 0:
        rounded = _half_away(value / power) * power
        return rounded if math.isfinite(rounded) else 0.0
    rounded = _half_away(value * power) / power
    return rounded if math.isfinite(rounded) else value


def _whole_types(types: tuple[SqlType, ...]) -> Callable[[tuple[SqlType, ...], tuple[Any, ...]], Signature | None]:
    def resolve(operands: tuple[SqlType, ...], literals: tuple[Any, ...]) -> Signature | None:
        chosen = choose([((type,), type) for type in types], operands)
        if chosen is None or chosen[1] != DECIMAL:
            return chosen
        shape = decimal_shape(operands[0])
        assert shape is not None
        return (normal(operands[0]),), SqlType("decimal", shape[0], 0)

    return resolve


def _whole(kernel: Any) -> Any:
    def rounded(values: list[Any], call: tree.Call) -> Any:
        (value,) = values
        if call.type.kind in INTEGERS:
            return value
        if call.type.kind == "decimal":
            if call.type.width >= 38:
                raise NotCovered
            # Rounding up may need another digit.
            value = value.cast(pa.decimal128(value.type.precision + 1, value.type.scale))
        return kernel(value).cast(to_arrow(call.type))

    return rounded


def _whole_row(function: Callable[[float], float]) -> Callable[[tree.Call], Row]:
    def make(call: tree.Call) -> Row:
        if call.type.kind in INTEGERS:
            return lambda value: value
        if call.type.kind not in FLOATS:
            raise NotCovered
        return lambda value: math.copysign(function(value), value) if math.isfinite(value) else value

    return make


# -- real functions ----------------------------------------------------------------------------------------


def _domain(values: Any, below: float, equal: bool, problem: str) -> None:
    """Raise an error for numbers below (or equal to) a bound; NaN passes."""
    test = pc.less_equal if equal else pc.less
    if pc.any(test(values, pa.scalar(below))).as_py():
        raise ExpressionError(problem)


def _sqrt(values: list[Any], call: tree.Call) -> Any:
    _domain(values[0], 0.0, False, "sqrt() of a negative number")
    return pc.sqrt(values[0])


def _logarithm(name: str, kernel: Any) -> Any:
    def take(values: list[Any], call: tree.Call) -> Any:
        if len(values) > 1:
            raise NotCovered
        _domain(values[0], 0.0, True, f"{name}() of zero or a negative number")
        return kernel(values[0])

    return take


def _real_row(name: str, function: Callable[[float], float]) -> Callable[[tree.Call], Row]:
    def real(value: float) -> float:
        if value != value or value == math.inf:
            return value
        if value <= 0:
            raise ExpressionError(f"{name}() of zero or a negative number")
        return function(value)

    return same_for_all(real)


def _sqrt_row(value: float) -> float:
    if value < 0:
        raise ExpressionError("sqrt() of a negative number")
    return math.sqrt(value)


def _exp_row(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _power_row(base: float, exponent: float) -> float:
    try:
        return math.pow(base, exponent)
    except (OverflowError, ValueError):
        raise NotCovered from None


def _sign(values: list[Any], call: tree.Call) -> Any:
    (value,) = values
    if call.arguments[0].type.kind == "hugeint":
        raise NotCovered
    zero = pa.scalar(0, value.type)
    above, below = pc.greater(value, zero).cast(pa.int8()), pc.less(value, zero).cast(pa.int8())
    return pc.subtract(above, below)


# -- comparisons -------------------------------------------------------------------------------------------


def _common_types(operands: tuple[SqlType, ...], literals: tuple[Any, ...]) -> Signature | None:
    found = combine_all(operands)
    if found is None or found.kind == "nested":
        return None
    return (normal(found),) * len(operands), normal(found)


def _extreme(op: str) -> Any:
    def choose_each(values: list[Any], call: tree.Call) -> Any:
        if call.type.kind in NESTED_KINDS or call.type.kind in ("null", "interval"):
            raise NotCovered
        result = values[0]
        for value in values[1:]:
            better = pc.or_kleene(pc.is_null(result), compare(op, value, result, call.type))
            result = pc.if_else(pc.fill_null(better, False), value, result)
        # With several FLOAT arguments, DuckDB returns 0.0 instead of -0.0.
        return pc.add(result, pa.scalar(0.0, pa.float32())) if _several_floats(call) else result

    return choose_each


def _extreme_row(op: str) -> Callable[[tree.Call], Row]:
    def make(call: tree.Call) -> Row:
        if call.type.kind in NESTED_KINDS:
            raise NotCovered
        greater = _float_greater if call.type.kind in FLOATS else operator.gt
        several_floats = _several_floats(call)

        def better(value: Any, result: Any) -> bool:
            return bool(greater(value, result) if op == ">" else greater(result, value))

        def best(*values: Any) -> Any:
            result = None
            for value in values:
                if value is not None and (result is None or better(value, result)):
                    result = value
            return result + 0.0 if several_floats and result is not None else result

        return best

    return make


def _several_floats(call: tree.Call) -> bool:
    return call.type.kind == "float" and len(call.arguments) > 1


def _float_greater(left: float, right: float) -> bool:
    return left > right or (left != left and right == right)


def _mod(builder: Builder, arguments: list[tree.Node]) -> tree.Node:
    return builder.arithmetic("%", *arguments)


# -- bits --------------------------------------------------------------------------------------------------

_BITS: tuple[Signature, ...] = tuple(((type, type), type) for type in INTEGER_TYPES)


def _bits(kernel: Any) -> Any:
    def combined(values: list[Any], call: tree.Call) -> Any:
        if call.type.kind == "hugeint":
            raise NotCovered
        return kernel(*values)

    return combined


def _float_tests(types: tuple[SqlType, ...]) -> tuple[Signature, ...]:
    return tuple(((type,), BOOL) for type in types)


def _trigonometry() -> tuple[Function, ...]:
    words = {"sin": "sine", "cos": "cosine", "tan": "tangent", "asin": "arc sine", "acos": "arc cosine"}
    words |= {"atan": "arc tangent", "degrees": "radians as degrees", "radians": "degrees as radians"}
    return tuple(Function(name, "number", word, _REAL) for name, word in words.items())


# fmt: off
FUNCTIONS = (
    Function(
        "abs", "number", "the number without its sign; also `@x`", tuple(((type,), type) for type in NUMBERS),
        kernel=_abs, row=_abs_row,
    ),
    Function(
        "round", "number[, digits]", "the number rounded, halves away from zero; digits may be negative",
        resolve=_round_types, arity=(1, 2), kernel=_round, row=_round_row,
    ),
    Function(
        "floor", "number", "the greatest whole number that is not greater",
        resolve=_whole_types((FLOAT, DOUBLE, DECIMAL)), arity=(1, 1),
        kernel=_whole(pc.floor), row=_whole_row(math.floor),
    ),
    Function(
        "ceil", "number", "the least whole number that is not less", synonyms=("ceiling",),
        resolve=_whole_types((FLOAT, DOUBLE, DECIMAL)), arity=(1, 1),
        kernel=_whole(pc.ceil), row=_whole_row(math.ceil),
    ),
    Function(
        "trunc", "number", "the number without its fraction",
        resolve=_whole_types(NUMBERS), arity=(1, 1), kernel=_whole(pc.trunc), row=_whole_row(math.trunc),
    ),
    Function(
        "sqrt", "number", "the square root; an error for a negative number", _REAL,
        kernel=_sqrt, row=same_for_all(_sqrt_row),
    ),
    Function("cbrt", "number", "the cube root", _REAL),
    Function(
        "power", "number, exponent", "the power; also `x ^ y` and `x ** y`", _REALS,
        kernel=lambda v, call: pc.power(*v), row=same_for_all(_power_row), synonyms=("pow",),
    ),
    Function(
        "ln", "number", "the natural logarithm; an error for zero or less", _REAL,
        kernel=_logarithm("ln", pc.ln), row=_real_row("ln", math.log),
    ),
    Function(
        "log", "[base,] number", "the logarithm to the base, or to 10; an error for zero or less", (*_REAL, *_REALS),
        kernel=_logarithm("log", pc.log10),
    ),
    Function("log10", "number", "the logarithm to 10; an error for zero or less", _REAL,
        kernel=_logarithm("log10", pc.log10), row=_real_row("log10", math.log10)),
    Function("log2", "number", "the logarithm to 2; an error for zero or less", _REAL,
        kernel=_logarithm("log2", pc.log2), row=_real_row("log2", math.log2)),
    Function("exp", "number", "e to the power", _REAL, kernel=lambda v, call: pc.exp(v[0]), row=same_for_all(_exp_row)),
    Function("mod", "number, number", "the remainder; also `x % y`", arity=(2, 2), expand=_mod),
    Function(
        "sign", "number", "-1, 0 or 1", tuple(((type,), _INT8) for type in (*INTEGER_TYPES, FLOAT, DOUBLE)),
        kernel=_sign, row=same_for_all(lambda value: (value > 0) - (value < 0)),
    ),
    Function(
        "greatest", "values", "the greatest of the values; nulls are left out", resolve=_common_types,
        arity=(1, None), kernel=_extreme(">"), row=_extreme_row(">"), strict=False,
    ),
    Function(
        "least", "values", "the least of the values; nulls are left out", resolve=_common_types,
        arity=(1, None), kernel=_extreme("<"), row=_extreme_row("<"), strict=False,
    ),
    Function("pi", "nothing", "the number π", (((), DOUBLE),)),
    *_trigonometry(),
    Function("atan2", "y, x", "the angle of a point", _REALS),
    Function(
        "isnan", "number", "whether it is NaN", _float_tests((FLOAT, DOUBLE)),
        kernel=lambda v, call: pc.is_nan(v[0]), row=same_for_all(math.isnan),
    ),
    Function("isinf", "number, date or timestamp", "whether it is infinite",
        _float_tests((FLOAT, DOUBLE, DATE, TIMESTAMP, TIMESTAMPTZ))),
    Function("isfinite", "number, date or timestamp", "whether it is neither infinite nor NaN",
        _float_tests((FLOAT, DOUBLE, DATE, TIMESTAMP, TIMESTAMPTZ))),
    Function("&", "integer, integer", "bits that both have", _BITS, sql="{0} & {1}",
        kernel=_bits(pc.bit_wise_and), row=same_for_all(operator.and_)),
    Function("|", "integer, integer", "bits that one of them has", _BITS, sql="{0} | {1}",
        kernel=_bits(pc.bit_wise_or), row=same_for_all(operator.or_)),
    Function("xor", "integer, integer", "bits that just one of them has", _BITS,
        kernel=_bits(pc.bit_wise_xor), row=same_for_all(operator.xor)),
    Function("~", "integer", "the bits inverted", tuple(((type,), type) for type in INTEGER_TYPES), sql="~({0})",
        kernel=_bits(pc.bit_wise_not)),
    Function("<<", "integer, integer", "the bits moved left; an error if some are lost", _BITS, sql="{0} << {1}"),
    Function(">>", "integer, integer", "the bits moved right", _BITS, sql="{0} >> {1}"),
    Function("bit_count", "integer", "how many bits are set",
        tuple(((type,), _INT8) for type in (_INT8, SqlType("int16"), INT32, INT64, SqlType("hugeint")))),
)
# fmt: on
