"""Many composite keys at once: what ``get`` finds one by one, in one plan."""

from __future__ import annotations

import math
import random
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il

SCHEMA = pa.schema({"v": pa.int64(), "b": pa.string(), "a": pa.int32()})


def row(n: int) -> dict[str, Any]:
    return {"v": n, "b": f"b{n % 7}", "a": n}


def key(n: int) -> tuple[int, str]:
    return n, f"b{n % 7}"


def test_rows_of_every_tier_are_found_at_every_snapshot(any_lake: il.Lake) -> None:
    config = il.TableConfig(direct_write_row_count=100, block_row_count=60)
    t = any_lake.create_table("t", SCHEMA, ["a", "b"], config=config)
    t.insert([row(n) for n in range(80)])
    t.update({"v": -1}, "a % 10 = 1")
    any_lake.pipeline().dump("t")
    t.insert(pa.Table.from_pylist([row(n) for n in range(80, 230)], SCHEMA))
    t.delete("a % 10 = 2")
    t.insert([row(n) for n in range(230, 260)])
    t.update({"v": -2}, "a % 10 = 3")
    t.update({"b": "moved"}, "a % 10 = 4")
    last = any_lake.snapshot_id
    chance = random.Random(1)
    for snapshot in range(2, last + 1):
        view = t.at(snapshot)
        numbers = [chance.randrange(300) for _ in range(60)]
        keys: list[Any] = [key(n) for n in numbers] + [(n, "moved") for n in numbers[:20]]
        wanted = {(r["a"], r["b"]): r for k in keys if (r := view.get(k)) is not None}
        found = view.get_many([*keys, {"A": 1, "b": "b1"}, *keys[:5]]).to_pylist()
        if (one := view.get((1, "b1"))) is not None:
            wanted[1, "b1"] = one
        assert {(r["a"], r["b"]): r for r in found} == wanted
        assert len(found) == len(wanted)


def test_a_transaction_sees_its_own_rows(any_lake: il.Lake) -> None:
    t = any_lake.create_table("t", SCHEMA, ["a", "b"], config=il.TableConfig(direct_write_row_count=20))
    t.insert([row(n) for n in range(10)])
    any_lake.pipeline().dump("t")
    t.insert([row(n) for n in range(10, 15)])
    keys = [key(n) for n in range(60)]
    with any_lake.transaction() as tx:
        inside = tx.table("t")
        inside.delete("a in (1, 11)")
        inside.update({"v": 0}, "a in (2, 12)")
        inside.insert(row(20))
        inside.insert(pa.Table.from_pylist([row(n) for n in range(30, 55)], SCHEMA))
        inside.delete("a = 40")
        wanted = [r for k in keys if (r := inside.get(k)) is not None]
        assert sorted(inside.get_many(keys).to_pylist(), key=lambda r: r["a"]) == wanted
        assert len(t.get_many(keys)) == 15
        inside.truncate()
        inside.insert(row(3))
        assert inside.get_many(keys).to_pylist() == [row(3)]


def test_floats_in_keys_are_compared_by_value(any_lake: il.Lake) -> None:
    t = any_lake.create_table("t", pa.schema({"x": pa.float64(), "s": pa.string(), "v": pa.int32()}), ["x", "s"])
    t.insert([{"x": -0.0, "s": "", "v": 1}, {"x": math.nan, "s": "n", "v": 2}, {"x": 1.5, "s": "x", "v": 3}])
    for _ in range(2):
        found = t.get_many([(0.0, ""), (-math.nan, "n"), (1.5, "y"), (None, "x"), (1.5, None)])
        assert sorted(found.column("v").to_pylist()) == [1, 2]
        any_lake.pipeline().dump("t")


def test_wrong_keys_are_errors_and_none_are_no_rows(any_lake: il.Lake) -> None:
    t = any_lake.create_table("t", SCHEMA, ["a", "b"])
    t.insert(row(1))
    assert t.get_many([]).schema == t.schema
    assert t.get_many([(5, "x")]).schema == t.schema
    assert t.get_many([(5, "x")]).num_rows == 0
    assert t.get_many([(None, "x")]).num_rows == 0
    for wrong in (7, (7,), (1, "b", 2), {"a": 1}):
        with pytest.raises(il.ConstraintError, match=r"\(a, b\)"):
            t.get_many([(1, "b1"), wrong])
    with pytest.raises(il.ConstraintError, match="'a'"):
        t.get_many([("text", "b1")])


def test_all_keys_are_read_in_one_transaction(any_lake: il.Lake) -> None:
    t = any_lake.create_table("t", SCHEMA, ["a", "b"])
    t.insert([row(n) for n in range(2000)])
    any_lake.pipeline().dump("t")
    t.insert([row(n) for n in range(2000, 2500)])
    t.get_many([key(0)])  # the checksums of a file are read when it is opened
    reads: list[None] = []
    read = any_lake.catalog.read
    any_lake.catalog.read = lambda: (reads.append(None), read())[1]  # type: ignore[method-assign]
    assert len(t.get_many([key(n) for n in range(0, 2500, 2)])) == 1250
    assert len(reads) <= 2  # the schema, and all the rows
