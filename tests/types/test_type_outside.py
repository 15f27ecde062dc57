"""Values that Python, pandas or polars do not have: an error with the name of the column, never another value."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

import indexlake
from indexlake.errors import ConstraintError

DAY = 86_400_000_000
HIGH = 2**63 - 1
CONFIGS = {"inline": None, **{name: indexlake.TableConfig(dump_format=name) for name in ("vortex", "parquet")}}


def ticks(type, *values):
    return pa.array(values, pa.int32() if type.bit_width == 32 else pa.int64()).view(type)


NOT_IN_PYTHON = {
    "24:00:00": ticks(pa.time64("us"), DAY),
    "24:00:00 in seconds": ticks(pa.time32("s"), 86_400),
    "a time with nanoseconds": ticks(pa.time64("ns"), 1),
    "infinity": ticks(pa.timestamp("ns"), HIGH),
    "-infinity": ticks(pa.timestamp("ns"), -HIGH),
    "infinity with a zone": ticks(pa.timestamp("ns", "UTC"), HIGH),
    "what pandas takes for NaT": ticks(pa.timestamp("ns"), -HIGH - 1),
    "a duration that pandas takes for NaT": ticks(pa.duration("ns"), -HIGH - 1),
    "a duration of more days than Python has": ticks(pa.duration("s"), HIGH),
    "in a list": pa.ListArray.from_arrays([0, 1], ticks(pa.time64("us"), DAY)),
    "in a struct": pa.StructArray.from_arrays([ticks(pa.timestamp("ns"), HIGH)], ["a"]),
    "in a map": pa.MapArray.from_arrays([0, 1], pa.array(["k"]), ticks(pa.time64("ns"), 5)),
    "in a dictionary": pa.DictionaryArray.from_arrays([0], ticks(pa.time64("us"), DAY)),
}


@pytest.mark.parametrize("storage", ["inline", "vortex", "parquet"])
@pytest.mark.parametrize("array", NOT_IN_PYTHON.values(), ids=NOT_IN_PYTHON.keys())
def test_rows_as_python_values_are_refused(lake, array, storage):
    data = pa.table({"id": [1, 2], "x": pa.chunked_array([array, pa.nulls(1, array.type)])})
    table = lake.create_table("t", data.schema, primary_key="id", config=CONFIGS[storage])
    table.insert(data)
    if storage != "inline":
        lake.pipeline("threads").dump("t")
    ways = [
        lambda: table.get(1),
        lambda: table.scan().to_pylist(),
        lambda: list(table.scan("id = 1")),
        lambda: table.changes(0).to_pylist(),
    ]
    for way in ways:
        with pytest.raises(ConstraintError, match=r"Column 'x' .*holds a time that Python cannot represent") as caught:
            way()
        assert caught.value.column == "x"
    assert table.get(2) == {"id": 2, "x": None}
    assert table.scan(order_by="id").to_arrow()["x"].combine_chunks().equals(data["x"].combine_chunks())


@pytest.mark.parametrize(
    "text", ["time '24:00:00'", "'00:00:00.000000001'::time_ns", "'infinity'::timestamp_ns", "[time '24:00:00']"]
)
def test_results_of_queries_are_refused(lake, text):
    ways = ["fetchall", "fetchone", "scalar", "to_pylist", "to_pandas"]
    for way in ways:
        with pytest.raises(ConstraintError, match=r"Column 'x' .*Cast it to VARCHAR in SQL, or take the rows as Arrow"):
            getattr(lake.sql(f"select {text} as x"), way)()
    with pytest.raises(ConstraintError, match=r"Column 'x'"):
        list(lake.sql(f"select {text} as x").tuples())


@pytest.mark.parametrize(
    "array",
    [
        *[ticks(pa.timestamp(unit), sign * HIGH) for unit in ("s", "ms", "us", "ns") for sign in (1, -1)],
        ticks(pa.timestamp("us"), -HIGH - 1),
        ticks(pa.time64("us"), DAY),
        ticks(pa.time64("ns"), 1),
        ticks(pa.date32(), 2**31 - 1),
        pa.ListArray.from_arrays([0, 1], ticks(pa.timestamp("s"), HIGH)),
    ],
    ids=lambda array: str(array.type),
)
def test_pandas(lake, array):
    table = lake.create_table("t", pa.table({"id": [1], "x": array}))
    with pytest.raises(ConstraintError, match=r"Column 'x' .*that pandas cannot represent"):
        table.scan().to_pandas()


@pytest.mark.parametrize(
    "array",
    [
        ticks(pa.time64("us"), DAY),
        ticks(pa.timestamp("s"), HIGH),
        ticks(pa.timestamp("s"), -HIGH),
        ticks(pa.timestamp("s", "UTC"), 2**62),
        ticks(pa.duration("s"), 2**62),
        pa.ListArray.from_arrays([0, 1], ticks(pa.duration("s"), HIGH)),
    ],
    ids=lambda array: str(array.type),
)
def test_polars(lake, array):
    table = lake.create_table("t", pa.table({"id": [1], "x": array}))
    with pytest.raises(ConstraintError, match=r"Column 'x' .*that polars cannot represent"):
        table.scan().to_polars()


def test_the_last_values_that_are_there(lake):
    data = pa.table(
        {
            "time": ticks(pa.time64("ns"), DAY * 1000 - 1000),
            "second": ticks(pa.time32("s"), 86_399),
            "moment": ticks(pa.timestamp("ns"), HIGH - 1),
            "span": ticks(pa.duration("ns"), -HIGH),
            "seconds": ticks(pa.duration("s"), -(HIGH // 1000)),
        }
    )
    table = lake.create_table("t", data)
    assert table.scan(columns=["time", "second", "moment", "span"]).to_pylist() == data.drop("seconds").to_pylist()
    assert table.scan().to_polars()["seconds"].cast(int).to_list() == [-(HIGH // 1000) * 1000]
    assert table.scan().to_pandas()["moment"][0].value == HIGH - 1


def test_lists_of_uuids_in_pandas(lake):
    one, other = uuid.uuid4(), uuid.uuid4()
    table = lake.create_table("t", {"id": "int64", "x": "list<uuid>", "y": "struct<a: uuid>"})
    table.insert([{"id": 1, "x": [one, other], "y": {"a": one}}, {"id": 2, "x": None}])
    frame = table.scan(order_by="id").to_pandas()
    assert list(frame.columns) == ["id", "x", "y"]
    assert list(frame["x"][0]) == [one, other]
    assert frame["x"][1] is None
    assert frame["y"][0] == {"a": one}
    assert list(lake.sql("select [uuid()] as x, 1 as n").to_pandas()["n"]) == [1]


def test_sql_writes_and_shows_what_python_does_not_have(lake):
    lake.sql(
        "create table t (id int primary key, x time default '24:00:00', y timestamp default 'infinity', "
        "z time_ns default '00:00:00.000000001', n timestamp_ns default 'infinity')"
    )
    text = "select x::varchar, y::varchar, z::varchar, n::varchar from t where id = $id"
    lake.sql("insert into t(id) values (1)")
    assert lake.sql(text, {"id": 1}).fetchall() == [("24:00:00", "infinity", "00:00:00.000000001", "infinity")]
    shown = repr(lake.sql("select * from t"))
    assert all(word in shown for word in ("24:00:00", "infinity", "00:00:00.000000001"))
    assert "2262" not in shown
    lake.sql("insert into t values (2, null, null, null, null)")
    lake.sql(
        "update t set x = '24:00:00', y = '-infinity', z = '23:00:00.000000005', n = timestamp_ns '-infinity' "
        "where id = 2"
    )
    assert lake.sql(text, {"id": 2}).fetchall() == [("24:00:00", "-infinity", "23:00:00.000000005", "-infinity")]
    lake.sql("update t set x = case when id = 1 then time '24:00:00' end, y = 'infinity' where id = 1")
    assert lake.sql(text, {"id": 1}).fetchall()[0][:2] == ("24:00:00", "infinity")


def test_parameters_that_python_does_not_have(lake):
    table = lake.create_table("t", {"id": "int64", "x": "time64[us]", "y": "timestamp[us]", "d": "date32"})
    end = [ticks(pa.time64("us"), DAY), ticks(pa.timestamp("us"), HIGH), ticks(pa.date32(), 2**31 - 1)]
    table.insert(pa.table([pa.array([1]), *end], ["id", "x", "y", "d"]))
    table.insert(pa.table([pa.array([2]), *[ticks(array.type, 0) for array in end]], ["id", "x", "y", "d"]))
    for name, array in zip("xyd", end, strict=True):
        assert table.scan(f"{name} = $a", params={"a": array[0]}, columns=["id"]).to_pylist() == [{"id": 1}]
        assert table.scan(f"{name} in $a", params={"a": array}, columns=["id"]).to_pylist() == [{"id": 1}]
        assert lake.sql(f"select id from t where {name} = ?", [array[0]]).fetchall() == [(1,)]
    for other in (ticks(pa.time32("s"), 86_400), ticks(pa.time32("ms"), 86_400_000)):
        assert table.scan("x = $a", params={"a": other[0]}, columns=["id"]).to_pylist() == [{"id": 1}]
