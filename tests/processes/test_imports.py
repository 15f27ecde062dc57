"""`import indexlake` is light: what is heavy is imported when it is used."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

import indexlake as il
from tests.processes.scripts import run_script

HEAVY = (
    "vortex",
    "sqlglot",
    "psycopg",
    "psycopg_pool",
    "duckdb",
    "pandas",
    "polars",
    "pyspark",
    "opendal",
    "substrait",
)


def test_importing_the_package_imports_no_heavy_library() -> None:
    ended = run_script("print(*sorted({name.partition('.')[0] for name in sys.modules}))")
    assert ended.code == 0, ended.err
    assert set(HEAVY) & set(ended.out.split()) == set()


@pytest.mark.parametrize("heavy", ["vortex._lib", "sqlglot"])
def test_one_row_writes_and_reads_by_key_need_no_heavy_library(heavy: str) -> None:
    ended = run_script(
        f"""
        lake = il.connect(":memory:")
        t = lake.create_table("t", pa.schema([pa.field("id", pa.int64(), False)]), primary_key="id")
        t.insert({{"id": 1}})
        assert t.get(1) == {{"id": 1}}
        print("{heavy}" in sys.modules)
        """
    )
    assert (ended.code, ended.out) == (0, "False\n"), ended.err


CALLS = [
    "t.scan().to_arrow().num_rows == 4",
    """t.scan("city = 'Oslo' or total > 0.7 and at < date '2000-01-01'").to_arrow().num_rows == 1""",
    """t.scan("city in ('Oslo', 'Lima') or city like 'L%'").to_arrow().num_rows == 3""",
    "t.get(1)['city'] == t.get_many([1, 9])['city'].to_pylist()[0] == 'Lima'",
    """t.update({"total": 2.5}, "id = 3").updated == 1""",
    """t.update({"total": 2.5}, "id = 1").updated == 1""",
    """t.update({"total": il.expr("total + 1")}, "city = 'Lima'").updated == 2""",
    """t.delete("total < 0.7").deleted == 2""",
    """t.upsert([{"id": 1, "city": "Rome"}, {"id": 4, "city": "Oslo"}]).updated == 1""",
]


@pytest.mark.parametrize("format", ["vortex", "parquet", "ipc"])
def test_the_first_call_of_a_process_does_not_import_pandas(format: str, tmp_path: Path) -> None:
    config = il.TableConfig(direct_write_row_count=3, dump_format=format)
    types = {"id": "int64", "city": "string", "total": "float64", "at": "date32"}
    for number, _ in enumerate(CALLS):
        with il.connect(tmp_path / str(number), automatic=False) as lake:
            t = lake.create_table("t", types, primary_key="id", config=config)
            cities = ["Cairo", "Lima", "Lima"]
            t.insert([{"id": n, "city": city, "total": n / 2, "at": None} for n, city in enumerate(cities)])
            t.insert({"id": 3, "city": "Oslo", "total": 0.75, "at": date(1999, 1, 1)})
    for number, call in enumerate(CALLS):
        ended = run_script(
            f"""
            t = il.connect({str(tmp_path / str(number))!r}, automatic=False).table("t")
            print({call})
            print(*{{"pandas", "pyarrow.dataset", "vortex"}} & set(sys.modules))
            """
        )
        assert (ended.code, ended.out) == (0, "True\n\n"), (call, ended.err)
