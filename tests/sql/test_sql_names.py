"""Which column a dotted name means where schemas, tables, columns and fields share their names.  DuckDB judges."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import indexlake as il
from indexlake.errors import NotFoundError
from tests.sql.answers import answer

SETUP = (
    "create schema n",
    "create schema a",
    "create schema b",
    "create table n.n (n int, u int)",
    "insert into n.n values (1, 10), (2, 20)",
    "create table a.a (a struct(a struct(a struct(a int))), b int)",
    "insert into a.a values ({'a': {'a': {'a': 1}}}, 7)",
    "create table a.b (a int, b struct(a int, b struct(c int)))",
    "insert into a.b values (1, {'a': 2, 'b': {'c': 3}})",
    "create table b.a (b struct(a struct(b int)), a int)",
    "insert into b.a values ({'a': {'b': 5}}, 6)",
    "create table b.b (c int)",
    "insert into b.b values (9)",
)
SOURCES = {
    "n.n": "nu",
    "n.n as u": "nu",
    **dict.fromkeys(["a.a", "a.b", "b.a", "b.b", "a.a as b", "a.b as a", "b.a as c", "a.b as c"], "abc"),
    **dict.fromkeys(["a.a, b.a", "a.a join b.b on true", "a.b, b.b as a", "a.a as c, b.a"], "abc"),
}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[il.Lake, duckdb.DuckDBPyConnection]]:
    with il.connect(str(tmp_path_factory.mktemp("names") / "lake"), automatic=False) as lake:
        plain = duckdb.connect()
        for statement in SETUP:
            lake.sql(statement)
            plain.execute(statement)
        yield lake, plain


@pytest.mark.parametrize("source", SOURCES)
def test_a_dotted_name_means_what_it_means_in_duckdb(
    both: tuple[il.Lake, duckdb.DuckDBPyConnection], source: str
) -> None:
    lake, plain = both
    letters = SOURCES[source]
    paths = [path for depth in (1, 2, 3) for path in itertools.product(letters, repeat=depth)]
    paths += [path for path in itertools.product(letters, repeat=4) if len(set(path)) < 3][::5]
    paths += [(letter,) * 5 for letter in letters]
    found = 0
    for path in paths:
        text = f"select {'.'.join(path)} from {source}"
        expected = answer(plain.execute, text)
        assert answer(lake.sql, text) == expected, text
        found += expected is not None
    assert found > 2


@pytest.mark.parametrize(
    "text",
    [
        "select n.n.n.n from n.n",
        "select n.n.u from n.n where n.n.n = 2 order by n.n.u",
        "select n.n.n, count(n.n.u) from n.n group by n.n.n order by n.n.n",
        "select a.a.a.a.a from a.a where a.a.b = 7",
        "select a.a.b, b.a.a from a.a, b.a where a.a.b > b.a.a",
        "select (select max(n.n.n) from n.n where n.n.u > a.a.b) from a.a",
        "select n.n from n.n",
        "select b.b from b.b",
        "select a.b.b.b.c from a.b where a.b.b.a = 2",
    ],
)
def test_names_in_every_clause(both: tuple[il.Lake, duckdb.DuckDBPyConnection], text: str) -> None:
    lake, plain = both
    expected = answer(plain.execute, text)
    assert answer(lake.sql, text) == expected


CHANGES = (
    "update n.n set u = n.n.n + n.u where n.n.n = 1",
    "update a.a set b = a.a.b + 1 where a.a.b = 7",
    "update a.b set a = a.b.a + a.b.b.a where b.b.b.c = 3",
    "update a.a set b = a.a.b + (select max(n.n.n) from n.n) where a.a.b in (select a.a.b from a.a)",
    "delete from n.n where n.n.u = (select min(n.n.u) from n.n)",
    "delete from b.b where b.b.c = 9",
)


def test_names_in_changes(tmp_path: Path) -> None:
    with il.connect(str(tmp_path / "lake"), automatic=False) as lake:
        plain = duckdb.connect()
        for statement in SETUP:
            lake.sql(statement)
            plain.execute(statement)
        for change in CHANGES:
            lake.sql(change)
            plain.execute(change)
            for table in ("n.n", "a.a", "a.b", "b.b"):
                assert answer(lake.sql, f"select * from {table}") == answer(plain.execute, f"select * from {table}")


def test_use_holds_for_every_way_to_run_a_text(lake: il.Lake) -> None:
    lake.sql("create schema s1; create table here (a int); insert into here values (1)")
    lake.sql("create table s1.u (a int primary key, b int); insert into s1.u values (5, 1)")
    before = lake.snapshot_id
    lake.sql("use s1; insert into u values (6, 2); insert into here values (2)")
    assert lake.sql("from u").fetchall() == [(5, 1), (6, 2)]
    assert lake.sql("select b from u where a = 5").fetchall() == [(1,)]
    assert lake.sql("from here").fetchall() == [(1,), (2,)]
    assert lake.sql("from u", at=before).fetchall() == lake.at(before).sql("from u").fetchall() == [(5, 1)]
    assert lake.at(before).sql("from here").fetchall() == [(1,)]
    with lake.transaction() as tx:
        tx.sql("insert into u values (7, 3); update here set a = 10 where a = 1")
        assert tx.sql("select count(*) from u").scalar() == 3
        assert tx.sql("from here order by a").fetchall() == [(2,), (10,)]
    for n in (20, 21, 22):  # the same statement again
        assert lake.sql(f"insert into u values ({n}, {n})").rows == 1
        assert lake.sql(f"select b from u where a = {n}").scalar() == n
    lake.sql("create table s1.here (c int)")
    assert lake.sql("from here").to_arrow().column_names == ["c"]
    lake.sql("drop table here")
    assert lake.sql("from here").to_arrow().column_names == ["a"]


def test_a_call_that_names_its_namespace_finds_nothing_elsewhere(lake: il.Lake) -> None:
    lake.sql("create schema s1; create table here (a int); use s1")
    with pytest.raises(NotFoundError, match=r"s1\.here"):
        lake.sql("delete from here", namespace="s1")
    with pytest.raises(NotFoundError, match=r"s1\.here"):
        lake.sql("from here", namespace="s1")
    assert lake.sql("from here", namespace="main").to_arrow().num_rows == 0
    assert lake.sql("use s1; from here", namespace="main").to_arrow().num_rows == 0
