"""Random transactions and single statements in threads, against a model, while jobs run.

Three tables (an integer key, a composite key, no key) behind two handles.  Threads insert, update by value and by
expression, delete, upsert, merge, truncate, overwrite and read for update, by methods and by SQL, over several tables
at once; another thread dumps, compacts, freezes, thaws, expires and vacuums.  `model_judge` plays the commits again.
Then every snapshot is read, by scan and by SQL, and the change feed and the history of every table are compared.

Threads are not repeatable: a seed gives the same statements, not the same order of commits.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import indexlake as il
from tests.model.model_table import KINDS, contents
from tests.support.lakes import clock_of, connect
from tests.support.threads import in_threads
from tests.trials.alongside import jobs_alongside
from tests.trials.client import Client
from tests.trials.command import Ground, main
from tests.trials.model_judge import Judge, Wrong

MINUTE = 60_000_000


def play(seed: int, ground: Ground, phases: int = 3, transactions: int = 15, threads: int = 4) -> Counter[str]:
    """A lake that lives through several phases; after each everything since the last one is judged."""
    where, chance = ground.new(), random.Random(seed)
    lakes = [connect(**where) for _ in range(4)]
    counts: Counter[str] = Counter()
    try:
        created = {}
        for kind in KINDS.values():
            config = il.TableConfig(
                direct_write_row_count=chance.choice((3, 50)), block_row_count=chance.choice((3, 8, 20)),
                dump_format=chance.choice(("ipc", "parquet", "vortex")), retention=timedelta(0),
            )  # fmt: skip
            lakes[0].create_table(kind.name, kind.schema, kind.key or None, config=config)
            created[kind.name] = lakes[0].snapshot_id
        judge = Judge(KINDS.values(), created, lakes[0].snapshot_id)
        for phase in range(phases):
            counts += _phase(judge, lakes, f"{seed}.{phase}", transactions, threads)
    finally:
        for lake in lakes:
            lake.close()
    ground.remove(where)
    return counts


def _phase(judge: Judge, lakes: list[il.Lake], seed: str, transactions: int, threads: int) -> Counter[str]:
    first, clock = judge.last, lakes[3]
    moment = dict(clock.catalog.query("select snapshot_id, committed_at from indexlake_snapshot"))[first]
    clock_of(clock).stop(moment + MINUTE)

    def expire() -> None:
        for name, done in clock.pipeline(runner="threads").expire().items():
            table = judge.tables[name.removeprefix("main.")]
            assert done.horizon <= first, f"{name} expired to {done.horizon}, asked for {first}"
            table.horizon = max(table.horizon, done.horizon)

    clients = [Client(lakes[n % 2], f"c{n}", hash_of(seed, n), first) for n in range(threads)]

    def work(number: int) -> None:
        try:
            clients[number].work(transactions)
        except BaseException as error:
            error.add_note(f"in {clients[number].attempts[-1:]}")
            raise

    with jobs_alongside(lakes[2], list(KINDS), hash_of(seed, 99), expire) as jobs:
        in_threads(threads, work)
    attempts = [attempt for client in clients for attempt in client.attempts]
    newest = lakes[2].snapshot_id
    known: dict[tuple[str, int], Counter[Any]] = {}

    def there(name: str, snapshot: int) -> Counter[Any]:
        if (name, snapshot) not in known:
            known[name, snapshot] = contents(lakes[2].table(name).at(snapshot).scan().to_pylist())
        return known[name, snapshot]

    judge.judge(attempts, newest, there)
    _check_tables(judge, lakes, first, newest, there)
    statements = [statement for attempt in attempts for statement in attempt.statements]
    more = {"jobs": jobs.total(), "snapshots": newest - first, "statements": len(statements),
            "overflows": sum(s.answer == "overflow" for s in statements),
            "gave up": sum(client.gave_up for client in clients)}  # fmt: skip
    return Counter(attempt.outcome for attempt in attempts) + Counter(more)


def hash_of(*parts: Any) -> int:
    return random.Random("-".join(map(str, parts))).getrandbits(30)


def _check_tables(
    judge: Judge, lakes: list[il.Lake], first: int, newest: int, there: Callable[[str, int], Counter[Any]]
) -> None:
    for name, model in judge.tables.items():
        table, id = lakes[0].table(name), lakes[0].table(name)._table_id
        for snapshot in range(first, newest + 1):
            wanted = contents(model.states[snapshot].values())
            if there(name, snapshot) != wanted:
                raise Wrong(f"{name} at {snapshot}: {there(name, snapshot)}, the model has {wanted}")
            if snapshot % 7 == 0:
                by_sql = lakes[1].sql(f"select *, 1 as one from {name}", at=snapshot).to_pylist()
                assert contents({k: v for k, v in r.items() if k != "one"} for r in by_sql) == wanted, f"SQL {snapshot}"
        found: dict[int, Counter[Any]] = {}
        for change in table.changes(first).to_pylist():
            kind, snapshot = change.pop("_change_type"), change.pop("_snapshot_id")
            found.setdefault(snapshot, Counter())[kind, tuple(change.values())] += 1
        wanted_feed = {s: changes for s, changes in judge.feed[name].items() if s > first}
        for snapshot in found.keys() | wanted_feed.keys():
            if found.get(snapshot) != wanted_feed.get(snapshot):
                raise Wrong(f"feed of {name} at {snapshot}: {found.get(snapshot)}, not {wanted_feed.get(snapshot)}")
        history = {s.snapshot_id: s.summary.get(str(id)) for s in table.history() if s.snapshot_id > first}
        told = {s: list(counts) for s, counts in model.commits.items() if s > first}
        assert {s: c for s, c in history.items() if c and any(c)} == {s: c for s, c in told.items() if any(c)}
        if model.horizon > model.created_in:
            try:
                table.at(model.horizon - 1)
            except il.SnapshotExpiredError:
                continue
            raise Wrong(f"{name} can be read before its horizon {model.horizon}")


if __name__ == "__main__":
    main("transactions", play, __doc__)
