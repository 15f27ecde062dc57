"""``df.write.format("indexlake")``: one commit for all tasks, keys checked, nothing half written."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il

pytestmark = pytest.mark.inline_only("another process writes, which only the owner can")

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string()), pa.field("n", pa.int32())])


@pytest.fixture(autouse=True)
def empty_table(lake: il.Lake) -> None:
    config = il.TableConfig(block_row_count=700)
    lake.create_table("sales.t", SCHEMA, primary_key="id", config=config, defaults={"n": 7})


@pytest.fixture
def place(lake: il.Lake, tmp_path: Path) -> str:
    return str(tmp_path / "lake")


def frame(spark: Any, first: int, count: int) -> Any:
    return spark.range(first, first + count, 1, 3).selectExpr("id", "concat('x', id) name", "cast(id % 100 as int) n")


def write(df: Any, place: str, mode: str = "append", **options: str) -> None:
    df.write.format("indexlake").options(table="sales.t", **options).mode(mode).save(place)


def contents(lake: il.Lake) -> dict[int, tuple[str | None, int | None]]:
    return {row["id"]: (row["name"], row["n"]) for row in lake.table("sales.t").scan().to_pylist()}


def test_rows_are_appended_in_one_commit(lake: il.Lake, place: str, spark: Any) -> None:
    lake.table("sales.t").insert({"id": -1})
    before = lake.snapshot_id
    write(frame(spark, 0, 3_000), place)
    assert lake.snapshot_id == before + 1
    assert contents(lake) == {-1: (None, 7), **{n: (f"x{n}", n % 100) for n in range(3_000)}}
    assert lake.table("sales.t").get(1_234) == {"id": 1_234, "name": "x1234", "n": 34}
    assert lake.table("sales.t").changes(before).count() == 3_000
    lake.table("sales.t").insert({"id": -2})
    ids = lake.table("sales.t").scan(with_row_id=True).to_arrow().column("_indexlake_row_id").to_pylist()
    assert len(set(ids)) == 3_002
    assert max(ids) < 8 << 30, "what was reserved and not used is given back"
    assert lake.pipeline(runner="threads").verify().ok


def test_overwrite_puts_the_rows_in_the_place_of_all_others(lake: il.Lake, place: str, spark: Any) -> None:
    lake.table("sales.t").insert([{"id": n} for n in range(50)])
    before = lake.snapshot_id
    write(frame(spark, 40, 100), place, "overwrite")
    assert sorted(contents(lake)) == list(range(40, 140))
    assert lake.snapshot_id == before + 1
    assert len(lake.table("sales.t").at(before).scan().to_pylist()) == 50


def test_a_decimal_goes_into_a_float(lake: il.Lake, place: str, spark: Any) -> None:
    table = lake.create_table("sales.f", pa.schema({"x": pa.float64()}))
    frame = spark.range(1).selectExpr("cast(id + 1.1 as decimal(20, 3)) x")
    frame.write.format("indexlake").option("table", "sales.f").mode("append").save(place)
    assert table.scan().to_pylist() == [{"x": 1.1}]


def test_insert_into_a_view_appends(lake: il.Lake, place: str, spark: Any) -> None:
    spark.sql(f"create or replace temporary view sink using indexlake options (path '{place}', table 'sales.t')")
    try:
        spark.sql("insert into sink values (1, 'a', 2), (2, 'b', null)")
        spark.sql("insert overwrite sink select id, name, n + 1 from values (3, 'c', 4) as v(id, name, n)")
    finally:
        spark.sql("drop view sink")
    assert contents(lake) == {3: ("c", 5)}


def test_a_repetition_with_the_same_token_is_harmless(lake: il.Lake, place: str, spark: Any) -> None:
    write(frame(spark, 0, 10), place, token="monday")
    write(frame(spark, 0, 10), place, token="monday")
    assert sorted(contents(lake)) == list(range(10))


def test_missing_columns_take_their_default_and_names_match_in_any_case(lake: il.Lake, place: str, spark: Any) -> None:
    write(spark.range(3).selectExpr("'y' NAME", "id"), place)
    assert contents(lake) == dict.fromkeys(range(3), ("y", 7))


@pytest.mark.parametrize(
    ("select", "options", "message"),
    [
        (["id", "'y' nam"], {}, "no column 'nam'"),
        (["id", "'y' n"], {}, "Column 'n' is int32 but the DataFrame has string"),
        (["id", "current_timestamp() n"], {}, "the DataFrame has timestamp"),
        (["id % 2 id"], {}, "is given twice"),
        (["id + 5 id"], {}, "already exists"),
        (["id", "cast(3000000000 as bigint) n"], {}, "'n'"),
        (["cast(null as bigint) id"], {}, "'id'"),
        (["id"], {"snapshot": "1"}, "'snapshot' is for reading"),
        (["id"], {"tabel": "x"}, "no option 'tabel'"),
        (["id"], {"catalog_password": "x"}, "for the address of a PostgreSQL catalog"),
    ],
)
def test_what_is_wrong_is_said_and_changes_nothing(
    lake: il.Lake, place: str, spark: Any, select: list[str], options: dict[str, str], message: str
) -> None:
    lake.table("sales.t").insert({"id": 6, "name": "first"})
    before, files = lake.snapshot_id, set(os.listdir(tempfile.gettempdir()))
    with pytest.raises(Exception, match=message):
        write(spark.range(4).selectExpr(*select), place, **options)
    assert (lake.snapshot_id, contents(lake)) == (before, {6: ("first", 7)})
    left = set(os.listdir(tempfile.gettempdir())) - files
    assert not [name for name in left if name.startswith("indexlake-write-")], "what the commit needs is taken away"


def test_after_a_write_that_failed_comes_one_that_does_not(lake: il.Lake, place: str, spark: Any) -> None:
    with pytest.raises(Exception, match="is given twice"):
        write(spark.range(4).selectExpr("id % 2 id"), place)
    lake.pipeline(runner="threads").vacuum(dry_run=False, grace=timedelta(0))
    write(spark.range(10, 14).selectExpr("id"), place)
    assert sorted(contents(lake)) == [10, 11, 12, 13]


def test_columns_that_change_while_spark_writes_end_the_write(lake: il.Lake, place: str, spark: Any) -> None:
    def alter(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with il.connect(place, automatic=False) as other:
            other.table("sales.t").drop_column("n")
        yield from batches

    with pytest.raises(Exception, match="columns were changed while Spark wrote"):
        write(spark.range(0, 5, 1, 1).mapInArrow(alter, "id bigint"), place)
    assert not len(lake.table("sales.t"))


def test_a_worker_that_dies_is_run_again_and_nothing_doubles(
    lake: il.Lake, place: str, spark: Any, tmp_path: Path
) -> None:
    mark = tmp_path / "died"

    def die_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            if 0 in batch.column(0).to_pylist() and not mark.exists():
                mark.touch()
                os._exit(9)

    write(frame(spark, 0, 2_000).mapInArrow(die_once, "id bigint, name string, n int"), place)
    assert mark.exists()
    assert sorted(contents(lake)) == list(range(2_000))


def test_what_goes_to_executors_does_not_say_where_the_catalog_is(lake: il.Lake, place: str) -> None:
    import pickle

    from indexlake.spark.source import IndexLakeSource
    from indexlake.spark.types import spark_schema

    source = IndexLakeSource({"path": place, "table": "sales.t"})
    writer = source.writer(spark_schema(list(SCHEMA)), False)
    packed = pickle.dumps((source, writer))
    writer.abort([])
    assert f"{place}/files".encode() in packed
    assert packed.count(place.encode()) == packed.count(f"{place}/files".encode())
