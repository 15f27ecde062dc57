"""A lake against plain dictionaries: random statements, transactions, dumps, expiries and reopenings.

After each step the whole table, single rows, counts, history and every retained snapshot are compared, through one
of two handles, so that the cache of either is often stale.  `INDEXLAKE_HYPOTHESIS=<examples>` (or
`<examples>x<steps>`) runs a longer campaign.
"""

from __future__ import annotations

import os
import random
import shutil
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

import indexlake as il
from indexlake.commit import absence
from indexlake.hot import inline as hot_inline
from indexlake.hot import registry
from indexlake.pipeline.dump import commit_chunk, dump, plan_chunk, purge, run_task
from indexlake.pipeline.job import Job
from indexlake.pipeline.maintenance import PIN_AFTER
from indexlake.schema import ROW_ID
from tests.model.model_table import (
    KINDS,
    ModelTable,
    ModelTransaction,
    assignments,
    contents,
    predicates,
)
from tests.support.folders import new_folder
from tests.support.lakes import clock_of, connect
from tests.support.one_owner import in_memory

REFUSALS = {
    "expired": il.SnapshotExpiredError,
    "conflict": il.ConflictError,
    "duplicate": il.DuplicateKeyError,
}
MINUTE = 60_000_000
KEYS = 8

key_numbers = st.integers(0, KEYS - 1)
numbers = st.integers(-60, 60)
arguments = {
    "keys": st.lists(key_numbers, min_size=1, max_size=6),
    "n": key_numbers,
    "m": key_numbers,
    "v": numbers,
    "which": st.integers(0, 10),
    "how": st.integers(0, 7),
}
STATEMENTS = [
    "insert one", "insert one", "insert new", "insert distinct", "insert perhaps twice",
    "update", "update", "update", "merge", "merge", "delete", "truncate",
]  # fmt: skip
STEPS = [
    *STATEMENTS, *(f"in transaction: {kind}" for kind in STATEMENTS), "in transaction: read for update",
    "begin", "begin", "commit", "commit", "commit", "commit", "roll back",
    "dump", "dump history", "dump slowly", "dump slowly", "dump slowly", "rewrite", "rewrite",
    "expire", "reopen", "scan", "get many",
]  # fmt: skip


