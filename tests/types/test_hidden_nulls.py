"""A null in the dictionary of a dictionary array is a null: a column that may have none refuses it."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import indexlake as il

CODED = pa.dictionary(pa.int32(), pa.string())
ROWS = pa.table(
    {
        "id": pa.array([1, 2], pa.int64()),
        "code": pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["a", None])),
    }
)
WAYS: dict[str, Callable[[il.Table], object]] = {
    "insert": lambda t: t.insert(ROWS),
    "insert a batch": lambda t: t.insert(ROWS.to_batches()[0]),
    "insert a stream": lambda t: t.insert(ROWS.to_reader()),
    "upsert": lambda t: t.upsert(ROWS),
    "merge": lambda t: t.merge(ROWS, on="id").when_not_matched_insert().execute(),
}


@pytest.mark.parametrize("direct", [1, 1_000], ids=["to blocks", "hot"])
@pytest.mark.parametrize("format", ["vortex", "parquet", "ipc"])
@pytest.mark.parametrize("way", list(WAYS))
def test_a_required_column_refuses_it(lake: il.Lake, way: str, format: str, direct: int) -> None:
    config = il.TableConfig(dump_format=format, direct_write_row_count=direct)
    schema = pa.schema([("id", pa.int64()), pa.field("code", CODED, False)])
    t = lake.create_table("t", schema, primary_key="id", config=config)
    with pytest.raises(il.ConstraintError, match="code"):
        WAYS[way](t)
    assert t.scan().count() == 0


def test_a_primary_key_refuses_it(lake: il.Lake) -> None:
    t = lake.create_table("t", ROWS.schema, primary_key="code")
    with pytest.raises(il.ConstraintError, match="code"):
        t.insert(ROWS)
    assert t.scan().count() == 0


def test_a_null_in_the_dictionary_that_no_row_has_is_none(lake: il.Lake) -> None:
    t = lake.create_table("t", pa.schema([("id", pa.int64()), pa.field("code", CODED, False)]))
    t.insert(ROWS.slice(0, 1))
    assert t.scan().to_pylist() == [{"id": 1, "code": "a"}]


@pytest.mark.parametrize("format", ["vortex", "parquet", "ipc"])
def test_a_column_that_may_be_null_takes_it(lake: il.Lake, format: str) -> None:
    t = lake.create_table("t", ROWS.schema, config=il.TableConfig(dump_format=format, direct_write_row_count=1))
    t.insert(ROWS)
    assert t.scan("code is null").to_pylist() == [{"id": 2, "code": None}]
