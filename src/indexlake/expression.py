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
    """SQL over the old row, for ``update``: ``t.update({"total": il.expr("total * 0.9")}, where="id = 1")``."""
    return Expression(text, params)
