"""What a merge can be given, in transactions too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import indexlake as il
from indexlake.scan import spool
from tests.writes.merge.merging import SCHEMA, contents, counts

Make = Callable[..., il.Table]
ROWS = [{"id": 1, "v": 5, "s": "x"}, {"id": 4, "v": None, "s": "y"}, {"id": 50, "v": 6, "s": None}]
FORMS: dict[str, Callable[[], Any]] = {
    "dicts": lambda: ROWS,
    "generator": lambda: (row for row in ROWS),
    "table": lambda: pa.Table.from_pylist(ROWS),
    "batch": lambda: pa.RecordBatch.from_pylist(ROWS),
    "reader": lambda: pa.Table.from_pylist(ROWS).to_reader(),
    "batches": lambda: [pa.RecordBatch.from_pylist([row], pa.Table.from_pylist(ROWS).schema) for row in ROWS],
    "pandas": lambda: pd.DataFrame(ROWS).convert_dtypes(),
    "polars": lambda: pl.DataFrame(ROWS),
}


@pytest.mark.parametrize("form", FORMS)
def test_anything_that_holds_rows_can_be_merged(orders: il.Table, form: str) -> None:
    merge = orders.merge(FORMS[form](), on="id").when_matched_update().when_not_matched_insert()
    assert counts(merge.execute()) == (1, 2, 0)
    assert [contents(orders)[n] for n in (1, 4, 9)] == [(1, 5, "x"), (4, None, "y"), (50, 6, None)]


def test_one_dict_is_one_row_and_missing_names_are_null(orders: il.Table) -> None:
    orders.merge({"id": 1, "v": 3}, on="id").when_matched_update().execute()
    orders.merge([{"id": 2}, {"id": 5, "v": 4}], on="id").when_matched_update().execute()
    assert [contents(orders)[n][1] for n in (1, 2, 5)] == [3, None, 4]


def test_dicts_take_the_types_of_the_table_where_they_fit(make: Make) -> None:
    schema = pa.schema([("id", pa.int32()), ("price", pa.decimal128(9, 2)), ("day", pa.date32())])
    t = make(schema, "id")
    rows = [{"id": 1, "price": 5, "code": "p"}, {"id": 2, "price": 7, "code": "q"}]
    values = {"id": il.expr("s.id"), "price": il.expr("s.price")}
    t.merge(rows, on="id").when_not_matched_insert(values, condition="code = 'q'").execute()
    assert [(row["id"], str(row["price"])) for row in t.scan().to_pylist()] == [(2, "7.00")]
    text = [{"id": 2, "day": "2026-05-01"}]  # not a date: an expression may make one of it
    t.merge(text, on="id").when_matched_update({"day": il.expr("s.day::date")}).execute()
    assert str(t.scan().to_pylist()[0]["day"]) == "2026-05-01"


def test_files_can_be_merged(orders: il.Table, tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "rows.parquet")
    merge = orders.merge(il.files(tmp_path / "rows.parquet"), on="id").when_matched_update().when_not_matched_insert()
    assert counts(merge.execute()) == (1, 2, 0)
    assert counts(orders.upsert(il.files(tmp_path / "rows.parquet"))) == (0, 3, 0)


def test_another_table_of_the_lake_can_be_merged(orders: il.Table, make: Make) -> None:
    other = make(SCHEMA, "id", ROWS)
    assert counts(
        orders.merge(other.scan("id > 1"), on="id").when_matched_update().when_not_matched_insert().execute()
    ) == (1, 1, 0)
    assert counts(orders.upsert(other)) == (0, 3, 0)


def test_a_large_source_is_kept_in_a_file_and_read_once(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "MEMORY_BYTES", 10_000)
    t = make(SCHEMA, "id", [{"id": n, "v": 0, "s": "a"} for n in range(3000)], direct_write_row_count=500)
    given = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal given
        for start in range(0, 6000, 100):
            given += 1
            ids = np.arange(start, start + 100) * 7 % 6000
            yield pa.record_batch({"id": ids, "v": ids * 2, "s": pa.array(["b"] * 100).dictionary_encode()})

    reader = pa.RecordBatchReader.from_batches(next(iter(batches())).schema, batches())
    given = 0
    merge = t.merge(reader, on="id").when_matched_update(condition="s.id % 2 = 0").when_not_matched_insert()
    assert counts(merge.execute()) == (3000, 1500, 0)
    assert counts(merge.execute()) == (0, 3000, 0)
    assert given == 60
    assert contents(t) == [
        (n, 0 if n % 2 and n < 3000 else 2 * n, "a" if n % 2 and n < 3000 else "b") for n in range(6000)
    ]
    assert counts(t.upsert(pa.RecordBatchReader.from_batches(reader.schema, batches()))) == (0, 6000, 0)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (5, "Rows cannot be read from int"),
        ([{"id": 1}, 5], "A row is a dict"),
        ([{1: 1}], "not a column name"),
        (({"id": n} if n < 10_000 else {"id": n, "w": 1} for n in range(10_001)), "names column 'w'"),
        ([{"id": 1, "w": 1}, {"id": 2, "w": "x"}], "'w' have no type in common"),
        (pa.table([[1], [2]], ["id", "Id"]), "differ at most in case"),
        ([pa.record_batch({"id": [1]}), pa.record_batch({"v": [1]})], "do not agree in their columns"),
    ],
)
def test_a_source_that_makes_no_sense_is_refused(orders: il.Table, rows: Any, message: str) -> None:
    with pytest.raises(il.SchemaError, match=message):
        orders.merge(rows, on="id").when_matched_delete().execute()


def test_an_error_of_the_source_changes_nothing(orders: il.Table) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": [1], "v": [1]})
        raise RuntimeError("the pipe is broken")

    before = contents(orders)
    for run in (orders.upsert, lambda rows: orders.merge(rows, on="id").when_matched_delete().execute()):
        with pytest.raises(RuntimeError, match="the pipe is broken"):
            run(broken())
    assert contents(orders) == before


# ---------------------------------------------------------------- transactions


def test_a_transaction_merges_what_it_has_written_itself(module_lake: il.Lake, orders: il.Table) -> None:
    with module_lake.transaction() as tx:
        t = tx.table(orders.name)
        t.insert([{"id": 20, "v": 1, "s": "own"}, {"id": 21, "v": 1, "s": "own"}])
        t.delete("id = 4")
        t.update({"v": 11}, "id = 7")
        merge = t.merge(pa.table({"id": [20, 4, 7], "v": [2, 3, 4]}), on="id")
        result = merge.when_matched_update({"v": il.expr("t.v + s.v")}).when_not_matched_insert().execute()
        assert (result.rows, result.snapshot_id, *counts(result)) == (3, None, 1, 2, 0)
        left = t.merge(pa.table({"id": [0, 1, 2, 20]}), on="id").when_not_matched_by_source_delete(
            "t.id < 7 or t.id > 20"
        )
        assert counts(left.execute()) == (0, 0, 5)
        with pytest.raises(il.OwnershipError, match="token"):
            merge.when_matched_delete().execute(token="x")
    assert contents(orders) == [(0, 0, "a"), (1, 10, "a"), (2, 20, "a"), (7, 15, "a"), (8, 80, "a"), (20, 3, "own")]


@pytest.mark.parametrize("on", ["id", "v"])
def test_a_transaction_merges_blocks_that_it_has_written_itself(module_lake: il.Lake, make: Make, on: str) -> None:
    t = make(SCHEMA, "id", [{"id": n, "v": n, "s": "a"} for n in range(9)], direct_write_row_count=3, block_row_count=4)
    with module_lake.transaction() as tx:
        mine = tx.table(t.name)
        mine.insert([{"id": n, "v": n, "s": "own"} for n in range(9, 18)])
        rows = pa.table({on: range(5, 14), "n": range(9)})
        changed = (
            mine.merge(rows, on=on)
            .when_matched_delete("n = 8")
            .when_matched_update({"s": il.expr("'n' || n::varchar")})
        )
        assert counts(changed.execute()) == (0, 8, 1)
        again = mine.merge(pa.table({on: [12, 14, 40], "s": ["x", "z", "new"]}), on=on)
        again = again.when_matched_update().when_not_matched_insert({"id": 40, "v": 40, "s": il.expr("s.s")})
        assert counts(again.execute()) == (1, 2, 0)
    expected = [(n, n, "a") for n in range(5)] + [(n, n, f"n{n - 5}") for n in range(5, 12)]
    assert contents(t) == [
        *expected,
        (12, 12, "x"),
        (14, 14, "z"),
        *((n, n, "own") for n in range(15, 18)),
        (40, 40, "new"),
    ]


def test_a_transaction_at_an_old_snapshot_merges_what_was_there_then(module_lake: il.Lake, orders: il.Table) -> None:
    lake = module_lake
    tx = lake.transaction()
    orders.update({"v": -1}, "id in (1, 7)")
    orders.insert([{"id": 30, "v": 1, "s": "later"}])
    lake.pipeline().dump(orders.name)
    t = tx.table(orders.name)
    seen = t.merge(pa.table({"id": [0, 3, 30], "v": [5, 5, 5]}), on="id").when_matched_update().execute()
    assert counts(seen) == (0, 2, 0)
    tx.commit()
    assert contents(orders)[:4] == [(0, 5, "a"), (1, -1, "a"), (2, 20, "a"), (3, 5, "a")]
    tx = lake.transaction()
    orders.update({"v": -2}, "id = 1")
    lake.pipeline().dump(orders.name)
    t = tx.table(orders.name)
    for on in ("id", "s"):
        assert t.merge(pa.table({"id": [1], "s": ["a"]}), on=on).when_matched_delete("t.v = -2").execute().rows == 0
    assert counts(t.merge(pa.table({"id": [1]}), on="id").when_matched_delete("t.v = -1").execute()) == (0, 0, 1)
    with pytest.raises(il.ConflictError):
        tx.commit()


def test_a_failed_merge_leaves_its_transaction_as_it_was(module_lake: il.Lake, orders: il.Table) -> None:
    with module_lake.transaction() as tx:
        t = tx.table(orders.name)
        t.insert({"id": 20, "v": 1, "s": "own"})
        rows = pa.table({"id": [20, 1, 1, 30]})
        with pytest.raises(il.DuplicateKeyError):
            t.merge(rows, on="id").when_not_matched_insert().when_matched_delete().execute()
        assert len(t.scan().to_pylist()) == 10
    assert len(orders) == 10


def test_a_merge_after_an_alteration_sees_the_new_columns_of_old_rows(orders: il.Table) -> None:
    orders.add_column("w", pa.int64(), default=7)
    orders.rename_column("v", "amount")
    merge = orders.merge(pa.table({"id": [1, 4, 7, 40], "n": [1, 1, 1, 1]}), on="id")
    merge = merge.when_matched_update({"w": il.expr("t.w + n"), "amount": il.expr("amount + 1")})
    assert counts(merge.when_not_matched_insert({"id": il.expr("s.id")}).execute()) == (1, 3, 0)
    rows = {row["id"]: row for row in orders.scan().to_pylist()}
    assert [rows[n] for n in (1, 4, 7)] == [{"id": n, "amount": n * 10 + 1, "s": "a", "w": 8} for n in (1, 4, 7)]
    assert rows[40] == {"id": 40, "amount": None, "s": None, "w": 7}
    assert rows[2]["w"] == 7
    assert counts(orders.merge(pa.table({"w": [8]}), on="w").when_matched_delete().execute()) == (0, 0, 3)
    assert counts(orders.upsert([{"id": 2, "w": 1}, {"id": 8, "w": 2}, {"id": 5, "s": "z"}])) == (0, 3, 0)
    rows = {row["id"]: row for row in orders.scan().to_pylist()}
    assert rows[5] == {"id": 5, "amount": 50, "s": "z", "w": 7}
