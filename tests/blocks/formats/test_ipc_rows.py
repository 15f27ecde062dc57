"""Rows taken from the memory map of an Arrow block are what Arrow reads there, whatever columns stand beside."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from indexlake.blocks.formats.ipc import BATCH_ROWS
from indexlake.storage import Storage
from tests.blocks.formats.block_files import arrays_of_every_type, reopen, write

ROWS = BATCH_ROWS + 700
SIMPLE: dict[str, list[Any]] = {
    "bool": [True, False, None], "i8": [-128, 127, None], "u64": [0, 2**64 - 1, None], "f32": [1.5, -0.0, None],
    "f64": [float("inf"), 2.25, None], "text": ["", "ü\0x", None, "a" * 40], "octets": [b"", b"\xff\0", None],
    "never null": [7, 8, 9], "always null": [None],
}  # fmt: skip
TYPES = {
    "bool": pa.bool_(), "i8": pa.int8(), "u64": pa.uint64(), "f32": pa.float32(), "f64": pa.float64(),
    "text": pa.string(), "octets": pa.large_binary(), "never null": pa.int32(), "always null": pa.large_string(),
}  # fmt: skip


def simple(pick: random.Random) -> dict[str, pa.Array]:
    return {name: pa.array(pick.choices(values, k=ROWS), TYPES[name]) for name, values in SIMPLE.items()}


def test_every_type_may_stand_in_front_of_simple_ones(tmp_path_factory: pytest.TempPathFactory) -> None:
    storage = Storage.open(str(tmp_path_factory.mktemp("rows")))
    pick = random.Random(14)
    columns = simple(pick)
    others = {name: array for name, array in arrays_of_every_type() if name not in columns}
    for number, (name, array) in enumerate(others.items()):
        front = pa.concat_arrays([array] * (ROWS // len(array) + 1)).slice(0, ROWS)
        table = pa.table([front, *columns.values()], names=["front", *columns])
        reader = reopen(storage, write(storage, f"{number}", "ipc", table), "ipc", table.schema)
        for position in (0, 1, 9, BATCH_ROWS - 1, BATCH_ROWS, ROWS - 1, pick.randrange(ROWS)):
            names = pick.sample(list(columns), 5)
            expected = table.select(names).slice(position, 1).to_pylist()[0]
            assert repr(reader.row(position, names)) == repr(expected), (name, position)


def test_columns_that_only_arrow_reads_stand_between_others(tmp_path_factory: pytest.TempPathFactory) -> None:
    storage = Storage.open(str(tmp_path_factory.mktemp("rows")))
    moments = pa.array([n if n % 3 else None for n in range(ROWS)], pa.timestamp("us", "UTC"))
    table = pa.table({"n": pa.array(range(ROWS)), "at": moments, "text": [f"row {n}" for n in range(ROWS)]})
    reader = reopen(storage, write(storage, "mixed", "ipc", table), "ipc", table.schema)
    names = ["text", "at", "n"]
    for position in (0, 5, BATCH_ROWS, ROWS - 1):
        assert reader.row(position, names) == table.select(names).slice(position, 1).to_pylist()[0]
