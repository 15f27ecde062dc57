"""Several threads of one process insert the same keys as everybody else."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import indexlake as il
from tests.support.threads import in_threads

TABLE = "race.keys"
SCHEMA = pa.schema([pa.field("k", pa.string(), False), pa.field("winner", pa.string())])


def race(address: dict[str, Any], name: str, threads: int, keys: list[str], batch: int) -> dict[str, list[str]]:
    """Insert every key in batches; which keys each thread won."""
    with il.connect(**address, automatic=False) as lake:
        return run(lake, name, threads, keys, batch)


def run(lake: il.Lake, name: str, threads: int, keys: list[str], batch: int) -> dict[str, list[str]]:
    won: dict[str, list[str]] = {f"{name}.{n}": [] for n in range(threads)}
    t = lake.table(TABLE)

    def rival(number: int) -> None:
        me = f"{name}.{number}"
        for at in range(0, len(keys), batch):
            rows = [{"k": k, "winner": me} for k in keys[at : at + batch]]
            try:
                t.insert(rows)
            except il.DuplicateKeyError:
                continue
            won[me] += keys[at : at + batch]

    in_threads(threads, rival)
    return won
