"""Filters in Vortex's language: what is pushed, and that NaN never gets lost."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from indexlake.expr import compile
from indexlake.types.vortex import to_vortex

NAN = math.nan


@pytest.fixture(scope="module")
def table() -> pa.Table:
    """Floats in long sorted runs with NaN of both signs inside, so that zones can be skipped."""
    rows = 40_000
    x = np.repeat(np.arange(40.0), 1000)
    x[500], x[20_500], x[39_999] = NAN, -NAN, NAN
    x[10], x[1500] = -0.0, -0.0
    return pa.table(
        {
            "x": x,
            "f": x.astype(np.float32),
            "id": pa.array(range(rows), pa.int64()),
            "big": pa.array([value + 2**63 - 20_000 for value in range(rows)], pa.uint64()),
            "s": [f"k{value:05d}" for value in range(rows)],
            "n": pa.array([None if value % 3 else value for value in range(rows)], pa.int32()),
            "required": pa.array(range(rows), pa.int64()),
        },
        schema=pa.schema(
            [
                *(("x", pa.float64()), ("f", pa.float32()), ("id", pa.int64()), ("big", pa.uint64())),
                *(("s", pa.string()), ("n", pa.int32()), pa.field("required", pa.int64(), nullable=False)),
            ]
        ),
    )


@pytest.fixture(scope="module")
def file(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Any:
    import vortex

    folder: Path = tmp_path_factory.mktemp("pushdown")
    stored = pa.table([to_vortex(column.combine_chunks()) for column in table.columns], schema=table.schema)
    vortex.io.write(stored, str(folder / "a.vortex"))
    return vortex.open(str(folder / "a.vortex"))


# predicate, whether exact (None: nothing can be pushed)
CASES: list[tuple[str, Any, bool | None]] = [
    ("x > 100", None, True),
    ("x >= 39", None, True),
    ("x = $x", {"x": NAN}, True),
    ("x < $x", {"x": NAN}, True),
    ("x > $x", {"x": NAN}, True),
    ("x <= $x", {"x": NAN}, True),
    ("x < 1", None, True),
    ("x = 0", None, True),
    ("x <> 0", None, True),
    ("f > 100", None, True),
    ("f <= 0", None, True),
    ("x in (0, 'nan')", None, True),
    ("id = 7", None, True),
    ("id in (7, 20000, 39999)", None, True),
    ("id in $ids", {"ids": list(range(0, 40_000, 100))}, False),
    ("required < 3", None, True),
    ("big = 9223372036854775808", None, False),
    ("big < 9223372036854775808", None, None),
    ("big < 9223372036854775807", None, True),
    ("s like 'k000%'", None, True),
    ("s like 'k000_1'", None, False),
    ("s >= 'k39990'", None, True),
    ("n is null and id < 10", None, True),
    ("n is not null and id < 10", None, True),
    ("not (n = 3) and id < 10", None, True),
    ("n = 3 or id = 4", None, True),
    ("id = 7 and abs(n) = 6", None, False),
    ("id = 7 or abs(n) = 6", None, False),
    ("coalesce(n, 1) = 1", None, None),
    ("id = 1 and false", None, True),
    ("true", None, None),
]


@pytest.mark.parametrize(("text", "params", "exact"), CASES)
def test_pushed_filters_keep_the_matching_rows(
    table: pa.Table, file: Any, text: str, params: Any, exact: bool | None
) -> None:
    predicate = compile(text, table.schema, params)
    want = table.column("id").filter(predicate.mask(table)).to_pylist()
    pushed = predicate.vortex()
    assert (pushed[1] if pushed is not None else None) is exact
    if pushed is not None:
        found = file.scan(["id"], expr=pushed[0]).read_all().to_arrow_table().column("id").to_pylist()
        assert found == want if pushed[1] else set(found) >= set(want)


def test_a_renamed_predicate_is_pushed_with_the_new_names(tmp_path: Path) -> None:
    import vortex

    path = str(tmp_path / "r.vortex")
    vortex.io.write(pa.table({"f1": [1, 2, 3], "f2": ["a", "b", "c"]}), path)
    schema = pa.schema([("id", pa.int64()), ("s", pa.string())])
    pushed = compile("id >= 2 and s <> 'c'", schema).renamed({"id": "f1", "s": "f2"}).vortex()
    assert pushed is not None
    assert vortex.open(path).scan(expr=pushed[0]).read_all().to_arrow_table().column("f1").to_pylist() == [2]
