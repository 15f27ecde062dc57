"""`infinity` and `-infinity` of dates and timestamps, which SQL orders after and before all others.

They are the greatest integer of the type and its negative, whatever the unit.  Arrow's kernels treat them as ordinary
moments, so computing with them is left to DuckDB.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indexlake.expr.sqltype import TIMESTAMPS, SqlType

_ENDS = {"date": 2**31 - 1} | dict.fromkeys(TIMESTAMPS, 2**63 - 1)
MOMENTS = frozenset(_ENDS)


def is_infinite(value: Any, type: SqlType) -> bool:
    """Return whether a constant, given as an integer, is infinite."""
    end = _ENDS.get(type.kind)
    return end is not None and isinstance(value, int) and abs(value) == end


def holds_infinite(value: Any, type: SqlType) -> bool:
    """Return whether an array or scalar holds an infinite moment."""
    end = _ENDS.get(type.kind)
    if end is None:
        return False
    if isinstance(value, pa.Scalar):
        return bool(value.is_valid and abs(value.value) == end)
    bounds = pc.min_max(value.cast(pa.int32() if type.kind == "date" else pa.int64())).as_py()
    return end in (bounds["max"], -(bounds["min"] or 0))
