"""`import indexlake` is light: what is heavy is imported when it is used."""

from __future__ import annotations

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


@pytest.mark.parametrize("heavy", ["vortex", "sqlglot"])
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


@pytest.mark.parametrize("format", ["parquet", "ipc"])
def test_the_first_scan_of_a_process_does_not_import_pandas(format: str, tmp_path: Path) -> None:
    config = il.TableConfig(direct_write_row_count=2, dump_format=format)
    with il.connect(tmp_path, automatic=False) as lake:
        t = lake.create_table("t", {"id": "int64", "city": "string", "total": "float64"}, config=config)
        t.insert([{"id": n, "city": None, "total": 0.5} for n in range(3)])
        t.insert({"id": 3, "city": "Oslo", "total": None})
    ended = run_script(
        f"""
        found = il.connect({str(tmp_path)!r}, automatic=False).table("t").scan().to_arrow()
        print("pandas" in sys.modules, *found.to_pydict().values())
        """
    )
    rows = "[0, 1, 2, 3] [None, None, None, 'Oslo'] [0.5, 0.5, 0.5, None]"
    assert (ended.code, ended.out) == (0, f"False {rows}\n"), ended.err
