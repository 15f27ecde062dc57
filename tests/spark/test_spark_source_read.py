"""``spark.read.format("indexlake")``: options, snapshots, filters, SQL over views, and what stays on the driver."""

from __future__ import annotations

import datetime as dt
import operator
import pickle
import random
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.catalog.clock import now
from indexlake.schema import Field, TableSchema
from indexlake.spark import source as source_module
from indexlake.spark.filters import Pushed
from indexlake.spark.request import CATALOG, Request
from indexlake.spark.source import IndexLakeSource, PushingReader
from indexlake.storage.environment import STORAGE_OPTIONS
from tests.support.lakes import clock_of

pytestmark = pytest.mark.inline_only("another process reads, and sees the last checkpoint")

ORDERS = pa.schema([pa.field("id", pa.int64(), False), ("City", pa.string()), ("total", pa.float64())])
CONFIG = il.TableConfig(block_row_count=40, direct_write_row_count=30)


@pytest.fixture(scope="module", autouse=True)
def orders(module_lake: il.Lake) -> None:
    t = module_lake.create_table("sales.orders", ORDERS, primary_key="id", config=CONFIG)
    t.insert(pa.table({"id": range(100), "City": [f"c{n % 5}" for n in range(100)], "total": range(100)}))
    t.insert([{"id": 1_000, "City": None, "total": None}])
    t.delete("id = 7")


@pytest.fixture
def folder(module_lake: il.Lake) -> str:
    return str(Path(module_lake.catalog.location).parent)


def load(spark: Any, folder: str, **options: str) -> Any:
    return spark.read.format("indexlake").options(table="sales.orders", **options).load(folder)


def rows_of(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, frame.collect()), key=str)


def rows_in(scan: il.Scan) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in scan.to_pylist()), key=str)


def pins(lake: il.Lake) -> list[tuple[Any, ...]]:
    with lake.catalog.read() as r:
        return r.rows("select snapshot_id, expires_at from indexlake_pin where pin_id like 'spark:%'")


# ---------------------------------------------------------------- reading


def test_the_format_is_found_without_registration_and_pins_its_snapshot(
    module_lake: il.Lake, folder: str, spark: Any
) -> None:
    t = module_lake.table("sales.orders")
    before, held = rows_in(t.scan()), len(pins(module_lake))
    frame = load(spark, folder)
    assert frame.columns == ORDERS.names
    assert rows_of(frame) == before
    (pin,) = pins(module_lake)[held:]
    assert pin[0] == module_lake.snapshot_id
    assert timedelta(hours=23) < timedelta(microseconds=pin[1] - now()) <= timedelta(hours=24)

    t.update({"total": 0.0}, "id < 50")
    p = module_lake.pipeline(runner="threads")
    t.set_config(retention=timedelta(0))
    p.dump("sales.orders")
    p.compact("sales.orders")
    with clock_of(module_lake).stopped(now() + 3600 * 1_000_000):
        p.expire("sales.orders")
        p.vacuum(dry_run=False, grace=timedelta(0))
    assert rows_of(frame) == before
    assert rows_of(frame.filter("id < 60")) == [row for row in before if row[0] < 60]
    assert len(pins(module_lake)) == held + 1, "queries over one DataFrame share its snapshot"
    assert rows_of(load(spark, folder)) == rows_in(t.scan())


def test_options_choose_snapshot_columns_and_rows(module_lake: il.Lake, folder: str, spark: Any) -> None:
    t = module_lake.create_table("sales.options", ORDERS, config=CONFIG)
    t.insert([{"id": n, "City": "x", "total": float(n)} for n in range(5)])
    first = module_lake.snapshot_id
    t.insert({"id": 5, "City": "y", "total": 5.0})
    reader = spark.read.format("indexlake").option("table", "sales.options")
    assert rows_of(reader.option("snapshot", str(first)).load(folder)) == rows_in(t.at(first).scan())
    when = t.history()[-1].committed_at.isoformat()
    narrow = spark.read.format("indexlake").schema("TOTAL double, id bigint not null")
    found = narrow.options(table="sales.options", timestamp=when, where="total >= 3").load(folder)
    assert found.columns == ["TOTAL", "id"]
    assert rows_of(found) == [(3.0, 3), (4.0, 4), (5.0, 5)]
    module_lake.create_table("sales.nothing", ORDERS)
    assert spark.read.format("indexlake").option("table", "sales.nothing").load(folder).count() == 0


