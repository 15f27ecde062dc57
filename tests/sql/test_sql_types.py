"""Every type of DuckDB: tables hold it with its meaning, or refuse it by its name.  DuckDB on plain tables judges."""

from __future__ import annotations

import decimal
import json
import uuid
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import indexlake as il
from indexlake.errors import ConstraintError, ExpressionError, SchemaError

HELD = {
    "BOOLEAN": ["true", "false"],
    "TINYINT": ["-128", "127"],
    "SMALLINT": ["-32768", "7"],
    "INTEGER": ["-2147483648", "7"],
    "BIGINT": ["-9223372036854775808", "9223372036854775807"],
    "UTINYINT": ["0", "255"],
    "USMALLINT": ["0", "65535"],
    "UINTEGER": ["0", "4294967295"],
    "UBIGINT": ["0", "18446744073709551615"],
    "HUGEINT": ["-7", "7", "170141183460469231731687303715884105727", "-170141183460469231731687303715884105728"],
    "FLOAT": ["1.5", "'nan'", "'-inf'", "-0.0"],
    "DOUBLE": ["0.1", "'nan'", "'inf'", "-0.0"],
    "DECIMAL": ["1.5", "-999999999999999.999"],
    "DECIMAL(38,0)": ["7", "99999999999999999999999999999999999999"],
    "VARCHAR": ["''", "'a'", "'Z'", "'é'"],
    "BLOB": ["''", "'\\x00\\xFF'", "'a'"],
    "UUID": [f"'{uuid.UUID(int=n)}'" for n in (0, 10, 2**64, 2**127, 2**128 - 1)],
    "DATE": ["'0001-01-01'", "'2024-02-29'", "'9999-12-31'"],
    "TIME": ["'00:00:00'", "'23:59:59.999999'"],
    "TIME_NS": ["'00:00:00'", "'23:59:59.999999999'"],
    "TIMESTAMP": ["'1900-01-01'", "'2024-02-29 12:34:56.789012'"],
    "TIMESTAMP_S": ["'1900-01-01'", "'2024-02-29 12:34:56'"],
    "TIMESTAMP_MS": ["'1900-01-01'", "'2024-02-29 12:34:56.789'"],
    "TIMESTAMP_NS": ["'1900-01-01'", "'2024-02-29 12:34:56.789012345'"],
    "ENUM('z', 'b', 'it''s')": ["'b'", "'z'", "'it''s'"],
    "GEOMETRY": ["'POINT (1 2)'", "'LINESTRING (0 0, 1 1)'"],
    "JSON": ["'{}'", "'[1, {\"a\": null}]'", "'\"x\"'"],
    "BIT": ["'0101'", "'1'", "'00000000000000001'"],
    "UHUGEINT": ["7", "99999999999999999999999999999999999999", "340282366920938463463374607431768211455"],
    "BIGNUM": ["7", "'-123456789012345678901234567890123456789012345678901234567890'"],
    "INTERVAL": ["'1 month'", "'-14 months 3 days -00:00:00.000001'", "'1000000 hours'"],
    "TIME WITH TIME ZONE": ["'12:00:00+05:30'", "'00:00:00.000001-15:59:59'", "'24:00:00+00'"],
    "TIMESTAMP WITH TIME ZONE": ["'1970-01-01 00:00:00+00'", "'2024-02-29 12:34:56+02'"],
}
NESTED = {
    "LIST": ("UUID[]", ["[]", f"['{uuid.UUID(int=7)}', null]"]),
    "ARRAY": ("UUID[2]", [f"['{uuid.UUID(int=7)}', null]"]),
    "STRUCT": ("STRUCT(u UUID, d DATE)", [f"{{'u': '{uuid.UUID(int=2**127)}', 'd': '2024-01-01'}}"]),
    "MAP": ("MAP(UUID, INTEGER)", [f"map {{'{uuid.UUID(int=1)}': 1}}"]),
}
REFUSED = {
    "VARIANT": ("1", "Use VARCHAR, or a STRUCT."),
    "UNION(union_tag INTEGER, s VARCHAR)": ("1", "Use a STRUCT with one field for each case."),
}
FORMATS = ("vortex", "parquet", "ipc")


