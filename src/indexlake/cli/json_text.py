"""JSON that every parser can read.  Whatever JSON has no form for becomes a string.

NaN and the infinities are ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``; bytes are base64; dates, times and durations
are ISO 8601; a decimal with a fraction is its digits.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa


def json_text(value: Any, *, indent: int | None = 2) -> str:
    return json.dumps(_plain(value), indent=indent, allow_nan=False)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
    if isinstance(value, Decimal):
        return int(value) if value.as_tuple().exponent == 0 else str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return b64encode(value).decode()
    if isinstance(value, timedelta):
        micros = value // timedelta(microseconds=1)
        return f"{'-' * (micros < 0)}PT{_seconds(abs(micros), 6)}S"
    if isinstance(value, pa.MonthDayNano):
        nanos = value.nanoseconds
        return f"P{value.months}M{value.days}DT{'-' * (nanos < 0)}{_seconds(abs(nanos), 9)}S"
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _seconds(count: int, digits: int) -> str:
    """Return a number of fractions of a second as seconds."""
    whole, part = divmod(count, 10**digits)
    return f"{whole}.{part:0{digits}}".rstrip("0").rstrip(".") if part else str(whole)
