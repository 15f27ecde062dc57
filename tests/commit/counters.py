"""Processes and threads that all change one row."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import indexlake as il
from tests.support.threads import in_threads

TABLE = "hot.counters"
SCHEMA = pa.schema({"id": pa.int64(), "n": pa.int64()})


def create(lake: il.Lake, rows: int = 1) -> il.Table:
    t = lake.create_table(TABLE, SCHEMA, primary_key="id")
    t.insert([{"id": n, "n": 0} for n in range(1, rows + 1)])
    return t


def add_by_statement(lake: il.Lake) -> None:
    lake.table(TABLE).update({"n": il.expr("n + 1")}, "id = 1")


def add_by_run(lake: il.Lake) -> None:
    def add(tx: il.Transaction) -> None:
        t = tx.table(TABLE)
        t.update({"n": t.get(1)["n"] + 1}, "id = 1")

    lake.run(add)


def add_in_threads(lake: il.Lake, threads: int, times: int, add: Callable[[il.Lake], None]) -> None:
    """Every thread adds so many times."""
    in_threads(threads, lambda number: [add(lake) for _ in range(times)])


def in_process(address: dict[str, Any], threads: int, times: int) -> None:
    with il.connect(**address, automatic=False) as lake:
        add_in_threads(lake, threads, times, add_by_statement)


def until_told(address: dict[str, Any], stop: str) -> int:
    """Add without pause until a file appears; how often."""
    added = 0
    with il.connect(**address, automatic=False) as lake:
        while not os.path.exists(stop):
            add_by_statement(lake)
            added += 1
    return added


def hold_a_turn(address: dict[str, Any], ready: str) -> None:
    """Take the turn, reserve the row, and never let go."""
    from indexlake.commit.turns import Turn

    lake = il.connect(**address, automatic=False)
    tx = lake.transaction()
    tx.table(TABLE).update({"n": -1}, "id = 1")
    turn, lost = Turn(lake._turns), il.ConflictError("lost")
    for _ in range(2):  # the second time in spite of the turn
        turn.take(list(tx.write_set.tables), tx.write_set, lost)
    with open(ready, "w", encoding="ascii"):
        pass
    time.sleep(600)
