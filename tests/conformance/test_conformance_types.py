"""Type fidelity through the whole table: every supported type, through every tier, equal to the bit."""

from __future__ import annotations

import datetime
import decimal
import math
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import indexlake as il
from tests.conformance.orders import dump
from tests.types.arrow_exact import assert_same


def _floats(type: Any, patterns: list[int]) -> Any:
    """Floats by their bits."""
    data = b"".join(p.to_bytes(type.bit_width // 8, "little") for p in patterns)
    return pa.Array.from_buffers(type, len(patterns), [None, pa.py_buffer(data)])


def _with_null(array: Any) -> Any:
    return pa.concat_arrays([array, pa.nulls(1, array.type)])


D = decimal.Decimal
UNITS = ("s", "ms", "us", "ns")
LOW, HIGH = -(2**63), 2**63 - 1


def _integers(type: Any, low: int, high: int) -> Any:
    return pa.array([low, -1 if low else 1, 0, 1, high, None], type)


def _cases() -> dict[str, Any]:
    cases: dict[str, Any] = {"bool": pa.array([True, False, None])}
    for bits in (8, 16, 32, 64):
        cases[f"int{bits}"] = _integers(getattr(pa, f"int{bits}")(), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        cases[f"uint{bits}"] = _integers(getattr(pa, f"uint{bits}")(), 0, 2**bits - 1)
    cases["float16"] = _with_null(_floats(pa.float16(), [0, 0x8000, 0x7C00, 0xFC00, 0x7E00, 0xFE01, 0x3C00, 1]))
    cases["float32"] = _with_null(
        _floats(pa.float32(), [0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 1, 0x3DCCCCCD])
    )
    cases["float64"] = _with_null(
        _floats(
            pa.float64(),
            [0, 1 << 63, 0x7FF << 52, 0xFFF << 52, 0x7FF8 << 48, (0xFFF8 << 48) + 7, 1, 0x3FB999999999999A],
        )
    )
    cases["date32"] = pa.array([-719162, 0, 20000, 2932896, None], pa.int32()).cast(pa.date32())
    cases["date64"] = pa.array([datetime.date(1, 1, 1), datetime.date(2026, 11, 15), None], pa.date64())
    cases["time32[s]"] = pa.array([0, 86399, None], pa.int32()).cast(pa.time32("s"))
    cases["time32[ms]"] = pa.array([0, 86399999, None], pa.int32()).cast(pa.time32("ms"))
    cases["time64[us]"] = pa.array([0, 86399999999, None], pa.int64()).cast(pa.time64("us"))
    cases["time64[ns]"] = pa.array([0, 1000, 86399999999000, None], pa.int64()).cast(pa.time64("ns"))
    for unit, zone in zip(UNITS, ("UTC", "Europe/Berlin", "+05:30", "Asia/Kathmandu"), strict=True):
        extremes = pa.array([-62135596800, -1, 0, 1_763_000_000, 9_000_000_000, None], pa.int64())
        if unit == "ns":
            extremes = pa.array([-9 * 10**18, -1, 0, 1_763_000_000_123_456_789, 9 * 10**18, None], pa.int64())
        cases[f"timestamp[{unit}]"] = extremes.cast(pa.timestamp(unit))
        cases[f"timestamp[{unit}, {zone}]"] = extremes.cast(pa.timestamp(unit)).cast(pa.timestamp(unit, zone))
        most = {"s": 10**13, "ms": 10**16}.get(unit, HIGH)  # what Python can show
        cases[f"duration[{unit}]"] = pa.array([-most, -1, 0, 1, most, None], pa.int64()).cast(pa.duration(unit))
    decimals = [
        pa.decimal32(9, 2),
        pa.decimal64(18, 9),
        pa.decimal128(18, 4),
        pa.decimal128(38, 10),
        pa.decimal256(18, 2),
        pa.decimal256(76, 38),
    ]
    context = decimal.Context(prec=100)
    for type in decimals:
        top = context.scaleb(D(10**type.precision - 1), -type.scale)
        low = context.minus(top)
        cases[str(type)] = pa.array([low, D(0), context.scaleb(D(1), -type.scale), top, None], type)
    texts = ["", "a", "é😀", "a\x00b", "x" * 300, None]
    blobs = [b"", b"\x00", b"\xff\x00\xfe", bytes(300), None]
    for name in ("string", "large_string", "string_view"):
        cases[name] = pa.array(texts, getattr(pa, name)())
    for name in ("binary", "large_binary", "binary_view"):
        cases[name] = pa.array(blobs, getattr(pa, name)())
    cases["binary(16)"] = pa.array([bytes(16), bytes(range(16)), b"\xff" * 16, None], pa.binary(16))
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), cases["binary(16)"])
    cases["uuid"] = uuids
    cases["list<uuid>"] = pa.Array.from_buffers(
        pa.list_(pa.uuid()), 3, [pa.py_buffer(b"\x05"), pa.py_buffer(struct.pack("=4i", 0, 2, 2, 4))], children=[uuids]
    )
    cases["struct<uuid>"] = pa.StructArray.from_arrays([uuids], fields=[pa.field("u", pa.uuid())])
    cases["dictionary<int8, string>"] = (
        pa.array(["b", "a", None, "b", ""]).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string()))
    )
    cases["dictionary<uint16, int64, ordered>"] = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, None, 0], pa.uint16()), pa.array([HIGH, LOW]), ordered=True
    )
    cases["list<string>"] = pa.array([["a", None, ""], [], None, ["b"]], pa.list_(pa.string()))
    cases["list<required double>"] = pa.array(
        [[1.5, math.nan, -0.0], [], None], pa.list_(pa.field("item", pa.float64(), False))
    )
    cases["large_list<int8>"] = pa.array([[1, None], [], None], pa.large_list(pa.int8()))
    cases["fixed_size_list<float>[2]"] = pa.array([[1.0, None], None, [math.inf, 2.0]], pa.list_(pa.float32(), 2))
    cases["list<list<binary>>"] = pa.array([[[b"\x00"], None], [], None], pa.list_(pa.list_(pa.binary())))
    cases["list<string_view>"] = pa.array([["a", None, "x" * 50], [], None], pa.list_(pa.string_view()))
    cases["struct<binary_view>"] = pa.array([{"b": b"\x00"}, None, {"b": None}], pa.struct({"b": pa.binary_view()}))
    nested = pa.struct(
        [
            pa.field("Name", pa.string(), False, {"k": "v"}),
            pa.field("at", pa.timestamp("ns", "UTC")),
            pa.field("tags", pa.list_(pa.decimal128(30, 3))),
            pa.field("in", pa.struct([pa.field("u", pa.uint64()), pa.field("b", pa.binary(4))])),
        ]
    )
    cases["struct"] = pa.array(
        [
            {"Name": "", "at": None, "tags": [D("1.500"), None], "in": {"u": 2**64 - 1, "b": b"\x00\x01\x02\x03"}},
            None,
            {"Name": "x", "at": 1, "tags": [], "in": None},
            {"Name": "y", "at": -1, "tags": None, "in": {"u": None, "b": None}},
        ],
        nested,
    )
    cases["map<string, int64>"] = pa.array([[("b", 1), ("a", None)], [], None], pa.map_(pa.string(), pa.int64()))
    cases["map<int32, list<duration>>"] = pa.array(
        [[(1, [datetime.timedelta(1)]), (0, [])], None], pa.map_(pa.int32(), pa.list_(pa.duration("us")))
    )
    return cases


