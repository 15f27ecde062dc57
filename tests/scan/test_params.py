"""Parameters belong to a condition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import indexlake as il

CALLS: dict[str, Callable[[il.Table, Any], Any]] = {
    "scan": lambda t, params: t.scan(params=params),
    "count": lambda t, params: t.count(params=params),
    "changes": lambda t, params: t.changes(0, params=params),
    "search": lambda t, params: t.search("words", "late", params=params),
    "to_spark": lambda t, params: t.to_spark(params=params),
}


@pytest.mark.parametrize("params", [{"id": 1}, [1]], ids=["by name", "by place"])
@pytest.mark.parametrize("call", CALLS)
def test_parameters_without_a_condition_are_refused(lake: il.Lake, call: str, params: Any) -> None:
    t = lake.create_table("t", {"id": "int64", "note": "string"})
    t.create_index("words", "note", kind="bm25")
    with pytest.raises(il.ExpressionError, match="params is given, but no where that uses it"):
        CALLS[call](t, params)


@pytest.mark.parametrize("params", [{}, [], None])
def test_no_parameters_are_no_mistake(lake: il.Lake, params: Any) -> None:
    t = lake.create_table("t", {"id": "int64"})
    t.insert({"id": 1})
    assert t.scan(params=params).to_pylist() == [{"id": 1}]
