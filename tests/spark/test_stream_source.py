"""``spark.readStream.format("indexlake")``: every change once, offsets, limits, pins, and what ends a stream."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import indexlake as il
from indexlake.catalog.clock import now
from indexlake.feed import cut
from indexlake.spark import stream_source
from indexlake.spark.request import CATALOG
from indexlake.spark.source import IndexLakeSource
from indexlake.spark.stream_source import StreamReader
from tests.support.lakes import clock_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.inline_only("another process reads, and it cannot own the lake")

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.int32()), pa.field("s", pa.string())])
CONFIG = il.TableConfig(block_row_count=60, direct_write_row_count=50)
HOUR = 3600 * 1_000_000

Change = tuple[Any, ...]


@pytest.fixture
def t(lake: il.Lake) -> il.Table:
    return lake.create_table("sales.t", SCHEMA, primary_key="id", config=CONFIG)


@pytest.fixture
def place(lake: il.Lake) -> str:
    return str(Path(lake.catalog.location).parent)


def rows(first: int, count: int, v: int = 0) -> list[dict[str, Any]]:
    return [{"id": n, "v": v, "s": f"s{n}"} for n in range(first, first + count)]


def as_tuples(feed: Any) -> list[Change]:
    return sorted((tuple(row.values()) for row in feed.to_pylist()), key=repr)


def pins(lake: il.Lake) -> list[int]:
    with lake.catalog.read() as r:
        return [s for (s,) in r.rows("select snapshot_id from indexlake_pin where pin_id like 'spark:%' order by 1")]


class Stream:
    """One query with a checkpoint, which can be stopped and started again; what it was given, and in which batches."""

    def __init__(self, spark: Any, place: str, checkpoint: Path, **options: str) -> None:
        self._spark, self._place, self._checkpoint, self._options = spark, place, str(checkpoint), options
        self.batches: dict[int, list[Change]] = {}
        self.query: Any = None

    @property
    def seen(self) -> list[Change]:
        return sorted((row for batch in self.batches.values() for row in batch), key=repr)

    def start(self, **trigger: Any) -> Any:
        def collect(frame: Any, number: int) -> None:
            self.batches[number] = [tuple(row) for row in frame.collect()]

        loaded = self._spark.readStream.format("indexlake").options(table="sales.t", **self._options).load(self._place)
        writer = loaded.writeStream.foreachBatch(collect).option("checkpointLocation", self._checkpoint)
        self.query = (writer.trigger(**trigger) if trigger else writer).start()
        return self.query

    def run(self) -> None:
        """Process what is there, then end."""
        query = self.start(availableNow=True)
        assert query.awaitTermination(60), "it does not end"
        if query.exception() is not None:
            raise query.exception()


@pytest.fixture
def stream(spark: Any, place: str, tmp_path: Path) -> Iterator[Callable[..., Stream]]:
    made: list[Stream] = []

    def make(**options: str) -> Stream:
        made.append(Stream(spark, place, tmp_path / f"checkpoint{len(made)}", **options))
        return made[-1]

    yield make
    for each in made:
        if each.query is not None:
            each.query.stop()


@pytest.fixture
def reader(place: str) -> Iterator[Callable[..., StreamReader]]:
    """Make the reader that Spark keeps in a process of its own, in this one."""
    made: list[StreamReader] = []

    def make(**options: str) -> StreamReader:
        source = IndexLakeSource({"path": place, "table": "sales.t", **options})
        found = source.streamReader(source.schema())
        assert isinstance(found, StreamReader)
        made.append(found)
        return found

    yield make
    for each in made:
        each.stop()


def read(found: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[Change]:
    batches = [batch for part in found.partitions(start, end) for batch in found.read(part)]
    return sorted((tuple(row.values()) for batch in batches for row in batch.to_pylist()), key=repr)


# ---------------------------------------------------------------- every change once


def random_works(lake: il.Lake, t: il.Table, layout: str, chance: random.Random) -> list[Callable[[], Any]]:
    """Statements and jobs, one of them at a time."""
    p = lake.pipeline(runner="threads")
    return [
        lambda: t.insert(rows(1000 * chance.randrange(10**6), chance.choice([1, 5, 80]))),
        lambda: t.update({"v": chance.randrange(100)}, f"id % {chance.randrange(2, 9)} = 0"),
        lambda: t.delete(f"id % 50 = {chance.randrange(50)}"),
        lambda: t.upsert(rows(chance.randrange(120), 70, chance.randrange(9))),
        lambda: p.dump("sales.t"),
        lambda: p.compact("sales.t") if layout == "heap" else p.merge("sales.t"),
        lambda: p.freeze("sales.t") if layout == "heap" else p.split("sales.t"),
        lambda: lake.create_table(f"sales.other{lake.snapshot_id}", rows(0, 3)),
        lambda: t.truncate() if chance.random() < 0.2 else None,
    ]


def whole_stream(t: il.Table, first: int, until: int | None = None) -> list[Change]:
    """What a stream must have shown: the table at a snapshot, then all changes."""
    view = [(*row.values(), "insert", first) for row in t.at(first).to_pylist()]
    return sorted(view + as_tuples(t.changes(first, until)), key=repr)


@pytest.mark.parametrize("layout", ["heap", "clustered"])
@pytest.mark.parametrize("seed", range(3))
def test_every_change_is_in_one_micro_batch_which_can_be_read_again(
    lake: il.Lake, reader: Callable[..., StreamReader], layout: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random writes and jobs between micro-batches of random sizes, cut into portions; the process may be another."""
    t = lake.create_table("sales.t", SCHEMA, primary_key="id", layout=layout, config=CONFIG)
    chance = random.Random(f"{layout}{seed}")
    works = random_works(lake, t, layout, chance)
    t.insert(rows(0, 120))
    monkeypatch.setattr(cut, "LEAST_CHANGES", chance.choice([10, 50, 1000]))
    monkeypatch.setattr(cut, "MOST_CHANGES", 60)
    monkeypatch.setattr("indexlake.spark.portion.HOT_BYTES", chance.choice([0, 2_000, 10**6]))
    found = reader(changes="true")
    at, seen, ranges = found.initialOffset(), [], []
    for _ in range(25):
        for _ in range(chance.randrange(3)):
            chance.choice(works)()
        if chance.random() < 0.3:
            found = reader(changes="true")
        end = found.latestOffset(at, chance.choice([ReadAllAvailable(), ReadMaxRows(1), ReadMaxRows(100)]))
        if end != at:
            ranges.append((at, end))
            seen += read(found, at, end)
            found.commit(at) if at["snapshot"] else None
            at = end
    first = ranges[0][1]["snapshot"]
    assert sorted(seen, key=repr) == whole_stream(t, first, at["snapshot"])
    assert sorted((c for pair in ranges for c in read(found, *pair)), key=repr) == sorted(seen, key=repr)


