"""What every Arrow type becomes in Spark and back: the same value to the bit, or an error that names the column."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

import indexlake as il
from indexlake.spark import lists
from indexlake.spark.lists import as_lists, in_lists, list_schema
from indexlake.spark.native import is_exact
from indexlake.spark.types import arrow_schema, from_spark, spark_schema, to_spark
from tests.types.arrow_exact import assert_same
from tests.types.arrow_strategies import PLAIN, typed_arrays, types

DOCUMENT = Path(__file__).parents[2] / "docs" / "spark.md"

INFINITE_DAY = pa.array([2**31 - 1], pa.int32()).view(pa.date32())

DOCUMENTED: list[tuple[list[pa.DataType], str]] = [
    ([pa.bool_()], ""),
    ([pa.int8()], ""),
    ([pa.int16()], ""),
    ([pa.int32()], ""),
    ([pa.int64()], ""),
    ([pa.uint8()], ""),
    ([pa.uint16()], ""),
    ([pa.uint32()], ""),
    ([pa.uint64()], ""),
    ([pa.float16(), pa.float32()], ""),
    ([pa.float64()], ""),
    ([pa.decimal32(9, 2), pa.decimal64(9, 2), pa.decimal128(9, 2), pa.decimal256(9, 2)], "any digits up to 38"),
    ([pa.decimal128(5, -2)], "zeros before the point become digits"),
    ([pa.decimal256(39, 5)], "more than 38 digits: refused"),
    ([pa.date32(), pa.date64()], "`date64` within a day, infinity: an error"),
    ([pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")], "since midnight, in the column's unit"),
    (
        [pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("ns")],
        "`ns` between two microseconds, `s` and `ms` out of range, infinity: an error",
    ),
    (
        [pa.timestamp("us", "UTC"), pa.timestamp("ns", "Europe/Berlin")],
        "the same point in time; the zone's name is not kept",
    ),
    ([pa.duration("s"), pa.duration("ms"), pa.duration("us"), pa.duration("ns")], "as for timestamps"),
    ([pa.string(), pa.large_string(), pa.string_view()], ""),
    ([pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(16)], ""),
    ([pa.uuid()], "in lower case with dashes; on the way back checked, in any case"),
    ([pa.dictionary(pa.int32(), pa.string())], "as its values"),
    ([pa.list_(pa.int32()), pa.large_list(pa.int32()), pa.list_(pa.int32(), 3)], ""),
    ([pa.struct([("a", pa.int32()), ("b", pa.string())])], ""),
    ([pa.map_(pa.string(), pa.uint64())], ""),
]


def documented_table() -> str:
    """The table in docs/spark.md."""
    lines = ["| Arrow | Spark | |", "|---|---|---|"]
    for arrows, note in DOCUMENTED:
        try:
            names = {spark_schema([pa.field("c", arrow)]).fields[0].dataType.simpleString() for arrow in arrows}
        except il.SchemaError:
            names = {"–"}
        assert len(names) == 1, names
        shown = ", ".join(f"`{arrow}`" for arrow in arrows)
        lines.append(f"| {shown} | `{names.pop()}` | {note} |".replace("| `–` |", "| – |"))
    return "\n".join(lines)


def test_the_table_in_the_documentation_is_what_the_code_does() -> None:
    assert documented_table() in DOCUMENT.read_text(encoding="utf-8"), documented_table()


def test_every_plain_type_is_in_the_documentation() -> None:
    described = {(a.id, getattr(a, "unit", None)) for arrows, _ in DOCUMENTED for a in arrows}
    assert {(type.id, getattr(type, "unit", None)) for type in PLAIN} <= described


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(typed_arrays(types()))
def test_values_come_back_to_the_bit_or_are_refused(array: Any) -> None:
    try:
        schema = arrow_schema([pa.field("c", array.type)])
        rows = to_spark(pa.RecordBatch.from_arrays([array], ["c"]), schema)
    except (il.SchemaError, il.ConstraintError):
        return
    rows.validate(full=True)
    assert_same(from_spark(rows.column(0), array.type, "c"), array)


@pytest.mark.parametrize(
    ("array", "problem"),
    [
        (pa.array([1_001], pa.timestamp("ns")), "the value 1001 (timestamp[ns]) is not whole microseconds"),
        (pa.array([1], pa.duration("ns")), "whole microseconds"),
        (pa.array([2**62], pa.timestamp("s", "UTC")), "whole microseconds"),
        (pa.array([-(2**62)], pa.duration("ms")), "whole microseconds"),
        (pa.array([86_400_001], pa.int64()).view(pa.date64()), "whole day"),
        (pa.array([[None, 7]], pa.list_(pa.timestamp("ns"))), "the value 7"),
        (INFINITE_DAY, "the value infinity (date32[day]) would be an ordinary moment in Spark."),
        (pa.array([1 - 2**63, 0], pa.timestamp("us")), "the value -infinity (timestamp[us])"),
        (pa.array([2**63 - 1], pa.timestamp("us", "Europe/Berlin")), "the value infinity (timestamp[us, tz=UTC])"),
        (pa.array([2**63 - 1], pa.timestamp("ns")), "whole microseconds"),
        (pa.array([(2**31 - 1) * 86_400_000], pa.int64()).view(pa.date64()), "the value infinity"),
        (pa.ListArray.from_arrays([0, 1], INFINITE_DAY), "the value infinity"),
    ],
)
def test_a_value_that_spark_cannot_hold_is_an_error_that_names_the_column(array: Any, problem: str) -> None:
    with pytest.raises(il.ConstraintError, match="Column 'when': ") as raised:
        to_spark(pa.RecordBatch.from_arrays([array], ["when"]), arrow_schema([pa.field("when", array.type)]))
    assert problem in str(raised.value)
    assert "columns=[…]" in str(raised.value)


def test_what_lies_below_a_null_is_not_looked_at() -> None:
    inner = pa.array([1, 1_000], pa.timestamp("ns"))
    type = pa.struct([("at", pa.timestamp("ns"))])
    array = pa.Array.from_buffers(type, 2, [pa.py_buffer(b"\x02")], children=[inner])
    rows = to_spark(pa.RecordBatch.from_arrays([array], ["c"]), arrow_schema([pa.field("c", type)]))
    assert rows.column(0).to_pylist() == [None, {"at": dt.datetime(1970, 1, 1, 0, 0, 0, 1)}]


@pytest.mark.parametrize(
    ("array", "type", "problem"),
    [
        (pa.array([1], pa.timestamp("us")), pa.timestamp("s"), "is not a number of s"),
        (pa.array([2**60], pa.timestamp("us")), pa.timestamp("ns"), "is not a number of ns"),
        (pa.array([-1], pa.int64()), pa.uint8(), "not in range"),
        (pa.array([0.1], pa.float32()), pa.float16(), "more digits than float16 has"),
        (pa.array([[1, 2]], pa.list_(pa.int32())), pa.list_(pa.int32(), 3), "a list has 2 elements"),
        (pa.array([[None]]), pa.list_(pa.field("item", pa.int32(), False)), "is null"),
        (pa.array([b"abc"]), pa.binary(2), "width"),
        (INFINITE_DAY, pa.date32(), "the value infinity"),
        (pa.array([2**63 - 1], pa.timestamp("us", "UTC")), pa.timestamp("us", "Asia/Tokyo"), "the value infinity"),
    ],
)
def test_a_value_of_spark_that_the_table_cannot_hold_is_an_error(array: Any, type: Any, problem: str) -> None:
    with pytest.raises(il.ConstraintError, match="Column 'c'") as raised:
        from_spark(array, type, "c")
    assert problem in str(raised.value)


# ---------------------------------------------------------------- through Spark itself


MOMENT = dt.datetime(2024, 3, 31, 1, 30, 0, 123000)
EXTREMES: dict[Callable[[Any], bool], list[Any]] = {
    pa.types.is_boolean: [True, False, None],
    pa.types.is_float16: [1.5, float("nan"), None],
    pa.types.is_floating: [0.1, float("nan"), -0.0, float("inf"), None],
    pa.types.is_date: [dt.date(1, 1, 1), dt.date(1500, 2, 28), dt.date(9999, 12, 31), None],
    pa.types.is_time: [dt.time(23, 59, 59), dt.time(0), None],
    pa.types.is_duration: [dt.timedelta(days=-3), dt.timedelta(seconds=5), None],
    pa.types.is_string: ["", "a\0b", "\U0001f600", None],
    pa.types.is_large_string: ["x", None, "é"],
    pa.types.is_string_view: ["a long text that is not kept in the view itself", None, ""],
}


def values_of(type: pa.DataType) -> pa.Array:
    t = pa.types
    if t.is_integer(type):
        low = 0 if t.is_unsigned_integer(type) else -(2 ** (type.bit_width - 1))
        return pa.array([low, low + 2**type.bit_width - 1, 0, None], type)
    if t.is_decimal(type):
        number = 10**type.precision - 1
        width = type.bit_width // 8
        data = b"".join(n.to_bytes(width, "little", signed=True) for n in (number, -number, 0))
        return pa.Array.from_buffers(type, 3, [None, pa.py_buffer(data)])
    if t.is_timestamp(type):
        zone = dt.UTC if type.tz else None
        moments = [MOMENT.replace(microsecond=0, tzinfo=zone), dt.datetime(1900, 1, 1, tzinfo=zone), None]
        if type.unit != "ns":
            moments.append(dt.datetime(1582, 10, 10, tzinfo=zone))
        return pa.array(moments, type)
    if t.is_fixed_size_binary(type):
        return pa.array([b"\xff" * type.byte_width, None], type)
    if type == pa.uuid():
        return pa.array([uuid.UUID(int=0), uuid.UUID(int=2**128 - 1), None], type)
    found = next((values for kind, values in EXTREMES.items() if kind(type)), [b"", b"\xff\x00", None])
    return pa.array(found, type)


NESTED = [
    pa.dictionary(pa.int8(), pa.string()),
    pa.list_(pa.uint64()),
    pa.large_list(pa.timestamp("ms")),
    pa.list_(pa.field("x", pa.float32(), False), 2),
    pa.struct([pa.field("a", pa.int16(), False), ("b c", pa.list_(pa.string_view())), ("", pa.uint8())]),
    pa.struct([("plain", pa.int64()), ("text", pa.string())]),
    pa.map_(pa.string(), pa.struct([("t", pa.time64("ns"))])),
    pa.map_(pa.int32(), pa.date32()),
    pa.list_(pa.map_(pa.string(), pa.list_(pa.decimal128(20, 3)))),
]
NESTED_VALUES: list[list[Any]] = [
    ["a", None, "b", "a"],
    [[1, None, 2**64 - 1], [], None],
    [[dt.datetime(2024, 1, 1), None], None, []],
    [[1.5, float("nan")], None],
    [{"a": 1, "b c": ["x", None], "": 255}, None, {"a": -1, "b c": None, "": None}],
    [{"plain": 1, "text": "x"}, None, {"plain": None, "text": None}],
    [[("k", {"t": dt.time(1, 2, 3)}), ("l", None)], None, []],
    [[(1, dt.date(2024, 1, 1)), (2, None)], None, []],
    [[[("k", [None])], None], None],
]

ROWS = 5
COLUMNS = {
    **{f"c{n}": values_of(t) for n, t in enumerate(PLAIN) if not (pa.types.is_decimal(t) and t.precision > 38)},
    **{f"n{n}": pa.array(v, t) for n, (t, v) in enumerate(zip(NESTED, NESTED_VALUES, strict=True))},
}
SCHEMA = pa.schema([("id", pa.int64()), *[(name, values.type) for name, values in COLUMNS.items()]])


def rows(start: int) -> pa.Table:
    columns = [pa.array(range(start, start + ROWS))]
    for values in COLUMNS.values():
        places = [(n + start) % len(values) for n in range(ROWS)]
        columns.append(pa.concat_arrays([values.slice(place, 1) for place in places]))
    return pa.Table.from_arrays(columns, schema=SCHEMA)


@pytest.fixture(scope="module")
def everything(module_lake: il.Lake, spark: Any) -> il.Table:
    """Every type in every tier: Parquet, Vortex, and hot; the files are written by tasks of Spark."""
    p = module_lake.pipeline(spark=spark)
    t = module_lake.create_table("every.type", SCHEMA, primary_key="id")
    t.insert(rows(0))
    p.dump("every.type")
    p.freeze("every.type")
    t.insert(rows(ROWS))
    p.dump("every.type")
    t.insert(rows(2 * ROWS))
    assert set(t.stats().by_format) == {"parquet", "vortex"}
    assert t.stats().hot_rows == ROWS
    return t


def assert_same_rows(frame: Any, expected: pa.Table) -> None:
    """What Spark gives, taken back to the table's types, is the table's to the bit."""
    found = frame.toArrow().sort_by("id").combine_chunks()
    for field in expected.schema:
        back = from_spark(found.column(field.name).combine_chunks(), field.type, field.name)
        assert_same(back, expected.column(field.name).combine_chunks())


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_every_type_of_every_tier_goes_through_spark_and_back(everything: il.Table, spark: Any, zone: str) -> None:
    expected = everything.scan(order_by="id").to_arrow()
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame = everything.to_spark(spark)
        assert frame.schema == spark_schema(SCHEMA)
        assert_same_rows(frame, expected)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_a_column_alone_is_what_it_is_among_others(everything: il.Table, spark: Any) -> None:
    """Numbers alone travel in lists."""
    schema = arrow_schema(list(SCHEMA))
    numbers = [name for name in SCHEMA.names if in_lists(pa.schema([schema.field(name)]))]
    kinds = {schema.field(name).type for name in numbers}
    assert {pa.bool_(), pa.int8(), pa.int64(), pa.float32(), pa.date32(), pa.timestamp("us", "UTC")} <= kinds
    together = everything.to_spark(spark, columns=numbers).toArrow()
    for name in {schema.field(name).type: name for name in numbers}.values():  # one of each type
        frame = everything.to_spark(spark, columns=[name])
        assert frame.schema == spark_schema([SCHEMA.field(name)])
        alone = frame.toArrow()
        assert alone.schema.field(0).equals(together.schema.field(name))
        assert sorted(map(repr, alone.column(0).to_pylist())) == sorted(map(repr, together.column(name).to_pylist()))


def test_lists_hold_the_values_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "LIST_ROWS", 3)
    for count in (0, 1, 3, 7):
        values = pa.array([None if n % 4 == 2 else n for n in range(count + 5)], pa.int32()).slice(5)
        batch = pa.RecordBatch.from_arrays([values], ["n"])
        schema = list_schema(batch.schema, filled=())
        found = as_lists(batch, schema)
        found.validate(full=True)
        assert found.schema == schema
        assert [v for row in found.column(0).to_pylist() for v in row] == values.to_pylist()
        assert all(len(row) <= 3 for row in found.column(0).to_pylist())
    assert not in_lists(pa.schema([("s", pa.string())]))
    assert not in_lists(pa.schema([("a", pa.int64()), ("b", pa.int64())]))


def plan_of(frame: Any) -> str:
    return str(frame._jdf.queryExecution().toString())


def test_the_types_that_spark_reads_from_parquet_by_itself_come_out_the_same(module_lake: il.Lake, spark: Any) -> None:
    t = module_lake.create_table("every.cold", SCHEMA, config=il.TableConfig(dump_format="parquet"))
    t.insert(pa.concat_tables([rows(n * ROWS) for n in range(3)]))
    module_lake.pipeline(runner="threads").dump("every.cold")
    native = [f.name for f in t.schema if is_exact(f.type) and not pa.types.is_floating(f.type)]  # those hold a NaN
    kinds = {str(t.schema.field(name).type) for name in native}
    assert {"int64", "uint64", "string", "string_view", "timestamp[us]", "decimal128(38, 10)", "date32[day]"} <= kinds
    assert not kinds & {"timestamp[ns]", "timestamp[ms]", "date64[ms]", "duration[us]"}
    assert sum(name.startswith("n") for name in native) >= 4
    frame = t.to_spark(spark, columns=native)
    assert "IndexLakeScan" not in plan_of(frame), "Spark reads them all"
    assert_same_rows(frame, t.scan(columns=native, order_by="id").to_arrow())
    assert "FileScan" not in plan_of(t.to_spark(spark)), "one column that is not exact is enough"


def test_a_filter_of_spark_on_parquet_keeps_what_its_own_comparison_keeps(module_lake: il.Lake, spark: Any) -> None:
    """NaN is greater than all in Spark, and is not in the statistics of a Parquet file."""
    schema = pa.schema([("id", pa.int64()), ("x", pa.float64())])
    t = module_lake.create_table("nan.s", schema, config=il.TableConfig(dump_format="parquet"))
    t.insert([{"id": n, "x": float("nan") if n == 3 else float(n)} for n in range(10)])
    module_lake.pipeline(runner="threads").dump("nan.s")
    t.insert([{"id": n, "x": -0.0 if n == 13 else float(n)} for n in range(10, 20)])
    module_lake.pipeline(runner="threads").dump("nan.s")
    frame = t.to_spark(spark)
    assert plan_of(frame).count("parquet") > 0, "the block without NaN is Spark's"
    assert sorted(r.id for r in frame.filter("x > 100").collect()) == [3]
    assert sorted(r.id for r in frame.filter("x = 0").collect()) == [0, 13]
    assert sorted(r.id for r in frame.filter("x <= -0.0d").collect()) == [0, 13]


def test_a_column_that_spark_has_no_type_for_is_refused_and_can_be_left_out(module_lake: il.Lake, spark: Any) -> None:
    t = module_lake.create_table("wide.d", pa.schema([("id", pa.int64()), ("much", pa.decimal256(39, 2))]))
    t.insert({"id": 1, "much": None})
    with pytest.raises(il.SchemaError, match=r"Column 'much' .* has 39 digits; Spark's decimals have at most 38"):
        t.to_spark(spark)
    assert t.to_spark(spark, columns=["id"]).collect()[0].id == 1


def test_a_value_between_two_microseconds_is_named_when_it_is_read(module_lake: il.Lake, spark: Any) -> None:
    t = module_lake.create_table("wide.ns", pa.schema([("id", pa.int64()), ("at", pa.timestamp("ns"))]))
    t.insert(pa.table({"id": [1], "at": pa.array([1_001], pa.timestamp("ns"))}))
    with pytest.raises(il.ConstraintError, match=r"Column 'at': the value 1001"):
        t.to_spark(spark)
    module_lake.pipeline(runner="threads").dump("wide.ns")
    with pytest.raises(Exception, match=r"ConstraintError: Column 'at': the value 1001"):
        t.to_spark(spark).collect()


def test_an_infinite_date_is_named_when_it_is_read(module_lake: il.Lake, spark: Any) -> None:
    """Also from a Parquet block, which Spark would read by itself."""
    config = il.TableConfig(dump_format="parquet")
    t = module_lake.create_table("infinite", pa.schema({"n": pa.int64(), "day": pa.date32()}), config=config)
    t.insert({"n": 1, "day": dt.date(2024, 1, 1)})
    module_lake.pipeline(runner="threads").dump("infinite")
    assert t.to_spark(spark).collect()[0].day == dt.date(2024, 1, 1)
    module_lake.sql("insert into infinite values (2, 'infinity')")
    module_lake.pipeline(runner="threads").dump("infinite")
    assert module_lake.sql("select n from infinite where day > date '2025-01-01'").fetchall() == [(2,)]
    with pytest.raises(il.JobError, match="Column 'day': the value infinity"):
        module_lake.sql("select max(day) as x from infinite", engine="spark").fetchall()
    assert [r.n for r in t.to_spark(spark, columns=["n"]).collect()] == [1, 2]
