"""Lists that many append to: threads and processes, by methods and SQL, while jobs move the rows around.

A list is kept in one of three ways: as an Arrow list that is read, made longer and written back; as text that an
expression adds to; or as a row for each entry, whose number is part of the primary key.  What every client saw goes to
`list_checker`, which knows nothing of snapshots and finds the cycles that snapshot isolation forbids.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from concurrent.futures import Executor
from typing import Any

import pyarrow as pa

import indexlake as il
from tests.support.one_owner import other_processes
from tests.support.threads import in_threads
from tests.trials.alongside import jobs_alongside
from tests.trials.command import Ground, main
from tests.trials.list_checker import Done, Key, Op, anomalies, append, read, write_skews

SCHEMAS = {
    "lists": (pa.schema([pa.field("k", pa.int64(), False), pa.field("items", pa.list_(pa.int64()))]), ["k"]),
    "texts": (pa.schema([pa.field("k", pa.int64(), False), pa.field("items", pa.string())]), ["k"]),
    "entries": (pa.schema([pa.field("k", pa.int64(), False), pa.field("n", pa.int64(), False),
                           pa.field("item", pa.int64())]), ["k", "n"]),
}  # fmt: skip
KEYS: list[Key] = [(table, k) for table in SCHEMAS for k in range(3)]


class Client:
    """One thread: its transactions, and what it saw."""

    def __init__(self, lake: il.Lake, name: str, number: int, seed: int) -> None:
        self.lake = lake
        self.name = name
        self.random = random.Random(f"{seed}-{name}")
        self.values = iter(range(number * 1_000_000 + 1, (number + 1) * 1_000_000))
        self.seen: list[Done] = []

    def work(self, transactions: int) -> None:
        for _ in range(transactions):
            if self.random.random() < 0.25:
                self.statement()
            else:
                self.transaction()

    def transaction(self) -> None:
        done = Done(f"{self.name}.{len(self.seen)}", [], committed=False, begun=time.monotonic())
        self.seen.append(done)
        tx = self.lake.transaction()
        by_sql = self.random.random() < 0.3
        try:
            for _ in range(self.random.randint(1, 4)):
                key = self.random.choice(KEYS)
                if self.random.random() < 0.45:
                    done.ops.append(read(key, *self.list(tx, key, by_sql)))
                else:
                    self.append(tx, key, by_sql, done.ops)
            if any(op.value is not None for op in done.ops) and self.random.random() < 0.05:
                tx.rollback()
                return
            tx.commit()
        except (il.ConflictError, il.DuplicateKeyError):
            tx.rollback()
            return
        done.committed, done.ended = True, time.monotonic()

    def list(self, tx: il.Transaction, key: Key, by_sql: bool) -> tuple[int, ...]:
        table, k = key
        if table == "entries":
            if by_sql:
                rows = tx.sql("select n, item from entries where k = $k order by n", {"k": k}).fetchall()
            else:
                rows = [(r["n"], r["item"]) for r in tx.table(table).scan("k = $k", params={"k": k}).to_pylist()]
            assert sorted(n for n, _ in rows) == list(range(len(rows))), f"a gap in {key}: {rows}"
            return tuple(item for _, item in sorted(rows))
        locks = not by_sql and self.random.random() < 0.2
        if by_sql:
            found = tx.sql(f"select items from {table} where k = $k", {"k": k}).to_pylist()
        elif locks:
            found = tx.table(table).scan("k = $k", params={"k": k}, for_update=True).to_pylist()
        else:
            row = tx.table(table).get(k)
            found = [] if row is None else [row]
        assert len(found) <= 1, f"{key} is there twice: {found}"
        items = found[0]["items"] if found else []
        return tuple(map(int, items[1:].split(","))) if table == "texts" and items else tuple(items)

    def append(self, tx: il.Transaction, key: Key, by_sql: bool, ops: list[Op]) -> None:
        (table, k), value = key, next(self.values)
        if table == "texts":
            self.add_text(tx, k, value, by_sql)
        else:
            found = self.list(tx, key, by_sql)
            ops.append(read(key, *found))
            if table == "entries" and by_sql:
                tx.sql("insert into entries values (?, ?, ?)", [k, len(found), value])
            elif table == "entries":
                tx.table(table).insert({"k": k, "n": len(found), "item": value})
            else:
                tx.table(table).upsert({"k": k, "items": [*found, value]})
        ops.append(append(key, value))

    def add_text(self, where: il.Transaction | il.Lake, k: int, value: int, by_sql: bool) -> None:
        """Without reading it: an entry at the end, or the first one."""
        text = f",{value}"
        if by_sql:
            where.sql(
                "merge into texts using (select $k as k, $text as items) as s on texts.k = s.k "
                "when matched then update set items = texts.items || s.items when not matched then insert",
                {"k": k, "text": text},
            )
            return
        merge = where.table("texts").merge([{"k": k, "items": text}], on="k")
        merge.when_matched_update({"items": il.expr("t.items || s.items")}).when_not_matched_insert().execute()

    def statement(self) -> None:
        """A statement of its own, which comes through whoever else writes."""
        key = ("texts", self.random.randrange(3))
        done = Done(f"{self.name}.{len(self.seen)}", [append(key, next(self.values))], begun=time.monotonic())
        self.seen.append(done)
        value = done.ops[0].value
        assert value is not None
        try:
            self.add_text(self.lake, key[1], value, self.random.random() < 0.3)
        except il.ConflictError:  # it gave up
            done.committed = False
            return
        done.ended = time.monotonic()


def clients(lake: il.Lake, name: str, first: int, threads: int, transactions: int, seed: int) -> list[Done]:
    """So many clients, each in a thread of its own; what they saw."""
    found = [Client(lake, f"{name}{n}", first + n, seed) for n in range(threads)]
    in_threads(threads, lambda number: found[number].work(transactions))
    return [done for client in found for done in client.seen]


def in_process(where: dict[str, Any], *arguments: Any) -> list[Done]:
    with il.connect(**where, automatic=False) as lake:
        return clients(lake, *arguments)


def play(seed: int, ground: Ground, transactions: int = 30, processes: int = 2, threads: int = 3) -> Counter[str]:
    where, chance = ground.new(), random.Random(seed)
    with il.connect(**where, automatic=False) as lake:
        for name, (schema, key) in SCHEMAS.items():
            config = il.TableConfig(
                dump_format=chance.choice(("vortex", "parquet", "ipc")), block_row_count=chance.choice((2, 5, 20))
            )
            lake.create_table(name, schema, primary_key=key, config=config)
        with jobs_alongside(lake, list(SCHEMAS), seed) as jobs:
            others = []
            if processes:
                pool = ground.shared("processes", _pool)
                work = (threads, transactions, seed)
                others = [pool.submit(in_process, where, f"p{n}.", 10 + 10 * n, *work) for n in range(processes)]
            history = clients(lake, "main.", 0, threads, transactions, seed)
            for other in others:
                history += other.result(timeout=200)
        end = Client(lake, "end", 99, seed)
        with lake.transaction() as tx:
            history.append(Done("end", [], begun=time.monotonic()))
            history[-1].ops += [read(key, *end.list(tx, key, False)) for key in KEYS]
            history[-1].ended = time.monotonic()
    found = anomalies(history)
    assert not found, "\n".join(found)
    ground.remove(where)
    committed = sum(d.committed for d in history)
    return Counter(
        {"commits": committed, "refused or rolled back": len(history) - committed, "jobs": jobs.total(),
         "write skews": write_skews(history)}
    )  # fmt: skip


def _pool() -> Executor:
    return other_processes(2)


if __name__ == "__main__":
    # Other processes import this module by its own name.
    from tests.trials.list_append import play as by_name

    main("list_append", by_name, __doc__)
