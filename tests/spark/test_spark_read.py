"""``t.to_spark()``: the rows of a scan, whatever tier they lie in, at every snapshot, whatever jobs do meanwhile."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.errors import IndexLakeError
from indexlake.spark import portion
from tests.expr import predicate_data as data
from tests.support.lakes import clock_of, connect

ROUNDS = 60 if os.environ.get("INDEXLAKE_HYPOTHESIS") == "long" else 2
PREDICATES = 12
COLUMNS = ["i8", "i32", "i64", "u64", "f64", "s", "sv", "sd", "b", "d", "ts", "tz", "m9", "m18"]
ORDERS = pa.schema([pa.field("id", pa.int64(), False), ("city", pa.string()), ("total", pa.float64())])
STEPS = ["insert", "insert", "insert few", "dump", "freeze", "compact", "update", "delete", "format"]
SMALL = {"block_row_count": 40, "direct_write_row_count": 30}


@pytest.fixture
def odd_lake(tmp_path: Path) -> Iterator[il.Lake]:
    """A lake whose folder has a name that globs and URLs would read in their own way."""
    with connect(tmp_path / "a [lake] {in,a} folder=odd #1") as lake:
        yield lake


def orders(start: int, count: int) -> pa.Table:
    return pa.table(
        {
            "id": range(start, start + count),
            "city": [None if n % 7 == 0 else f"city {n % 5}" for n in range(start, start + count)],
            "total": [n / 4 for n in range(start, start + count)],
        }
    ).cast(ORDERS)


def in_every_tier(lake: il.Lake, name: str = "sales.orders") -> il.Table:
    """Parquet with and without deleted rows, Vortex, Arrow IPC, hot rows, and a past."""
    t = lake.create_table(name, ORDERS, primary_key="id", config=il.TableConfig(**SMALL, dump_format="parquet"))
    t.insert(orders(0, 120))
    t.delete("id in (3, 5)")
    t.set_config(dump_format="vortex")
    t.insert(orders(200, 80))
    t.update({"city": "moved"}, "id in (1, 251, 252)")
    t.set_config(dump_format="ipc")
    t.insert(orders(300, 40))
    t.insert(orders(400, 10).to_pylist())
    assert set(t.stats().by_format) == {"parquet", "vortex", "ipc"}
    return t


def rows_of(frame: Any) -> list[dict[str, Any]]:
    return sorted(frame.toArrow().to_pylist(), key=str)


def rows_in(scan: il.Scan) -> list[dict[str, Any]]:
    return sorted(scan.to_pylist(), key=str)


def plan_of(frame: Any) -> str:
    return str(frame._jdf.queryExecution().toString())


# ---------------------------------------------------------------- the same rows as a scan


def test_a_dataframe_has_the_rows_of_a_scan_from_every_tier(odd_lake: il.Lake, spark: Any) -> None:
    t = in_every_tier(odd_lake)
    frame = t.to_spark(spark)
    assert frame.columns == ORDERS.names
    assert rows_of(frame) == rows_in(t.scan())
    assert plan_of(frame).count("FileScan parquet") == 1, "blocks without deleted rows are read by Spark itself"
    assert frame.count() == len(t)
    some = {"columns": ["total", "id"], "where": "total > $low and city is not null", "params": {"low": 20}}
    assert rows_of(t.to_spark(spark, **some)) == rows_in(t.scan(some.pop("where"), **some))
    assert t.to_spark(spark, ["CITY"]).columns == ["city"]
    alone = {"columns": ["total"], "where": "total > 20"}
    assert rows_of(t.to_spark(spark, **alone)) == rows_in(t.scan(alone.pop("where"), **alone))
    assert t.to_spark(spark, ["total"]).where("total < 20").agg({"total": "sum"}).collect() == [
        (sum(row["total"] for row in t.scan("total < 20").to_pylist()),)
    ]


def test_the_past_is_read_as_it_was(odd_lake: il.Lake, spark: Any) -> None:
    t = in_every_tier(odd_lake)
    before = odd_lake.snapshot_id
    expected = rows_in(t.scan())
    t.truncate()
    t.insert(orders(1_000, 3))
    frame = t.at(before).to_spark(spark)
    assert rows_of(frame) == expected
    assert t.to_spark(spark).count() == 3
    odd_lake.drop_table("sales.orders")
    assert rows_of(frame) == expected
    with pytest.raises(il.NotFoundError, match="was dropped"):
        t.to_spark(spark)


class Chance(data.Generator):
    """Predicates from a seed: one Spark job judges many of them."""

    def __init__(self, seed: int, columns: list[str]) -> None:
        self._random = random.Random(seed)
        super().__init__(lambda strategy: None, columns, casts=False)

    def pick(self, options: list[Any]) -> Any:
        return self._random.choice(options)


def some_table(lake: il.Lake, name: str, seed: int) -> tuple[il.Table, list[int]]:
    """A table with a random history, and snapshots of it."""
    chance = random.Random(seed)
    columns = sorted(set(COLUMNS) & set(data.SCHEMA.names))
    schema = pa.schema([pa.field("id", pa.int64(), False), *[data.SCHEMA.field(c) for c in columns]])
    t = lake.create_table(name, schema, primary_key="id", config=il.TableConfig(**SMALL, retention=timedelta(days=1)))
    pipeline = lake.pipeline(runner="threads")
    snapshots, next_id = [], 0
    for _ in range(10):
        step = chance.choice(
            ["insert", "insert", "insert few", "dump", "freeze", "compact", "update", "delete", "format"]
        )
        if step.startswith("insert"):
            count = 5 if step.endswith("few") else 70
            made = data.table(chance.randrange(1_000), count, columns)
            t.insert(made.add_column(0, "id", pa.array(range(next_id, next_id + count))).cast(schema))
            next_id += count
        elif step == "update":
            t.update({"i32": chance.randrange(9), "s": "new"}, f"id % {chance.randrange(2, 9)} = 0")
        elif step == "delete":
            t.delete(f"id % {chance.randrange(5, 20)} = 1")
        elif step == "format":
            t.set_config(dump_format=chance.choice(["parquet", "vortex", "ipc"]))
        else:
            getattr(pipeline, step)(name)
        snapshots.append(lake.snapshot_id)
    return t, snapshots


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_random_predicates_at_random_snapshots_of_random_tables(odd_lake: il.Lake, spark: Any, seed: int) -> None:
    from functools import reduce

    from pyspark.sql import functions

    t, snapshots = some_table(odd_lake, "some.table", seed)
    chance = random.Random(seed)
    frames, expected, asked = [], [], []
    while len(frames) < PREDICATES:
        generator = Chance(chance.randrange(10**9), t.schema.names)
        text = generator.truth(2)
        params = {name: value for name, value in generator.params.items() if f"${name}" in text} or None
        at = t.at(chance.choice(snapshots))
        try:
            found = at.scan(text, params=params, columns=["id", "i32"]).to_arrow()
        except IndexLakeError:
            continue  # a type that does not fit, or a row that raises
        number = len(frames)
        frame = at.to_spark(spark, ["id", "i32"], text, params)
        frames.append(frame.withColumn("number", functions.lit(number)))
        expected += [(number, *row.values()) for row in found.to_pylist()]
        asked.append((text, params, at))
    everything = reduce(lambda one, other: one.union(other), frames)
    judged = [(r.number, r.id, r.i32) for r in everything.collect()]
    wrong = {row[0] for row in set(judged) ^ set(expected)}
    assert not wrong, [asked[n] for n in wrong]
    assert sorted(judged, key=str) == sorted(expected, key=str)


def test_every_column_of_a_random_table_comes_as_it_is(odd_lake: il.Lake, spark: Any) -> None:
    from indexlake.spark.types import from_spark

    t, snapshots = some_table(odd_lake, "some.table", 77)
    for at in (t, t.at(snapshots[4])):
        expected = at.scan(order_by="id").to_arrow()
        found = at.to_spark(spark).toArrow().sort_by("id")
        for field in expected.schema:
            back = from_spark(found.column(field.name).combine_chunks(), field.type, field.name)
            assert str(back.to_pylist()) == str(expected.column(field.name).to_pylist())


def test_a_lake_on_postgresql_and_s3_is_read_by_tasks(new_address: Any, spark: Any) -> None:
    """Spark cannot reach the store by itself; executors have its keys, and nothing of the catalog."""
    with new_address("postgres", "s3").connect(automatic=False) as lake:
        t = in_every_tier(lake)
        frame = t.to_spark(spark)
        assert "FileScan" not in plan_of(frame)
        assert rows_of(frame) == rows_in(t.scan())
        assert rows_of(t.to_spark(spark, ["id"], "id in (1, 5, 77, 401)")) == [{"id": 1}, {"id": 401}, {"id": 77}]


# ---------------------------------------------------------------- shapes


def test_a_table_without_rows_is_a_dataframe_without_rows(odd_lake: il.Lake, spark: Any) -> None:
    t = odd_lake.create_table("t", ORDERS)
    frame = t.to_spark(spark)
    assert frame.columns == ORDERS.names
    assert frame.count() == 0
    t.insert(orders(0, 50))
    odd_lake.pipeline(runner="threads").dump("t")
    assert t.to_spark(spark, where="id < 0").count() == 0
    assert t.to_spark(spark, where="false").columns == ORDERS.names
    t.delete("true")
    assert t.to_spark(spark).collect() == []
    assert frame.count() == 0


def test_rows_without_columns_can_be_counted(odd_lake: il.Lake, spark: Any) -> None:
    t = in_every_tier(odd_lake)
    frame = t.to_spark(spark, [])
    assert frame.columns == []
    assert frame.count() == len(t)
    assert t.to_spark(spark, [], "id < 50").count() == t.scan("id < 50").count()
    assert t.to_spark(spark).select().count() == len(t)


def test_row_ids_can_be_asked_for(odd_lake: il.Lake, spark: Any) -> None:
    t = in_every_tier(odd_lake)
    frame = t.to_spark(spark, ["id", "_indexlake_row_id"])
    assert rows_of(frame) == rows_in(t.scan(columns=["id"], with_row_id=True))


def test_many_small_blocks_are_read_by_few_tasks(odd_lake: il.Lake, spark: Any) -> None:
    t = odd_lake.create_table("t", ORDERS, config=il.TableConfig(block_row_count=2, direct_write_row_count=1))
    t.insert(orders(0, 600))
    assert t.stats().blocks == 300
    frame = t.to_spark(spark)
    assert frame.rdd.getNumPartitions() <= 2 * spark.sparkContext.defaultParallelism
    assert frame.count() == 600
    assert {r.id for r in frame.select("id").collect()} == set(range(600))


def test_tasks_have_about_the_same_size(monkeypatch: pytest.MonkeyPatch, odd_lake: il.Lake) -> None:
    t = odd_lake.create_table("t", ORDERS, config=il.TableConfig(block_row_count=20, direct_write_row_count=1))
    t.insert(orders(0, 400))
    parts = [(task.size, task) for task in t.scan()._plan()[0].tasks]
    assert len(parts) == 20
    assert len(portion.groups(parts, 4)) == 1, "too little for more"
    monkeypatch.setattr(portion, "LEAST_BYTES", 1)
    sizes = [sum(task.size for task in group) for group in portion.groups(parts, 4)]
    assert len(sizes) == 4, "one for each core"
    assert max(sizes) <= 2 * min(sizes)
    monkeypatch.setattr(portion, "MOST_BYTES", max(size for size, _ in parts))
    number = len(portion.groups(parts, 4))
    assert number >= len(parts) // 2
    assert number % 4 == 0, "all cores are busy to the end"
    assert portion.groups([], 4) == []


@pytest.mark.inline_only("it makes the batches of the inline store small")
def test_more_hot_rows_than_travel_well_are_staged_in_files(
    monkeypatch: pytest.MonkeyPatch, odd_lake: il.Lake, spark: Any
) -> None:
    monkeypatch.setattr(portion, "HOT_BYTES", 1_000)
    monkeypatch.setattr("indexlake.hot.inline.BATCH_ROWS", 30)
    t = odd_lake.create_table("t", ORDERS, config=il.TableConfig(direct_write_row_count=10**6))
    t.insert(orders(0, 200))
    frame = t.to_spark(spark)
    staged = [f.path for f in odd_lake.storage.list("tables") if "/stage/" in f.path]
    assert len(staged) >= 3
    t.delete("true")
    vacuumed = odd_lake.pipeline(runner="threads").vacuum(dry_run=False, grace=timedelta(0))
    assert not set(vacuumed.paths) & set(staged), "they are in use while the lake is open"
    assert rows_of(frame) == rows_in(t.at(frame_snapshot(odd_lake, t)).scan())
    with il.connect(odd_lake.catalog.location.removesuffix("/catalog.sqlite"), automatic=False) as other:
        odd_lake.close()
        assert set(other.pipeline(runner="threads").vacuum(dry_run=False, grace=timedelta(0)).paths) >= set(staged)


def frame_snapshot(lake: il.Lake, t: il.Table) -> int:
    return max(s.snapshot_id for s in t.history() if s.operation == "insert")


# ---------------------------------------------------------------- altered tables


def test_an_altered_table_shows_the_columns_of_its_snapshot(odd_lake: il.Lake, spark: Any) -> None:
    t = odd_lake.create_table("t", ORDERS, primary_key="id", config=il.TableConfig(**SMALL, dump_format="parquet"))
    t.insert(orders(0, 40))
    t.insert(orders(40, 5))
    old = odd_lake.snapshot_id
    t.add_column("note", pa.string(), default="none")
    t.rename_column("city", "Town")
    t.add_column("small", pa.int16(), default=7)
    t.insert([{"id": 100, "Town": "x", "total": 1.0, "note": None, "small": 1}])
    odd_lake.pipeline(runner="threads").dump("t")
    t.widen_column("small", pa.int64())
    t.insert([{"id": 101, "Town": "y", "total": 2.0, "note": "n", "small": 2**40}])
    t.drop_column("total")
    frame = t.to_spark(spark)
    assert frame.columns == ["id", "Town", "note", "small"]
    assert rows_of(frame) == rows_in(t.scan())
    assert "FileScan parquet" not in plan_of(frame), "the files lack a column"
    renamed = t.to_spark(spark, ["town", "id"])
    assert "FileScan parquet" in plan_of(renamed), "a new name changes no file"
    assert rows_of(renamed) == rows_in(t.scan(columns=["Town", "id"]))
    assert rows_of(t.to_spark(spark, ["id"], "note = 'none' and small < 8")) == rows_in(
        t.scan("note = 'none' and small < 8", columns=["id"])
    )
    assert t.at(old).to_spark(spark).columns == ["id", "city", "total"]
    assert rows_of(t.at(old).to_spark(spark)) == rows_in(t.at(old).scan())


def test_names_may_hold_anything(odd_lake: il.Lake, spark: Any) -> None:
    names = ["a.b", "back`tick", 'quo"te', "with space", "ünï", "select", "f1"]
    t = odd_lake.create_table("t", pa.schema([(name, pa.int64()) for name in names]))
    t.insert([dict.fromkeys(names, n) for n in range(40)])
    odd_lake.pipeline(runner="threads").dump("t")
    odd_lake.pipeline(runner="threads").freeze("t")
    t.insert(dict.fromkeys(names, 100))
    frame = t.to_spark(spark)
    assert "FileScan parquet" in plan_of(frame)
    assert frame.columns == names
    assert rows_of(frame) == rows_in(t.scan())


# ---------------------------------------------------------------- pinned


def test_a_dataframe_gives_the_same_rows_whatever_jobs_do(odd_lake: il.Lake, spark: Any) -> None:
    t = in_every_tier(odd_lake)
    t.set_config(retention=timedelta(0))
    frame = t.to_spark(spark)
    filtered = t.to_spark(spark, ["id"], "total > 10")
    expected, some = rows_of(frame), rows_of(filtered)
    t.update({"total": -1.0}, "true")
    t.delete("id % 3 = 0")
    p = odd_lake.pipeline(runner="threads")
    p.dump("sales.orders")
    p.compact("sales.orders")
    p.freeze("sales.orders")
    t.truncate()
    clock_of(odd_lake).advance(days=2)
    p.expire("sales.orders")
    p.vacuum(dry_run=False, grace=timedelta(0))
    assert rows_of(frame) == expected
    assert rows_of(filtered) == some
    with odd_lake.catalog.read() as r:
        assert len(r.rows("select * from indexlake_pin")) == 1
    odd_lake._maintenance.forget()  # as when the lake is closed
    odd_lake._maintenance._kept.clear()
    p.expire("sales.orders")
    assert p.vacuum(dry_run=False, grace=timedelta(0)).files > 0, "nothing is kept longer than it is needed"


@pytest.mark.inline_only("the horizon does not pass what is in memory alone")
def test_a_dataframe_of_an_expired_snapshot_is_refused(odd_lake: il.Lake, spark: Any) -> None:
    t = in_every_tier(odd_lake)
    old = t.at(odd_lake.snapshot_id)
    t.set_config(retention=timedelta(0))
    t.truncate()
    clock_of(odd_lake).advance(days=2)
    odd_lake.pipeline(runner="threads").expire("sales.orders")
    with pytest.raises(il.SnapshotExpiredError):
        old.to_spark(spark)


@pytest.mark.inline_only("a reader beside the owner sees its last checkpoint")
def test_a_lake_that_is_read_only_can_be_read(odd_lake: il.Lake, spark: Any, tmp_path: Path) -> None:
    t = in_every_tier(odd_lake)
    folder = next(tmp_path.iterdir())
    with il.connect(folder, read_only=True) as reader:
        assert rows_of(reader.table("sales.orders").to_spark(spark)) == rows_in(t.scan())


# ---------------------------------------------------------------- what is refused


def test_a_transaction_is_read_in_its_own_process(odd_lake: il.Lake, spark: Any) -> None:
    t = in_every_tier(odd_lake)
    with odd_lake.transaction() as tx, pytest.raises(il.OwnershipError, match=r"to_spark\(\) does not work inside"):
        tx.table(t.name).to_spark(spark)


def test_files_in_memory_cannot_be_reached(spark: Any) -> None:
    with il.connect(":memory:") as lake, pytest.raises(il.JobError, match=r"Read with scan\(\)"):
        lake.create_table("t", ORDERS).to_spark(spark)


def test_wrong_names_are_refused_as_in_a_scan(odd_lake: il.Lake, spark: Any) -> None:
    t = odd_lake.create_table("t", ORDERS)
    with pytest.raises(il.SchemaError, match=r"There is no column 'town'"):
        t.to_spark(spark, ["town"])
    with pytest.raises(il.ExpressionError, match="town"):
        t.to_spark(spark, where="town = 1")
    with pytest.raises(il.SchemaError, match="twice"):
        t.to_spark(spark, ["id", "ID"])
    with pytest.raises(il.JobError, match="Spark Connect has its driver elsewhere"):
        t.to_spark(object())  # type: ignore[arg-type]
    assert not odd_lake._maintenance._kept, "what is refused pins nothing"


def test_a_damaged_file_is_named(odd_lake: il.Lake, spark: Any) -> None:
    t = odd_lake.create_table("t", ORDERS, config=il.TableConfig(**SMALL))
    t.insert(orders(0, 40))
    (file,) = [f for f in odd_lake.storage.list("tables") if f.path.endswith(".vortex")]
    place = Path(odd_lake.storage.root, file.path)
    frame = t.to_spark(spark)
    damaged = bytearray(place.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    place.chmod(0o644)
    place.write_bytes(damaged)
    with pytest.raises(Exception, match=rf"CorruptionError: .*{file.path}"):
        frame.collect()
