"""Reading all rows of a block but some, and a block in several parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import indexlake as il
from indexlake.expr import compile
from indexlake.scan import execute
from indexlake.storage import Storage
from tests.blocks.formats.block_files import block, everything, sample

FORMATS = ["vortex", "parquet", "ipc"]
ROWS = 150_000
COLUMNS = ["f1", "few", "f3"]
PREDICATES = [
    None,
    "few = 'v3'",
    "few = 'v3' or few is null",
    "f4 < 100 and few <> 'v1'",
    "f4 + 1 < 50",
    "f3 like '%7'",
]


@pytest.fixture(scope="module")
def table() -> pa.Table:
    few = pa.array([None if n % 11 == 0 else f"v{n * n % 7}" for n in range(ROWS)])
    return sample(ROWS).append_column("few", few)


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory, table: pa.Table) -> dict[str, Any]:
    storage = Storage.open(str(tmp_path_factory.mktemp("left-out")))
    return {format: block(storage, format, table, f"{format}-block") for format in FORMATS}


def some_positions() -> list[np.ndarray[Any, Any]]:
    random = np.random.default_rng(3)
    scattered = [np.sort(random.choice(ROWS, count, replace=False)) for count in (1, 30, 400, 2_000, 60_000)]
    return [*scattered, np.array([0]), np.array([ROWS - 1]), np.arange(65_536, 2 * 65_536), np.arange(ROWS)]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("text", PREDICATES)
def test_rows_are_left_out(readers: dict[str, Any], table: pa.Table, format: str, text: str | None) -> None:
    predicate = compile(text, table.schema) if text is not None else None
    true = (
        np.ones(ROWS, bool) if predicate is None else np.asarray(predicate.mask(table.combine_chunks().to_batches()[0]))
    )
    for gone in some_positions():
        expected = true.copy()
        expected[gone] = False
        found = everything(readers[format], COLUMNS, predicate=predicate, without=gone.astype(np.uint64))
        assert found.equals(table.select(COLUMNS).filter(pa.array(expected))), len(gone)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("text", [None, "f3 = 'b'", "f1 < 9000 and f3 = 'b'"])
def test_rows_of_an_object_store_are_left_out_where_columns_are_required(format: str, text: str | None) -> None:
    rows = 10_000
    schema = pa.schema([pa.field("f1", pa.int64(), False), ("f2", pa.float64()), pa.field("f3", pa.string(), False)])
    table = pa.table([range(rows), [None] * rows, ["a", "b"] * (rows // 2)], schema=schema)
    reader = block(Storage.open("memory://"), format, table)
    predicate = compile(text, schema) if text is not None else None
    gone = [n for n in range(rows) if n % 5_000 in (1, 2, 3)]  # in some record batches, and not in others
    expected = pa.array(np.isin(np.arange(rows), gone, invert=True))
    if predicate is not None:
        expected = pc.and_(expected, predicate.mask(table))
    found = everything(reader, ["f1", "f2", "f3"], predicate=predicate, without=np.array(gone, np.uint64))
    assert found.equals(table.filter(expected))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("step", [65_536, 131_072, 50_000, 1_000_000])
def test_parts_are_the_whole(readers: dict[str, Any], table: pa.Table, format: str, step: int) -> None:
    gone = np.sort(np.random.default_rng(4).choice(ROWS, 500, replace=False))
    expected = np.ones(ROWS, bool)
    expected[gone] = False
    parts = [
        everything(readers[format], COLUMNS, rows=(first, first + step), without=gone.astype(np.uint64))
        for first in range(0, ROWS, step)
    ]
    assert pa.concat_tables(parts).equals(table.select(COLUMNS).filter(pa.array(expected)))


def of_many_types(rows: int) -> pa.Table:
    """Columns that a file encodes in different ways: sequences, runs, few values, many, and a null here and there."""
    ids = np.arange(rows)
    random = np.random.default_rng(6)
    null = ids % 13 == 5
    columns = {
        "f_sequence": pa.array(ids),
        "f_runs": pa.array((ids // 1_000).astype(np.int32), mask=null),
        "f_random": pa.array(random.integers(-(2**62), 2**62, rows), mask=null),
        "f_small": pa.array(random.integers(0, 9, rows).astype(np.int8)),
        "f_float": pa.array(random.random(rows), mask=null),
        "f_price": pa.array(np.round(random.random(rows), 2)),
        "f_one": pa.array(np.full(rows, 7)),
        "f_null": pa.nulls(rows, pa.float32()),
        "f_bool": pa.array(random.random(rows) < 0.5, mask=null),
        "f_date": pa.array((ids % 9_000).astype(np.int32)).cast(pa.date32()),
        "f_moment": pa.array(1_700_000_000_000_000 + 977 * ids, pa.timestamp("us", "UTC"), mask=null),
        "f_decimal": pa.array(random.integers(0, 10**8, rows)).cast(pa.decimal128(19, 0)),
        "f_city": pa.array([None if n % 17 == 3 else f"city {n * n % 90}" for n in ids.tolist()]),
        "f_note": pa.array([None if n % 19 == 3 else f"note {n * 7919 % 1_000_003}" for n in ids.tolist()]),
        "f_bytes": pa.array([bytes([n % 251, n % 7]) for n in ids.tolist()]),
        "f_list": pa.array([[n, n + 1] if n % 3 else None for n in ids.tolist()]),
        "f_struct": pa.array([{"a": n, "b": f"{n % 5}"} for n in ids.tolist()]),
    }
    return pa.table(columns)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("count", [3, 70, 3_000])
def test_rows_of_many_types_are_left_out(tmp_path: Path, format: str, count: int) -> None:
    rows = 70_000
    table = of_many_types(rows)
    reader = block(Storage.open(str(tmp_path)), format, table, "many-types")
    gone = np.sort(np.random.default_rng(count).choice(rows, count, replace=False))
    live = np.ones(rows, bool)
    live[gone] = False
    for dictionaries in ([], ["f_city"]):
        found = pa.concat_tables(
            pa.Table.from_batches([batch]).cast(table.schema)
            for part in ((0, 65_536), (65_536, rows))
            for batch in reader.read(
                table.column_names, dictionaries=dictionaries, rows=part, without=gone.astype(np.uint64)
            )
        )
        assert found.equals(table.filter(pa.array(live)))


@pytest.mark.parametrize("format", FORMATS)
def test_scans_of_blocks_with_deleted_rows(tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few and many deleted rows, with predicates on columns that the file has and has not, whole and in parts."""
    monkeypatch.setattr(execute, "SPREAD_ROWS", 65_536)
    ids = np.arange(ROWS)
    most = np.iinfo(np.int64).max
    rows = pa.table(
        {"id": ids, "n": np.where(ids == 77, most, ids % 1_000), "c": pa.array([f"c{n % 50}" for n in ids])}
    )
    with il.connect(str(tmp_path / "lake"), automatic=False) as lake:
        config = il.TableConfig(dump_format=format, block_row_count=200_000)
        table = lake.create_table("t", rows.schema, primary_key="id", config=config)
        table.insert(rows)
        table.alter().add_column("later", pa.int64()).commit()
        with pytest.raises(il.errors.ExpressionError, match=r"out of range|overflow"):
            table.scan("n + n > 0").count()
        gone = np.array([77])
        random = np.random.default_rng(5)
        for count in (0, 40, 900, 20_000):
            gone = np.union1d(gone, random.choice(ROWS, count, replace=False))
            table.delete("id in $ids", params={"ids": gone.tolist()})
            live = rows.filter(pa.array(~np.isin(ids, gone)))
            assert table.scan(columns=rows.column_names).to_arrow().cast(rows.schema).equals(live)
            assert table.scan("c = 'c7'", columns=["id"]).to_arrow().column(0).to_pylist() == [
                n for n in live.column("id").to_pylist() if n % 50 == 7
            ]
            assert table.scan("n + n > 1990").count() == sum(n % 1_000 > 995 for n in live.column("id").to_pylist())
            assert table.scan("later is null and n = 5").count() == sum(
                n % 1_000 == 5 for n in live.column("id").to_pylist()
            )
            assert table.count() == live.num_rows
            assert table.scan(columns=["c"]).count() == live.num_rows
