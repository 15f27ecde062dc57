"""pandas, polars, DuckDB and pyarrow, in and out, with the types that are easily lost on the way."""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import indexlake as il

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("zoned", pa.timestamp("us", "Europe/Paris")),
        pa.field("nano", pa.timestamp("ns")),
        pa.field("price", pa.decimal128(20, 4)),
        pa.field("kind", pa.dictionary(pa.int32(), pa.string())),
        pa.field("long", pa.large_string()),
        pa.field("view", pa.string_view()),
        pa.field("big", pa.uint64()),
        pa.field("bits", pa.binary()),
        pa.field("day", pa.date32()),
        pa.field("clock", pa.time64("us")),
        pa.field("list", pa.list_(pa.int64())),
        pa.field("struct", pa.struct({"a": pa.int64(), "b": pa.list_(pa.string())})),
    ]
)
VALUES: dict[str, Any] = {
    "id": 1, "zoned": datetime(2024, 3, 31, 1, 30, tzinfo=UTC), "nano": datetime(2024, 1, 1, 0, 0, 0, 123456),
    "price": Decimal("1234567890123456.7891"), "kind": "a", "long": "é" * 3, "view": "a view of more than twelve bytes",
    "big": 2**64 - 1, "bits": b"\x00\xff", "day": date(1970, 1, 1), "clock": time(23, 59, 59, 999999),
    "list": [1, None, 3], "struct": {"a": 1, "b": ["x", None]},
}  # fmt: skip
ROWS = pa.Table.from_pylist([VALUES, {"id": 2}, VALUES | {"id": 3, "kind": "b", "list": [], "big": 0}], SCHEMA)


@pytest.fixture(params=["hot", "block"])
def t(request: pytest.FixtureRequest, lake: il.Lake) -> il.Table:
    """The rows in the catalog, or in a block."""
    table = lake.create_table("types", ROWS, primary_key="id")
    if request.param == "block":
        lake.pipeline().dump("types")
    return table


def chosen(*names: str) -> pa.Table:
    return ROWS.select(names)


# ---------------------------------------------------------------- out


def test_pyarrow_takes_a_table_and_a_scan_with_every_type(t: il.Table):
    assert pa.schema(t) == SCHEMA
    assert pa.table(t).equals(ROWS)
    assert pa.RecordBatchReader.from_stream(t.scan(order_by="id")).read_all().equals(ROWS)
    assert pa.table(t.at(1)).num_rows == 3
    wider = pa.schema([pa.field("id", pa.int64()), pa.field("day", pa.date32())])
    assert pa.table(t.scan(columns=["id", "day"]), wider).num_rows == 3


def test_polars_takes_a_table_and_a_scan(t: il.Table):
    for frame in (pl.DataFrame(t), pl.DataFrame(t.scan()), t.scan().to_polars()):
        found = frame.sort("id")
        assert found.schema["zoned"] == pl.Datetime("us", "Europe/Paris")
        assert found.schema["price"] == pl.Decimal(20, 4)
        assert found.schema["big"] == pl.UInt64
        assert found["big"].to_list() == [2**64 - 1, None, 0]
        assert found["price"].to_list()[0] == VALUES["price"]
        assert found["struct"].to_list()[0] == VALUES["struct"]
        assert found["kind"].to_list() == ["a", None, "b"]


def test_pandas_takes_a_table_and_a_scan(t: il.Table):
    for frame in (pd.DataFrame.from_arrow(t), pd.DataFrame.from_arrow(t.scan()), t.scan().to_pandas()):
        found = frame.sort_values("id").reset_index(drop=True)
        assert str(found["zoned"].dtype) == "datetime64[us, Europe/Paris]"
        assert found["zoned"][0] == VALUES["zoned"]
        assert found["price"][0] == VALUES["price"]
        assert str(found["kind"].dtype) == "category"
        assert found["long"][0] == VALUES["long"]


def test_duckdb_finds_a_table_and_a_scan_by_the_name_of_the_variable(t: il.Table):
    scan = t.scan(columns=["id", "big"])  # noqa: F841 (found by its name)
    assert duckdb.sql("select max(big), min(price) from t").fetchall() == [(2**64 - 1, VALUES["price"])]
    assert duckdb.sql("select id from scan where big > 5").fetchall() == [(1,)]
    relation = t.scan().to_duckdb()
    assert (
        dict(zip(relation.columns, map(str, relation.types), strict=True))["struct"] == "STRUCT(a BIGINT, b VARCHAR[])"
    )


# ---------------------------------------------------------------- in


def sources() -> dict[str, Any]:
    return {
        "pyarrow table": lambda: ROWS,
        "batches": lambda: iter(ROWS.to_batches(1)),
        "tables": lambda: iter([ROWS.slice(0, 1), ROWS.slice(1)]),
        "reader": lambda: ROWS.to_reader(),
        "dataset": lambda: ds.dataset(ROWS),
        "scanner": lambda: ds.dataset(ROWS).scanner(batch_size=1),
        "polars": lambda: pl.DataFrame(ROWS),
        "dicts": lambda: ROWS.to_pylist(),
        "generator of dicts": lambda: iter(ROWS.to_pylist()),
        "struct array": lambda: pa.array(ROWS.to_pylist(), pa.struct(SCHEMA)),
        "only a stream": lambda: OnlyAStream(ROWS),
    }


