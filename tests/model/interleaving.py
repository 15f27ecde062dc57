"""A world for interleavings: several handles to one lake, activities cut into steps, an oracle, a seeded scheduler.

Activities are generators; what lies between two `yield`s is one catalog transaction or one action outside the
catalog, made by the engine's own functions.  After every step a randomly chosen handle, whose cache is as stale as
it happens to be, is checked:

  1 read     retained snapshots give the oracle's rows, each once, with row ids that stay
  2 outcome  a write-set commits, conflicts or is a duplicate exactly when the oracle says so; jobs cause no conflict
  3 key      keys are unique at every snapshot
  5 expire   below the horizon is refused; a pinned snapshot never is
  6 shrink   after dump, expire and purge nothing dead remains (at the end of each run)
  7 cache    a refreshed cache equals the state loaded afresh

Operations name their actors, so that any part of a run can be played again and a failure be shrunk.
"""

from __future__ import annotations

import random
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any

import indexlake as il
from indexlake.catalog import definitions
from indexlake.catalog.driver import ReadTransaction
from indexlake.catalog.inline import inline_table
from indexlake.commit import absence
from indexlake.commit.group import ROUNDS_OUTSIDE, Looks, _Ticket
from indexlake.hot import inline as hot_inline
from indexlake.hot import registry
from indexlake.pipeline import dump as dump_job
from indexlake.pipeline import rewrite as rewrite_job
from indexlake.pipeline.compact import live_blocks
from indexlake.pipeline.expire import expire as expire_table
from indexlake.pipeline.job import Job
from indexlake.scan.execute import pieces
from indexlake.scan.plan import plan_scan
from indexlake.schema import ROW_ID
from indexlake.snapshots import state
from indexlake.snapshots.reading import Reading
from indexlake.table import Table
from indexlake.writes import insert
from tests.model.model_table import (
    COMPOSITE,
    INTEGER,
    KEYLESS,
    Kind,
    ModelTable,
    ModelTransaction,
    assignments,
    contents,
    predicates,
)
from tests.support.folders import new_folder
from tests.support.lakes import clock_of, connect

MINUTE = 60_000_000
HANDLES = 3
KEYS = 6
Steps = Iterator[str]
Op = tuple[Any, ...]
REFUSED = {
    il.ConflictError: "conflict",
    il.DuplicateKeyError: "duplicate",
    il.SnapshotExpiredError: "expired",
}


class Violation(AssertionError):
    """A check failed."""


