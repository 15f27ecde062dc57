"""Tables of every supported type, and blocks made of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from indexlake.blocks.formats import BlockReader, WrittenFile, open_reader, write_file
from indexlake.storage import Storage

FORMATS = ("vortex", "parquet", "ipc")
LOWEST, HIGHEST = -(2**63), 2**63 - 1


def arrays_of_every_type() -> Iterator[tuple[str, pa.Array]]:
    """One array for each type, with nulls and with the values that get lost most easily."""
    yield "bool", pa.array([True, None, False])
    for bits in (8, 16, 32, 64):
        signed, unsigned = getattr(pa, f"int{bits}")(), getattr(pa, f"uint{bits}")()
        yield str(signed), pa.array([-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, None], signed)
        yield str(unsigned), pa.array([0, 2**bits - 1, None], unsigned)
    floats = [1.5, -0.0, 0.0, float("nan"), float("inf"), -float("inf")]
    for dtype in (np.float16, np.float32, np.float64):
        yield np.dtype(dtype).name, pa.array(np.array(floats, dtype))
        yield f"{np.dtype(dtype).name} with nulls", pa.array(np.array(floats, dtype), mask=np.arange(6) == 2)
    payloads = np.array([0x7FF8000000000001, 0xFFF8000000000002, 0x7FF0000000000001], np.uint64)
    yield "nan payloads", pa.array(payloads.view(np.float64))
    yield "date32", pa.array([-(2**31), 0, 2**31 - 1, None], pa.int32()).view(pa.date32())
    yield "date64", pa.array([0, -86_400_000, None], pa.int64()).view(pa.date64())
    for unit in ("s", "ms"):
        yield f"time32 {unit}", pa.array([0, 5, 86_399, None], pa.int32()).view(pa.time32(unit))
    for unit in ("us", "ns"):
        yield f"time64 {unit}", pa.array([0, 5, 86_399_999_999, None], pa.int64()).view(pa.time64(unit))
    extremes = pa.array([0, -5, LOWEST, HIGHEST, None], pa.int64())
    for unit in ("s", "ms", "us", "ns"):
        yield f"duration {unit}", extremes.view(pa.duration(unit))
        for zone in (None, "UTC", "Europe/Berlin", "+05:30"):
            yield f"timestamp {unit} {zone}", extremes.view(pa.timestamp(unit, zone))
    yield "decimal32", pa.array([Decimal("1.23"), Decimal("-9999999.99"), None], pa.decimal32(9, 2))
    yield "decimal64", pa.array([Decimal("-1.23"), None], pa.decimal64(18, 2))
    yield "decimal128", pa.array([Decimal("1.23"), -(Decimal(10) ** 35), None], pa.decimal128(38, 2))
    yield "decimal128 negative scale", pa.array([Decimal("12300"), None], pa.decimal128(5, -2))
    yield "decimal256", pa.array([Decimal("1.23"), -(Decimal(10) ** 70), None], pa.decimal256(76, 2))
    yield "decimal256 short", pa.array([Decimal("-1.23"), None], pa.decimal256(5, 2))
    for type in (pa.string(), pa.large_string(), pa.string_view()):
        yield str(type), pa.array(["a", "", None, "ü\0x" * 5], type)
    for type in (pa.binary(), pa.large_binary(), pa.binary_view()):
        yield str(type), pa.array([b"a", b"", None, b"\0\xff" * 10], type)
    yield "fixed_size_binary", pa.array([b"abc", None, b"\0\0\0"], pa.binary(3))
    for index in (pa.int8(), pa.int32(), pa.int64(), pa.uint16()):
        yield f"dictionary {index}", pa.array(["x", "y", None, "x"], pa.dictionary(index, pa.string()))
    yield (
        "dictionary ordered",
        pa.array(["x", "y", None], pa.dictionary(pa.int8(), pa.string(), ordered=True)),
    )
    distinct: list[tuple[Any, list[Any]]] = [
        (pa.large_string(), ["a", "b"]),
        (pa.string_view(), ["a", "b"]),
        (pa.int64(), [5, -5]),
        (pa.timestamp("us", "UTC"), [5, -5]),
        (pa.binary(2), [b"xx", b"yy"]),
    ]
    for type, values in distinct:
        indices = pa.array([0, None, 1, 0], pa.int8())
        yield f"dictionary of {type}", pa.DictionaryArray.from_arrays(indices, pa.array(values, type))
    yield from nested_arrays()


def nested_arrays() -> Iterator[tuple[str, pa.Array]]:
    required = pa.field("x", pa.int32(), nullable=False)
    named = pa.list_(pa.field("thing", pa.int64(), nullable=False))
    tagged = pa.struct([pa.field("a", pa.int64(), metadata={"k": "v"})])
    entries = pa.map_(pa.field("k", pa.string(), nullable=False), pa.field("v", pa.int64()))
    deep = pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.duration("us"))))]))
    yield "list", pa.array([[1, None], [], None], pa.list_(pa.int64()))
    yield "list of a named field", pa.array([[1], [], None], named)
    yield "large_list", pa.array([["a", None], [], None], pa.large_list(pa.string()))
    yield "list of views", pa.array([["a", None], [], None], pa.list_(pa.string_view()))
    yield "fixed_size_list", pa.array([[1, 2], None, [3, None]], pa.list_(pa.int32(), 2))
    yield "fixed_size_list of not null", pa.array([[1, 2], [3, 4]], pa.list_(required, 2))
    yield "struct", pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": None}])
    yield (
        "struct of not null",
        pa.array([{"x": 1, "b": b"xyz"}, {"x": 2}], pa.struct([required, ("b", pa.binary(3))])),
    )
    yield "struct with metadata", pa.array([{"a": 1}], tagged)
    yield "map", pa.array([[("a", 1), ("b", None)], [], None], pa.map_(pa.string(), pa.int64()))
    yield "map sorted", pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64(), keys_sorted=True))
    yield "map named", pa.array([[("a", 1)], [], None], entries)
    yield "deep", pa.array([[{"m": [("k", [5])]}], None], deep)
    pair = pa.field("one", pa.list_(pa.int32(), 2), nullable=False)
    pairs, some = pa.struct([pair]), {"one": [1, 2]}
    yield "struct of not null pairs", pa.array([some, None, {"one": [3, None]}], pairs)
    yield "list of structs of not null pairs", pa.array([[some, None], None, [], [some]], pa.list_(pairs))
    yield "map of structs of not null pairs", pa.array([[("a", some), ("b", None)], None], pa.map_(pa.string(), pairs))
    inner = pa.struct([pa.field("s", pairs, nullable=False)])
    yield "struct of not null structs of not null pairs", pa.array([{"s": some}, None], inner)
    yield "pairs of not null pairs", pa.array([[[1, 2], [3, 4]], None], pa.list_(pair, 2))
    yield "map by pairs", pa.array([[([1, 2], 1)], None], pa.map_(pair.type, pa.int64()))
    for leaf, value in (
        (pa.float16(), np.float16(1)),
        (pa.decimal32(5, 1), Decimal("1.2")),
        (pa.timestamp("s"), 1),
        (pa.date64(), 86_400_000),
        (pa.dictionary(pa.int8(), pa.string()), "a"),
    ):
        yield f"list of {leaf}", pa.array([[value, None], None], pa.list_(leaf))


def same(actual: Any, expected: pa.Array) -> bool:
    """Equal to the bit and of exactly the same type."""
    if isinstance(actual, pa.ChunkedArray):
        actual = actual.combine_chunks()
    actual.validate(full=True)
    if not actual.type.equals(expected.type, check_metadata=True):
        return False
    if pa.types.is_floating(expected.type):
        return bits(actual) == bits(expected)
    return bool(actual.equals(expected))


def bits(array: pa.Array) -> tuple[bytes, list[bool]]:
    nulls = array.is_null()
    return array.fill_null(0).to_numpy(zero_copy_only=False).tobytes(), nulls.to_pylist()


def same_values(actual: Any, expected: pa.Array) -> bool:
    """The same, whatever their dictionaries hold besides."""
    if "dictionary" not in str(expected.type):
        return same(actual, expected)
    return bool(actual.to_pylist() == expected.to_pylist())


def sample(rows: int, seed: int = 0) -> pa.Table:
    """A table with the columns of an ordinary block."""
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "_indexlake_row_id": pa.array(np.arange(rows, dtype=np.int64)),
            "f1": pa.array(random.integers(0, 1 << 40, rows), mask=random.random(rows) < 0.1),
            "f2": pa.array(random.random(rows)),
            "f3": pa.array([f"name-{i % 5000}-{i}" for i in range(rows)]),
            "f4": pa.array(random.integers(0, 1000, rows).astype(np.int32)),
            "f5": pa.array(np.arange(rows) * 1000, pa.timestamp("us", "UTC")),
        }
    )


def write(storage: Storage, path: str, format: str, table: pa.Table, batch_rows: int = 50_000) -> WrittenFile:
    return write_file(storage, path, format, table.schema, table.to_batches(batch_rows), {"f1": "one"})


def reopen(storage: Storage, written: WrittenFile, format: str, schema: pa.Schema) -> BlockReader:
    return open_reader(storage, written.path, format, written.size, written.checksums, schema)


def block(storage: Storage, format: str, table: pa.Table, path: str = "block") -> BlockReader:
    return reopen(storage, write(storage, path, format, table), format, table.schema)


def everything(reader: BlockReader, columns: Sequence[str], **options: Any) -> pa.Table:
    schema = pa.schema([reader.schema.field(name) for name in columns])
    return pa.Table.from_batches(reader.read(columns, **options), schema)
