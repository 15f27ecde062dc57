"""Spark answers queries of views as DuckDB does."""

from __future__ import annotations

from typing import Any

import indexlake as il


def test_spark_reads_views(module_lake: il.Lake, spark: Any) -> None:
    module_lake.sql("create table t (id int primary key, v int); insert into t values (1, 10), (2, 20), (3, 30)")
    module_lake.sql("create view w(i, d) as select id, v * 2 from t where v > 15")
    module_lake.sql("create temp view sums as select sum(d) as s from w")
    assert module_lake.sql("select d from w where i = 2", engine="spark").fetchall() == [(40,)]
    assert [int(s) for (s,) in module_lake.sql("select s from sums", engine="spark").fetchall()] == [100]
