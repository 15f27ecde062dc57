"""UUIDs inside lists, structs and maps, in predicates and updates: what DuckDB makes of the same rows."""

from __future__ import annotations

import uuid

import duckdb
import pytest

import indexlake as il

IDS = [uuid.UUID(int=n * 2**120 + 5) for n in range(4)]
TABLE = "u (id int, st struct(a uuid, b int), l uuid[], m map(uuid, int), o uuid)"
CONDITIONS = [
    "st.b = 2", "st.a = o", "st.a = '{1}'", "st.a > '{1}'", "st.a in ('{1}', '{2}')", "l[1] = '{2}'", "l[1] = o",
    "contains(l, '{2}'::uuid)", "'{2}'::uuid in l", "l = ['{2}'::uuid, '{0}'::uuid]", "m[o] = 3", "len(l) = 2",
    "st.a::varchar = '{1}'", "l[1]::varchar like '03%'", "st = {{'a': '{1}'::uuid, 'b': 1}}",
]  # fmt: skip


@pytest.mark.parametrize("tier", ["hot", "vortex", "parquet"])
def test_predicates_and_updates_see_inside(tier: str) -> None:
    with il.connect(":memory:", automatic=False) as lake, duckdb.connect() as judge:
        format = "parquet" if tier == "parquet" else "vortex"
        lake.sql(f"create table {TABLE} with (dump_format = '{format}')")
        judge.execute(f"create table {TABLE}")
        rows = [(n, {"a": x, "b": n}, [x, IDS[0]], {x: n}, x) for n, x in enumerate(IDS)]
        for row in rows:
            lake.sql("insert into u values ($1, $2, $3, map([$4], [$1]), $4)", [*row[:3], row[4]])
            judge.execute("insert into u values ($1, $2, $3, map([$4], [$1]), $4)", [*row[:3], row[4]])
        if tier != "hot":
            lake.pipeline(runner="threads").dump("u")
        t = lake.table("u")
        for written in CONDITIONS:
            where = written.format(*(str(x).upper() for x in IDS))
            if "varchar" in where:
                where = written.format(*IDS)
            found = sorted(row["id"] for row in t.scan(where, columns=["id"]))
            assert found == [n for (n,) in judge.execute(f"select id from u where {where} order by id").fetchall()], (
                where
            )
        t.update({"l": il.expr("[o, st.a]"), "st": il.expr("{'a': l[2], 'b': 9}")}, where="id = 1")
        judge.execute("update u set l = [o, st.a], st = {'a': l[2], 'b': 9} where id = 1")
        changed = t.scan("id = 1").to_pylist()[0]
        assert (changed["l"], changed["st"]) == judge.execute("select l, st from u where id = 1").fetchone()
