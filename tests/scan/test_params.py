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


@pytest.mark.parametrize("dump_format", ["ipc", "vortex", "parquet"])
def test_columns_may_have_the_names_that_files_use(lake: il.Lake, dump_format: str) -> None:
    config = il.TableConfig(direct_write_row_count=5, dump_format=dump_format)
    t = lake.create_table("t", {"a": "int64", "f1": "int64", "f2": "string"}, config=config)
    t.insert([{"a": n, "f1": n % 5, "f2": f"s{n % 3}"} for n in range(50)])
    t.rename_column("a", "f3")
    for where, count in (
        ("f1 = 3", 10), ("f2 = 's1'", 17), ("f3 = 7", 1), ("f1 = 3 and f2 = 's1'", 3), ("f1 < 2 or f3 > 40", 26),
        ("f3 between 3 and 9 and f1 <> 4", 5),
    ):  # fmt: skip
        assert t.count(where) == count, where
        assert t.scan(where).to_arrow().num_rows == count, where
    t.create_index("by_f1", "f1", include=["f3"])
    t.create_index("by_f2", "f2")
    assert t.scan("f1 = 3 and f2 = 's1'", columns=["f3"]).to_pylist() == [{"f3": 13}, {"f3": 28}, {"f3": 43}]
