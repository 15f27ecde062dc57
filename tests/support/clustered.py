"""Tables with a primary key are clustered, and begin with several partitions, whatever a test asks for.

Partitions are so small that before each dump and each commit some are merged, split or joined.

What heap tables do, clustered ones do too: `pytest --clustered` runs any test on them.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

import indexlake as il
from indexlake.catalog import definitions
from indexlake.catalog.definitions import CreateTable
from indexlake.catalog.driver import Transaction
from indexlake.catalog.partitions import Bounds, add_partitions, new_partition_ids
from indexlake.commit.write_set import WriteResult, WriteSet
from indexlake.indexes.keys import encode_part
from indexlake.pipeline import reshape
from indexlake.pipeline.job import JobBusy
from indexlake.pipeline.pipeline import Pipeline
from indexlake.pipeline.runner import ThreadRunner
from tests.support.partitions import range_problems

PARTITION_ROWS = 4
"""So few that merges, splits and joins happen all the time."""

NUMBERS = (-100, 2, 5, 40, 1000)
LETTERS = (b"b", b"k", b"x")


def cluster_everything(patch: pytest.MonkeyPatch) -> None:
    """From here on, as long as the patch lasts."""
    create, apply, run_dump, commit = il.Lake.create_table, CreateTable.apply, Pipeline.dump, il.Lake._commit
    bounds: list[bytes] = []

    def create_clustered(self: il.Lake, name: Any, schema: Any, primary_key: Any = None, **options: Any) -> il.Table:
        if primary_key and "layout" not in options:
            options["layout"] = "clustered"
            options["config"] = replace(options.get("config") or il.TableConfig(), partition_row_count=PARTITION_ROWS)
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

    def reshape_and_dump(self: Pipeline, table: str | None = None) -> Any:
        for found in self._tables(table):
            keep_in_shape(self._lake, found.table_id)
        return run_dump(self, table)

    def reshape_and_commit(self: il.Lake, ws: WriteSet) -> WriteResult:
        for table_id in set(ws.tables) - (ws.draft.created if ws.draft is not None else set()):
            keep_in_shape(self, table_id)
        return commit(self, ws)

    patch.setattr(il.Lake, "create_table", create_clustered)
    patch.setattr(Pipeline, "dump", reshape_and_dump)
    patch.setattr(il.Lake, "_commit", reshape_and_commit)
    patch.setattr(CreateTable, "apply", apply_and_remember)
    patch.setattr(definitions, "add_partitions", add_several)


def keep_in_shape(lake: il.Lake, table_id: int) -> None:
    """Merge, split and join what is due, and look at what came of it."""
    with suppress(JobBusy):
        if reshape.keep_shape(lake, table_id, ThreadRunner(lake.storage)) is not None:
            assert not list(range_problems(lake, table_id, [lake.snapshot_id]))


def bounds_of(change: CreateTable) -> list[bytes]:
    """Keys at which a new table is cut, by the type of the first column of its key."""
    codec = change.fields[change.primary_key[0]].codec
    if codec.kind == "int":
        return [encode_part(codec, n, last=True) for n in NUMBERS]
    return list(LETTERS)