def test_micro_batches_of_spark_add_up_to_the_feed_across_restarts(
    lake: il.Lake, stream: Callable[..., Stream]
) -> None:
    t = lake.create_table("sales.t", SCHEMA, primary_key="id", layout="clustered", config=CONFIG)
    chance = random.Random(1)
    works = random_works(lake, t, "clustered", chance)
    t.insert(rows(0, 120))
    t.update({"v": 9}, "id < 10")
    running = stream(changes="true")
    query = running.start()
    for turn in range(5):
        for work in [works[0], *chance.choices(works, k=3)]:
            work()
        if turn % 2:
            query.stop()  # perhaps in the middle of a micro-batch
            chance.choice(works)()
            query = running.start()
        else:
            query.processAllAvailable()
    assert len(pins(lake)) == 1
    query.stop()
    wait_until(lambda: not pins(lake), "the process of the stream removes its pin")
    first = running.batches[0][0][-1]
    assert len(running.batches) >= 3
    assert running.seen == whole_stream(t, first)


def test_rows_alone_are_a_stream_until_some_are_changed(t: il.Table, stream: Callable[..., Stream]) -> None:
    found = stream()
    query = found.start()
    query.processAllAvailable()
    assert found.seen == []
    t.insert(rows(0, 100))
    query.processAllAvailable()
    query.stop()
    assert found.seen == sorted(((n, 0, f"s{n}") for n in range(100)), key=repr)
    t.insert(rows(100, 3))
    t.update({"v": 5}, "id < 4")
    with pytest.raises(Exception, match=r"updated 4 and deleted 0 rows of 'sales.t', but this stream only has rows"):
        found.run()


