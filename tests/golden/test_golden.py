"""Files written by earlier versions are read by this one, to the bit: pins the formats across upgrades."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from indexlake.blocks.formats import open_reader
from indexlake.indexes.btree.segment import Segment
from indexlake.storage import Storage
from tests.golden.golden_rows import FOLDER, ROWS, golden_checksums, golden_table

SETS = sorted(p.name for p in FOLDER.iterdir() if (p / "checksums.json").exists())


def test_there_is_at_least_one_golden_set():
    assert SETS


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("format", ["vortex", "parquet", "ipc"])
def test_a_golden_block_reads_as_it_was_written(name, format):
    storage, checksums = Storage.open(str(FOLDER / name)), golden_checksums(name)[f"block.{format}"]
    expected = golden_table()
    reader = open_reader(storage, f"block.{format}", format, checksums.size, checksums, expected.schema)
    found = pa.Table.from_batches(list(reader.read(expected.schema.names)), expected.schema)
    # Compare encoded values: NaN equals itself there.
    nan = expected.schema.get_field_index("f3")
    assert np.array_equal(found.column(nan).to_numpy(), expected.column(nan).to_numpy(), equal_nan=True)
    assert found.remove_column(nan).equals(expected.remove_column(nan))
    assert reader.take(np.array([7, 3], np.uint64), ["f1"]).column(0).to_pylist() == [-951, -979]


@pytest.mark.parametrize("name", SETS)
def test_a_golden_segment_finds_every_key_and_no_other(name):
    storage, checksums = Storage.open(str(FOLDER / name)), golden_checksums(name)
    ints, words = (Segment(storage.open_file(name, checksums[name])) for name in ("ints.keys", "words.keys"))
    assert ints.starts == words.starts == (0, ROWS)
    for n in range(ROWS):
        assert ints.find(n * 7 - 1000 + (1 << 63)) == [n]
        assert words.find(f"key-{n:05}".encode()) == [n]
    assert ints.find((1 << 63) + 2) == []
    assert words.find(b"key-") == []
