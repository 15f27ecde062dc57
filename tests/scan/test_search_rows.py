"""What a search gives back: the rows of now, exactly as they were written, few or many."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import indexlake as il
from indexlake.expr.moment import statement
from tests.peers.sql_log import statements
from tests.support.lakes import connect

NAN = np.array([0x7FF8000000000001], np.uint64).view(np.float64)[0]
"""One whose bits Python does not keep."""


@pytest.fixture
def table(lake: il.Lake) -> il.Table:
    config = il.TableConfig(block_row_count=50, direct_write_row_count=50)
    t = lake.create_table("t", {"id": "int64", "note": "string", "x": "float64", "y": "float64"}, config=config)
    t.create_index("words", "note", kind="bm25")
    t.create_index("places", ["x", "y"], kind="rtree")
    rows = range(200)
    t.insert(
        pa.table({"id": rows, "note": [f"late {n}" for n in rows], "x": [float(n) for n in rows], "y": [0.0] * 200})
    )
    return t


def ids(table: il.Table, text: str, k: int = 300) -> list[int]:
    return sorted(table.search("note", text, k=k, columns=["id"]).to_arrow()["id"].to_pylist())


def test_a_search_sees_what_has_been_written_since_the_last_one(table: il.Table) -> None:
    assert ids(table, "late") == list(range(200))
    table.delete("id < 5")
    assert ids(table, "late") == list(range(5, 200))
    table.update({"note": "early"}, "id = 7")
    assert ids(table, "early") == [7]
    assert 7 not in ids(table, "late")
    table.insert({"id": 900, "note": "late again", "x": 1.0, "y": 1.0})
    assert ids(table, "again") == [900]
    with table._lake.transaction() as tx:
        own = tx.table("t")
        own.insert({"id": 901, "note": "again", "x": 1.0, "y": 1.0})
        own.delete("id = 900")
        assert ids(own, "again") == [901]
        assert ids(table, "again") == [900]
    assert ids(table, "again") == [901]
    assert table.search("note", "late", where="id = 8").to_pylist()[0]["id"] == 8
    assert ids(table, "8") == [8]


@pytest.mark.parametrize("k", [3, 200])
def test_values_come_back_bit_by_bit(lake: il.Lake, k: int) -> None:
    config = il.TableConfig(block_row_count=50, direct_write_row_count=50)
    t = lake.create_table("t", {"note": "string", "value": "float64"}, config=config)
    t.create_index("words", "note", kind="bm25")
    values = np.full(200, NAN)
    t.insert(pa.table({"note": ["late"] * 200, "value": values}))
    found = t.search("note", "late", k=k).to_arrow()["value"].to_numpy()
    assert found.view(np.uint64).tolist() == values[:k].view(np.uint64).tolist()


def test_as_many_rows_as_there_are_come_in_order(table: il.Table) -> None:
    found = table.search("places", (0.0, 0.0), k=1_000_000).to_arrow()
    assert found["id"].to_pylist() == list(range(200))
    assert found["_distance"].to_pylist() == [float(n) for n in range(200)]
    assert table.search("places", (0.0, 0.0), k=30, where="id >= 100").to_arrow()["id"].to_pylist() == [
        *range(100, 130)
    ]


def test_numbers_that_were_read_whole_are_those_of_the_rows_of_now(lake: il.Lake) -> None:
    """After many searches columns of numbers are remembered; jobs, deletes and new columns change what is in them."""
    config = il.TableConfig(block_row_count=40, direct_write_row_count=40, inline_row_count_limit=1000)
    columns = {"id": "int64", "note": "string", "size": "float32", "wide": "uint64", "gap": "int32", "x": "float64"}
    t = lake.create_table("t", columns, primary_key="id", config=config)
    t.create_index("words", "note", kind="bm25")

    def rows(first: int, count: int) -> list[dict[str, object]]:
        return [
            {"id": n, "note": f"late w{n % 7}", "size": n / 2, "wide": 2**63 + n, "gap": n if n % 5 else None, "x": 0.5}
            for n in range(first, first + count)
        ]

    def check(view: il.Table, *more: str) -> None:
        expected = {row["id"]: row for row in view.scan().to_pylist()}
        for names in (["id"], ["wide", "id", "size"], ["id", "gap"], ["id", "x", *more]):
            for word in ("late", "w3", "w5"):
                found = view.search("note", word, k=9, columns=names).to_pylist()
                assert len(found) == min(9, sum(word in row["note"] for row in expected.values()))
                for row in found:
                    assert {name: row[name] for name in names} == {name: expected[row["id"]][name] for name in names}

    t.insert(pa.Table.from_pylist(rows(0, 120), schema=t.schema))
    for _ in range(3):
        check(t)
    then = lake.snapshot_id
    t.insert(rows(120, 30))
    t.delete("id % 3 = 0")
    t.update({"size": -1.0}, "id % 4 = 1")
    check(t)
    lake.pipeline(runner="threads").dump("t")
    check(t)
    lake.pipeline(runner="threads").compact("t")
    t.alter().add_column("extra", "int64", default=7).commit()
    t.insert(rows(150, 60))
    check(t, "extra")
    t.widen_column("gap", "int64")
    check(t, "extra")
    check(t.at(then))
    t.update({"x": float("nan")}, "id = 7")
    lake.pipeline(runner="threads").dump("t")
    for _ in range(3):
        (row,) = t.search("note", "w0", where="id = 7", columns=["x", "id"]).to_pylist()
        assert row["x"] != row["x"]
    with lake.transaction() as tx:
        own = tx.table("t")
        own.insert(rows(900, 3))
        own.delete("id = 4")
        check(own, "extra")


def test_numbers_of_a_block_that_came_to_its_end_are_read_for_the_past(lake: il.Lake) -> None:
    config = il.TableConfig(block_row_count=40, direct_write_row_count=40)
    t = lake.create_table("t", {"id": "int64", "note": "string"}, config=config)
    t.insert(pa.table({"id": range(1000, 1120), "note": ["late"] * 120}))
    t.create_index("words", "note", kind="bm25")
    then = lake.snapshot_id
    t.delete("id < 1035")
    lake.pipeline(runner="threads").compact("t")
    assert ids(t, "late") == list(range(1035, 1120))
    for _ in range(3):
        assert t.search("note", "late", k=9, columns=["id"]).to_arrow()["id"].to_pylist()[0] >= 1035
    assert t.at(then).search("note", "late", k=9, columns=["id"]).to_arrow()["id"].to_pylist() == [*range(1000, 1009)]


def test_a_condition_that_is_asked_again_sees_what_has_changed(lake: il.Lake) -> None:
    config = il.TableConfig(block_row_count=40, direct_write_row_count=40)
    columns = {"id": "int64", "note": "string", "size": "int32", "vec": pa.list_(pa.float32(), 2)}
    t = lake.create_table("t", columns, config=config)
    t.create_index("words", "note", kind="bm25")
    t.create_index("near", "vec", kind="hnsw")

    def rows(first: int, count: int) -> list[dict[str, object]]:
        return [
            {"id": n, "note": "late" if n % 3 else "lost", "size": n % 5, "vec": [float(n), 1.0]}
            for n in range(first, first + count)
        ]

    def check(view: il.Table) -> None:
        every = view.scan().to_pylist()
        for _ in range(2):
            for low in (1, 3, 3):
                some = [row for row in every if row["size"] >= low]
                asked: dict[str, Any] = {"where": "size >= $low", "params": {"low": low}, "k": 500, "columns": ["id"]}
                for by, query, wanted in (
                    ("note", "late", [row["id"] for row in some if row["note"] == "late"]),
                    ("near", [70.0, 1.0], [row["id"] for row in some]),
                ):
                    assert sorted(view.search(by, query, **asked).to_arrow()["id"].to_pylist()) == sorted(wanted)

    t.insert(pa.Table.from_pylist(rows(0, 120), schema=t.schema))
    check(t)
    then = lake.snapshot_id
    t.delete("id % 7 = 0")
    check(t)
    t.insert(rows(200, 9))
    check(t)
    with lake.transaction() as tx:
        own = tx.table("t")
        own.update({"size": 4}, "id < 30")
        check(own)
        check(t)
    check(t)
    lake.pipeline(runner="threads").dump("t")
    check(t)
    check(t.at(then))
    check(t)


def test_a_condition_on_the_present_is_asked_anew(lake: il.Lake) -> None:
    config = il.TableConfig(block_row_count=50, direct_write_row_count=50)
    t = lake.create_table("t", {"note": "string", "due": "timestamp[us]"}, config=config)
    t.create_index("words", "note", kind="bm25")
    t.insert(pa.table({"note": ["late"] * 60, "due": pa.array(range(60), pa.timestamp("us"))}))
    for moment in (20, 50, 5):
        with statement(moment):
            assert t.search("note", "late", k=100, where="due < now()").count() == moment
            assert t.scan("due < now()").count() == moment


def test_conditions_that_differ_in_their_values_alone_are_told_apart(lake: il.Lake) -> None:
    config = il.TableConfig(block_row_count=50, direct_write_row_count=50)
    t = lake.create_table("t", {"note": "string", "code": "binary", "size": "float64"}, config=config)
    t.create_index("words", "note", kind="bm25")
    sizes = [0.5 if n % 2 else 5.0 for n in range(100)]
    t.insert(pa.table({"note": ["late"] * 100, "code": [b"%d" % (n % 4) for n in range(100)], "size": sizes}))

    def found(where: str, value: object, column: str) -> set[object]:
        rows = t.search("note", "late", k=100, where=where, params={"v": value}, columns=[column])
        return set(rows.to_arrow()[column].to_pylist())

    for n in range(4):
        assert found("code = $v", memoryview(b"%d" % n), "code") == {b"%d" % n}
        assert found("upper(code::varchar) = $v", str(n), "code") == {b"%d" % n}
    for value in (5, Decimal("0.5"), 5.0, Decimal("5.0"), 0.5):
        assert found("size = $v", value, "size") == {float(value)}


def test_columns_that_are_younger_than_a_block_have_their_default(table: il.Table) -> None:
    with table.alter() as a:
        a.add_column("size", "int64", default=3)
    (row,) = table.search("note", "8", columns=["id", "size"]).to_pylist()
    assert (row["id"], row["size"]) == (8, 3)


def test_threads_search_while_rows_come(table: il.Table) -> None:
    wrong: list[list[int]] = []

    def look() -> None:
        for _ in range(50):
            found = ids(table, "late")
            if found != list(range(len(found))):
                wrong.append(found)

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    for n in range(200, 230):
        table.insert({"id": n, "note": "late", "x": float(n), "y": 0.0})
    for thread in threads:
        thread.join()
    assert not wrong
    assert ids(table, "late") == list(range(230))


@pytest.mark.parametrize("metric", ["l2", "cosine"])
@pytest.mark.parametrize("numbers", [pa.float32(), pa.float16()])
def test_vectors_come_back_bit_by_bit(lake: il.Lake, metric: str, numbers: pa.DataType) -> None:
    """They may come from the index: whatever is there twice, null or negative zero, in blocks and in memory."""
    config = il.TableConfig(block_row_count=100, direct_write_row_count=100)
    of = pa.list_(pa.field("number", numbers), 4)
    t = lake.create_table("t", pa.schema([("id", pa.int64()), ("note", pa.string()), ("v", of)]), config=config)
    vectors = np.random.default_rng(1).normal(size=(330, 4)).astype(numbers.to_pandas_dtype())
    vectors[5:20] = vectors[100]
    vectors[7, 0], vectors[8, 0] = 0.0, -0.0
    given: list[Any] = [None if n % 11 == 3 else vector for n, vector in enumerate(vectors)]
    rows = pa.table({"id": range(330), "note": [f"n{n}" for n in range(330)], "v": pa.array(given, of)})
    t.insert(rows.slice(0, 300))
    t.create_index("near", "v", kind="hnsw", metric=metric)
    t.insert(rows.slice(300))
    t.delete("id = 6")
    looked = t.search("near", [1, 2, 3, 4]).explain()
    assert (looked.segments, looked.hot_rows) == (1, 30)
    for n in range(40):
        query = vectors[(n * 8) % 330].astype(np.float64) + 0.001
        found = t.search("near", query, k=10).to_arrow()
        assert found.schema.field("v").type == of
        at = found["id"].to_numpy()
        assert found["note"].to_pylist() == [f"n{i}" for i in at]
        got = found["v"].combine_chunks().values.to_numpy(zero_copy_only=False).reshape(10, 4)
        assert got.tobytes() == vectors[at].tobytes()


@pytest.mark.parametrize("hot", ["inline", "memory"])
def test_a_search_reads_no_table_again_until_something_is_committed(tmp_path: Path, hot: str) -> None:
    with connect(tmp_path / "lake", hot=hot) as lake:
        t = lake.create_table("t", {"id": "int64", "note": "string"})
        t.create_index("words", "note", kind="bm25")
        t.insert([{"id": n, "note": "late"} for n in range(5)])

        def found(**options: Any) -> list[int]:
            return sorted(t.search("note", "late", columns=["id"], **options).to_arrow()["id"].to_pylist())

        def twice(expected: list[int]) -> None:
            assert found() == found(where="id >= 0") == expected
            with statements() as sent:
                assert found() == found(where="id >= 0") == expected
                assert found(where="id = 1") == [1]
            assert sent == []

        twice([0, 1, 2, 3, 4])
        t.insert({"id": 5, "note": "late"})
        twice([0, 1, 2, 3, 4, 5])
        t.delete("id = 0")
        twice([1, 2, 3, 4, 5])
        with suppress(ZeroDivisionError), lake.transaction() as tx:
            tx.table("t").delete("id > 1")
            assert tx.table("t").search("note", "late").to_arrow()["id"].to_pylist() == [1]
            assert found() == [1, 2, 3, 4, 5]
            raise ZeroDivisionError
        twice([1, 2, 3, 4, 5])
        then = lake.snapshot_id
        with lake.transaction() as tx:
            tx.table("t").delete("id = 2")
        with ThreadPoolExecutor(4) as threads:  # each with a session of its own
            assert [each.result() for each in [threads.submit(found) for _ in range(20)]] == [[1, 3, 4, 5]] * 20
            t.delete("id = 3")
            assert [each.result() for each in [threads.submit(found) for _ in range(20)]] == [[1, 4, 5]] * 20
        assert t.at(then).search("note", "late").count() == 5
        lake.pipeline().dump()
        twice([1, 4, 5])
        if hot == "inline":
            with connect(tmp_path / "lake") as other:
                other.table("t").update({"note": "early"}, "id = 4")
                twice([1, 5])
                other.table("t").rename_column("id", "number")
                with pytest.raises(il.SchemaError):
                    found()
                other.drop_table("t")
            with pytest.raises(il.NotFoundError):
                found()


@pytest.mark.parametrize("dump_format", ["ipc", "vortex", "parquet"])
def test_rows_from_before_a_change_of_the_columns_are_found_as_they_are_now(lake: il.Lake, dump_format: str) -> None:
    struct = pa.struct({"a": pa.int32(), "b": pa.string()})
    schema = pa.schema({"id": pa.int64(), "note": pa.string(), "s": struct, "l": pa.list_(struct), "n": pa.int32()})
    config = il.TableConfig(block_row_count=50, direct_write_row_count=50, dump_format=dump_format)
    t = lake.create_table("t", schema, config=config)
    t.create_index("words", "note", kind="bm25")
    each = [None if n % 7 == 0 else {"a": n, "b": f"b{n}"} for n in range(200)]
    t.insert(
        pa.table(
            [range(200), ["late"] * 200, each, [[one] for one in each], [n or None for n in range(200)]], schema=schema
        )
    )
    t.insert({"id": 900, "note": "late", "s": {"a": 1, "b": "x"}, "l": [], "n": 2})

    def check() -> None:
        wanted = {row["id"]: row for row in t.scan().to_pylist()}
        for k in (3, 30, 500):
            for columns in (None, ["id", "s"], [name for name in t.schema.names if name != "n"]):
                found = t.search("note", "late", k=k, columns=columns).to_arrow()
                assert found.num_rows == min(k, 201)
                for row in found.drop_columns("_score").to_pylist():
                    assert row == {name: wanted[row["id"]][name] for name in row}

    t.add_column("s.c", pa.int64(), default=7)
    check()
    t.add_column("l.element.c", pa.string())
    check()
    t.rename_column("s.a", "first")
    t.drop_column("s.b")
    check()
    t.widen_column("s.first", pa.int64())
    t.widen_column("n", pa.int64())
    check()
    t.add_column("d", pa.string(), default="new")
    t.add_column("e", struct)
    check()
    t.insert({"id": 901, "note": "early", "s": {"first": 1, "c": 2}})
    assert t.search("note", "early", columns=["s", "d"]).to_pylist()[0]["s"] == {"first": 1, "c": 2}
    assert t.search("note", "late", k=1, columns=["d", "e"]).to_arrow().drop_columns("_score").to_pylist() == [
        {"d": "new", "e": None}
    ]