def test_updates_and_deletes_can_be_ignored(lake: il.Lake, t: il.Table, reader: Callable[..., StreamReader]) -> None:
    t.insert(rows(0, 100))
    found = reader(skip_changes="true", where="id % 2 = 0")
    at = found.latestOffset(found.initialOffset(), ReadAllAvailable())
    assert read(found, found.initialOffset(), at) == sorted(((n, 0, f"s{n}") for n in range(0, 100, 2)), key=repr)
    t.update({"v": 5}, "id < 4")
    t.delete("id = 50")
    assert found.latestOffset(at, ReadAllAvailable()) == at, "nothing was inserted"
    t.insert(rows(200, 2))
    t.upsert(rows(202, 1) + rows(0, 2))
    end = found.latestOffset(at, ReadAllAvailable())
    assert read(found, at, end) == [(200, 0, "s200"), (202, 0, "s202")]


def test_a_backlog_is_read_in_batches_of_a_size_that_one_may_choose(
    lake: il.Lake, t: il.Table, stream: Callable[..., Stream]
) -> None:
    start = lake.snapshot_id
    for n in range(5):
        t.insert(rows(10 * n, 10))
    t.insert(rows(1000, 300))
    t.delete("id = 1")
    limited = stream(since=str(start), max_rows_per_trigger="20")
    limited.run()
    assert [len(limited.batches[n]) for n in sorted(limited.batches)] == [20, 20, 310, 1]
    assert limited.seen == as_tuples(t.changes(start))


# ---------------------------------------------------------------- reading changes without a stream


def test_changes_can_be_read_as_a_batch(lake: il.Lake, t: il.Table, place: str, spark: Any) -> None:
    start = lake.snapshot_id
    t.insert(rows(0, 100))
    middle = lake.snapshot_id
    t.update({"v": 1}, "id < 5")
    load = spark.read.format("indexlake").option("table", "sales.t")
    frame = load.option("since", str(start)).load(place)
    assert frame.dtypes[-2:] == [("_change_type", "string"), ("_snapshot_id", "bigint")]
    expected = as_tuples(t.changes(start))
    assert pins(lake) == [start]
    t.delete("id = 7")
    t.set_config(retention=timedelta(0))
    with clock_of(lake).stopped(now() + HOUR):
        lake.pipeline(runner="threads").run()
    assert sorted(map(tuple, frame.collect()), key=repr) == expected
    when = t.history()[-1].committed_at.isoformat()
    some = spark.read.format("indexlake").schema("_CHANGE_TYPE string, s string")
    found = some.options(table="sales.t", since=str(start), until=str(middle), where="id < 2").load(place)
    assert sorted(map(tuple, found.collect())) == [("insert", "s0"), ("insert", "s1")]
    assert spark.read.format("indexlake").options(table="sales.t", since=when).load(place).count() == 0


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"changes": "true"}, "give the option 'since'"),
        ({"since": "1", "changes": "false"}, "'since' is for reading changes"),
        ({"since": "yesterday"}, "'since' is a snapshot number, a time with its zone"),
        ({"since": "latest"}, "since='latest' is for spark.readStream"),
        ({"since": "1", "snapshot": "2"}, "'snapshot' is not for streams and changes"),
        ({"since": "1", "pushdown": "once"}, "'pushdown' is not for streams and changes"),
        ({"since": "1", "max_rows_per_trigger": "5"}, "'max_rows_per_trigger' is for spark.readStream"),
        ({"changes": "yes"}, "'changes' is 'true' or 'false', not 'yes'"),
        ({"max_rows_per_trigger": "0"}, "1 or more, not '0'"),
        ({"until": "5"}, "'until' is for reading changes"),
    ],
)
def test_wrong_options_of_a_batch_are_named(t: il.Table, place: str, options: dict[str, str], problem: str) -> None:
    t.insert(rows(0, 1))

    def load() -> None:
        source = IndexLakeSource({"path": place, "table": "sales.t", **options})
        source.reader(source.schema())

    with pytest.raises(il.SchemaError, match=problem):
        load()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"since": "0", "until": "5"}, "'until' is for spark.read"),
        ({"snapshot": "1"}, "'snapshot' is not for streams"),
        ({"changes": "true", "skip_changes": "true"}, "either 'changes' or 'skip_changes'"),
        ({"where": "nothing = 1"}, "nothing"),
        ({"changes": "true", "where": "_change_kind = 'insert'"}, "_change_kind"),
    ],
)
def test_wrong_options_of_a_stream_are_named(
    t: il.Table, reader: Callable[..., StreamReader], options: dict[str, str], problem: str
) -> None:
    with pytest.raises(il.IndexLakeError, match=problem):
        reader(**options)