CASES = _cases()


def _table_of(columns: dict[str, Any], places: list[int]) -> Any:
    """Rows `places` of each column (round and round), with an id."""
    arrays = [pa.array(places, pa.int64())]
    for array in columns.values():
        arrays.append(pa.concat_arrays([array.slice(p % len(array), 1) for p in places]))
    return pa.Table.from_arrays(arrays, names=["id", *columns])


@pytest.mark.parametrize("direct", [False, True], ids=["inline and dumped", "direct"])
def test_every_type_round_trips_through_every_tier_to_the_bit(lake: il.Lake, make: Any, direct: bool) -> None:
    columns = {f"c {n}": array for n, array in enumerate(CASES.values())}
    count = max(map(len, columns.values()))
    data = _table_of(columns, list(range(count)))
    schema = pa.schema([*data.schema, pa.field("other", pa.int32())])
    t = make(schema, "id", direct_write_row_count=1 if direct else 1000)
    t.insert(data)

    def check(stage: str) -> None:
        found = t.scan(order_by="id").to_arrow()
        assert found.schema.equals(schema.set(0, schema.field(0).with_nullable(False)), check_metadata=True)
        for name, kind in zip(columns, CASES, strict=True):
            try:
                assert_same(found.column(name).combine_chunks(), data.column(name).combine_chunks())
            except AssertionError as error:
                raise AssertionError(f"{kind}, {stage}: {error}") from error
        expected = data.column_names
        for n in range(count if stage in ("inserted", "dumped") else 1):
            row, wanted = t.get(n), {name: data.column(name)[n].as_py() for name in expected}
            assert row is not None
            del row["other"]
            assert repr(row) == repr(wanted), f"get {n}, {stage}"

    check("inserted")
    t.update({"other": 1}, "id % 2 = 0")
    check("another column updated")
    dump(t)
    check("dumped")
    t.update({"other": 2}, "id % 3 = 0")
    check("updated after the dump")
    dump(t)
    check("dumped again")
    then = lake.snapshot_id
    t.update({"other": il.expr("coalesce(other, 0) + 1")}, "true")
    t.update(dict.fromkeys(columns), "true")
    dump(t)
    past = t.at(then).scan(order_by="id").to_arrow()
    for name, kind in zip(columns, CASES, strict=True):
        try:
            assert_same(past.column(name).combine_chunks(), data.column(name).combine_chunks())
        except AssertionError as error:
            raise AssertionError(f"{kind}, in the past: {error}") from error
    assert all(found.null_count == count for found in t.scan(columns=list(columns)).to_arrow().columns)


