"""Random simple queries over random rows: where, join, group, order, limit, subqueries; DuckDB is the judge."""

from __future__ import annotations

import math
import os
from collections import Counter
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import indexlake as il

EXAMPLES = int(os.environ.get("INDEXLAKE_HYPOTHESIS") or 25)

INTS = st.one_of(st.none(), st.integers(-3, 6))
FLOATS = st.one_of(st.none(), st.sampled_from([-1.5, -0.0, 0.0, 1.0, 2.5, math.nan, math.inf, -math.inf]))
TEXTS = st.one_of(st.none(), st.sampled_from(["", "a", "A", "ab", "b%", "é"]))
ROWS = st.lists(st.tuples(INTS, FLOATS, TEXTS), max_size=12)

LITERALS = {
    "k": ["0", "3", "-1", "2.5", "null", "100"],
    "v": ["0", "1", "-1.5", "'nan'::double", "'inf'::double", "null"],
    "s": ["''", "'a'", "'A'", "'b'", "null"],
}


@st.composite
def conditions(draw: st.DrawFn, aliases: tuple[str, ...], depth: int = 2) -> str:
    if depth and draw(st.booleans()):
        parts = [draw(conditions(aliases, depth - 1)) for _ in range(2)]
        return f"({parts[0]} {draw(st.sampled_from(['and', 'or']))} {parts[1]})"
    if depth and draw(st.integers(0, 4)) == 0:
        return f"not ({draw(conditions(aliases, depth - 1))})"
    column = draw(st.sampled_from(["k", "v", "s"]))
    name = f"{draw(st.sampled_from(aliases))}.{column}"
    value = draw(st.sampled_from(LITERALS[column]))
    form = draw(st.integers(0, 7))
    if form < 4:
        return f"{name} {draw(st.sampled_from(['=', '<>', '<', '<=', '>', '>=']))} {value}"
    if form == 4:
        return f"{name} is {draw(st.sampled_from(['null', 'not null']))}"
    if form == 5:
        return f"{name} in ({value}, {draw(st.sampled_from(LITERALS[column]))})"
    if form == 6:
        return f"coalesce({name}, {value}) is not distinct from {value}"
    return f"{name} is distinct from {value}"


@st.composite
def queries(draw: st.DrawFn) -> str:
    kind = draw(st.integers(0, 5))
    if kind == 0:
        columns = draw(st.sampled_from(["*", "k, s", "v", "count(*)", "x.*", "k + 1 as k, s || 'x' as t"]))
        return f"select {columns} from t x where {draw(conditions(('x',)))}"
    if kind == 1:
        join = draw(st.sampled_from(["join", "left join", "right join", "full join", "semi join", "anti join"]))
        on = f"x.k = y.k and {draw(conditions(('x', 'y'), 1))}" if draw(st.booleans()) else "x.k = y.k"
        visible = ("x",) if join.startswith(("semi", "anti")) else ("x", "y")
        columns = ", ".join(f"{a}.{c} as {a}{c}" for a in visible for c in "kvs")
        return f"select {columns} from t x {join} u y on {on} where {draw(conditions(visible))}"
    if kind == 2:
        return (
            f"select s, count(*), count(v), min(k), max(v) from t x where {draw(conditions(('x',)))} group by s"
            f"{draw(st.sampled_from(['', ' having count(*) > 1', ' having max(k) is not null']))}"
        )
    if kind == 3:
        word = draw(st.sampled_from(["in", "not in"]))
        return (
            f"select x.k, x.v from t x where x.k {word} (select y.k from u y where {draw(conditions(('y',)))})"
            f" and {draw(conditions(('x',), 1))}"
        )
    if kind == 4:
        inner = draw(
            st.sampled_from(["select * from t", "select k, v, s from t where k > 0", "select distinct * from t"])
        )
        return f"with c as ({inner}) select x.k, x.s from c x where {draw(conditions(('x',)))}"
    order = draw(st.sampled_from(["k, v, s", "v desc, k, s", "s, k desc, v"]))
    limit = draw(st.sampled_from(["", " limit 3", " limit 2 offset 1"]))
    return f"select * from t x where {draw(conditions(('x',), 1))} order by {order}{limit}"


@pytest.fixture(scope="module", autouse=True)
def empty_tables(module_lake: il.Lake) -> None:
    module_lake.sql("create table t (k int, v double, s varchar); create table u (k int, v double, s varchar)")


def rows_of(found: Any) -> list[Any]:
    return [tuple("NaN" if isinstance(v, float) and math.isnan(v) else v for v in row) for row in found]


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ROWS, ROWS, ROWS, st.sampled_from([None, "vortex", "parquet"]), st.lists(queries(), min_size=6, max_size=6))
def test_random_queries_give_what_duckdb_gives(
    module_lake: il.Lake, first: list[Any], second: list[Any], other: list[Any], dump: str | None, texts: list[str]
) -> None:
    judge = duckdb.connect(":memory:")
    judge.execute("create table t (k int, v double, s varchar); create table u (k int, v double, s varchar)")
    module_lake.sql("truncate t; truncate u")

    def add(name: str, rows: list[Any]) -> None:
        if rows:
            module_lake.table(name).insert([dict(zip("kvs", row, strict=True)) for row in rows])
            judge.executemany(f"insert into {name} values (?, ?, ?)", rows)

    add("t", first)
    add("u", other)
    if dump is not None:
        for name in ("t", "u"):
            module_lake.table(name).set_config(dump_format=dump)
            module_lake.pipeline().dump(name)
    add("t", second)
    for text in texts:
        ours, theirs = rows_of(module_lake.sql(text).fetchall()), rows_of(judge.execute(text).fetchall())
        if "order by" in text:
            assert ours == theirs, text
        else:
            assert Counter(ours) == Counter(theirs), text
    judge.close()
