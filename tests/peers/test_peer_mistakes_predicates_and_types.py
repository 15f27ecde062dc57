"""Mistakes that peers made with predicates and types (numbers as in the list of the design), each a test here."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa

import indexlake as il


def both_tiers(lake: il.Lake, name: str, data: Any, **options: Any) -> list[il.Table]:
    """The same rows hot, in blocks of each format, and half and half."""
    tables = []
    for kind in ("hot", "vortex", "parquet", "ipc", "mixed"):
        format = kind if kind in ("vortex", "parquet", "ipc") else "vortex"
        config = il.TableConfig(dump_format=format, block_row_count=3)
        t = lake.create_table(f"{name}.{kind}", data.schema, config=config, **options)
        half = data.num_rows // 2 if kind == "mixed" else data.num_rows
        t.insert(data.slice(0, half))
        if kind != "hot":
            lake.pipeline().dump(t.name)
        t.insert(data.slice(half))
        tables.append(t)
    return tables


def ids(t: il.Table, where: str, params: Any = None) -> list[int]:
    return sorted(t.scan(where, params=params, columns=["id"]).to_arrow().column(0).to_pylist())


def test_09_not_in_is_not_in(any_shared_lake: il.Lake) -> None:
    data = pa.table({"id": list(range(8)), "x": [1, 2, 3, None, 1, 2, 5, 7]})
    for t in both_tiers(any_shared_lake, "p09", data):
        assert ids(t, "x not in (1, 2)") == [2, 6, 7]
        assert ids(t, "not (x in (1, 2))") == [2, 6, 7]
        assert ids(t, "x in (1, 2)") == [0, 1, 4, 5]
        assert ids(t, "x not in (1, 2, null)") == []
        assert ids(t, "x not in $some", {"some": [1, 2]}) == [2, 6, 7]
        assert ids(t, "x not in (9)") == [0, 1, 2, 4, 5, 6, 7]


def test_10_uint64_is_stored_exactly_and_in_order(any_shared_lake: il.Lake) -> None:
    values = [0, 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1]
    data = pa.table({"id": list(range(8)), "x": pa.array(values, pa.uint64())})
    for t in both_tiers(any_shared_lake, "p10", data):
        assert [r["x"] for r in t.scan(order_by="id").to_pylist()] == values
        assert [r["x"] for r in t.scan(order_by=[("x", "desc")]).to_pylist()] == values[::-1]
        for n, x in enumerate(values):
            assert ids(t, "x = $x", {"x": x}) == [n]
            assert ids(t, "x > $x", {"x": x}) == list(range(n + 1, 8))
            assert ids(t, f"x <= {x}") == list(range(n + 1))
        assert t.scan().to_arrow().schema.field("x").type == pa.uint64()


def test_11_like_has_the_same_case_in_every_tier(any_shared_lake: il.Lake) -> None:
    texts = ["apple", "Apple", "APPLE", "apply", "é", "É", "a%c", None]
    data = pa.table({"id": list(range(8)), "s": texts})
    for t in both_tiers(any_shared_lake, "p11", data):
        assert ids(t, "s like 'app%'") == [0, 3]
        assert ids(t, "s like 'APP%'") == [2]
        assert ids(t, "s ilike 'app%'") == [0, 1, 2, 3]
        assert ids(t, "s not like 'app%'") == [1, 2, 4, 5, 6]
        assert ids(t, "s = 'apple'") == [0]
        assert ids(t, "s like 'a!%c' escape '!'") == [6]
        assert ids(t, "s ilike 'É'") == [4, 5]


def test_12_nan_does_not_spoil_pruning_by_min_and_max(any_shared_lake: il.Lake) -> None:
    values = [math.nan, 1.0, 2.0, -0.0, 0.0, math.nan, math.inf, None, -math.inf]
    for number, order in enumerate((values, values[::-1])):
        data = pa.table({"id": list(range(9)), "x": pa.array(order, pa.float64())})

        def expected(test: Any, order: Any = order) -> list[int]:
            return [n for n, x in enumerate(order) if x is not None and test(x)]

        for t in both_tiers(any_shared_lake, f"p12_{number}", data):
            assert ids(t, "x > 1.5") == expected(lambda x: math.isnan(x) or x > 1.5)
            assert ids(t, "x < 1.5") == expected(lambda x: x < 1.5)
            assert ids(t, "x >= 'nan'::double") == expected(math.isnan)
            assert ids(t, "x = $x", {"x": math.nan}) == expected(math.isnan)
            assert ids(t, "x <> $x", {"x": math.nan}) == expected(lambda x: not math.isnan(x))
            assert ids(t, "x = 0") == expected(lambda x: x == 0)
            assert ids(t, "x > 1e308") == expected(lambda x: math.isnan(x) or x == math.inf)
            assert ids(t, "x is null") == [n for n, x in enumerate(order) if x is None]


def test_13_candidates_found_by_key_are_rechecked(any_shared_lake: il.Lake) -> None:
    data = pa.table({"id": list(range(20)), "x": [n % 3 for n in range(20)], "s": [f"k{n}" for n in range(20)]})
    for t in both_tiers(any_shared_lake, "p13", data, primary_key="id"):
        assert ids(t, "id in (1, 4, 5, 6) and x = 1") == [1, 4]
        assert ids(t, "id = 5 and s = 'k6'") == []
        assert ids(t, "id = 5 and (s = 'k5' or x = 0)") == [5]
        assert ids(t, "id in (3, 4) and id in (4, 5)") == [4]
        row_ids = {r["id"]: r["_indexlake_row_id"] for r in t.scan(with_row_id=True).to_pylist()}
        assert ids(t, f"_indexlake_row_id in ({row_ids[4]}, {row_ids[5]}) and x = 1") == [4]
        assert ids(t, f"_indexlake_row_id = {row_ids[4]} and id = 5") == []
        assert t.delete("id = 7 and x = 0").rows == 0
        assert t.update({"s": "no"}, "id in (1, 2, 3) and s like 'z%'").rows == 0


def test_13_limit_and_offset_hold_when_rows_are_found_by_key(any_shared_lake: il.Lake) -> None:
    data = pa.table({"id": list(range(20)), "x": [n % 3 for n in range(20)]})
    for t in both_tiers(any_shared_lake, "p13_limit", data, primary_key="id"):
        where = "id in (2, 4, 6, 8, 10, 12, 14, 16)"
        found = t.scan(where, order_by=[("id", "desc")], limit=3, offset=2).to_pylist()
        assert [r["id"] for r in found] == [12, 10, 8]
        assert len(t.scan(where, limit=3).to_pylist()) == 3
        assert len(t.scan(where, offset=6).to_pylist()) == 2
        assert t.scan(where, limit=5, offset=6).count() == 2
        assert len(t.scan("_indexlake_row_id > 0", limit=4).to_pylist()) == 4


def test_13_bloom_filters_and_prefixes_only_name_candidates(any_shared_lake: il.Lake) -> None:
    keys = [f"{'x' * 40}{n:04}" for n in range(300)]
    data = pa.table({"id": list(range(0, 600, 2)), "k": keys})
    config = il.TableConfig(block_row_count=100, direct_write_row_count=10)
    t = any_shared_lake.create_table("p13_bloom.t", data.schema, primary_key="k", config=config)
    t.insert(data)
    for n in range(0, 300, 7):
        assert t.scan("k = $k", params={"k": keys[n]}).to_pylist() == [{"id": 2 * n, "k": keys[n]}]
        assert t.get(f"{'x' * 40}{n:04}!") is None
        assert t.scan("k = $k", params={"k": f"{'x' * 40}{n:03}"}).to_pylist() == []
