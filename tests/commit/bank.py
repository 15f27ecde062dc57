"""A bank whose tellers are threads and processes: money moves between accounts, every transaction is recorded.

Each row carries the tag of the transaction that wrote it, so a record of what a transaction read names the
transactions it read from.  The work of one process is `work`; it can be sent to another process.
"""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

import indexlake as il
from tests.support.threads import in_threads

ACCOUNTS = 12
START = 100
TABLE = "bank.accounts"
SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), False), pa.field("balance", pa.int64(), False), pa.field("writer", pa.string())]
)
INITIAL = "initial"


@dataclass
class Record:
    """What one transaction did.  `begin` is the snapshot it read; `commit` is None if it was not committed."""

    tag: str
    begin: int | None
    commit: int | None = None
    reads: dict[int, str] = field(default_factory=dict)
    writes: list[int] = field(default_factory=list)


def open_bank(lake: il.Lake, **settings: Any) -> il.Table:
    t = lake.create_table(TABLE, SCHEMA, primary_key="id", config=il.TableConfig(**settings))
    t.insert([{"id": n, "balance": START, "writer": INITIAL} for n in range(ACCOUNTS)])
    return t


def work(address: dict[str, Any], name: str, threads: int, transactions: int, seed: int) -> list[Record]:
    """Tellers of one process; returns their records."""
    with il.connect(**address) as lake:
        return tellers(lake, name, threads, transactions, seed)


def tellers(lake: il.Lake, name: str, threads: int, transactions: int, seed: int) -> list[Record]:
    records: list[Record] = []

    def teller(number: int) -> None:
        source = random.Random(f"{seed}-{name}-{number}")
        for n in range(transactions):
            records.extend(_serve(lake, source, f"{name}.{number}.{n}"))

    in_threads(threads, teller)
    return records


def _serve(lake: il.Lake, source: random.Random, tag: str) -> list[Record]:
    """One customer: a statement, or a transaction that is tried until it wins; every try is recorded."""
    a, b = source.sample(range(ACCOUNTS), 2)
    amount = source.randint(1, 10)
    if source.random() < 0.2:
        return [_statement(lake, a, b, amount, tag)]
    kind = source.choice(["update", "update", "twice", "replace", "look"])
    tries: list[Record] = []
    while True:
        tries.append(_transaction(lake, source, kind, a, b, amount, f"{tag}.{len(tries)}"))
        if tries[-1].commit is not None or kind == "look":
            return tries


def _statement(lake: il.Lake, a: int, b: int, amount: int, tag: str) -> Record:
    moved = il.expr("case when id = $a then balance - $x else balance + $x end", {"a": a, "x": amount})
    done = lake.table(TABLE).update({"balance": moved, "writer": tag}, "id in ($a, $b)", params={"a": a, "b": b})
    assert done.rows == 2
    return Record(tag, None, done.snapshot_id, {}, [a, b])


def _transaction(lake: il.Lake, source: random.Random, kind: str, a: int, b: int, amount: int, tag: str) -> Record:
    tx = lake.transaction()
    record = Record(tag, tx.snapshot_id)
    t = tx.table(TABLE)
    rows = {}
    for n in (a, b):
        row = t.get(n)
        assert row is not None, f"account {n} is not there at {tx.snapshot_id}"
        rows[n] = row
        record.reads[n] = row["writer"]
    everything = t.scan().to_pylist()
    assert sorted(r["id"] for r in everything) == list(range(ACCOUNTS)), everything
    assert sum(r["balance"] for r in everything) == ACCOUNTS * START, f"read skew at {tx.snapshot_id}"
    for row in everything:
        assert record.reads.setdefault(row["id"], row["writer"]) == row["writer"], "a fuzzy read"
    if kind == "look":
        tx.rollback()
        return record
    record.writes = [a, b]
    for n, change in ((a, -amount), (b, amount)):
        balance = rows[n]["balance"] + change
        if kind == "replace":
            assert t.delete("id = $n", params={"n": n}).rows == 1
            t.insert({"id": n, "balance": balance, "writer": tag})
            continue
        if kind == "twice":
            t.update({"balance": -(10**6), "writer": f"{tag} (half-way)"}, "id = $n", params={"n": n})
        assert t.update({"balance": balance, "writer": tag}, "id = $n", params={"n": n}).rows == 1
    if source.random() < 0.1:
        tx.rollback()
        return record
    with contextlib.suppress(il.ConflictError):
        record.commit = tx.commit().snapshot_id
    return record
