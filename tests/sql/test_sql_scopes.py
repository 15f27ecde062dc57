"""Which table a name means, where tables, aliases, common tables and subqueries share names: DuckDB judges the answers.

Beside each query stands the condition that each of its scans is asked, in the order of the tables in the text.
"""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

import indexlake as il

SETUP = (
    "create schema n",
    "create table t (id bigint, a int, b varchar, v double, s struct(x int))",
    "create table u (id bigint, a int, w varchar)",
    "create table n.t (id bigint, a int, gone int)",
    "insert into t select range, range % 7, 'b' || range % 3, range / 2, {'x': range % 2} from range(60)",
    "insert into u select range, range % 5, 'w' || range % 4 from range(20)",
    "insert into n.t select range + 2, range % 3, range % 2 from range(15)",
)
ALL = "(all rows)"
CASES = {
    "one column name in two tables": [
        ("select t.v, u.w from t, u where t.id = u.id and t.a = 1 and u.a = 1", ["a = 1", "a = 1"]),
        ("select v from t join u on t.id = u.id where t.a = u.a and b = 'b1' and w = 'w1'", ["b = 'b1'", "w = 'w1'"]),
        ("select x.k from (select a as k from t) x, (select a as k from u) y where x.k = 1 and y.k = 2",
         ['"a" = 1', '"a" = 2']),
    ],
    "an alias that is the name of a table": [
        ("select u.v from t as u where u.a = 1", ["a = 1"]),
        ("select u.v, t.w from t as u, u as t where u.id = t.id and u.b = 'b1' and t.w = 'w1'",
         ["b = 'b1'", "w = 'w1'"]),
        ("select t.w from u as t where exists (select 1 from t where t.id = 3 and a = 3)",
         [ALL, "(id = 3) and (a = 3)"]),
        ("select u.w, t.v from u join (select * from t where a = 1) t on t.id = u.id where t.b = 'b1'",
         [ALL, "(b = 'b1') and (a = 1)"]),
    ],
    "a common table that hides a table": [
        ("with t as (select id, a from u) select a from t where a = 1", ["a = 1"]),
        ("with t as (select * from t where a = 1) select v from t where b = 'b1'", ["(b = 'b1') and (a = 1)"]),
        ("with t as (select * from n.t) select gone from t where a = 1", ["a = 1"]),
        ("with t as (select 1 as a) select v from main.t where a = 1", ["a = 1"]),
        ("with t as (select 1 as k) select gone from t, n.t where a = 1 and gone = k", ["a = 1"]),
        ("with u as (select * from t) select v from u where u.a = 1 and exists (from main.u x where x.id = u.id)",
         ["a = 1", ALL]),
        ("with recursive t as (select * from t) select count(*) from t", [ALL]),
    ],
    "common tables inside common tables": [
        ("with c as (with d as (select * from t) select * from d where a = 1) select v from c where b = 'b1'",
         ["a = 1"]),
        ("with c as (select * from t), d as (select * from c where a = 1) select v from d where b = 'b1'",
         ["(b = 'b1') and (a = 1)"]),
        ("with a as (with b as (select * from u) select * from b), b as (select * from t) "
         "select a.w, b.v from a, b where a.id = b.id and b.a = 1 and a.w = 'w0'", [ALL, "a = 1"]),
        ("with c as (select * from t) select v from c where a in (with c as (select a from u where w = 'w1') from c)",
         [ALL, "w = 'w1'"]),
        ("with c as (select * from t) select x.v from c x, c y where x.id = y.id and x.a = 1", [ALL]),
        ("with c as (select * from t where a = 1) select v from (c join u on c.id = u.id) as x where x.w = 'w1'",
         ["a = 1", ALL]),
        ("with c as (select * from t where a < 3) pivot c on a using count(*) group by b", ["a < 3"]),
        ("with recursive r as (select 1 as i union all select i + 1 from r where i < 5) "
         "select v from r, t where t.id = r.i and t.a = 1", ["a = 1"]),
    ],
    "subqueries that name what is around them": [
        ("select id from t where exists (select 1 from u where u.id = t.id and u.a = 1)", [ALL, "a = 1"]),
        ("select id from t where exists (select 1 from u where u.id = t.id and t.a = 1)", [ALL, ALL]),
        ("select id from t where id in (select id from u where w = 'w1' and v > 2)", [ALL, "w = 'w1'"]),
        ("select id from t where b = 'b1' and not exists (from u where u.id = t.id and w = 'w1')",
         ["b = 'b1'", "w = 'w1'"]),
        ("select w from u where exists (select 1 from t where t.id = u.id and exists "
         "(select 1 from n.t z where z.id = t.id and u.a = 1 and z.a = 2))", [ALL, ALL, "a = 2"]),
        ("select x.id from u x where x.id = (select max(x.id) from t x where x.a = 1 and x.id < 20)",
         [ALL, "(a = 1) and (id < 20)"]),
        ("select id, (from u select max(w) where u.id = t.id and s.x = 1) from t where a = 1", [ALL, "a = 1"]),
    ],
    "lateral joins": [
        ("select t.id, x.m from t, lateral (select max(a) as m from u where u.id = t.id and w = 'w1') x where t.a = 1",
         ["a = 1", "w = 'w1'"]),
        ("select t.id, x.w from t left join lateral (select * from u where u.id = t.id) x on true where t.a = 1",
         ["a = 1", ALL]),
        ("select t.id from t, lateral (select * from n.t as t where t.a = 1) x where t.b = 'b1'",
         ["b = 'b1'", "a = 1"]),
        ("select y from t, lateral (select t.a + 1 as z), lateral (select z + 1 as y) where a = 1", ["a = 1"]),
    ],
    "using and natural": [
        ("select v from t join u using (id) where id = 3 and w = 'w3'", ["id = 3", "(id = 3) and (w = 'w3')"]),
        ("select v from t left join u using (id) where id = 3 and b = 'b0'", ["b = 'b0'", ALL]),
        ("select id, a from t full join u using (id, a) where a = 1", [ALL, ALL]),
        ("select w, gone from u natural join n.t where w = 'w1'", ["w = 'w1'", ALL]),
        ("select x.v from t x join t y using (id) left join u z using (id) where x.a = 1", ["a = 1", ALL, ALL]),
    ],
    "quoted names and names in other cases": [
        ('select "V" from "T" where "A" = 1', ['"A" = 1']),
        ('with "C" as (select * from t) select c.v from C where c."A" = 1 and B = \'b1\'',
         ["(\"A\" = 1) and (B = 'b1')"]),
        ('with "T" as (select * from n.t) select gone from t where a = 1', ["a = 1"]),
        ("select u.w, T.v from u join (select * from t where a = 1) T on t.ID = U.id where t.B = 'b1'",
         [ALL, "(B = 'b1') and (a = 1)"]),
        ('select "t"."v" from main."T" where MAIN.t.b = \'b1\'', ["b = 'b1'"]),
    ],
    "tables of one name in two namespaces": [
        ("select n.t.gone, main.t.v from t, n.t where n.t.id = main.t.id and n.t.gone = 1 and main.t.b = 'b1'",
         [ALL, "gone = 1"]),
        ("select t.gone from n.t where n.t.a = 1 and t.gone = 1", ["(a = 1) and (gone = 1)"]),
        ("select x.v from t x, n.t y where x.id = y.id and x.a = 1 and y.gone = 1", ["a = 1", "gone = 1"]),
    ],
    "joins in parentheses": [
        ("select * from (t x join u y on x.id = y.id) join n.t z on z.id = x.id where z.gone = 1",
         [ALL, ALL, "gone = 1"]),
        ("select x.v from t x join (u y join n.t z on y.id = z.id and z.a = 1) on x.id = y.id where y.w = 'w0'",
         [ALL, "w = 'w0'", "a = 1"]),
        ("select x.v from (t x left join u y on x.id = y.id) join n.t z on z.id = x.id where y.w = 'w0' and z.a = 1",
         [ALL, "w = 'w0'", "a = 1"]),
    ],
    "statements of DuckDB that are queries": [
        ("select column_name from (summarize t)", [ALL]),
        ("select count(*) from (summarize select a from t where a = 1)", ["a = 1"]),
        ("select * from (pivot u on a using count(*) group by w) x, t where t.a = 1", [ALL, "a = 1"]),
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[il.Lake, duckdb.DuckDBPyConnection]]:
    with il.connect(str(tmp_path_factory.mktemp("scopes") / "lake"), automatic=False) as lake:
        plain = duckdb.connect()
        for statement in SETUP:
            lake.sql(statement)
            plain.execute(statement)
        lake.pipeline().dump("t")  # the other tables are hot
        yield lake, plain


@pytest.mark.parametrize(
    ("text", "asked"), [pytest.param(*case, id=f"{kind}: {case[0]}") for kind, cases in CASES.items() for case in cases]
)
def test_a_name_means_what_it_means_in_duckdb_and_each_scan_is_asked_its_part(
    both: tuple[il.Lake, duckdb.DuckDBPyConnection], text: str, asked: list[str]
) -> None:
    lake, plain = both
    expected = plain.execute(text).fetchall()
    assert expected, "a query of no rows proves nothing"
    assert sorted(map(repr, lake.sql(text).fetchall())) == sorted(map(repr, expected))
    scans = [row["plan"] for row in lake.sql(f"explain {text}") if row["plan"].startswith("scan ")]
    assert [scan.partition("  where: ")[2].splitlines()[0] for scan in scans] == asked
