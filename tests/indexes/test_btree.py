"""Btree indexes against a look at every row: conditions, order, nulls, merges and included columns."""

from __future__ import annotations

import pickle
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from indexlake.errors import SchemaError
from indexlake.expr import compile
from indexlake.expr.test import All, Any_, ColumnTest, Test
from indexlake.indexes.btree.kind import BTree
from indexlake.indexes.index import Index
from indexlake.indexes.keys import KeyColumn
from indexlake.indexes.registry import kind_named
from indexlake.schema import Field
from indexlake.storage import Storage
from indexlake.types.selection import take
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

KIND = BTree()
RANGES = ("<", "<=", ">", ">=")


def some_tests(field: Field, array: pa.Array, random: np.random.Generator, ops: Sequence[str]) -> list[ColumnTest]:
    """A test of each kind with values of the column; of ranges also the two-sided ones."""
    there = np.flatnonzero(np.asarray(array.is_valid()))

    def value() -> Any:
        return constant(field, array, int(random.choice(there)))

    found = []
    for op in ops:
        count = 0 if op.startswith("is") else 3 if op == "in" else 1
        found.append(ColumnTest(field.column, op, tuple(value() for _ in range(count))))  # type: ignore[arg-type]
    return found


def expected(fields: Sequence[Field], arrays: Sequence[pa.Array], tests: Sequence[ColumnTest]) -> list[int]:
    by_column = {f.column: (f, canonical(f, a)) for f, a in zip(fields, arrays, strict=True)}
    return [
        row
        for row in range(len(arrays[0]))
        if all(satisfies(by_column[t.column][0], by_column[t.column][1][row], t) for t in tests)
    ]


def check(
    segment: Any, index: Index, fields: Sequence[Field], arrays: Sequence[pa.Array], tests: list[ColumnTest]
) -> None:
    probe = KIND.probe(index, fields, All(tuple(tests)))
    assert probe is not None, tests
    assert probe.exact
    found = segment.ask(probe).slots()
    assert found.dtype == np.int64
    assert found.tolist() == expected(fields, arrays, tests), tests
    assert segment.ask(probe).count == len(found)
    in_order = [slot for part in segment.in_order(probe, descending=False, step=7) for slot in part.tolist()]
    assert sorted(in_order) == found.tolist()
    assert pickle.loads(pickle.dumps(probe)) == probe


@pytest.mark.parametrize("lasting", [True, False], ids=["lasting", "passing"])
@pytest.mark.parametrize("type", TYPES, ids=str)
def test_an_index_on_one_column_finds_what_a_look_at_every_row_finds(type: pa.DataType, lasting: bool) -> None:
    random = np.random.default_rng(1)
    (field,) = fields = fields_of([type])
    index = index_of(fields, 1)
    blocks = [[column(type, rows, random)] for rows in (50, 0, 33)]
    whole = pa.concat_arrays([pa.array(b[0]) for b in blocks]) if not pa.types.is_dictionary(type) else None
    array = (
        whole if whole is not None else pa.chunked_array([b[0] for b in blocks]).unify_dictionaries().combine_chunks()
    )
    segment = segment_of(index, fields, blocks, lasting=lasting)
    assert segment.starts == (0, 50, 50, 83)
    tests = [[t] for t in some_tests(field, array, random, ("=", "in", *RANGES * 3, "is null", "is not null"))]
    for low in (">", ">="):
        for high in ("<", "<="):
            tests += [some_tests(field, array, random, (low, high)) for _ in range(6)]
    for each in tests:
        check(segment, index, fields, [array], each)
    values = canonical(field, array)
    for descending in (False, True):
        assert KIND.orders(index, fields, [(field.column, descending)])
        parts = [part.tolist() for part in segment.in_order(None, descending, step=9)]
        assert max(map(len, parts)) <= 9
        slots = [slot for part in parts for slot in part]
        assert sorted(slots) == list(range(83))
        keys = [v for v in values if v is not None]
        ordered = sorted(keys, reverse=descending) + [None] * (83 - len(keys))
        assert [values[slot] for slot in slots] == ordered