def test_hot_rows_in_files_outlive_the_process_that_planned(
    monkeypatch: pytest.MonkeyPatch, module_lake: il.Lake, folder: str
) -> None:
    monkeypatch.setattr("indexlake.spark.portion.HOT_BYTES", 500)
    monkeypatch.setattr("indexlake.hot.inline.BATCH_ROWS", 10)
    t = module_lake.create_table("sales.hot", ORDERS, config=il.TableConfig(direct_write_row_count=10**6))
    t.insert([{"id": n, "City": "x", "total": float(n)} for n in range(60)])
    source = IndexLakeSource({"path": folder, "table": "sales.hot"})
    reader = source.reader(source.schema())
    staged = [f.path for f in module_lake.storage.list(f"tables/{t._table_id}") if "/stage/" in f.path]
    assert staged
    module_lake.pipeline(runner="threads").vacuum(dry_run=False, grace=timedelta(0))
    sent = pickle.loads(pickle.dumps(reader))
    found = [row["id"] for part in reader.partitions() for batch in sent.read(part) for row in batch.to_pylist()]
    assert sorted(found) == list(range(60))


# ---------------------------------------------------------------- filters


def test_filters_of_spark_are_left_to_spark_unless_the_dataframe_is_for_one_query(
    module_lake: il.Lake, folder: str, spark: Any
) -> None:
    """Spark would use what was planned with the first query's filters for the queries after it."""
    t = module_lake.table("sales.orders")
    conf = "spark.sql.python.filterPushdown.enabled"
    for enabled in ("true", "false"):
        spark.conf.set(conf, enabled)
        try:
            frame = load(spark, folder)
            assert frame.filter("id < 10").count() == t.scan("id < 10").count()
            assert frame.count() == len(t)
            both = frame.filter("id < 10").union(frame.filter("id >= 95"))
            assert both.count() == t.scan("id < 10 or id >= 95").count()
            once = load(spark, folder, pushdown="once").filter("id < 10 and City <> 'c1' and (id > 3 or total = 1)")
            plan = str(once._jdf.queryExecution().toString())
            assert ("Filter ((id#" in plan.split("Physical Plan")[1]) == (enabled == "true")
            assert rows_of(once) == rows_in(t.scan("id < 10 and City <> 'c1' and (id > 3 or total = 1)"))
        finally:
            spark.conf.unset(conf)


KINDS = {
    "i": pa.int32(), "u": pa.uint64(), "f": pa.float32(), "x": pa.float64(), "s": pa.string(), "b": pa.bool_(),
    "d": pa.date32(), "t": pa.timestamp("us"), "z": pa.timestamp("ms", "Europe/Berlin"), "m": pa.decimal128(9, 2),
}  # fmt: skip
SCHEMA = TableSchema([Field(n, name, type, True) for n, (name, type) in enumerate(KINDS.items())])
VALUES: dict[str, list[Any]] = {
    "i": [0, 1, -5, 7],
    "u": [Decimal(0), Decimal(2**64 - 1), Decimal(7)],
    "f": [0.0, 1.5, -2.5],
    "x": [0.0, -0.0, 1e300, 2.5],
    "s": ["", "a", "ab", "b%"],
    "b": [True, False],
    "d": [dt.date(2024, 1, 1), dt.date(1969, 12, 31)],
    "t": [dt.datetime(2024, 1, 1, 12), dt.datetime(1970, 1, 1, 0, 0, 0, 1)],
    "z": [dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC), dt.datetime(2024, 1, 1, 12, 0, 0, 500, tzinfo=dt.UTC)],
    "m": [Decimal("1.50"), Decimal("-0.01"), Decimal("0.00")],
}


