"""What a user sees after a mistake: one traceback that ends in our sentence, without names of libraries inside."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("name", pa.string()),
        pa.field("total", pa.decimal128(10, 2)),
        pa.field("day", pa.date32()),
        pa.field("small", pa.int8()),
        pa.field("tags", pa.list_(pa.string())),
    ]
)
LEAKS = re.compile(
    r"sqlglot|pyarrow\.lib|duckdb\.duckdb|apsw\.|psycopg\.|opendal\.|vortex\.|Arrow(?:Invalid|TypeError|NotImplemented)"
    r"|\ba0\b|indexlake\.\w+\.\w+|Traceback|0x[0-9a-f]{6,}"
)

Mistake = Callable[[il.Lake, il.Table, Path], Any]

MISTAKES: dict[str, Mistake] = {
    # expressions
    "syntax": lambda lake, t, p: t.scan("id = = 3").to_pylist(),
    "unbalanced": lambda lake, t, p: t.scan("(id = 3").to_pylist(),
    "unknown column": lambda lake, t, p: t.scan("nmae = 'x'").to_pylist(),
    "unknown function": lambda lake, t, p: t.scan("uper(name) = 'X'").to_pylist(),
    "wrong argument": lambda lake, t, p: t.scan("upper(id) = 'X'").to_pylist(),
    "types do not compare": lambda lake, t, p: t.scan("id = 'abc'").to_pylist(),
    "not a predicate": lambda lake, t, p: t.scan("id + 1").to_pylist(),
    "missing parameter": lambda lake, t, p: t.scan("id = $id").to_pylist(),
    "parameter of a wrong type": lambda lake, t, p: t.scan("id = $id", params={"id": {1, 2}}).to_pylist(),
    "two expressions": lambda lake, t, p: t.scan("id = 1; id = 2").to_pylist(),
    "subquery": lambda lake, t, p: t.scan("id in (select 1)").to_pylist(),
    "division": lambda lake, t, p: t.update({"small": il.expr("cast(id * 1000 as tinyint)")}),
    "cast": lambda lake, t, p: t.scan("cast(name as integer) = 1").to_pylist(),
    "update with nonsense": lambda lake, t, p: t.update({"id": il.expr("id +")}),
    "unknown column to update": lambda lake, t, p: t.update({"nmae": "x"}),
    # rows
    "text for a number": lambda lake, t, p: t.insert({"id": "seven"}),
    "number too large": lambda lake, t, p: t.insert({"id": 5, "small": 300}),
    "number for text": lambda lake, t, p: t.insert({"id": 5, "name": 7}),
    "null key": lambda lake, t, p: t.insert({"id": None}),
    "missing key": lambda lake, t, p: t.insert({"name": "x"}),
    "missing key in other case": lambda lake, t, p: t.insert({"NAME": "x"}),
    "unknown column in a row": lambda lake, t, p: t.insert({"id": 5, "nmae": "x"}),
    "same key": lambda lake, t, p: t.insert({"id": 1, "name": "x"}),
    "same key twice": lambda lake, t, p: t.insert([{"id": 8, "name": "x"}, {"id": 8, "name": "y"}]),
    "not a row": lambda lake, t, p: t.insert(7),
    "a list of numbers": lambda lake, t, p: t.insert([1, 2, 3]),
    "wrong element": lambda lake, t, p: t.insert({"id": 5, "tags": [1]}),
    "wrong date": lambda lake, t, p: t.insert({"id": 5, "day": "2026-02-30"}),
    "Arrow of another type": lambda lake, t, p: t.insert(pa.table({"id": ["x"]})),
    "Arrow out of range": lambda lake, t, p: t.insert(pa.table({"id": [5], "small": [300]})),
    "mixed types": lambda lake, t, p: lake.create_table("mixed", [{"a": 1}, {"a": "x"}]),
    "upsert without a key": lambda lake, t, p: t.upsert([{"name": "x"}]),
    # tables
    "no such table": lambda lake, t, p: lake.table("odrers"),
    "table exists": lambda lake, t, p: lake.create_table("orders", SCHEMA),
    "not a schema": lambda lake, t, p: lake.create_table("x", 7),
    "no rows": lambda lake, t, p: lake.create_table("x", []),
    "key that is no column": lambda lake, t, p: lake.create_table("x", SCHEMA, primary_key="nope"),
    "type not stored": lambda lake, t, p: lake.create_table("x", pa.schema({"a": pa.month_day_nano_interval()})),
    "default that does not fit": lambda lake, t, p: t.add_column("c", pa.int8(), default=1000),
    "column exists": lambda lake, t, p: t.add_column("name", pa.string()),
    "no such snapshot": lambda lake, t, p: t.at(10_000).scan().to_pylist(),
    "before the beginning": lambda lake, t, p: lake.at(time=datetime(1999, 1, 1)).table("orders"),
    "get by two values": lambda lake, t, p: t.get((1, 2)),
    "get by text": lambda lake, t, p: t.get("one"),
    "order by nothing": lambda lake, t, p: t.scan(order_by="nope").to_pylist(),
    "column that is not there": lambda lake, t, p: t.scan(columns=["nope"]).to_pylist(),
    # SQL
    "SQL syntax": lambda lake, t, p: lake.sql("selec 1"),
    "SQL syntax later": lambda lake, t, p: lake.sql("select 1; selec 2"),
    "SQL unknown table": lambda lake, t, p: lake.sql("select * from odrers"),
    "SQL unknown column": lambda lake, t, p: lake.sql("select nmae from orders").to_pylist(),
    "SQL unknown function": lambda lake, t, p: lake.sql("select uper(name) from orders").to_pylist(),
    "SQL cast": lambda lake, t, p: lake.sql("select cast(name as integer) from orders").to_pylist(),
    "SQL overflow": lambda lake, t, p: lake.sql("select cast(id * 1000 as tinyint) from orders").to_pylist(),
    "SQL missing parameter": lambda lake, t, p: lake.sql("select $x").to_pylist(),
    "SQL insert of a wrong type": lambda lake, t, p: lake.sql("insert into orders (id) values ('seven')"),
    "SQL insert of too much": lambda lake, t, p: lake.sql("insert into orders (id, small) values (9, 300)"),
    "SQL duplicate": lambda lake, t, p: lake.sql("insert into orders (id) values (1)"),
    "SQL update": lambda lake, t, p: lake.sql("update orders set small = id * 1000"),
    "SQL update of no column": lambda lake, t, p: lake.sql("update orders set nmae = 1"),
    "SQL table exists": lambda lake, t, p: lake.sql("create table orders (id bigint)"),
    "SQL unknown type": lambda lake, t, p: lake.sql("create table z (id nonsense)"),
    "SQL default": lambda lake, t, p: lake.sql("create table z (id tinyint default 1000)"),
    "SQL merge": lambda lake, t, p: lake.sql("merge into orders using odrers on true when matched then delete"),
    "SQL engine": lambda lake, t, p: lake.sql("select 1", engine="sqlite"),
    "SQL file": lambda lake, t, p: lake.sql("select * from 'nothing.parquet'").to_pylist(),
    # files
    "no such file": lambda lake, t, p: t.insert(il.files(str(p / "none.csv"))),
    "file of an unknown kind": lambda lake, t, p: t.insert(il.files(str(p / "rows.txt"))),
    "broken CSV": lambda lake, t, p: t.insert(il.files(str(p / "bad.csv"))),
    "broken JSON": lambda lake, t, p: t.insert(il.files(str(p / "bad.jsonl"))),
    "broken Parquet": lambda lake, t, p: t.insert(il.files(str(p / "bad.parquet"))),
    # lakes
    "no such lake": lambda lake, t, p: il.connect(p / "nothing", create=False),
    "not a catalog": lambda lake, t, p: il.connect("mysql://host/x"),
    "a catalog that is no database": lambda lake, t, p: il.connect(p / "broken"),
    "no such server": lambda lake, t, p: il.connect("postgresql://127.0.0.1:1/x?connect_timeout=1", storage=str(p)),
    "a lake in a file": lambda lake, t, p: il.connect(p / "bad.csv"),
    "storage option": lambda lake, t, p: il.connect(p / "new", storage_options={"endpont": "x"}),
    "closed lake": lambda lake, t, p: _closed(p).tables(),
    "job on no table": lambda lake, t, p: lake.pipeline(runner="threads").dump("odrers"),
    "no such runner": lambda lake, t, p: lake.pipeline(runner="thread"),
    "read-only": lambda lake, t, p: il.connect(p / "lake", read_only=True).table("orders").insert({"id": 99}),
}  # fmt: skip


def _closed(folder: Path) -> il.Lake:
    lake = il.connect(folder / "other")
    lake.close()
    return lake


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "rows.txt").write_text("id\n1\n")
    (folder / "bad.csv").write_text("id,small\n1,x\n")
    (folder / "bad.jsonl").write_text('{"id": 1}\n{"id": \n')
    (folder / "bad.parquet").write_bytes(b"PAR1 this is not Parquet PAR1")
    (folder / "broken").mkdir()
    (folder / "broken" / "catalog.sqlite").write_bytes(b"this is not a database" * 100)
    return folder


@pytest.fixture(scope="module")
def orders_lake(place: Path) -> Iterator[il.Lake]:
    with il.connect(place / "lake", automatic=False) as lake:
        t = lake.create_table("orders", SCHEMA, primary_key="id", config=il.TableConfig(direct_write_row_count=5))
        t.insert([{"id": 1, "name": "x", "day": date(2026, 1, 1)}, {"id": 2, "name": "y"}])
        t.insert(pa.table({"id": range(100, 110), "name": ["z"] * 10}))  # a block
        yield lake


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_ends_in_one_sentence_of_ours(orders_lake: il.Lake, place: Path, what: str) -> None:
    before = orders_lake.snapshot_id
    with pytest.raises(il.IndexLakeError) as caught:
        MISTAKES[what](orders_lake, orders_lake.table("orders"), place)
    shown = "".join(traceback.format_exception(caught.value))
    assert shown.count("Traceback (most recent call last)") == 1, shown
    assert "The above exception" not in shown
    assert "During handling" not in shown
    assert not LEAKS.search(str(caught.value)), str(caught.value)
    assert orders_lake.snapshot_id == before


def test_an_error_of_the_users_own_code_is_shown_as_it_is(orders_lake: il.Lake) -> None:
    def rows() -> Iterator[dict[str, Any]]:
        yield {"id": 500}
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        orders_lake.table("orders").insert(rows())

    def batches() -> Iterator[pa.RecordBatch]:
        raise ZeroDivisionError("mine")
        yield

    with pytest.raises(ZeroDivisionError, match="mine"):
        orders_lake.table("orders").insert(pa.RecordBatchReader.from_batches(pa.schema({"id": pa.int64()}), batches()))
