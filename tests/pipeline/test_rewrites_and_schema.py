"""Rewrites of tables whose columns change, and of columns of every type."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa

import indexlake as il
from indexlake.storage import faults
from tests.pipeline.job_tables import content, expire_everything

SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.int32()), ("s", pa.struct([("x", pa.int32()), ("y", pa.string())]))])
CONFIG = il.TableConfig(block_row_count=50, direct_write_row_count=10)


def test_no_snapshot_notices_rewrites_among_and_during_changes_of_columns(lake):
    t = lake.create_table("t", SCHEMA, primary_key="id", config=CONFIG)
    p = lake.pipeline()
    past = {}

    def made(start, count, **more):
        return [{"id": n, "a": n * 7 % 13, "s": {"x": n, "y": str(n)}, **more} for n in range(start, start + count)]

    def look():
        past[lake.snapshot_id] = content(t)
        for snapshot, then in past.items():
            assert content(t.at(snapshot)) == then

    def meanwhile(change):
        def callback(step):
            if step == "rewrite.written":
                faults.install(None)
                change()
                look()

        faults.install(callback)

    t.insert(pa.Table.from_pylist(made(0, 20)))
    t.insert(made(20, 5))
    t.add_column("d", pa.int64(), default=5)
    t.insert(pa.Table.from_pylist(made(30, 20, d=None)))
    look()
    p.compact("t")
    look()
    t.rename_column("a", "aa")
    t.widen_column("aa", pa.int64())
    look()
    p.compact("t", cluster_by=["aa", "d"], order="zorder")
    look()
    t.update({"aa": il.expr("aa + 1")}, "id % 3 = 0")
    p.dump("t")
    look()

    def changed():
        t.drop_column("d")
        t.add_column("e", pa.string(), default="e")
        t.widen_column("s.x", pa.int64())
        t.update({"e": "changed"}, "id = 3")

    try:
        meanwhile(changed)
        p.freeze("t")
        look()
        meanwhile(lambda: (t.add_column("g", pa.int64(), default=9), t.update({"g": 1}, "id = 4")))
        p.compact("t", cluster_by=["e", "aa"])
        look()
    finally:
        faults.install(None)
    p.thaw("t")
    look()
    assert p.verify().ok
    now = content(t)
    expire_everything(lake)
    p.compact("t", cluster_by=["e"])
    assert content(t) == now
    assert p.verify().ok


def test_columns_of_every_ordered_type_can_be_clustered_by(lake):
    n = 120
    day = dt.datetime(2020, 1, 1)
    columns = {
        "boolean": pa.array([None if i % 7 == 0 else i % 2 == 0 for i in range(n)]),
        "uint64": pa.array([2**63 + i * 7919 % n for i in range(n)], pa.uint64()),
        "half": pa.array(np.arange(n, dtype=np.float16)[::-1].copy()),
        "decimal": pa.array([Decimal(i * 37 % n) / 100 for i in range(n)], pa.decimal128(12, 2)),
        "large_decimal": pa.array([Decimal(i * 37 % n) / 100 for i in range(n)], pa.decimal256(50, 2)),
        "date": pa.array([(day + dt.timedelta(days=i * 31 % n)).date() for i in range(n)]),
        "moment": pa.array([day + dt.timedelta(hours=i * 31 % n) for i in range(n)], pa.timestamp("us", "Europe/Rome")),
        "time": pa.array([dt.time(i % 24, i % 60) for i in range(n)], pa.time64("us")),
        "bytes": pa.array([bytes([i * 31 % 256, 0]) for i in range(n)]),
        "fixed": pa.array([bytes([i * 31 % 256, i % 256]) for i in range(n)], pa.binary(2)),
        "long_text": pa.array([None if i % 5 == 0 else "x" * 100 + str(i) for i in range(n)], pa.large_string()),
        "numbers": pa.array([i % 5 for i in range(n)]).dictionary_encode(),
        "nothing": pa.array([None] * n, pa.int64()),
        "no_text": pa.array([None] * n, pa.string()),
    }
    rows = pa.table({"id": range(n), **columns})
    config = il.TableConfig(block_row_count=40, direct_write_row_count=10, dump_format="ipc")
    t = lake.create_table("t", rows.schema, primary_key="id", config=config)
    for start in range(0, n, 30):
        t.insert(rows.slice(start, 30))
    before = content(t)
    p = lake.pipeline()
    for name in columns:
        assert p.compact("t", cluster_by=[name], order="zorder")["main.t"].rows == n
        assert content(t) == before, name
    p.compact("t", cluster_by=list(columns)[:8], order="zorder")
    p.compact("t", cluster_by=list(columns)[6:])
    assert content(t) == before