class World:
    keys = KEYS

    def __init__(self, seed: int, postgres: str | None = None) -> None:
        rng = random.Random(seed)
        self.folder = str(new_folder("interleaving"))
        where: dict[str, Any] = {"catalog": self.folder}
        if postgres is not None:
            where = {"catalog": postgres, "storage": self.folder, "catalog_schema": f"s{uuid.uuid4().hex}"}
        self.lakes = [connect(**where) for _ in range(HANDLES)]
        for lake in self.lakes:
            lake._scan_threads = 1
        self.kind = self.choose_kind(rng)
        self._few = absence.FEW, hot_inline.FEW_KEYS
        self.create(rng)
        absence.FEW, hot_inline.FEW_KEYS = rng.choice(((1, 1), (2, 2), (64, 64), (2, 1), (1, 64)))
        self.table_id = self.lakes[0].table("t")._table_id
        self.model = ModelTable(self.kind, self.lakes[0].snapshot_id)
        first, rows = self.model.begin(), [self.kind.row(n, n, "a") for n in rng.sample(range(self.keys), 4)]
        first.insert(rows)
        first.committed(self.lakes[0].table("t").insert(rows).snapshot_id or 0)
        self.row_ids: dict[int, int] = {}
        self.actors: dict[int, Steps] = {}
        self.log: list[str] = []
        self.counts: Counter[str] = Counter()
        self.pins: dict[int, int] = {}
        self.bases: list[int] = []  # where transactions began
        self.current = -1
        self.steps = 0

    def choose_kind(self, rng: random.Random) -> Kind:
        return rng.choice((INTEGER, INTEGER, INTEGER, COMPOSITE, KEYLESS, KEYLESS))

    def create(self, rng: random.Random) -> None:
        """Make the table."""
        config = il.TableConfig(
            direct_write_row_count=rng.choice((3, 50)), block_row_count=rng.choice((2, 3, 5)),
            dump_format=rng.choice(("ipc", "ipc", "ipc", "parquet", "vortex")), retention=timedelta(0),
        )  # fmt: skip
        self.lakes[0].create_table("t", self.kind.schema, self.kind.key or None, config=config)

    @property
    def activities(self) -> dict[str, tuple[Activity, float]]:
        """What actors do, and how often."""
        return ACTIVITIES

    def close(self) -> None:
        absence.FEW, hot_inline.FEW_KEYS = self._few
        for actor in self.actors.values():
            actor.close()
        for lake in self.lakes:
            lake.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def table(self, lake: il.Lake, snapshot: int | None = None) -> Table:
        return Table(lake, self.table_id, "main.t", snapshot=snapshot)

    # ------------------------------------------------------------ check 2

    def judge(self, expected: ModelTransaction, got: str, snapshot: int | None = None) -> None:
        refusals = expected.expected()
        self.counts[got] += 1
        if got == "committed":
            if refusals:
                raise Violation(f"2 outcome: committed in {snapshot}, expected {refusals}: {expected}")
            assert snapshot is not None
            if snapshot > self.model.last + 1:
                raise Violation(f"2 outcome: snapshot {snapshot} follows {self.model.last}")
            expected.committed(snapshot)
            if self.model.duplicates(self.model.now):
                raise Violation(f"3 key: {self.model.now}")
        elif got not in refusals:
            raise Violation(f"2 outcome: {got}, expected {refusals or 'success'}: {expected}")
        if got == "expired" and self.pins.get(self.current, expected.base + 1) <= expected.base:
            raise Violation(f"5 expire: a pinned transaction at {expected.base} was refused")

    def job_committed(self) -> None:
        self.model.advance(self.lakes[0].snapshot_id)

    # ------------------------------------------------------------ checks 1, 3, 5, 7

    def check(self, lake: il.Lake, *, thorough: bool = False) -> None:
        model = self.model
        retained = list(model.retained())
        if lake.snapshot_id != model.last:
            raise Violation(f"1 read: the newest snapshot is {lake.snapshot_id}, oracle {model.last}")
        rng = random.Random(self.steps)
        if not thorough:
            retained = sorted({rng.choice(retained), retained[-1]})
        for snapshot in retained:
            self.check_rows(lake, snapshot)
        newest = self.table(lake)
        if len(newest) != len(model.now):
            raise Violation(f"1 read: {len(newest)} rows are counted, oracle {len(model.now)}")
        if self.kind.key:
            snapshot = rng.choice(retained)
            state_then = {self.kind.key_of(row): row for row in model.states[snapshot].values()}
            for n in rng.sample(range(self.keys), 2):
                key = self.kind.key_of(self.kind.row(n))
                if (found := self.table(lake, snapshot).get(key)) != state_then.get(key):
                    raise Violation(f"1 read: get({key}) at {snapshot} is {found}, oracle {state_then.get(key)}")
        if model.horizon > model.created_in:
            try:
                newest.at(model.horizon - 1)
            except il.SnapshotExpiredError:
                pass
            else:
                raise Violation("5 expire: a read below the horizon was served")
        if thorough or self.steps % 4 == 0:
            self.check_cache(lake)

    def check_rows(self, lake: il.Lake, snapshot: int) -> None:
        rows = self.table(lake, snapshot).scan(with_row_id=True).to_pylist()
        self.compare(rows, snapshot, "")

    def compare(self, rows: list[dict[str, Any]], snapshot: int, who: str) -> None:
        ids = [row.pop(ROW_ID) for row in rows]
        wanted = self.model.states[snapshot]
        if contents(rows) != contents(wanted.values()):
            raise Violation(f"1 read{who}: at {snapshot} got {rows}, oracle {list(wanted.values())}")
        if len(set(ids)) < len(ids):
            raise Violation(f"1 read{who}: a row is returned twice at {snapshot}: {ids}")
        if self.kind.key:
            by_key = {self.kind.key_of(row): row_id for row, row_id in zip(rows, ids, strict=True)}
            if len(by_key) < len(rows):
                raise Violation(f"3 key: a key is there twice at {snapshot}: {rows}")
            for number, row in wanted.items():
                row_id = by_key[self.kind.key_of(row)]
                if self.row_ids.setdefault(number, row_id) != row_id:
                    raise Violation(f"1 read{who}: {row} had row id {self.row_ids[number]}, has {row_id} at {snapshot}")

    def check_cache(self, lake: il.Lake) -> None:
        with lake._readings.open(self.table_id) as reading:
            fresh = state.load(reading.transaction, self.table_id, reading.snapshot)
        ours, theirs = _plain(reading.state), _plain(fresh)
        if ours != theirs:
            differs = [name for name in ours if ours[name] != theirs[name]]
            raise Violation(f"7 cache: a refreshed cache differs from the catalog in {differs}")

    # ------------------------------------------------------------ running

    def run(self, op: Op) -> None:
        """One operation: start, step or crash an actor; then check through one of the handles."""
        verb, actor, checker, activity, handle, seed = op
        self.steps += 1
        if verb == "start":
            self.actors[actor] = self.activities[activity][0](self, self.lakes[handle], random.Random(seed))
        if actor not in self.actors:
            return  # the shrinker removed its start
        self.current, text = actor, None
        self.log.append(f"{verb} {actor} {f'{activity} by handle {handle}' if activity else ''}")
        if verb == "crash":
            self.actors[actor].close()
        else:
            text = next(self.actors[actor], None)
        if text is None:
            del self.actors[actor]
            self.pins.pop(actor, None)
        self.log[-1] += f": {text or 'gone'} (last {self.model.last}, horizon {self.model.horizon})"
        self.check(self.lakes[checker], thorough=self.steps % 16 == 0)

    def drain(self) -> None:
        """Check 6."""
        for actor in self.actors.values():
            actor.close()
        self.actors, self.pins = {}, {}
        lake = self.lakes[0]
        for each in self.lakes:
            each._pins.held.clear()
            each._maintenance._beat_once()
        dump_job.dump(lake, self.table_id, history=False)
        self.job_committed()
        self.tidy(lake)
        self.log.append("drained: " + _expire(self, lake, self.model.last))
        for each in self.lakes:
            self.check(each, thorough=True)
        with lake.catalog.read() as r:
            rest = {
                name: r.rows(f"select * from {name} where {condition}")
                for name, condition in {
                    "indexlake_partition": "end_snapshot is not null",
                    inline_table(self.table_id): "true",
                    "indexlake_touched": "true",
                    "indexlake_locked": "true",
                    "indexlake_delete": "snapshot_id > 0",
                    "indexlake_data_file": "end_snapshot is not null",
                    f"{_LINK} l": "data_file_id not in (select data_file_id from indexlake_data_file)",
                    "indexlake_index_file": f"index_file_id not in (select index_file_id from {_LINK})",
                    "indexlake_snapshot": f"snapshot_id < {self.model.horizon}",
                }.items()
            }
        if any(rest.values()):
            raise Violation(f"6 shrink: left over { ({name: rows for name, rows in rest.items() if rows}) }")

    def tidy(self, lake: il.Lake) -> None:
        """What is done to a drained table before everything expires."""