@pytest.fixture
def names() -> str:
    return f"t{uuid.uuid4().hex[:8]}"


def judge() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("set TimeZone = 'UTC'")
    return connection


def test_every_type_of_duckdb_is_on_one_of_the_lists() -> None:
    known = {name.partition("(")[0] for name in (*HELD, *NESTED, *REFUSED)}
    found = judge().execute("select distinct logical_type, type_name from duckdb_types()").fetchall()
    missing = {type for type, _ in found} - known - {"NULL", "TYPE"}  # which no column can have
    assert not missing
    assert ("VARCHAR", "JSON") in found, "a name for a text that is checked"


QUESTIONS = (
    """select k, typeof({c}), {c}::varchar, rank() over (order by {c} nulls last), count(*) over (partition by {c}),
    {c} = {literal}, {c} < {literal}, {c} is not distinct from null, (select max({c})::varchar from {t}),
    (select count(*) from {t} other where other.{c} = {t}.{c}) from {t} order by k""",
    "select k from {t} where {c} = {literal} order by k",
    "select k from {t} where {c} > {literal} order by k",
)


def test_types_are_held_with_their_meaning(module_lake: il.Lake) -> None:
    """One column of each type, hot, made by a query, and in a table with every kind of block."""
    plain = judge()
    types = [*HELD.items(), *NESTED.values()]
    columns = ", ".join(f"c{n} {type}" for n, (type, _) in enumerate(types))
    cells = [[f"({v})::{type}" for v in (*values, values[0])] for type, values in types]
    rows = [", ".join(column[k] if k < len(column) else "null" for column in cells) for k in range(7)]

    def both(text: str) -> None:
        module_lake.sql(text)
        plain.execute(text)

    def ask(table: str) -> None:
        for n, (type, values) in enumerate(types):
            for question in QUESTIONS:
                text = question.format(t=table, c=f"c{n}", literal=f"({values[-1]})::{type}")
                assert module_lake.sql(text).fetchall() == plain.execute(text).fetchall(), (table, type, text)

    both(f"create table held (k int, {columns})")
    for k, row in enumerate(rows):
        both(f"insert into held values ({k}, {row})")
    ask("held")
    both("create table made as select * from held where k <> 1")
    both(
        "update made set " + ", ".join(f"c{n} = (select max(c{n}) from held)" for n in range(len(types))) + " where k=0"
    )
    ask("made")
    for format in FORMATS:
        module_lake.table("held").set_config(dump_format=format)
        module_lake.pipeline(runner="threads").dump("held")
        both(f"insert into held values ({len(rows) + FORMATS.index(format)}, {rows[2]})")
    ask("held")


@pytest.mark.parametrize("type", REFUSED)
def test_a_type_that_tables_do_not_hold_is_refused_by_name(module_lake: il.Lake, names: str, type: str) -> None:
    literal, advice = REFUSED[type]
    module_lake.sql(f"create table {names} (k int)")
    before = module_lake.snapshot_id
    for written in (type, f"{type}[]", f"{type}[2]", f"STRUCT(x INTEGER, y {type})", f"MAP(INTEGER, {type})"):
        value = {"[": f"[{literal}, {literal}]", "S": f"{{'x': 1, 'y': {literal}}}", "M": f"map {{1: {literal}}}"}
        kind = written[0] if written != type and written[0] in "SM" else "[" if written != type else ""
        cast = f"{value.get(kind, literal)}::{written}"
        for statement in (
            f"create table {names}_new (k int, c {written})",
            f"alter table {names} add column c {written}",
            f"alter table {names} alter column k type {written}",
        ):
            with pytest.raises(SchemaError, match="tables hold") as caught:
                module_lake.sql(statement)
            assert advice in str(caught.value)
            assert type.partition("(")[0] in str(caught.value)
        with pytest.raises(SchemaError, match="tables hold") as refused:
            module_lake.sql(f"create table {names}_new as select 1 as k, {cast} as c")
        assert "'c'" in str(refused.value)
        assert type.partition("(")[0] in str(refused.value)
    assert module_lake.snapshot_id == before


