"""``search(…)`` in a query of Spark's: the same rows, as a small table that travels with the plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import indexlake as il

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture(scope="module")
def notes(module_lake: il.Lake) -> il.Lake:
    module_lake.sql("""
        create table notes (id bigint primary key, body varchar, sent timestamptz, code uuid, vec float[2]);
        insert into notes values
            (1, 'late parcel', '2024-03-01 12:00:00+02', '00000000-0000-0000-0000-00000000000a', [1, 0]),
            (2, 'parcel', null, null, null), (3, 'letter', '2024-03-02', null, [0, 1]);
        create index words on notes using bm25 (body);
        create table names (id bigint, name varchar);
        insert into names values (1, 'ann'), (2, 'bob'), (3, 'eve')
    """)
    module_lake.sql("""
        create table places (id bigint primary key, x double, y double);
        insert into places values (1, 31.2, 30), (2, -17.4, 14.7), (3, 31.3, 30.1);
        create index place on places using rtree (x, y)
    """)
    return module_lake


@pytest.mark.parametrize(
    ("text", "params"),
    [
        (
            "select n.name, s.id, s.sent, s._score from search('notes', 'words', $q, k := $k) s join names n "
            "on n.id = s.id where s.id < $most order by s.id",
            {"q": "late parcel", "k": 5, "most": 3},
        ),
        ("select id, vec from search('notes', 'body', 'letter', where := 'id > 1')", None),
        ("select id from search('notes', 'words', 'nosuchword')", None),
        ("select id from search('places', 'place', (31.3, 30.1), k := 2)", None),
        ("select id from names where id in (select id from search('notes', 'words', 'late'))", None),
        ("select search.id from search('notes', 'words', 'late') where code = '00000000-0000-0000-0000-00000000000A'",
         None),
    ],
)  # fmt: skip
def test_spark_gives_what_duckdb_gives(notes: il.Lake, text: str, params: dict[str, object] | None) -> None:
    expected = notes.sql(text, params).fetchall()
    assert notes.sql(text, params, engine="spark").fetchall() == expected


def test_the_plan_shows_the_search_and_no_view_is_left(notes: il.Lake, spark: SparkSession) -> None:
    plan = str(notes.sql("explain select id from search('notes', 'words', 'late')", engine="spark"))
    assert "search main.notes at snapshot" in plan
    assert "LocalTableScan" in plan
    assert not [view for view in spark.catalog.listTables() if view.name.startswith("__il")]


def test_conditions_use_indexes_on_spark_too(notes: il.Lake) -> None:
    notes.sql("create table many (id bigint primary key, code varchar, amount double)")
    notes.sql("insert into many select range, 'c' || range % 5000, range from range(20000)")
    notes.pipeline(runner="threads").dump("many")
    notes.sql("create index by_code on many (code) include (amount)")
    text = "select sum(amount), count(*) from many where code = 'c77'"
    assert "by_code" in str(notes.sql(f"explain {text}", engine="spark")).partition("==")[0]
    expected = [(77.0 + 5077 + 10077 + 15077, 4)]
    assert notes.sql(text).fetchall() == expected
    assert notes.sql(text, engine="spark").fetchall() == expected
    notes.pipeline(runner="threads").freeze("many")
    notes.sql("delete from many where id = 77; insert into many values (-1, 'c77', 1)")
    assert notes.sql(text, engine="spark").fetchall() == notes.sql(text).fetchall() == [(30232.0, 4)]
