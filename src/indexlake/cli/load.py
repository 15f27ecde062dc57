"""``indexlake load``: load files into a table, which is created from them if it does not exist."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import indexlake as il


@dataclass(frozen=True, slots=True)
class Loaded:
    table: str
    rows: int
    snapshot_id: int | None
    created: bool


def run(lake: il.Lake, name: str, source: il.Files, primary_key: Sequence[str], mode: str) -> Loaded:
    try:
        table = lake.table(name)
    except il.NotFoundError:
        table = lake.create_table(name, source, primary_key=list(primary_key) or None)
        return Loaded(table.name, len(table), table.history()[-1].snapshot_id, True)
    key = [column.lower() for column in table.primary_key]
    if primary_key and [column.lower() for column in primary_key] != key:
        raise il.SchemaError(
            f"Table {table.name!r} exists with the primary key ({', '.join(table.primary_key)}). Leave out "
            "--primary-key to load into it."
        )
    result = lake.pipeline(runner="threads").load(source, table.name, mode)
    return Loaded(table.name, result.rows, result.snapshot_id, False)
