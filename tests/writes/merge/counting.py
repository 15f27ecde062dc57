"""Workers that count by merging: each adds 1 to a name, or adds the name."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import indexlake as il
from tests.support.threads import in_threads

SCHEMA = pa.schema([("name", pa.string()), ("v", pa.int64())])
TABLE = "race.names"


def count(address: dict[str, Any], threads: int, names: list[str], batch: int, upsert: bool) -> int:
    """In a process of its own."""
    with il.connect(**address, automatic=False) as lake:
        return run(lake, threads, names, batch, upsert)


def run(lake: il.Lake, threads: int, names: list[str], batch: int, upsert: bool) -> int:
    """How often each name was counted: once for each thread."""
    t = lake.table(TABLE)

    def work(number: int) -> None:
        for at in range(0, len(names), batch):
            _until_done(t, names[at : at + batch], upsert)

    in_threads(threads, work)
    return threads


def _until_done(t: il.Table, names: list[str], upsert: bool) -> None:
    while True:
        try:
            if upsert:
                t.upsert([{"name": name, "v": 1} for name in names])
            else:
                merge = t.merge(pa.table({"name": names}), on="name")
                merge = merge.when_matched_update({"v": il.expr("t.v + 1")})
                merge.when_not_matched_insert({"name": il.expr("s.name"), "v": 1}).execute()
            return
        except il.ConflictError:  # after many tries of its own; nothing has been changed
            continue
