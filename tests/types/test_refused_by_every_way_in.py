"""Values that no engine could work with are refused by every way in; those that only look odd are converted."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from indexlake.errors import ConstraintError, ExpressionError

TIME = pa.array([2**62], pa.int64()).view(pa.time64("us"))
MAP = pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int64()))
BAD = [("time64[us]", TIME, "outside the day"), ("map<string, int64>", MAP, "has a key twice")]


@pytest.mark.parametrize(("type", "array", "words"), BAD, ids=["time", "map"])
def test_arrow_files_and_merge_sources(lake, tmp_path, type, array, words):
    table = lake.create_table("t", {"id": "int64", "x": type}, primary_key="id")
    data = pa.table({"id": [1], "x": array})
    pq.write_table(data, tmp_path / "x.parquet")
    with pa.OSFile(str(tmp_path / "x.arrow"), "wb") as file, pa.ipc.new_file(file, data.schema) as writer:
        writer.write_table(data)
    ways = [
        lambda: table.insert(data),
        lambda: table.insert(tmp_path / "x.parquet"),
        lambda: table.insert(tmp_path / "x.arrow"),
        lambda: table.upsert(data),
        lambda: lake.create_table("u", data),
        lambda: table.merge(data, on="id").when_not_matched_insert().execute(),
    ]
    for way in ways:
        with pytest.raises(ConstraintError, match=f"Column 'x' .*{words}"):
            way()
    assert table.count() == 0
    assert "u" not in lake.tables()


def test_python_maps(lake):
    table = lake.create_table("t", {"id": "int64", "x": "map<string, int64>", "f": "map<double, int64>"})
    for row in [
        {"x": [("k", 1), ("k", 2)]},
        {"f": [(0.0, 1), (-0.0, 2)]},
        {"f": [(float("nan"), 1), (float("nan"), 2)]},
    ]:
        with pytest.raises(ConstraintError, match="it has a key twice; a map has each key once"):
            table.insert([{"id": 1, **row}])
    with pytest.raises(ConstraintError, match="null is not allowed in a key"):
        table.insert([{"id": 1, "x": [(None, 1)]}])
    assert table.count() == 0


def test_24_00_00_is_a_time(lake):
    table = lake.create_table("t", {"x": "time64[us]"})
    table.insert(pa.table({"x": pa.array([0, 86_400_000_000], pa.int64()).view(pa.time64("us"))}))
    assert lake.sql("select x::varchar from t order by x").fetchall() == [("00:00:00",), ("24:00:00",)]


@pytest.mark.parametrize(("type", "array", "words"), BAD, ids=["time", "map"])
def test_arrow_scalars_in_rows(lake, type, array, words):
    table = lake.create_table("t", {"x": type})
    with pytest.raises(ConstraintError, match=words):
        table.insert([{"x": array[0]}])
    nested = lake.create_table("n", {"x": f"list<{type}>"})
    with pytest.raises(ConstraintError, match=words):
        nested.insert([{"x": [array[0]]}])


@pytest.mark.parametrize("view", [pa.list_view, pa.large_list_view], ids=["list_view", "large_list_view"])
def test_list_views_become_lists(lake, tmp_path, view):
    inner = pa.array([[1, 2], None, [], [3]], view(pa.int64()))
    nested = pa.ListArray.from_arrays(pa.array([0, 1, 1, 3, 4], pa.int32()), inner)
    data = pa.table(
        {"id": [1, 2, 3, 4], "x": inner, "s": pa.StructArray.from_arrays([inner], ["a"]), "n": nested},
    )
    types = {"id": "int64", "x": "list<int64>", "s": "struct<a: list<int64>>", "n": "list<list<int64>>"}
    table = lake.create_table("t", types, primary_key="id")
    table.insert(data.slice(0, 2))
    table.insert(data.slice(2))
    assert table.scan(order_by="id").to_pylist() == data.to_pylist()
    with pa.OSFile(str(tmp_path / "x.arrow"), "wb") as file, pa.ipc.new_file(file, data.schema) as writer:
        writer.write_table(data)
    table.delete("true")
    table.insert(tmp_path / "x.arrow")
    assert table.scan(order_by="id").to_pylist() == data.to_pylist()


def test_values_that_are_nested_deeply_are_refused(lake):
    deep = []
    for _ in range(3000):
        deep = [deep]
    table = lake.create_table("t", {"x": "int64"})
    with pytest.raises(ConstraintError, match=r"cannot be shown .list. is not a value of type int64"):
        table.insert([{"x": deep}])
    with pytest.raises(ExpressionError, match="nested more than 64 levels deep"):
        table.scan("x = $x", params={"x": deep}).to_pylist()
    with pytest.raises(ExpressionError, match="nested more than 64 levels deep"):
        lake.sql("select ?", [{"a": (deep,)}]).fetchall()


@pytest.mark.parametrize("type", ["int8", "int64", "uint64"])
def test_numbers_with_a_huge_exponent_are_refused_at_once(lake, type):
    table = lake.create_table("t", {"x": type, "y": "float64"})
    table.insert({"x": 1, "y": float("inf")})
    huge = Decimal("1E+999999999999")
    for value in (huge, huge.copy_negate()):
        with pytest.raises(ConstraintError, match="it is outside"):
            table.insert({"x": value})
        for where in ("x = $v", "y = $v", "x in [$v]", "x + $v > 0"):
            with pytest.raises(ExpressionError, match="is outside the range of DOUBLE"):
                table.scan(where, params={"v": value}).to_pylist()


def test_a_value_that_cannot_be_shown_is_refused_nevertheless(lake):
    class Broken:
        def __repr__(self):
            raise ZeroDivisionError

    table = lake.create_table("t", {"x": "int64"})
    with pytest.raises(ConstraintError, match=r"cannot be shown .Broken. is not a value of type int64"):
        table.insert([{"x": Broken()}])


@pytest.mark.parametrize("unit", ["M", "Y"])
def test_months_and_years_are_no_durations(lake, unit):
    table = lake.create_table("t", {"x": "duration[s]"})
    with pytest.raises(ConstraintError, match="months and years have no fixed length"):
        table.insert([{"x": np.timedelta64(1, unit)}])
    table.insert([{"x": np.timedelta64(1, "W")}])
    assert table.scan().to_pylist() == [{"x": dt.timedelta(weeks=1)}]
