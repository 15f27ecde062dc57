"""Tables with a primary key are clustered, and begin with several partitions, whatever a test asks for.

What heap tables do, clustered ones do too: `pytest --clustered` runs any test on them.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest

import indexlake as il
from indexlake.catalog import definitions
from indexlake.catalog.definitions import CreateTable
from indexlake.catalog.driver import Transaction
from indexlake.catalog.partitions import Bounds, add_partitions, new_partition_ids
from indexlake.indexes.keys import encode_part

NUMBERS = (-100, 2, 5, 40, 1000)
LETTERS = (b"b", b"k", b"x")


def cluster_everything(patch: pytest.MonkeyPatch) -> None:
    """From here on, as long as the patch lasts."""
    create, apply = il.Lake.create_table, CreateTable.apply
    bounds: list[bytes] = []

    def create_clustered(self: il.Lake, name: Any, schema: Any, primary_key: Any = None, **options: Any) -> il.Table:
        if primary_key and "layout" not in options:
            options["layout"] = "clustered"
        return create(self, name, schema, primary_key, **options)

    def apply_and_remember(self: CreateTable, *args: Any) -> bool:
        bounds[:] = bounds_of(self) if self.primary_key else []
        return apply(self, *args)

    def add_several(tx: Transaction, table_id: int, whole: Iterable[Bounds], snapshot: int) -> None:
        [(number, begin, end)] = whole
        assert begin is end is None
        numbers = [number, *new_partition_ids(tx, len(bounds))]
        edges = pairwise([None, *bounds, None])
        add_partitions(tx, table_id, [(n, *edge) for n, edge in zip(numbers, edges, strict=True)], snapshot)

    patch.setattr(il.Lake, "create_table", create_clustered)
    patch.setattr(CreateTable, "apply", apply_and_remember)
    patch.setattr(definitions, "add_partitions", add_several)


def bounds_of(change: CreateTable) -> list[bytes]:
    """Keys at which a new table is cut, by the type of the first column of its key."""
    codec = change.fields[change.primary_key[0]].codec
    if codec.kind == "int":
        return [encode_part(codec, n, last=True) for n in NUMBERS]
    return list(LETTERS)
