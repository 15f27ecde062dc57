"""HUGEINT as Arrow data: which arrays hold a number of 39 digits, and the wider decimal that holds them all."""

from __future__ import annotations

import pickle
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from indexlake.errors import ConstraintError
from indexlake.types import HUGEINTS, codec_for, codec_of
from indexlake.types.convert import convert
from indexlake.types.hugeint import HELD_AS, LEAST, MARK, MOST, WIDE
from indexlake.types.outside import any_outside, in_arrow

EDGES = [MOST, LEAST, 10**38, -(10**38), 10**38 - 1, 1 - 10**38, 2**126, -(2**126), 0, None]


def array_of(values: list[Any], garbage: int = LEAST) -> Any:
    """Return the numbers as an array, with some number below its nulls."""
    data = b"".join((garbage if v is None else v).to_bytes(16, "little", signed=True) for v in values)
    bits = np.packbits([v is not None for v in values], bitorder="little").tobytes()
    return pa.Array.from_buffers(HELD_AS, len(values), [pa.py_buffer(bits), pa.py_buffer(data)])


def test_numbers_of_39_digits_are_found_wherever_they_are() -> None:
    rng = random.Random(11)
    for _ in range(500):
        values = [None if (v := rng.choice(EDGES)) is None else min(max(v + rng.randrange(-2, 3), LEAST), MOST)
                  for _ in range(rng.randrange(1, 6))]  # fmt: skip
        start = rng.randrange(len(values) + 1)
        array, kept = array_of(values)[start:], values[start:]
        found = any(v is not None and abs(v) >= 10**38 for v in kept)
        lists = pa.ListArray.from_arrays(pa.array([0, len(array)], pa.int32()), array)
        for each in (array, lists, pa.StructArray.from_arrays([array], ["a"]), pa.chunked_array([array[:0], array])):
            assert any_outside(each, in_arrow) == found, kept
        assert convert(array, WIDE).to_pylist() == kept
        assert convert(convert(array, WIDE), HELD_AS).to_pylist() == kept


def test_the_codec_of_a_column_keeps_every_number_in_order() -> None:
    codec = codec_of(pa.field("h", HELD_AS, metadata=MARK))
    assert codec is HUGEINTS and codec_of(pa.field("d", HELD_AS)) is codec_for(HELD_AS)  # noqa: PT018
    values = sorted(v for v in EDGES if v is not None)
    encoded = [codec.encode_one(v) for v in values]
    assert encoded == sorted(encoded) == codec.encode(array_of(values))
    assert codec.decode(encoded).to_pylist() == codec.array([Decimal(v) for v in values]).to_pylist() == values
    assert [codec.encode_one(scalar) for scalar in array_of(values)] == encoded
    assert pickle.loads(pickle.dumps(codec)).encode_one(MOST) == codec.encode_one(MOST)
    for wrong in (MOST + 1, LEAST - 1, Decimal(MOST + 1), Decimal("1e400"), Decimal("0.1"), 1.5, True):
        with pytest.raises(ConstraintError):
            codec.encode_one(wrong)
    with pytest.raises(ConstraintError, match="38 digits"):
        codec_for(HELD_AS).encode_one(10**38)
