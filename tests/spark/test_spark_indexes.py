"""Indexes on Spark: loads and builds write segments in tasks, and reads that name an indexed value read few rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import indexlake as il

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = {
    "id": "int64",
    "city": "string",
    "note": "string",
    "x": "float64",
    "y": "float64",
    "vec": pa.list_(pa.float32(), 2),
}


@pytest.fixture
def table(lake: il.Lake) -> il.Table:
    return lake.create_table("t", SCHEMA, primary_key="id", config=il.TableConfig(block_row_count=500))


def frame(spark: SparkSession, first: int, end: int) -> Any:
    return spark.range(first, end).selectExpr(
        "id", "concat('c', id % 100) as city", "concat('parcel number ', id) as note", "cast(id as double) as x",
        "cast(-id as double) as y", "array(cast(id as float), cast(1 as float)) as vec",
    )  # fmt: skip


def make_indexes(t: il.Table) -> None:
    t.create_index("by_city", "city", include="x")
    t.create_index("hashed", "city", kind="hash")
    t.create_index("place", ["x", "y"], kind="rtree")
    t.create_index("text", "note", kind="bm25")
    t.create_index("near", "vec", kind="hnsw")


def check(lake: il.Lake, t: il.Table, count: int) -> None:
    """Every kind finds what is there, through segments alone."""
    assert {(i.name, i.state, i.rows_in_segments, i.rows_uncovered) for i in t.indexes()} == {
        (name, "ready", count, 0) for name in ("by_city", "hashed", "place", "text", "near")
    }
    assert t.scan("city = 'c7'").count() == count // 100
    assert t.scan("city = 'c7'").explain().rows_in_blocks == count // 100
    assert [row["id"] for row in t.search("text", "777", columns=["id"]).to_pylist()] == [777]
    assert [row["id"] for row in t.search("near", [778.1, 1], 2, columns=["id"]).to_pylist()] == [778, 779]
    assert [row["id"] for row in t.search("place", (779.1, -779.1), 1, columns=["id"]).to_pylist()] == [779]
    assert t.scan("x between 10 and 12 and y > -12").explain().found_by == "place"


def test_a_load_writes_the_segments_with_its_blocks(spark: SparkSession, lake: il.Lake, table: il.Table) -> None:
    make_indexes(table)
    lake.pipeline(spark=spark).load(frame(spark, 0, 2_000), "t")
    check(lake, table, 2_000)


def test_a_build_on_spark_covers_what_is_there(spark: SparkSession, lake: il.Lake, table: il.Table) -> None:
    lake.pipeline(spark=spark).load(frame(spark, 0, 2_000), "t")
    make_indexes(table)
    check(lake, table, 2_000)
    done = lake.pipeline(spark=spark).merge_index("t")
    assert done["main.t.text"].segments_before >= 0
    check(lake, table, 2_000)
    lake.pipeline(spark=spark).freeze("t")
    check(lake, table, 2_000)


def test_spark_reads_only_what_an_index_finds(spark: SparkSession, lake: il.Lake, table: il.Table) -> None:
    make_indexes(table)
    lake.pipeline(spark=spark).load(frame(spark, 0, 2_000), "t")
    table.insert([{"id": 5_000, "city": "c7"}])
    table.delete("id = 107")
    wanted = sorted(row["id"] for row in table.scan("city = 'c7'").to_pylist())
    assert len(wanted) == 20
    found = table.to_spark(spark, columns=["id"], where="city = $c", params={"c": "c7"})
    assert sorted(row.id for row in found.collect()) == wanted
    for engine in ("duckdb", "spark"):
        rows = lake.sql("select id from t where city = 'c7' and x > -1 order by id", engine=engine).to_arrow()
        assert rows.column("id").to_pylist() == [n for n in wanted if n < 5_000]


def test_indexes_are_created_listed_and_dropped_in_sql_with_the_engine_spark(
    spark: SparkSession, lake: il.Lake, table: il.Table
) -> None:
    lake.pipeline(spark=spark).load(frame(spark, 0, 1500), "t")
    for text in (
        "create unique index by_x on t (x) include (city)",
        "create index place on t using rstar (x, y)",
        "create index text on t using bm25 (note) with (stemmer = 'english')",
        "create index if not exists by_x on t (x)",
    ):
        lake.sql(text, engine="spark")
    assert [row["name"] for row in lake.sql("show indexes from t", engine="spark")] == ["by_x", "place", "text"]
    assert {(info.state, info.rows_in_segments) for info in table.indexes()} == {("ready", 1500)}
    with pytest.raises(il.DuplicateKeyError, match="by_x"):
        table.insert({"id": 9000, "x": 7.0})
    lake.sql("drop index by_x on t; drop index if exists by_x on t", engine="spark")
    assert [info.name for info in table.indexes()] == ["place", "text"]
    with pytest.raises(il.ExpressionError, match="changes run here: leave engine='spark' out"):
        lake.sql("delete from t where id = 1", engine="spark")
