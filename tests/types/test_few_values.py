"""A few values become the same Arrow arrays as pyarrow makes of them, and are refused with the same errors."""

from __future__ import annotations

import sys
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pytest

from indexlake.arrow.values import FEW, array_of, scalar_of

INTS, BYTES, TEXT = pa.int64(), pa.binary(), pa.string()


@pytest.mark.parametrize(
    ("type", "values"),
    [
        (INTS, []),
        (INTS, [1, -1, 2**63 - 1, -(2**63)]),
        (INTS, (0, None, 5)),
        (INTS, [None, None]),
        (INTS, list(range(FEW + 1))),
        (INTS, [2**63]),
        (INTS, [1.5]),
        (INTS, [2.0]),
        (INTS, [True]),
        (INTS, ["1"]),
        (BYTES, []),
        (BYTES, [b"", b"\x00\xff", None, b"x" * 1000]),
        (pa.large_binary(), (b"a", None)),
        (BYTES, [None]),
        (BYTES, ["text"]),
        (BYTES, [bytearray(b"a")]),
        (BYTES, [1]),
        (pa.int32(), [1, None, -(2**31)]),
        (pa.int32(), [2**31]),
        (pa.date32(), [1, None]),
        (pa.date32(), [date(2020, 1, 1)]),
        (pa.timestamp("us"), [2**62, None]),
        (pa.timestamp("us"), [datetime(2020, 1, 1)]),
        (pa.timestamp("us", "UTC"), [1]),
        (pa.float64(), [1.5, None, -0.0, float("inf")]),
        (pa.float64(), [1]),
        (pa.bool_(), [True, None, False, *[True] * 9]),
        (pa.bool_(), [1]),
        (TEXT, ["", "ü\0", None, "\U0010ffff"]),
        (TEXT, ["\ud800"]),
        (TEXT, [b"a"]),
        (pa.large_string(), ["a", None]),
        (pa.string_view(), ["a", None]),
        (pa.binary(2), [b"ab", None]),
        (pa.binary(2), [b"abc"]),
    ],
)  # fmt: skip
def test_few_values_are_what_pyarrow_makes_of_them(type: Any, values: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = _array_or_error(pa.array, values, type)
    monkeypatch.delitem(sys.modules, "pandas", raising=False)
    found = _array_or_error(array_of, values, type)
    assert found == expected
    if isinstance(found, pa.Array):
        found.validate(full=True)
        assert found.type == type
    for value in values[:3]:
        expected = _array_or_error(pa.scalar, value, type)
        found = _array_or_error(scalar_of, value, type)
        assert found == expected
        assert getattr(found, "type", None) == getattr(expected, "type", None)


def _array_or_error(make: Any, values: Any, type: Any) -> Any:
    try:
        return make(values, type)
    except Exception as error:
        return repr(error)