_LINK = "indexlake_index_file_block"


def _plain(found: state.TableState) -> dict[str, Any]:
    return {
        "table": found.table,
        "blocks": {b.data_file_id: b for b in found.blocks.records},
        "indexes": {i: (c.index, c.links, c.gaps) for i, c in found.indexes.items()},
        "deletes": {
            file_id: sorted((s, tuple(p)) for s, p in log.entries())
            for file_id, log in found.deletes.items()
            if len(log)
        },
        "schema": found.current.arrow,
        "ranges": found.ranges and found.ranges.by_id,
        "at": found.at,
    }


# ---------------------------------------------------------------- activities: one yield per step


def _statement(w: World, table: Table, expected: ModelTransaction, rng: random.Random) -> str:
    """One random statement of a transaction."""
    n, m, v = rng.randrange(w.keys), rng.randrange(w.keys), rng.randint(-60, 60)
    known = predicates(n, m, v, w.kind)
    where = rng.choice(known[:3] * 2 + known)
    kind = rng.choice(("insert", "insert", "merge", "merge", "update", "update", "rekey", "delete", "reinsert", "lock"))
    held = {w.kind.key_of(row) for row in expected.view.values()} if w.kind.key else set()
    if kind == "insert":
        numbers = rng.sample(range(w.keys), rng.choice((1, 1, 2, 4)))
        if rng.random() < 0.8:  # mostly keys that are free
            numbers = [x for x in numbers if w.kind.key_of(w.kind.row(x)) not in held] if w.kind.key else numbers
        rows = [w.kind.row(x, v, "a") for x in numbers]
        expected.insert(rows)
        if rows:
            table.insert(rows)
        return f"insert {numbers}"
    if kind == "merge":
        numbers = rng.sample(range(w.keys - 2, w.keys + 2), rng.choice((1, 1, 2, 3)))  # half of them are rarely there
        rows = [w.kind.row(x, v, "m") for x in numbers]
        expected.merge(rows)
        merge = table.merge(rows, on=list(w.kind.same)).when_matched_update({"v": il.expr("s.v")})
        merge.when_not_matched_insert().execute()
        return f"merge {numbers}"
    if kind == "lock":
        expected.lock(where)
        table.scan(where.text, params=where.params, for_update=True).to_arrow()
        return f"for_update {where}"
    if kind in ("delete", "reinsert"):
        where = known[rng.choice((0, 0, 1, 2, 9, 10))]
        gone = [row for row in expected.view.values() if where.holds(row)]
        expected.delete(where)
        table.delete(where.text, where.params)
        if kind == "reinsert" and gone:
            expected.insert(gone)
            table.insert(gone)
        return f"{kind} {where}"
    change = rng.choice(assignments(n, m, v)[:3] if kind == "update" else assignments(n, m, v)[4:7])
    expected.update([change], where)
    table.update({change.column: change.given}, where.text, where.params)
    return f"update {change} where {where}"


