"""ENUM columns outside of SQL: text, of which every way of writing takes only the values that there are."""

from __future__ import annotations

from pathlib import Path

import pytest

import indexlake as il


def test_every_way_of_writing_keeps_to_the_values(tmp_path: Path) -> None:
    with il.connect(str(tmp_path / "lake"), automatic=False) as lake:
        lake.sql("create type mood as enum ('sad', 'ok'); create table t (id int primary key, m mood)")
        t = lake.table("t")
        (tmp_path / "bad.csv").write_text("id,m\n5,angry\n")
        (tmp_path / "good.csv").write_text("id,m\n5,sad\n")
        t.insert([{"id": 1, "m": "ok"}, {"id": 2, "m": None}])
        for write in (
            lambda: t.insert({"id": 3, "m": "angry"}),
            lambda: t.insert([{"id": 3, "m": "ok"}, {"id": 4, "m": "Sad"}]),
            lambda: t.upsert({"id": 1, "m": ""}),
            lambda: t.update({"m": "angry"}, "id = 1"),
            lambda: t.merge([{"id": 9, "m": "x"}], on="id").when_not_matched_insert().execute(),
            lambda: lake.pipeline().load(str(tmp_path / "bad.csv"), "t"),
            lambda: lake.sql("insert into t values ($1, $2)", [3, "angry"]),
        ):
            with pytest.raises(il.ConstraintError, match="m_enum"):
                write()
        lake.pipeline().load(str(tmp_path / "good.csv"), "t")
        before = lake.snapshot_id
        lake.pipeline().dump("t")
        lake.sql("update t set m = 'sad'")
        assert sorted(t.scan("m = 'sad'").to_pylist(), key=lambda row: row["id"]) == [
            {"id": n, "m": "sad"} for n in (1, 2, 5)
        ]
        assert lake.sql("select max(m), min(m) from t", at=before).fetchone() == ("ok", "sad")
        assert lake.sql("select m from t where id = 1").schema.field("m").type == "string"
        with pytest.raises(il.ExpressionError, match="Spark has no ENUM, which column 'm' is"):
            lake.sql("select m from t", engine="spark")