def random_filter(chance: random.Random) -> tuple[Any, Any]:
    """A filter as Spark hands it over, and the column expression that it comes from."""
    from pyspark.sql import datasource as ds
    from pyspark.sql import functions

    compared = {
        ds.EqualTo: operator.eq, ds.GreaterThan: operator.gt, ds.GreaterThanOrEqual: operator.ge,
        ds.LessThan: operator.lt, ds.LessThanOrEqual: operator.le,
        ds.EqualNullSafe: lambda column, value: column.eqNullSafe(value),
    }  # fmt: skip
    texts = {ds.StringStartsWith: "startswith", ds.StringEndsWith: "endswith", ds.StringContains: "contains"}
    name = chance.choice(list(KINDS))
    value, column = chance.choice(VALUES[name]), functions.col(name)
    kind = chance.choice([*compared, ds.In, ds.IsNull, ds.IsNotNull, *(texts if name == "s" else ())])
    if kind is ds.In:
        given, truth = kind((name,), tuple(VALUES[name][:2])), column.isin(VALUES[name][:2])
    elif kind in (ds.IsNull, ds.IsNotNull):
        given, truth = kind((name,)), column.isNull() if kind is ds.IsNull else column.isNotNull()
    elif kind in texts:
        given, truth = kind((name,), value), getattr(column, texts[kind])(value)
    else:
        given, truth = kind((name,), value), compared[kind](column, value)
    return (ds.Not(given), ~truth) if chance.random() < 0.3 else (given, truth)


def test_pushed_filters_mean_what_spark_means(module_lake: il.Lake, spark: Any) -> None:
    """Random filters, judged by Spark over the same rows."""
    chance = random.Random(11)
    picked = {name: [None if n % 5 == 0 else chance.choice(VALUES[name]) for n in range(60)] for name in KINDS}
    picked["x"] = [float("nan") if n % 9 == 0 else value for n, value in enumerate(picked["x"])]
    picked["u"] = [None if value is None else int(value) for value in picked["u"]]
    columns = {name: pa.array(values, pa.timestamp("us", "UTC") if name == "z" else KINDS[name])
               for name, values in picked.items()}  # fmt: skip
    columns["z"] = columns["z"].cast(KINDS["z"], safe=False)
    t = module_lake.create_table("filters.rows", pa.schema([("n", pa.int64()), *KINDS.items()]), config=CONFIG)
    t.insert(pa.table({"n": range(60), **columns}))
    truths, expected = [], []
    for _ in range(80):
        given, truth = random_filter(chance)
        pushed = Pushed(t._schema_now())
        assert pushed.take([given]) == [], given
        found = t.scan(pushed.where, params=pushed.params or None, columns=["n"]).to_arrow()
        expected.append((given, sorted(found.column("n").to_pylist())))
        truths.append(truth.alias(f"t{len(truths)}"))
    answers = t.to_spark(spark).select("n", *truths).collect()
    for number, (given, found) in enumerate(expected):
        assert sorted(r.n for r in answers if r[f"t{number}"]) == found, given


