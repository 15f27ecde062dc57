"""`import indexlake` is light: what is heavy is imported when it is used."""

from __future__ import annotations

import pytest

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
