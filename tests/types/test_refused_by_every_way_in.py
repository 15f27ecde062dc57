"""Times outside the day and maps with a key twice are refused by every way in: engines crash or fail on them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import indexlake
from indexlake.errors import ConstraintError


@pytest.fixture
def lake(tmp_path):
    with indexlake.connect(tmp_path / "lake") as lake:
        yield lake


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
