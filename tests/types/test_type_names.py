"""Types by name: whatever pyarrow prints is read back."""

from __future__ import annotations

import re
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings

from indexlake.errors import SchemaError
from indexlake.types.names import _MEANT, meant_type, named_type
from tests.types.arrow_strategies import PLAIN, dictionary_types, nested_types


@pytest.mark.parametrize("type", PLAIN, ids=str)
def test_the_printed_name_of_a_plain_type_means_that_type(type):
    assert named_type(str(type)) == type


@settings(max_examples=60, deadline=None)
@given(nested_types() | dictionary_types())
def test_the_printed_name_of_a_nested_type_means_that_type(type):
    text = str(type)
    names = [f.name for f in _fields(type)]
    assume(all(name and not set(name) & set(":<>,[]()'") and name == name.strip() for name in names))
    assert str(named_type(text)) == text


def _fields(type):
    for n in range(type.num_fields):
        yield type.field(n)
        yield from _fields(type.field(n).type)


@pytest.mark.parametrize(
    ("name", "type"),
    [
        ("str", pa.string()),
        ("double", pa.float64()),
        ("float", pa.float32()),
        (" int64 ", pa.int64()),
        ("decimal128(10,2)", pa.decimal128(10, 2)),
        ("list<string>", pa.list_(pa.string())),
        ("list<item: string not null>", pa.list_(pa.field("item", pa.string(), False))),
        ("list<list<int64>>", pa.list_(pa.list_(pa.int64()))),
        ("fixed_size_list<float>[3]", pa.list_(pa.float32(), 3)),
        ("struct<a: int64, b: struct<c: int8>>", pa.struct({"a": pa.int64(), "b": pa.struct({"c": pa.int8()})})),
        ("list<timestamp[us, tz=+05:30]>", pa.list_(pa.timestamp("us", "+05:30"))),
        ("map<string, list<int8>>", pa.map_(pa.string(), pa.list_(pa.int8()))),
        ("dictionary<values=string, indices=int8, ordered=1>", pa.dictionary(pa.int8(), pa.string(), True)),
    ],
    ids=str,
)  # fmt: skip
def test_names_as_people_write_them(name, type):
    assert named_type(name).equals(type, check_metadata=True)


NO_TYPES = (
    "", "Oslo", "int65", "list<", "list<>", "list<int64", "int64>", "struct<int64>", "timestamp[days]", "tree<int64>",
    "fixed_size_list<int8>", "int64 string", "decimal128(99, 2)", "map<string>",
)  # fmt: skip


@pytest.mark.parametrize("text", NO_TYPES)
def test_other_text_is_no_type(text):
    with pytest.raises(SchemaError, match=r"is not the name of a type\. Give the name that pyarrow prints"):
        named_type(text)


@pytest.mark.parametrize(("text", "meant"), [("int", "int64"), ("VARCHAR", "string"), ("datetime", "timestamp[us]")])
def test_a_type_of_another_language_says_what_to_write(text, meant):
    with pytest.raises(SchemaError, match=re.escape(f"{text!r} is not the name of a type. Write {meant!r}, or give")):
        named_type(text)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("varchar(20)", "string"), ("decimal(10,2)", "decimal128(10,2)"), ("numeric", "decimal128(18, 2)"),
        ("decimal(many)", "decimal128(18, 2)"), ("Oslo", None),
        (int, "int64"), (str, "string"), (float, "float64"), (bool, "bool"), (bytes, "binary"),
        (datetime, "timestamp[us]"), (date, "date32"), (Decimal, "decimal128(18, 2)"), (object, None),
    ],
    ids=str,
)  # fmt: skip
def test_names_in_other_languages_and_classes_are_understood(given, meant):
    assert meant_type(given) == meant


def test_every_name_that_is_suggested_is_one():
    assert [named_type(meant) for meant in _MEANT.values()]