PAIRS = [
    (pa.int64(), pa.string()),
    (pa.string(), pa.int8()),
    (pa.binary(), pa.binary()),
    (pa.uint64(), pa.int64()),
    (pa.string(), pa.float64(), pa.string()),
    (pa.bool_(), pa.uuid(), pa.int64()),
]


@pytest.mark.parametrize("nulls", [True, False], ids=["nulls", "complete"])
@pytest.mark.parametrize("types", PAIRS, ids=str)
def test_an_index_on_several_columns_answers_their_first_ones(types: tuple[pa.DataType, ...], nulls: bool) -> None:
    random = np.random.default_rng(2)
    fields = fields_of(types)
    index = index_of(fields, len(types))
    arrays = [column(type, 400, random, nulls=nulls) for type in types]
    segment = segment_of(index, fields, [arrays])
    for _ in range(6):
        for length in range(len(types) + 1):
            first = [
                some_tests(f, a, random, [random.choice(["=", "in"])])[0]
                for f, a in zip(fields[:length], arrays, strict=False)
            ]
            if first:
                check(segment, index, fields, arrays, first)
            if length < len(types):
                field, array = fields[length], arrays[length]
                for ops in (["is null"], ["is not null"], ["<"], [">="], [">", "<="], [">=", "<"], [">"], ["<="]):
                    check(segment, index, fields, arrays, first + some_tests(field, array, random, ops))


@pytest.mark.parametrize("types", PAIRS, ids=str)
def test_bounds_of_a_segment_rule_out_only_what_it_does_not_hold(types: tuple[pa.DataType, ...]) -> None:
    random = np.random.default_rng(3)
    fields = fields_of(types)
    index = index_of(fields, len(types))
    every = [column(type, 300, random) for type in types]
    ruled_out = 0
    for start in range(0, 300, 3):
        part = [a.slice(start, 3) for a in every]
        builder = KIND.builder(index, fields, lasting=True)
        builder.add(part)
        builder.end_block()
        content = builder.content()
        segment = opened(index, content)
        for ops in (["="], ["in"], [">="], ["<"], ["is null"], ["is not null"]):
            probe = KIND.probe(index, fields, All(tuple(some_tests(fields[0], every[0], random, ops))))
            assert probe is not None
            if not probe.meets(content.low, content.high):
                ruled_out += 1
                assert segment.ask(probe).slots().tolist() == []
    assert ruled_out > 20


@pytest.mark.parametrize("types", PAIRS, ids=str)
def test_several_columns_come_in_order_with_nulls_last(types: tuple[pa.DataType, ...]) -> None:
    random = np.random.default_rng(4)
    for nulls in (True, False):
        fields = fields_of(types, nullable=nulls)
        index = index_of(fields, len(types))
        arrays = [column(type, 300, random, nulls=nulls) for type in types]
        segment = segment_of(index, fields, [arrays])
        values = list(zip(*(canonical(f, a) for f, a in zip(fields, arrays, strict=True)), strict=True))

        def key(slot: int, columns: int = len(types), values: Any = values) -> list[tuple[bool, Any]]:
            return [(v is None, 0 if v is None else v) for v in values[slot][:columns]]

        def in_order(probe: Any, descending: bool, segment: Any = segment) -> list[int]:
            return [slot for part in segment.in_order(probe, descending, step=11) for slot in part.tolist()]

        slots = in_order(None, False)
        assert sorted(slots) == list(range(300))
        assert [key(s) for s in slots] == sorted(key(s) for s in range(300))
        assert in_order(None, True) == slots[::-1]
        for ops in (["="], ["in"], [">"], ["<"]):
            tests = some_tests(fields[0], arrays[0], random, ops)
            probe = KIND.probe(index, fields, All(tuple(tests)))
            found = expected(fields, arrays, tests)
            assert [key(s) for s in in_order(probe, False)] == sorted(key(s) for s in found)
            assert in_order(probe, True) == in_order(probe, False)[::-1]