def _refusal(error: Exception) -> str:
    return REFUSED[type(error)]


def _submit(w: World, lake: il.Lake, members: list[tuple[il.Transaction, ModelTransaction]]) -> Steps:
    """The commit of one transaction, or of several as one group: look, enter the section, perhaps look again."""
    committer = lake._committer
    waiting: list[tuple[Any, ModelTransaction, Looks]] = []
    for tx, expected in members:
        ws = tx.write_set
        if ws.empty:
            w.judge(expected, "committed", w.model.last)
            continue
        try:
            waiting.append((ws, expected, committer._first_looks(ws)))
        except il.DuplicateKeyError:
            w.judge(expected, "duplicate")
    yield f"looked for the keys of {len(waiting)}"
    rounds = 0
    while waiting:
        tickets = [_Ticket(ws, looks, None, rounds >= ROUNDS_OUTSIDE) for ws, _, looks in waiting]
        committer._commit_group(tickets, tickets[0])
        again, said = [], []
        for ticket, (ws, expected, looks) in zip(tickets, waiting, strict=True):
            if ticket.error is not None:
                if type(ticket.error) not in REFUSED:
                    raise ticket.error
                said.append(REFUSED[type(ticket.error)])  # type: ignore[index]
                w.judge(expected, said[-1])
            elif ticket.result is not None:
                said.append("committed")
                w.judge(expected, "committed", ticket.result.snapshot_id)
            else:
                assert ticket.look
                said.append("look")
                w.counts[f"look {rounds + 1}"] += 1
                again.append((ws, expected, looks))
        yield f"round {rounds}: {', '.join(f'S={e.base} {s}' for (_, e, _), s in zip(waiting, said, strict=True))}"
        waiting, rounds = [], rounds + 1
        for ws, expected, looks in again:
            waiting.append((ws, expected, committer._look_again(ws, looks)))
            yield "looked at new blocks"


def _pin(w: World, lake: il.Lake, tx: il.Transaction) -> None:
    """As if the transaction had been open for a while."""
    assert tx.snapshot_id is not None
    tx._pin.started -= 31
    lake._maintenance._beat_once()
    w.pins[w.current] = tx.snapshot_id


