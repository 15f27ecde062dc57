"""Text that blocks hold as dictionaries reaches DuckDB as such, or as numbers; results never show it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import indexlake as il
from indexlake.sql.plan.text_groups import text_groups

WORDS = ["Aarhus", "Bergen", "a text that is longer than twelve bytes", "", "Ghent", "Æ😀"]
TIERS = ["hot", "vortex", "parquet", "all", "deleted", "transaction"]
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("maybe", pa.string()),
        ("kind", pa.dictionary(pa.int8(), pa.string())),
        ("view", pa.string_view()),
        ("large", pa.large_string()),
        ("own", pa.string()),
        ("nest", pa.struct([("word", pa.string())])),
        ("v", pa.float64()),
        ("n", pa.int32()),
    ]
)


def rows(first: int, count: int, words: list[str] = WORDS) -> pa.Table:
    def word(n: int, step: int) -> str:
        return words[n * step % len(words)]

    data = [
        {
            "id": n,
            "city": word(n, 1),
            "maybe": None if n % 3 == 0 else word(n, 5),
            "kind": word(n, 7),
            "view": word(n, 11),
            "large": None if n % 7 == 0 else word(n, 1),
            "own": f"text number {n}",
            "nest": {"word": word(n, 1)},
            "v": float("nan") if n % 5 == 0 else n / 4,
            "n": n % 4,
        }
        for n in range(first, first + count)
    ]
    return pa.Table.from_pylist(data, SCHEMA)


@pytest.fixture(scope="module", params=TIERS)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any]]:
    """A query in our SQL and the same in DuckDB on a plain table."""
    tier = request.param
    with il.connect(str(tmp_path_factory.mktemp("lake")), automatic=False) as lake, duckdb.connect() as judge:
        config = il.TableConfig(direct_write_row_count=1000, block_row_count=2000)
        t = lake.create_table("t", SCHEMA, primary_key="id", config=config)
        expected = rows(0, 5000)
        if tier == "hot":
            expected = expected.slice(0, 900)
            t.insert(expected)
        elif tier == "all":
            other = [w + "!" for w in reversed(WORDS)]  # other dictionaries, of the same length
            hot = rows(9000, 50, [*WORDS, "only hot"])
            t.insert(expected)
            t.insert(rows(5000, 2000, other))
            lake.pipeline().freeze("t")
            t.insert(rows(7000, 2000, other + WORDS))
            t.insert(hot)
            expected = pa.concat_tables(
                [expected, rows(5000, 2000, other), rows(7000, 2000, other + WORDS), hot], promote_options="none"
            )
        else:
            t.insert(expected)
        if tier == "parquet":
            lake.pipeline().freeze("t")
        plain = pa.schema([f.with_type(pa.string()) if f.name in ("kind", "view") else f for f in SCHEMA])
        judge.register("given", expected.cast(plain))
        judge.execute("create table t as select * from given")
        if tier == "deleted":
            t.delete("id % 50 = 7")
            judge.execute("delete from t where id % 50 = 7")
        if tier != "transaction":
            yield lake.sql, judge.execute
            return
        with lake.transaction() as tx:
            tx.sql("update t set city = 'new' where id % 10 = 0")
            judge.execute("update t set city = 'new' where id % 10 = 0")
            yield tx.sql, judge.execute
            tx.rollback()


QUERIES = [
    "select city, count(*) n, sum(n) s from t group by city",
    "select maybe as m, count(*), avg(n) from t group by maybe",
    "select t.kind, n, count(*) from t where n > 1 group by kind, t.n having count(*) > 2",
    "select view, large, min(n), max(v) from t group by large, view",
    "select maybe, city, count(own) from t group by maybe, city order by count(*) desc, sum(n), min(id) limit 1000",
    "select city as c, city as again, count(distinct own) from t group by city",
    "select city, count(*) from t group by city order by city",
    "select upper(city) u, count(*) from t group by city",
    "select city, max(city) from t group by city",
    "select city as n, sum(n) from t group by city",
    "select own, count(*) from t group by own",
    "select maybe, count(*) from t group by 1 order by 1 nulls first",
    "select maybe, count(*) from t group by all",
    "select city from t where maybe is null and length(city) > 3",
    "select city || '-' || maybe, kind from t where city like 'A%' or maybe = ''",
    "select a.city, count(*) from t a join t b on a.id = b.id and a.kind = b.view group by a.city",
    "with c as (select city, maybe, v from t) select city, count(v) from c group by city",
    "with c as (select city, n from t) select x.city, y.s from (select city, sum(n) s from c group by city) y,"
    " (select distinct city from c) x where x.city = y.city",
    "with recursive r(i) as (select 0 union all select i + 1 from r where i < (select count(distinct city) from t))"
    " select i from r",
    "select city, row_number() over (partition by city order by id) from t where id < 100",
    "select id, sum(n) over (partition by maybe) from t where id < 300",
    "select nest.word, count(*) from t group by nest.word",
    "select city from t where v > 100 group by city",
    "select count(distinct maybe), min(kind), max(large), list(distinct view order by view) from t",
    "select city, maybe from t where id in (select max(id) from t group by kind) order by id",
    "select maybe from t where id between 10 and 40 order by id limit 5",
    "pivot (select city, n, id from t) on n using count(id)",
    "select * from t where id in (5, 999)",
    "select city, count(*) from t where id < 0 group by city",
    "select t.city, t from t where id = 3 and n + 1 > random() - 5",
]


@pytest.mark.parametrize("text", QUERIES)
def test_every_query_gives_what_duckdb_gives_on_a_plain_table(both: tuple[Any, Any], text: str) -> None:
    ours, judge = both
    found, wanted = ours(text).fetchall(), [tuple(row.values()) for row in judge(text).to_arrow_table().to_pylist()]
    if "order by" not in text or "over" in text:
        found, wanted = sorted(found, key=repr), sorted(wanted, key=repr)
    assert repr(found) == repr(wanted)


def test_plain_columns_of_a_result_have_the_types_of_the_table(both: tuple[Any, Any]) -> None:
    ours, _ = both
    found = ours("select city, large, view, count(*) c from t group by city, large, view").to_arrow()
    assert found.schema.types == [pa.string(), pa.large_string(), pa.string_view(), pa.int64()]
    found = ours("select upper(city) u, any_value(maybe) m, kind from t group by city, kind").to_arrow()
    assert found.schema.types[:2] == [pa.string(), pa.string()]
    assert found.schema.types[2] in (pa.string(), pa.dictionary(pa.int8(), pa.string()))
    described = ours("describe select city, count(*) from t group by city").fetchall()
    assert [row[1] for row in described] == ["VARCHAR", "BIGINT"]


def test_columns_that_were_added_renamed_or_dropped_group_right(tmp_path: Path) -> None:
    with il.connect(str(tmp_path), automatic=False) as lake:
        config = il.TableConfig(direct_write_row_count=1000, block_row_count=50_000)
        schema = pa.schema([("id", pa.int64()), ("city", pa.string())])
        t = lake.create_table("t", schema, primary_key="id", config=config)
        t.insert(pa.table({"id": range(2000), "city": [WORDS[n % 2] for n in range(2000)]}))
        lake.sql("alter table t rename column city to place; alter table t add column city varchar default 'none'")
        t.insert(pa.table({"id": range(2000, 4000), "place": ["p"] * 2000, "city": ["q", "r"] * 1000}))
        t.insert([{"id": 5000, "place": None, "city": "hot"}])
        by_city = lake.sql("select city, count(*) from t group by city").fetchall()
        assert sorted(by_city) == [("hot", 1), ("none", 2000), ("q", 1000), ("r", 1000)]
        by_place = lake.sql("select place, count(*) from t group by place").fetchall()
        assert sorted(by_place, key=repr) == [("Aarhus", 1000), ("Bergen", 1000), ("p", 2000), (None, 1)]
        assert lake.sql("select place, city, count(*) from t where city = 'none' group by place, city").count() == 2


def test_a_result_can_be_read_again_and_batch_by_batch(tmp_path: Path) -> None:
    with il.connect(str(tmp_path), automatic=False) as lake:
        t = lake.create_table("t", SCHEMA, config=il.TableConfig(direct_write_row_count=1000, block_row_count=50_000))
        t.insert(rows(0, 3000))
        result = lake.sql("select city, count(*) c from t group by city")
        assert sorted(result.fetchall()) == sorted(result.fetchall()) == [(w, 500) for w in sorted(WORDS)]


def test_a_table_stands_behind_a_sample_only_where_duckdb_may_open_it_again(tmp_path: Path) -> None:
    repeated = [
        "with c as (select * from t) select * from c a, c b where a.city = b.kind",
        "with c as (select * from t), d as (select * from c) select * from d a, d b where a.id = b.n",
        "with recursive r(i) as (select 0 union all select i + 1 from r where i < (select max(n) from t)) from r",
    ]
    once = [
        "select city, sum(v) from t group by city",
        "with c as (select * from t), d as (select * from c) select count(v) from d where v > 1",
        "select a.id from t a join t b on a.id = b.n where a.v > b.v",
        "select sum(n) over (partition by city) from t",
    ]
    with il.connect(str(tmp_path), automatic=False) as lake:
        lake.create_table("t", SCHEMA)

        def is_sampled(text: str) -> bool:
            return "SAMPLE" in str(lake.sql(f"explain {text}")).upper()

        assert [text for text in repeated if not is_sampled(text)] == []
        assert [text for text in once if is_sampled(text)] == []


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("select city, sum(v) from t group by city", {"city": (0,)}),
        ("select sum(v), t.City as c from t where n > 1 group by t.city order by sum(v) limit 2", {"city": (1,)}),
        ("select a, b, count(*) from t group by a, b having max(b) > 'x'", {"a": (0,)}),
        ("select city c, count(*) from t group by city order by c", {}),
        ("select v as city, count(*) from t group by city", {}),
        ("select s.city, count(*) from t group by s.city", {}),
        ("select city, count(t) from t group by city", {}),
        ("select city, count(*) from t as t(id, city) group by city", {}),
        ("select city, count(*) from t group by rollup (city)", {}),
        ("select city, columns('v') from t group by city", {}),
        ("select city, count(*) from t where v in (select v from u) group by city", {}),
        ("select city, count(*) from t group by city order by all", {}),
        ("select city, count(*) from t group by city order by 1", {}),
        ("select distinct city from t group by city", {}),
        ("select city, sum(count(*)) over () from t group by city", {}),
        ("select city, count(*) from t, u group by city", {}),
    ],
)
def test_only_columns_that_are_nothing_but_groups_become_numbers(text: str, groups: dict[str, Any]) -> None:
    import sqlglot

    from indexlake.expr.dialect import expression_dialect

    assert text_groups(sqlglot.parse_one(text, read=expression_dialect())) == groups


def test_a_table_that_duckdb_reads_twice_against_expectation_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("indexlake.sql.plan.query_tables._read_once", lambda *_: lambda node: True)
    with il.connect(tmp_path / "lake", automatic=False) as lake:
        lake.create_table("t", pa.schema({"id": pa.int64()})).insert([{"id": n} for n in range(100)])
        text = "with c as materialized (select id from t), d as (select id from t) select count(*) from c, c e, d, d f"
        assert lake.sql(text).scalar() == 100**4
        twice = "with d as not materialized (select id from t) select count(*) from d a join d b using (id)"
        assert lake.sql(twice).scalar() == 100