def test_an_index_says_which_orders_it_can_give() -> None:
    nullable, complete = (fields_of([pa.int64(), pa.string(), pa.int64()], nullable=n) for n in (True, False))
    index = index_of(nullable, 3)
    up, down = False, True
    assert KIND.orders(index, nullable, [("f1", up), ("f2", up)])
    assert not KIND.orders(index, nullable, [("f1", up), ("f2", down)])
    assert not KIND.orders(index, nullable, [("f2", up)])
    assert not KIND.orders(index, nullable, [("f1", up), ("f3", up)])
    assert not KIND.orders(index, nullable, [("f1", down)])  # nulls would come first
    assert KIND.orders(index, complete, [("f1", down), ("f2", down), ("f3", down)])
    assert not KIND.orders(index, complete, [("f1", down), ("f2", down), ("f3", down), ("f4", down)])
    one = KIND.probe(index, nullable, ColumnTest("f1", "=", (5,)))
    two = KIND.probe(index, nullable, ColumnTest("f1", "in", (5, 6)))
    assert KIND.orders(index, nullable, [("f2", up), ("f3", up)], one)
    assert KIND.orders(index, nullable, [("f1", up), ("f2", up)], one)
    assert not KIND.orders(index, nullable, [("f2", up)], two)
    single = index_of(nullable[:1], 1)
    assert KIND.orders(single, nullable[:1], [("f1", down)])
    assert not KIND.orders(single, nullable[:1], [])
    lists = fields_of([pa.list_(pa.int64())])
    assert not KIND.orders(index_of(lists, 1), lists, [("f1", up)])


def test_rows_with_a_null_in_their_key_equal_no_other() -> None:
    fields = fields_of([pa.int64(), pa.string()])
    index = index_of(fields, 2, unique=True)
    arrays = [pa.array([1, 1, None, None, 2]), pa.array(["a", None, "a", None, "b"])]
    builder: Any = KIND.builder(index, fields, lasting=True)
    builder.add(arrays)
    builder.end_block()
    keys, slots = builder.keyed()
    assert slots.tolist() == [0, 4]
    segment = opened(index, builder.content())
    assert (len(segment), segment.unique, segment.starts) == (2, True, (0, 5))
    assert segment.keys().to_list() == keys.to_list()
    assert [segment.find(key) for key in keys] == [[0], [4]]
    assert [found.tolist() for found in segment.find_many(keys)] == [[0, 1], [0, 4]]
    assert segment.key_slots().tolist() == [0, 4]


@pytest.mark.parametrize("types", [(pa.int64(),), (pa.string(),), (pa.string(), pa.int64())], ids=str)
@pytest.mark.parametrize("included", [False, True], ids=["keys", "included"])
def test_merged_segments_answer_for_the_blocks_that_were_kept(types: tuple[pa.DataType, ...], included: bool) -> None:
    random = np.random.default_rng(5)
    more = (pa.list_(pa.string()),) if included else ()
    fields = fields_of([*types, *more])
    index = index_of(fields, len(types))

    def block(rows: int) -> list[pa.Array]:
        columns = [column(type, rows, random) for type in types]
        return [*columns, pa.array([[str(n), None] for n in range(rows)], more[0])] if included else columns

    several = [[block(n) for n in sizes] for sizes in ((40, 30, 2000), (20,), (), (0, 60))]
    inputs = [segment_of(index, fields, blocks) for blocks in several]
    for kept in ([[0, 1, 2], [0], [], [0, 1]], [[1], [], [], [1]], [[2, 0], [0], [], [1, 0]], [[], [], [], []]):
        chosen = [several[n][ordinal] for n, ordinals in enumerate(kept) for ordinal in ordinals]
        merged = opened(index, KIND.merge(index, list(zip(inputs, kept, strict=True))))
        assert list(merged.starts) == np.cumsum([0, *(len(b[0]) for b in chosen)]).tolist()
        if not chosen:
            assert len(merged) == 0
            continue
        arrays = [pa.concat_arrays(parts) for parts in zip(*chosen, strict=True)]
        for op in ("=", "in", "<", ">=", "is null", "is not null"):
            check(merged, index, fields, arrays, some_tests(fields[0], arrays[0], random, [op]))
        slots = [slot for part in merged.in_order(None, descending=False) for slot in part.tolist()]
        assert sorted(slots) == list(range(merged.starts[-1]))
        fresh = segment_of(index, fields, chosen)
        assert merged.keys().to_list() == fresh.keys().to_list()
        assert merged.key_slots().tolist() == fresh.key_slots().tolist()
        if included:
            wanted = random.permutation(merged.starts[-1])[:50]
            (rows,) = merged.rows(wanted)
            assert rows.columns == [a.take(pa.array(wanted)) for a in arrays]