def transaction(w: World, lake: il.Lake, rng: random.Random) -> Steps:
    """One to three transactions, each with a snapshot of its own, committed as a group."""
    members: list[tuple[il.Transaction, ModelTransaction]] = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        tx, expected = lake.transaction(), w.model.begin()
        members.append((tx, expected))
        w.bases.append(expected.base)
        pinned = rng.random() < 0.3
        if pinned and w.current not in w.pins:
            _pin(w, lake, tx)
        yield f"begin at {tx.snapshot_id}{' pinned' * pinned}"
        for _ in range(rng.randint(1, 3)):
            if rng.random() < 0.05:
                tx.table("t").truncate()
                expected.truncate()
                yield f"S={expected.base} truncate"
                continue
            if expected.base < w.model.horizon:
                members.pop()
                if w.pins.get(w.current, expected.base + 1) <= expected.base:
                    raise Violation(f"5 expire: the horizon {w.model.horizon} passed a pin at {expected.base}")
                break
            text = _statement(w, tx.table("t"), expected, rng)
            rows = tx.table("t").scan().to_pylist()
            if contents(rows) != contents(expected.view.values()):
                raise Violation(
                    f"1 read: a transaction sees {rows}, oracle {list(expected.view.values())} after {text}"
                )
            yield f"S={expected.base} {text}"
    yield from _submit(w, lake, members)


def statement(w: World, lake: il.Lake, rng: random.Random) -> Steps:
    """A statement of its own, through the interface."""
    expected = w.model.begin(blind=True)

    class Both:
        """Takes the place of the table: its result is kept."""

        result: Any = None

        def __getattr__(self, name: str) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                self.result = getattr(w.table(lake), name)(*args, **kwargs)

            return call

    n, v = rng.randrange(w.keys), rng.randint(-60, 60)
    both = Both()
    where = rng.choice(predicates(n, rng.randrange(w.keys), v, w.kind))
    change = rng.choice(assignments(n, rng.randrange(w.keys), v)[:3])
    what = rng.choice(("insert", "insert", "update", "delete", "truncate" if rng.random() < 0.2 else "insert"))
    try:
        if what == "insert":
            expected.insert([w.kind.row(n, v, "b")])
            both.insert(w.kind.row(n, v, "b"))
        elif what == "update":
            expected.update([change], where)
            both.update({change.column: change.given}, where.text, where.params)
        elif what == "delete":
            expected.delete(where)
            both.delete(where.text, where.params)
        else:
            expected.truncate()
            both.truncate()
    except tuple(REFUSED) as error:
        w.judge(expected, _refusal(error))
        yield f"{what} refused: {_refusal(error)}"
    else:
        w.judge(expected, "committed", lake.snapshot_id)
        yield f"{what} {n} {change} where {where}: committed"


def bulk(w: World, lake: il.Lake, rng: random.Random) -> Steps:
    """Rows straight into a block, appended or in place of everything; as a transaction or as a statement."""
    blind = rng.random() < 0.5
    tx, expected = il.Transaction(lake) if blind else lake.transaction(), w.model.begin(blind=blind)
    if blind:
        tx._set_base(expected.base)
    table = tx.table("t")
    if replaces := rng.random() < 0.4:
        table.truncate()
        expected.truncate()
    first = rng.randrange(2 * w.keys)
    rows = [w.kind.row(n, rng.randint(-9, 9), "c") for n in range(first, first + rng.randint(3, 5))]
    found = tx.state_to_write(w.table_id)
    yield f"begin at {expected.base}, {'overwrite' if replaces else 'append'}"
    prepared = insert.prepare_insert(lake, found, rows)
    yield f"prepared {[row['id'] for row in rows]}: {len(prepared.blocks)} blocks"
    insert.insert(tx, found, prepared)
    expected.insert(rows)
    yield from _submit(w, lake, [(tx, expected)])


