"""Primary keys: point reads and uniqueness, for every kind of key, in every tier."""

from __future__ import annotations

import datetime
import decimal
import math
import uuid
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from tests.conformance.orders import EVERYTHING, SCHEMA, content, dump, row, rows, tiered


def test_get_finds_a_row_in_every_tier(make: Any) -> None:
    t = tiered(make)
    assert [t.get(n) for n in range(1, 31)] == EVERYTHING
    assert t.get({"ID": 12}) == row(12)
    assert all(n in t for n in range(1, 31))
    for absent in (0, 31, 100, -(2**63), 2**63 - 1):
        assert t.get(absent) is None
        assert absent not in t


def test_get_many_gives_the_rows_that_exist(make: Any) -> None:
    t = tiered(make)
    found = t.get_many([3, 99, 12, 25, 3, {"id": 9}])
    assert found.schema == SCHEMA
    assert sorted(found.to_pylist(), key=lambda r: r["id"]) == rows([3, 9, 12, 25])
    assert t.get_many([]).num_rows == 0
    assert t.get_many(range(1, 31)).num_rows == 30


DAY = datetime.datetime(2026, 11, 15, 1, 2, 3, 456789)
KEYS: dict[str, tuple[Any, list[Any]]] = {
    "int8": (pa.int8(), [-128, -1, 0, 1, 127]),
    "int64": (pa.int64(), [-(2**63), -1, 0, 1, 2**63 - 1]),
    "uint64": (pa.uint64(), [0, 1, 2**63 - 1, 2**63, 2**64 - 1]),
    "string": (pa.string(), ["", "a", "A", "a\x00b", "é", "😀", "x" * 100, "x" * 101]),
    "uuid text": (pa.string(), [str(uuid.UUID(int=n * 2**121 + n)) for n in range(8)]),
    "binary": (pa.binary(), [b"", b"\x00", b"\x00\x00", b"\x00\xff", b"\xff" * 50]),
    "fixed": (pa.binary(16), [uuid.UUID(int=n).bytes for n in (0, 1, 2**64, 2**128 - 1)]),
    "double": (pa.float64(), [-math.inf, -1.5, 0.0, 5e-324, 1.5, math.inf, math.nan]),
    "float": (pa.float32(), [-math.inf, -1.5, 0.0, 1.5, math.inf, math.nan]),
    "decimal": (pa.decimal128(9, 2), [decimal.Decimal(s) for s in ("-9999999.99", "-0.01", "0.00", "12.34")]),
    "big decimal": (pa.decimal256(60, 5), [decimal.Decimal(s) for s in ("-1e50", "-0.00001", "0", "1e50")]),
    "timestamp": (pa.timestamp("us"), [datetime.datetime(1, 1, 1), DAY, datetime.datetime(9999, 1, 1)]),
    "zoned": (
        pa.timestamp("ms", "Europe/Berlin"),
        [datetime.datetime(y, 1, 1, tzinfo=datetime.UTC) for y in (1900, 2026, 2300)],
    ),
    "date": (pa.date32(), [datetime.date(1, 1, 1), datetime.date(1970, 1, 1), datetime.date(9999, 12, 31)]),
    "time": (pa.time64("us"), [datetime.time(0), datetime.time(23, 59, 59, 999999)]),
    "duration": (pa.duration("us"), [datetime.timedelta(days=-3), datetime.timedelta(0), datetime.timedelta(5)]),
    "bool": (pa.bool_(), [False, True]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["", "a", "b"]),
}


@pytest.mark.parametrize("name", list(KEYS))
@pytest.mark.formats("vortex")
def test_every_scalar_type_is_a_key(make: Any, name: str) -> None:
    type, values = KEYS[name]
    t = make(pa.schema({"k": type, "v": pa.int64()}), "k")
    half = len(values) // 2
    t.insert([{"k": k, "v": n} for n, k in enumerate(values[:half])])
    dump(t)
    t.insert([{"k": k, "v": n + half} for n, k in enumerate(values[half:])])

    def check() -> None:
        for n, k in enumerate(values):
            found = t.get(k)
            assert found is not None, k
            assert found["v"] == n
            assert repr(found["k"]) == repr(pa.scalar(k, type).as_py())
            if name != "big decimal":  # DuckDB's semantics end at 38 digits
                assert t.scan("k = $k", params={"k": k}).count() == 1
            with pytest.raises(il.DuplicateKeyError) as caught:
                t.insert({"k": k, "v": -1})
            assert repr(caught.value.key) == repr(found["k"])
        if name != "big decimal":
            assert t.get_many(values).num_rows == len(values)

    check()
    dump(t)
    check()
    assert t.update({"v": il.expr("v + 0")}, "v = 0").rows == 1
    assert t.delete("v = $v", params={"v": len(values) - 1}).rows == 1
    assert t.get(values[-1]) is None
    t.insert({"k": values[-1], "v": len(values) - 1})
    check()


@pytest.mark.formats("vortex")
def test_float_keys_are_equal_as_values_not_as_bits(make: Any) -> None:
    t = make(pa.schema({"k": pa.float64()}), "k")
    t.insert([{"k": -0.0}, {"k": -math.nan}])
    for _ in range(2):
        for same in (0.0, -0.0, math.nan, -math.nan):
            with pytest.raises(il.DuplicateKeyError):
                t.insert({"k": same})
            assert t.get(same) is not None
        dump(t)
    assert math.copysign(1, t.get(0.0)["k"]) == -1, "the value that was stored is the one that comes back"


