"""``search(…)`` where a query names a table: its rows are those of ``table.search``, at the snapshot of the query."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import indexlake as il
from indexlake.errors import ExpressionError, NotFoundError, SchemaError

NOTES = [
    (1, "late parcel in Bern", 10.0, [1.0, 0.0, 0.0]),
    (2, "parcel", 20.0, [0.0, 1.0, 0.0]),
    (3, "letter", 30.0, [0.0, 0.0, 1.0]),
    (4, "parcel late, late, late", 40.0, [0.9, 0.1, 0.0]),
    (5, None, 50.0, None),
]


@pytest.fixture
def notes(lake: il.Lake) -> il.Lake:
    """Rows in a block and hot ones, with an index on text and one on vectors."""
    lake.sql("""
        create schema post;
        create table post.notes (id bigint primary key, body varchar, cost double, vec float[3], big hugeint);
        create index words on post.notes using bm25 (body);
        create index near on post.notes using hnsw (vec) with (metric = 'l2');
        create table names (id bigint, name varchar);
        insert into names values (1, 'ann'), (2, 'bob'), (4, 'eve')
    """)
    insert = "insert into post.notes values ($id, $body, $cost, $vec, 7)"
    for n, row in enumerate(NOTES):
        lake.sql(insert, dict(zip(("id", "body", "cost", "vec"), row, strict=True)))
        if n == 2:
            lake.pipeline(runner="threads").dump("post.notes")
    return lake


def ids(lake: il.Lake, source: str, params: Any = None, **options: Any) -> list[int]:
    return [row[0] for row in lake.sql(f"select id from {source}", params, **options).fetchall()]


def same(found: pa.Table, expected: pa.Table) -> bool:
    """The same columns and rows; a result of SQL does not know what is never null."""
    return found.schema.types == expected.schema.types and found.to_pydict() == expected.to_pydict()


def test_its_rows_are_those_of_the_table(notes: il.Lake) -> None:
    table = notes.table("post.notes")
    found = notes.sql("select * from search('post.notes', 'words', 'late parcel')").to_arrow()
    assert same(found, table.search("words", "late parcel").to_arrow())
    assert found.schema.names == ["id", "body", "cost", "vec", "big", "_score"]
    near = notes.sql("select * from search('post.notes', 'near', [1, 0, 0.1], k := 2)").to_arrow()
    assert same(near, table.search("near", [1, 0, 0.1], k=2).to_arrow())
    assert near.schema.field("vec").type == pa.list_(pa.float32(), 3)
    assert near["id"].to_pylist() == [1, 4]


@pytest.mark.parametrize("query", [[1, 0, 0], (1.0, 0.0, 0.0), np.array([1, 0, 0], np.float32), pa.array([1.0, 0, 0])])
def test_a_vector_is_a_parameter_of_any_kind(notes: il.Lake, query: Any) -> None:
    assert ids(notes, "search('post.notes', 'vec', $q, k := $k)", {"q": query, "k": 2}) == [1, 4]
    assert ids(notes, "search('post.notes', 'vec', ?, k := ?) where cost > ?", [query, 2, 10]) == [4]


def test_arguments_are_constants_too(notes: il.Lake) -> None:
    assert ids(notes, "search('post.notes', 'vec', [0.5 + 0.5, 0, 0]::float[3], k => 1 + 1)") == [1, 4]
    assert ids(notes, "search($t, $i, $q, k := 1)", {"t": "post.notes", "i": "words", "q": "letter"}) == [3]
    assert ids(notes, "search('post.notes', 'words', 'par' || 'cel', k := 1)") == [2]


def test_conditions_of_the_search_and_of_the_query(notes: il.Lake) -> None:
    for where in ("where", '"where"', "WHERE"):
        text = f"search('post.notes', 'words', 'parcel', k := 1, {where} := 'cost > 20')"
        assert ids(notes, text) == [4], "the best of the rows that match"
    text = "search('post.notes', 'words', 'parcel', k := 1, where := 'cost > $low', params := {'low': 20})"
    assert ids(notes, text) == [4]
    assert ids(notes, "search('post.notes', 'words', 'parcel', k := 1) where cost > 20") == [], "of the best"


def test_joined_with_tables_and_with_itself(notes: il.Lake) -> None:
    text = """
        select n.name, s.id, s._score > 0 as scored
        from search('post.notes', 'words', 'late', k := 10) s left join names n on n.id = s.id order by s.id
    """
    assert notes.sql(text).fetchall() == [("ann", 1, True), ("eve", 4, True)]
    text = """
        select count(*) from search('post.notes', 'words', $q) a, search('post.notes', 'near', $v, k := 3) b
        where a.id = b.id and a.cost < 30
    """
    assert notes.sql(text, {"q": "parcel", "v": [1, 0, 0]}).scalar() == 2
    assert ids(notes, "names where id in (select id from search('post.notes', 'words', 'late')) order by id") == [1, 4]
    with_one = "with s as (from search('post.notes', 'words', 'late')) select a.id from s a join s b using (id)"
    assert sorted(notes.sql(with_one).fetchall()) == [(1,), (4,)]


def test_without_an_alias_it_is_called_search(notes: il.Lake) -> None:
    text = "select search.id, search._distance from search('post.notes', 'near', [0, 0, 1], k := 1)"
    assert notes.sql(text).fetchall() == [(3, 0.0)]
    (name,) = notes.sql("select (select max(id) from search('post.notes', 'words', 'late'))").columns
    assert "search('post.notes', 'words', 'late')" in name
    assert "__il" not in name
    renamed = "select a from search('post.notes', 'words', 'letter', columns := ['id', 'body']) as s(a, b, c)"
    assert notes.sql(renamed).fetchall() == [(3,)]


def test_in_a_query_that_only_duckdb_can_parse(notes: il.Lake) -> None:
    text = "select s.id, 3! from search('post.notes', 'words', $q) at (version => $v) s, names n where n.id = s.id"
    assert notes.sql(text, {"q": "late", "v": notes.snapshot_id}).fetchall() == [(4, 6), (1, 6)]
    assert notes.sql("select search.id, 3! from search('post.notes', 'words', 'letter')").fetchall() == [(3, 6)]
    with pytest.raises(ExpressionError, match="write it after FROM or JOIN"):
        notes.sql("select 3!, search('post.notes', 'words', 'letter')")


@pytest.mark.parametrize(
    "text",
    [
        "select id from names semi join {search} s using (id)",
        "select a.id from ({search} a join names b on a.id = b.id)",
        "select n.id from names n, lateral (select * from {search} s where s.id = n.id) z",
        "with recursive r as (select min(id) id from {search} union all select id + 3 from r where id < 4) from r",
        "values ((select min(id) from {search})), ((select max(id) from {search}))",
        "select struct_extract(s, 'id') from {search} s",
        "select id from (from {search} union all by name from {search} where id = 2)",
        "select id from (pivot {search} on body using count(*))",
    ],
)
def test_wherever_a_table_may_stand(notes: il.Lake, text: str) -> None:
    search = "search('post.notes', 'words', 'late')"
    assert sorted(row[0] for row in notes.sql(text.replace("{search}", search)).fetchall()) == [1, 4]


def test_something_else_may_be_called_search(notes: il.Lake) -> None:
    assert notes.sql("with search(a) as (select 1) select a from search").scalar() == 1
    assert notes.sql("select search.a from (select 1) search(a)").scalar() == 1
    notes.sql("create table search (id int); insert into search values (9)")
    assert ids(notes, "search") == [9]


def test_names_are_found_as_those_of_tables(notes: il.Lake) -> None:
    assert ids(notes, "search('notes', 'words', 'letter')", namespace="post") == [3]
    assert ids(notes, """search('"post"."NOTES"', 'WORDS', 'letter')""") == [3]
    notes.sql('create table "my notes" (id bigint, body varchar); insert into "my notes" values (1, \'x\')')
    notes.sql('create index w on "my notes" using bm25 (body)')
    assert ids(notes, """search('"my notes"', 'body', 'x')""") == [1]


def test_it_reads_the_snapshot_of_the_query(notes: il.Lake) -> None:
    before = notes.snapshot_id
    found = notes.sql("select id from search('post.notes', 'words', 'letter')")
    notes.sql("insert into post.notes values (6, 'letter letter', 1, null, null); delete from post.notes where id = 3")
    assert found.fetchall() == [(3,)]
    assert found.fetchall() == [(3,)], "also when it is read again"
    assert ids(notes, "search('post.notes', 'words', 'letter')") == [6]
    assert ids(notes, "search('post.notes', 'words', 'letter')", at=before) == [3]
    assert ids(notes.at(before), "search('post.notes', 'words', 'letter')") == [3]
    text = "search('post.notes', 'words', 'letter') at (version => $before) s"
    assert ids(notes, text, {"before": before}) == [3]


def test_a_transaction_finds_its_own_writes(notes: il.Lake) -> None:
    with notes.transaction() as tx:
        tx.sql("insert into post.notes values (6, 'letter letter', 1, [0, 0, 2], null)")
        tx.sql("delete from post.notes where id = 3")
        found = tx.sql("select id from search('post.notes', 'words', 'letter')")
        assert found.fetchall() == [(6,)]
        assert tx.sql("select id from search('post.notes', 'near', [0, 0, 1], k := 1)").fetchall() == [(6,)]
        assert ids(notes, "search('post.notes', 'words', 'letter')") == [3]
        tx.sql("update post.notes set body = 'gone' where id = 6")
        assert found.fetchall() == [(6,)], "a result of before"
        tx.rollback()


def test_changes_take_their_rows_from_it(notes: il.Lake) -> None:
    late = "search('post.notes', 'words', 'late', k := 10)"
    assert notes.sql(f"insert into names select id + 100, body from {late}").inserted == 2
    assert notes.sql(f"update names set name = s.body from {late} s where s.id = names.id").updated == 2
    assert notes.sql(f"delete from names using {late} s where s.id + 100 = names.id").deleted == 2
    merge = "on names.id = s.id when matched then update set name = 'late' when not matched then do nothing"
    assert notes.sql(f"merge into names using {late} s {merge}").updated == 2
    assert notes.sql("select * from names order by id").fetchall() == [(1, "late"), (2, "bob"), (4, "late")]
    without_alias = "on names.id = search.id when matched then update set name = search.body"
    assert notes.sql(f"merge into names using {late} {without_alias}").updated == 2
    notes.sql(f"create table made as select id, _score from {late}")
    assert notes.sql("select count(*) from made").scalar() == 2
    with notes.transaction() as tx:
        tx.sql("insert into post.notes values (7, 'late own', 0, null, null)")
        assert tx.sql(f"insert into names select id, body from {late} where id = 7").inserted == 1


def test_only_the_columns_that_are_named_are_read(notes: il.Lake) -> None:
    plan = str(notes.sql("explain select s.id, _score from search('post.notes', 'words', 'late') s where cost > 1"))
    assert f"search post.notes at snapshot {notes.snapshot_id} by words, as s\n" in plan
    assert "columns: id, cost, _score" in plan
    assert notes.sql("select count(*) from search('post.notes', 'words', 'late')").scalar() == 2
    assert notes.sql("select count(*) from search('post.notes', 'words', 'nosuchword')").scalar() == 0


def test_row_ids_are_shown_where_they_are_named(notes: il.Lake) -> None:
    expected = notes.sql("select _indexlake_row_id from post.notes where id = 3").fetchall()
    text = "from search('post.notes', 'words', 'letter')"
    assert notes.sql(f"select _indexlake_row_id {text}").fetchall() == expected
    assert [row[-1:] for row in notes.sql(f"select *, _indexlake_row_id {text}").fetchall()] == expected


def test_it_is_described(notes: il.Lake) -> None:
    rows = notes.sql("describe select * from search('post.notes', 'words', 'late')").to_pylist()
    assert [(row["column_name"], row["column_type"]) for row in rows][-2:] == [("big", "HUGEINT"), ("_score", "DOUBLE")]
    summary = notes.sql("select column_name from (summarize search('post.notes', 'words', 'late'))").fetchall()
    assert ("_score",) in summary


def test_what_was_found_is_shown(notes: il.Lake) -> None:
    (row,) = notes.sql("select * from search('post.notes', 'words', 'letter', snippet := true)").to_pylist()
    assert "letter" in row["_snippet"]


def test_several_indexes_are_asked_together(notes: il.Lake) -> None:
    text = "select id from search('post.notes', {'words': 'late', 'near': [1, 0, 0]}, k := 2)"
    assert {row[0] for row in notes.sql(text).fetchall()} == {1, 4}
    pairs = [("words", "late"), ("near", [1.0, 0.0, 0.0])]
    given = notes.sql("select * from search('post.notes', $pairs, k := 3, fuse := 'rrf')", {"pairs": pairs})
    assert same(given.to_arrow(), notes.table("post.notes").search(pairs, k=3, fuse="rrf").to_arrow())


@pytest.mark.parametrize(
    ("text", "error", "problem"),
    [
        ("search('nosuch', 'words', 'x')", NotFoundError, "There is no table 'main.nosuch'"),
        ("search('post.note', 'words', 'x')", NotFoundError, "Did you mean 'post.notes'?"),
        ("search('post.notes', 'nosuch', 'x')", NotFoundError, "nosuch"),
        ("search('post.notes', 'cost', 'x')", ExpressionError, "has no index to search"),
        ("search('post.notes', 'words', 'x', nosuch := 1)", ExpressionError, "nosuch"),
        ("search('post.notes', 'words', 'x', k := -1)", ExpressionError, "-1"),
        ("search('post.notes', 'words', 'x', k := 'many')", ExpressionError, "many"),
        ("search('post.notes', 'words', 'x', where := 'nosuch > 1')", ExpressionError, "nosuch"),
        ("search('post.notes', 'near', [1, 2])", ExpressionError, "2 numbers"),
        ("search('post.notes', 'words', null)", ExpressionError, "A search needs a query: this one is null"),
        ("search('post.notes', 'words')", ExpressionError, "A search needs a query after the index or column"),
        ("search('post.notes')", ExpressionError, "A search needs a table, an index or a column"),
        ("search()", ExpressionError, "A search needs a table, an index or a column"),
        ("search('post.notes', 'words', 'x', 5)", ExpressionError, "first three arguments can be given without a name"),
        ("search('post.notes', 'words', k := 5, 'x')", ExpressionError, "all others must be named"),
        ("search('post.notes', 'words', 'x', k := 5, K := 5)", ExpressionError, "K is given twice"),
        ("search('post.notes', 'words', 'x', query := 'y')", ExpressionError, "'query' is the third argument"),
        ("search('post.notes', 'words', 'x', self := 1)", ExpressionError, "self"),
        ("search('post.notes', 'words', 'x', k := )", ExpressionError, "Expected the value of the argument here"),
        ("search('post.notes', 'words', 'x'", ExpressionError, "This parenthesis is not closed"),
        ("search('post.notes', {'words': 'x'}, 'y')", ExpressionError, "each has its own query"),
        ("search('post.notes', 5, 'y')", ExpressionError, "names an index or a column, as text"),
        ("search(5, 'words', 'y')", ExpressionError, "the name of a table, as text"),
        ("search(notes, 'words', 'y')", ExpressionError, "arguments of search(…) must be constants or parameters"),
        ("names n, search('post.notes', 'words', n.name)", ExpressionError, "must be constants or parameters"),
        ("search('my notes', 'words', 'y')", ExpressionError, "quote a name that is more than letters and digits"),
        ("search('a.b.c', 'words', 'y')", ExpressionError, "A table is named `table` or `namespace.table`"),
        ("names where name = search('post.notes', 'words', 'x')", ExpressionError, "write it after FROM or JOIN"),
    ],
)
def test_what_is_wrong_is_said(notes: il.Lake, text: str, error: type[Exception], problem: str) -> None:
    with pytest.raises((error, SchemaError)) as refused:
        notes.sql(f"select * from {text}")
    assert problem in str(refused.value)


def test_a_point_is_written_in_parentheses(lake: il.Lake) -> None:
    lake.sql("""
        create table places (id bigint primary key, x double, y double);
        insert into places values (1, 31.2, 30), (2, -17.4, 14.7), (3, 31.3, 30.1);
        create index place on places using rtree (x, y)
    """)
    for point in ("(31.3, 30.1)", "[31.3, 30.1]", "(313 / 10, 30.1)", "row(31.3, 30.1)"):
        assert ids(lake, f"search('places', 'place', {point}, k := 2)") == [3, 1]
    with pytest.raises(ExpressionError, match=r"searched near a place: \(x, y\)"):
        ids(lake, "search('places', 'place', (31.3, 30.1, 2))")


def test_a_column_that_it_does_not_have(notes: il.Lake) -> None:
    with pytest.raises(ExpressionError, match="Did you mean 'cost'"):
        notes.sql("select costt from search('post.notes', 'words', 'x')")