def test_python_values_are_stored_as_arrow_stores_them(make: Any) -> None:
    columns = {f"c {n}": array for n, array in enumerate(CASES.values())}
    count = max(map(len, columns.values()))
    data = _table_of(columns, list(range(count)))
    exact = [n for n in data.column_names if _python_is_exact(data.column(n))]
    assert len(exact) > 40
    t = make(data.select(exact).schema, "id")
    rows = data.select(exact).to_pylist()
    t.insert(rows)
    found = t.scan(order_by="id").to_arrow()
    for name in exact:
        assert_same(
            found.column(name).combine_chunks(), pa.array([r[name] for r in rows], data.schema.field(name).type)
        )


def _python_is_exact(column: Any) -> bool:
    """Whether as_py loses nothing: pandas timestamps, NaN payloads and years beyond 9999 do."""
    try:
        again = pa.array(column.to_pylist(), column.type)
        assert_same(again, column.combine_chunks())
    except (AssertionError, pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError, pa.ArrowNotImplementedError):
        return False
    return True


@pytest.mark.parametrize("format", ["vortex", "parquet", "ipc"])
def test_many_rows_keep_their_types_across_batches(make_local: Any, format: str) -> None:
    count = 66_000
    numbers = np.arange(count)
    data = pa.table(
        {
            "id": numbers,
            "d": pa.array([f"v{n % 200}" for n in numbers]).dictionary_encode(),
            "l": pa.array([[n, None] if n % 3 else None for n in numbers.tolist()], pa.list_(pa.int32())),
            "u": pa.array(numbers.astype(np.uint64) + np.uint64(2**63)),
        }
    )
    t = make_local(data.schema, "id", dump_format=format)
    t.insert(data)
    t.delete("id % 10 = 0")
    found = t.scan(order_by="id").to_arrow()
    kept = data.filter(pa.array(numbers % 10 != 0))
    for name in data.column_names:
        assert found.column(name).type == data.column(name).type
        assert found.column(name).to_pylist() == kept.column(name).to_pylist()


