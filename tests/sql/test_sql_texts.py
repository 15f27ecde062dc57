"""Parameters, names, errors: what a text may hold and what it is told when it is wrong."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import indexlake as il
from indexlake.cli.main import app
from indexlake.errors import (
    AlreadyExistsError,
    ExpressionError,
    IndexLakeError,
    NotFoundError,
    SchemaError,
    StorageError,
)


@pytest.fixture(autouse=True)
def two_rows(lake: il.Lake) -> None:
    lake.sql("create table t (id int primary key, name varchar, v double, d date, ts timestamptz)")
    lake.sql("insert into t values (1, 'a', 1.5, '2024-01-01', '2024-01-01 00:00:00+00'), (2, 'b', null, null, null)")


@pytest.mark.parametrize(
    ("text", "params", "expected"),
    [
        ("select name from t where id = $id", {"id": 1}, [("a",)]),
        ("select name from t where id = $1", [1], [("a",)]),
        ("select name from t where id = ? and v > ?", [1, 1], [("a",)]),
        ("select ? as x, name from t where id = ?", ["p", 2], [("p", "b")]),
        ("select $2, $1 from t where id = $1", (1, "two"), [("two", 1)]),
        ("select id from t where id in $ids order by id", {"ids": [1, 2, 3]}, [(1,), (2,)]),
        ("select id from t where name in $names", {"names": ["b", "it's"]}, [(2,)]),
        ("select id from t where d = $d", {"d": date(2024, 1, 1)}, [(1,)]),
        ("select id from t where ts <= $t", {"t": datetime(2024, 1, 1, tzinfo=UTC)}, [(1,)]),
        ("select id from t where v = $v", {"v": Decimal("1.5")}, [(1,)]),
        ("select $v::varchar, $l", {"v": Decimal("1.5E+3"), "l": [Decimal("1E+1")]}, [("1500", [Decimal(10)])]),
        ("select $v", {"v": {"a": Decimal("-2E+2")}}, [({"a": Decimal(-200)},)]),
        ("select $v", {"v": Decimal("1E+40")}, [(1e40,)]),
        ("select $v", {"v": pa.scalar(Decimal(1000), pa.decimal128(10, -2))}, [(Decimal(1000),)]),
        ("select $v + 1, $l", {"v": pa.scalar(41, pa.int8()), "l": pa.scalar([1, None])}, [(42, [1, None])]),
        ("select id from t where id = $n", {"n": np.int64(2)}, [(2,)]),
        ("select id from t where name = $s", {"s": pa.scalar("b")}, [(2,)]),
        ("select $x is null, $y, $b", {"x": None, "y": True, "b": b"\x00'"}, [(True, True, b"\x00'")]),
        ("select $s", {"s": "'; drop table t; --"}, [("'; drop table t; --",)]),
        ("select '$s ? $1', 1 -- $comment ?\n /* ? $x */", None, [("$s ? $1", 1)]),
        ("select $$a ; b$$, $tag$it's$tag$", None, [("a ; b", "it's")]),
        ("select id from t limit $n", {"n": 1}, [(1,)]),
        ("select count(*) from (select 1 from t limit ? offset ?)", [5, 1], [(1,)]),
        ("select sum(x) from (values ($a), ($b)) q(x)", {"a": 1, "b": 2}, [(3,)]),
    ],
)
def test_parameters_are_values_and_never_text(lake: il.Lake, text: str, params: Any, expected: list[Any]) -> None:
    assert lake.sql(text, params).fetchall() == expected


@pytest.mark.parametrize("nested", [False, True])
def test_a_decimal_that_no_type_can_hold_is_refused(lake: il.Lake, nested: bool) -> None:
    value = Decimal("1E+99999999999999")
    with pytest.raises(il.ExpressionError, match="outside the range of DOUBLE"):
        lake.sql("select $x", {"x": [value] if nested else value}).fetchall()


def test_an_inserted_decimal_with_an_exponent_keeps_its_value(lake: il.Lake) -> None:
    lake.sql("create table exact (a decimal(9, 2), b bigint)")
    lake.sql("insert into exact values ($1, $1)", [Decimal(1000).normalize()])
    assert lake.sql("from exact").fetchall() == [(Decimal(1000), 1000)]


def test_parameters_of_changes_and_of_several_statements(lake: il.Lake) -> None:
    lake.sql("insert into t (id, name) values ($1, $2), ($3, $2)", [10, "o'hara", 11])
    lake.sql("update t set name = name || ?, v = ? where id = ?", ["!", 2.5, 10])
    lake.sql("update t set v = (select max(v) + $more from t) where id = $id", {"more": 1, "id": 11})
    assert lake.sql("select name, v from t where id >= 10 order by id").fetchall() == [
        ("o'hara!", 2.5),
        ("o'hara", 3.5),
    ]
    lake.sql("delete from t where id = $a; insert into t (id) values ($b)", {"a": 10, "b": 12})
    lake.sql("insert into t (id) values (?); insert into t (id) values (?)", [20, 21])
    lake.sql(
        "merge into t using (select $id as id) s on t.id = s.id when matched then update set name = $n",
        {"id": 20, "n": "m"},
    )
    assert lake.sql("select id, name from t where id >= 10 order by id").fetchall() == [
        (11, "o'hara"), (12, None), (20, "m"), (21, None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "params", "message"),
    [
        ("select $a", None, r"\$a has no value"),
        ("select ?", [], r"\$1 has no value"),
        ("select 1", {"a": 1}, r"\$a is given"),
        ("select ?", [1, 2], r"\$2 is given"),
        ("select $a, ?", {"a": 1}, "numbered"),
        ("select $a", "text", "a dict of names or a list"),
        ("select $a", 5, "a dict of names or a list"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(lake: il.Lake, text: str, params: Any, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        lake.sql(text, params)


def test_any_name_works_when_it_is_quoted(lake: il.Lake) -> None:
    lake.create_namespace('my "space"')
    names = ["a b", "semi;colon", 'quo"te', "apos'trophe", "select", "日本", "per%cent", "dash-dash--", "$1", "?"]
    for n, name in enumerate(names):
        q = '"' + name.replace('"', '""') + '"'
        full = f'"my ""space""".{q}'
        lake.sql(f'create table {full} (id int primary key, {q} varchar, "x.y" int)')
        lake.sql(f"insert into {full} values ({n}, 'v', 1), (100, null, 2)")
        lake.sql(f"update {full} set {q} = {q} || '!', \"x.y\" = \"x.y\" + 1 where {q} = 'v' and id in (select {n})")
        lake.sql(
            f"update {full} set {q} = {q} || '?' where {q}.{q} = 'v!'"
            if n == 0
            else f"update {full} set {q} = {q} || '?' where {q} = 'v!'"
        )
        found = lake.sql(f"select a.{q}, b.\"x.y\" from {full} a join {full} b using (id) where a.{q} like 'v%'")
        assert found.fetchall() == [("v!?", 2)], name
        assert lake.sql(f"select {q} from {full} where id = 100").columns == [name]
        assert lake.sql(f"select max({q}) from {q}", namespace='my "space"').scalar() == "v!?"
        lake.sql(f"delete from {full} where {q} is null")
        assert lake.sql(f"select count(*) from {full}").scalar() == 1
        lake.sql(f"drop table {full}")