def test_filters_that_could_differ_are_left_to_spark() -> None:
    from pyspark.sql import datasource as ds

    left = [
        ds.EqualTo(("s", "inner"), "a"),
        ds.EqualTo(("missing",), 1),
        ds.EqualTo(("i",), 1.5),
        ds.EqualTo(("x",), float("nan")),
        ds.EqualTo(("t",), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
        ds.EqualTo(("m",), Decimal("0.001")),
        ds.In(("i",), (1, None)),
        ds.In(("i",), ()),
        ds.Not(ds.In(("i",), (1, None))),
        ds.StringContains(("i",), "1"),
    ]
    pushed = Pushed(SCHEMA)
    assert pushed.take(left) == left
    assert pushed.where is None
    assert pushed.take([ds.EqualTo(("S",), "a' or true --")]) == []
    assert (pushed.where, pushed.params) == ('("s" = $p0)', {"p0": "a' or true --"})


def test_pushed_filters_choose_the_blocks_that_are_read(
    monkeypatch: pytest.MonkeyPatch, module_lake: il.Lake, folder: str
) -> None:
    from pyspark.sql import datasource as ds

    monkeypatch.setattr(source_module, "_filters_are_pushed", lambda: True)
    source = IndexLakeSource(
        {"path": folder, "table": "sales.orders", "pushdown": "once", "where": "total < 50 -- few"}
    )
    reader = source.reader(source.schema())
    assert isinstance(reader, PushingReader)
    assert reader.pushFilters([ds.GreaterThan(("id",), 5_000), ds.EqualTo(("City", "x"), 1)]) == [
        ds.EqualTo(("City", "x"), 1)
    ]
    assert reader.partitions() == []


# ---------------------------------------------------------------- SQL


def test_temporary_views_take_options_and_sql(module_lake: il.Lake, folder: str, spark: Any) -> None:
    t = module_lake.table("sales.orders")
    spark.sql(
        f"""create or replace temporary view orders using indexlake
        options (path '{folder}', table 'sales.orders', where 'id < 90')"""
    )
    expected = t.scan("id < 90 and City = 'c1'").count()
    assert spark.sql("select count(*) n from orders where city = 'c1'").collect()[0].n == expected
    assert spark.sql("select count(*) n from orders").collect()[0].n == t.scan("id < 90").count()
    spark.sql("create or replace temporary view fewer as select id from orders where id < 9")
    assert spark.sql("select count(*) n from fewer").collect()[0].n == t.scan("id < 9").count()
    spark.catalog.dropTempView("orders")


@pytest.mark.parametrize(
    ("statement", "answer"),
    [
        ("create table kept using indexlake options (path '{0}', table 'sales.orders')", "Use CREATE TEMPORARY VIEW"),
        ("select * from indexlake.`{0}`", "UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY"),
        ("delete from shown where id = 1", "does not support deletes"),
        ("update shown set total = 1 where id = 1", "does not support UPDATE"),
        ("create view lasting as select * from shown", "INVALID_TEMP_OBJ_REFERENCE"),
    ],
)
def test_what_spark_sql_does_not_allow(
    module_lake: il.Lake, folder: str, spark: Any, statement: str, answer: str
) -> None:
    if "shown" in statement:
        load(spark, folder).createOrReplaceTempView("shown")
    with pytest.raises(Exception, match=answer):
        spark.sql(statement.format(folder))


# ---------------------------------------------------------------- wrong options


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "needs the lake"),
        ({"path": "x"}, "needs the option 'table'"),
        ({"path": "x", "table": "t", "tabel": "t"}, "no option 'tabel'"),
        ({"path": "x", "table": "t", "snapshot": "1", "timestamp": "2024-01-01T00:00:00Z"}, "either 'snapshot' or"),
        ({"path": "x", "table": "t", "snapshot": "new"}, "'snapshot' is a whole number, not 'new'"),
        ({"path": "x", "table": "t", "timestamp": "2024-01-01"}, "a time with its zone"),
        ({"path": "x", "table": "t", "pushdown": "true"}, "'pushdown' is 'never' or 'once'"),
        ({"catalog": "postgresql://me:hunter2@host/db", "table": "t"}, "must not have the password in it"),
        ({"catalog": "postgresql://host/db?password=hunter2", "table": "t"}, "must not have the password in it"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], problem: str) -> None:
    with pytest.raises(il.SchemaError) as raised:
        Request.of(options)
    assert problem in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_a_schema_that_the_table_does_not_have_is_refused(module_lake: il.Lake, folder: str) -> None:
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    def ask(*fields: StructField) -> None:
        IndexLakeSource({"path": folder, "table": "sales.orders"}).reader(StructType(list(fields)))

    with pytest.raises(il.SchemaError, match=r"no column 'town'; it has id, City, total"):
        ask(StructField("town", StringType()))
    with pytest.raises(il.SchemaError, match=r"'city' of 'sales.orders' is string in Spark, not bigint"):
        ask(StructField("city", LongType()))
    with pytest.raises(il.SchemaError, match=r"'city' of 'sales.orders' may be null"):
        ask(StructField("city", StringType(), False))


def test_errors_of_the_lake_reach_the_user_of_spark(module_lake: il.Lake, folder: str, spark: Any) -> None:
    with pytest.raises(Exception, match=r"There is no table 'sales.order'. Did you mean 'sales.orders'"):
        spark.read.format("indexlake").option("table", "sales.order").load(folder)


# ---------------------------------------------------------------- secrets


