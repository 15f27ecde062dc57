"""What a query asks of each table: columns, conditions, numbers of rows.  Read from `explain`, not from timing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import indexlake as il


@pytest.fixture(scope="module", autouse=True)
def filled_tables(module_lake: il.Lake) -> None:
    module_lake.sql(
        "create table t (id bigint primary key, a int, b varchar, v double, note varchar, s struct(x int))"
        " with (block_row_count = 100, direct_write_row_count = 100);"
        "create table u (id bigint, a int, w varchar);"
        "insert into t select range, range % 7, 'b' || range, range / 2, 'n', {'x': range} from range(1000);"
        "insert into u select range, range % 5, 'w' || range from range(50)"
    )


def pushed(lake: il.Lake, text: str, params: Any = None) -> list[tuple[str, str]]:
    """(columns, where) of each scan."""
    plans = [row["plan"] for row in lake.sql(f"explain {text}", params) if row["plan"].startswith("scan ")]
    return [
        tuple(
            line.partition(": ")[2] for line in plan.splitlines() if line.split(":")[0].strip() in ("columns", "where")
        )
        for plan in plans
    ]  # type: ignore[misc]


ALL = "(all rows)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select a from t", [("a", ALL)]),
        ("select count(*) from t", [("(none: rows are counted)", ALL)]),
        ("select count(*) from t where a = 1", [("(none: rows are counted)", "a = 1")]),
        ("select upper(b) from t where a > 1 and v < 3", [("a, b, v", "(a > 1) and (v < 3)")]),
        ("select sum(v) from t where b ilike 'x%' group by a", [("a, b, v", "b ILIKE 'x%'")]),
        ("select max(v) from t where a = 1 or a = 2", [("a, v", "a = 1 OR a = 2")]),
        ("select max(v) from t where a = (select max(a) from u)", [("a, v", ALL), ("a", ALL)]),
        ("select max(v) from t where a in (select a from u where w = 'w1')", [("a, v", ALL), ("a, w", "w = 'w1'")]),
        (
            "select t.v, u.w from t join u on t.id = u.id where t.a = 1 and u.a = 2",
            [("id, a, v", "a = 1"), ("id, a, w", "a = 2")],
        ),
        (
            "select x.v, y.v from t x, t y where x.id = y.id and x.a = 1 and y.b = 'b1'",
            [("id, a, v", "a = 1"), ("id, b, v", "b = 'b1'")],
        ),
        (
            "select v, w from t join u on t.id = u.id where b = 'x' and w = 'y'",
            [("id, b, v", "b = 'x'"), ("id, w", "w = 'y'")],
        ),
        ("select v from t join u using (a) where a = 3", [("a, v", "a = 3"), ("a", "a = 3")]),
        ("select v from t left join u using (a) where a = 3", [("a, v", ALL), ("a", ALL)]),
        ("select v from t left join u on t.id = u.id and u.a = 1 and t.a = 2", [("id, a, v", ALL), ("id, a", "a = 1")]),
        ("select v from t left join u on t.id = u.id where u.a = 1", [("id, v", ALL), ("id, a", "a = 1")]),
        ("select v from t left join u on t.id = u.id where u.a is null", [("id, v", ALL), ("id, a", ALL)]),
        ("select v from t right join u on t.id = u.id where t.a = 1", [("id, a, v", "a = 1"), ("id", ALL)]),
        ("select v from t full join u on t.id = u.id and t.a = 1", [("id, a, v", ALL), ("id", ALL)]),
        ("select v from t anti join u on t.id = u.id and t.a = 1 and u.a = 2", [("id, a, v", ALL), ("id, a", "a = 2")]),
        (
            "select v from t asof join u on t.id >= u.id where u.a = 1 and t.a = 1",
            [("id, a, v", "a = 1"), ("id, a", ALL)],
        ),
        ("with c as (select * from t) select v from c where a = 1", [("a, v", "a = 1")]),
        ("with c as (select id as k, a from t) select k from c where k = 7", [("id, a", '"id" = 7')]),
        ("with c as (select * from t) select x.v from c x, c y where x.a = 1", [("a, v", ALL)]),
        ("select v from (select * from t where b = 'b1') where a = 1", [("a, b, v", "(a = 1) and (b = 'b1')")]),
        ("select v from (select * from t limit 5) where a = 1", [("a, v", ALL)]),
        ("select v from (select distinct * from t) where a = 1", [("id, a, b, v, note, s", ALL)]),
        (
            "select id from t where exists (select * from u where u.id = t.id and u.a = 1)",
            [("id", ALL), ("id, a", "a = 1")],
        ),
        (
            "select row_number() over (order by v) from t where a = 1 qualify row_number() over (order by v) < 3",
            [("a, v", "a = 1")],
        ),
        (
            "select v from t where a = 1 union all select a from u where w = 'x'",
            [("a, v", "a = 1"), ("a, w", "w = 'x'")],
        ),
        ("select t from t where a = 1", [("id, a, b, v, note, s", "a = 1")]),
        ("select columns('a|v') from t where a = 1", [("id, a, b, v, note, s", "a = 1")]),
        ("select * exclude (note) from u join t on u.id = t.id", [("id, a, w", ALL), ("id, a, b, v, note, s", ALL)]),
        ("select v from t where a = 1 and random() < 2", [("a, v", "a = 1")]),
        ("select v from t tablesample 50% where a = 1", [("a, v", ALL)]),
        ("select max(v) from t where s.x = 3", [("v, s", "s.x = 3")]),
        (
            "select _indexlake_row_id from t where _indexlake_row_id = 3",
            [("_indexlake_row_id", "_indexlake_row_id = 3")],
        ),
    ],
)
def test_each_scan_is_asked_for_what_its_reference_needs(module_lake: il.Lake, text: str, expected: list[Any]) -> None:
    assert pushed(module_lake, text) == expected
    module_lake.sql(text).to_arrow()


def test_parameters_are_pushed_with_their_values(module_lake: il.Lake) -> None:
    plan = str(module_lake.sql("explain select max(v) from t where id = $id and a < $a", {"id": 5, "a": 7}))
    assert "found by primary key" in plan
    assert "1 of 10 read, 1 candidate rows" in plan
    numbered = "select max(v) from t where b <> ? and id = ? and upper(b) = ?"
    assert pushed(module_lake, numbered, ["x", 5, "B5"]) == [
        ("id, b, v", "(b <> $1) and (id = $2) and (UPPER(b) = $3)")
    ]
    assert module_lake.sql(numbered, ["x", 5, "B5"]).scalar() == 2.5
    assert pushed(module_lake, "select max(v) from t where id in $ids", {"ids": [1, 2]}) == [("id, v", "id IN $ids")]
    assert module_lake.sql("select max(v) from t where id in $ids", {"ids": [1, 2]}).scalar() == 1.0


def test_statistics_and_keys_leave_blocks_unread(module_lake: il.Lake) -> None:
    assert "1 of 10 read" in str(module_lake.sql("explain select sum(v) from t where id between 210 and 220"))
    assert "2 of 10 read" in str(module_lake.sql("explain select sum(v) from t where id in (5, 950)"))
    joined = str(
        module_lake.sql("explain select sum(t.v) from t join u on t.id = u.id where t.id < 100 and u.id < 100")
    )
    assert "1 of 10 read" in joined


def test_a_limit_is_pushed_where_rows_are_taken_one_by_one(module_lake: il.Lake) -> None:
    def limit(text: str, params: Any = None) -> list[str]:
        plan = str(module_lake.sql(f"explain {text}", params))
        return [line.strip() for line in plan.splitlines() if line.startswith("  limit")]

    assert limit("select upper(b) from t limit 5") == ["limit: 5"]
    assert limit("select upper(b) from t where a = 1 limit 5 offset 2") == ["limit: 7"]
    assert limit("select upper(b) from t limit $n", {"n": 3}) == ["limit: 3"]
    for text in (
        "select upper(b) from t order by v limit 5",
        "select distinct upper(b) from t limit 5",
        "select max(b) from t limit 5",
        "select string_agg(b, ',') from t limit 5",
        "select unnest([a, a]) from t limit 5",
        "select row_number() over () from t limit 5",
        "select upper(b) from t where regexp_extract(b, '1') = hash(b)::varchar limit 5",
        "select a from t group by a limit 5",
        "select t.a + 1 from t, u limit 5",
        "select upper(b) from t limit 10%",
    ):
        assert limit(text) == [], text
        module_lake.sql(text).to_arrow()


@pytest.mark.parametrize(
    "text",
    [
        "select * from t",
        "select * from t where id = 5",
        "select b, a as x from t where a = 1 and v > 3 limit 5 offset 1",
        "select id, b from t where id in (1, 2) order by id desc, b limit 5",
        "from t where id = 5",
        "select count(*) from t",
        "select count(*) as n from t where a = 1 and b like 'b1%'",
    ],
)
def test_plain_selects_of_one_table_need_no_duckdb(module_lake: il.Lake, text: str) -> None:
    assert "answered by the scan alone" in str(module_lake.sql(f"explain {text}"))
    plain, judged = (
        module_lake.sql(text).to_arrow(),
        module_lake.sql(f"select * from ({text}) where random() < 2").to_arrow(),
    )
    assert plain.schema.names == judged.schema.names
    assert sorted(map(str, plain.to_pylist())) == sorted(map(str, judged.to_pylist()))


def test_filters_rank_nan_as_sql_does(module_lake: il.Lake) -> None:
    """Arrow's own filters do not: none may be pushed from DuckDB into the stream."""
    module_lake.sql("create table nan (id int, v double, s struct(x double))")
    module_lake.sql("insert into nan values (1, 'nan', {'x': 'nan'}), (2, 1, {'x': 1}), (3, null, null)")
    for text in (
        "select id from nan x join (select 1) on true where x.v > 0.5 and random() < 2 order by id",
        "select id from nan where s.x > 0.5 and upper('a') = 'A' order by id",
        "select id from (select id, v, row_number() over () from nan) where v > 0.5 order by id",
        "select id from nan where v > (select 0.5) order by id",
    ):
        assert module_lake.sql(text).fetchall() == [(1,), (2,)], text
    top = "select id, row_number() over () from nan order by v desc nulls last limit 1"
    assert module_lake.sql(top).fetchone()[0] == 1  # type: ignore[index]
    assert module_lake.sql("select count(*) from nan a join nan b on a.v = b.v").scalar() == 2