def test_names_are_found_in_any_case_and_keep_theirs(lake: il.Lake) -> None:
    lake.sql('create table "Mixed" ("Id" int primary key, "Name" varchar)')
    lake.sql("insert into MIXED (ID, NAME) values (1, 'x')")
    lake.sql("update mixed set NAME = name || 'y' where ID = 1")
    for text in (
        "select * from mixed",
        "select ID, name from MIXED where iD = 1",
        "select Id, max(NAME) as Name from mixed group by ID",
    ):
        assert lake.sql(text).columns == ["Id", "Name"], text
        assert lake.sql(text).fetchall() == [(1, "xy")]


def test_a_python_variable_is_never_a_table(lake: il.Lake) -> None:
    frame = pa.table({"secret": [1]})
    with pytest.raises(NotFoundError, match=r"main\.frame"):
        lake.sql("select * from frame")
    assert frame.num_rows == 1


def test_nothing_is_installed_downloaded_or_configured(lake: il.Lake) -> None:
    for text in (
        "install httpfs",
        "load httpfs",
        "set enable_external_access = true",
        "pragma enable_logging",
        "attach 'x.db'",
    ):
        with pytest.raises(ExpressionError, match=r"is not (a )?supported|cannot be changed"):
            lake.sql(text)
    settings = dict(
        lake.sql(
            "select name, value from duckdb_settings() where name in ('autoinstall_known_extensions',"
            " 'autoload_known_extensions', 'python_enable_replacements', 'TimeZone')"
        ).fetchall()
    )
    assert settings == {
        "autoinstall_known_extensions": "false", "autoload_known_extensions": "false",
        "python_enable_replacements": "false", "TimeZone": "UTC",
    }  # fmt: skip
    with pytest.raises(IndexLakeError):
        lake.sql("select * from read_parquet('https://localhost:1/x.parquet')").to_arrow()


