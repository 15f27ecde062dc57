"""Files in texts for Spark: read as DuckDB reads them, written with what Spark has computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import indexlake as il


def test_files_beside_tables(spark: Any, tmp_path: Path) -> None:
    with il.connect(tmp_path / "lake", files=tmp_path, automatic=False) as lake:
        lake.sql("create table t (id int primary key, v varchar); insert into t values (1, 'a'), (2, 'b'), (3, null)")
        lake.pipeline("threads").dump("t")
        lake.sql("insert into t values (4, 'd')")
        (tmp_path / "w.csv").write_text("id;w\n1;10\n4;\n9;90\n")
        lake.sql(f"copy (select id, w * 2 as w from '{tmp_path}/w.csv') to '{tmp_path}/w.parquet'")
        (tmp_path / "w.json").write_text('{"id": 2, "x": {"y": [1, 2]}}\n')
        for text in (
            f"select t.id, w.w from t join '{tmp_path}/w.csv' w on w.id = t.id order by t.id",
            f"select id, w from '{tmp_path}/w.parquet' where w > 20",
            f"select count(*) as n, max(id) as m from read_csv('{tmp_path}/w.c*', skip = 1, names = ['id', 'w'])",
            f"select t.v, w.x.y from t join '{tmp_path}/w.json' on w.id = t.id",
        ):
            expected = lake.sql(text).fetchall()
            assert lake.sql(text, engine="spark").fetchall() == expected, text
        again = lake.sql("select count(*) from read_parquet($file)", {"file": f"{tmp_path}/w.parquet"}, engine="spark")
        assert again.scalar() == 3
        assert again.to_spark().collect()[0][0] == 3  # type: ignore[attr-defined]

        out = f"{tmp_path}/out.csv"
        assert lake.sql(f"copy (select v, id from t where id > 1 order by id) to '{out}'", engine="spark").scalar() == 3
        assert Path(out).read_text() == "v,id\nb,2\n,3\nd,4\n"
        lake.sql(f"copy t to '{tmp_path}/parts' (format parquet, partition_by (id))", engine="spark")
        assert lake.sql(f"select sum(id)::int from '{tmp_path}/parts/*/*.parquet'").scalar() == 10
        for refused in ("from '/etc/x.csv'", "copy t to '/etc/x.csv'", "select * from read_parquet('/etc/x.parquet')"):
            with pytest.raises(il.StorageError, match="SQL may not read or write"):
                lake.sql(refused, engine="spark")
        with pytest.raises(il.ExpressionError, match="leave engine='spark' out"):
            lake.sql(f"copy t from '{tmp_path}/w.csv'", engine="spark")
