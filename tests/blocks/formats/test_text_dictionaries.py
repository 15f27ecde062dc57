"""Text columns as the dictionaries that a file holds: only where asked for, and always the same values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from indexlake.expr import compile
from indexlake.storage import Storage
from indexlake.types.dictionaries import TEXT, as_text_dictionary
from tests.blocks.formats.block_files import FORMATS, block

ROWS = 100_000
NAMES = ["few", "holes", "kind", "own", "mixed", "n"]


@pytest.fixture(scope="module")
def table() -> pa.Table:
    few = [f"text number {n}" for n in range(5)]
    return pa.table(
        {
            "few": [few[n % 5] for n in range(ROWS)],
            "holes": [None if n % 3 == 0 else few[n % 5] for n in range(ROWS)],
            "kind": pa.array([few[n % 4] for n in range(ROWS)], pa.dictionary(pa.int8(), pa.string())),
            "own": [f"a text of row {n}" for n in range(ROWS)],
            "mixed": [few[n % 5] if n < ROWS // 2 else f"a text of row {n}" for n in range(ROWS)],
            "n": range(ROWS),
        }
    )


@pytest.fixture(scope="module", params=FORMATS)
def reader(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, table: pa.Table) -> Any:
    storage = Storage.open(str(tmp_path_factory.mktemp("blocks")))
    return block(storage, request.param, table, request.param)


POSITIONS = np.arange(7, ROWS, 11, dtype=np.uint64)


@pytest.mark.parametrize("positions", [None, POSITIONS])
@pytest.mark.parametrize("condition", [None, "n % 2 = 0 and few <> 'text number 1'", "n > 90000", "holes is null"])
def test_the_values_are_the_same_in_every_encoding(
    reader: Any, table: pa.Table, positions: Any, condition: Any
) -> None:
    predicate = None if condition is None else compile(condition, reader.schema)
    asked = reader.read(NAMES, positions, predicate, 30_000, NAMES)
    plain = reader.read(NAMES, positions, predicate, 30_000)
    found = [row for batch in asked for row in batch.to_pylist()]
    assert found == [row for batch in plain for row in batch.to_pylist()]
    assert found


def test_only_columns_that_are_asked_for_come_as_dictionaries(reader: Any, table: pa.Table) -> None:
    for batch in reader.read(NAMES, None, None, 30_000, ["few"]):
        for field in batch.schema:
            assert field.type == table.schema.field(field.name).type or (field.name, field.type) == ("few", TEXT)


def test_a_vortex_file_says_which_columns_begin_as_dictionaries(tmp_path: Path, table: pa.Table) -> None:
    reader = block(Storage.open(str(tmp_path)), "vortex", table, "vortex")
    assert reader.dictionary_columns(NAMES) == ["few", "holes", "kind", "mixed"]
    first = next(reader.read(["few", "holes", "kind", "own"], None, None, 30_000, NAMES))
    assert [f.type for f in first.schema] == [TEXT, TEXT, TEXT, pa.string()]
    assert block(Storage.open(str(tmp_path)), "parquet", table, "parquet").dictionary_columns(NAMES) == []


def test_an_empty_file_holds_no_dictionaries(tmp_path: Path, table: pa.Table) -> None:
    reader = block(Storage.open(str(tmp_path)), "vortex", table.slice(0, 0), "empty")
    assert reader.dictionary_columns(NAMES) == []
    assert list(reader.read(NAMES, None, None, 30_000, NAMES)) == []


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["a", None, "a", ""]),
        pa.array(["a", None], pa.string_view()),
        pa.array(["a", None], pa.large_string()),
        pa.array([None, None], pa.string()),
        pa.array([], pa.string()),
        pa.array(["x", "y", None, "x"], pa.dictionary(pa.int8(), pa.large_string())).slice(1),
        pa.array(["x", "y", None, "x"]).dictionary_encode(),
    ],
)
def test_any_text_becomes_a_dictionary_of_one_type(array: pa.Array) -> None:
    made = as_text_dictionary(array)
    made.validate(full=True)
    assert made.type == TEXT
    assert made.to_pylist() == array.to_pylist()