def test_files_can_be_read_beside_tables(lake: il.Lake) -> None:
    import pyarrow.parquet as pq

    path = Path(lake.storage.root) / "exchange" / "file.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"id": [1, 2, 3], "w": ["x", "y", "z"]}), path)
    for source in (f"read_parquet('{path}')", f"'{path}'"):
        assert lake.sql(f"select t.name, f.w from t join {source} f on t.id = f.id order by t.id").fetchall() == [
            ("a", "x"), ("b", "y"),
        ]  # fmt: skip
    lake.sql(f"insert into t (id, name) select id, w from '{path}' on conflict do nothing")
    assert lake.sql("select name from t where id = 3").scalar() == "z"
    with pytest.raises(StorageError):
        lake.sql(f"select * from '{path.parent}/nosuch.parquet'")


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("select nme from t", 7, "Did you mean 'name'"),
        ("select name\nfrom t\nwhere frob(id) = 1", 25, "frob"),
        ("select * from t where", 21, "syntax error"),
        ("select 'é', nosuch from t", 12, "nosuch"),
        ("select * frm t", 13, "syntax error"),
        ("select * from t where id = 'x", 27, "never closed"),
        ("select 1 /* open", 9, "not closed"),
        ("update t set name = nosuch where id = 1", 20, "nosuch"),
        ("update t set nosuch = 1", 13, "nosuch"),
        ("delete from t where id in (select nosuch from t)", 34, "nosuch"),
        ("insert into t (id) values (1 + frob(2))", 31, "frob"),
        ("insert into t (id) select nosuch from t", 26, "nosuch"),
        ("create table x (a int, b frob(3))", 25, "frob"),
        ("explain analyze delete from t", 16, "would run the change"),
        ("select * from a.b.c", 14, "namespace.table"),
    ],
)
def test_an_error_shows_its_place_in_the_text(lake: il.Lake, text: str, place: int, message: str) -> None:
    with pytest.raises((ExpressionError, SchemaError), match=message) as raised:
        lake.sql(text).to_arrow()
    line, mark = str(raised.value).splitlines()[-2:]
    first = text.rfind("\n", 0, place) + 1
    assert line.endswith(text[first:].split("\n")[0])
    assert len(mark) - 1 - (len(line) - len(text[first:].split("\n")[0])) == place - first
    assert "__il" not in str(raised.value)


def test_an_unknown_table_suggests_one(lake: il.Lake) -> None:
    lake.sql("create schema sales; create table sales.orders (id int)")
    for text in ("select * from order", "select * from sales.order", "delete from orders", "select 1 from t, orders"):
        with pytest.raises((NotFoundError, ExpressionError)) as raised:
            lake.sql(text)
        if isinstance(raised.value, NotFoundError):
            assert "sales.orders" in str(raised.value)
    assert lake.sql("select count(*) from orders", namespace="sales").scalar() == 0
    with pytest.raises(NotFoundError, match="nosuch"):
        lake.sql("select * from t", namespace="nosuch")


def test_the_definitions_are_those_of_the_snapshot_that_is_read(lake: il.Lake) -> None:
    columns = "select column_name from information_schema.columns where table_name = 't' order by ordinal_position"
    before = lake.snapshot_id
    old = lake.sql(columns).fetchall()
    lake.sql("alter table t add column further int")
    assert lake.sql(columns).fetchall() == [*old, ("further",)]
    assert lake.sql(columns, at=before).fetchall() == old
    lake.sql("create schema apart; create table apart.x (a int)")
    assert lake.sql("from pragma_table_info('x')", namespace="apart").fetchone()[1] == "a"  # type: ignore[index]
    for text in ("show all tables", "show schemas", "describe t", "show t"):
        assert lake.sql(text).to_pylist()


@pytest.mark.parametrize(
    ("text", "hint", "instead"),
    [
        ("create schema s", "IF NOT EXISTS", "create schema if not exists s"),
        ("create table s.u (a int)", "IF NOT EXISTS", "create table if not exists s.u (a int)"),
        ("create table s.u as select 1 as a", "IF NOT EXISTS", "create table if not exists s.u as select 1 as a"),
        ("drop schema s", "CASCADE", "drop schema s cascade"),
    ],
)
def test_what_exists_is_refused_with_the_words_of_sql(lake: il.Lake, text: str, hint: str, instead: str) -> None:
    lake.sql("create schema s; create table s.u (a int)")
    with pytest.raises(AlreadyExistsError, match=rf"\(in SQL: {hint}\)"):
        lake.sql(text)
    lake.sql(instead)


def test_other_engines_and_namespaces_are_refused(lake: il.Lake) -> None:
    with pytest.raises(ExpressionError, match="'duckdb'"):
        lake.sql("select 1", engine="presto")
    for namespace in ("", 5):
        with pytest.raises(SchemaError):
            lake.sql("select 1", namespace=namespace)  # type: ignore[arg-type]
    for text in (None, 5, b"select 1"):
        with pytest.raises(ExpressionError):
            lake.sql(text)  # type: ignore[arg-type]
    for text in ("", "  ", ";", "-- nothing", "/* nothing */ ;;"):
        with pytest.raises(ExpressionError, match="no statement"):
            lake.sql(text)


