"""The text of a type gives back the very same type."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings

from indexlake.errors import SchemaError
from indexlake.types import type_from_text, type_to_text
from tests.types.arrow_exact import same_type
from tests.types.arrow_strategies import PLAIN, types


@settings(max_examples=300, deadline=None)
@given(types())
def test_the_text_of_a_type_gives_the_same_type_back(type):
    assert same_type(type_from_text(type_to_text(type)), type)


def test_no_two_plain_types_have_the_same_text():
    assert len({type_to_text(type) for type in PLAIN}) == len(PLAIN)


@pytest.mark.parametrize(
    ("type", "text"),
    [
        (pa.bool_(), "bool"),
        (pa.float64(), "float64"),
        (pa.timestamp("ns"), "timestamp[ns]"),
        (pa.timestamp("us", "Europe/Berlin"), "timestamp[us, tz=Europe/Berlin]"),
        (pa.decimal128(10, -2), "decimal128(10, -2)"),
        (pa.binary(16), "fixed_size_binary[16]"),
        (pa.list_(pa.int64()), '{"list": {"name": "item", "type": "int64"}}'),
        (
            pa.list_(pa.field("ü", pa.int8(), False, {"k": b"\xff"}), 3),
            '{"fixed_size_list": {"name": "ü", "type": "int8", "nullable": false, '
            '"metadata": [["k", {"base64": "/w=="}]]}, "size": 3}',
        ),
        (
            pa.dictionary(pa.int8(), pa.string(), True),
            '{"dictionary": {"indices": "int8", "values": "string", "ordered": true}}',
        ),
        (
            pa.map_(pa.string(), pa.int8()),
            '{"map": {"key": {"name": "key", "type": "string", "nullable": false}, '
            '"value": {"name": "value", "type": "int8"}, "keys_sorted": false}}',
        ),
    ],
)
def test_texts_stay_as_they_are_since_catalogs_hold_them(type, text):
    assert type_to_text(type) == text
    assert same_type(type_from_text(text), type)


@pytest.mark.parametrize(
    "text", ["", "int65", "decimal128(99, 2)", "{", '{"set": "int8"}', '{"list": {}}', "timestamp[h]"]
)
def test_a_text_that_is_no_type_is_refused(text):
    with pytest.raises(SchemaError, match="is not the text of a column type"):
        type_from_text(text)


def test_a_type_without_text_is_refused():
    with pytest.raises(SchemaError, match="is not supported in a table"):
        type_to_text(pa.null())