class OnlyAStream:
    """What the interface asks for, and nothing else."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("name", sources())
def test_rows_of_each_kind_come_out_as_they_went_in(lake: il.Lake, name: str):
    t = lake.create_table("types", SCHEMA, primary_key="id")
    assert t.insert(sources()[name]()).inserted == 3
    assert t.scan(order_by="id").to_arrow().equals(ROWS)


def test_a_pandas_frame_comes_back_as_it_was(lake: il.Lake):
    frame = chosen("id", "zoned", "nano", "price", "kind", "long", "bits", "day", "clock").to_pandas()
    t = lake.create_table("types", SCHEMA, primary_key="id")
    t.insert(frame)
    assert t.scan(columns=list(frame.columns), order_by="id").to_arrow().equals(chosen(*frame.columns))


def test_a_duckdb_relation_comes_back_as_it_was(lake: il.Lake):
    names = ["id", "nano", "price", "long", "view", "big", "bits", "day", "clock", "list", "struct"]
    rows = chosen(*names)
    t = lake.create_table("types", SCHEMA, primary_key="id")
    t.insert(duckdb.sql("from rows"))
    assert t.scan(columns=names, order_by="id").to_arrow().equals(rows)


def test_a_polars_frame_makes_a_table_and_comes_back(lake: il.Lake):
    frame = pl.DataFrame(ROWS).with_columns(pl.col("kind").cast(pl.Enum(["a", "b"])).alias("enum"))
    lake.create_table("polars", frame, primary_key="id")
    assert lake.table("polars").scan(order_by="id").to_polars().equals(frame)
    lake.pipeline().dump("polars")
    assert pl.DataFrame(lake.table("polars")).sort("id").equals(frame)


def test_a_table_and_a_scan_are_rows_for_another_table(lake: il.Lake):
    source = lake.create_table("source", ROWS, primary_key="id")
    copy = lake.create_table("copy", source, primary_key="id")
    assert copy.scan(order_by="id").to_arrow().equals(ROWS)
    assert copy.insert(source.scan(columns=["day"]).to_arrow().append_column("id", [[7, 8, 9]])).rows == 3
    part = lake.create_table("part", source.scan(columns=["id", "price"], limit=2))
    assert part.schema.names == ["id", "price"]
    with pytest.raises(il.SchemaError, match="nope"):
        copy.insert(source.scan(columns=["nope"]))
    with pytest.raises(il.DuplicateKeyError):
        source.insert(source)


def test_a_pandas_index_is_columns_when_it_has_names(lake: il.Lake):
    frame = pd.DataFrame({"a": [1, 2, 3]}, index=[7, 8, 9])
    assert lake.create_table("rest", frame[frame.a > 1]).scan().to_pylist() == [{"a": 2}, {"a": 3}]
    frame.index.name = "key"
    assert lake.create_table("named", frame, primary_key="key").get(8) == {"a": 2, "key": 8}


def test_objects_that_hold_no_rows_are_refused_and_say_what_to_do(lake: il.Lake):
    t = lake.create_table("t", pa.schema({"a": pa.int64()}))
    bad = {
        "collect": pl.DataFrame({"a": [1]}).lazy(),
        "to_frame": pl.Series([1]),
        "ChunkedArray": pa.chunked_array([[1]]),
        "Int64Array": pa.array([1]),
        "not int64": __import__("numpy").array([1]),
        "no type in common": pd.DataFrame({"a": [1, "x", object()]}),
        "rename it": pd.DataFrame({1: [1]}),
        "Duplicate": pd.DataFrame([[1, 2]], columns=["a", "a"]),
        "Could not convert": duckdb.sql("select cast('x' || range as int) a from range(3)"),
        "reset_index": pd.DataFrame({"a": [1]}, index=pd.MultiIndex.from_tuples([(1, 2)], names=["x", None])),
    }
    for text, source in bad.items():
        with pytest.raises(il.SchemaError, match=text):
            t.insert(source)
    assert len(t) == 0
    assert lake.snapshot_id == 1


def test_a_dict_is_one_row_and_columns_are_a_table(lake: il.Lake):
    t = lake.create_table("t", pa.schema({"a": pa.int64(), "l": pa.list_(pa.int64())}))
    t.insert({"a": 1, "l": [1, 2]})
    with pytest.raises(il.ConstraintError, match="'a'"):
        t.insert({"a": [1, 2]})
    t.insert(pa.table({"a": [1, 2]}))
    assert len(t) == 3


@pytest.mark.parametrize(
    ("library", "call"), [("pandas", "to_pandas"), ("polars", "to_polars"), ("duckdb", "to_duckdb")]
)
def test_a_library_that_is_not_installed_is_named(lake: il.Lake, monkeypatch, library: str, call: str):
    t = lake.create_table("t", pa.table({"a": [1]}))
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(il.MissingExtraError, match="pip install"):
        getattr(t.scan(), call)()
    assert t.insert(pa.table({"a": [2]})).rows == 1  # what it would be asked about is not needed for this
