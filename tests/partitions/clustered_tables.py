"""Clustered tables for the tests of meta files and restore, and what is in them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import indexlake as il
from indexlake.partitions.meta import TableMeta
from indexlake.pipeline.meta import meta_files, read_meta

COLUMNS = {"id": "int64", "v": "int32", "text": "string"}


def clustered(lake: il.Lake, name: str = "s.t", **config: Any) -> il.Table:
    settings = {"direct_write_row_count": 40, "partition_row_count": 100, **config}
    return lake.create_table(
        name, COLUMNS, primary_key="id", layout="clustered", config=il.TableConfig(**settings), exist_ok=True
    )


def rows(start: int, count: int) -> list[dict[str, Any]]:
    return [{"id": n, "v": n * 7919 % 1009, "text": f"row {n}"} for n in range(start, start + count)]


def content(t: il.Table) -> list[dict[str, Any]]:
    return t.scan(order_by="id", with_row_id=True).to_pylist()


def in_blocks(t: il.Table) -> list[dict[str, Any]]:
    """The rows that do not lie in the hot store."""
    places = {r["_indexlake_row_id"]: r["location"] for r in t.row_metadata().read_all().to_pylist()}
    hot = "inline", "memory:"
    return [row for row in content(t) if not places[row["_indexlake_row_id"]].startswith(hot)]


def metas(lake: il.Lake, table_id: int) -> list[str]:
    """The meta files of a table, the newest first."""
    return [m.file.path for m in meta_files(lake.storage, lake.storage.list("")).get(table_id, [])]


def newest_meta(lake: il.Lake, t: il.Table) -> TableMeta:
    return read_meta(lake.storage, metas(lake, t._table_id)[0])


def lose_catalog(lake: il.Lake, to: Path) -> Path:
    """A copy of the files of a lake in a folder, without the catalog."""
    shutil.copytree(lake.storage.root, to)
    return to
