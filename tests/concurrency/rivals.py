"""Several threads of one process insert the same keys as everybody else."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa

import indexlake as il

TABLE = "race.keys"
SCHEMA = pa.schema([pa.field("k", pa.string(), False), pa.field("winner", pa.string())])


def race(address: dict[str, Any], name: str, threads: int, keys: list[str], batch: int) -> dict[str, list[str]]:
    """Insert every key in batches; which keys each thread won."""
    with il.connect(**address, automatic=False) as lake:
        return run(lake, name, threads, keys, batch)


def run(lake: il.Lake, name: str, threads: int, keys: list[str], batch: int) -> dict[str, list[str]]:
    won: dict[str, list[str]] = {f"{name}.{n}": [] for n in range(threads)}
    errors: list[BaseException] = []
    start = threading.Barrier(threads)

    def rival(me: str) -> None:
        try:
            t = lake.table(TABLE)
            start.wait()
            for at in range(0, len(keys), batch):
                rows = [{"k": k, "winner": me} for k in keys[at : at + batch]]
                try:
                    t.insert(rows)
                except il.DuplicateKeyError:
                    continue
                won[me] += keys[at : at + batch]
        except BaseException as error:
            errors.append(error)

    running = [threading.Thread(target=rival, args=(me,)) for me in won]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if errors:
        raise errors[0]
    return won
