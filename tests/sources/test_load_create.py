"""Tables made from files and streams: the schema is found by looking at all files, and rows stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import indexlake as il
from tests.sources.test_load_files import written


def test_the_types_of_csv_columns_are_found_in_the_first_block(lake: il.Lake, write):
    header = "whole,number,flag,day,at,zoned,time,code,long,nothing\n"
    row = "1,1.5,true,2024-01-02,2024-01-02 03:04:05,2024-01-02 03:04:05Z,12:00:00,007,12345678901234567890,\n"
    t = lake.create_table("found", write("a.csv", header + row))
    assert t.schema == pa.schema(
        {
            "whole": pa.int64(), "number": pa.float64(), "flag": pa.bool_(), "day": pa.date32(),
            "at": pa.timestamp("us"), "zoned": pa.timestamp("us", "UTC"), "time": pa.time64("us"),
            "code": pa.string(), "long": pa.string(), "nothing": pa.string(),
        }
    )  # fmt: skip
    assert t.scan().to_pylist()[0]["code"] == "007"
    assert t.scan().to_pylist()[0]["long"] == "12345678901234567890"


def test_the_types_of_json_values_are_found_in_the_first_block(lake: il.Lake, write):
    first = '{"n": 1, "s": "007", "at": "2024-01-01T00:00:00", "l": [1, 2], "o": {"x": 1.5}, "e": null, "el": []}'
    t = lake.create_table("found", write("a.jsonl", first + '\n{"n": 2.5}\n'))
    assert t.schema == pa.schema(
        {
            "n": pa.float64(), "s": pa.string(), "at": pa.timestamp("us"), "l": pa.list_(pa.int64()),
            "o": pa.struct({"x": pa.float64()}), "e": pa.string(), "el": pa.list_(pa.string()),
        }
    )  # fmt: skip
    with pytest.raises(il.SchemaError, match=r"line 2.*18446744073709551615"):
        lake.create_table("lossy", write("b.jsonl", '{"n": 0.5}\n{"n": 18446744073709551615}\n'))


def test_a_value_beyond_the_first_block_that_does_not_fit_leaves_no_table(lake: il.Lake, write, small_blocks: int):
    path = write("late.csv", "n\n" + "12345678\n" * 20_000 + "x\n")
    with pytest.raises(il.ConstraintError, match=r"late\.csv: row 20002, column 'n'"):
        lake.create_table("late", path)
    assert lake.tables() == []


def test_parquet_and_arrow_files_bring_their_types(lake: il.Lake, tmp_path: Path):
    schema = pa.schema(
        [
            pa.field("id", pa.uint64(), False), pa.field("at", pa.timestamp("ns", "Europe/Paris")),
            pa.field("kind", pa.dictionary(pa.int8(), pa.string())), pa.field("d", pa.decimal128(20, 4)),
        ]
    )  # fmt: skip
    data = pa.table([[1], [0], ["a"], [1]], schema=schema)
    for suffix in ("arrow", "arrows", "feather", "parquet"):
        t = lake.create_table(f"from_{suffix}", written(tmp_path, data, suffix), primary_key="id")
        found = t.scan().to_arrow()
        assert found.column("kind").to_pylist() == ["a"]
        if suffix != "parquet":  # which widens dictionary indices
            assert t.schema == schema


def test_all_files_must_agree(lake: il.Lake, tmp_path: Path):
    def of(name: str, **columns: list[object]) -> Path:
        return written(tmp_path, pa.table(columns), "csv", name)

    first = of("first", a=[1], b=["x"])
    with pytest.raises(il.SchemaError, match=r"column 'a' is int64 in .*first.* and double in .*other"):
        lake.create_table("t", [first, of("other", a=[1.5], b=["x"])])
    with pytest.raises(il.SchemaError, match=r"other.*has a column 'c', .*first.*does not"):
        lake.create_table("t", [first, of("other", a=[1], b=["x"], c=[1])])
    with pytest.raises(il.SchemaError, match=r"first.*has a column 'b', .*other.*does not"):
        lake.create_table("t", [first, of("other", a=[1])])
    assert lake.tables() == []
    t = lake.create_table("t", [first, of("other", B=["y"], A=[2]), of("nulls", a=[None], b=[None])])
    assert t.scan().to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}, {"a": None, "b": None}]


@pytest.mark.parametrize("source", ["nothing.csv", ["nothing.parquet"], "nothing/*"])
def test_files_that_are_not_there_make_no_table(lake: il.Lake, source):
    with pytest.raises(il.NotFoundError):
        lake.create_table("t", source)
    assert lake.tables() == []
    assert lake.snapshot_id == 0


def test_refused_data_leaves_no_table_and_exist_ok_leaves_the_rows_alone(lake: il.Lake, write):
    with pytest.raises(il.DuplicateKeyError):
        lake.create_table("t", write("a.csv", "id\n1\n1\n"), primary_key="id")
    with pytest.raises(il.SchemaError, match="nope"):
        lake.create_table("t", write("a.csv", "id\n1\n1\n"), primary_key="nope")
    assert lake.tables() == []
    path = write("a.csv", "id\n1\n2\n")
    lake.create_table("t", path, primary_key="id")
    assert len(lake.create_table("t", path, primary_key="id", exist_ok=True)) == 2


def test_a_table_is_made_from_a_stream_in_bounded_memory(lake: il.Lake):
    rows, count, base, peak = 10_000, 40, pa.total_allocated_bytes(), 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal peak
        for n in range(count):
            yield pa.record_batch({"id": pa.array(range(n * rows, n * rows + rows))})
            peak = max(peak, pa.total_allocated_bytes() - base)

    schema = pa.schema({"id": pa.int64()})
    config = il.TableConfig(block_row_count=50_000)
    for name, source in (("reader", pa.RecordBatchReader.from_batches(schema, batches())), ("generator", batches())):
        t = lake.create_table(name, source, config=config)
        assert len(t) == rows * count
        assert peak < rows * count * 8 / 2, f"{peak:,} bytes were held for {name}"


def test_a_generator_that_fails_leaves_no_table(lake: il.Lake):
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": pa.array(range(50_000))})
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        lake.create_table("t", batches())
    assert lake.tables() == []


def test_rows_without_any_schema_make_no_table(lake: il.Lake):
    for nothing in ([], iter(())):
        with pytest.raises(il.SchemaError, match="no rows"):
            lake.create_table("t", nothing)
    empty = pa.table({"id": pa.array([], pa.int64())})
    assert len(lake.create_table("t", empty)) == 0


def test_json_moments_dates_and_times_are_found(lake: il.Lake, write):
    first = '{"z": "2024-01-01T10:00:00Z", "o": "2024-01-01 10:00+02:00", "d": "2024-01-01", "t": "10:00:00.5", '
    first += '"m": "2024-01-01T10:00:00Z", "l": ["2024-01-01T10:00:00Z"], "s": {"a": "2024-01-01"}, "x": "25:00"}'
    second = '{"z": "2024-06-01T10:00:00-05", "m": "2024-01-01T10:00:00", "t": null, "l": null}'
    t = lake.create_table("moments", write("a.jsonl", f"{first}\n{second}\n"))
    utc = pa.timestamp("us", "UTC")
    assert {f.name: f.type for f in t.schema} == {
        "z": utc, "o": utc, "d": pa.date32(), "t": pa.time64("us"), "m": pa.string(), "l": pa.list_(utc),
        "s": pa.struct({"a": pa.date32()}), "x": pa.string(),
    }  # fmt: skip
    rows = t.scan(columns=["z", "o", "m"]).to_pylist()
    assert [str(row["z"]) for row in rows] == ["2024-01-01 10:00:00+00:00", "2024-06-01 15:00:00+00:00"]
    assert str(rows[0]["o"]) == "2024-01-01 08:00:00+00:00"
    assert [row["m"] for row in rows] == ["2024-01-01T10:00:00Z", "2024-01-01T10:00:00"]
