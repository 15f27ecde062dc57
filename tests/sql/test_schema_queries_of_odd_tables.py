"""Queries of definitions answer whatever tables, rules and indexes a lake has."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import indexlake as il

SQUARE = "st_geomfromtext('POLYGON((0 0,0 9,9 9,9 0,0 0))')"
TABLES: dict[str, dict[str, Any]] = {
    "not a number": {"schema_or_data": {"a": "float64"}, "defaults": {"a": float("nan")}},
    "infinite": {"schema_or_data": {"a": "float64"}, "defaults": {"a": float("-inf")}},
    "nested": {
        "schema_or_data": {"l": pa.list_(pa.int64()), "s": pa.struct([('a "b', pa.int8())])},
        "defaults": {"l": [1, 2], "s": {'a "b': 3}},
    },
    "bytes": {"schema_or_data": {"a": "binary"}, "defaults": {"a": b"\x00'\xff"}},
    "text": {"schema_or_data": {"a": "string"}, "defaults": {"a": 'it\'s\n"q" \\x'}},
    "geometry": {"schema_or_data": {"g": "binary"}, "checks": [("near", f"st_within(g, {SQUARE})")]},
    "names": {"schema_or_data": {"a b": "int64", "select": "int64", 'q"u': "int64"}, "primary_key": ["a b"]},
    "types": {
        "schema_or_data": pa.schema({
            "h": pa.float16(), "d": pa.decimal256(50, 3), "n": pa.decimal128(10, -2), "t": pa.timestamp("ns", "UTC"),
            "u": pa.duration("ns"), "e": pa.dictionary(pa.int32(), pa.string()), "f": pa.list_(pa.float16(), 3),
            "m": pa.map_(pa.string(), pa.struct([("x", pa.date64())])),
        })
    },
}  # fmt: skip
STATEMENTS = {
    "types": """
        create type inner_type as struct(a int, "b c" varchar[]);
        create type outer_type as struct(x inner_type, y enum('it''s', 'b'));
        create table t (o outer_type, m enum('p', 'q') default 'q', b bit default '101', u uhugeint,
            c varchar collate nocase, g geometry, j json default '{"a": [1]}', n union(num int, str varchar))
    """,
    "rules": """
        create sequence s start 9223372036854775806;
        create macro small(x) as x < 10;
        create table t (
            a int default nextval('s') check (small(a)), b timestamp default now(), c as (a + 1), unique (a, b));
        alter table t alter a set not null;
        create view v as select t.*, small(a) from t;
        create view w (x) as from (select 1 union all from v select a);
        create recursive view r (n) as select 1 union all select n + 1 from r where n < 3
    """,
    "indexes": """
        create table t (id int, l int[], v float[3], s varchar);
        create table u (id int);
        create index l on t (l); create index v on t using hnsw (v); create index s on t using bm25 (s);
        create index same on t (id) include (s); create unique index same on u (id)
    """,
}
QUERIES = [
    "from duckdb_tables()", "from duckdb_columns()", "from duckdb_constraints()", "from duckdb_indexes()",
    "from information_schema.tables", "from information_schema.columns", "from pg_catalog.pg_class",
    "from sqlite_master", "describe", "show all tables", "describe select * from t", "explain delete from t",
]  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_of_a_table_made_in_python(name: str) -> None:
    with il.connect(":memory:", automatic=False) as lake:
        lake.create_table("t", **TABLES[name]).set_comment('it\'s; -- "x"')
        for query in QUERIES:
            assert lake.sql(query).to_arrow().num_columns > 0, query


@pytest.mark.parametrize("name", STATEMENTS)
def test_of_tables_made_in_sql(name: str) -> None:
    with il.connect(":memory:", automatic=False) as lake:
        lake.sql(STATEMENTS[name])
        for query in QUERIES:
            assert lake.sql(query).to_arrow().num_columns > 0, query


def test_defaults_without_a_number_are_shown() -> None:
    with il.connect(":memory:", automatic=False) as lake:
        lake.create_table("t", {"a": "float64", "b": "float64"}, defaults={"a": float("nan"), "b": float("inf")})
        asked = "select column_default from information_schema.columns where table_name = 't' order by ordinal_position"
        assert lake.sql(asked).fetchall() == [("'nan'",), ("'inf'",)]
        assert [row[4] for row in lake.sql("describe t").fetchall()] == ["'nan'", "'inf'"]
