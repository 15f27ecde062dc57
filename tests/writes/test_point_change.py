"""Changes of one row by primary key or through an index have a way of their own; it does what the general one does."""

from __future__ import annotations

import gc
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import indexlake as il
from indexlake.commit.write_set import TableWrites

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("name", pa.string()),
        pa.field("n", pa.int32()),
        pa.field("x", pa.float64()),
        pa.field("at", pa.timestamp("ns")),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("must", pa.int64(), False),
    ]
)
NAN = float("nan")


def _row(n: int) -> dict[str, Any]:
    x = [0.5 * n, -0.0, NAN, None, float("inf")][n % 5]
    tags = None if n % 3 == 0 else [str(n), None]
    return {
        "id": n,
        "name": f"n{n}",
        "n": n % 7,
        "x": x,
        "at": np.datetime64(n * 1_000_000_007, "ns"),
        "tags": tags,
        "must": n,
    }


def _tables(folder: Path, rows: int) -> tuple[il.Lake, il.Table, il.Table]:
    """Two tables with the same rows: the older half in a block, the rest hot."""
    lake = il.connect(str(folder), automatic=False)
    tables = []
    for name in ("point", "general"):
        table = lake.create_table(name, SCHEMA, primary_key="id")
        table.insert([_row(n) for n in range(rows // 2)])
        lake.pipeline().dump(name)
        table.insert([_row(n) for n in range(rows // 2, rows)])
        tables.append(table)
    return lake, tables[0], tables[1]


def _outcome(change: Any, *given: Any) -> Any:
    try:
        return change(*given).rows
    except il.IndexLakeError as error:
        return type(error)


def _content(table: il.Table) -> list[dict[str, Any]]:
    return [{k: repr(v) for k, v in row.items()} for row in table.scan(order_by=[("id", "asc")]).to_pylist()]


REST = [
    "",
    " and n > 2",
    " and x is null",
    " and name like 'n1%'",
    " and at is not null",
    " and tags is null",
    " and x = 0",
]
SETS: list[dict[str, Any]] = [
    {"x": 3.0},
    {"name": None, "n": 5},
    {"x": il.expr("x + n")},
    {"n": il.expr("n + 0.6")},
    {"name": il.expr("name || '!'")},
    {"at": il.expr("at")},
    {"tags": ["a"]},
    {"x": il.expr("case when x is null then 1.5 end")},
    {"must": None},
    {"must": il.expr("nullif(n, 3)")},
    {"n": il.expr("n * 1000000000")},
    {"n": 2**40},
    {"nothing": 1},
    {"id": il.expr("id + 1000")},
    {"id": 3},
]


@pytest.mark.parametrize("column", ["id", "must"])
def test_a_change_by_key_does_what_the_same_change_by_range_does(tmp_path: Path, column: str) -> None:
    lake, point, general = _tables(tmp_path / "lake", 60)
    pick = random.Random(20)
    with lake:
        if column != "id":
            point.create_index("by_column", column)
            found = point.scan(f"{column} = 7").explain()
            assert (found.found_by, found.rows_in_blocks, found.hot_rows) == ("by_column", 1, 0)
        for _ in range(100):
            key, rest = pick.randrange(65), pick.choice(REST)
            params = {"k": key}
            by_key, by_range = f"{column} = $k{rest}", f"{column} >= $k and {column} <= $k{rest}"
            if pick.random() < 0.2:
                done = _outcome(point.delete, by_key, params), _outcome(general.delete, by_range, params)
            else:
                new = pick.choice(SETS)
                done = (
                    _outcome(point.update, new, by_key, params),
                    _outcome(general.update, new, by_range, params),
                )
            assert done[0] == done[1], (by_key, params)
        assert _content(point) == _content(general)
        assert len(point) == len(general)


def test_a_row_keeps_its_row_id_when_it_is_changed_by_key(tmp_path: Path) -> None:
    lake, table, _ = _tables(tmp_path / "lake", 10)
    with lake:
        before = table.scan(columns=["id"], with_row_id=True).to_pylist()
        for n in range(10):
            assert table.update({"name": "new"}, "id = $1", params=[n]).updated == 1
        after = table.scan(columns=["id"], with_row_id=True).to_pylist()
        assert {r["id"]: r["_indexlake_row_id"] for r in before} == {r["id"]: r["_indexlake_row_id"] for r in after}


def test_a_change_by_key_sees_what_its_own_transaction_wrote(tmp_path: Path) -> None:
    lake, table, _ = _tables(tmp_path / "lake", 10)
    with lake:
        with lake.transaction() as tx:
            mine = tx.table("point")
            assert mine.update({"n": 100}, "id = 1").rows == 1
            assert mine.update({"n": il.expr("n + 1")}, "id = 1").rows == 1
            assert mine.delete("id = 2").rows == 1
            assert mine.update({"n": 0}, "id = 2").rows == 0
            mine.insert(_row(50))
            assert mine.update({"n": 7}, "id = 50").rows == 1
        assert (table.get(1) or {})["n"] == 101
        assert table.get(2) is None
        assert (table.get(50) or {})["n"] == 7


def test_two_transactions_that_change_one_row_by_key_conflict(tmp_path: Path) -> None:
    lake, table, _ = _tables(tmp_path / "lake", 10)
    with lake:
        for key in (1, 8):  # in a block, and hot
            tx = lake.transaction()
            tx.table("point").update({"n": 1}, "id = $k", params={"k": key})
            table.update({"n": 2}, "id = $k", params={"k": key})
            with pytest.raises(il.ConflictError):
                tx.commit()
            assert (table.get(key) or {})["n"] == 2


def test_a_transaction_changes_the_row_that_it_reads_and_not_a_newer_one(tmp_path: Path) -> None:
    lake, table, _ = _tables(tmp_path / "lake", 10)
    with lake:
        tx = lake.transaction()
        table.insert(_row(77))
        assert tx.table("point").update({"n": 1}, "id = 77").rows == 0
        assert tx.table("point").delete("id = 77").rows == 0
        tx.commit()
        assert table.get(77) is not None


@pytest.mark.parametrize("format", ["vortex", "parquet", "ipc"])
def test_a_composite_key_of_floats_and_text_is_found_in_every_format(tmp_path: Path, format: str) -> None:
    schema = pa.schema([("a", pa.float64()), ("b", pa.string()), ("v", pa.decimal128(20, 3))])
    with il.connect(str(tmp_path / "lake"), automatic=False) as lake:
        config = il.TableConfig(dump_format=format)
        table = lake.create_table("t", schema, primary_key=["a", "b"], config=config)
        table.insert([{"a": a, "b": b, "v": None} for a in (-0.0, 1.5, NAN) for b in ("", "x\x00y")])
        lake.pipeline().dump("t")
        for a in (0.0, 1.5, NAN):
            found = table.update({"v": il.expr("1.25")}, "a = $a and b = $b", params={"a": a, "b": "x\x00y"})
            assert found.rows == 1
            assert table.delete("b = $b and a = $a", params={"a": a, "b": ""}).rows == 1
        assert [str(r["v"]) for r in table.scan().to_pylist()] == ["1.250"] * 3
        assert "-0.0" in [repr(r["a"]) for r in table.scan().to_pylist()]


@pytest.mark.parametrize("hot", ["inline", "memory"])
def test_a_change_leaves_nothing_to_the_garbage_collector(tmp_path: Path, hot: str) -> None:
    with il.connect(str(tmp_path), automatic=False, hot=hot) as lake:
        table = lake.create_table("t", SCHEMA, primary_key="id")
        gc.collect()
        gc.disable()
        try:
            table.insert(_row(1))
            table.update({"n": 5}, "id = $id", params={"id": 1})
            table.upsert(_row(1))
            table.delete("id = $id", params={"id": 1})
            assert [each for each in gc.get_objects() if type(each) is TableWrites] == []
        finally:
            gc.enable()