def test_columns_of_tables_keep_their_types_in_new_tables(module_lake: il.Lake, names: str) -> None:
    columns = {
        "k": pa.array([1, 2], pa.int32()),
        "took": pa.array([5, None], pa.duration("ms")),
        "city": pa.array(["a", "b"]).dictionary_encode(),
        "half": pa.array([1.5, None], pa.float16()),
        "long": pa.array([1, None], pa.decimal256(50, 2)),
    }
    table = module_lake.create_table(names, pa.table(columns))
    named = ", ".join(f"a.{name}" for name in columns)
    for n, query in enumerate((f"select * from {names}", f"select {named} from {names} a join {names} b using (k)")):
        module_lake.sql(f"create table {names}_{n} as {query}")
        made = module_lake.table(f"{names}_{n}")
        assert made.schema.types == table.schema.types
        assert made.scan(order_by="k").to_pylist() == table.scan(order_by="k").to_pylist()
    module_lake.sql(f"create table {names}_9 as select took, took + took as d from {names}")
    assert module_lake.table(f"{names}_9").schema.types == [pa.duration("ms"), pa.string()]
    assert module_lake.sql(f"select typeof(d), d::varchar from {names}_9 where d is not null").fetchall() == [
        ("INTERVAL", "00:00:00.01")
    ]


def test_a_query_may_compute_with_any_type(module_lake: il.Lake) -> None:
    plain = judge()
    text = (
        "select '0101'::bit::varchar, '12:00:00+05:30'::timetz::varchar, (1::uhugeint + 1)::varchar, '[1]'::json ->> 0"
    )
    assert module_lake.sql(text).fetchall() == plain.execute(text).fetchall()
    assert module_lake.sql("select '{\"a\": 1}'::json as j, 'x'::enum('x', 'y') as e").fetchall() == [('{"a": 1}', "x")]
    assert module_lake.sql("select uuid '00000000-0000-0000-0000-00000000000A' as u").scalar() == uuid.UUID(int=10)


def test_a_table_made_of_sums_computes_with_whole_numbers(module_lake: il.Lake, names: str) -> None:
    plain = judge()
    for run in (module_lake.sql, plain.execute):
        run(f"create table {names} (city varchar, n bigint)")
        run(f"insert into {names} values ('a', 5), ('a', 2), ('b', 4), ('b', 9223372036854775807)")
        run(f"create table {names}_sums as select city, sum(n) as total from {names} group by city")
    questions = (
        "select typeof(total), total::varchar, total // 2, total / 2, total % 3 from {t} order by city",
        "select median(total), quantile_cont(total, 0.3), typeof(median(total)), avg(total) from {t}",
        "select city from {t} where total // 2 = 3 order by all",
        "select city from {t} where total between 7 and 8 or total = 9223372036854775811 order by all",
        "select city from {t} where total in (7, 8.0) order by all",
        "describe select total, total // 2, total + 1 as m from {t}",
    )
    changes = (
        "update {t} set total = total // 2 where total = 7",
        "update {t} set total = 2.5::double where city = 'a'",
        "update {t} set total = total * 3 where total // 2 = 1",
        "merge into {t} using (select 'a' as city, 7::hugeint as more) s on {t}.city = s.city "
        "when matched then update set total = s.more // 2 + {t}.total // 4",
    )
    table = f"{names}_sums"
    for change in ("", *changes):
        if change:
            module_lake.sql(change.format(t=table))
            plain.execute(change.format(t=table))
        for question in questions:
            text = question.format(t=table)
            assert module_lake.sql(text).fetchall() == plain.execute(text).fetchall(), (change, text)
        module_lake.pipeline(runner="threads").dump(table)


