"""The same value for the same column means the same by every way in: that value is stored, or an error says why not."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import indexlake as il
from indexlake.errors import ConstraintError, SchemaError

CLOCK = dt.datetime(2024, 1, 1, 12, 30)
ZONE = dt.timezone(dt.timedelta(hours=5, minutes=30))
MOMENT = CLOCK.replace(tzinfo=ZONE)
UTC = pa.timestamp("us", "UTC")


class Refused:
    def __repr__(self) -> str:
        return "refused"


REFUSED: Any = Refused()

CASES: list[tuple[pa.DataType, Any, Any]] = [
    (pa.int64(), 7, 7),
    (pa.int64(), 7.0, 7),
    (pa.int64(), 7.5, REFUSED),
    (pa.int64(), True, REFUSED),
    (pa.int64(), "7", REFUSED),
    (pa.int64(), 2**63, REFUSED),
    (pa.int64(), 2**64, REFUSED),
    (pa.int64(), CLOCK, REFUSED),
    (pa.uint64(), 2**63, 2**63),
    (pa.int8(), 300, REFUSED),
    (pa.float64(), 7, 7.0),
    (pa.float64(), 2**53 + 1, REFUSED),
    (pa.float64(), True, REFUSED),
    (pa.float64(), "7.5", REFUSED),
    (pa.float64(), Decimal("7.5"), REFUSED),
    (pa.float32(), 0.5, 0.5),
    (pa.float32(), 1e39, REFUSED),
    (pa.float16(), 1e10, REFUSED),
    (pa.decimal128(10, 2), 7, Decimal("7.00")),
    (pa.decimal128(10, 2), Decimal("7.5"), Decimal("7.50")),
    (pa.decimal128(10, 2), Decimal("7.555"), REFUSED),
    (pa.bool_(), True, True),
    (pa.bool_(), 1, REFUSED),
    (pa.string(), "7", "7"),
    (pa.string(), 7, REFUSED),
    (pa.string(), b"7", REFUSED),
    (pa.binary(), b"7", b"7"),
    (pa.date32(), dt.date(2024, 1, 1), dt.date(2024, 1, 1)),
    (pa.date32(), CLOCK, REFUSED),
    (pa.date32(), 19000, REFUSED),
    (pa.time64("us"), dt.time(1, 2), dt.time(1, 2)),
    (pa.time64("us"), dt.time(1, 2, tzinfo=ZONE), REFUSED),
    (pa.time64("us"), 5, REFUSED),
    (pa.duration("us"), dt.timedelta(seconds=5), dt.timedelta(seconds=5)),
    (pa.timestamp("us"), CLOCK, CLOCK),
    (pa.timestamp("us"), MOMENT, REFUSED),
    (pa.timestamp("us"), 1_700_000_000, REFUSED),
    (pa.timestamp("s"), CLOCK.replace(microsecond=1), REFUSED),
    (UTC, MOMENT, dt.datetime(2024, 1, 1, 7, tzinfo=dt.UTC)),
    (UTC, CLOCK, REFUSED),
    (UTC, 1_700_000_000, REFUSED),
    (pa.list_(pa.string()), ["a", None], ["a", None]),
    (pa.list_(pa.string()), "abc", REFUSED),
    (pa.list_(pa.string()), [1], REFUSED),
    (pa.list_(pa.string()), {"a": 1}, REFUSED),
    (pa.list_(pa.int64()), b"abc", REFUSED),
    (pa.list_(pa.int64()), ["7"], REFUSED),
    (pa.list_(pa.int64()), [True], REFUSED),
    (pa.list_(pa.int64()), {1, 2}, REFUSED),
    (pa.list_(pa.float32()), [1e39], REFUSED),
    (pa.list_(UTC), [CLOCK], REFUSED),
    (pa.list_(pa.timestamp("us")), [MOMENT], REFUSED),
    (pa.struct([("a", pa.int64())]), {"a": 1}, {"a": 1}),
    (pa.struct([("a", pa.int64())]), {"a": "1"}, REFUSED),
    (pa.struct([("a", pa.int64())]), {"a": 1, "b": 2}, REFUSED),
    (pa.struct([("a", pa.int64())]), "a", REFUSED),
    (pa.struct([("a", UTC)]), {"a": CLOCK}, REFUSED),
    (pa.map_(pa.string(), pa.int64()), {"a": 1}, [("a", 1)]),
    (pa.map_(pa.string(), pa.int64()), "a", REFUSED),
    (pa.dictionary(pa.int8(), pa.string()), "a", "a"),
    (pa.dictionary(pa.int8(), pa.string()), 1, REFUSED),
]


class NotSayable(Exception):
    """This way in has no form for the value."""


def _arrow(value: Any, id: int) -> pa.Table:
    try:
        table = pa.table({"id": [id], "v": pa.array([value])})
    except (pa.ArrowException, OverflowError, TypeError) as error:
        raise NotSayable from error
    if table.column("v").to_pylist() != [value]:
        raise NotSayable  # pyarrow itself has made another value of it
    return table


def _polars(value: Any, id: int) -> pl.DataFrame:
    try:
        frame = pl.DataFrame({"id": [id], "v": [value]})
    except Exception as error:
        raise NotSayable from error
    if frame.schema["v"] == pl.Object or frame["v"].to_list() != [value]:
        raise NotSayable
    return frame


def _json(value: Any, id: int, folder: Path) -> Path:
    if isinstance(value, dt.datetime | dt.date | dt.time):
        value = value.isoformat()
    path = folder / "rows.jsonl"
    try:
        path.write_text(json.dumps({"id": id, "v": value}) + "\n")
    except TypeError as error:
        raise NotSayable from error
    return path


def _csv(value: Any, id: int, folder: Path, type: pa.DataType) -> Path:
    untyped = type in (pa.string(), pa.bool_()) or pa.types.is_dictionary(type) or isinstance(value, Decimal)
    if untyped or isinstance(value, str | bytes | bool | list | dict | set | dt.timedelta):
        raise NotSayable  # a text is a number where a number is wanted, and a text where a text is
    path = folder / "rows.csv"
    path.write_text(f"id,v\n{id},{value.isoformat() if hasattr(value, 'isoformat') else value}\n")
    return path


def _parquet(value: Any, id: int, folder: Path) -> Path:
    path = folder / "rows.parquet"
    try:
        pq.write_table(_arrow(value, id), path)
    except pa.ArrowException as error:
        raise NotSayable from error
    return path


WAYS = (
    "dict", "list", "many dicts", "generator", "Arrow", "pandas", "polars", "JSON", "CSV", "Parquet",
    "update", "upsert", "upsert many", "merge", "default", "add column",
)  # fmt: skip
LENIENT = ("Arrow", "pandas", "polars", "JSON", "CSV", "Parquet")
"""These may refuse a value of another type that a dict may have: 7.0 for a whole number."""


def _bring(t: il.Table, way: str, value: Any, id: int, folder: Path) -> None:
    """The value into column v of the row with that id."""
    row = {"id": id, "v": value}
    others = [{"id": 1000 + n} for n in range(3)]
    type = t.schema.field("v").type
    sources: dict[str, Callable[[], Any]] = {
        "dict": lambda: row,
        "list": lambda: [row],
        "many dicts": lambda: [row, *others],
        "generator": lambda: (each for each in [row, *others]),
        "Arrow": lambda: _arrow(value, id),
        "pandas": lambda: pd.DataFrame({"id": [id], "v": pd.Series([value], dtype=object)}),
        "polars": lambda: _polars(value, id),
        "JSON": lambda: _json(value, id, folder),
        "CSV": lambda: _csv(value, id, folder, type),
        "Parquet": lambda: _parquet(value, id, folder),
    }
    if way in sources:
        t.insert(sources[way]())
    elif way == "upsert":
        t.upsert(row)
    elif way == "upsert many":
        t.upsert([row, *({"id": 2000 + n, "v": None} for n in range(100))])
    elif way == "merge":
        t.merge([row], on="id").when_not_matched_insert().execute()
    elif way == "update":
        t.insert({"id": id})
        t.update({"v": value}, where="id = $id", params={"id": id})
    elif way == "add column":
        t.insert({"id": id})
        t.add_column("w", type, default=value)


def _stored(lake: il.Lake, t: il.Table, way: str, value: Any, id: int, folder: Path) -> Any:
    if way == "default":
        t = lake.create_table(f"{t.name}_with_default", t.schema, primary_key="id", defaults={"v": value})
        t.insert({"id": id})
    else:
        t.truncate()
        _bring(t, way, value, id, folder)
    return t.get(id)["w" if way == "add column" else "v"]


@pytest.mark.parametrize(("type", "value", "expected"), CASES, ids=str)
def test_a_value_means_the_same_by_every_way_in(module_lake, tmp_path, type, value, expected):
    schema = pa.schema({"id": pa.int64(), "v": type})
    config = il.TableConfig(direct_write_row_count=3)
    t = module_lake.create_table(f"t{len(module_lake.tables())}", schema, primary_key="id", config=config)
    for id, way in enumerate(WAYS):
        try:
            stored = _stored(module_lake, t, way, value, id, tmp_path)
        except NotSayable:
            continue
        except (ConstraintError, SchemaError):
            stored = REFUSED
        if way in LENIENT and stored is REFUSED:
            continue
        assert stored == expected, way


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (pd.NaT, "give None for a missing one"),
        (pd.NA, "give None for a missing one"),
        (np.datetime64("NaT"), "give None for a missing one"),
        (2**130 + 1, "38 digits|128.bit"),
        (10**400, "38 digits|128.bit"),
        ("a\ud800", "not valid Unicode"),
        (Fraction(1, 2), None),
        (1j, None),
    ],
    ids=repr,
)
def test_a_parameter_is_a_value_or_an_error_in_predicates_and_in_sql(module_lake, value, reason):
    module_lake.create_table("p", {"id": "int64"}, exist_ok=True)
    for wrong in (
        lambda: module_lake.table("p").scan("id = $v", params={"v": value}).to_arrow(),
        lambda: module_lake.table("p").delete("id = $v", params={"v": value}),
        lambda: module_lake.sql("select * from p where id = $v", {"v": value}).to_arrow(),
        lambda: module_lake.sql("select $v", {"v": value}).to_arrow(),
    ):
        with pytest.raises(il.IndexLakeError, match=reason):
            wrong()


KEYS = [
    (pa.int64(), 1, ["1", 1.5, True, CLOCK, [1], 2**63]),
    (pa.string(), "a", [1, b"a", ["a"]]),
    (pa.timestamp("us"), CLOCK, [MOMENT, "2024-01-01", 5, dt.date(2024, 1, 1)]),
    (UTC, MOMENT, [CLOCK, 5]),
    (pa.date32(), dt.date(2024, 1, 1), [CLOCK, 5, "2024-01-01"]),
    (pa.decimal128(5, 2), Decimal("1.5"), [1.5, "1.5", Decimal("1.555")]),
]


@pytest.mark.parametrize(("type", "key", "wrong"), KEYS, ids=str)
def test_a_key_of_another_type_is_an_error_and_not_a_missing_row(module_lake, type, key, wrong):
    t = module_lake.create_table(
        f"keys{len(module_lake.tables())}", pa.schema({"k": type, "n": pa.int64()}), primary_key="k"
    )
    t.insert({"k": key, "n": 7})
    assert t.get(key)["n"] == t.get_many([key]).column("n")[0].as_py() == 7
    for bad in wrong:
        for look in (t.get, lambda bad: t.get_many([key, bad]), lambda bad: t.get({"k": bad})):
            with pytest.raises(ConstraintError, match="Primary key column 'k'"):
                look(bad)
    both = module_lake.create_table(
        f"keys{len(module_lake.tables())}", pa.schema({"a": type, "b": type}), primary_key=["a", "b"]
    )
    for bad in wrong:
        with pytest.raises(ConstraintError, match="Primary key column 'b'"):
            both.get((key, bad))
        with pytest.raises(ConstraintError, match="Primary key column 'b'"):
            both.get_many([(key, bad)])


def test_a_dict_is_a_schema_when_every_value_is_a_type(module_lake):
    for given in ({"a": "int64", "b": "list<string>"}, {"a": pa.int64(), "b": "list<item: string>"}):
        t = module_lake.create_table(f"s{len(module_lake.tables())}", given, primary_key="a")
        assert t.schema.types == [pa.int64(), pa.list_(pa.string())]
        assert t.count() == 0
    assert module_lake.create_table("row", [{"a": "x", "b": "Oslo"}]).to_pylist() == [{"a": "x", "b": "Oslo"}]
    assert module_lake.create_table("row2", {"a": "int64", "b": 5}).to_pylist() == [{"a": "int64", "b": 5}]
    assert module_lake.create_table("row3", [{"a": "int64"}]).to_pylist() == [{"a": "int64"}]
    for wrong, shown in (
        ({"a": "int64", "b": "Oslo"}, "'Oslo'"),
        ({"a": pa.int64(), "b": 5}, "5"),
        ({"b": "bigint", "a": "text"}, "'bigint'"),
        ({"a": pa.int64(), "b": pa.string}, "the function string"),
        ({"b": int}, "the class int"),
    ):
        with pytest.raises(SchemaError) as caught:
            module_lake.create_table("wrong", wrong)
        for part in (f"Column 'b': {shown} is not a type", "{'id': 'int64'", "[{'id': 1"):
            assert part in str(caught.value)
    t.add_column("c", "timestamp[us, tz=UTC]")
    t.add_column("d", "int32")
    t.widen_column("d", "int64")
    assert t.schema.types[2:] == [UTC, pa.int64()]
    with pytest.raises(SchemaError, match="'int65' is not the name of a type"):
        t.add_column("e", "int65")


@pytest.mark.parametrize(
    ("values", "outcome"),
    [
        ([1, None], pa.int64()),
        ([1, 2.5], pa.float64()),
        ([2**63, 1], pa.uint64()),
        ([2**64], "holds 18446744073709551616, which is beyond int64 and uint64.*such as 'decimal128\\(38, 0\\)'"),
        ([-1, 2**63], "beyond int64 and uint64"),
        ([10**50], "such as 'decimal256\\(76, 0\\)'"),
        ([{"a": 2**64}], "a whole number is beyond int64"),
        ([2**64, "x"], "have no type in common"),
        ([2**53 + 1, 2.5], "have no type in common"),
        ([1.5, True], "have no type in common: True \\(bool\\) is not a value of type double"),
        ([CLOCK, MOMENT], "it has a time zone and the column has none"),
        ([MOMENT, CLOCK], "it has no time zone and the column has one"),
        ([dt.date(2024, 1, 1), CLOCK], "it has a time of day"),
        (["a", b"a"], "have no type in common"),
        ([{1, 2}], "a set has no order"),
        ([pd.Timestamp(1)], "it is finer than the column's unit"),
        ([pd.NaT], "have no type in common"),
        ([dt.time(1, tzinfo=ZONE)], "a time of day has no time zone"),
        ([[CLOCK], [MOMENT]], "time zone"),
    ],
    ids=str,
)
def test_types_found_from_values_hold_them_exactly(module_lake, values, outcome):
    rows = [{"v": value} for value in values]
    frame = pd.DataFrame({"v": pd.Series(values, dtype=object)})
    for source in (rows, iter(rows), frame):
        name = f"i{len(module_lake.tables())}"
        if source is frame and (values == [pd.NaT] or outcome in (pa.int64(), pa.float64())):
            continue  # missing values of pandas are null
        if isinstance(outcome, pa.DataType):
            t = module_lake.create_table(name, source)
            assert t.schema.field("v").type == outcome
            assert [row["v"] for row in t] == values
        else:
            with pytest.raises(SchemaError, match=outcome) as caught:
                module_lake.create_table(name, source)
            assert caught.value.__suppress_context__ or caught.value.__context__ is None
            assert name not in [table.partition(".")[2] for table in module_lake.tables()]


def test_an_integer_beyond_its_column_is_a_typed_error_on_insert(module_lake):
    t = module_lake.create_table("ints", {"a": "int64", "l": "list<int64>"})
    for row in ({"a": 2**64}, {"l": [2**64]}):
        for rows in (row, [row], [row] * 2000, (each for each in [row])):
            with pytest.raises(ConstraintError, match="it is outside -9223372036854775808 to 9223372036854775807"):
                t.insert(rows)
    assert t.count() == 0


@pytest.mark.parametrize(
    ("type", "value"),
    [
        (pa.timestamp("us"), CLOCK),
        (pa.timestamp("ns", "UTC"), MOMENT),
        (pa.date32(), dt.date(2024, 1, 1)),
        (pa.time64("us"), dt.time(1, 2)),
        (pa.duration("ms"), dt.timedelta(seconds=5)),
    ],
    ids=str,
)
def test_moments_are_found_by_what_they_were_given_as(module_lake, type, value):
    for stored in (type, pa.dictionary(pa.int8(), type)):
        t = module_lake.create_table(
            f"m{len(module_lake.tables())}", pa.schema({"id": pa.int64(), "v": stored}), primary_key="id"
        )
        t.insert([{"id": 1, "v": value}, {"id": 2, "v": None}])
        for _ in ("hot", "in a block"):
            for where in ("v = $v", "v >= $v", "v in ($v)"):
                assert t.scan(where, params={"v": value}).count() == 1
            module_lake.pipeline("threads").dump(t.name)


@pytest.mark.parametrize("given", [pa.decimal128(38, 37), pa.decimal128(30, 20), pa.decimal256(60, 30)], ids=str)
@pytest.mark.parametrize("type", [pa.decimal32(5, 2), pa.decimal64(12, 2), pa.list_(pa.decimal32(5, 2))], ids=str)
def test_a_decimal_keeps_its_value_in_a_narrower_one(tmp_path: Path, given: pa.DataType, type: pa.DataType) -> None:
    nested = pa.types.is_list(type)
    values = [Decimal("1.25"), Decimal("-7"), None]
    rows = pa.array([[v] for v in values] if nested else values, pa.list_(given) if nested else given)
    with il.connect(str(tmp_path / "lake"), automatic=False) as lake:
        t = lake.create_table("t", pa.schema([("x", type)]))
        t.insert(pa.table({"x": rows}))
        assert [row["x"] for row in t.scan().to_pylist()] == ([[v] for v in values] if nested else values)
