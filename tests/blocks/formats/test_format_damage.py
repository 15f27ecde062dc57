"""Damaged files: always a `CorruptionError` that names the file, never a wrong row, never a crash."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from indexlake.blocks.formats import WrittenFile
from indexlake.errors import CorruptionError
from indexlake.storage import Storage
from tests.blocks.formats.block_files import FORMATS, everything, reopen, sample, write


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.open(str(tmp_path))


def full_path(storage: Storage, written: WrittenFile) -> Path:
    return Path(storage.root) / written.path


def assert_refused(storage: Storage, written: WrittenFile, format: str, schema: pa.Schema) -> None:
    with pytest.raises(CorruptionError) as caught:
        everything(reopen(storage, written, format, schema), schema.names)
    assert caught.value.path == written.path
    assert repr(written.path) in str(caught.value)


@pytest.mark.parametrize("format", FORMATS)
def test_every_flipped_byte_of_a_small_file_is_found(storage: Storage, format: str) -> None:
    table = sample(20)
    written = write(storage, "small/block", format, table)
    random = np.random.default_rng(5)
    with open(full_path(storage, written), "r+b", buffering=0) as file:
        data = file.read()
        for at in range(len(data)):
            os.pwrite(file.fileno(), bytes([data[at] ^ (1 << int(random.integers(8)))]), at)
            assert_refused(storage, written, format, table.schema)
            os.pwrite(file.fileno(), data[at : at + 1], at)
    assert everything(reopen(storage, written, format, table.schema), table.column_names).equals(table)


@pytest.mark.parametrize("format", FORMATS)
def test_random_flipped_bits_of_a_large_file_are_found(storage: Storage, format: str) -> None:
    table = sample(150_000)
    written = write(storage, "large/block", format, table)
    random = np.random.default_rng(6)
    assert written.size > 8 * written.checksums.chunk_size
    with open(full_path(storage, written), "r+b", buffering=0) as file:
        data = file.read()
        for at in [0, written.size - 1, *random.integers(0, written.size, 40).tolist()]:
            os.pwrite(file.fileno(), bytes([data[at] ^ (1 << int(random.integers(8)))]), at)
            assert_refused(storage, written, format, table.schema)
            assert_right_or_refused(storage, written, format, table, random)
            os.pwrite(file.fileno(), data[at : at + 1], at)
    assert everything(reopen(storage, written, format, table.schema), table.column_names).equals(table)


def assert_right_or_refused(
    storage: Storage, written: WrittenFile, format: str, table: pa.Table, random: np.random.Generator
) -> None:
    """Point reads see no chunk of the damage, and answer; or they refuse."""
    positions = random.integers(0, table.num_rows, 3)
    at = int(positions[0])
    try:
        reader = reopen(storage, written, format, table.schema)
        taken, row = reader.take(positions, ["f1", "f3"]), reader.row(at, ["f2", "f4"])
    except CorruptionError:
        return
    assert taken.equals(table.select(["f1", "f3"]).take(pa.array(positions)))
    assert row == table.select(["f2", "f4"]).slice(at, 1).to_pylist()[0]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("place", ["local", "memory", "s3"])
def test_a_damaged_file_is_refused_on_every_storage(
    storage: Storage, format: str, place: str, request: pytest.FixtureRequest
) -> None:
    if place == "memory":
        storage = Storage.open("memory://")
    if place == "s3":
        server = request.getfixturevalue("s3")
        storage = Storage.open(f"s3://{server.bucket()}", server.options)
    table = sample(150_000)
    written = write(storage, "block", format, table)
    data = storage.open_file("block").read()
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 0x10
    swapped = data[262144 : 2 * 262144] + data[:262144] + data[2 * 262144 :]
    for damaged in (
        bytes(flipped),
        swapped,
        data[:-1],
        data + b"\0",
        data[: len(data) // 2],
        b"",
        os.urandom(len(data)),
    ):
        with storage.create_file("block", overwrite=True) as out:
            out.write(damaged)
        assert_refused(storage, written, format, table.schema)
    storage.delete("block")
    assert_refused(storage, written, format, table.schema)
    with storage.create_file("block") as out:
        out.write(data)
    assert everything(reopen(storage, written, format, table.schema), table.column_names).equals(table)


@pytest.mark.parametrize("format", FORMATS)
def test_a_file_of_another_format_or_of_nothing_is_refused(storage: Storage, format: str) -> None:
    """Checksums of bytes that never were a block: the decoder's own error is translated."""
    table = sample(100)
    for name, data in (("text", b"hello " * 100), ("empty", b""), ("zeros", bytes(100_000))):
        with storage.create_file(f"{format}/{name}") as out:
            out.write(data)
        written = WrittenFile(out.path, out.checksums.size, out.checksums, 0)
        assert_refused(storage, written, format, table.schema)


def test_a_record_whose_size_and_checksums_differ_is_refused(storage: Storage) -> None:
    table = sample(100)
    written = write(storage, "block", "vortex", table)
    wrong = WrittenFile(written.path, written.size + 1, written.checksums, written.row_count)
    with pytest.raises(CorruptionError, match="catalog record is damaged"):
        reopen(storage, wrong, "vortex", table.schema)