def test_the_environment_of_the_driver_can_hold_what_options_should_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CATALOG, "postgresql://me:hunter2@host/db")
    monkeypatch.setenv(STORAGE_OPTIONS, '{"secret_access_key": "hush", "region": "here"}')
    request = Request.of({"table": "t", "storage.region": "there"})
    assert request.catalog == "postgresql://me:hunter2@host/db"
    assert request.storage_options == {"secret_access_key": "hush", "region": "there"}
    assert "hunter2" not in repr(request)
    assert "hush" not in repr(request)
    given = Request.of({"catalog": "postgresql://me@host/db?sslmode=require", "catalog_password": "p@ss", "table": "t"})
    assert given.catalog == "postgresql://me:p%40ss@host/db?sslmode=require"
    monkeypatch.setenv(STORAGE_OPTIONS, "[1]")
    with pytest.raises(il.SchemaError, match="must be a JSON object"):
        Request.of({"table": "t"})


def test_what_goes_to_executors_knows_no_catalog(new_address: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.cloudpickle import cloudpickle

    address = new_address("postgres", "s3")
    catalog = address.catalog.replace("://postgres:@", "://postgres:hunter2@")
    assert "hunter2" in catalog
    with address.connect(automatic=False) as lake:
        t = lake.create_table("sales.orders", ORDERS, config=CONFIG)
        t.insert([{"id": n, "City": "x", "total": 1.0} for n in range(80)])
    monkeypatch.setenv(CATALOG, catalog)
    options = {f"storage.{name}": value for name, value in address.storage_options.items()}
    source = IndexLakeSource({"table": "sales.orders", "catalog_schema": address.catalog_schema, **options})
    schema = source.schema()
    reader = source.reader(schema)
    sent = cloudpickle.dumps((source, reader))
    portions = [cloudpickle.dumps(part) for part in reader.partitions()]
    for data in (sent, *portions):
        for secret in ("hunter2", "postgresql", address.catalog_schema):
            assert secret.encode() not in data
    secret_key = address.storage_options["secret_access_key"].encode()
    assert secret_key in sent, "the storage is what they need"
    assert not any(secret_key in data for data in portions)
    assert secret_key.decode() not in repr(reader.__dict__)
    found = [
        row for data in portions for batch in pickle.loads(sent)[1].read(pickle.loads(data)) for row in batch["id"]
    ]
    assert len(found) == 80


def test_plans_show_no_secret(new_address: Any, spark: Any) -> None:
    """SQL text with an option whose name says what it is, and the plans of everything that is read."""
    address = new_address("sqlite", "s3")
    secret = address.storage_options["secret_access_key"]
    with address.connect(automatic=False) as lake:
        t = lake.create_table("t", ORDERS, config=CONFIG)
        t.insert([{"id": n, "City": "x", "total": 1.0} for n in range(80)])
        frame = t.to_spark(spark, where="id > $low", params={"low": 3})
        assert frame.count() == 76
        shown = str(frame._jdf.queryExecution().toString())
        command, broadcast = sent_to_executors(frame)
        assert secret.encode() in command
        assert secret.encode() not in broadcast
        assert address.catalog.encode() not in command + broadcast
    options = ", ".join(f"'storage.{name}' '{value}'" for name, value in address.storage_options.items())
    view = (
        f"create or replace temporary view v using indexlake options (path '{address.catalog}', table 't', {options})"
    )
    shown += spark.sql(f"explain extended {view}").collect()[0][0]
    spark.sql(view)
    assert spark.sql("select count(*) n from v").collect()[0].n == 80
    for mode in ("extended", "formatted", "codegen", "cost"):
        shown += spark.sql(f"explain {mode} select * from v where id > 3").collect()[0][0]
    assert "redacted" in shown
    assert secret not in shown


def sent_to_executors(frame: Any) -> tuple[bytes, bytes]:
    """The pickled function of a DataFrame, and what is broadcast with it."""
    plan = frame._jdf.queryExecution().analyzed()
    while plan.nodeName() != "MapInArrow":
        plan = plan.child()
    function = plan.functionExpr().func()
    command = bytes(int(number) & 255 for number in function.command().mkString(",").split(","))
    paths = [function.broadcastVars().get(n).value().path() for n in range(function.broadcastVars().size())]
    return command, b"".join(Path(path).read_bytes() for path in paths)
