"""Clustered tables for tests, with the partitions that a test asks for."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import indexlake as il
from indexlake.blocks.block import BlockRecord
from indexlake.indexes.keys import encode_key, key_to_bytes

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])


def table(
    lake: il.Lake, name: str = "t", *bounds: Any, schema: Any = SCHEMA, key: Any = "id", **config: Any
) -> il.Table:
    """A table without rows whose partitions begin at the bounds."""
    settings = il.TableConfig(**{"direct_write_row_count": 10, **config})
    t = lake.create_table(name, schema, primary_key=key, layout="clustered", config=settings)
    if bounds:
        cut(t, *bounds)
    return t


def cut(t: il.Table, *bounds: Any) -> None:
    """New bounds, one commit for each."""
    for bound in bounds:
        t._lake.pipeline(runner="threads").split(t.name, at=bound)


def encoded(t: il.Table, key: Any) -> bytes:
    """A key as bounds hold it."""
    codecs = t._schema_now().key_codecs
    values = key if isinstance(key, tuple) else (key,)
    return key_to_bytes(encode_key(codecs, [c.encode_constant(v) for c, v in zip(codecs, values, strict=True)]))


def rows(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64()), "text": [f"row {n}" for n in numbers]})


def blocks(t: il.Table) -> list[BlockRecord]:
    """The live blocks of partitions."""
    with t._lake._readings.open(t._table_id) as reading:
        return [b for b in reading.state.blocks.records if b.end_snapshot is None and b.partition_id is not None]