# ---------------------------------------------------------------- offsets


def test_a_stream_begins_with_the_table_or_after_a_snapshot_or_now(
    lake: il.Lake, t: il.Table, reader: Callable[..., StreamReader]
) -> None:
    t.insert(rows(0, 3))
    first, at = lake.snapshot_id, t.history()[-1].committed_at
    t.update({"v": 1}, "id = 1")
    offset = {"table": t._table_id}
    assert reader().initialOffset() == {"snapshot": None, **offset}
    assert reader(since=str(first)).initialOffset() == {"snapshot": first, **offset}
    assert reader(since=at.isoformat()).initialOffset() == {"snapshot": first, **offset}
    assert reader(since="latest").initialOffset() == {"snapshot": lake.snapshot_id, **offset}
    assert reader(since="0").initialOffset() == {"snapshot": t.history()[0].snapshot_id - 1, **offset}
    with pytest.raises(il.NotFoundError, match="There is no snapshot 99 yet"):
        reader(since="99").initialOffset()


def test_only_commits_that_change_rows_of_the_table_move_the_offset(
    lake: il.Lake, t: il.Table, reader: Callable[..., StreamReader]
) -> None:
    t.insert(rows(0, 200))
    found = reader(changes="true")
    start = found.latestOffset(found.initialOffset(), ReadAllAvailable())
    assert len(read(found, found.initialOffset(), start)) == 200
    p = lake.pipeline(runner="threads")
    for _ in range(3):
        lake.create_table(f"sales.o{lake.snapshot_id}", rows(0, 1)).insert(rows(1, 1))
        p.compact("sales.t")
        t.add_column(f"c{lake.snapshot_id}", "int64")
        assert found.latestOffset(start, ReadAllAvailable()) == start
    t.delete("id = 1")
    gone = lake.snapshot_id
    lake.create_table("sales.other", rows(0, 1))
    end = found.latestOffset(start, ReadAllAvailable())
    assert end == {**start, "snapshot": gone}
    assert read(found, start, end) == [(1, 0, "s1", "delete", gone)]
    assert found.partitions(end, end) == []
    t.insert(rows(500, 10))
    t.insert(rows(600, 10))
    assert found.latestOffset(end, ReadMaxRows(1)) == {**end, "snapshot": lake.snapshot_id - 1}
    assert found.latestOffset(end, ReadAllAvailable()) == {**end, "snapshot": lake.snapshot_id}


