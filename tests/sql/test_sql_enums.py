"""ENUM columns and others that are text outside of SQL: every way of writing takes only the values that there are."""

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


def test_text_that_stands_for_a_type_of_sql_is_checked_in_every_way_of_writing(tmp_path: Path) -> None:
    with il.connect(str(tmp_path / "lake"), automatic=False) as lake:
        lake.sql("create table t (id int primary key, b bit, i interval, z timetz, u uhugeint, n bignum, j json)")
        t = lake.table("t")
        assert t.schema.field("b").type == "string"
        t.insert({"id": 1, "b": "011", "i": "1 month 2 days", "z": "12:00:00+01", "u": "7", "n": "-8", "j": "[1]"})
        for column, text in (("b", "012"), ("i", "soon"), ("z", "12:00"), ("u", "-1"), ("n", "1.5"), ("b", "")):
            for write, given in (
                (t.insert, ({"id": 2, column: text},)),
                (t.update, ({column: text}, "id = 1")),
                (t.upsert, ({"id": 1, column: text},)),
            ):
                with pytest.raises(il.ConstraintError, match=f"{column}_type"):
                    write(*given)
        assert t.scan("b = '011' and i = '1 month 2 days'", columns=["n"]).to_pylist() == [{"n": "-8"}]
        row = lake.sql("select bit_count(b), i + interval 1 day, z::varchar, u + 1, (n - 1)::varchar, j -> 0 from t")
        assert row.fetchone()[2:] == ("12:00:00+01", 8, "-9", "1")
        with pytest.raises(il.ExpressionError, match="Spark has no BIT, which column 'b' is"):
            lake.sql("select b from t", engine="spark")
        with pytest.raises(il.SchemaError, match="cannot change to or from BIT"):
            lake.sql("alter table t alter b type varchar")


def test_a_text_that_is_no_json_is_found_when_it_is_read(tmp_path: Path) -> None:
    with il.connect(str(tmp_path / "lake"), automatic=False) as lake:
        lake.sql("create table t (id int primary key, j json, e enum('a')[])")
        lake.table("t").insert({"id": 1, "j": "[1", "e": ["b"]})
        for column in ("j", "e"):
            with pytest.raises(il.ExpressionError):
                lake.sql(f"select max({column}) from t").fetchall()
        assert lake.sql("select id from t").scalar() == 1