class LakeMachine(RuleBasedStateMachine):
    """One table of a lake, two handles to it, and the model."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = str(new_folder("model"))
        self.lakes: list[il.Lake] = []
        self.few = absence.FEW, hot_inline.FEW_KEYS
        self.step = 0

    @initialize(
        kind=st.sampled_from(sorted(KINDS)),
        format=st.sampled_from(["ipc", "ipc", "parquet", "vortex"]),
        direct=st.sampled_from([3, 50, 50]),
        block=st.sampled_from([3, 5, 8]),
        few=st.sampled_from([(1, 1), (2, 2), (64, 64), (2, 1), (1, 64)]),
    )
    def create(self, kind: str, format: str, direct: int, block: int, few: tuple[int, int]) -> None:
        self.kind = KINDS[kind]
        absence.FEW, hot_inline.FEW_KEYS = few
        config = il.TableConfig(
            direct_write_row_count=direct, block_row_count=block, dump_format=format, retention=timedelta(0)
        )
        self.connect()
        self.lakes[0].create_table("t", self.kind.schema, self.kind.key or None, config=config)
        self.table_id = self.table()._table_id
        self.model = ModelTable(self.kind, self.lakes[0].snapshot_id)
        self.row_ids: dict[int, int] = {}
        self.open: list[tuple[il.Transaction, ModelTransaction]] = []
        self.chunk: tuple[Any, ...] | None = None
        self.write(*self.statement("insert distinct", [0, 1, 2, 3], 0, 0, 5, 0, 1))

    def connect(self) -> None:
        self.lakes = [connect(self.folder) for _ in range(2)]
        self.lakes[0]._scan_threads = 1

    def table(self, lake: int = 0) -> il.Table:
        return self.lakes[lake].table("t")

    def teardown(self) -> None:
        absence.FEW, hot_inline.FEW_KEYS = self.few
        for lake in self.lakes:
            lake.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # One rule for everything: several would be switched off at random, and what matters is how they meet.

    @rule(kind=st.sampled_from(STEPS), choice=st.integers(0, 5), back=st.integers(0, 9), **arguments)
    def run(
        self, kind: str, choice: int, back: int, keys: list[int], n: int, m: int, v: int, which: int, how: int
    ) -> None:
        name, _, inner = kind.partition(": ")
        lake = choice % 2
        if kind.endswith("truncate") and n:
            kind, inner = kind.replace("truncate", "update"), "update"  # an empty table shows little
        if kind in STATEMENTS:
            self.write(*self.statement(kind, keys, n, m, v, which, how))
        elif name == "in transaction" or kind == "begin":
            if not self.open or (kind == "begin" and len(self.open) < 3):
                choice = self.begin(lake)
            if inner == "read for update":
                self.read_for_update(choice, which, n, v)
            else:
                self.write_in(choice, *self.statement(inner or "update", keys, n, m, v, which, how))
        elif kind == "commit" and self.open:
            self.commit(choice)
        elif kind == "roll back" and self.open:
            self.open.pop(choice % len(self.open))[0].rollback()
        elif name.startswith("dump") and self.chunk is not None and choice % 2:
            self.commit_chunk(tidy=back > 4)
        elif name == "dump":
            self.dump(lake, history=choice > 3)
        elif kind == "dump history":
            self.dump(lake, live=False)
        elif kind == "dump slowly" and self.chunk is None:
            self.begin_chunk(lake, history=choice > 3)
        elif kind == "dump slowly":
            self.commit_chunk(tidy=choice > 2)
        elif kind == "rewrite":
            self.rewrite(lake, choice)
        elif kind == "expire":
            self.expire(lake, back, pin=choice > 2)
        elif kind == "reopen" and choice < 3:
            self.reopen()
        elif kind == "get many":
            self.get_many(sorted(set(keys)), back)
        else:
            self.scan_where(which, n, m, v, lake, back)

    # ------------------------------------------------------------ statements

    def write(self, apply: Any, model: Any) -> None:
        """One statement of its own."""
        expected = self.model.begin()
        snapshot = self.lakes[0].snapshot_id
        try:
            count = model(expected)
        except OverflowError:
            with pytest.raises(il.ExpressionError):
                apply(self.table())
            assert self.lakes[0].snapshot_id == snapshot
            return
        if expected.expected():
            with pytest.raises(il.DuplicateKeyError):
                apply(self.table())
            assert self.lakes[0].snapshot_id == snapshot, "a refused statement changes nothing"
            return
        deleted = len(self.model.now) if expected.truncated else expected.counts[2]
        result = apply(self.table())
        assert result.rows == (deleted if expected.truncated else count)
        assert [result.inserted, result.updated, result.deleted] == [*expected.counts[:2], deleted]
        assert result.snapshot_id <= snapshot + 1
        expected.committed(result.snapshot_id)

    def write_in(self, choice: int, apply: Any, model: Any) -> None:
        """One statement of an open transaction."""
        tx, expected = self.open[choice % len(self.open)]
        table = tx.table("t")
        if expected.base < self.model.horizon:
            return
        try:
            count = model(expected)
        except OverflowError:
            with pytest.raises(il.ExpressionError):
                apply(table)
        else:
            assert apply(table).rows == count
        self.compare_view(tx, expected)

    def compare_view(self, tx: il.Transaction, expected: ModelTransaction) -> None:
        """A transaction sees its snapshot and its own writes."""
        table = tx.table("t")
        rows = table.scan(with_row_id=True).to_pylist()
        ids = [row.pop(ROW_ID) for row in rows]
        assert contents(rows) == contents(expected.view.values())
        assert len(set(ids)) == len(ids)
        assert len(table) == len(expected.view)
        if self.kind.key:
            keys = contents({"key": self.kind.key_of(row)} for row in expected.view.values())
            by_key = {self.kind.key_of(row): row for row in expected.view.values()}
            for n in random.Random(self.step).sample(range(KEYS + 2), 3):
                key = self.kind.key_of(self.kind.row(n))
                if keys[(key,)] < 2:
                    assert table.get(key) == by_key.get(key)

    def statement(
        self, kind: str, keys: list[int], n: int, m: int, v: int, which: int, how: int
    ) -> tuple[Callable[[Any], Any], Callable[[ModelTransaction], int]]:
        """One statement, as the table and as the model take it."""
        there = sorted({row["id"] for row in self.model.now.values()})
        if there and which % 4 and kind in ("update", "delete"):
            n = there[n % len(there)]  # mostly a row that exists
        where = predicates(n, m, v, self.kind)[which]
        if kind == "update":
            change = assignments(n, m, v)[how]
            given = {change.column: change.given}
            return lambda t: t.update(given, where.text, where.params), lambda x: x.update([change], where)
        if kind == "delete":
            return lambda t: t.delete(where.text, where.params), lambda x: x.delete(where)
        if kind == "truncate":
            return lambda t: t.truncate(), lambda x: x.truncate()
        if kind == "merge":
            rows = [self.kind.row(number, v) for number in sorted({*keys, KEYS + n})]
            return lambda t: self.merge(t, rows, how), lambda x: x.merge(rows)
        if kind == "insert one":
            keys = keys[:1]
        elif kind == "insert new":  # keys that are mostly free
            keys = [KEYS + n * 5 + i for i in range(1 + len(keys) * 2)]
        elif kind == "insert distinct":
            keys = sorted(set(keys))
        value, text = (v, "a") if how % 2 else (None, ("b", "", None)[how % 3])
        rows = [self.kind.row(number, value, text) for number in keys]
        given_rows = pa.Table.from_pylist(rows, self.kind.schema) if which % 2 else rows
        if kind == "insert one" and not which % 2:
            given_rows = rows[0]
        return lambda t: t.insert(given_rows), lambda x: x.insert(rows)

    def merge(self, t: il.Table, rows: list[dict[str, Any]], how: int) -> il.WriteResult:
        """Rows that are there take the value, the others are added: by merge, or by upsert of a few columns."""
        if self.kind.key and how % 2:
            given = [{c: row[c] for c in (*self.kind.key, "v")} for row in rows]
            return t.upsert(pa.Table.from_pylist(given) if how % 4 == 1 else given)
        merge = t.merge(rows, on=list(self.kind.same)).when_matched_update({"v": il.expr("s.v")})
        return merge.when_not_matched_insert().execute()

    # ------------------------------------------------------------ transactions

    def begin(self, lake: int) -> int:
        """Which of the open transactions is the new one."""
        self.open.append((self.lakes[lake].transaction(), self.model.begin()))
        return len(self.open) - 1

    def read_for_update(self, choice: int, which: int, n: int, v: int) -> None:
        tx, expected = self.open[choice % len(self.open)]
        if expected.base < self.model.horizon:
            return
        where = predicates(n, n, v, self.kind)[which]
        rows = tx.table("t").scan(where.text, params=where.params, for_update=True).to_pylist()
        assert contents(rows) == contents(row for row in expected.view.values() if where.holds(row))
        expected.lock(where)

    def commit(self, choice: int) -> None:
        tx, expected = self.open.pop(choice % len(self.open))
        refusals = expected.expected()
        snapshot = self.lakes[0].snapshot_id
        try:
            result = tx.commit()
        except tuple(REFUSALS.values()) as error:
            refused = type(error)
        else:
            refused = None
        if refused is not None:
            assert refused in {REFUSALS[way] for way in refusals}, f"{refused}; expected {refusals or 'success'}"
            assert self.lakes[0].snapshot_id == snapshot, "a refused commit changes nothing"
            return
        assert not refusals, f"committed in {result.snapshot_id}; expected {refusals}"
        counts = [
            *expected.counts[:2],
            expected.counts[2] + (len(self.model.now) if expected.truncated else 0),
        ]
        if self.lakes[0].snapshot_id > snapshot:
            assert [result.inserted, result.updated, result.deleted] == counts
            assert result.rows == sum(counts)
            assert result.snapshot_id == snapshot + 1
        expected.committed(self.lakes[0].snapshot_id)

    # ------------------------------------------------------------ jobs

    def dump(self, lake: int, live: bool = True, history: bool = True) -> None:
        dump(self.lakes[lake], self.table_id, live=live, history=history)
        self.model.advance(self.lakes[0].snapshot_id)

    def rewrite(self, lake: int, choice: int) -> None:
        pipeline = self.lakes[lake].pipeline()
        job = (pipeline.compact, pipeline.compact, pipeline.freeze, pipeline.thaw)[choice % 4]
        job("t")
        self.model.advance(self.lakes[0].snapshot_id)

    def begin_chunk(self, lake: int, history: bool) -> None:
        """A dump that takes its time."""
        handle = self.lakes[lake]
        task = plan_chunk(handle, self.table_id, history=history)
        if task is not None:
            self.chunk = (handle, task, run_task(handle.storage, task, lambda: None))

    def commit_chunk(self, tidy: bool) -> None:
        assert self.chunk is not None
        handle, task, block = self.chunk
        self.chunk = None
        with Job(handle, "dump", self.table_id, scope=uuid.uuid4().hex) as job:
            commit_chunk(handle, job, task, block)
        if tidy:
            purge(handle, self.table_id)
        self.model.advance(self.lakes[0].snapshot_id)

    def expire(self, lake: int, back: int, pin: bool) -> None:
        handle = self.lakes[lake]
        if registry.DEFAULT == registry.MEMORY:
            self.dump(lake)  # the horizon does not pass what is in memory alone
        for tx, _ in self.open if pin else ():
            tx._pin.started -= PIN_AFTER + 1  # long enough to be pinned
        for each in self.lakes:
            each._maintenance._beat_once()
        pins = [
            expected.base
            for tx, expected in self.open
            if tx._pin.started < time.monotonic() - PIN_AFTER and expected.base >= self.model.horizon
        ]
        wanted = max(self.model.last - back, self.model.horizon, self.model.created_in)
        with handle.catalog.read() as r:
            rows = r.rows("select snapshot_id, committed_at from indexlake_snapshot")
        moment = dict(rows)[wanted]
        newest = max(s for s, at in rows if at <= moment)
        clock_of(handle).stop(moment + MINUTE)
        result = handle.pipeline().expire("t")["main.t"]
        assert result.horizon == max(self.model.horizon, min([newest, *pins]))
        self.model.horizon = result.horizon
        self.model.advance(self.lakes[0].snapshot_id)

    def reopen(self) -> None:
        for tx, _ in self.open:
            tx.rollback()
        self.open, self.chunk = [], None
        for lake in self.lakes:
            lake.close()
        self.connect()

    # ------------------------------------------------------------ what must hold after each step

    def scan_where(self, which: int, n: int, m: int, v: int, lake: int, back: int) -> None:
        where = predicates(n, m, v, self.kind)[which]
        snapshot = max(self.model.last - back, self.model.horizon, self.model.created_in)
        view = self.table(lake).at(snapshot)
        wanted = [row for row in self.model.states[snapshot].values() if where.holds(row)]
        assert contents(view.scan(where.text, params=where.params).to_pylist()) == contents(wanted)
        assert view.scan(where.text, params=where.params).count() == len(wanted)
        addresses = view.row_metadata(where.text, where.params).read_all()
        assert len(addresses) == len(set(addresses.column(ROW_ID).to_pylist())) == len(wanted)

    def get_many(self, keys: list[int], back: int) -> None:
        if not self.kind.key:
            return
        snapshot = max(self.model.last - back, self.model.horizon, self.model.created_in)
        wanted = [self.kind.key_of(self.kind.row(n)) for n in keys]
        found = self.table(back % 2).at(snapshot).get_many(wanted).to_pylist()
        state = self.model.states[snapshot].values()
        assert contents(found) == contents(row for row in state if self.kind.key_of(row) in wanted)

    @invariant()
    def every_snapshot_reads_as_the_model_says(self) -> None:
        if not self.lakes:
            return
        self.step += 1
        model, last = self.model, self.lakes[0].snapshot_id
        assert last == model.last
        # One handle at a time: the cache of the other falls behind, whoever writes next.
        checker = self.lakes[random.Random(self.step).randrange(2)].table("t")
        self.compare_newest(checker)
        for snapshot in model.retained():
            self.compare_at(checker, snapshot)
        if max(model.horizon, model.created_in) == model.horizon > model.created_in:
            with pytest.raises(il.SnapshotExpiredError):
                self.table().at(model.horizon - 1)

    def compare_newest(self, table: il.Table) -> None:
        model = self.model
        rows = table.scan(with_row_id=True).to_pylist()
        ids = [row.pop(ROW_ID) for row in rows]
        assert contents(rows) == contents(model.now.values())
        assert len(set(ids)) == len(ids)
        assert len(table) == len(model.now)
        stats = table.stats()
        assert stats.rows == len(model.now) == stats.hot_rows + stats.block_rows - stats.deleted_in_blocks
        if self.kind.key:
            by_key = dict(zip(map(self.kind.key_of, rows), ids, strict=True))
            assert len(by_key) == len(rows)
            for number, row in model.now.items():
                assert self.row_ids.setdefault(number, by_key[self.kind.key_of(row)]) == by_key[self.kind.key_of(row)]
        found = {s.snapshot_id: s.summary.get(str(self.table_id)) for s in table.history()}
        first = max(model.horizon, model.created_in)
        wanted = {s: list(counts) for s, counts in model.commits.items() if s >= first}
        if first == model.created_in:
            wanted[first] = None
        assert found == wanted

    def compare_at(self, table: il.Table, snapshot: int) -> None:
        state = self.model.states[snapshot]
        view = table.at(snapshot)
        assert contents(view.scan().to_pylist()) == contents(state.values()), f"at snapshot {snapshot}"
        assert len(view) == len(state)
        if self.kind.key:
            by_key = {self.kind.key_of(row): row for row in state.values()}
            for n in random.Random(self.step * 1000 + snapshot).sample(range(KEYS + 3), 2):
                key = self.kind.key_of(self.kind.row(n))
                assert view.get(key) == by_key.get(key), f"at snapshot {snapshot}"


def campaign(few: int = 15) -> settings:
    text = os.environ.get("INDEXLAKE_HYPOTHESIS", "")
    examples, _, steps = text.partition("x")
    return settings(
        max_examples=int(examples or few),
        stateful_step_count=int(steps or 40),
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=not text,
        database=None,
        phases=(Phase.explicit, Phase.generate, Phase.shrink) if text else (Phase.explicit, Phase.generate),
        print_blob=False,
    )


@pytest.mark.timeout(0 if os.environ.get("INDEXLAKE_HYPOTHESIS") else 600)
def test_the_lake_agrees_with_plain_dictionaries_after_every_step() -> None:
    run_state_machine_as_test(LakeMachine, settings=campaign())


@pytest.mark.timeout(0 if os.environ.get("INDEXLAKE_HYPOTHESIS") else 600)
def test_a_lake_in_memory_agrees_with_plain_dictionaries_after_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    in_memory(monkeypatch)
    run_state_machine_as_test(LakeMachine, settings=campaign(2))
