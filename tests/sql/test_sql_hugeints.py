"""HUGEINT from -2^127 to 2^127 - 1: exact in every tier, index and way of writing; never another number outside."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.errors import ConstraintError, DuplicateKeyError, ExpressionError, SchemaError
from tests.conftest import connect

LEAST, MOST = -(2**127), 2**127 - 1
EDGES = [MOST, LEAST, MOST - 1, LEAST + 1, 10**38, -(10**38), 10**38 - 1, 1 - 10**38, 2**64, -(2**63), 1, 0, -1, None]
WHERE = ["inline", "memory", "vortex", "parquet", "ipc", "clustered"]


def held(lake: il.Lake, where: str) -> il.Table:
    """Return a table of the edges and a rising number, in one tier."""
    if where == "clustered":
        empty = lake.sql("select 0::int as k, 0::hugeint as h, 0::hugeint as g limit 0")
        lake.create_table("t", empty, primary_key="k", layout="clustered")
    else:
        lake.sql("create table t (k int primary key, h hugeint, g hugeint)")
    table = lake.table("t")
    for first in range(0, len(EDGES), 5):
        some = list(enumerate(EDGES))[first : first + 5]
        table.insert([{"k": k, "h": h, "g": MOST - k} for k, h in some])
        if where in ("vortex", "parquet", "ipc", "clustered"):
            if where != "clustered":
                table.set_config(dump_format=where)
            lake.pipeline(runner="threads").dump("t")
    return table


@pytest.fixture(params=WHERE)
def tier(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    with connect(tmp_path / "lake", **({"hot": "memory"} if request.param == "memory" else {})) as lake:
        yield lake, held(lake, request.param)


def test_every_way_to_read_rows_gives_exact_numbers(tier: tuple[il.Lake, il.Table]) -> None:
    lake, table = tier
    rows = [{"k": k, "h": h, "g": MOST - k} for k, h in enumerate(EDGES)]
    assert table.scan(order_by="k").to_pylist() == rows
    assert list(table.scan(order_by="k")) == rows
    assert [table.get(row["k"]) for row in rows] == rows
    assert [{name: row[name] for name in ("k", "h", "g")} for row in table.changes(0)] == rows
    assert lake.sql("select * from t order by k").fetchall() == [tuple(row.values()) for row in rows]
    assert lake.sql("select * from t order by k").to_pandas().h.tolist() == EDGES
    assert table.scan(order_by="h", columns=["h"]).to_pylist() == [
        {"h": h} for h in [*sorted(e for e in EDGES if e is not None), None]
    ]


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "<>": operator.ne,
}  # fmt: skip


def test_conditions_keep_the_rows_that_python_keeps(tier: tuple[il.Lake, il.Table]) -> None:
    """Through statistics, files, the evaluator and DuckDB; then through both kinds of index."""
    lake, table = tier
    for index in ("", "btree", "hash"):
        if index:
            table.create_index(f"by_{index}", "h", kind=index)
        for constant in [e for e in EDGES if e is not None] + [MOST - 5]:
            for sign, holds in OPERATORS.items():
                wanted = [k for k, h in enumerate(EDGES) if h is not None and holds(h, constant)]
                for value in (constant, Decimal(constant)):
                    found = table.scan(f"h {sign} $c", params={"c": value}, columns=["k"]).to_pylist()
                    assert sorted(row["k"] for row in found) == wanted, (sign, constant)
                found = lake.sql(f"select k from t where h {sign} {constant}").fetchall()
                assert sorted(k for (k,) in found) == wanted, (sign, constant)
                found = lake.sql(f"select k from t where h {sign} $c", {"c": Decimal(constant)}).fetchall()
                assert sorted(k for (k,) in found) == wanted, (sign, constant)
        some = [MOST, LEAST, 10**38, 5, None]
        found = table.scan("h in $some", params={"some": some}, columns=["k"]).to_pylist()
        assert sorted(row["k"] for row in found) == [0, 1, 4]


def test_jobs_keep_them(tier: tuple[il.Lake, il.Table], request: pytest.FixtureRequest) -> None:
    lake, table = tier
    before = table.scan(order_by="k").to_pylist()
    jobs = lake.pipeline(runner="threads")
    jobs.run()
    if request.node.callspec.params["tier"] != "clustered":
        jobs.compact("t")
        jobs.freeze("t")
    jobs.verify()
    assert table.scan(order_by="k").to_pylist() == before
    table.update({"h": il.expr("h - 1")}, "h = $most", params={"most": MOST})
    table.update({"g": LEAST}, "k = 1")
    table.upsert([{"k": 2, "h": LEAST}, {"k": 99, "h": MOST}])
    assert [table.get(k) for k in (0, 1, 2, 99)] == [
        {"k": 0, "h": MOST - 1, "g": MOST},
        {"k": 1, "h": LEAST, "g": LEAST},
        {"k": 2, "h": LEAST, "g": MOST - 2},
        {"k": 99, "h": MOST, "g": None},
    ]
    assert table.delete(f"h = {LEAST}").rows == 2
    with pytest.raises(ExpressionError, match="Overflow"):
        table.update({"h": il.expr("h + 1")}, f"h = {MOST}")


def test_what_leaves_as_arrow_data_is_exact_or_refused_by_name(tier: tuple[il.Lake, il.Table], tmp_path: Path) -> None:
    lake, table = tier
    few = f"h > -{10**38} and h < {10**38}"
    for exact in (table.scan(few, columns=["h"]).to_arrow(), lake.sql(f"select h from t where {few}").to_arrow()):
        assert exact.schema.field("h").type == pa.decimal128(38, 0)
        exact.validate(full=True)
    assert table.scan(few, columns=["h"]).to_polars().height == 7
    result = lake.sql("select k, h from t")
    for leave in (
        lambda: table.scan().to_arrow(),
        lambda: table.head(),
        lambda: list(table.scan().to_batches()),
        lambda: table.get_many([0]),
        lambda: table.scan().to_polars(),
        lambda: table.scan().to_duckdb(),
        lambda: table.scan().to_parquet(tmp_path / "t.parquet"),
        lambda: table.changes(0).to_arrow(),
        lambda: result.to_arrow(),
        lambda: result.to_polars(),
        lambda: lake.sql("select [h] as h from t").to_arrow(),
        lambda: lake.sql("update t set k = k where k = 0 returning h").to_arrow(),
    ):
        with pytest.raises(ConstraintError, match=r"Column '[hg]' holds a HUGEINT of 39 digits.*Cast it to VARCHAR"):
            leave()
    assert not (tmp_path / "t.parquet").exists()
    with pytest.raises(Exception, match="Column 'h' holds a HUGEINT of 39 digits"):
        pa.table(table.scan())
    assert lake.sql("select h::varchar as h from t where k = 0").to_arrow().to_pylist() == [{"h": str(MOST)}]
    assert table.count() == lake.sql("select h from t").count() == len(EDGES)
    assert str(MOST) in repr(result)
    assert str(MOST) in table.scan()._repr_html_()


def test_keys_defaults_checks_and_unique_columns(tmp_path: Path) -> None:
    for hot in ("inline", "memory"):
        with connect(tmp_path / hot, hot=hot) as lake:
            lake.sql(
                f"create table t (h hugeint primary key, u hugeint unique, d hugeint default {LEAST}, "
                f"c hugeint check (c < {MOST}), g hugeint generated always as (h - 1))"
            )
            table = lake.table("t")
            table.insert([{"h": MOST, "u": LEAST}, {"h": 10**38, "u": MOST, "c": MOST - 1}])
            assert table.get(MOST) == {"h": MOST, "u": LEAST, "d": LEAST, "c": None, "g": MOST - 1}
            assert table.get(Decimal(10**38)) is not None
            assert table.get(MOST - 1) is None
            for wrong, error in (
                ({"h": MOST}, DuplicateKeyError),
                ({"h": 1, "u": MOST}, DuplicateKeyError),
                ({"h": 1, "c": MOST}, ConstraintError),
                ({"h": MOST + 1}, ConstraintError),
                ({"h": LEAST - 1}, ConstraintError),
                ({"h": Decimal(10**39)}, ConstraintError),
                ({"h": Decimal("0.5")}, ConstraintError),
                ({"h": LEAST}, ExpressionError),  # of which the generated column would be one less
            ):
                with pytest.raises(error):
                    table.insert(wrong)
            table.merge([{"h": MOST, "d": 5}, {"h": MOST - 1, "d": MOST}], on="h").when_matched_update(
                set={"d": il.expr("s.d")}
            ).when_not_matched_insert().execute()
            assert (table.get(MOST)["d"], table.get(MOST - 1)["d"]) == (5, MOST)
            lake.pipeline(runner="threads").dump("t")
            with pytest.raises(DuplicateKeyError):
                table.insert({"h": MOST})
            assert table.get(MOST)["g"] == MOST - 1


def test_a_decimal_column_never_gets_39_digits(module_lake: il.Lake) -> None:
    module_lake.sql("create table narrow (k int primary key, h hugeint, d decimal(38, 0))")
    table = module_lake.table("narrow")
    table.insert({"k": 1, "h": MOST, "d": 1})
    big = module_lake.sql(f"select 1::int as k, {MOST} as d")
    for write in (
        lambda: table.insert({"k": 2, "d": 10**38}),
        lambda: table.insert(module_lake.sql(f"select 2::int as k, {MOST} as d")),
        lambda: table.upsert(big),
        lambda: table.update({"d": il.expr("h")}, "k = 1"),
        lambda: table.merge(big, on="k").when_matched_update(set={"d": il.expr("s.d")}).execute(),
        lambda: module_lake.sql("update narrow set d = h"),
        lambda: module_lake.sql("insert into narrow select k + 1, h, h from narrow"),
        lambda: table.update({"d": MOST}, "k = 1"),
    ):
        with pytest.raises((ConstraintError, ExpressionError)):
            write()
    assert table.scan().to_pylist() == [{"k": 1, "h": MOST, "d": 1}]
    array = pa.array([MOST.to_bytes(16, "little")], pa.binary(16)).view(pa.decimal128(38, 0))
    with pytest.raises(ConstraintError, match="'d'"):
        table.insert(pa.table({"k": pa.array([3], pa.int32()), "d": array}))


@pytest.mark.parametrize("where", ["hot", "memory", "vortex", "parquet"])
def test_a_hugeint_becomes_a_decimal_only_if_all_values_fit(tmp_path: Path, where: str) -> None:
    with connect(tmp_path / "lake", **({"hot": "memory"} if where == "memory" else {})) as lake:
        lake.sql(f"create table t (k int primary key, h hugeint); insert into t values (1, 7), (2, {MOST})")
        table = lake.table("t")
        if where in ("vortex", "parquet"):
            table.set_config(dump_format=where)
            lake.pipeline(runner="threads").dump("t")
        with pytest.raises((SchemaError, ExpressionError)):
            lake.sql("alter table t alter h type decimal(38, 0)")
        with pytest.raises(SchemaError, match=f"HUGEINT cannot become decimal256.40, 2.: {MOST} is outside"):
            table.widen_column("h", "decimal256(40, 2)")
        assert lake.sql("select typeof(h) from t").scalar() == "HUGEINT"
        table.widen_column("h", "decimal256(41, 2)")
        assert table.scan("k = 2").to_pylist() == [{"k": 2, "h": MOST}]
        lake.sql("create table s as select k, h from (values (1, 7::hugeint)) v(k, h)")
        if where in ("vortex", "parquet"):
            lake.table("s").set_config(dump_format=where)
            lake.pipeline(runner="threads").dump("s")
        lake.sql("alter table s alter h type decimal(38, 0)")
        assert lake.sql("select typeof(h), h from s").fetchall() == [("DECIMAL(38,0)", 7)]


def test_parameters(module_lake: il.Lake) -> None:
    for value in (MOST, LEAST, 10**38):
        for given in (value, Decimal(value)):
            assert module_lake.sql("select $p, typeof($p)", {"p": given}).fetchall() == [(value, "HUGEINT")]
            assert module_lake.sql("select $p as l", {"p": [given, None]}).scalar() == [value, None]
            assert module_lake.sql("select $p as s", {"p": {"a": given}}).scalar() == {"a": value}
    assert module_lake.sql("select $p", {"p": 2**128 - 1}).scalar() == 2**128 - 1
    module_lake.sql("prepare p as select $1 + $2, typeof($1)")
    assert module_lake.sql(f"execute p({MOST}, -1)").fetchall() == [(MOST - 1, "HUGEINT")]
    module_lake.sql("prepare q as select $1")
    assert module_lake.sql(f"execute q([{MOST}, {LEAST}])").scalar() == [MOST, LEAST]
    for value in (2**128, LEAST - 1):
        with pytest.raises(ExpressionError, match=r"128.bit"):
            module_lake.sql("select $p", {"p": value}).fetchall()
    module_lake.sql("create table if not exists one (h hugeint)")
    for value in (MOST + 1, LEAST - 1):
        with pytest.raises(ExpressionError, match="128 bits"):
            module_lake.table("one").scan("h = $p", params={"p": value}).to_pylist()
        with pytest.raises(ExpressionError, match=r"range of HUGEINT|out of range"):
            module_lake.table("one").scan(f"h = {value}").to_pylist()


def test_a_uhugeint_is_exact_in_results(module_lake: il.Lake) -> None:
    most = 2**128 - 1
    result = module_lake.sql(f"select {most} as u, [{most}, null] as l, 5::uhugeint as f")
    assert result.fetchall() == [(most, [most, None], 5)]
    assert result.to_arrow().to_pylist() == [{"u": most, "l": [most, None], "f": 5}]
    assert result.to_pandas().u.tolist() == [most]
    with pytest.raises(ConstraintError, match=r"Column 'u'.*more than 38 digits, which polars cannot"):
        result.to_polars()
    assert module_lake.sql("select 5::uhugeint as f, [6::uhugeint] as l").to_polars().rows() == [(5, [6])]
    module_lake.sql(f"create table if not exists unsigned as select {most} as u")
    assert module_lake.sql("select u, typeof(u) from unsigned").fetchall() == [(most, "UHUGEINT")]


def test_inside_other_types_a_column_holds_38_digits(module_lake: il.Lake) -> None:
    module_lake.sql("create table inside (l hugeint[])")
    module_lake.sql(f"insert into inside values ([{10**38 - 1}])")
    with pytest.raises(ExpressionError, match=r"Could not cast value .* to DECIMAL\(38,0\)"):
        module_lake.sql(f"insert into inside values ([{MOST}])")
    assert module_lake.sql("from inside").fetchall() == [([10**38 - 1],)]


def _quotient(a: int, b: int) -> int | None:
    return None if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _remainder(a: int, b: int) -> int | None:
    return None if b == 0 else a - b * (_quotient(a, b) or 0)


def test_arithmetic_at_the_edges_is_that_of_python(module_lake: il.Lake) -> None:
    """In DuckDB, over a column of blocks and over single rows: the same number, or an error if it has over 128 bits."""
    rng = random.Random(7)
    operations = {
        "+": operator.add, "-": operator.sub, "*": operator.mul, "//": _quotient, "%": _remainder,
    }  # fmt: skip
    edges = [e for e in EDGES if e is not None]
    module_lake.sql("create table numbers (k int primary key, a hugeint, b hugeint)")
    table = module_lake.table("numbers")
    for n in range(120):
        a, b = (rng.choice(edges) + rng.choice([0, 0, 1, -1, rng.randrange(-99, 99)]) for _ in range(2))
        a, b = (min(max(v, LEAST), MOST) for v in (a, b))
        if n % 3 == 0:
            b = rng.choice([1, -1, 2, -3, 7])
        table.insert({"k": n, "a": a, "b": b})
        if n % 40 == 39:
            module_lake.pipeline(runner="threads").dump("numbers")
        sign, apply = rng.choice(list(operations.items()))
        wanted = apply(a, b)
        if (sign == "*" and wanted == LEAST) or (sign == "%" and (a, b) == (LEAST, -1)):
            continue  # DuckDB refuses these although it has the results
        possible = wanted is None or LEAST <= wanted <= MOST
        for way in (_selected, _of_constants, _updated, _kept):
            if possible:
                assert way(module_lake, table.get(n), sign, wanted) == wanted, (a, sign, b)
            else:
                with pytest.raises(ExpressionError):
                    way(module_lake, table.get(n), sign, wanted)
        assert [table.scan(f"a {o} b and k = {n}").count() for o in OPERATORS] == [f(a, b) for f in OPERATORS.values()]


def _selected(lake: il.Lake, row: Any, sign: str, wanted: Any) -> Any:
    return lake.sql(f"select a {sign} b from numbers where k = {row['k']}").scalar()


def _of_constants(lake: il.Lake, row: Any, sign: str, wanted: Any) -> Any:
    return lake.sql(f"select ({row['a']})::hugeint {sign} ({row['b']})::hugeint").scalar()


def _updated(lake: il.Lake, row: Any, sign: str, wanted: Any) -> Any:
    """Return what an update of one row makes of it, and take the change back."""
    table = lake.table("numbers")
    table.update({"b": il.expr(f"a {sign} b")}, f"k = {row['k']}")
    after = table.get(row["k"])
    table.upsert([row])
    assert after is not None
    return after["b"]


def _kept(lake: il.Lake, row: Any, sign: str, wanted: Any) -> Any:
    """Return the wanted value if a condition finds it."""
    test = "is null" if wanted is None else f"= {wanted}"
    found = lake.table("numbers").scan(f"k = {row['k']} and (a {sign} b) {test}").to_pylist()
    return wanted if found else -1