@pytest.mark.parametrize("type", [t for t in TYPES if t != pa.string_view()], ids=str)
@pytest.mark.parametrize("make", [pa.list_, pa.large_list, lambda t: pa.list_(t, 2)], ids=["list", "large", "fixed"])
def test_an_index_on_a_list_finds_the_rows_that_hold_an_element(type: pa.DataType, make: Any) -> None:
    random = np.random.default_rng(6)
    (field,) = fields = fields_of([make(type)])
    index = index_of(fields, 1)
    values = column(type, 120, random)
    if pa.types.is_fixed_size_list(field.type):
        lists = pa.FixedSizeListArray.from_arrays(
            values, type=field.type, mask=pa.array([n % 7 == 0 for n in range(60)])
        )
    else:
        cuts = sorted(random.integers(0, 121, 59).tolist())
        offsets = [None if n % 7 == 0 else cut for n, cut in enumerate([0, *cuts])] + [120]
        kind = pa.LargeListArray if pa.types.is_large_list(field.type) else pa.ListArray
        size = pa.int64() if kind is pa.LargeListArray else pa.int32()
        lists = kind.from_arrays(pa.array(offsets, size), values, type=field.type)
    part = fields_of([type])[0]
    rows = [[] if not row.is_valid else canonical(part, row.values) for row in lists]
    segment = segment_of(index, fields, [[lists.slice(0, 40)], [lists.slice(40)]])
    merged = opened(index, KIND.merge(index, [(segment, [1, 0])]))
    for row in np.flatnonzero(np.asarray(values.is_valid())).tolist()[:20]:
        test = ColumnTest(field.column, "contains", (constant(part, values, row),))
        probe = KIND.probe(index, fields, All((test, ColumnTest("f9", "=", (1,)))))
        assert probe is not None
        sought = canonical(part, values.slice(row, 1))[0]
        found = [n for n, listed in enumerate(rows) if sought in listed]
        assert segment.ask(probe).slots().tolist() == found
        assert segment.ask(probe).count == len(found)
        moved = sorted(n - 40 if n >= 40 else n + 20 for n in found)
        assert merged.ask(probe).slots().tolist() == moved
    for op in ("is null", "is not null", "="):
        assert KIND.probe(index, fields, ColumnTest(field.column, op, ([1],))) is None


INCLUDED = {
    "floats": pa.array([0.0, -0.0, float("nan"), None], pa.float64()),
    "texts": pa.array(["x", None, "", "y" * 300], pa.string_view()),
    "structs": pa.array([{"a": 1, "b": [1.5, None]}, None, {"a": None, "b": None}, {"a": 3, "b": []}]),
    "dictionary": pa.array(["p", None, "q", "p"]).dictionary_encode(),
    "uuids": pa.array([b"\0" * 16, None, b"a" * 16, b"b" * 16], pa.uuid()),
    "nested dictionary": pa.array([["p"], None, ["q", "p"], []], pa.list_(pa.dictionary(pa.int32(), pa.string()))),
}


@pytest.mark.parametrize("name", INCLUDED)
def test_included_columns_come_back_to_the_bit(name: str) -> None:
    more = INCLUDED[name]
    fields = fields_of([pa.float64(), more.type])
    index = index_of(fields, 1)
    keys = pa.array([-0.0, None, 0.0, float("nan")])
    thousand = pa.array(np.arange(1000) % 4)
    segment = segment_of(index, fields, [[keys.take(thousand), take(more, thousand)]] * 3)
    for wanted in ([0], [2999, 5, 5, 1023, 1024, 2048], [], list(range(3000))):
        batches = segment.rows(np.array(wanted, np.int64))
        assert all(b.schema == pa.schema([("f1", pa.float64()), ("f2", more.type)]) for b in batches)
        found = pa.Table.from_batches(batches)
        for slot, key, value in list(zip(wanted, found.column(0), found.column(1), strict=True))[:50]:
            for given, array in ((key, keys), (value, more)):
                one = array.slice(slot % 4, 1)
                assert repr(given.as_py()) == repr(one[0].as_py())


