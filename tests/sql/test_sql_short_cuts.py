"""Short cuts give what the usual way gives, whatever happens to the table between two calls of the same shape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import indexlake as il

READS: list[tuple[str, Any]] = [
    ("select * from t where id = 3", None),
    ("select * from t where id = 7", None),
    ("select * from t where id = 999", None),
    ("select * from main.t where id = -3", None),
    ("select name, id from t where id = 3;", None),
    ("SELECT Name FROM T WHERE ID = 3 -- 'x' 5", None),
    ("select * from t where id = '3'", None),
    ("select * from t where id = 3.0", None),
    ("select * from t where id = 99999999999999999999", None),
    ("select * from t where id = null", None),
    ("select * from t where id = $1", [3]),
    ("select * from t where id = ?", (7,)),
    ("select * from t where id = $key", {"key": 3}),
    ("select * from t where id = $1", [None]),
    ("select * from t where id = $1", ["3"]),
    ("select * from t where id = $1", [3.0]),
    ("select * from t where id = $1", [True]),
    ("select v, name from words where name = 'it''s'", None),
    ("select v, name from words where name = $1", ["ä"]),
    ('select "v" from words where "name" = \'b\'', None),
    ("select * from halves where h = 0.5", None),
    ("select * from halves where h = $1", [-0.0]),
    ("select * from moods where m = 'ok'", None),
    ("select v from t where name = 'n3'", None),
    ("select 5 from t where id = 3", None),
    ("select * from t where id = 3 limit 0", None),
    ("select *, 'a' from t where id = 3", None),
]


@pytest.fixture
def lake(tmp_path: Path) -> Any:
    with il.connect(str(tmp_path / "lake"), automatic=False) as lake:
        lake.sql("""
            create table t (id bigint primary key, name varchar, v double);
            insert into t select i, 'n' || i, i / 2 from range(-5, 20) r(i);
            create table words (name varchar primary key, v int);
            insert into words values ('it''s', 1), ('ä', 2), ('b', 3);
            create table halves (h double primary key); insert into halves values (0), (0.5);
            create table moods (m enum ('sad', 'ok') primary key, v int); insert into moods values ('ok', 1), ('sad', 2)
        """)
        yield lake


@pytest.mark.parametrize("dumped", [False, True])
def test_reads_are_those_of_the_usual_way(lake: il.Lake, dumped: bool) -> None:
    if dumped:
        for name in lake.tables():
            lake.pipeline().dump(name)

    def outcome(run: Any, text: str, params: Any) -> Any:
        try:
            result = run(text, params)
            return result.fetchall(), result.fetchone(), result.schema, result.to_arrow().to_pylist(), result.columns
        except il.IndexLakeError as error:
            return type(error), str(error)

    usual = lake.at(lake.snapshot_id)
    for _ in range(2):
        for text, params in READS:
            assert outcome(lake.sql, text, params) == outcome(usual.sql, text, params), text


def test_what_changes_between_two_calls_is_seen(lake: il.Lake) -> None:
    read, write = "select * from t where id = 3", "insert into t values (100, 'x', 1.5)"
    assert lake.sql(read).fetchone() == (3, "n3", 1.5)
    assert lake.sql(write).inserted == 1
    with pytest.raises(il.DuplicateKeyError):
        lake.sql(write)
    lake.sql("update t set name = 'changed' where id = 3")
    assert lake.sql(read).fetchone() == (3, "changed", 1.5)
    lake.sql("alter table t add column extra int default 4")
    assert lake.sql(read).fetchone() == (3, "changed", 1.5, 4)
    with pytest.raises(il.ExpressionError, match="3 values given for 4 columns"):
        lake.sql("insert into t values (101, 'x', 1.5)")
    lake.sql("alter table t drop column extra")
    assert lake.sql("insert into t values (101, 'x', 1.5)").rows == 1
    lake.sql("alter table t rename to other; create table t (id bigint primary key, name varchar, v double)")
    assert lake.sql(read).fetchone() is None
    assert lake.sql("insert into t values (3, 'new', 2.5)").rows == 1
    assert lake.sql(read).fetchone() == (3, "new", 2.5)
    lake.sql("create temp table t as select 3 as id, 'mine' as name")
    assert lake.sql(read).fetchone() == (3, "mine")
    lake.sql("drop table temp.t; drop table t")
    with pytest.raises(il.NotFoundError):
        lake.sql(read)
    with pytest.raises(il.NotFoundError):
        lake.sql("insert into t values (4, 'new', 2.5)")
    lake.sql("create view t as select id, 'seen' as name from other")
    assert lake.sql(read).fetchone() == (3, "seen")
    with pytest.raises(il.NotFoundError):
        lake.sql("insert into t values (4, 'new', 2.5)")
    lake.sql("drop view t; create table t (id bigint primary key)")
    assert lake.sql(read).fetchone() is None


def test_inserts_and_prepared_ones_are_checked_as_ever(lake: il.Lake) -> None:
    lake.sql("create table c (id int primary key, v double check (v > 0), n varchar default 'd', b bool)")
    lake.sql("prepare put as insert into c (id, v, b) values ($1, $2, true)")
    lake.sql("prepare one as select v from c where id = $id")
    for n in range(3):
        lake.sql("execute put($1, $2)", [n, 1.5])
        lake.sql(f"execute put({n + 10}, 2.5)")
        lake.sql(f"insert into c values ({n + 20}, {n + 1}, default, null), ({n + 30}, -{n}.5 + 9, 'x', false)")
        lake.sql("insert into c (v, id) values ($v, $id)", {"id": n + 40, "v": 0.5})
        assert lake.sql(f"execute one(id := {n})").fetchone() == (1.5,)
        for text, params in (
            (f"insert into c (id, v) values ({n + 90}, -1.5)", None),
            ("insert into c (id, v) values ($1, $2)", [n + 90, -1.5]),
            ("execute put($1, $2)", [n + 90, -1.0]),
        ):
            with pytest.raises(il.ConstraintError, match="is violated"):
                lake.sql(text, params)
        for text, params in (
            ("execute put($1, $2)", [1]),
            ("execute put($1, $2)", {"1": 4, "2": 5.5, "3": 6}),
            ("insert into c (id, v) values ($1, $2)", [n + 90, "x"]),
            (f"insert into c (id, v) values ({n + 90})", None),
            (f"insert into c (id, id) values ({n + 90}, 1)", None),
        ):
            with pytest.raises(il.IndexLakeError):
                lake.sql(text, params)
    lake.sql("deallocate put; prepare put as insert into c (id, v, n) values ($1, $2, 'other')")
    lake.sql("execute put($1, $2)", [60, 1.5])
    assert lake.sql("select n from c where id = 60").scalar() == "other"
    assert lake.sql("select count(*), count(n), sum(v) from c").fetchone() == (16, 16, 43.5)
    lake.close()
    with pytest.raises(il.OwnershipError, match="closed"):
        lake.sql("select v from c where id = 1")


def test_inserts_know_what_another_process_has_made_of_the_table(tmp_path: Path) -> None:
    with il.connect(tmp_path, automatic=False) as lake, il.connect(tmp_path, automatic=False) as other:
        lake.sql("create table t (i int, v varchar)")
        for n in range(3):
            lake.sql(f"insert into t values ({n}, 'x')")
        other.sql("alter table t add column w int default 5")
        with pytest.raises(il.ExpressionError, match="2 values given for 3 columns"):
            lake.sql("insert into t values (3, 'y')")
        for n in range(3):
            lake.sql(f"insert into t values ({n}, 'z', 1)")
        other.sql("alter table t rename to old; create table t (w varchar, v varchar, i varchar)")
        lake.sql("insert into t values (11, 'y', 1)")
        assert lake.sql("from t").fetchall() == [("11", "y", "1")]
        assert len(lake.table("old")) == 6
        for n in range(3):
            lake.sql(f"insert into t values ('{n}', 'y', '1')")
        other.sql("drop table t")
        with pytest.raises(il.NotFoundError, match=r"main\.t"):
            lake.sql("insert into t values ('9', 'y', '1')")
