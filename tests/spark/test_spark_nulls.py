"""Columns that hold no null today are read faster; nobody sees it, and a null where none should be is an error."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.blocks.statistics import stats_from_bytes, stats_to_bytes

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        ("odd `name`", pa.string()),
        ("total", pa.float64()),
        ("tags", pa.list_(pa.string())),
    ]
)
CONFIG = il.TableConfig(block_row_count=40, direct_write_row_count=30)


@pytest.fixture
def table(lake: il.Lake) -> il.Table:
    """Two blocks without a null."""
    t = lake.create_table("t", SCHEMA, primary_key="id", config=CONFIG)
    t.insert(rows(range(80)))
    return t


def rows(ids: Any) -> pa.Table:
    found = [{"id": n, "odd `name`": f"n{n}", "total": n / 4, "tags": [None, "x"]} for n in ids]
    return pa.Table.from_pylist(found, SCHEMA)


def told(frame: Any) -> dict[str, bool]:
    """What Spark takes for free of nulls when it runs, by column."""
    attributes = frame._jdf.queryExecution().optimizedPlan().output()
    return {attributes.apply(n).name(): not attributes.apply(n).nullable() for n in range(attributes.size())}


def by_id(found: Any) -> list[dict[str, Any]]:
    rows = found.to_pylist() if isinstance(found, il.Scan) else found.toArrow().to_pylist()
    return sorted(rows, key=lambda row: row["id"])


def check(t: il.Table, spark: Any, **expected: bool) -> None:
    frame = t.to_spark(spark)
    assert all(field.nullable for field in frame.schema), "what users see does not change with the rows"
    names = dict(zip(("id", "name", "total", "tags"), frame.columns, strict=False))
    assert told(frame) == {column: expected.get(name, True) for name, column in names.items()}
    assert by_id(frame) == by_id(t.scan())
    for column in frame.columns:
        place = f"`{column.replace('`', '``')}`"
        assert frame.where(f"{place} is null").count() == sum(row[column] is None for row in t.scan().to_pylist())


def test_a_column_is_free_of_nulls_until_one_comes(lake: il.Lake, table: il.Table, spark: Any) -> None:
    check(table, spark)
    before = lake.snapshot_id
    table.insert([{"id": 100, "odd `name`": None, "total": 1.0, "tags": []}])  # a hot row
    check(table, spark, name=False)
    table.update({"total": None}, "id = 3")
    check(table, spark, name=False, total=False)
    check(table.at(before), spark)
    lake.pipeline(runner="threads").dump("t")
    assert not table.stats().hot_rows
    table.insert(rows(range(200, 240)))
    check(table, spark, name=False, total=False)


def test_no_row_is_copied_to_hide_what_is_known(table: il.Table, spark: Any) -> None:
    answer = ["sum(id)", "max(length(`odd ``name```))", "max(total)", "max(size(tags))"]
    plan = table.to_spark(spark).selectExpr(*answer)._jdf.queryExecution().executedPlan().toString()
    assert "MapInArrow" in plan
    assert "Project" not in plan


def test_a_column_that_older_blocks_lack_may_be_null(table: il.Table, spark: Any) -> None:
    table.add_column("note", pa.string(), default="none")
    table.add_column("other", pa.int32())
    table.insert(pa.table({**rows(range(300, 340)).to_pydict(), "note": ["x"] * 40, "other": [1] * 40}))
    frame = table.to_spark(spark)
    assert told(frame) == {"id": True, "odd `name`": True, "total": True, "tags": True, "note": False, "other": False}
    assert by_id(frame) == by_id(table.scan())


def test_hidden_nulls_are_found(lake: il.Lake, spark: Any) -> None:
    """A dictionary may hold the null itself: what counts nulls does not see it."""
    coded = pa.dictionary(pa.int32(), pa.string())
    t = lake.create_table("t", pa.schema([("id", pa.int64()), ("code", coded)]), config=CONFIG)
    codes = pa.DictionaryArray.from_arrays(pa.array([0, 1] * 20, pa.int32()), pa.array(["a", None]))
    t.insert(pa.table({"id": pa.array(range(40), pa.int64()), "code": codes}))
    frame = t.to_spark(spark)
    assert told(frame) == {"id": True, "code": False}
    assert frame.where("code is null").count() == 20


@pytest.mark.inline_only("only the database leaves out hot rows by any predicate")
@pytest.mark.parametrize("regex", ["true", "false"])
def test_names_that_mean_something_in_sql_are_names(lake: il.Lake, spark: Any, regex: str) -> None:
    names = ["id", "a.b", "acb", "a+b", "a(b", "${env:HOME}", "${spark.app.name}", "c1", "c0", "if", "null", "`"]
    t = lake.create_table("t", pa.schema([(name, pa.int64()) for name in names]), config=CONFIG)
    t.insert(pa.table({name: range(n, n + 40) for n, name in enumerate(names)}))
    t.insert([{"id": 100}])
    spark.conf.set("spark.sql.parser.quotedRegexColumnNames", regex)
    try:
        frame = t.to_spark(spark)
        assert frame.columns == names
        assert told(frame) == {name: name == "id" for name in names}
        assert by_id(frame) == by_id(t.scan())
        few = t.to_spark(spark, where="id < 100")
        assert all(told(few).values())
        assert by_id(few) == by_id(t.scan("id < 100"))
    finally:
        spark.conf.unset("spark.sql.parser.quotedRegexColumnNames")


def test_a_null_that_the_statistics_deny_is_an_error(lake: il.Lake, spark: Any, tmp_path: Path) -> None:
    t = lake.create_table("t", SCHEMA, config=CONFIG)
    t.insert(rows(range(40)).set_column(2, "total", pa.array([None] + [1.0] * 39)))
    (block,) = t._state().blocks.records
    stats = stats_from_bytes(block.column_stats)
    stats["f3"] = replace(stats["f3"], null_count=0)
    with sqlite3.connect(tmp_path / "lake" / "catalog.sqlite") as connection:
        done = connection.execute("update indexlake_data_file set column_stats = ?", (stats_to_bytes(stats),))
        assert done.rowcount == 1
    with il.connect(tmp_path / "lake", automatic=False) as again:
        for columns in (None, ["total"]):
            frame = again.table("t").to_spark(spark, columns)
            with pytest.raises(Exception, match=rf"CorruptionError: Column 'total' holds a null in '{block.path}'"):
                frame.collect()


def test_a_number_alone_may_be_null_only_if_one_is(table: il.Table, spark: Any) -> None:
    """It travels in lists."""
    for known in (True, False):
        frame = table.to_spark(spark, ["total"])
        assert all(field.nullable for field in frame.schema)
        assert told(frame) == {"total": known}
        found = frame.toArrow().column(0).to_pylist()
        assert sorted(map(repr, found)) == sorted(repr(row["total"]) for row in table.scan().to_pylist())
        assert frame.where("total is null").count() == (0 if known else 1)
        table.update({"total": None}, "id = 3")