@pytest.mark.inline_only("a reader beside the owner sees its last checkpoint")
def test_a_read_only_lake_reads(lake: il.Lake, tmp_path: Path) -> None:
    with il.connect(str(tmp_path / "lake"), read_only=True) as reader:
        assert reader.sql("select count(*) from t").scalar() == 2
        assert reader.sql("begin read only; select 1; select count(*) from t; commit")._before[2].scalar() == 2
        for text in ("delete from t", "create table x (a int)", "begin; delete from t; commit", "drop table t"):
            with pytest.raises(il.errors.OwnershipError):
                reader.sql(text)


def test_a_forked_child_is_told_to_connect_again(lake: il.Lake) -> None:
    assert lake.sql("select 1").scalar() == 1
    child = os.fork()
    if not child:
        try:
            lake.sql("select 1")
        except il.errors.OwnershipError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_the_command_line_prints_results(lake: il.Lake, tmp_path: Path) -> None:
    folder = str(tmp_path / "lake")
    lake.close()
    runner = CliRunner()

    def call(*arguments: str, text: str | None = None) -> str:
        done = runner.invoke(app, ["sql", folder, *arguments], input=text, catch_exceptions=False)
        assert done.exit_code == 0
        return done.output

    assert "│  1 │ a" in call("select id, name from t order by id")
    assert call("select id, name from t where id = 1", "--json").split() == [
        "[",
        '{"id":',
        "1,",
        '"name":',
        '"a"}',
        "]",
    ]
    assert call("select id, name, d from t order by id", "--csv") == "id,name,d\n1,a,2024-01-01\n2,b,\n"
    assert "insert: 1 inserted" in call("insert into t (id, name) values (3, '[x]')")
    assert "answered by the scan alone" in call("explain select * from t where id = 1")
    assert "[x]" in call("-", text="select name from t where id = 3")
    assert "the first 1 row;" in call("select id from t", "--limit", "1")
    assert "copy: 3" in call(f"copy t to '{tmp_path}/out.csv'", "--files", str(tmp_path))
    assert call(f"select count(*) as n from '{tmp_path}/out.csv'", "--files", str(tmp_path), "--csv") == "n\n3\n"
    assert call("select 1 as n where false", "--json") == "[]\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("create sequence s cache 5", "A sequence can have START"),
        ("create macro f(a) as a, (b) as b", "Two overloads of a macro take the same number of arguments"),
        ("create macro f(a) as $1 + a", "A macro is stored, so it cannot use parameters of the call"),
        ("comment on schema s is 'x'", "COMMENT ON SCHEMA is not supported"),
        ("create table x (a int references t (id))", "REFERENCES is not supported in a table"),
        ("alter table t add column c int primary key", "Add the column first, then ALTER TABLE"),
        ("alter table t alter column id set data type using id + 1", "Name the type before USING"),
        ("update t set name.id = 1", "A column is set by its name alone, and as a whole, not a field of it"),
        ("delete from t where id = 1 order by id limit 1", "ORDER belongs to queries: choose the rows by WHERE"),
        ("delete from t limit 1", "LIMIT belongs to queries"),
        ("update t set name = abs(sum(id) over (order by id))", "UPDATE has no window functions"),
        ("delete from t using u order by 1", "ORDER belongs to queries"),
        ("update t set name = 'x' from u where t.id = 1 union select 1", "UNION belongs to queries"),
        ("create table x (a int auto_increment)", "Numbers come from a sequence: DEFAULT nextval"),
        ("create table x (a int generated by default as identity)", "Numbers come from a sequence"),
        ("create table x (a bigserial)", "Numbers come from a sequence: a BIGINT column"),
        ("create table x (a int) partitioned by (a)", "can follow the columns"),
        ("drop table t, u", "Drop one thing per statement"),
        ("insert into t by name values (1, 'x')", "VALUES have no names: leave BY NAME out"),
        ("alter table t alter column id nosuch", "A column can be altered by"),
        ("create or replace schema s", "CREATE OR REPLACE SCHEMA is not supported: drop it first"),
        ("create or replace view if not exists v as select 1", "contradict each other"),
        ("alter schema s rename to z", "ALTER SCHEMA is not supported: make another and move its tables"),
        ("create temp schema f", "CREATE TEMP SCHEMA is not supported"),
    ],
)
def test_what_is_refused_is_named_with_what_to_do_and_its_place(lake: il.Lake, text: str, said: str) -> None:
    with pytest.raises(il.ExpressionError, match=said) as error:
        lake.sql(text)
    assert f"line 1: {text}" in str(error.value)
    assert "^" in str(error.value)
