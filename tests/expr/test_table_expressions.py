"""Expressions where users write them: predicates, updates and merges of a table, in every tier."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il

SCHEMA = pa.schema(
    [
        *(("id", pa.int64()), ("name", pa.string()), ("small", pa.int8()), ("price", pa.decimal128(7, 2))),
        *(("tags", pa.list_(pa.string())), ("who", pa.struct([("city", pa.string()), ("zip", pa.int32())]))),
        *(("day", pa.date32()), ("seen", pa.timestamp("us", "UTC")), ("again", pa.timestamp("us", "UTC"))),
        *(("took", pa.duration("us")), ("kind", pa.dictionary(pa.int8(), pa.string()))),
    ]
)


def row(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "name": f"Name {number}",
        "small": number,
        "price": number,
        "tags": ["a", f"t{number}"][: number % 3],
        "who": {"city": ["Lima", "Cusco"][number % 2], "zip": number} if number % 5 else None,
        "day": dt.date(2020, 1, 31) + dt.timedelta(days=number),
        "kind": ["x", "y"][number % 2],
    }


TIERS = ["inline", "vortex", "parquet"]


def filled(lake: il.Lake, tier: str) -> il.Table:
    config = il.TableConfig(block_row_count=10, dump_format="vortex" if tier == "inline" else tier)
    made = lake.create_table(tier, SCHEMA, primary_key="id", config=config)
    made.insert([row(number) for number in range(40)])
    if tier != "inline":
        lake.pipeline().dump(tier)
    return made


@pytest.fixture(params=TIERS)
def table(request: pytest.FixtureRequest, tmp_path: Any) -> Any:
    with il.connect(tmp_path / "lake", automatic=False) as lake:
        yield filled(lake, request.param)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A table in each tier, for tests that change nothing."""
    with il.connect(tmp_path_factory.mktemp("read") / "lake", automatic=False) as lake:
        yield [filled(lake, tier) for tier in TIERS]


@pytest.mark.parametrize(
    ("where", "params", "ids"),
    [
        ("upper(name) = 'NAME 7'", None, [7]),
        ("regexp_matches(name, ' [12]$')", None, [1, 2]),
        ("tags[-1] = 't5'", None, [5]),
        ("'t8' in tags", None, [8]),
        ("tags = $tags", {"tags": ["a", "t11"]}, [11]),
        ("len(tags) = 1 and id < 5", None, [1, 4]),
        ("who.city = 'Lima' and who['zip'] < 5", None, [2, 4]),
        ("who is null and id > 20", None, [25, 30, 35]),
        ("who = $who", {"who": {"city": "Cusco", "zip": 9}}, [9]),
        ("date_trunc('month', day) = date '2020-01-01'", None, [0]),
        ("day between date '2020-01-31' + interval 1 month and '2020-03-02'", None, [29, 30, 31]),
        ("id = length('abc') or id = $x + 1", {"x": 10}, [3, 11]),
        ("id % 20 = 3 and kind = lower('Y')", None, [3, 23]),
        ("greatest(small, 38) = id", None, [38, 39]),
    ],
)
def test_a_scan_finds(tables: list[il.Table], where: str, params: Any, ids: list[int]) -> None:
    for table in tables:
        found = table.scan(where, params=params, columns=["id"]).to_arrow().column("id").to_pylist()
        assert sorted(found) == ids, table.name


