"""``il.expr``: SQL text where a plain value would otherwise be taken as a value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Expression:
    text: str
    params: Mapping[str, Any] | Sequence[Any] | None = None


def expr(text: str, params: Mapping[str, Any] | Sequence[Any] | None = None) -> Expression:
    """SQL for a new value: ``t.update({"total": il.expr("total * 0.9")}, where="id = 1")``.

    In an update it sees the old row, in a merge the old row as ``t`` and the source row as ``s``.  The value is
    converted to the column's type; a value that does not fit is an error.
    """
    return Expression(text, params)