def test_a_dictionary_that_cannot_number_all_values_comes_in_several_batches() -> None:
    type = pa.dictionary(pa.int8(), pa.string())
    fields = fields_of([pa.int64(), type])
    index = index_of(fields, 1)
    parts = [pa.array([f"{n}-{m}" for m in range(100)]).cast(type) for n in range(5)]
    segment = segment_of(index, fields, [[pa.array(range(100)), part] for part in parts])
    batches = segment.rows(np.arange(500))
    assert len(batches) > 1
    assert [v for b in batches for v in b.column(1).to_pylist()] == [v for part in parts for v in part.to_pylist()]


def test_what_a_condition_does_not_say_is_not_looked_up() -> None:
    fields = fields_of([pa.int8(), pa.string()])
    index = index_of(fields, 2)
    nothing: list[Test] = [
        All(()),
        Any_(()),
        ColumnTest("f2", "=", ("a",)),
        ColumnTest("f9", "=", (1,)),
        ColumnTest("f1", "=", (1000,)),  # the column cannot hold it
        ColumnTest("f1", "contains", (1,)),
        Any_((ColumnTest("f1", "=", (1,)), ColumnTest("f1", "=", (2,)))),
    ]
    for test in nothing:
        assert KIND.probe(index, fields, test) is None
    many = ColumnTest("f2", "in", tuple(str(n) for n in range(5000)))
    probe = KIND.probe(index, fields, All((ColumnTest("f1", "in", (1, 2)), many)))
    assert probe is not None
    assert len(probe.keys) == 10_000
    probe = KIND.probe(index, fields, All((ColumnTest("f1", "in", (1, 2, 3)), many)))
    assert probe is not None
    assert (probe.keys, len(probe.ranges)) == ((), 3)
    never = KIND.probe(index, fields, All((ColumnTest("f1", "=", (None,)), ColumnTest("f2", "=", ("a",)))))
    assert never is not None
    segment = segment_of(index, fields, [[pa.array([None, 1], pa.int8()), pa.array(["a", "a"])]])
    assert segment.ask(never).slots().tolist() == []


def test_many_prefixes_are_looked_up_at_once() -> None:
    fields = fields_of([pa.int64(), pa.int64()])
    index = index_of(fields, 2)
    rows = [2**63 - 1, *range(3000), None]
    segment = segment_of(index, fields, [[pa.array(rows, pa.int64()), pa.array([None, *range(3001)])]])
    sought = (2**63 - 1, *range(0, 4000, 2))
    probe = KIND.probe(index, fields, ColumnTest("f1", "in", sought))
    assert probe is not None
    found = [n for n, row in enumerate(rows) if row in set(sought)]
    assert segment.ask(probe).slots().tolist() == found
    assert segment.ask(probe).count == len(found)
    probe = KIND.probe(index, fields, All((ColumnTest("f1", "in", sought), ColumnTest("f2", "=", (0,)))))
    assert probe is not None
    assert (segment.ask(probe).slots().tolist(), segment.ask(probe).count) == ([1], 1)


def test_a_probe_prints_what_it_looks_up() -> None:
    fields = fields_of([pa.string(), pa.float64(), pa.timestamp("us")])
    index = index_of(fields, 3)

    def text(*tests: ColumnTest) -> str:
        return str(KIND.probe(index, fields, All(tests)))

    rome = ColumnTest("f1", "=", ("Ro'me",))
    assert (
        text(rome, ColumnTest("f2", ">=", (3,)), ColumnTest("f2", "<", (4,)))
        == "c1 = 'Ro''me' and c2 >= 3.0 and c2 < 4.0"
    )
    assert text(rome, ColumnTest("f2", "is null")) == "c1 = 'Ro''me' and c2 is null"
    assert text(ColumnTest("f1", "in", ("a", "b"))) == "c1 in ('a', 'b')"
    assert text(ColumnTest("f1", "in", tuple(map(str, range(1200))))) == "c1 in (1,200 values)"
    assert text(ColumnTest("f1", "is not null")) == "c1 is not null"
    whole = text(rome, ColumnTest("f2", "=", (1,)), ColumnTest("f3", "=", (1_577_880_000_000_000,)))
    assert whole == "c1 = 'Ro''me' and c2 = 1.0 and c3 = '2020-01-01 12:00:00'"
    lists = fields_of([pa.list_(pa.string())])
    assert str(KIND.probe(index_of(lists, 1), lists, ColumnTest("f1", "contains", ("x" * 50,)))) == (
        "c1 contains '" + "x" * 37 + "...'"
    )