def test_explain_shows_the_scans_and_the_plan_of_duckdb(module_lake: il.Lake, tmp_path: Path) -> None:
    result = module_lake.sql("explain select a, count(*) from t where id < 150 group by a")
    assert [row["part"] for row in result] == ["indexlake", "duckdb"]
    assert "HASH_GROUP_BY" in str(result)
    assert "2 of 10 read" in repr(result)
    assert "<pre>" in result._repr_html_()
    analyzed = module_lake.sql("explain analyze select a, count(*) from t group by a")
    assert "Total Time" in str(analyzed)


def test_selects_by_primary_key_agree_with_scans_in_every_place(tmp_path: Path) -> None:
    with il.connect(str(tmp_path / "lake"), automatic=False) as lake:
        lake.sql("create table k (a int, b varchar, v double, n bigint, primary key (a, b))")
        lake.sql("insert into k values (1, 'x', 'nan', 1), (1, 'y', -0.0, null), (2, 'x', null, 3)")
        lake.sql("create table f (v double primary key, n int); insert into f values ('nan', 1), (-0.0, 2), (1.5, 3)")
        before = lake.snapshot_id

        def agree(text: str, params: Any = None, **options: Any) -> list[Any]:
            point = lake.sql(text, params, **options)
            scanned = lake.sql(f"select * from ({text}) where random() < 2", params, **options)
            assert point.schema == scanned.schema
            assert str(point.fetchall()) == str(scanned.fetchall()), text
            return point.fetchall()

        for dump in (False, True):
            if dump:
                lake.sql("update k set n = 10 where a = 1 and b = 'x'; delete from k where a = 2")
                lake.pipeline().dump("k")
                lake.pipeline().dump("f")
                lake.sql("alter table k add column late int default 5")
            assert len(agree("select * from k where a = 1 and b = $b", {"b": "x"})) == 1
            assert len(agree("select n as m, a from k where a = 1 and b = 'x' and n > 5")) == dump
            assert len(agree("select a from k where b = 'x' and a = 1 and not isnan(v)")) == 0
            assert agree("select a from k where a = 9 and b = 'x'") == []
            assert agree("select a from k where a = null and b = 'x'") == []
            assert len(agree("select a from k where a = 2 and b = 'x'")) == (not dump)
            assert agree("select n from k where a = 2 and b = 'x'", at=before) == [(3,)]
            assert agree("select n from f where v = 'nan'") == [(1,)]
            assert agree("select v, n from f where v = 0") == [(-0.0, 2)]
            assert agree("select n from f where v = 1.5") == [(3,)]
        kept = lake.sql("select n from k where a = 1 and b = 'x'")
        lake.sql("delete from k")
        assert kept.fetchall() == kept.fetchall() == [(10,)]
        with lake.transaction() as tx:
            assert tx.sql("select n from f where v = 1.5").fetchall() == [(3,)]
            late = tx.sql("select n from f where v = 1.5")
            tx.sql("update f set n = 30 where v = 1.5; insert into f values (7, 7)")
            assert late.fetchall() == [(3,)]
            assert tx.sql("select n from f where v = 1.5").fetchall() == [(30,)]
            assert tx.sql("select n from f where v = 7").fetchall() == [(7,)]
