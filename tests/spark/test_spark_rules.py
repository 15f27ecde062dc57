"""Checks, generated columns and computed defaults hold for what Spark writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import indexlake as il


def rules(lake: il.Lake, layout: str) -> il.Table:
    return lake.create_table(
        "t", {"id": "int64", "a": "int64", "twice": "int64", "code": "string", "n": "int64"}, primary_key="id",
        layout=layout, checks={"positive": "a >= 0"}, generated={"twice": "a * 2"},
        defaults={"code": il.expr("'c-' || uuid()"), "n": il.expr("3 * 4")},
        config=il.TableConfig(block_row_count=700, direct_write_row_count=500),
    )  # fmt: skip


def frame(spark: Any, count: int, a: str = "id") -> Any:
    return spark.range(0, count, 1, 3).selectExpr("id", f"{a} as a")


@pytest.mark.parametrize("layout", ["heap", "clustered"])
def test_a_load_computes_and_refuses(lake: il.Lake, spark: Any, layout: str) -> None:
    t = rules(lake, layout)
    with pytest.raises(il.ConstraintError, match=r"Check 'positive' of table 'main\.t' is violated: a >= 0"):
        lake.pipeline(spark=spark).load(frame(spark, 3000, "id - 1"), "t")
    assert len(t) == 0
    lake.pipeline(spark=spark).load(frame(spark, 3000), "t")
    rows = t.scan().to_pylist()
    assert len(rows) == len({r["code"] for r in rows}) == 3000
    assert all(r["twice"] == 2 * r["a"] and r["n"] == 12 for r in rows)


@pytest.mark.inline_only("another process writes, which only the owner can")
def test_a_frame_that_is_written_keeps_the_rules(lake: il.Lake, tmp_path: Path, spark: Any) -> None:
    t = rules(lake, "heap")

    def write(df: Any) -> None:
        df.write.format("indexlake").option("table", "t").mode("append").save(str(tmp_path / "lake"))

    with pytest.raises(Exception, match=r"Check 'positive' of table 'main\.t' is violated"):
        write(frame(spark, 2000, "1000 - id"))
    assert len(t) == 0
    write(frame(spark, 2000))
    rows = t.scan().to_pylist()
    assert len(rows) == len({r["code"] for r in rows}) == 2000
    assert all(r["twice"] == 2 * r["a"] and r["n"] == 12 for r in rows)


def test_enums_sequences_and_macros(lake: il.Lake, spark: Any) -> None:
    lake.sql("""
        create sequence s;
        create table e (id bigint primary key, m enum ('z', 'a'), n bigint default nextval('s'));
        create macro plus(x, y := 1) as x + y
    """)
    load = lake.pipeline(spark=spark).load
    with pytest.raises(il.ConstraintError, match="m_enum"):
        load(frame(spark, 20).selectExpr("id", "'b' as m", "id as n"), "e")
    with pytest.raises(il.OwnershipError, match=r"'main\.s' cannot give numbers to a task.*Name the column"):
        load(frame(spark, 20).selectExpr("id", "'a' as m"), "e")
    assert len(lake.table("e")) == 0
    load(frame(spark, 20).selectExpr("id", "if(id < 5, 'z', 'a') as m", "id * 10 as n"), "e")
    assert lake.sql("select max(m), count(distinct n) from e").fetchone() == ("a", 20)
    asked = "select plus(id), plus(n, y := 5) from e where plus(id, 2) = 5"
    spoken = lake.sql(asked, engine="spark")
    assert spoken.fetchall() == lake.sql(asked).fetchall() == [(4, 35)]
    with pytest.raises(il.ExpressionError, match="Spark has no ENUM"):
        lake.sql("select m from e", engine="spark")