def test_definitions_that_make_no_sense_are_refused() -> None:
    text, number, listed, nested, matrix = fields_of(
        [pa.string(), pa.int64(), pa.list_(pa.int8()), pa.struct([("a", pa.int8())]), pa.list_(pa.list_(pa.int8()))]
    )
    assert KIND.define([text, number], [nested, listed], True, {}) == {}
    assert KIND.define([listed], [], False, {}) == {}
    for keys, include, unique, params, message in (
        ([nested], [], False, {}, r"'c4' is of type struct<a: int8>, whose values have no order"),
        ([text], [], False, {"fill": 3}, r"An index of kind btree has no parameter 'fill'; it has none\."),
        ([listed], [], True, {}, "cannot be unique"),
        ([listed], [text], False, {}, "cannot include further columns"),
        ([text, listed], [], False, {}, "'c3' is a list"),
        ([matrix], [], False, {}, "its elements have no order"),
    ):
        with pytest.raises(SchemaError, match=message):
            KIND.define(keys, include, unique, params)
    assert KIND.hot_fields([text, number]) == [text, number]
    assert KIND.hot_fields([listed]) == ()


CONTAINS = {
    "list_contains(i, 5)": ("i", 5),
    "array_contains(t, 'a')": ("t", "a"),
    "list_has(f, 1)": ("f", 1.0),
    "contains(t, 'a')": ("t", "a"),
    "'a' in t": ("t", "a"),
    "list_contains(d, date '2020-01-01')": ("d", 18262),
}


@pytest.mark.parametrize("text", CONTAINS)
def test_a_predicate_on_an_element_gives_a_test_that_an_index_answers(text: str) -> None:
    name, value = CONTAINS[text]
    types = {"i": pa.list_(pa.int32()), "t": pa.large_list(pa.string()), "f": pa.list_(pa.float64(), 2)}
    schema = pa.schema({**types, "d": pa.list_(pa.date32())})
    assert compile(text, schema).test() == ColumnTest(name, "contains", (value,))
    assert compile(f"not ({text})", schema).test() == ColumnTest(name, "is not null")


def test_an_element_of_another_type_is_not_looked_up() -> None:
    schema = pa.schema({"i": pa.list_(pa.int32())})
    assert compile("list_contains(i, 5000000000)", schema).test() == ColumnTest("i", "is not null")
    assert compile("list_contains(i, null)", schema).test() == Any_(())


def test_keys_of_many_rows_are_sorted_stably_however_wide_they_are() -> None:
    random = np.random.default_rng(7)
    words = random.integers(0, 2**63, 5000).astype(np.uint64)
    for keys in (
        words,
        words >> np.uint64(58),
        words & np.uint64(0xFFFF0000000000FF),
        np.where(words % 2 > 0, words, 7),
    ):
        order = KeyColumn(ints=keys.astype(np.uint64)).argsort()
        assert order.tolist() == np.argsort(keys, kind="stable").tolist()


