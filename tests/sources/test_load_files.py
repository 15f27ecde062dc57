"""Files of every format as the rows of an insert: found, matched by name, streamed, all in one commit."""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import indexlake as il
from indexlake.sources.files import Files
from indexlake.sources.stream import FileStream

ROWS = pa.table({"id": [1, 2, 3], "code": ["007", "", None], "day": [date(2024, 1, 2), None, date(2024, 1, 3)]})
FORMATS = ["parquet", "csv", "csv.gz", "csv.bz2", "tsv", "jsonl", "jsonl.gz", "ndjson", "arrow", "arrows", "feather"]


def written(folder: Path, table: pa.Table, suffix: str, name: str = "rows") -> Path:
    path = folder / f"{name}.{suffix}"
    if suffix == "parquet":
        pq.write_table(table, path, row_group_size=max(2, table.num_rows // 4))
    elif suffix in ("arrow", "feather"):
        pyarrow.feather.write_feather(table, path)
    elif suffix == "arrows":
        with pa.ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table, max(2, table.num_rows // 4))
    else:
        if suffix.startswith(("csv", "tsv")):
            options = pyarrow.csv.WriteOptions(delimiter="\t" if suffix == "tsv" else ",")
            sink = pa.BufferOutputStream()
            pyarrow.csv.write_csv(table, sink, options)
            text = sink.getvalue().to_pybytes()
        else:
            import json

            text = "".join(json.dumps(row, default=str) + "\n" for row in table.to_pylist()).encode()
        pack = {"gz": gzip.compress, "bz2": bz2.compress}.get(suffix.split(".")[-1], bytes)
        path.write_bytes(pack(text))
    return path


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_file_of_each_format_gives_the_same_rows(t: il.Table, tmp_path: Path, suffix: str):
    result = t.insert(written(tmp_path, ROWS, suffix))
    assert result.inserted == 3
    assert t.scan(columns=["id", "code", "day", "size"]).to_pylist() == [
        {"id": 1, "code": "007", "day": date(2024, 1, 2), "size": 5},
        {"id": 2, "code": "", "day": None, "size": 5},
        {"id": 3, "code": None, "day": date(2024, 1, 3), "size": 5},
    ]


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl", "arrows"])
def test_a_large_file_goes_straight_to_blocks_in_one_commit(lake: il.Lake, t: il.Table, tmp_path: Path, suffix: str):
    rows = pa.table({"id": range(30_000), "code": [f"c{n}" for n in range(30_000)]})
    before = lake.snapshot_id
    t.insert(written(tmp_path, rows, suffix))
    stats = t.stats()
    assert (lake.snapshot_id, stats.rows, stats.hot_rows, stats.blocks) == (before + 1, 30_000, 0, 1)
    assert t.get(29_999) == {"id": 29_999, "code": "c29999", "size": 5, "day": None, "at": None}


def test_paths_are_text_or_path_a_pattern_a_folder_or_a_list_of_them(t: il.Table, tmp_path: Path):
    folder = tmp_path / "in"
    folder.mkdir()
    for n in range(6):
        written(folder, pa.table({"id": [n]}), "csv" if n % 2 else "parquet", f"p{n}")
    (folder / "_SUCCESS").touch()
    (folder / ".p0.crc").touch()
    assert t.insert(str(folder / "p0.parquet")).rows == 1
    assert t.insert(folder / "p1.csv").rows == 1
    assert t.insert([folder / "p2.parquet", str(folder / "p3.c*")]).rows == 2
    assert t.insert(il.files(str(tmp_path / "**" / "p[45].*"))).rows == 2
    t.truncate()
    assert t.insert(folder).rows == 6


def test_a_file_whose_name_looks_like_a_pattern_is_found(t: il.Table, tmp_path: Path):
    written(tmp_path, pa.table({"id": [1]}), "csv", "a[1]")
    assert t.insert(tmp_path / "a[1].csv").rows == 1


def test_the_format_can_be_said_when_the_name_does_not(t: il.Table, write):
    path = write("export.txt", "1;007\n2;NA\n")
    assert t.insert(il.files(path, format="csv", delimiter=";", header=["id", "code"], null=["NA"])).rows == 2
    assert t.get(1)["code"] == "007"
    assert t.get(2)["code"] is None


def test_files_of_several_formats_load_together(t: il.Table, tmp_path: Path):
    sources = [written(tmp_path, pa.table({"ID": [n]}), suffix, f"f{n}") for n, suffix in enumerate(FORMATS)]
    assert t.insert(sources).rows == len(FORMATS)


def test_parquet_values_are_cast_when_nothing_is_lost(t: il.Table, tmp_path: Path, refused):
    fits = pa.table({"Id": pa.array([1], pa.int32()), "SIZE": pa.array([100], pa.int64())})
    assert t.insert(written(tmp_path, fits, "parquet")).rows == 1
    too_large = pa.table({"id": [2, 3], "size": [1, 1000]})
    error = refused(written(tmp_path, too_large, "parquet"), il.ConstraintError, "rows.parquet", "'size'", "1000")
    assert error.column == "size"


def test_a_load_is_part_of_a_transaction(lake: il.Lake, t: il.Table, tmp_path: Path):
    with lake.transaction() as tx:
        tx.table("parts").insert(written(tmp_path, ROWS, "csv"))
        assert len(tx.table("parts")) == 3
        assert len(t) == 0
    assert len(t) == 3


def test_a_token_makes_a_repeated_load_harmless(t: il.Table, tmp_path: Path):
    path = written(tmp_path, ROWS, "jsonl")
    first = t.insert(path, token="file-1")
    assert t.insert(path, token="file-1") == first
    assert len(t) == 3


def test_a_stream_reads_no_further_than_it_is_asked(tmp_path: Path, small_blocks: int):
    for suffix, rows in (("csv", 10_000), ("jsonl", 10_000), ("parquet", 100_000), ("arrows", 10_000)):
        table = pa.table({"id": np.arange(10**15, 10**15 + rows)})
        stream = FileStream(Files((str(written(tmp_path, table, suffix)),)).list(), None)
        next(stream)
        assert 0 < stream.done < stream.total, suffix
        assert stream.total == (tmp_path / f"rows.{suffix}").stat().st_size
        for _ in stream:
            pass
        assert stream.done == stream.total, suffix


def test_a_statement_that_runs_again_uses_the_blocks_it_has_written(lake: il.Lake, tmp_path: Path):
    """The file is gone when the conflict shows, as a one-shot source would be."""
    path = written(tmp_path, pa.table({"id": range(20_000)}), "parquet")
    t = lake.create_table("conflict", pa.schema({"id": pa.int64()}), primary_key="id")
    commit, tries = lake._committer.commit, []

    def lost_once(write_set):
        tries.append(path.exists())
        if len(tries) == 1:
            path.unlink()
            raise il.ConflictError("another commit came first")
        return commit(write_set)

    lake._committer.commit = lost_once
    assert t.insert(path).rows == 20_000
    assert tries == [True, False]
    assert (len(t), t.stats().blocks) == (20_000, 1)


def test_many_small_batches_become_few_and_dictionaries_that_do_not_fit_together_stay_apart(lake: il.Lake):
    def batches(letter: str) -> Iterator[pa.RecordBatch]:
        for n in range(90):
            values = pa.array([f"{letter}{n * 100 + m}" for m in range(100)])
            yield pa.record_batch({"d": pa.DictionaryArray.from_arrays(pa.array(range(100), pa.int8()), values)})

    t = lake.create_table("narrow", pa.schema({"d": pa.string()}))
    assert t.insert(batches("x")).rows == 9_000
    assert t.insert(batches("y")).rows == 9_000
    assert t.scan("d = 'y8999'").count() == 1


def test_a_nested_field_that_the_column_has_not_is_never_dropped_silently(lake: il.Lake, tmp_path: Path):
    t = lake.create_table(
        "nested", pa.schema({"s": pa.struct({"a": pa.int64()}), "l": pa.list_(pa.struct({"a": pa.int64()}))})
    )
    for data in ({"s": [{"a": 1, "b": 2}]}, {"l": [[{"a": 1, "b": 2}]]}):
        for suffix in ("parquet", "jsonl"):
            with pytest.raises(il.SchemaError, match="b"):
                t.insert(written(tmp_path, pa.table(data), suffix))
    assert t.insert(written(tmp_path, pa.table({"s": [{"a": 1}], "l": [[{"a": 2}, None]]}), "jsonl")).rows == 1
    assert t.scan().to_pylist() == [{"s": {"a": 1}, "l": [{"a": 2}, None]}]