def dump(w: World, lake: il.Lake, rng: random.Random, history: bool = False) -> Steps:
    """One chunk, as slowly as may be.  Each run has a lease of its own: leases save work, nothing else."""
    job = Job(lake, "dump", w.table_id, scope=uuid.uuid4().hex)
    job.__enter__()
    task = dump_job.plan_chunk(lake, w.table_id, history=history)
    if task is not None:
        yield f"planned at {task.planned_at}: up to {task.chunk.mark}"
        block = dump_job.run_task(lake.storage, task, lambda: None)
        for _ in range(rng.choice((1, 1, 8))):
            yield "wrote its file"
        done = dump_job.commit_chunk(lake, job, task, block)
        w.job_committed()
        w.counts[f"{'history' if history else 'dump'} {'committed' if done else 'dropped'}"] += 1
        yield "committed" if done else "dropped: its inputs changed"
    job.__exit__(None, None, None)
    if rng.random() < 0.5:
        yield from purge(w, lake, rng)


def dump_history(w: World, lake: il.Lake, rng: random.Random) -> Steps:
    return dump(w, lake, rng, history=True)


def rewrite(w: World, lake: il.Lake, rng: random.Random) -> Steps:
    """Any live blocks become others, in any format: what compact, freeze and thaw do, as slowly as may be."""
    job = Job(lake, "compact", w.table_id, scope=uuid.uuid4().hex)
    job.__enter__()
    formats = rng.sample(("ipc", "parquet", "vortex"), 2)

    def choose(found: state.TableState, snapshot: int) -> list[rewrite_job.RewriteGroup]:
        blocks = live_blocks(found, snapshot)
        rng.shuffle(blocks)
        cut = rng.randint(0, len(blocks))
        groups = [blocks[:cut], blocks[cut : cut + rng.randint(0, 3)]]
        return [(group, formats[n]) for n, group in enumerate(groups) if group]

    tasks = rewrite_job.plan(lake, w.table_id, choose)
    yield f"planned {[[t.file_id for t in task.inputs] for task in tasks]}"
    if tasks:
        done = [(task, rewrite_job.run_task(lake.storage, task, lambda: None)) for task in tasks]
        for _ in range(rng.choice((1, 1, 8))):
            yield "wrote its files"
        kept = rewrite_job.commit(job, done)
        w.job_committed()
        w.counts["rewrite committed"] += len(kept)
        w.counts["rewrite dropped"] += len(done) - len(kept)
        yield f"committed {len(kept)} of {len(done)}"
    job.__exit__(None, None, None)


def purge(w: World, lake: il.Lake, rng: random.Random) -> Steps:
    gone = 1
    while gone:
        with lake.catalog.transaction() as tx:
            table = definitions.read_table(tx, w.table_id)
            assert table is not None
            gone = lake._hot.purge(tx, table, rng.randint(1, 3))
            tx.commit()
        yield f"purged {gone}"


def expire(w: World, lake: il.Lake, rng: random.Random) -> Steps:
    first = max(w.model.horizon, w.model.created_in)
    to = max(first, rng.choice((w.model.last, rng.randint(first, w.model.last), *w.bases[-3:])))
    yield _expire(w, lake, to)


def _expire(w: World, lake: il.Lake, to: int) -> str:
    with lake.catalog.read() as r:
        rows = r.rows("select snapshot_id, committed_at from indexlake_snapshot")
    moment = dict(rows)[to]
    clock_of(lake).stop(moment + MINUTE)
    horizon = expire_table(lake, w.table_id).horizon
    lowest = min(w.pins.values(), default=horizon)
    if horizon > max(lowest, w.model.horizon):
        raise Violation(f"5 expire: the horizon {horizon} passed a pin at {lowest}")
    held = w.pins or _readers(w) or registry.DEFAULT == registry.MEMORY  # it does not pass what is in memory alone
    if not held and horizon != max(w.model.horizon, *(s for s, at in rows if at <= moment)):
        raise Violation(f"5 expire: the horizon is {horizon}, asked for {to}")
    w.model.horizon = horizon
    w.job_committed()
    return f"expired to {to}: horizon {horizon}"


def _readers(w: World) -> bool:
    """Whether a pin may be left of a transaction that has ended: it goes with the next heartbeat."""
    return any(lake._maintenance._pin_id for lake in w.lakes)


