"""A few plain values as Arrow arrays, without pandas.

pyarrow imports pandas, where it is installed, before it converts the first value. That takes four times as long as all
the rest of a process's first scan, so the few hot rows of a usual table are converted here.
"""

from __future__ import annotations

import sys
from array import array as typed_array
from collections.abc import Sequence
from itertools import accumulate
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa

from indexlake.arrow.buffers import validity

FEW = 256
"""pyarrow converts more values than this in less time."""

_FORMS: dict[Any, tuple[type, str]] = {
    pa.bool_(): (bool, "b"),
    pa.int32(): (int, "i"),
    pa.int64(): (int, "q"),
    pa.float64(): (float, "d"),
    pa.date32(): (int, "i"),
    **{pa.timestamp(unit): (int, "q") for unit in ("s", "ms", "us", "ns")},
    **{type: (str, offset) for type, offset in ((pa.string(), "i"), (pa.large_string(), "q"))},
    **{type: (bytes, offset) for type, offset in ((pa.binary(), "i"), (pa.large_binary(), "q"))},
}
"""The class of the values that are converted here, and the type code of the array's numbers or offsets."""


def scalar_of(value: Any, type: Any) -> Any:
    """Return what ``pa.scalar`` returns."""
    if value is None:
        return pa.nulls(1, type)[0]
    if "pandas" in sys.modules or type not in _FORMS or value.__class__ is not _FORMS[type][0]:
        return pa.scalar(value, type)
    return array_of([value], type)[0]


def array_of(values: Sequence[Any], type: Any) -> Any:
    """Return what ``pa.array`` returns."""
    if len(values) > FEW or "pandas" in sys.modules or type not in _FORMS:
        return pa.array(values, type)
    kind, code = _FORMS[type]
    if not {value.__class__ for value in values} <= {kind, NoneType}:
        return pa.array(values, type)
    mask = np.array([value is None for value in values], np.bool_) if None in values else None
    present: list[Any] = [kind() if value is None else value for value in values]
    try:
        if kind is bool:
            held = [pa.py_buffer(np.packbits(present, bitorder="little"))]
        elif kind is int or kind is float:
            held = [pa.py_buffer(typed_array(code, present))]
        else:
            parts = [value.encode() for value in present] if kind is str else present
            offsets = typed_array(code, accumulate(map(len, parts), initial=0))
            held = [pa.py_buffer(offsets), pa.py_buffer(b"".join(parts))]
    except (OverflowError, UnicodeEncodeError):
        return pa.array(values, type)  # whose error says more
    return pa.Array.from_buffers(type, len(values), [validity(mask), *held])


TRUE, FALSE, UNKNOWN = array_of([True, False, None], pa.bool_())
