"""Statistics of row groups: they prune for the usual types, and no row is missed, NaN least of all."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from indexlake.blocks.formats import parquet
from indexlake.expr import compile
from indexlake.storage import Storage
from tests.blocks.formats.block_files import arrays_of_every_type, block, everything
from tests.blocks.formats.test_ipc_statistics import awkward, times_pruned

GROUP = 2_000


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Storage:
    return Storage.open(str(tmp_path_factory.mktemp("row groups")))


@pytest.fixture(autouse=True)
def _small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "BATCH_ROWS", GROUP)


@pytest.mark.parametrize("seed", range(3))
def test_a_predicate_never_loses_a_row(storage: Storage, seed: int) -> None:
    table = awkward(seed)
    assert times_pruned(block(storage, "parquet", table, f"random/{seed}"), table, seed) > 30


NAN = float("nan")
FLOATS: list[tuple[str, Any, list[bool]]] = [
    ("x < 3", None, [True, True, False, False]),
    ("x = 5", None, [False, False, True, False]),
    ("x in (1, 5)", None, [False, True, True, False]),
    ("x > 5", None, [True, True, True, True]),
    ("x >= 6", None, [True, True, True, True]),
    ("x = $x", NAN, [True, True, True, True]),
    ("x < $x", NAN, [True, True, True, True]),
    ("x = 0", None, [True, False, False, False]),
    ("x = -0.0", None, [True, False, False, False]),
]


@pytest.mark.parametrize("type", [pa.float32(), pa.float64()])
@pytest.mark.parametrize(("text", "given", "survivors"), FLOATS)
def test_nan_is_within_no_bounds(storage: Storage, type: Any, text: str, given: Any, survivors: list[bool]) -> None:
    x = np.repeat([-0.0, 1.0, 5.0, 9.0], GROUP)
    x[[3, GROUP + 3, 2 * GROUP]] = NAN
    table = pa.table({"x": pa.array(x, type)})
    predicate = compile(text, table.schema, None if given is None else {"x": given})
    reader = block(storage, "parquet", table, f"{type}/{text}/{given}")
    assert reader.surviving(predicate).tolist() == survivors  # type: ignore[union-attr]
    expected = table.filter(predicate.mask(table)).num_rows
    assert everything(reader, ["x"], predicate=predicate).num_rows == expected


@pytest.mark.parametrize(
    ("values", "type", "text"),
    [
        ([False, True], pa.bool_(), "x"),
        ([1, 2], pa.int8(), "x > 1"),
        ([2**31 - 1, 2**32 - 1], pa.uint32(), "x > 3000000000"),
        ([2**63 - 1, 2**64 - 1], pa.uint64(), "x > 9223372036854775808"),
        (["a", "b"], pa.string(), "x > 'a'"),
        (["ü", "\U0010ffff"], pa.large_string(), "x > 'ü'"),
        ([b"\x7f", b"\xff"], pa.binary(), "x > '\\x7F'::blob"),
        ([datetime(1950, 1, 1), datetime(2020, 1, 1)], pa.date32(), "x >= date '2020-01-01'"),
        ([datetime(1950, 1, 1), datetime(2020, 1, 1)], pa.timestamp("ns"), "x >= timestamp '2020-01-01'"),
        ([datetime(1950, 1, 1), datetime(2020, 1, 1)], pa.timestamp("ms", "UTC"), "x >= timestamptz '2020-01-01'"),
        ([Decimal("-1.50"), Decimal("1.50")], pa.decimal128(10, 2), "x > 0"),
        ([Decimal("-1.50"), Decimal("1.50")], pa.decimal128(38, 2), "x > 0"),
        ([None, 5], pa.int32(), "x is not null"),
    ],
    ids=str,
)
def test_the_usual_types_are_pruned(storage: Storage, values: list[Any], type: Any, text: str) -> None:
    table = pa.table({"x": pa.array([value for value in values for _ in range(GROUP)], type)})
    predicate = compile(text, table.schema)
    reader = block(storage, "parquet", table, f"types/{type}")
    assert reader.surviving(predicate).tolist() == [False, True]  # type: ignore[union-attr]
    assert everything(reader, ["x"], predicate=predicate).num_rows == GROUP


def test_a_row_group_with_nulls_or_values_of_any_type_survives(storage: Storage) -> None:
    for name, array in arrays_of_every_type():
        table = pa.table([array], schema=pa.schema([("x", array.type)]))
        reader = block(storage, "parquet", table, f"nulls/{name}")
        for text, count in ("x is null", array.null_count), ("x is not null", len(array) - array.null_count):
            survivors = reader.surviving(compile(text, table.schema))
            assert count == 0 or survivors is None or survivors.all(), name