def test_composite_keys_are_tuples_or_dicts(make: Any) -> None:
    t = make(pa.schema({"v": pa.int64(), "b": pa.string(), "a": pa.int32()}), ["a", "b"])
    keys = [(a, b) for a in (-1, 0, 7) for b in ("", "x", "x\x00", "y")]
    t.insert([{"a": a, "b": b, "v": n} for n, (a, b) in enumerate(keys[:6])])
    dump(t)
    t.insert([{"a": a, "b": b, "v": n + 6} for n, (a, b) in enumerate(keys[6:])])
    assert t.primary_key == ("a", "b")
    for _ in range(2):
        for n, (a, b) in enumerate(keys):
            assert t.get((a, b)) == {"v": n, "b": b, "a": a}
            assert t.get({"B": b, "A": a}) == {"v": n, "b": b, "a": a}
            with pytest.raises(il.DuplicateKeyError) as caught:
                t.insert({"a": a, "b": b})
            assert caught.value.key == (a, b)
        assert t.get((1, "x")) is None
        found = t.get_many([(7, "y"), (0, "x\x00"), {"a": -1, "b": ""}, (9, "z")])
        assert sorted(found.column("v").to_pylist()) == [0, 6, 11]
        dump(t)
    for wrong in (7, (7,), (7, "x", 1), {"a": 7}, {"a": 7, "b": "x", "c": 1}):
        with pytest.raises(il.ConstraintError, match=r"\(a, b\)"):
            t.get(wrong)


def test_a_duplicate_key_is_refused_in_every_tier_and_changes_nothing(lake: il.Lake, make: Any) -> None:
    t = tiered(make)
    before = lake.snapshot_id
    for taken in (2, 9, 12, 25):
        for rest in ([], rows(range(200, 205)), rows(range(200, 320))):
            with pytest.raises(il.DuplicateKeyError, match=rf"id = {taken} already exists") as caught:
                t.insert([*rest, row(taken)])
            assert (caught.value.key, caught.value.table) == (taken, t.name)
    for twice in ([row(50), row(50)], rows([*range(50, 150), 77])):
        with pytest.raises(il.DuplicateKeyError, match="is given twice"):
            t.insert(twice)
    with pytest.raises(il.DuplicateKeyError, match="id = 2 "):
        t.update({"id": 2}, "id = 25")
    with pytest.raises(il.DuplicateKeyError):
        t.update({"id": 500}, "id > 20")
    assert lake.snapshot_id == before
    assert content(t) == EVERYTHING


def test_a_key_is_free_again_after_delete_and_after_it_changed(make: Any) -> None:
    t = tiered(make)
    for n in (2, 12, 25):
        t.delete("id = $n", params={"n": n})
        t.insert({"id": n, "city": "back"})
        assert t.get(n) == {"id": n, "city": "back", "total": None}
        t.update({"id": n + 1000}, "id = $n", params={"n": n})
        assert t.get(n) is None
        t.insert(row(n))
    assert [r["id"] for r in content(t)] == [*range(1, 31), 1002, 1012, 1025]


def test_keys_are_swapped_in_one_statement(make: Any) -> None:
    t = tiered(make)
    assert t.update({"id": il.expr("31 - id")}, "true").rows == 30
    assert content(t) == [{**row(31 - n), "id": n} for n in range(1, 31)]
    dump(t)
    assert t.get(1) == {**row(30), "id": 1}


@pytest.mark.blocks_of_heap
def test_random_uuid_keys_do_not_probe_every_block(make: Any) -> None:
    import random

    source = random.Random(7)
    blocks = 12
    t = make(pa.schema({"k": pa.string(), "v": pa.int64()}), "k", direct_write_row_count=200, block_row_count=200)
    keys = [str(uuid.UUID(int=source.getrandbits(128))) for _ in range(200 * blocks)]
    t.insert(pa.table({"k": keys, "v": list(range(len(keys)))}))
    assert t.stats().blocks == blocks
    assert t.get(keys[0]) is not None
    wanted = [keys[source.randrange(len(keys))] for _ in range(20)]
    probes = [t.scan("k = $k", params={"k": k}).explain().blocks_read for k in wanted]
    assert probes == [1] * 20, "the Bloom filters turn all other blocks away"
    absent = [str(uuid.UUID(int=source.getrandbits(128))) for _ in range(100)]
    searched = sum(t.scan("k = $k", params={"k": k}).explain().blocks_read for k in absent)
    assert searched <= 100 * blocks * 0.02
    assert [t.get(k) for k in wanted] == [{"k": k, "v": keys.index(k)} for k in wanted]


def test_a_table_without_primary_key_takes_equal_rows(make: Any) -> None:
    t = make(SCHEMA)
    t.insert([row(1), row(1)])
    dump(t)
    t.insert(row(1))
    assert t.scan().to_pylist() == [row(1)] * 3
    with pytest.raises(il.SchemaError, match=r"no primary key.*scan"):
        t.get(1)
    with pytest.raises(il.SchemaError, match="no primary key"):
        t.get_many([1])


def test_wrong_keys_are_errors_that_name_the_column(make_local: Any) -> None:
    t = make_local(SCHEMA, "id")
    with pytest.raises(il.ConstraintError, match="'id'") as caught:
        t.get("one")
    assert caught.value.column == "id"
    with pytest.raises(il.ConstraintError, match="cannot be null"):
        t.get(None)
    with pytest.raises(il.ConstraintError):
        t.get(2**63)


def test_a_primary_key_must_name_columns_that_have_an_order(local_lake: il.Lake, namespace: str) -> None:
    schema = pa.schema({"id": pa.int64(), "tags": pa.list_(pa.string())})
    for key, text in [("tags", "has no order"), ("idd", "Did you mean 'id'"), (["id", "ID"], "twice")]:
        with pytest.raises(il.SchemaError, match=text):
            local_lake.create_table(f"{namespace}.t", schema, primary_key=key)
    assert f"{namespace}.t" not in local_lake.tables()