def test_a_hugeint_column_is_a_decimal_for_everybody_but_sql(module_lake: il.Lake, names: str) -> None:
    module_lake.sql(f"create table {names} (k int primary key, h hugeint default 7, n int)")
    table = module_lake.table(names)
    table.insert([{"k": 1, "h": 10**38 - 1}, {"k": 2}, {"k": 3, "h": decimal.Decimal(-3)}])
    assert table.schema.field("h").type == pa.decimal128(38, 0)
    assert table.scan(order_by="k").to_arrow().column("h").to_pylist() == [10**38 - 1, 7, -3]
    assert table.scan(columns=["h"]).to_polars().height == 3
    assert table.scan(where="h // 2 = -1", columns=["k"]).to_pylist() == [{"k": 3}]
    table.update({"h": il.expr("h // 2")}, where="k = 1")
    assert table.get(1)["h"] == (10**38 - 1) // 2
    with pytest.raises(ConstraintError, match="'h'"):
        table.insert({"k": 4, "h": 2**127})
    with pytest.raises(ExpressionError, match="out of range"):
        module_lake.sql(f"insert into {names} values (4, 170141183460469231731687303715884105728, 1)")
    module_lake.sql(f"alter table {names} alter column n type hugeint")
    module_lake.sql(f"alter table {names} add column m hugeint default -9")
    assert module_lake.sql(f"select typeof(n), typeof(m), m // 2 from {names}").fetchone() == ("HUGEINT", "HUGEINT", -4)
    module_lake.create_table(f"{names}_copy", module_lake.sql(f"select sum(h) as s, any_value(h) as h from {names}"))
    assert module_lake.sql(f"select typeof(s), typeof(h) from {names}_copy").fetchone() == ("HUGEINT", "HUGEINT")
    described = module_lake.sql(f"describe {names}").fetchall()
    assert [(row[0], row[1]) for row in described] == [("k", "INTEGER"), *[(c, "HUGEINT") for c in "hnm"]]


@pytest.mark.parametrize("format", [None, *FORMATS])
def test_a_hugeint_becomes_a_decimal_and_a_decimal_a_hugeint(
    module_lake: il.Lake, names: str, format: str | None
) -> None:
    plain = duckdb.connect()
    changes = [
        f"create table {names} (k int, d decimal(38,0) default 5, h hugeint default 6)",
        f"insert into {names} values (1, 7, 9), (2, null, -99999999999999999999999999999999999999)",
        f"alter table {names} alter column d type hugeint",
        f"insert into {names} (k) values (3)",
        f"alter table {names} alter column h type decimal(38,0)",
        f"insert into {names} (k) values (4)",
        f"alter table {names} alter column d set data type decimal(38,0)",
        f"alter table {names} alter column h set data type hugeint",
    ]
    text = f"select *, typeof(d), typeof(h), d // 2, h // 2 from {names} order by k"
    for n, change in enumerate(changes):
        module_lake.sql(change)
        plain.execute(change)
        if n == 1:
            before = module_lake.snapshot_id
            if format is not None:
                module_lake.table(names).set_config(dump_format=format)
                module_lake.pipeline(runner="threads").dump(names)
        assert module_lake.sql(text).fetchall() == plain.execute(text).fetchall(), change
        assert module_lake.table(names).schema.field("h").type == pa.decimal128(38, 0)
    assert module_lake.sql(f"select typeof(d), typeof(h) from {names} at (version => {before}) limit 1").fetchone() == (
        "DECIMAL(38,0)",
        "HUGEINT",
    )
    before = module_lake.snapshot_id
    module_lake.sql(f"alter table {names} alter column h type hugeint")
    module_lake.sql(f"alter table {names} alter column d type decimal(38,0)")
    assert module_lake.snapshot_id == before, "they are of these types already"


def test_a_hugeint_inside_a_struct_is_refused_by_its_name(module_lake: il.Lake, names: str) -> None:
    module_lake.sql(f"create table {names} (st struct(a int))")
    for change in ("add column st.b hugeint", "alter column st.a type hugeint"):
        with pytest.raises(
            SchemaError, match=r"'st.[ab]': a field of type HUGEINT cannot be added to an existing column"
        ):
            module_lake.sql(f"alter table {names} {change}")
    assert module_lake.table(names).schema.field("st").type == pa.struct({"a": pa.int32()})


