"""``writeStream`` into a table: each batch is one commit and happens once, however often Spark repeats it."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import indexlake as il
from indexlake.spark import load_tasks, stream_sink
from indexlake.spark.request import Request

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string()), pa.field("n", pa.int32())])
COLUMNS = "id long, name string, n int"

inline_only = pytest.mark.inline_only("another process writes, which only the owner can")


@pytest.fixture(autouse=True)
def table(lake: il.Lake) -> il.Table:
    config = il.TableConfig(block_row_count=5_000)
    return lake.create_table("sales.t", SCHEMA, primary_key="id", config=config, defaults={"n": 7})


class Feeder:
    """A folder that Spark streams from, and queries that write its new files to the lake."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.number = 0
        (folder / "in").mkdir()

    def put(self, rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> None:
        self.number += 1
        pq.write_table(pa.Table.from_pylist(rows, schema), self.folder / "in" / f"{self.number:05}.parquet")

    def frame(self, columns: str = COLUMNS, **options: str) -> Any:
        options = {"maxFilesPerTrigger": "100", **options}
        return self.spark.readStream.schema(columns).options(**options).parquet(str(self.folder / "in"))

    def run(self, frame: Any, mode: str = "append", sink: Any = None, table: str = "sales.t", **options: str) -> Any:
        """Process what is there, and return the query, which has ended."""
        writer = frame.writeStream.outputMode(mode).option("checkpointLocation", str(self.folder / "checkpoint"))
        writer = writer.trigger(availableNow=True)
        if sink is None:
            writer = writer.format("indexlake").options(table=table, **options)
            query = writer.start(str(self.folder / "lake"))
        else:
            query = writer.foreachBatch(sink).start()
        query.awaitTermination()
        return query

    def forget_the_last_batch(self) -> None:
        """As if Spark had been killed after the sink's commit and before its own."""
        last = max((self.folder / "checkpoint" / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
        last.unlink()
        (last.parent / f".{last.name}.crc").unlink(missing_ok=True)


@pytest.fixture
def feeder(spark: Any, tmp_path: Path) -> Feeder:
    return Feeder(spark, tmp_path)


def contents(table: il.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.scan().to_pylist())


def rows(*ids: int, name: str = "x") -> list[dict[str, Any]]:
    return [{"id": id, "name": f"{name}{id}", "n": id % 5} for id in ids]


def as_tuples(given: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in given)


@inline_only
def test_few_rows_become_hot_and_many_blocks_each_batch_in_one_commit(
    lake: il.Lake, table: il.Table, feeder: Feeder
) -> None:
    start = lake.snapshot_id
    feeder.put(rows(*range(100)))
    feeder.run(feeder.frame())
    assert lake.snapshot_id == start + 1
    assert not table._state().blocks.records
    feeder.put(rows(*range(100, 40_100)))
    feeder.put(rows(*range(50_000, 50_010)))
    feeder.run(feeder.frame())
    assert lake.snapshot_id == start + 2
    assert len(table._state().blocks.records) >= 8
    expected = rows(*range(40_100), *range(50_000, 50_010))
    assert contents(table) == as_tuples(expected)
    assert table.changes(start).count() == len(expected)
    ids = table.scan(with_row_id=True).to_arrow().column("_indexlake_row_id").to_pylist()
    assert len(set(ids)) == len(ids)
    assert max(ids) < load_tasks.IDS_PER_TASK, "what was reserved and not used is given back"
    with lake.catalog.read() as r:
        assert r.rows("select count(*) from indexlake_writer where expires_at > 0") == [(0,)]
    assert lake.pipeline(runner="threads").verify().ok


@inline_only
@pytest.mark.parametrize("in_process", [False, True])
def test_batches_that_spark_repeats_happen_once(
    lake: il.Lake, table: il.Table, feeder: Feeder, in_process: bool
) -> None:
    order = random.Random(in_process)
    sink = lake.pipeline().sink("sales.t") if in_process else None
    expected: list[dict[str, Any]] = []
    for number in range(5):
        some = rows(*range(number * 20_000, number * 20_000 + order.choice([3, 11_000])))
        expected += some
        feeder.put(some)
        feeder.run(feeder.frame(), sink=sink)
        if order.random() < 0.7:
            lake.pipeline(runner="threads").dump()
        for _ in range(order.randrange(3)):
            feeder.forget_the_last_batch()
            feeder.run(feeder.frame(), sink=sink)
        assert contents(table) == as_tuples(expected)
    assert table.changes(0).count() == len(expected)


@inline_only
def test_upserts_by_key(table: il.Table, feeder: Feeder) -> None:
    table.insert(rows(1, 2))
    feeder.put(rows(2, 3, name="y"))
    feeder.run(feeder.frame("id long, name string"), write_mode="upsert")
    assert contents(table) == [(1, "x1", 1), (2, "y2", 2), (3, "y3", 7)]
    feeder.put(rows(*range(30_000), name="z"))
    feeder.run(feeder.frame("id long, name string"), write_mode="upsert")
    assert contents(table)[:5] == [(0, "z0", 7), (1, "z1", 1), (2, "z2", 2), (3, "z3", 7), (4, "z4", 7)]
    assert table.count() == 30_000
    feeder.put([*rows(1, name="late"), *rows(1, name="a"), *rows(1, name="m")])
    feeder.run(feeder.frame(), write_mode="upsert", sequence_by="name")
    assert contents(table)[1] == (1, "m1", 1)


def test_groups_that_change_go_through_the_sink_of_this_process(lake: il.Lake, table: il.Table, feeder: Feeder) -> None:
    """Spark has no output mode "update" for formats written in Python."""
    totals = feeder.frame().groupBy("n").count().selectExpr("cast(n as long) id", "cast(count as string) name")
    sink = lake.pipeline().sink("sales.t", mode="upsert")
    feeder.put(rows(1, 2, 6))
    feeder.run(totals, "update", sink)
    assert contents(table) == [(1, "2", 7), (2, "1", 7)]
    feeder.put(rows(3, 11))
    feeder.run(totals, "update", sink)
    assert contents(table) == [(1, "3", 7), (2, "1", 7), (3, "1", 7)]


@inline_only
def test_the_output_mode_complete_replaces_all_rows(table: il.Table, feeder: Feeder) -> None:
    table.insert(rows(99))
    totals = feeder.frame().groupBy("n").count().selectExpr("cast(n as long) id", "cast(count as string) name")
    feeder.put(rows(1, 2, 6))
    feeder.run(totals, "complete")
    assert contents(table) == [(1, "2", 7), (2, "1", 7)]
    feeder.put(rows(3, 11))
    feeder.run(totals, "complete")
    assert contents(table) == [(1, "3", 7), (2, "1", 7), (3, "1", 7)]


CHANGES = SCHEMA.append(pa.field("_change_type", pa.string())).append(pa.field("_snapshot_id", pa.int64()))


@inline_only
def test_changes_make_a_copy(lake: il.Lake, table: il.Table, feeder: Feeder) -> None:
    source = lake.create_table("source", SCHEMA, primary_key="id")
    order = random.Random(1)
    since = lake.snapshot_id
    for _ in range(3):
        for _ in range(30):
            id = order.randrange(20)
            if order.random() < 0.4:
                source.delete("id = $id", params={"id": id})
            else:
                source.upsert(rows(id, name=order.choice("abc")))
        feed = source.changes(since)
        changes = feed.to_pylist()
        order.shuffle(changes)
        feeder.put(changes[:20], CHANGES)
        feeder.put(changes[20:], CHANGES)
        feeder.run(feeder.frame(f"{COLUMNS}, _change_type string, _snapshot_id long"), write_mode="changes")
        since = feed.until
        assert contents(table) == contents(source)


@inline_only
def test_a_clustered_table(lake: il.Lake, feeder: Feeder) -> None:
    config = il.TableConfig(partition_row_count=10_000)
    clustered = lake.create_table("sales.c", SCHEMA, primary_key="id", layout="clustered", config=config)
    feeder.put(rows(*range(0, 60_000, 2)))
    feeder.run(feeder.frame(), table="sales.c")
    feeder.put(rows(*range(1, 99, 2)))
    feeder.run(feeder.frame(), table="sales.c")
    assert contents(clustered) == as_tuples(rows(*range(0, 60_000, 2), *range(1, 99, 2)))
    assert lake.pipeline(runner="threads").verify().ok


def test_the_sink_of_this_process(lake: il.Lake, table: il.Table, feeder: Feeder) -> None:
    """Also where rows live in its memory."""
    sink = lake.pipeline().sink("sales.t", mode="upsert")
    assert repr(sink) == "<Sink of a stream into sales.t, mode 'upsert'>"
    table.insert(rows(1, 2))
    feeder.put(rows(2, 3, name="y"))
    feeder.run(feeder.frame(), sink=sink)
    feeder.forget_the_last_batch()
    table.delete("id = 2")
    feeder.run(feeder.frame(), sink=sink)
    assert contents(table) == as_tuples([*rows(1), *rows(3, name="y")])
    with pytest.raises(il.JobError, match="foreachBatch"):
        sink(feeder.spark.range(3), 0)
    with pytest.raises(il.JobError, match="mode='upsart' is not known"):
        lake.pipeline().sink("sales.t", mode="upsart")
    with pytest.raises(il.JobError, match="sequence_by is for the modes"):
        lake.pipeline().sink("sales.t", sequence_by="n")
    with pytest.raises(il.NotFoundError):
        lake.pipeline().sink("sales.missing")


def test_a_sink_takes_each_batch_once(lake: il.Lake, table: il.Table, feeder: Feeder) -> None:
    """What a second call is given would be lost, because the number of the batch is taken."""
    first, second = lake.pipeline().sink("sales.t"), lake.pipeline().sink("sales.t", mode="upsert")

    def halves(frame: Any, number: int) -> None:
        first(frame.where("id % 2 = 0"), number)
        second(frame.where("id % 2 = 1"), number)

    feeder.put(rows(1, 2))
    with pytest.raises(Exception, match="can be called once for a batch"):
        feeder.run(feeder.frame(), sink=halves)
    assert contents(table) == as_tuples(rows(2))
    feeder.run(feeder.frame(), sink=first)  # another run of the query, which repeats the batch
    assert contents(table) == as_tuples(rows(2))


def test_a_sink_does_not_write_to_another_table_of_that_name(lake: il.Lake, table: il.Table, feeder: Feeder) -> None:
    sinks = [lake.pipeline().sink("sales.t", mode=mode) for mode in ("append", "overwrite")]
    lake.drop_table("sales.t")
    other = lake.create_table("sales.t", SCHEMA)
    feeder.put(rows(1))
    for sink in sinks:
        with pytest.raises(Exception, match="NotFoundError"):
            feeder.run(feeder.frame(), sink=sink)
    assert other.count() == 0


WRONG: list[tuple[Callable[[Feeder], Any], dict[str, str], str]] = [
    (lambda f: f.frame().withColumnRenamed("n", "extra"), {}, "no column 'extra'"),
    (lambda f: f.frame("id long, name long"), {}, "DataFrame has bigint"),
    (lambda f: f.frame(), {"token": "x"}, "A stream has no option 'token'"),
    (lambda f: f.frame(), {"write_mode": "insert"}, "is 'append', 'upsert' or 'changes', not 'insert'"),
    (lambda f: f.frame(), {"sequence_by": "n"}, "'sequence_by' is for write_mode"),
    (lambda f: f.frame(), {"write_mode": "upsert", "sequence_by": "m"}, "'m'"),
    (lambda f: f.frame(), {"snapshot": "1"}, "'snapshot' is for reading"),
    (lambda f: f.frame(), {}, "already exists"),
    (lambda f: f.frame("id long"), {"write_mode": "changes"}, "needs a column '_change_type'"),
]


@inline_only
@pytest.mark.parametrize(("make", "options", "message"), WRONG)
def test_what_is_wrong_ends_the_query_and_changes_nothing(
    lake: il.Lake, table: il.Table, feeder: Feeder, make: Any, options: dict[str, str], message: str
) -> None:
    table.insert(rows(5, name="first"))
    before = lake.snapshot_id
    feeder.put(rows(4, 5))
    with pytest.raises(Exception, match=message):
        feeder.run(make(feeder), **options)
    assert (lake.snapshot_id, contents(table)) == (before, [(5, "first5", 0)])


@inline_only
def test_executors_learn_nothing_of_the_catalog(lake: il.Lake, spark: Any, tmp_path: Path) -> None:
    options = {"table": "sales.t", "path": str(tmp_path / "lake"), "storage.secret_access_key": "s3cret"}
    request = Request.of(options)
    writer = stream_sink.StreamWriter(request, spark.range(1).schema, False)
    sent = pickle.dumps(writer)
    assert b"sqlite" not in sent
    assert b"catalog" not in sent.replace(b"indexlake.catalog", b"")
    made = pickle.loads(sent)
    assert isinstance(made, stream_sink.TaskWriter)
    assert "s3cret" not in repr(made)