@pytest.mark.parametrize(
    ("types", "keys"),
    [
        *(((type,), 1) for type in (pa.int64(), pa.string(), pa.bool_(), pa.binary(4), pa.list_(pa.string()))),
        ((pa.string(), pa.int64()), 2),
        ((pa.int64(), pa.string(), pa.float64()), 2),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["btree", "hash"])
def test_a_segment_is_the_same_to_the_byte_if_its_blocks_were_put_aside(
    types: tuple[pa.DataType, ...], keys: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs are merged a few keys at a time, and one key has more rows than are merged at once."""
    if kind == "hash" and (keys < len(types) or pa.types.is_nested(types[0])):
        pytest.skip("a hash index has no included columns and no lists")
    random = np.random.default_rng(8)
    fields = fields_of(types)
    index = index_of(fields, keys, kind)

    def values(type: pa.DataType, rows: int) -> pa.Array:
        if pa.types.is_list(type):
            made = column(pa.string(), 3 * rows, random)
            return pa.ListArray.from_arrays(pa.array(range(0, 3 * rows + 1, 3), pa.int32()), made)
        return column(type, rows, random)

    blocks = [[values(type, rows) for type in types] for rows in (300, 0, 5, 700, 1, 400, 1200)]

    def content() -> tuple[bytes, bytes, bytes]:
        builder = kind_named(kind).builder(index, fields, lasting=True)
        for block in blocks:
            half = len(block[0]) // 2
            builder.add([array.slice(0, half) for array in block])
            builder.add([array.slice(half) for array in block])
            builder.end_block()
        made = builder.content()
        return b"".join(bytes(piece) for piece in made.pieces), made.low, made.high

    whole = content()
    monkeypatch.setattr("indexlake.indexes.btree.builder.RUN_BYTES", 2000)
    for size in (200, 3000, 1 << 20):
        monkeypatch.setattr("indexlake.indexes.btree.merge.BATCH_BYTES", size)
        monkeypatch.setattr("indexlake.indexes.spool.IN_MEMORY", size)
        assert content() == whole


@pytest.mark.parametrize(
    ("rows", "length", "many"),
    [(5_000, 20, 40), (80, 2_000, 120)],
    ids=["short", "long"],
)
def test_the_memory_of_a_build_does_not_grow_with_its_blocks(
    rows: int, length: int, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long keys are sampled and merged a few at a time."""
    monkeypatch.setattr("indexlake.indexes.btree.builder.RUN_BYTES", 1 << 19)
    monkeypatch.setattr("indexlake.indexes.btree.merge.BATCH_BYTES", 1 << 17)
    monkeypatch.setattr("indexlake.indexes.btree.bloom._PIECE_BLOCKS", 1 << 10)
    monkeypatch.setattr("indexlake.indexes.btree.run_writer._ROWS", 1 << 13)
    monkeypatch.setattr("indexlake.indexes.spool.IN_MEMORY", 1 << 16)
    random = np.random.default_rng(9)
    fields = fields_of([pa.string()])
    index = index_of(fields, 1)
    peaks = []
    for blocks in (many // 10, many):
        drawn = random.integers(0, 1 << 60, (blocks, rows)).tolist()
        arrays = [pa.array([str(n).ljust(length, "x") for n in some]) for some in drawn]
        arrow = pa.total_allocated_bytes()
        tracemalloc.start()
        builder = KIND.builder(index, fields, lasting=True)
        held = 0
        for array in arrays:
            builder.add([array])
            builder.end_block()
            held = max(held, pa.total_allocated_bytes() - arrow)
        for _ in builder.content().pieces:
            held = max(held, pa.total_allocated_bytes() - arrow)
        peaks.append(tracemalloc.get_traced_memory()[1] + held)
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


def test_what_was_read_of_files_is_let_go_while_they_are_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("indexlake.indexes.btree.merge.BATCH_BYTES", 500)
    random = np.random.default_rng(10)
    fields = fields_of([pa.string()])
    index = index_of(fields, 1)
    blocks = [[pa.array(random.integers(0, 1000, 600).astype("U8"))] for _ in range(3)]
    inputs = []
    for n, block in enumerate(blocks):
        builder = KIND.builder(index, fields, lasting=True)
        builder.add(block)
        builder.end_block()
        inputs.append((opened(index, builder.content(), Storage.open(str(tmp_path / str(n)))), [0]))
    merged, fresh = opened(index, KIND.merge(index, inputs)), segment_of(index, fields, blocks)
    assert merged.keys().to_list() == fresh.keys().to_list()
    assert merged.key_slots().tolist() == fresh.key_slots().tolist()
    for (segment, _), (block,) in zip(inputs, blocks, strict=True):
        assert segment.keys().to_list() == sorted(value.as_py().encode() for value in block)