def reader(w: World, lake: il.Lake, rng: random.Random) -> Steps:
    """A read whose transaction begins before another thread of the process brings the cache up to date."""
    rows = None
    while rows is None:
        r: ReadTransaction = lake.catalog.read()
        try:
            last = r.rows("select max(snapshot_id) from indexlake_snapshot")[0][0]
            for _ in range(rng.choice((1, 1, 12))):
                yield f"in a read transaction at {last}"
            try:
                found = lake._readings.state_in(r, w.table_id)
            except state.Stale:
                w.counts["stale"] += 1
                continue
            snapshot = found.at
            reading = Reading(r, found, snapshot, lake._hot)
            plan = plan_scan(reading, lake._files, predicate=None, columns=found.current.fields)
        finally:
            r.close()
        yield f"planned at {snapshot}"
        batches = [p.batch for p in pieces(plan, lake._files, 1, found.current.fields, row_id=True)]
        rows = [row for batch in batches for row in batch.to_pylist()]
    w.compare(rows, snapshot, " of a slow reader")
    yield f"read {len(rows)} rows"


def long_transaction(w: World, lake: il.Lake, rng: random.Random) -> Steps:
    """Pinned: its snapshot stays readable whatever expires."""
    tx = lake.transaction()
    snapshot = tx.snapshot_id
    assert snapshot is not None
    _pin(w, lake, tx)
    yield f"pinned {snapshot}"
    for _ in range(rng.randint(1, 5)):
        w.compare(tx.table("t").scan(with_row_id=True).to_pylist(), snapshot, " of a pinned reader")
        yield "read again"
    tx.rollback()


Activity = Callable[[World, il.Lake, random.Random], Steps]
ACTIVITIES: dict[str, tuple[Activity, float]] = {
    f.__name__: (f, weight)
    for f, weight in (
        (transaction, 7.0),
        (statement, 4.0),
        (bulk, 3.0),
        (dump, 4.0),
        (dump_history, 2.0),
        (rewrite, 2.5),
        (purge, 0.5),
        (expire, 2.5),
        (reader, 2.0),
        (long_transaction, 0.7),
    )
}


# ---------------------------------------------------------------- scheduler and shrinker


def schedule(w: World, seed: int, steps: int) -> Iterable[Op]:
    """Choose operations as the world unfolds."""
    rng = random.Random(seed)
    crowd = rng.randint(2, 7)
    weights = [weight * rng.choice((0.1, 0.5, 1, 4)) for _, weight in w.activities.values()]
    for n in range(steps):
        alive, checker = list(w.actors), rng.randrange(HANDLES)
        if not alive or (len(alive) < crowd and rng.random() < 0.4):
            activity = rng.choices(list(w.activities), weights)[0]
            yield "start", n, checker, activity, rng.randrange(HANDLES), rng.random()
        else:
            actor = rng.choices(alive, [0.05 if a % 3 == 0 else 1 for a in alive])[0]  # every third is slow
            yield "crash" if rng.random() < 0.03 else "step", actor, checker, None, None, None


def play(
    seed: int, steps: int, ops: list[Op] | None = None, postgres: str | None = None, world: type[World] = World
) -> tuple[str | None, list[Op], World]:
    """Run a seed, or given operations of it, and drain.  The first is the violation, if any."""
    w = world(seed, postgres)
    ran: list[Op] = []
    try:
        for op in schedule(w, seed, steps) if ops is None else ops:
            ran.append(op)
            w.run(op)
        w.drain()
    except Exception as error:
        text = str(error) if isinstance(error, Violation) else f"0 error: {type(error).__name__}: {error}"
        w.log.append(f"VIOLATION {text}")
        if not isinstance(error, Violation):
            import traceback

            w.log.append(traceback.format_exc())
        return text, ran, w
    finally:
        w.close()
    return None, ran, w


def shrink(seed: int, ops: list[Op], violation: str, world: type[World] = World) -> list[Op]:
    """The fewest operations that still break the same check."""
    size = max(1, len(ops) // 2)
    while size:
        i = 0
        while i < len(ops):
            fewer = ops[:i] + ops[i + size :]
            if (play(seed, 0, fewer, world=world)[0] or " ")[0] == violation[0]:
                ops = fewer
            else:
                i += size
        size //= 2
    return ops