REFUSED: dict[str, tuple[Any, str]] = {
    "null": (pa.null(), "Name the type"),
    "union": (pa.dense_union([pa.field("a", pa.int64())]), "struct"),
    "run-end": (pa.run_end_encoded(pa.int32(), pa.string()), "string"),
    "list view": (pa.list_view(pa.int64()), "pa.list_"),
    "interval": (pa.month_day_nano_interval(), "duration"),
    "extension": (pa.json_(), "storage type"),
    "inside a struct": (pa.struct([pa.field("x", pa.null())]), "Name the type"),
    "inside a list": (pa.list_(pa.month_day_nano_interval()), "duration"),
    "empty struct": (pa.struct([]), "field"),
    "time zone": (pa.timestamp("us", "Mars/Olympus"), "Europe/Berlin"),
}


@pytest.mark.parametrize("kind", list(REFUSED))
def test_unsupported_types_are_refused_by_name(local_lake: il.Lake, namespace: str, kind: str) -> None:
    type, advice = REFUSED[kind]
    before = local_lake.snapshot_id
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("odd one", type)])
    with pytest.raises(il.SchemaError, match="'odd one'") as caught:
        local_lake.create_table(f"{namespace}.t", schema, primary_key="id")
    assert advice in str(caught.value)
    assert caught.value.column == "odd one"
    assert local_lake.snapshot_id == before
    assert namespace not in local_lake.namespaces()


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["_indexlake_row_id"], "reserved"),
        (["_IndexLake_mine"], "reserved"),
        (["a", "A"], "differ only in case"),
        ([""], "not a column name"),
        (["a\x00b"], "not a column name"),
        ([], ""),
    ],
)
def test_reserved_doubled_and_empty_names_are_refused(
    local_lake: il.Lake, namespace: str, names: list[str], text: str
) -> None:
    with pytest.raises(il.SchemaError) as caught:
        local_lake.create_table(f"{namespace}.t", pa.schema([(n, pa.int64()) for n in names]))
    assert text in str(caught.value)


@pytest.mark.parametrize("name", ["", "a.", ".b", "a.b.c", "x\x00y"])
def test_wrong_table_names_are_refused(local_lake: il.Lake, name: str) -> None:
    with pytest.raises(il.SchemaError):
        local_lake.create_table(name, pa.schema({"id": pa.int64()}))


@pytest.mark.parametrize("name", ["select", 'quo"te', "with space", "sém😀", "f1", "_begin", "rowid", "x" * 200])
def test_any_other_name_is_a_column_and_a_table(lake: il.Lake, make: Any, name: str) -> None:
    t = make(pa.schema({"id": pa.int64(), name: pa.string()}), "id", name=name)
    t.insert({"id": 1, name: "a"})
    dump(t)
    t.insert({"id": 2, name: "b"})
    quoted = '"' + name.replace('"', '""') + '"'
    assert t.scan(f"{quoted} = 'b'").to_pylist() == [{"id": 2, name: "b"}]
    t.update({name: il.expr(f"{quoted} || 'x'")}, f"{quoted} is not null")
    assert sorted(r[name] for r in t.scan().to_pylist()) == ["ax", "bx"]
    assert lake.table(t.name).name == t.name


def test_field_metadata_and_nullability_survive_reopening(new_address: Any) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), False, {b"a": b"\xff\x00"}),
            pa.field("s", pa.struct([pa.field("x", pa.int8(), False, {"deep": "yes"})]), True),
        ]
    )
    address = new_address("sqlite")
    with address.connect() as lake:
        lake.create_table("t", schema)
    with address.connect() as lake:
        assert lake.table("t").schema.equals(schema, check_metadata=True)


def test_a_float_keeps_the_payload_of_a_nan_it_is_not_compared_by(make_local: Any) -> None:
    t = make_local(pa.schema({"id": pa.int64(), "x": pa.float64()}), "id")
    odd = struct.unpack("<d", struct.pack("<Q", 0x7FF8_0000_0000_0123))[0]
    t.insert({"id": 1, "x": odd})
    for _ in range(2):
        assert t.scan("x = 'nan'::double").count() == 1
        assert struct.pack("<d", t.get(1)["x"]) == struct.pack("<Q", 0x7FF8_0000_0000_0123)
        dump(t)
