"""DataFrames loaded into tables: one commit, keys checked on what was written, harmless to repeat."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.storage import faults

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string()), pa.field("n", pa.int32())])


@pytest.fixture(autouse=True)
def empty_table(lake: il.Lake) -> None:
    config = il.TableConfig(block_row_count=700, direct_write_row_count=500)
    lake.create_table("t", SCHEMA, primary_key="id", config=config, defaults={"n": 7})


def frame(spark: Any, first: int, count: int, name: str = "'x'") -> Any:
    return spark.range(first, first + count, 1, 3).selectExpr("id", f"{name} name", "cast(id % 100 as int) n")


def contents(table: il.Table) -> dict[int, tuple[str | None, int | None]]:
    return {row["id"]: (row["name"], row["n"]) for row in table.scan().to_pylist()}


def test_a_frame_arrives_whole_in_one_commit(lake: il.Lake, spark: Any) -> None:
    before = lake.snapshot_id
    result = lake.pipeline(spark=spark).load(frame(spark, 0, 3_000), "t")
    table = lake.table("t")
    assert (result.inserted, result.snapshot_id) == (3_000, before + 1)
    assert contents(table) == {n: ("x", n % 100) for n in range(3_000)}
    assert table.get(1_234) == {"id": 1_234, "name": "x", "n": 34}
    assert {c["_change_type"] for c in table.changes(before).to_pylist()} == {"insert"}
    assert table.changes(before).count() == 3_000
    ids = table.scan(with_row_id=True).to_arrow().column("_indexlake_row_id").to_pylist()
    assert len(set(ids)) == 3_000
    assert lake.pipeline(spark=spark).verify().ok


def test_row_ids_of_loads_and_inserts_never_meet(lake: il.Lake, spark: Any) -> None:
    table = lake.table("t")
    table.insert({"id": -1})
    lake.pipeline(spark=spark).load(frame(spark, 0, 10), "t")
    table.insert({"id": -2})
    lake.pipeline(spark=spark).load(frame(spark, 10, 10), "t")
    ids = table.scan(with_row_id=True).to_arrow().column("_indexlake_row_id").to_pylist()
    assert len(set(ids)) == len(ids) == 22


def test_a_token_makes_a_repetition_harmless(lake: il.Lake, spark: Any) -> None:
    pipeline = lake.pipeline(spark=spark)
    first = pipeline.load(frame(spark, 0, 100), "t", token="night-17")
    assert pipeline.load(frame(spark, 0, 100), "t", token="night-17") == first
    assert len(lake.table("t")) == 100


def test_columns_match_by_name_and_missing_ones_take_their_default(lake: il.Lake, spark: Any) -> None:
    lake.pipeline(spark=spark).load(spark.range(3).selectExpr("'y' NAME", "id"), "t")
    assert contents(lake.table("t")) == dict.fromkeys(range(3), ("y", 7))


@pytest.mark.inline_only("another process writes, which only the owner can")
def test_names_that_spark_would_have_to_quote_are_names_like_others(lake: il.Lake, spark: Any, tmp_path: Path) -> None:
    names = ["a.b", "back`tick", "c", 'quo"te']
    table = lake.create_table("odd", pa.schema([(name, pa.int64()) for name in names]), primary_key="a.b")
    source = spark.range(3).selectExpr("id", "id + 1", "id + 2", "id + 3").toDF(*names)
    pipeline = lake.pipeline(spark=spark)
    pipeline.load(source, "odd")
    pipeline.load(source, "odd", mode="upsert")
    source.selectExpr("`a.b` + 10 `a.b`", "c").write.format("indexlake").option("table", "odd").mode("append").save(
        str(tmp_path / "lake")
    )
    expected = [dict(zip(names, range(n, n + 4), strict=True)) for n in range(3)]
    expected += [{"a.b": n + 10, "back`tick": None, "c": n + 2, 'quo"te': None} for n in range(3)]
    assert table.scan(order_by="a.b").to_pylist() == expected
    in_spark = table.to_spark(spark).toArrow()
    assert sorted(in_spark.to_pylist(), key=str) == sorted(expected, key=str)
    assert table.to_spark(spark, columns=["a.b"]).toArrow().column_names == ["a.b"]
    query = 'select "a.b", "back`tick", c as "a.b" from odd order by c, 1'
    found = lake.sql(query, engine="spark").to_arrow()
    assert found.column_names == ["a.b", "back`tick", "a.b"]
    assert found.to_batches() == lake.sql(query).to_arrow().to_batches()


@pytest.mark.parametrize("tier", ["hot", "block"])
def test_a_key_that_the_table_has_is_refused(lake: il.Lake, spark: Any, tier: str) -> None:
    table = lake.table("t")
    table.insert({"id": 55, "name": "first"})
    if tier == "block":
        lake.pipeline().dump("t")
    before = lake.snapshot_id
    with pytest.raises(il.DuplicateKeyError, match="id = 55 already exists") as caught:
        lake.pipeline(spark=spark).load(frame(spark, 0, 100), "t")
    assert caught.value.key == 55
    assert lake.snapshot_id == before
    assert contents(table) == {55: ("first", 7)}
    table.delete("id = 55")
    assert lake.pipeline(spark=spark).load(frame(spark, 0, 100), "t").inserted == 100


def test_a_key_that_the_frame_holds_twice_is_refused(lake: il.Lake, spark: Any) -> None:
    twice = frame(spark, 0, 1_000).union(frame(spark, 900, 1))
    with pytest.raises(il.DuplicateKeyError, match="id = 900 is given twice"):
        lake.pipeline(spark=spark).load(twice, "t")
    assert not len(lake.table("t"))


@pytest.mark.parametrize("then", ["stays hot", "is dumped", "is deleted"])
def test_a_key_inserted_after_the_look_is_seen_at_the_commit(
    lake: il.Lake, spark: Any, tmp_path: Path, then: str
) -> None:
    with il.connect(tmp_path / "lake", automatic=False) as other:
        done: list[bool] = []

        def meanwhile(step: str) -> None:
            if step == "commit.begin" and not done:
                done.append(True)
                other.table("t").insert({"id": 42})
                if then == "is dumped":
                    other.pipeline(runner="threads").dump("t")
                elif then == "is deleted":
                    other.table("t").delete("id = 42")

        previous = faults.install(meanwhile)
        try:
            if then == "is deleted":
                assert lake.pipeline(spark=spark).load(frame(spark, 0, 100), "t").inserted == 100
            else:
                with pytest.raises(il.DuplicateKeyError, match="id = 42 already exists"):
                    lake.pipeline(spark=spark).load(frame(spark, 0, 100), "t")
        finally:
            faults.install(previous)
        assert done
        assert len(lake.table("t")) == (100 if then == "is deleted" else 1)


def test_a_column_added_while_the_frame_is_written_takes_its_default(lake: il.Lake, spark: Any, tmp_path: Path) -> None:
    with il.connect(tmp_path / "lake", automatic=False) as other:
        done: list[bool] = []

        def meanwhile(step: str) -> None:
            if step == "commit.begin" and not done:
                done.append(True)
                other.table("t").add_column("extra", pa.string(), default="e")

        previous = faults.install(meanwhile)
        try:
            lake.pipeline(spark=spark).load(frame(spark, 0, 10), "t")
        finally:
            faults.install(previous)
    assert [row["extra"] for row in lake.table("t").scan().to_pylist()] == ["e"] * 10


def test_overwrite_puts_the_frame_in_the_place_of_everything(lake: il.Lake, spark: Any) -> None:
    table = lake.table("t")
    table.insert([{"id": n} for n in range(600)])
    table.insert({"id": 1_000_000})
    before = lake.snapshot_id
    result = lake.pipeline(spark=spark).load(frame(spark, 500, 200), "t", mode="overwrite")
    assert (result.inserted, result.deleted) == (200, 601)
    assert sorted(contents(table)) == list(range(500, 700))
    assert len(table.at(before)) == 601


def test_upsert_changes_the_columns_given_and_adds_the_rest(lake: il.Lake, spark: Any) -> None:
    table = lake.table("t")
    table.insert([{"id": n, "name": "old", "n": n} for n in range(20)])
    lake.pipeline().dump("t")
    result = lake.pipeline(spark=spark).load(spark.range(10, 30).selectExpr("id", "'new' name"), "t", mode="upsert")
    assert (result.updated, result.inserted) == (10, 10)
    assert contents(table) == {n: ("old" if n < 10 else "new", n if n < 20 else 7) for n in range(30)}
    assert not [f for f in lake.storage.list("tables") if "/stage/" in f.path]


def test_what_does_not_fit_is_refused_with_its_column(lake: il.Lake, spark: Any) -> None:
    pipeline = lake.pipeline(spark=spark)
    with pytest.raises(il.SchemaError, match="no column 'nam'"):
        pipeline.load(spark.range(3).selectExpr("id", "'y' nam"), "t")
    with pytest.raises(il.ConstraintError, match="'n'"):
        pipeline.load(spark.range(3).selectExpr("id", "cast(3000000000 as bigint) n"), "t")
    with pytest.raises(il.ConstraintError, match="'id'"):
        pipeline.load(spark.range(3).selectExpr("cast(null as bigint) id"), "t")
    with pytest.raises(il.JobError, match="mode='replace'"):
        pipeline.load(spark.range(3), "t", mode="replace")
    assert not len(lake.table("t"))


def test_a_frame_that_gives_other_rows_each_time_still_has_unique_keys(lake: il.Lake, spark: Any) -> None:
    loaded = spark.range(2_000).selectExpr("cast(rand() * 1e15 as bigint) id")
    assert lake.pipeline(spark=spark).load(loaded, "t").inserted == 2_000
    assert len(contents(lake.table("t"))) == 2_000


def test_a_worker_that_dies_is_run_again_and_nothing_doubles(lake: il.Lake, spark: Any, tmp_path: Path) -> None:
    mark = tmp_path / "died"

    def die_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            if 0 in batch.column(0).to_pylist() and not mark.exists():
                mark.touch()
                os._exit(9)

    dying = frame(spark, 0, 2_000).mapInArrow(die_once, "id bigint, name string, n int")
    assert lake.pipeline(spark=spark).load(dying, "t").inserted == 2_000
    assert mark.exists()
    assert sorted(contents(lake.table("t"))) == list(range(2_000))
    assert lake.pipeline(runner="threads").verify().ok


def test_an_empty_frame_changes_nothing(lake: il.Lake, spark: Any) -> None:
    assert lake.pipeline(spark=spark).load(frame(spark, 0, 0), "t").inserted == 0


def test_rows_without_spark_are_loaded_in_this_process(lake: il.Lake, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"id": range(900), "name": ["f"] * 900}), path)
    pipeline = lake.pipeline(runner="threads")
    assert pipeline.load(path, "t").inserted == 900
    assert pipeline.load(path, "t", mode="upsert").updated == 900
    result = pipeline.load([{"id": 1}], "t", mode="overwrite", token="once")
    assert (result.inserted, result.deleted) == (1, 900)
    assert pipeline.load([{"id": 1}], "t", mode="overwrite", token="once") == result