@pytest.mark.parametrize("default", ["'{}'::uuid", "cast('{}' as uuid)", "uuid '{}'", "UUID '{}'", "'{}'"])
def test_a_default_may_be_a_uuid(module_lake: il.Lake, names: str, default: str) -> None:
    value = uuid.UUID(int=2**127 + 5)
    module_lake.sql(f"create table {names} (k int, u uuid default {default.format(value)})")
    module_lake.sql(f"insert into {names} (k) values (1)")
    assert module_lake.sql(f"select u from {names}").scalar() == value


@pytest.mark.parametrize("default", ["uuid()", "UUID ()", "gen_random_uuid()", "uuidv7()", "uuid()::varchar::uuid"])
def test_a_default_may_be_another_uuid_for_every_row(module_lake: il.Lake, names: str, default: str) -> None:
    module_lake.sql(f"create table {names} (k int, u uuid default {default})")
    module_lake.sql(f"insert into {names} (k) values (1), (2)")
    module_lake.sql(f"insert into {names} (k) select 3 from range(5)")
    assert module_lake.sql(f"select count(distinct u) from {names}").scalar() == 7


U = [uuid.UUID(int=n) for n in (0, 0xABCDEF, 2**64, 2**127, 2**128 - 1)]


@pytest.mark.parametrize("format", FORMATS)
def test_uuids_are_uuids_everywhere(module_lake: il.Lake, names: str, format: str, tmp_path: Path) -> None:
    module_lake.sql(f"create table {names} (id uuid primary key, v varchar, l uuid[]) with (dump_format = '{format}')")
    table = module_lake.table(names)
    assert table.schema.field("id").type == pa.uuid()
    table.insert([{"id": u, "v": str(u).upper(), "l": [u, None]} for u in U[:-1]])
    table.insert({"id": f"{{{str(U[-1]).upper()}}}", "v": str(U[-1]).upper()})
    for _ in range(2):
        assert table.get(U[3]) == {"id": U[3], "v": str(U[3]), "l": [U[3], None]}
        assert table.get(str(U[1]).upper())["id"] == U[1]
        assert [row["id"] for row in table.scan(order_by="id").to_pylist()] == U
        assert table.scan(where="id = $id", params={"id": U[2]}).count() == 1
        assert table.scan(where="id in $ids", params={"ids": U[1:3]}).count() == 2
        assert table.scan(where=f"id > '{str(U[1]).upper()}'").count() == 3
        assert module_lake.sql(f"select id, l from {names} where id = ?", params=[U[1]]).fetchall() == [
            (U[1], [U[1], None])
        ]
        assert module_lake.sql(f"select v from {names} where id = $1", params=[U[1].hex.upper()]).fetchall() == [
            (str(U[1]).upper(),)
        ]
        assert module_lake.sql(f"select count(*) from {names} a join {names} b on a.id = b.v").scalar() == len(U)
        assert module_lake.sql(f"select v from {names} where v = $1", params=[U[1]]).fetchall() == [
            (str(U[1]).upper(),)
        ]
        assert module_lake.sql(f"select max(id), min(id) from {names}").fetchone() == (U[-1], U[0])
        with pytest.raises(ExpressionError, match="'x' is not a UUID; write its 32 hexadecimal digits"):
            table.scan(where="id = 'x'").count()
        module_lake.pipeline(runner="threads").dump(names)
    before = module_lake.snapshot_id
    for wrong in ("x", U[0].hex[:-1], 5, b"short", f"{U[0]} "):
        with pytest.raises(ConstraintError, match=r"Column 'id': .* is not a value of type extension<arrow.uuid>"):
            table.insert({"id": wrong})
    with pytest.raises(ExpressionError, match="Could not convert string"):
        module_lake.sql(f"insert into {names} (id) values ('x')")
    with pytest.raises(il.errors.DuplicateKeyError):
        table.insert({"id": str(U[0]).upper()})
    assert module_lake.snapshot_id == before
    assert table.upsert({"id": str(U[0]).upper(), "v": "new"}).updated == 1
    assert table.update({"v": "changed"}, where="id = $1", params=[U[1]]).updated == 1
    new = "00000000-0000-0000-0000-0000000000FF"
    assert table.update({"id": il.expr(f"'{new}'::uuid")}, where="v = 'changed'").updated == 1
    assert module_lake.sql(f"update {names} set id = '{new[:-1]}E' where id = '{new}'").updated == 1
    assert table.delete(where="id = $1", params=[uuid.UUID(int=0xFE)]).deleted == 1
    merged = table.merge([{"id": str(U[2]), "v": "m"}, {"id": uuid.UUID(int=5), "v": "n"}], on="id")
    result = merged.when_matched_update().when_not_matched_insert().execute()
    assert (result.inserted, result.updated) == (1, 1)
    assert table.at(before).get(U[1])["id"] == U[1]
    changed = {*U[:3], *(uuid.UUID(int=n) for n in (5, 0xFE, 0xFF))}
    assert {row["id"] for row in table.changes(before).to_arrow().to_pylist()} == changed
    csv, lines = tmp_path / "rows.csv", tmp_path / "rows.jsonl"
    csv.write_text(f"id,v\n{uuid.UUID(int=101)},csv\n{uuid.UUID(int=102).hex.upper()},csv\n")
    lines.write_text(json.dumps({"id": str(uuid.UUID(int=103)), "v": "json"}) + "\n")
    assert table.insert(csv).rows == 2
    assert table.insert(lines).rows == 1
    table.scan(columns=["id"]).to_pandas()
    assert [table.get(uuid.UUID(int=n))["v"] for n in (101, 102, 103)] == ["csv", "csv", "json"]
    csv.write_text("id,v\nnope,csv\n")
    with pytest.raises(ConstraintError, match=r"row 2, column 'id': .* 'nope' is not a UUID"):
        table.insert(csv)


