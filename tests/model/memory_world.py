"""A lake in memory against plain dictionaries: random transactions over several tables, alone and in groups, with
loads, definitions, checkpoints of chosen ranges, compactions, expiries, long readers, clean and crash-like reopenings.

Rows of the model have the column ``x`` under a name of its own for each time that it was added, as the engine has a
field.  A crash is a copy of the lake's folder, made while it is open: whatever was acknowledged is there.
"""

from __future__ import annotations

import random
import shutil
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

import indexlake as il
from indexlake.pipeline.dump import commit_chunk, plan_chunk, purge, run_task
from indexlake.pipeline.job import Job
from tests.feed.versions import versions_at
from tests.model.model_table import KINDS, Kind, ModelTable, ModelTransaction, Row, State, assignments, predicates
from tests.support.folders import new_folder
from tests.support.grouped import together
from tests.support.lakes import clock_of, connect

REFUSALS = {"expired": il.SnapshotExpiredError, "conflict": il.ConflictError, "duplicate": il.DuplicateKeyError}
MINUTE = 60_000_000
KEYS = 7

STEPS = {
    "write": 10, "begin": 3, "write_in": 10, "commit": 4, "commit_group": 3, "roll_back": 1, "alter": 1, "index": 1,
    "dump": 2, "plan_chunk": 4, "commit_chunk": 4, "rewrite": 2, "expire": 1, "read_long": 2, "let_readers_go": 1,
    "reopen": 0.5, "crash": 1,
}  # fmt: skip