def test_a_stream_without_news_moves_on_before_its_snapshot_expires(
    lake: il.Lake, t: il.Table, reader: Callable[..., StreamReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    t.set_config(retention=timedelta(0))
    t.insert(rows(0, 2))
    found = reader(changes="true")
    start = found.latestOffset(found.initialOffset(), ReadAllAvailable())
    lake.create_table("sales.other", rows(0, 1))
    monkeypatch.setattr(stream_source, "LOOKED", -1.0)
    end = found.latestOffset(start, ReadAllAvailable())
    assert end["snapshot"] == lake.snapshot_id
    assert read(found, start, end) == []
    assert found.latestOffset(end, ReadAllAvailable()) == end


def test_the_condition_applies_to_each_change(lake: il.Lake, t: il.Table, reader: Callable[..., StreamReader]) -> None:
    t.insert(rows(0, 60))
    t.insert(rows(60, 3))
    for where in ("_change_type = 'insert' and _snapshot_id > 0 and id >= 58", "id >= 58"):
        found = reader(changes="true", where=where)
        start = found.latestOffset(found.initialOffset(), ReadAllAvailable())
        at = start["snapshot"]
        assert read(found, found.initialOffset(), start) == [(n, 0, f"s{n}", "insert", at) for n in range(58, 63)]
        t.update({"v": 4}, "id = 60")
        end = found.latestOffset(start, ReadAllAvailable())
        kinds = [change[3] for change in read(found, start, end)]
        assert kinds == ([] if "insert" in where else ["update_preimage", "update_postimage"])
        t.update({"v": 0}, "id = 60")


# ---------------------------------------------------------------- pins


def test_the_snapshot_that_a_stream_has_reached_is_pinned(
    lake: il.Lake, t: il.Table, reader: Callable[..., StreamReader]
) -> None:
    t.set_config(retention=timedelta(0))
    t.insert(rows(0, 5))
    found = reader(changes="true")
    assert pins(lake) == [], "what was pinned for a batch read is not needed"
    initial = found.initialOffset()
    first = found.latestOffset(initial, ReadAllAvailable())
    assert pins(lake) == [first["snapshot"]]
    t.update({"v": 1}, "id < 3")
    t.delete("id = 4")
    second = found.latestOffset(first, ReadAllAvailable())
    p = lake.pipeline(runner="threads")
    with clock_of(lake).stopped(now() + HOUR):
        p.run()
    assert len(read(found, initial, first)) == 5
    assert len(read(found, first, second)) == 7
    found.commit(first)
    assert pins(lake) == [first["snapshot"]]
    found.commit(second)
    assert pins(lake) == [second["snapshot"]]
    found.stop()
    assert pins(lake) == []


def test_a_pin_is_renewed(
    lake: il.Lake, t: il.Table, reader: Callable[..., StreamReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = reader(changes="true")
    start = found.latestOffset(found.initialOffset(), ReadAllAvailable())

    def expires() -> int:
        with lake.catalog.read() as r:
            return int(r.rows("select max(expires_at) from indexlake_pin where pin_id like 'spark:%'")[0][0])

    first = expires()
    assert timedelta(hours=23) < timedelta(microseconds=first - now()) <= timedelta(hours=24)
    found.latestOffset(start, ReadAllAvailable())
    assert expires() == first
    monkeypatch.setattr(stream_source, "RENEWED", -1.0)
    found.latestOffset(start, ReadAllAvailable())
    assert expires() > first
    assert pins(lake) == [start["snapshot"]]


def test_a_stream_does_not_take_a_lake_whose_rows_are_in_memory(tmp_path: Path) -> None:
    with il.connect(tmp_path / "memory", hot="memory") as lake:
        lake.create_table("sales.t", SCHEMA).insert(rows(0, 1))
    source = IndexLakeSource({"path": str(tmp_path / "memory"), "table": "sales.t"})
    schema = source.schema()
    with pytest.raises(il.OwnershipError, match="newest rows are in the memory of one process"):
        source.streamReader(schema)


def test_a_stream_that_was_away_for_too_long_is_told_what_to_do(
    lake: il.Lake, t: il.Table, reader: Callable[..., StreamReader]
) -> None:
    t.set_config(retention=timedelta(0))
    t.insert(rows(0, 5))
    found = reader(changes="true")
    start = found.latestOffset(found.initialOffset(), ReadAllAvailable())
    found.stop()
    t.update({"v": 1}, "id < 3")
    t.update({"v": 2}, "id < 3")
    end = {**start, "snapshot": lake.snapshot_id}
    with clock_of(lake).stopped(now() + HOUR):
        lake.pipeline(runner="threads").expire("sales.t")
    again = reader(changes="true", since=str(start["snapshot"]))
    for attempt in (
        lambda: again.latestOffset(start, ReadAllAvailable()),
        lambda: again.partitions(start, end),
        again.initialOffset,
    ):
        with pytest.raises(il.SnapshotExpiredError, match="Start a new query with another checkpoint") as raised:
            attempt()
        assert raised.value.horizon > start["snapshot"]


# ---------------------------------------------------------------- a table that changes


def test_a_stream_keeps_the_columns_that_it_began_with(
    lake: il.Lake, t: il.Table, reader: Callable[..., StreamReader]
) -> None:
    t.insert(rows(0, 2))
    found = reader(changes="true")
    start = found.latestOffset(found.initialOffset(), ReadAllAvailable())
    t.add_column("more", "int64", default=5)
    t.insert({"id": 10, "v": 1, "s": "x", "more": 7})
    end = found.latestOffset(start, ReadAllAvailable())
    assert read(found, start, end) == [(10, 1, "x", "insert", end["snapshot"])]
    again = reader(changes="true")
    assert read(again, start, end) == [(10, 1, "x", 7, "insert", end["snapshot"])]
    t.widen_column("v", "int64")
    t.insert(rows(20, 1))
    last = found.latestOffset(end, ReadAllAvailable())
    with pytest.raises(il.SchemaError, match=r"'v' of 'sales.t' is bigint in Spark, not int.*Restart the stream"):
        found.partitions(end, last)
    assert len(read(reader(changes="true"), start, last)) == 2
    for change in (lambda: t.rename_column("s", "text"), lambda: t.drop_column("more")):
        found = reader(changes="true")
        change()
        t.insert({"id": 30 + lake.snapshot_id})
        with pytest.raises(il.SchemaError, match=r"has no column '(s|more)'.*Restart the stream"):
            found.partitions(last, found.latestOffset(last, ReadAllAvailable()))


def test_a_batch_that_was_planned_before_a_column_was_added_can_be_read_with_it(
    lake: il.Lake, t: il.Table, reader: Callable[..., StreamReader]
) -> None:
    start = reader(since="latest").initialOffset()
    t.insert(rows(0, 1))
    t.insert(rows(100, 60))
    end = {**start, "snapshot": lake.snapshot_id}
    t.add_column("more", "int64", default=5)
    found = read(reader(changes="true"), start, end)
    assert len(found) == 61
    assert {change[3] for change in found} == {5}


def test_a_dropped_table_ends_the_stream(lake: il.Lake, t: il.Table, reader: Callable[..., StreamReader]) -> None:
    t.insert(rows(0, 2))
    found = reader(changes="true")
    start = found.latestOffset(found.initialOffset(), ReadAllAvailable())
    lake.drop_table("sales.t")
    with pytest.raises(il.NotFoundError, match=r"Table 'sales.t' was dropped"):
        found.latestOffset(start, ReadAllAvailable())
    table = lake.create_table("sales.t", SCHEMA)
    table.insert(rows(0, 1))
    later = {"snapshot": lake.snapshot_id + 1, "table": table._table_id}
    with pytest.raises(il.NotFoundError, match=r"the newest is \d+: the catalog was restored"):
        reader(changes="true").latestOffset(later, ReadAllAvailable())
    with pytest.raises(il.NotFoundError, match=r"another has its name\. Start a new query"):
        reader(changes="true").latestOffset(start, ReadAllAvailable())


# ---------------------------------------------------------------- secrets


def test_executors_get_the_storage_and_nothing_of_the_catalog(
    new_address: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.cloudpickle import cloudpickle

    address = new_address("postgres", "s3")
    catalog = address.catalog.replace("://postgres:@", "://postgres:hunter2@")
    with address.connect(automatic=False) as lake:
        t = lake.create_table("sales.t", SCHEMA, config=CONFIG)
        t.insert(rows(0, 80))
        t.insert(rows(80, 3))
    monkeypatch.setenv(CATALOG, catalog)
    options = {f"storage.{name}": value for name, value in address.storage_options.items()}
    source = IndexLakeSource(
        {"table": "sales.t", "catalog_schema": address.catalog_schema, "changes": "true", **options}
    )
    schema = source.schema()
    found = source.streamReader(schema)
    initial = found.initialOffset()
    end = found.latestOffset(initial, ReadAllAvailable())
    parts = [*found.partitions(initial, end), *found.partitions({**end, "snapshot": 0}, end)]
    sent = cloudpickle.dumps((source, found))
    portions = [cloudpickle.dumps(part) for part in parts]
    for data in (sent, *portions):
        for secret in ("hunter2", "postgresql", address.catalog_schema):
            assert secret.encode() not in data
    secret_key = address.storage_options["secret_access_key"].encode()
    assert secret_key in sent, "the storage is what they need"
    assert not any(secret_key in data for data in portions)
    assert secret_key.decode() not in repr(found)
    elsewhere = cloudpickle.loads(sent)[1]
    read = [row for data in portions for batch in elsewhere.read(cloudpickle.loads(data)) for row in batch["id"]]
    assert len(read) == 2 * 83
    found.stop()