def test_an_update_computes_and_converts(table: il.Table) -> None:
    new = {
        "name": il.expr("upper(name) || $n", {"n": "!"}),
        "price": il.expr("id / 3"),
        "small": il.expr("'12'"),
        "tags": il.expr("tags || [kind]"),
        "who": il.expr("{'zip': '7', 'city': name}"),
        "day": il.expr("day + interval 1 month"),
        "took": il.expr("timestamp '2020-01-02 01:00:00' - timestamp '2020-01-01'"),
        "kind": il.expr("left(name, 1)"),
    }
    for where in ("id = 1", "id in (2, 3)"):
        table.update(new, where)
    rows = {each["id"]: each for each in table.scan("id <= 3").to_pylist()}
    assert rows[1]["name"] == "NAME 1!"
    assert [str(rows[n]["price"]) for n in (1, 2, 3)] == ["0.33", "0.67", "1.00"]
    assert rows[2]["tags"] == ["a", "t2", "x"]
    assert rows[3]["who"] == {"city": "Name 3", "zip": 7}
    assert [rows[n]["day"] for n in (1, 2)] == [dt.date(2020, 3, 1), dt.date(2020, 3, 2)]
    assert {rows[n]["took"] for n in (1, 2, 3)} == {dt.timedelta(hours=25)}
    assert {(rows[n]["kind"], rows[n]["small"]) for n in (1, 2, 3)} == {("N", 12)}
    assert rows[0] == {**row(0), "price": rows[0]["price"], "seen": None, "again": None, "took": None}


@pytest.mark.parametrize(
    ("column", "text", "message"),
    [
        ("small", "id + 127", "out of range for TINYINT"),
        ("small", "name", "INT8|TINYINT"),
        ("price", "id * 100000.5", "DECIMAL"),
        ("took", "interval '1 month'", "no fixed length"),
        ("tags", "id", "which a column of type VARCHAR\\[\\] cannot take"),
        ("id", "sqrt(-id)", "sqrt\\(\\) of a negative number"),
        ("day", "strptime(name, '%Y')", "strptime\\(\\): Could not parse"),
        ("name", "lowr(name)", "did you mean lower\\(\\)"),
    ],
)
def test_a_value_that_does_not_fit_changes_nothing(
    tables: list[il.Table], column: str, text: str, message: str
) -> None:
    for table in tables:
        before = table.scan().to_arrow().sort_by("id")
        for where in ("id = 1", "id > 0"):
            with pytest.raises(il.ExpressionError, match=message):
                table.update({column: il.expr(text)}, where)
        assert table.scan().to_arrow().sort_by("id").equals(before)


def test_a_statement_sees_one_moment(table: il.Table) -> None:
    table.update({"seen": il.expr("now()"), "again": il.expr("current_timestamp")}, "now() > '2020-01-01' and id < 30")
    moments = table.scan("seen is not null").to_arrow()
    assert moments.num_rows == 30
    assert len(moments.column("seen").unique()) == 1
    assert moments.column("seen").equals(moments.column("again"))
    source = [{"id": number} for number in range(20, 50)]
    table.merge(source, on="id").when_matched_update(
        {"seen": il.expr("now()")}, condition="t.id < 35"
    ).when_matched_update({"seen": il.expr("now()"), "name": il.expr("upper(t.name)")}).when_not_matched_insert(
        {"id": il.expr("s.id"), "seen": il.expr("now()")}
    ).execute()
    merged = table.scan("id >= 20").to_arrow()
    assert merged.num_rows == 30
    assert len(merged.column("seen").unique()) == 1
    assert table.scan("seen > now()").count() == 0
    assert table.scan("seen >= now() - interval 1 hour").count() == 50


@pytest.mark.parametrize("dumped", [False, True], ids=["hot", "block"])
def test_a_predicate_may_have_thousands_of_conditions(dumped: bool) -> None:
    with il.connect(":memory:", automatic=False) as lake:
        t = lake.create_table("t", {"id": "int64", "name": "string"}, primary_key="id")
        t.insert([{"id": n, "name": str(n)} for n in range(2_000)])
        if dumped:
            lake.pipeline(runner="threads").dump("t")
        for where, count in (
            (" or ".join(f"name = '{n}'" for n in range(1_500)), 1_500),
            (" and ".join(f"id <> {n}" for n in range(1_500)), 500),
        ):
            assert t.scan(where).count() == count
            assert lake.sql(f"select count(*) from t where {where}").scalar() == count
