"""With ``engine="spark"`` a query gives what DuckDB gives or is refused by name: numbers, UUIDs and parameters."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

import indexlake as il

FIRST, MIDDLE, LAST = (UUID(int=n) for n in (0xABCDEF, 2**127, 2**128 - 1))


@pytest.fixture(scope="module", autouse=True)
def filled_tables(module_lake: il.Lake) -> None:
    module_lake.sql("create table n (i integer, b bigint, h hugeint, u ubigint, d decimal(20, 2), f double)")
    module_lake.table("n").insert(
        [
            {"i": -7, "b": 2**62, "h": 10**38 - 1, "u": 2**64 - 1, "d": Decimal("100000000000000000.50"), "f": 7.5},
            {"i": 8, "b": -5, "h": -3, "u": 3, "d": Decimal("-0.05"), "f": -2.5},
        ]
    )
    module_lake.sql("create table k (id uuid, name varchar, at_ timestamp, seen timestamptz, n integer)")
    module_lake.table("k").insert(
        [
            {"id": id, "name": name, "at_": datetime(2024, 5, n), "seen": datetime(2024, 5, n, tzinfo=UTC), "n": n}
            for n, (id, name) in enumerate(
                [(LAST, str(LAST).upper()), (FIRST, "{" + FIRST.hex + "}"), (MIDDLE, None)], 1
            )
        ]
    )


def same(lake: il.Lake, text: str, params: Any = None) -> None:
    wanted = lake.sql(text, params).fetchall()
    found = lake.sql(text, params, engine="spark").fetchall()
    plain = [tuple(str(v) if isinstance(v, UUID) else v for v in row) for row in wanted]
    assert found == plain, text


def test_numbers_are_those_of_duckdb(module_lake: il.Lake, spark: Any) -> None:
    columns = [
        "i // 2", "b // 3", "-7 // 2", "(i // 2) // 2", "i // i + 1", "i / 2", "d / 3", "h / 2", "u / 3", "f / 2",
        "1 / 3", "d / f", "i % 3", "d % 0.3", "u % 10", "i * 2 / 4", "-d", "u * 2.0", "i ** 2", "i & 3",
        "regexp_replace('aa', 'a', 'b', 'g')",
    ]  # fmt: skip
    same(module_lake, f"select {', '.join(f'{c} as c{n}' for n, c in enumerate(columns))} from n order by i")
    same(module_lake, "select i // 3 as x, sum(b) as s from n group by i // 3 order by x")


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("h // 2", "// is for integers of up to 64 bits in Spark. Cast both sides to bigint"),
        ("d // 0.01", "// is for integers"),
        ("u // 2", "// is for integers"),
        ("i // 2.5", "// is for integers"),
        ("f // 2", "// is for integers"),
        ("i << 31", "In Spark, << drops bits that do not fit. Use engine='duckdb'."),
        ("i >> 33", ">> drops bits"),
        ("bit_count(i)", "bit_count gives a different result in Spark"),
        ("factorial(30)", "factorial gives a different result"),
        ("format('{}', i)", "format gives a different result"),
        ("hash(i)", "hash gives a different result"),
        ("regexp_replace('aa', 'a', 'b')", "regexp_replace replaces every match in Spark: give it 'g'"),
        ("i::utinyint", "Spark has no utinyint"),
    ],
)
def test_what_would_be_another_number_is_refused(
    module_lake: il.Lake, spark: Any, expression: str, message: str
) -> None:
    with pytest.raises(il.ExpressionError) as caught:
        module_lake.sql(f"select {expression} as x from n", engine="spark")
    assert message in str(caught.value)


UPPER, BRACED, BARE = str(LAST).upper(), "{" + str(LAST) + "}", LAST.hex


CONDITIONS = [
    f"id = '{UPPER}'",
    f"'{BRACED}' = id",
    f"id = '{UPPER}'::uuid",
    f"id in ('{BARE}', '{FIRST}')",
    f"id not in ('{BARE}')",
    f"id < '{UPPER}'",
    f"id between '{FIRST}' and '{str(MIDDLE).upper()}'",
    f"id is not distinct from '{UPPER}'",
    f"case id when '{UPPER}' then true else false end",
    f"coalesce(id, '{FIRST}') = '{UPPER}'",
    "id = name",
    "id = name::uuid",
    "id::varchar = lower(name)",
    f"name::uuid = '{BRACED}'",
    "try_cast(coalesce(name, 'x') as uuid) is null",
    f"id = (select max(id) from k) and (id, n) = ('{LAST}', 1)",
]


def test_uuids_compare_as_uuids(module_lake: il.Lake, spark: Any) -> None:
    shown = ", ".join(f"{condition} as c{n}" for n, condition in enumerate(CONDITIONS))
    same(module_lake, f"select n, {shown} from k order by n")
    same(module_lake, f"select n from k where {CONDITIONS[0]} or {CONDITIONS[1]}")  # the scan has the condition as well


def test_uuids_under_other_names(module_lake: il.Lake, spark: Any) -> None:
    same(
        module_lake,
        f"""
        with c as (select id as x, n from k), ends as (select min(id) as low, max(id) as high from k)
        select c.n, x, low, high from c, ends
        where x = '{UPPER}' or x in (select y from (select min(id) as y, n from k group by n) z where y < '{BARE}')
        order by x
        """,
    )
    same(module_lake, "select a.n from k a join k b on a.id = b.name::uuid order by 1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("select 1 from k where id = 'nothing'", "'nothing' is not a UUID"),
        ("select 1 from k where id in (select name from k)", "Cast that column to uuid"),
        (f"select 1 from (select id from k) c(z) where z = '{UPPER}'", "Name them with AS"),
        (f"select k.id from k, (select name as id from k) z where z.id = '{UPPER}'", "::varchar if not"),
    ],
)
def test_uuids_that_spark_could_not_know_are_refused(module_lake: il.Lake, spark: Any, text: str, message: str) -> None:
    with pytest.raises(il.ExpressionError) as caught:
        module_lake.sql(text, engine="spark").fetchall()
    assert message in str(caught.value)


def test_what_is_wrong_with_values_is_an_error_when_spark_meets_them(module_lake: il.Lake, spark: Any) -> None:
    with pytest.raises(il.JobError, match="not a UUID: 1"):
        module_lake.sql("select (n || '')::uuid as x from k where n = 1", engine="spark").fetchall()
    with pytest.raises(il.JobError, match="OVERFLOW"):
        module_lake.sql("select b + b as x from n", engine="spark").fetchall()


def test_parameters(module_lake: il.Lake, spark: Any) -> None:
    """Of each type; a value that does not reach Spark as it is finds no row."""
    conditions = {
        "id = $a": LAST, "k.id = $b": UPPER, "name = upper($a::varchar)": LAST, "u = $c": 2**64 - 1, "h > $d": 2**63,
        "at_ = $e": datetime(2024, 5, 1), "seen = $f": datetime(2024, 5, 1, tzinfo=UTC), "$g is null": None,
        "d = $h": Decimal("100000000000000000.50"), "b = $i": 2**62, "f = $j": 7.5,
    }  # fmt: skip
    values = {c[c.index("$") + 1]: v for c, v in conditions.items()}
    shown = ", ".join(f"{condition} as c{n}" for n, condition in enumerate(conditions))
    text = f"select k.n, {shown} from k join n on k.n = 1 and i = -7"
    same(module_lake, text, values)
    assert module_lake.sql(text, values, engine="spark").fetchall() == [(1, *[True] * len(conditions))]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (10**38, "Parameter $1 has more than 38 digits"),
        ({"a": 1}, "Parameter $1 is a dict"),
    ],
)
def test_parameters_that_spark_does_not_have(module_lake: il.Lake, spark: Any, value: Any, message: str) -> None:
    with pytest.raises(il.ExpressionError) as caught:
        module_lake.sql("select $1 as x", [value], engine="spark").fetchall()
    assert message in str(caught.value)


def test_a_session_in_which_numbers_wrap_around_is_refused(module_lake: il.Lake, spark: Any) -> None:
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        with pytest.raises(il.JobError, match=r"spark.sql.ansi.enabled.*true"):
            module_lake.sql("select b + b as x from n", engine="spark")
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
