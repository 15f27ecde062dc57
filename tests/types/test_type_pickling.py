"""Types, schemas and arrays are the same to the bit after a pickle, as tasks are when they are sent elsewhere."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings

from indexlake.schema import Field
from tests.types.arrow_exact import assert_same, same_type
from tests.types.arrow_strategies import nested_types, typed_arrays

REQUIRED = pa.field("x", pa.float32(), False, {"k": "v"})


@pytest.mark.parametrize(
    "type",
    [
        pa.list_(REQUIRED, 2),
        pa.list_(pa.list_(REQUIRED, 2)),
        pa.struct([("a", pa.list_(REQUIRED, 3))]),
        pa.map_(pa.field("k", pa.string(), False), REQUIRED, True),
        pa.map_(pa.string(), pa.list_(REQUIRED, 1)),
    ],
)
def test_a_type_keeps_its_names_and_nullability(type: Any) -> None:
    assert same_type(pickle.loads(pickle.dumps(type)), type)
    assert same_type(pickle.loads(pickle.dumps(pa.schema([("c", type)]))).field("c").type, type)
    assert same_type(pickle.loads(pickle.dumps(Field(1, "c", type, True))).type, type)


@settings(max_examples=100, deadline=None)
@given(typed_arrays(nested_types()))
def test_an_array_keeps_its_type_and_values(array: Any) -> None:
    assert_same(pickle.loads(pickle.dumps(array)), array)
