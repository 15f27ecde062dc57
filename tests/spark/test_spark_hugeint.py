"""HUGEINT on Spark: decimals of up to 38 digits arrive exactly; one of 39 is an error, never another number."""

from __future__ import annotations

from typing import Any

import pytest

import indexlake as il

MOST, LEAST = 2**127 - 1, -(2**127)


@pytest.mark.parametrize("format", ["hot", "vortex", "parquet"])
def test_a_hugeint_of_39_digits_is_refused_by_every_way_to_spark(module_lake: il.Lake, spark: Any, format: str) -> None:
    names = f"read_{format}"
    module_lake.sql(f"create table {names} (k int primary key, h hugeint)")
    table = module_lake.table(names)
    table.insert([{"k": 1, "h": 10**38 - 1}, {"k": 2, "h": 1 - 10**38}, {"k": 3, "h": None}])
    if format != "hot":
        table.set_config(dump_format=format)
        module_lake.pipeline(runner="threads").dump(names)
    expected = [(1, 10**38 - 1), (2, 1 - 10**38), (3, None)]

    def ways() -> list[Any]:
        return [
            lambda: table.to_spark(spark).orderBy("k").collect(),
            lambda: module_lake.sql(f"select k, h from {names} order by k", engine="spark").fetchall(),
        ]

    for way in ways():
        assert [tuple(row) for row in way()] == expected
    table.insert([{"k": 4, "h": MOST}, {"k": 5, "h": LEAST}])
    if format != "hot":
        module_lake.pipeline(runner="threads").dump(names)
    for way in ways():
        with pytest.raises(Exception, match="'h': a HUGEINT has 39 digits; Spark's decimals have at most 38"):
            way()
    some = table.to_spark(spark, where="h = 0 or k < 3").orderBy("k").collect()
    assert [tuple(row) for row in some] == expected[:2]
    assert [row.k for row in table.to_spark(spark, columns=["k"]).orderBy("k").collect()] == [1, 2, 3, 4, 5]


def test_jobs_on_spark_keep_hugeints(module_lake: il.Lake, spark: Any) -> None:
    rows = [{"k": n, "h": h} for n, h in enumerate([MOST, LEAST, 10**38, -(10**38), 0, None])]
    module_lake.sql("create table kept (k int primary key, h hugeint)")
    table = module_lake.table("kept")
    jobs = module_lake.pipeline(runner="spark", spark=spark)
    for row in rows:
        table.insert(row)
        jobs.dump("kept")
    jobs.compact("kept")
    jobs.freeze("kept")
    assert table.scan(order_by="k").to_pylist() == rows
    assert table.scan(f"h >= {MOST}", columns=["k"]).to_pylist() == [{"k": 0}]
