"""Columns of every type that has an order, and what tests of them say of each row: index kinds are compared with it."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from indexlake.expr.test import ColumnTest
from indexlake.indexes.index import Index
from indexlake.indexes.kind import Content
from indexlake.indexes.registry import kind_named
from indexlake.schema import Field
from indexlake.storage import Storage

INFINITY = float("inf")
FLOATS = [0.0, -0.0, 1.5, -1.5, INFINITY, -INFINITY, float("nan"), 2.0]
MOMENTS = [dt.datetime(2020, 1, 1, 12), dt.datetime(1969, 5, 4), dt.datetime(2020, 1, 2), dt.datetime(2261, 1, 1)]
TEXTS = ["", "a", "a\0", "a\0b", "ab", "ä", "b" * 70, "b" * 70 + "c", "z"]
BYTES = [text.encode() for text in TEXTS] + [b"\xff" * 9, b"\xff", b"\0\0", b"\0"]

CHOICES: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [True, False],
    pa.int8(): [-128, -1, 0, 1, 127],
    pa.int64(): [-(2**63), -1, 0, 1, 2, 3, 2**63 - 1],
    pa.uint32(): [0, 1, 2**32 - 1],
    pa.uint64(): [0, 1, 2**63, 2**64 - 1],
    pa.float16(): [np.float16(x) for x in FLOATS],
    pa.float32(): FLOATS,
    pa.float64(): [*FLOATS, 5e-324],
    pa.decimal128(9, 2): [decimal.Decimal(x) for x in ("0", "-1.25", "1.25", "9999999.99")],
    pa.decimal128(30, 5): [decimal.Decimal(x) for x in ("0", "-1.25", "1.25", "1234567890123456789.5")],
    pa.string(): TEXTS,
    pa.large_string(): TEXTS,
    pa.string_view(): TEXTS,
    pa.binary(): BYTES,
    pa.binary(4): [b"\0\0\0\0", b"abcd", b"abc\0", b"\xff\xff\xff\xff"],
    pa.date32(): [m.date() for m in MOMENTS],
    pa.time64("us"): [dt.time(0), dt.time(12, 30, 0, 5), dt.time(23, 59, 59, 999999)],
    pa.timestamp("us"): MOMENTS,
    pa.timestamp("ms", "UTC"): [m.replace(tzinfo=dt.UTC) for m in MOMENTS],
    pa.duration("s"): [dt.timedelta(0), dt.timedelta(-3), dt.timedelta(5)],
    pa.uuid(): [uuid.UUID(int=n) for n in (0, 1, 2**127, 2**128 - 1)],
    pa.dictionary(pa.int8(), pa.string()): TEXTS,
}
TYPES = list(CHOICES)


def column(type: pa.DataType, rows: int, random: np.random.Generator, *, nulls: bool = True) -> pa.Array:
    choices = CHOICES[type]
    picked = [choices[n] for n in random.integers(0, len(choices), rows)]
    if nulls:
        picked = [None if random.random() < 0.15 else value for value in picked]
    if pa.types.is_dictionary(type):
        return pa.array(picked, type.value_type).cast(type)
    return pa.array(picked, type)


def fields_of(types: Sequence[pa.DataType], *, nullable: bool = True) -> tuple[Field, ...]:
    return tuple(Field(n + 1, f"c{n + 1}", type, nullable) for n, type in enumerate(types))


def index_of(fields: Sequence[Field], keys: int, kind: str = "btree", *, unique: bool = False) -> Index:
    ids = [f.field_id for f in fields]
    return Index(1, "by", kind, tuple(ids[:keys]), tuple(ids[keys:]), unique, {}, 0, None, None, 0)


def opened(index: Index, content: Content, storage: Storage | None = None) -> Any:
    storage = storage or Storage.open("memory://")
    with storage.create_file("segment", overwrite=True) as file:
        for piece in content.pieces:
            file.write(piece)
    return kind_named(index.kind).open(index, storage.open_file("segment", file.checksums))


def segment_of(
    index: Index, fields: Sequence[Field], blocks: Sequence[Sequence[pa.Array]], *, lasting: bool = True
) -> Any:
    """A segment of some blocks, which are given as their columns, each added in two parts."""
    builder = kind_named(index.kind).builder(index, fields, lasting=lasting)
    for columns in blocks:
        half = len(columns[0]) // 3
        builder.add([c.slice(0, half) for c in columns])
        builder.add([c.slice(half) for c in columns])
        builder.end_block()
    return opened(index, builder.content())


def constant(field: Field, array: pa.Array, row: int) -> Any:
    """The value of a row as tests of the column have it: counts for moments."""
    type = field.type
    if pa.types.is_temporal(type):
        width = pa.int32() if type.bit_width == 32 else pa.int64()
        return array.slice(row, 1).cast(width)[0].as_py()
    return array[row].as_py()


def canonical(field: Field, array: pa.Array) -> list[Any]:
    """What rows compare by; None for null."""
    return [None if v is None else field.codec.canonical(v) for v in field.codec.encode(array)]


def satisfies(field: Field, value: Any, test: ColumnTest) -> bool:
    """What the test says of a canonical value."""
    if test.op == "is null":
        return value is None
    if value is None:
        return False
    if test.op == "is not null":
        return True
    wanted = [field.codec.canonical(field.codec.encode_constant(v)) for v in test.values]
    if test.op in ("=", "in"):
        return value in wanted
    (bound,) = wanted
    return {"<": value < bound, "<=": value <= bound, ">": value > bound, ">=": value >= bound}[test.op]
