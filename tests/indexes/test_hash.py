"""Hash indexes against a look at every row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from indexlake.errors import SchemaError
from indexlake.expr.test import All, ColumnTest
from indexlake.indexes.hash.kind import HashIndex
from tests.indexes.index_rows import (
    TYPES,
    canonical,
    column,
    constant,
    fields_of,
    index_of,
    opened,
    satisfies,
    segment_of,
)

KIND = HashIndex()


@pytest.mark.parametrize("type", TYPES, ids=str)
def test_every_row_with_one_of_the_values_is_found(type: pa.DataType) -> None:
    random = np.random.default_rng(1)
    (field,) = fields = fields_of([type])
    index = index_of(fields, 1, "hash")
    array = column(type, 90, random)
    segment = segment_of(index, fields, [[array.slice(0, 50)], [array.slice(50)]])
    merged = opened(index, KIND.merge(index, [(segment, [1]), (segment, [0])]))
    values = canonical(field, array)
    there = np.flatnonzero(np.asarray(array.is_valid())).tolist()
    sought = [constant(field, array, row) for row in there]
    tests = [ColumnTest("f1", "=", (value,)) for value in sought[:10]]
    tests += [ColumnTest("f1", "in", tuple(sought[n : n + 3])) for n in range(5)] + [ColumnTest("f1", "is null")]
    for test in tests:
        probe = KIND.probe(index, fields, test)
        assert probe is not None
        assert probe.exact == (test.op == "is null")
        found = [n for n, value in enumerate(values) if satisfies(field, value, test)]
        assert segment.ask(probe).slots().tolist() == found
        assert segment.ask(probe).count == len(found)
        assert merged.ask(probe).slots().tolist() == sorted(n - 50 if n >= 50 else n + 40 for n in found)


def test_all_columns_have_to_be_named() -> None:
    fields = fields_of([pa.string(), pa.int64()])
    index = index_of(fields, 2, "hash")
    arrays = [pa.array(["a", "a", None, "b"]), pa.array([1, None, 1, 1])]
    segment = segment_of(index, fields, [arrays])
    both = KIND.probe(index, fields, All((ColumnTest("f1", "in", ("a", "b")), ColumnTest("f2", "=", (1,)))))
    assert both is not None
    assert str(both) == "c1 in ('a', 'b') and c2 = 1"
    assert segment.ask(both).slots().tolist() == [0, 3]
    for test in (
        ColumnTest("f1", "=", ("a",)),
        All((ColumnTest("f1", "=", ("a",)), ColumnTest("f2", ">", (1,)))),
        All((ColumnTest("f1", "=", ("a",)), ColumnTest("f2", "is null"))),
        ColumnTest("f1", "is null"),
    ):
        assert KIND.probe(index, fields, test) is None


def test_a_row_takes_twelve_bytes_however_long_its_key() -> None:
    fields = fields_of([pa.string()])
    index = index_of(fields, 1, "hash")
    builder = KIND.builder(index, fields, lasting=True)
    builder.add([pa.array([f"{n}" * 100 for n in range(10_000)])])
    builder.end_block()
    assert sum(len(piece) for piece in builder.content().pieces) < 12.2 * 10_000


def test_what_it_cannot_do_is_refused() -> None:
    text, listed = fields_of([pa.string(), pa.list_(pa.int8())])
    assert KIND.define([text], [], False, {}) == {}
    for keys, include, unique, params, message in (
        ([listed], [], False, {}, "which a hash index cannot look up"),
        ([text], [listed], False, {}, "cannot include further columns"),
        ([text], [], True, {}, "cannot be unique"),
        ([text], [], False, {"size": 1}, "no parameter 'size'"),
    ):
        with pytest.raises(SchemaError, match=message):
            KIND.define(keys, include, unique, params)
    assert list(KIND.hot_fields([text])) == [text]
