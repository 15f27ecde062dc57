"""A few integers or bytes as Arrow arrays, without pandas.

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

_OFFSETS = {pa.binary(): "i", pa.large_binary(): "q"}


def array_of(values: Sequence[Any], type: Any) -> Any:
    """Return what ``pa.array`` returns."""
    kind = int if type == pa.int64() else bytes if type in _OFFSETS else None
    if kind is None or len(values) > FEW or "pandas" in sys.modules:
        return pa.array(values, type)
    if not {value.__class__ for value in values} <= {kind, NoneType}:
        return pa.array(values, type)
    mask = np.array([value is None for value in values], np.bool_) if None in values else None
    present: list[Any] = [kind() if value is None else value for value in values]
    if kind is int:
        try:
            held = [pa.py_buffer(typed_array("q", present))]
        except OverflowError:
            return pa.array(values, type)  # whose error says more
    else:
        offsets = typed_array(_OFFSETS[type], accumulate(map(len, present), initial=0))
        held = [pa.py_buffer(offsets), pa.py_buffer(b"".join(present))]
    return pa.Array.from_buffers(type, len(values), [validity(mask), *held])
