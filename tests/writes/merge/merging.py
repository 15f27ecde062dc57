"""A table whose rows lie in every tier, and what the tests ask of results."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import indexlake as il

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.int64()), pa.field("s", pa.string())])


def spread(lake: il.Lake, t: il.Table, rows: list[dict[str, Any]]) -> None:
    third = -(-len(rows) // 3)
    for n, format in enumerate(("vortex", "parquet", None)):
        if some := rows[n * third : (n + 1) * third]:
            t.insert(some)
            if format is not None:
                if t.config.dump_format != format:
                    t.set_config(dump_format=format)
                lake.pipeline().dump(t.name)


def contents(t: il.Table) -> list[tuple[Any, ...]]:
    """All rows, in the order of the first column."""
    return sorted((tuple(row.values()) for row in t.scan().to_pylist()), key=lambda row: (row[0] is None, row[0] or 0))


def counts(result: il.WriteResult) -> tuple[int, int, int]:
    return result.inserted, result.updated, result.deleted
