"""Infinite dates and timestamps: hot and in blocks, by SQL and by our own predicates, and where Python has none."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest

import indexlake as il
from indexlake.errors import ConstraintError, ExpressionError

FORMATS = ("vortex", "parquet", "ipc")
COLUMNS = ("d", "ts", "tz", "s", "ms", "ns")
SETUP = (
    "create table t (k int primary key, d date, ts timestamp, tz timestamptz, s timestamp_s, ms timestamp_ms, "
    "ns timestamp_ns)",
    "insert into t values (1, 'infinity', 'infinity', 'infinity', 'infinity', 'infinity', 'infinity'), "
    "(2, '-infinity', '-infinity', '-infinity', '-infinity', '-infinity', '-infinity')",
    "insert into t values (3, '2024-01-31', '2024-01-31', '2024-01-31 00:00:00+00', '2024-01-31', '2024-01-31', "
    "'2024-01-31'), (4, null, null, null, null, null, null)",
)


@pytest.fixture(scope="module", params=["hot", *FORMATS])
def both(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[tuple[il.Lake, duckdb.DuckDBPyConnection, str]]:
    with il.connect(str(tmp_path_factory.mktemp("infinity") / "lake"), automatic=False) as lake:
        plain = duckdb.connect()
        plain.execute("set TimeZone = 'UTC'")
        for n, statement in enumerate(SETUP):
            lake.sql(statement)
            plain.execute(statement)
            if n and request.param != "hot":  # a block of infinite ones, and one of others
                lake.table("t").set_config(dump_format=request.param)
                lake.pipeline(runner="threads").dump("t")
        yield lake, plain, request.param


VALUES = ("infinity", "-infinity", "2024-01-31")
PREDICATES = [
    *[f"{c} {op} '{v}'" for c in COLUMNS for op in ("=", "<", ">=", "<>") for v in VALUES],
    *[f"{a} = {b}" for a in COLUMNS for b in COLUMNS if a != b],
    *[f"{c} + interval 1 day = 'infinity'" for c in COLUMNS],
    *[f"{c} - interval 1 month < '2024-01-01'" for c in COLUMNS],
    *[f"isinf({c})" for c in COLUMNS],
    *[f"isfinite({c}) and year({c}) = 2024" for c in COLUMNS],
    *[f"{c}::varchar = '-infinity'" for c in COLUMNS],
    *["d + 1 = 'infinity'", "d - 1 > '2024-01-01'", "d = ts and ts = tz", "d < ts", "ts <= d", "tz::timestamp = ts"],
    *["ts::timestamp_s = s", "ns::timestamp = ts", "greatest(d, date '2024-02-01') = 'infinity'"],
    *["d in ('infinity', '2024-01-31')", "ts between '2024-01-01' and 'infinity'", "s::timestamptz = tz"],
]  # fmt: skip


def test_predicates_find_what_duckdb_finds(both: tuple[il.Lake, duckdb.DuckDBPyConnection, str]) -> None:
    lake, plain, tier = both
    table = lake.table("t")
    for predicate in PREDICATES if tier == "hot" else PREDICATES[FORMATS.index(tier) :: 6]:
        expected = [k for (k,) in plain.execute(f"select k from t where {predicate} order by k").fetchall()]
        found = table.scan(predicate, columns=["k"], order_by="k").to_pylist()
        assert [row["k"] for row in found] == expected, predicate
    for predicate in PREDICATES[::12]:
        text = f"select k from t where {predicate} order by k"
        assert lake.sql(text).fetchall() == plain.execute(text).fetchall(), predicate


def test_order_and_extremes(both: tuple[il.Lake, duckdb.DuckDBPyConnection, str]) -> None:
    lake, plain, _ = both
    for c in COLUMNS:
        assert lake.table("t").scan(columns=["k"], order_by=c).to_arrow().column("k").to_pylist() == [2, 3, 1, 4]
        for text in (
            f"select k, {c}::varchar, ({c} + interval 1 month)::varchar from t order by {c} nulls last",
            f"select max({c})::varchar, min({c})::varchar, count(distinct {c}) from t",
        ):
            assert lake.sql(text).fetchall() == plain.execute(text).fetchall(), text


def test_what_duckdb_refuses_is_an_error_of_ours(both: tuple[il.Lake, duckdb.DuckDBPyConnection, str]) -> None:
    lake, _, _ = both
    with pytest.raises(ExpressionError, match="Cannot subtract infinite timestamps"):
        lake.table("t").scan("ts - timestamp '2024-01-01' > interval 1 day").count()
    with pytest.raises(ExpressionError, match="needs a timestamp between the years 1 and 9999"):
        lake.sql("select k from t at (timestamp => 'infinity')")
    with pytest.raises(ExpressionError, match="Cannot subtract infinite timestamps"):
        lake.sql("select ts - timestamp '2024-01-01' from t").fetchall()


def test_python_has_none_and_the_error_names_the_column(both: tuple[il.Lake, duckdb.DuckDBPyConnection, str]) -> None:
    lake, _, _ = both
    table = lake.table("t")
    for take in (
        lambda: lake.sql("select k, d from t").fetchall(),
        lambda: lake.sql("select d, k from t where k = 1").fetchone(),
        lambda: lake.sql("select max(d) as d from t").scalar(),
        lambda: lake.sql("select d from t").to_pylist(),
        lambda: lake.sql("select d from t").to_pandas(),
        lambda: list(lake.sql("select d from t")),
        lambda: table.scan(columns=["d"]).to_pylist(),
        lambda: table.scan(columns=["d"]).to_pandas(),
        lambda: table.get(1),
        lambda: list(table.changes(0)),
    ):
        with pytest.raises(
            ConstraintError, match=r"Column 'd' of type date32.day. holds a time that (Python|pandas) cannot"
        ) as e:
            take()
        assert "Cast it to VARCHAR in SQL" in str(e.value)
        assert e.value.column == "d"
    assert "infinity" in repr(lake.sql("select d, ts from t"))
    assert "-infinity" in lake.sql("select d, ts from t")._repr_html_()
    arrow = table.scan("k = 1").to_arrow()
    assert arrow.column("d").cast(pa.int32()).to_pylist() == [2**31 - 1]
    assert arrow.column("ns").cast(pa.int64()).to_pylist() == [2**63 - 1]
    row = table.get(3)
    assert row is not None
    assert str(row["d"]) == "2024-01-31"


def test_infinite_defaults_and_keys(tmp_path_factory: pytest.TempPathFactory) -> None:
    with il.connect(str(tmp_path_factory.mktemp("keys") / "lake"), automatic=False) as lake:
        lake.sql("create table p (d date primary key, until timestamp default 'infinity', v int)")
        lake.sql("insert into p (d, v) values ('infinity', 1), ('2024-01-01', 2)")
        lake.sql("alter table p add column since timestamp default '-infinity'")
        shown = "select d::varchar, until::varchar, since::varchar, v from p order by d"
        expected = [("2024-01-01", "infinity", "-infinity", 2), ("infinity", "infinity", "-infinity", 1)]
        assert lake.sql(shown).fetchall() == expected
        lake.pipeline(runner="threads").dump("p")
        assert lake.sql(shown).fetchall() == expected
        with pytest.raises(il.DuplicateKeyError, match="already exists"):
            lake.sql("insert into p (d) values ('infinity')")
        assert lake.sql("update p set until = default, v = v + 1 where d = 'infinity'").updated == 1
        assert lake.sql("select v from p where d = 'infinity'").scalar() == 2
        assert [row["default"] for row in lake.sql("describe p").to_pylist()] == [
            None,
            "'infinity'",
            None,
            "'-infinity'",
        ]
        assert lake.sql("delete from p where d = 'infinity'").deleted == 1


@pytest.mark.parametrize("type", ["timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns"])
def test_a_column_with_infinity_becomes_one_of_moments_as_in_duckdb(
    tmp_path_factory: pytest.TempPathFactory, type: str
) -> None:
    plain = duckdb.connect()
    with il.connect(str(tmp_path_factory.mktemp("widening") / "lake"), automatic=False) as lake:
        for text in (
            "create table w (d date)",
            "insert into w values ('2024-01-01')",
            "insert into w values ('infinity'), ('-infinity'), (null)",
            f"alter table w alter column d type {type}",
        ):
            lake.sql(text)
            plain.execute(text)
        asked = "select d::varchar, typeof(d) from w order by d"
        assert lake.sql(asked).fetchall() == plain.execute(asked).fetchall()
