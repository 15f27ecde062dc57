"""What is wrong with a file is an error that names it, and nothing has changed."""

from __future__ import annotations

import gzip
import os
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import indexlake as il
from indexlake.sources.files import Files
from indexlake.sources.stream import FileStream
from tests.sources.test_load_files import ROWS, written


@pytest.mark.parametrize("path", ["nothing.csv", "nothing/*.csv", "nothing[1].parquet", "", "a\x00b.csv"])
def test_a_file_that_is_not_there(refused, path: str):
    refused(path, il.NotFoundError)
    refused([path], il.NotFoundError)


def test_addresses_that_cannot_be_reached(refused):
    refused("s3://bucket/data.parquet", il.StorageError, "not in the bucket of the lake", "storage_options={…}")
    refused("https://example.com/data.parquet", il.StorageError, "Use s3://bucket/file or a local path")


def test_an_empty_folder_and_one_of_folders(refused, tmp_path: Path):
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", il.NotFoundError, "holds no files")
    (tmp_path / "hive" / "day=2024-01-01").mkdir(parents=True)
    refused(tmp_path / "hive", il.SchemaError, "day=2024-01-01", "pattern")


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet", "arrow", "feather", "csv.gz"])
def test_an_empty_file(refused, write, suffix: str):
    refused(write(f"empty.{suffix}", b""), il.SchemaError, f"empty.{suffix}", "is empty")


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "csv.gz"])
def test_a_file_of_empty_lines(refused, write, suffix: str):
    content = b"\n \n\n" if suffix == "jsonl" else b"\n\n\n"
    path = write(f"blank.{suffix}", gzip.compress(content) if suffix.endswith("gz") else content)
    refused(path, il.SchemaError, "only empty lines")


def test_a_name_that_does_not_say_what_the_file_holds(refused, write):
    refused(write("data.xlsx", "1"), il.SchemaError, "data.xlsx", "format=")
    refused(write("data", "1"), il.SchemaError, "format=")


@pytest.mark.parametrize("format", ["parquet", "arrows", "csv.gz"])
def test_a_suffix_that_lies_about_binary_data(refused, tmp_path: Path, format: str):
    path = written(tmp_path, ROWS, format)
    lying = path.rename(tmp_path / "rows.json")
    refused(lying, il.SchemaError, "rows.json")


def test_text_that_is_called_parquet_or_arrow(refused, write):
    for suffix in ("parquet", "arrow", "arrows", "feather"):
        error = refused(write(f"text.{suffix}", "id,code\n1,2\n" * 20), il.CorruptionError, f"text.{suffix}")
        assert error.path.endswith(suffix)


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "arrows", "csv.gz", "jsonl.gz"])
def test_a_file_that_was_cut_off_at_any_place(refused, tmp_path: Path, suffix: str):
    rows = pa.table({"id": range(2000), "code": [f"code {n * 7919 % 2000}" for n in range(2000)]})
    path = written(tmp_path, rows, suffix)
    content = path.read_bytes()
    for length in {1, 7, len(content) // 3, len(content) // 2, len(content) - 9, len(content) - 8, len(content) - 1}:
        path.write_bytes(content[:length])
        refused(path, il.CorruptionError, path.name)


def test_damaged_bytes_inside_are_an_error_or_harmless_and_never_a_crash(tmp_path: Path):
    rows = pa.table({"id": range(300), "code": [f"code {n}" for n in range(300)]})
    for suffix in ("parquet", "arrow", "arrows"):
        path = written(tmp_path, rows, suffix)
        content = bytearray(path.read_bytes())
        for place in range(0, len(content), max(1, len(content) // 150)):
            changed = bytearray(content)
            changed[place] ^= 0xFF
            path.write_bytes(changed)
            with suppress(il.IndexLakeError):
                for batch in FileStream(Files((str(path),)).list(), None):
                    batch.to_pylist()


def test_columns_that_the_table_has_not_are_found_before_anything_is_read(refused, tmp_path: Path):
    good = written(tmp_path, pa.table({"id": [1]}), "csv", "good")
    for suffix in ("csv", "parquet", "jsonl", "arrows"):
        one = written(tmp_path, pa.table({"id": [2], "cod": ["x"]}), suffix, "one")
        error = refused([good, one], il.SchemaError, f"one.{suffix}", "'cod'", "Did you mean 'code'")
        assert (error.column, error.path) == ("cod", str(one))
        two = written(tmp_path, pa.table({"id": [2], "x": [1], "y": [1]}), suffix, "two")
        refused([good, two], il.SchemaError, "'x', 'y'", "day")


def test_a_column_given_twice(refused, write, tmp_path: Path):
    refused(write("twice.csv", "id,code,Code\n1,a,b\n"), il.SchemaError, "twice.csv", "Code")
    pq.write_table(pa.table([[1], ["a"], ["b"]], names=["id", "code", "CODE"]), tmp_path / "twice.parquet")
    refused(tmp_path / "twice.parquet", il.SchemaError, "twice.parquet", "'CODE'")
    refused(write("twice.jsonl", '{"id": 1, "code": "a", "Code": "b"}'), il.SchemaError, "twice.jsonl", "Code")


def test_a_null_where_none_is_allowed_names_the_file(refused, write):
    for name, content in (("n.csv", "id,code\n,x\n"), ("n.jsonl", '{"id": null}\n'), ("m.jsonl", '{"code": "x"}\n')):
        error = refused(write(name, content), il.ConstraintError, "'id'")
        assert error.column == "id"


def test_duplicate_keys_in_files_are_refused(refused, write):
    refused([write("a.csv", "id\n1\n"), write("b.csv", "id\n1\n")], il.DuplicateKeyError, "id = 1")


def test_options_that_make_no_sense(tmp_path: Path, refused):
    for arguments in (
        {"format": "excel"}, {"delimiter": ";;"}, {"delimiter": '"'}, {"delimiter": "é"}, {"header": "id"},
        {"header": [1]}, {"null": 5},
    ):  # fmt: skip
        with pytest.raises(il.SchemaError):
            il.files("x.csv", **arguments)
    for paths in (5, [], None, [1]):
        with pytest.raises(il.SchemaError):
            il.files(paths)
    refused(il.files(written(tmp_path, ROWS, "parquet"), delimiter=";"), il.SchemaError, "for CSV")
    compressed = tmp_path / "rows.parquet.gz"
    compressed.write_bytes(gzip.compress(b"x"))
    refused(compressed, il.SchemaError, "decompress")


def test_a_file_that_may_not_be_read(refused, write, tmp_path: Path):
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    refused(tmp_path / "loop.csv", il.IndexLakeError, "loop.csv")


def test_a_pipe_is_not_a_file(refused, tmp_path: Path):
    os.mkfifo(tmp_path / "pipe.csv")
    refused(tmp_path / "pipe.csv", il.SchemaError, "read twice")


def test_a_list_that_mixes_paths_and_rows(refused, write):
    refused([str(write("a.csv", "id\n1\n")), {"id": 1}], il.SchemaError, "str")


def test_a_generator_of_paths_says_what_to_do(refused, tmp_path: Path, write):
    write("a.csv", "id\n1\n")
    refused(tmp_path.glob("*.csv"), il.SchemaError, "list")
