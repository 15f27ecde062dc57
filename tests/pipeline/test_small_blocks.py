"""Small blocks are Arrow files until compaction: written at once, read where they lie, gone with the next job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import indexlake as il
from indexlake.blocks.formats.batches import ahead
from indexlake.blocks.stream import SMALL_BYTES, SMALL_PART
from tests.pipeline.job_tables import blocks

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("name", pa.string()), pa.field("v", pa.float64())])
FULL = 3_200
SMALL = FULL // SMALL_PART  # the least number of rows that is not small


def rows(first: int, count: int, *, v: float = 0.5) -> pa.Table:
    ids = range(first, first + count)
    return pa.table({"id": ids, "name": [f"name {i % 7}" for i in ids], "v": [v * i for i in ids]}, SCHEMA)


def table(lake: il.Lake, format: str = "vortex") -> il.Table:
    config = il.TableConfig(direct_write_row_count=10, block_row_count=FULL, dump_format=format)
    return lake.create_table("t", SCHEMA, primary_key="id", config=config)


def formats(t: il.Table) -> list[tuple[str, int]]:
    return sorted((b.format, b.record_count) for b in blocks(t))


@pytest.mark.parametrize(
    ("format", "small", "large"),
    [("vortex", "ipc", "vortex"), ("parquet", "parquet", "parquet"), ("ipc", "ipc", "ipc")],
)
def test_only_small_vortex_blocks_are_arrow_files(lake: il.Lake, format: str, small: str, large: str) -> None:
    t = table(lake, format)
    t.insert(rows(0, SMALL - 1))
    assert formats(t) == [(small, SMALL - 1)]
    t.insert(rows(1000, SMALL))
    assert formats(t) == sorted([(small, SMALL - 1), (large, SMALL)])


def test_every_statement_that_writes_blocks_writes_small_ones_so(lake: il.Lake) -> None:
    t = table(lake)
    t.insert(rows(0, 500))
    t.upsert(rows(480, 40, v=2.0))
    t.update({"v": -1.0}, "id < 30")
    merged = t.merge(rows(90, 20, v=3.0), on="id").when_matched_update({"v": il.expr("t.v + s.v")})
    assert merged.execute().updated == 20
    assert formats(t) == [("ipc", 20), ("ipc", 20), ("ipc", 20), ("ipc", 30), ("vortex", 500)]
    expected = {i: 0.5 * i for i in range(500)} | {i: 2.0 * i for i in range(480, 520)}
    expected |= dict.fromkeys(range(30), -1.0) | {i: 3.5 * i for i in range(90, 110)}
    assert {row["id"]: row["v"] for row in t.scan().to_pylist()} == expected
    assert {i: t.get(i)["v"] for i in (0, 29, 30, 95, 499, 519)} == {i: expected[i] for i in (0, 29, 30, 95, 499, 519)}
    assert t.scan("v = -1.0 and name = 'name 3'", columns=["id"]).to_arrow()["id"].to_pylist() == [3, 10, 17, 24]


def test_rows_that_are_few_but_large_are_no_small_block(lake: il.Lake) -> None:
    t = table(lake)
    text = "x" * (SMALL_BYTES // 16)
    t.insert(pa.table({"id": range(20), "name": [text] * 20, "v": [0.0] * 20}, SCHEMA))
    assert formats(t) == [("vortex", 20)]
    assert t.get(19)["name"] == text


def test_compaction_makes_lasting_blocks_of_small_ones(lake: il.Lake) -> None:
    t = table(lake)
    for first in (0, 60, 120):
        t.insert(rows(first, 60))
    t.insert(rows(180, SMALL))
    before = t.scan().to_arrow().sort_by("id")
    assert [format for format, _ in formats(t)] == ["ipc", "ipc", "ipc", "vortex"]
    lake.pipeline().compact("t")
    assert formats(t) == [("vortex", 180 + SMALL)]
    assert t.scan().to_arrow().sort_by("id") == before


@pytest.mark.parametrize("how", [{}, {"cluster_by": ["name"]}], ids=["plain", "clustered"])
def test_a_lone_small_block_is_made_a_lasting_one_once(lake: il.Lake, how: dict[str, Any]) -> None:
    t = table(lake)
    t.insert(rows(0, 50))
    lake.pipeline().compact("t", **how)
    assert formats(t) == [("vortex", 50)]
    assert lake.pipeline().compact("t", **how)["main.t"].blocks_before == 0
    assert t.scan().to_arrow().sort_by("id") == rows(0, 50)


def test_clustering_and_freezing_take_small_blocks_along(lake: il.Lake) -> None:
    t = table(lake)
    t.insert(rows(0, 50))
    t.insert(rows(50, 50))
    lake.pipeline().compact("t", cluster_by=["name"])
    assert formats(t) == [("vortex", 100)]
    t.insert(rows(100, 50))
    lake.pipeline().freeze("t")
    assert formats(t) == [("parquet", 50), ("parquet", 100)]
    assert t.scan().to_arrow().sort_by("id") == rows(0, 150)


def test_a_point_read_of_a_small_block_maps_the_file_and_decodes_nothing(lake: il.Lake) -> None:
    t = table(lake)
    t.insert(rows(0, 90))
    assert t.get(17)["name"] == "name 3"
    (block,) = blocks(t)
    reader = lake._files._readers.get(block.path)
    assert reader is not None
    assert reader._chunks.mapped  # type: ignore[attr-defined]
    read = reader.bytes_read
    assert t.get(18) == {"id": 18, "name": "name 4", "v": 9.0}
    assert reader.bytes_read == read


def test_a_result_does_not_change_with_the_file(lake: il.Lake) -> None:
    t = table(lake)
    t.insert(rows(0, 90))
    held = [t.scan().to_arrow(), t.get_many([5, 6]), next(iter(t.scan().to_batches()))]
    before = [repr(result) for result in held]
    (block,) = blocks(t)
    path = Path(lake.storage.root) / block.path
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.write(b"\xff" * path.stat().st_size)
    assert [repr(result) for result in held] == before
    lake._files.clear()
    with pytest.raises(il.CorruptionError, match=path.name):
        t.scan().to_arrow()


@pytest.mark.parametrize("type", [pa.binary(), pa.dictionary(pa.int32(), pa.binary())], ids=str)
def test_reading_one_column_keeps_nothing_of_the_others(lake: il.Lake, type: pa.DataType) -> None:
    """Few rows that are large: compressed, so that what was decoded is no part of the memory map."""
    config = il.TableConfig(dump_format="ipc", direct_write_row_count=1)
    t = lake.create_table("t", pa.schema([("id", pa.int64()), ("large", type)]), config=config)
    t.insert(pa.table({"id": range(80), "large": pa.array([bytes(1_000_000)] * 80, pa.binary()).cast(type)}))
    lake._files.clear()
    before = pa.total_allocated_bytes()
    assert t.scan(columns=["id"]).to_arrow().num_rows == 80
    assert pa.total_allocated_bytes() - before < 1_000_000
    assert t.scan("id = 7").to_pylist()[0]["large"] == bytes(1_000_000)
    assert pa.total_allocated_bytes() - before < 1_000_000


def test_a_dictionary_is_not_written_out_to_make_a_small_block(lake: il.Lake) -> None:
    type = pa.dictionary(pa.int32(), pa.string())
    t = lake.create_table("t", pa.schema([("s", type)]))
    values = pa.array([letter * 3_000 for letter in "abcdefghij"])
    t.insert(pa.table({"s": pa.DictionaryArray.from_arrays(pa.array(np.arange(20_000) % 10, pa.int32()), values)}))
    (block,) = blocks(t)
    assert block.format == "vortex"
    assert block.size < 1_000_000


def test_looking_ahead_takes_no_more_than_it_was_asked_for() -> None:
    taken = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal taken
        for _ in range(100):
            taken += 1
            yield pa.record_batch({"n": np.arange(10)})

    few, rest = ahead(batches(), 25, 1 << 20)
    assert (len(few), taken) == (3, 3)
    assert rest is not None
    assert sum(b.num_rows for b in rest) == 970
    few, rest = ahead(batches(), 1_000_000, 250)
    assert len(few) == 4
    few, rest = ahead(iter(few), 1_000_000, 1 << 20)
    assert (len(few), rest) == (4, None)