def test_uuids_of_arrow_pandas_and_python_make_uuid_columns(module_lake: il.Lake, names: str) -> None:
    rows: list[dict[str, Any]] = [{"k": n, "u": u} for n, u in enumerate(U)]
    made = module_lake.create_table(f"{names}_dicts", rows)
    copy = module_lake.create_table(f"{names}_frame", made.scan().to_pandas())
    for table in (made, copy):
        assert table.schema.field("u").type == pa.uuid()
        assert [row["u"] for row in table.scan(order_by="k").to_pylist()] == U
    module_lake.sql(f"create table {names}_text (u varchar)")
    module_lake.sql(f"insert into {names}_text select u from {names}_dicts")
    assert module_lake.sql(f"select u from {names}_text order by u").fetchall() == [(str(u),) for u in U]
    with pytest.raises(SchemaError, match="The default of column 'd'"):
        module_lake.sql(f"alter table {names}_dicts add column d uuid default 'x'")
    module_lake.sql(f"alter table {names}_dicts add column d uuid default '{U[1].hex.upper()}'")
    assert module_lake.sql(f"select distinct d from {names}_dicts").fetchall() == [(U[1],)]
    with pytest.raises(SchemaError, match="cannot become string"):
        made.widen_column("d", pa.string())


VALUES = (
    *("'0101'::bit", "'12:00:00+05'::timetz", "5::uhugeint", "7::hugeint", "'[1, 2]'::json", "'5'::json"),
    *("'a'::enum('a', 'b')", "uuid '00000000-0000-0000-0000-0000000000AB'", "123::bignum", "interval 1 day"),
    *("union_value(a := 5)", "5::variant", "'POINT(1 2)'::geometry", "'infinity'::timestamp", "2.5::double"),
)


@pytest.mark.parametrize("target", ["varchar", "blob", "bigint", "time", "uuid"])
def test_what_a_query_gives_is_cast_to_the_column_as_duckdb_casts_it(
    module_lake: il.Lake, names: str, target: str
) -> None:
    plain = judge()

    def inserted(run: Any, value: str) -> Any:
        try:
            run(f"insert into {names} select {value}")
        except (duckdb.Error, il.IndexLakeError):
            return None
        found = run(f"select v::varchar, typeof(v) from {names}").fetchall()
        run(f"truncate {names}")
        return found

    for run in (module_lake.sql, plain.execute):
        run(f"create table {names} (v {target})")
    answers = [inserted(plain.execute, value) for value in VALUES]
    assert [inserted(module_lake.sql, value) for value in VALUES] == answers
    assert any(answer is not None for answer in answers)
