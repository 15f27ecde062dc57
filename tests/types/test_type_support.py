"""Which types a column may have, and what a user reads when it may not."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from hypothesis import given, settings

from indexlake.errors import SchemaError
from indexlake.types import check_supported, codec_for
from tests.types.arrow_strategies import PLAIN, types

REFUSED = {
    "null": (pa.null(), "it can hold no value. Name the type the values will have"),
    "extension": (
        pa.opaque(pa.binary(), "bit", "DuckDB"),
        "extension types are not supported (arrow.opaque). Use its storage type binary",
    ),
    "dictionary of UUIDs": (pa.dictionary(pa.int8(), pa.uuid()), "Use the value type extension<arrow.uuid> itself"),
    "json extension": (pa.json_(), "(arrow.json). Use its storage type string"),
    "sparse union": (pa.sparse_union([pa.field("a", pa.int8())]), "Use a struct with one nullable field"),
    "dense union": (pa.dense_union([pa.field("a", pa.int8())]), "Use a struct with one nullable field"),
    "run-end": (pa.run_end_encoded(pa.int32(), pa.string()), "Use string: files compress runs"),
    "list view": (pa.list_view(pa.int8()), "Use pa.list_ or pa.large_list of int8"),
    "large list view": (pa.large_list_view(pa.int8()), "Use pa.list_ or pa.large_list of int8"),
    "interval": (pa.month_day_nano_interval(), "Use pa.duration, or a struct of integers"),
    "dictionary of lists": (pa.dictionary(pa.int8(), pa.list_(pa.int8())), "Use the value type list<"),
    "struct without fields": (pa.struct([]), "Give it a field"),
    "struct with one name twice": (
        pa.struct([("a", pa.int8()), ("a", pa.string())]),
        "two fields named 'a'. Give every field of a struct its own name",
    ),
    "map with one name twice": (
        pa.map_(pa.field("x", pa.int8(), False), pa.field("x", pa.int8())),
        "its keys and values have the same name, 'x'. Give them two names",
    ),
    "list of size 0": (pa.list_(pa.int8(), 0), "Use a size of at least 1"),
    "binary of width 0": (pa.binary(0), "Use a width of at least 1"),
    "unknown time zone": (pa.timestamp("us", "Mars/Phobos"), "the time zone 'Mars/Phobos' is unknown"),
}


@pytest.mark.parametrize(("type", "advice"), REFUSED.values(), ids=REFUSED.keys())
def test_an_unsupported_type_is_refused_by_name_with_advice(type, advice):
    with pytest.raises(SchemaError) as caught:
        check_supported(type, "price")
    text = str(caught.value)
    assert text.startswith(f"Column 'price' cannot have the type {type}: ")
    assert advice in text
    assert caught.value.column == "price"


@pytest.mark.parametrize(
    ("wrap", "place"),
    [
        (lambda inner: pa.list_(inner), "price[]"),
        (lambda inner: pa.large_list(inner), "price[]"),
        (lambda inner: pa.list_(inner, 2), "price[]"),
        (lambda inner: pa.struct([("a", pa.int8()), ("b", inner)]), "price.b"),
        (lambda inner: pa.map_(pa.string(), inner), "price.value"),
        (lambda inner: pa.map_(inner, pa.int8()), "price.key"),
        (lambda inner: pa.list_(pa.struct([("a", pa.list_(inner))])), "price[].a[]"),
    ],
)
def test_an_unsupported_type_inside_a_nested_one_is_refused_with_its_place(wrap, place):
    inner = pa.month_day_nano_interval()
    with pytest.raises(SchemaError, match=re.escape(f"Column 'price' (at {place!r}) cannot have the type {inner}")):
        check_supported(wrap(inner), "price")


def nested(levels, wrap, inner=None):
    type = inner or pa.int8()
    for _ in range(levels):
        type = wrap(type)
    return type


def in_struct(inner):
    return pa.struct([("x", pa.string()), ("a", inner)])


@pytest.mark.parametrize(
    ("type", "what"),
    [
        (nested(21, in_struct), "nests 21 levels deep"),
        (nested(31, lambda inner: pa.list_(inner, 1)), "nests 31 levels deep"),
        (nested(500, in_struct), "nests more than 64 levels deep"),
        (nested(9, pa.list_), "has 9 lists or maps inside each other"),
        (nested(9, pa.large_list), "has 9 lists or maps inside each other"),
        (nested(9, lambda inner: pa.map_(pa.string(), inner)), "has 9 lists or maps inside each other"),
        (nested(9, lambda inner: pa.map_(inner, pa.string())), "has 9 lists or maps inside each other"),
        (nested(5, pa.list_, nested(4, in_struct, nested(4, pa.list_))), "has 9 lists or maps inside each other"),
    ],
    ids=lambda value: value[:12] if isinstance(value, str) else "",
)
def test_a_type_nested_too_deep_is_refused(type, what):
    with pytest.raises(SchemaError) as caught:
        check_supported(type, "price")
    assert str(caught.value) == (
        f"Column 'price' {what}. Blocks (Vortex, Parquet and Arrow IPC) hold columns of up to 20 levels, of which up "
        "to 8 are lists or maps. Flatten it, or store the inner part as JSON text."
    )


def test_a_type_at_the_limits_is_supported():
    check_supported(nested(12, in_struct, nested(8, pa.list_)), "price")
    check_supported(nested(12, lambda i: pa.list_(i, 2), nested(8, lambda i: pa.map_(pa.string(), i))), "price")


def test_the_columns_of_older_tables_may_be_deeper():
    assert codec_for(nested(31, in_struct)).encode_one(None) is None


def test_something_that_is_no_type_is_refused():
    with pytest.raises(
        SchemaError, match=re.escape("needs an Arrow type such as pa.int64() or pa.string(), got 'int'")
    ):
        check_supported("int", "price")


def test_codec_for_refuses_what_check_supported_refuses():
    with pytest.raises(SchemaError, match="extension types are not supported"):
        codec_for(pa.json_())


@pytest.mark.parametrize("type", PLAIN, ids=str)
def test_every_plain_type_is_supported(type):
    check_supported(type, "price")


@settings(max_examples=100, deadline=None)
@given(types())
def test_generated_types_are_supported(type):
    check_supported(type, "price")