class Table:
    """One table of the world: the model, its column ``x`` through time, and the versions of every snapshot."""

    def __init__(self, kind: Kind, created_in: int) -> None:
        self.name = kind.name
        self.kind = kind
        self.model = ModelTable(kind, created_in)
        self.versions: dict[int, dict[int, int]] = {created_in: {}}
        self.x: list[tuple[int, str | None, int]] = [(created_in, None, 0)]  # since, its own name, default

    def x_at(self, snapshot: int) -> str | None:
        return next(name for since, name, _ in reversed(self.x) if since <= snapshot)

    def shown(self, row: Row, snapshot: int) -> tuple[Any, ...]:
        """A row as a snapshot shows it."""
        values = tuple(row[c] for c in self.kind.schema.names)
        name = self.x_at(snapshot)
        return values if name is None else (*values, row[name])

    def contents(self, snapshot: int, state: State | None = None) -> Counter[tuple[Any, ...]]:
        return Counter(self.shown(row, snapshot) for row in (state or self.model.states[snapshot]).values())

    def settle(self, snapshot: int) -> None:
        """After anything was committed: nobody forgot a column that was added meanwhile."""
        model = self.model
        model.advance(snapshot)
        _, name, default = self.x[-1]
        if name is not None and any(name not in row for row in model.now.values()):
            model.states[model.last] = {n: {name: default, **row} for n, row in model.now.items()}
        for s in range(max(self.versions) + 1, snapshot + 1):
            self.versions[s] = {n: v for n, v in model.version.items() if n in model.states[s] and v <= s}

    def changes(self, snapshot: int) -> Counter[tuple[Any, ...]]:
        """What the feed says of one commit, of which it shows the columns of ``until``."""
        before, after = self.model.states[snapshot - 1], self.model.states[snapshot]
        old, new = self.versions[snapshot - 1], self.versions[snapshot]
        found: Counter[tuple[Any, ...]] = Counter()
        for n in before.keys() | after.keys():
            if n not in after:
                found["delete", self._plain(before[n])] += 1
            elif n not in before:
                found["insert", self._plain(after[n])] += 1
            elif old[n] != new[n]:
                found["update_preimage", self._plain(before[n])] += 1
                found["update_postimage", self._plain(after[n])] += 1
        return found

    def _plain(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[c] for c in self.kind.schema.names)


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.seed = seed
        self.log: list[str] = []
        self.folder = new_folder("memory")
        self.lake = self._connect()
        self.tables: list[Table] = []
        for kind in KINDS.values():
            config = il.TableConfig(
                direct_write_row_count=self.random.choice([5, 50]), block_row_count=self.random.choice([3, 8]),
                dump_format="ipc", retention=timedelta(0),
            )  # fmt: skip
            self.lake.create_table(kind.name, kind.schema, kind.key or None, config=config)
            self.tables.append(Table(kind, self.lake.snapshot_id))
        self.open: list[tuple[il.Transaction, dict[str, ModelTransaction], int]] = []
        self.chunks: list[tuple[Any, Any]] = []
        self.readings: list[tuple[ExitStack, Any, Any]] = []
        self.adds = 0
        self.horizon = 0
        self.done: Counter[str] = Counter()
        self._settle()

    def _connect(self) -> il.Lake:
        lake = connect(self.folder, hot="memory")
        lake._scan_threads = 1
        return lake

    def _settle(self) -> None:
        last = self.lake.snapshot_id
        for table in self.tables:
            table.settle(last)

    def close(self) -> None:
        self.let_readers_go()
        for tx, _, _ in self.open:
            tx.rollback()
        self.lake.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # ------------------------------------------------------------ statements

    def statement(self, table: Table) -> tuple[str, Callable[[Any], Any], Callable[[ModelTransaction], int]]:
        pick, kind = self.random, table.kind
        n, m, v = pick.randrange(KEYS), pick.randrange(KEYS), pick.randrange(-60, 60)
        where = pick.choice(predicates(n, m, v, kind))
        what = pick.choice(["insert", "insert", "update", "update", "merge", "delete", "load", "truncate"])
        if what == "truncate" and pick.random() < 0.7:
            what = "update"
        if what == "update":
            change = pick.choice(assignments(n, m, v))
            given = {change.column: change.given}
            return what, lambda t: t.update(given, where.text, where.params), lambda x: x.update([change], where)
        if what == "delete":
            return what, lambda t: t.delete(where.text, where.params), lambda x: x.delete(where)
        if what == "truncate":
            return what, lambda t: t.truncate(), lambda x: x.truncate()
        if what == "merge":
            rows = [kind.row(i, v) for i in sorted({n, m, KEYS + n})]

            def merge(t: il.Table) -> Any:
                found = t.merge(rows, on=list(kind.same)).when_matched_update({"v": il.expr("s.v")})
                return found.when_not_matched_insert().execute()

            return what, merge, lambda x: x.merge(rows)
        many = range(100 + v * 10, 100 + v * 10 + 6) if what == "load" else sorted({n, m})[: pick.choice([1, 2])]
        rows = [kind.row(i, v, pick.choice(["a", "b", None])) for i in many]
        given_rows = pa.Table.from_pylist(rows, kind.schema) if pick.random() < 0.5 else rows
        return what, lambda t: t.insert(given_rows), lambda x: x.insert(rows)

    def model_of(self, table: Table, blind: bool = False) -> ModelTransaction:
        return table.model.begin(blind=blind)

    def write(self) -> None:
        """A statement of its own, sometimes said twice with one token."""
        table = self.random.choice(self.tables)
        what, apply, model = self.statement(table)
        expected, t = self.model_of(table, blind=True), self.lake.table(table.name)
        self._note(f"{what} {table.name}")
        try:
            model(expected)
        except OverflowError:
            self._refused(lambda: apply(t), il.ExpressionError)
            return
        if ways := expected.expected():
            self._refused(lambda: apply(t), *(REFUSALS[way] for way in ways))
            return
        if what in ("insert", "load") and self.random.random() < 0.3:
            token, rows = uuid.uuid4().hex, [row for n, row in expected.view.items() if n in expected.own]
            first = t.insert(rows, token=token)
            assert t.insert(rows, token=token) == first
            self.done["token"] += 1
        else:
            first = apply(t)
        expected.committed(first.snapshot_id)
        self._settle()

    def _refused(self, call: Callable[[], Any], *errors: type[Exception]) -> None:
        last = self.lake.snapshot_id
        try:
            call()
        except errors:
            assert self.lake.snapshot_id == last, "a refused statement changes nothing"
            return
        raise AssertionError(f"expected {errors}")

    # ------------------------------------------------------------ transactions

    def begin(self) -> None:
        if len(self.open) < 4:
            self.open.append((self.lake.transaction(), {}, self.lake.snapshot_id))

    def write_in(self) -> None:
        if not self.open:
            self.begin()
        tx, models, base = self.random.choice(self.open)
        if base < self.horizon:
            return
        table = self.random.choice(self.tables)
        what, apply, model = self.statement(table)
        expected = models.get(table.name)
        if expected is None:
            expected = models[table.name] = ModelTransaction(table.model, base, dict(table.model.states[base]))
        self._note(f"in {base}: {what} {table.name}")
        t = tx.table(table.name)
        if self.random.random() < 0.2:
            where = self.random.choice(predicates(1, 4, 3, table.kind))
            t.scan(where.text, params=where.params, for_update=True).to_pylist()
            expected.lock(where)
        try:
            model(expected)
        except OverflowError:
            self._refused(lambda: apply(t), il.ExpressionError)
        else:
            apply(t)
        found = t.scan().to_pylist()
        wanted = Counter(self._own(table, row, base) for row in expected.view.values())
        assert Counter(tuple(row.values()) for row in found) == wanted, "a transaction sees its own writes"
        assert len(t) == len(found)

    def _own(self, table: Table, row: Row, base: int) -> tuple[Any, ...]:
        name = table.x_at(base)
        default = next((d for _, known, d in table.x if known == name), None)
        return table.shown(row if name is None else {name: default, **row}, base)

    def commit(self) -> None:
        if not self.open:
            return
        tx, models, base = self.open.pop(self.random.randrange(len(self.open)))
        self._note(f"commit {base}")
        expected = self._expected(models)
        self._judge(self._outcome(tx), models, [expected])
        self._settle()

    def _expected(self, models: dict[str, ModelTransaction]) -> set[str]:
        return {way for model in models.values() for way in model.expected()}

    def _outcome(self, tx: il.Transaction) -> Any:
        try:
            return tx.commit()
        except tuple(REFUSALS.values()) as error:
            return error

    def _judge(self, outcome: Any, models: dict[str, ModelTransaction], expected: Iterable[set[str]]) -> None:
        if isinstance(outcome, Exception):
            ways = {REFUSALS[way] for some in expected for way in some}
            assert type(outcome) in ways, f"{outcome!r}; expected {ways or 'success'}"
            self.done["refused"] += 1
            return
        assert not any(expected), f"committed in {outcome.snapshot_id}; expected {expected}"
        for model in models.values():
            if model.closed or model.own or model.locked or model.truncated:
                model.committed(outcome.snapshot_id)
        for table in self.tables:
            table.settle(table.model.last)
        self.done["committed"] += 1

    def commit_group(self) -> None:
        """All open transactions, in one group but for the first."""
        if len(self.open) < 2:
            return
        group, self.open = self.open, []
        self._note(f"commit {[base for _, _, base in group]} together")

        def commit(tx: il.Transaction) -> Any:
            tx._thread = threading.get_ident()
            return self._outcome(tx)

        found = together(self.lake, *(partial(commit, tx) for tx, _, _ in group))
        outcomes = dict(enumerate(found))
        late = {n: [self._expected(models)] for n, (_, models, _) in enumerate(group)}
        winners = [n for n in outcomes if not isinstance(outcomes[n], Exception)]
        for n in sorted(winners, key=lambda n: outcomes[n].snapshot_id):
            self._judge(outcomes[n], group[n][1], [self._expected(group[n][1])])
            for other in late:
                late[other].append(self._expected(group[other][1]))
        for n in outcomes.keys() - set(winners):
            self._judge(outcomes[n], group[n][1], late[n])
        self._settle()
        self.done["groups"] += 1

    def roll_back(self) -> None:
        if self.open:
            self.open.pop(self.random.randrange(len(self.open)))[0].rollback()

    # ------------------------------------------------------------ definitions

    def alter(self) -> None:
        table = self.random.choice(self.tables)
        t = self.lake.table(table.name)
        self._note(f"alter {table.name}")
        if table.x[-1][1] is None:
            self.adds += 1
            default = self.random.randrange(1000)
            t.add_column("x", pa.int64(), default=default)
            entry = (self.lake.snapshot_id, f"x{self.adds}", default)
        else:
            t.drop_column("x")
            entry = (self.lake.snapshot_id, None, 0)
        table.model.advance(entry[0])
        table.x.append(entry)
        if entry[1] is not None:
            table.model.states[entry[0]] = {n: {**row, entry[1]: entry[2]} for n, row in table.model.now.items()}
        self._settle()

    def index(self) -> None:
        table = self.random.choice(self.tables)
        t = self.lake.table(table.name)
        self._note(f"index {table.name}")
        names = {index.name for index in t.indexes()}
        if "by_v" in names:
            t.drop_index("by_v")
        else:
            t.create_index("by_v", "v", kind=self.random.choice(["btree", "hash"]))
        self._settle()

    # ------------------------------------------------------------ jobs

    def dump(self) -> None:
        name = self.random.choice(self.tables).name
        self._note(f"dump {name}")
        self.lake.pipeline().dump(name)
        self._settle()

    def plan_chunk(self) -> None:
        """The beginning of a dump that takes its time: a range of commits."""
        table_id = self.lake.table(self.random.choice(self.tables).name)._table_id
        task = plan_chunk(self.lake, table_id, history=False)
        if task is not None and len(self.chunks) < 2:
            self._note(f"plan a chunk of {table_id} up to {task.chunk.at}")
            self.chunks.append((task, run_task(self.lake.storage, task, lambda: None)))

    def commit_chunk(self) -> None:
        if self.chunks:
            task, blocks = self.chunks.pop(self.random.randrange(len(self.chunks)))
            self._note(f"commit the chunk of {task.table_id} up to {task.chunk.at}")
            with Job(self.lake, "dump", task.table_id, scope=uuid.uuid4().hex) as job:
                self.done["chunks"] += commit_chunk(self.lake, job, task, blocks)
            if self.random.random() < 0.6:
                purge(self.lake, task.table_id)
            self._settle()

    def rewrite(self) -> None:
        name, pipeline = self.random.choice(self.tables).name, self.lake.pipeline()
        job = self.random.choice([pipeline.compact, pipeline.compact, pipeline.freeze])
        self._note(f"rewrite {name}")
        job(name)
        self._settle()

    def expire(self) -> None:
        back = self.random.randrange(8)
        wanted = max(self.lake.snapshot_id - back, self.horizon, 1)
        self._note(f"expire before {wanted}")
        with self.lake.catalog.read() as r:
            moments = dict(r.rows("select snapshot_id, committed_at from indexlake_snapshot"))
        with clock_of(self.lake).stopped(moments.get(wanted, 0) + MINUTE):
            found = self.lake.pipeline().expire()
        for table in self.tables:
            table.model.horizon = found[f"main.{table.name}"].horizon
            self.horizon = max(self.horizon, table.model.horizon)
        self.done["expired"] += 1
        self._settle()

    # ------------------------------------------------------------ readers and reopenings

    def read_long(self) -> None:
        """Somebody begins to read and takes their time."""
        if len(self.readings) < 3:
            table = self.random.choice(self.tables)
            snapshot = self.random.choice(list(table.model.retained()))
            stack = ExitStack()
            reading = stack.enter_context(self.lake.table(table.name)._reading(snapshot))
            self.readings.append((stack, reading, self._hot(reading)))

    def _hot(self, reading: Any) -> Any:
        rows = [row for batch in reading.hot.rows(reading.schema.fields).batches() for row in batch.to_pylist()]
        return reading.hot.count(), Counter(tuple(row.values()) for row in rows)

    def let_readers_go(self) -> None:
        while self.readings:
            stack, reading, before = self.readings.pop()
            assert self._hot(reading) == before, "a reader lost versions that it began with"
            stack.close()

    def reopen(self) -> None:
        self._note("reopen")
        self._leave()
        self.lake.close()
        self.lake = self._connect()

    def crash(self) -> None:
        """The process dies: what it had on disk is all there is."""
        self._note("crash")
        self.let_readers_go()
        copy = new_folder("memory")
        shutil.copytree(self.folder, copy, dirs_exist_ok=True)
        self._leave()
        self.lake.close()
        shutil.rmtree(self.folder)
        self.folder: Path = copy
        self.lake = self._connect()
        self.done["crashes"] += 1

    def _leave(self) -> None:
        self.let_readers_go()
        for tx, _, _ in self.open:
            tx.rollback()
        self.open, self.chunks = [], []

    # ------------------------------------------------------------ the play

    def play(self, steps: int, check_each: int = 16) -> None:
        for n in range(steps):
            name = self.random.choices(list(STEPS), list(STEPS.values()))[0]
            getattr(self, name)()
            self.done[name] += 1
            self.compare(everything=n % check_each == 0)
        self.let_readers_go()
        self.compare(everything=True)

    def compare(self, *, everything: bool) -> None:
        last = self.lake.snapshot_id
        for table in self.tables:
            model, t = table.model, self.lake.table(table.name)
            assert last == model.last, "a commit that nobody was told of"
            kept = list(model.retained())
            for snapshot in kept if everything else [last, self.random.choice(kept)]:
                self._compare_at(table, t, snapshot)
            if everything:
                self._compare_feed(table, t, self.random.choice(kept), last)

    def _compare_at(self, table: Table, t: il.Table, snapshot: int) -> None:
        state, view = table.model.states[snapshot], t.at(snapshot)
        found = versions_at(t, snapshot)
        numbers = table.versions[snapshot]
        wanted = Counter((numbers[n], table.shown(row, snapshot)) for n, row in state.items())
        assert Counter((v, tuple(row.values())) for v, row in found.values()) == wanted, f"{table.name} at {snapshot}"
        assert len(view) == len(state)
        n, m, v = (self.random.randrange(KEYS) for _ in range(3))
        where = self.random.choice(predicates(n, m, v * 10, table.kind))
        rows = Counter(tuple(row.values()) for row in view.scan(where.text, params=where.params).to_pylist())
        assert rows == Counter(table.shown(row, snapshot) for row in state.values() if where.holds(row)), repr(where)
        if table.kind.key:
            key = table.kind.key_of(table.kind.row(n))
            by_key = {table.kind.key_of(row): table.shown(row, snapshot) for row in state.values()}
            got = view.get(key)
            assert (None if got is None else tuple(got.values())) == by_key.get(key), f"{key} at {snapshot}"

    def _compare_feed(self, table: Table, t: il.Table, since: int, until: int) -> None:
        names = table.kind.schema.names
        found: dict[int, Counter[tuple[Any, ...]]] = {}
        for row in t.changes(since, until).to_arrow().to_pylist():
            some = found.setdefault(row["_snapshot_id"], Counter())
            some[row["_change_type"], tuple(row[c] for c in names)] += 1
        wanted = {s: changed for s in range(since + 1, until + 1) if (changed := table.changes(s))}
        assert found == wanted, f"changes of {table.name} in ({since}, {until}]"

    def _note(self, text: str) -> None:
        self.log.append(f"{self.lake.snapshot_id}: {text}")


def play(seed: int, steps: int) -> Counter[str]:
    world = World(seed)
    try:
        world.play(steps)
    except BaseException as error:
        error.add_note(f"seed {seed}:\n" + "\n".join(world.log[-40:]))
        raise
    finally:
        world.close()
    return world.done
