"""Indexes of every kind against a look at each row, after every step of random writes, jobs and alterations.

Answers are compared at the newest and at past snapshots and inside transactions, through one of two handles, with
look-ups forced and forbidden; the plan says that an index was really used.  Segments are as small and folds as frequent
as can be. `INDEXLAKE_HYPOTHESIS=<runs>` runs so many other histories.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.pipeline import build_index, create_index, merge_index
from tests.model.indexed_table import (
    COLUMNS,
    DEFINITIONS,
    SCHEMA,
    WORDS,
    Definition,
    Question,
    Row,
    State,
    nearest_places,
    nearest_vectors,
    questions,
    random_row,
    ranked_texts,
    same_ranking,
)
from tests.support.folders import new_folder
from tests.support.lakes import clock_of, connect
from tests.support.one_owner import in_memory

MINUTE = 60_000_000
STEPS = {
    "insert": 8, "insert block": 4, "update": 8, "delete": 4, "upsert": 4, "merge": 3, "transaction": 5,
    "dump": 5, "compact": 3, "freeze": 1, "thaw": 1, "run": 1,
    "create": 4, "define": 4, "drop": 2, "build": 4, "fold": 4, "expire": 3, "vacuum": 1,
    "rename": 1, "widen": 1, "add column": 1, "reopen": 1,
}  # fmt: skip
WIDER = {"a": (pa.int32(), pa.int64()), "x": (pa.float64(),)}


@contextmanager
def small_segments() -> Iterator[None]:
    before = merge_index.FOLD, build_index.GROUP_ROWS
    merge_index.FOLD, build_index.GROUP_ROWS = 2, 12
    try:
        yield
    finally:
        merge_index.FOLD, build_index.GROUP_ROWS = before


class History:
    """One random history of a table with indexes."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.folder = str(new_folder("index-model"))
        self.lakes = [connect(self.folder) for _ in range(2)]
        self.log: list[str] = []
        self.used: Counter[str] = Counter()
        config = il.TableConfig(
            direct_write_row_count=self.random.choice((4, 30)),
            block_row_count=self.random.choice((5, 9, 40)),
            dump_format=self.random.choice(("ipc", "parquet", "vortex")),
            retention=timedelta(0),
        )
        self.keyed = self.random.random() < 0.7
        self.lakes[0].create_table("t", SCHEMA, "id" if self.keyed else None, config=config)
        self.now: dict[int, Row] = {}
        self.names = {column: column for column in COLUMNS}
        self.states: dict[int, tuple[State, dict[str, str]]] = {}
        self.horizon = self.lakes[0].snapshot_id
        self.numbers = iter(range(10_000))
        self.there: dict[str, Definition] = {}
        self.enforced = False
        self.widened: Counter[str] = Counter()
        self.remember()
        self.do_insert_block()
        for n in range(4):  # every index is in some histories from the beginning
            self.create(list(DEFINITIONS.values())[(2 * seed + n) % len(DEFINITIONS)])
            self.remember()

    def close(self) -> None:
        for lake in self.lakes:
            lake.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # ------------------------------------------------------------ the model

    def remember(self) -> None:
        """What the newest snapshot shows, and all since the last one that was remembered."""
        last = self.lakes[0].snapshot_id
        for snapshot in range(max(self.states, default=last - 1) + 1, last + 1):
            self.states[snapshot] = (dict(self.now), dict(self.names))

    def is_taken(self, rows: State) -> bool:
        """Whether a unique index forbids these rows."""
        values = [r["u"] for r in rows.values() if r["u"] is not None]
        return self.enforced and len(set(values)) < len(values)

    def write(self, apply: Callable[[], Any], after: dict[int, Row], what: str) -> None:
        self.log.append(what)
        try:
            apply()
        except il.DuplicateKeyError:
            assert self.is_taken(after), "nothing was there twice"
            return
        assert not self.is_taken(after), "a duplicate was let through"
        self.now = after
        self.remember()

    def outside(self, row: Row) -> Row:
        """A row with the columns' names of now."""
        return {self.names[c]: v for c, v in row.items() if c in self.names}

    def given(self, rows: list[Row]) -> Any:
        named = [self.outside(r) for r in rows]
        if self.random.random() < 0.5:
            return named
        return pa.Table.from_pylist(named, self.table().schema)

    # ------------------------------------------------------------ steps

    def handle(self) -> il.Lake:
        lake = self.random.choice((*self.lakes, self.lakes[0]))
        lake._files.use_indexes = self.random.choice(("auto", "always", "always", "never"))
        return lake

    def table(self) -> il.Table:
        return self.handle().table("t")

    def step(self) -> None:
        kind = self.random.choices(list(STEPS), list(STEPS.values()))[0]
        getattr(self, "do_" + kind.replace(" ", "_"))()
        self.remember()

    def row(self, number: int) -> Row:
        return random_row(self.random, number, self.widened["a"])

    def new_rows(self, count: int) -> list[Row]:
        return [self.row(next(self.numbers)) for _ in range(count)]

    def do_insert(self, most: int = 3) -> None:
        rows = self.new_rows(self.random.randint(1, most))
        after = {**self.now, **{r["id"]: r for r in rows}}
        self.write(lambda: self.table().insert(self.given(rows)), after, f"insert {len(rows)}")

    def do_insert_block(self) -> None:
        self.do_insert(25)

    def condition(self) -> Question:
        return self.random.choice(questions(self.random))

    def do_update(self) -> None:
        where, change = self.condition(), self.row(0)
        columns = self.random.sample(COLUMNS[1:], 2)
        if "u" in columns and self.random.random() < 0.8:
            columns.remove("u")
        change = {c: change[c] for c in columns}
        after = {n: {**r, **change} if where.holds(r) else r for n, r in self.now.items()}
        text, given = where.sql(self.names), self.outside(change)
        self.write(lambda: self.table().update(given, text), after, f"update {given} where {text}")

    def do_delete(self) -> None:
        where = self.condition()
        after = {n: r for n, r in self.now.items() if not where.holds(r)}
        if len(after) < len(self.now) // 2:
            return
        text = where.sql(self.names)
        self.write(lambda: self.table().delete(text), after, f"delete where {text}")

    def some_rows(self) -> list[Row]:
        """New values for some that are there, and some that are new."""
        old = self.random.sample(sorted(self.now), min(len(self.now), self.random.randint(0, 5)))
        return [self.row(n) for n in old] + self.new_rows(self.random.randint(0, 2))

    def do_upsert(self) -> None:
        rows = self.some_rows()
        if self.keyed and rows:
            after = {**self.now, **{r["id"]: r for r in rows}}
            self.write(lambda: self.table().upsert(self.given(rows)), after, f"upsert {[r['id'] for r in rows]}")

    def do_merge(self) -> None:
        """On an indexed column that is not the key: rows with a value of the source take its text."""
        rows = [{"a": n, "note": self.random.choice(WORDS)} for n in self.random.sample(range(-4, 13), 2)]
        notes = {r["a"]: r["note"] for r in rows}
        after = {n: {**r, "note": notes[r["a"]]} if r["a"] in notes else r for n, r in self.now.items()}
        source = pa.Table.from_pylist([self.outside(r) for r in rows])
        change = {self.names["note"]: il.expr(f"s.{self.names['note']}")}

        def apply() -> None:
            self.table().merge(source, on=self.names["a"]).when_matched_update(change).execute()

        self.write(apply, after, f"merge {notes}")

    def do_transaction(self) -> None:
        """Several statements; between them answers include what it has written, and others commit."""
        tx = self.handle().transaction()
        t, view, base = tx.table("t"), dict(self.now), dict(self.now)
        self.log.append("begin")
        try:
            for _ in range(self.random.randint(1, 4)):
                where = self.condition()
                kind = self.random.choice(("insert", "update", "delete"))
                if kind == "insert":
                    rows = self.new_rows(self.random.choice((1, 2, 8)))
                    t.insert(self.given(rows))
                    view |= {r["id"]: r for r in rows}
                elif kind == "update":
                    change = {"s": self.random.choice(TEXTS_GIVEN), "note": self.random.choice(WORDS)}
                    t.update(self.outside(change), where.sql(self.names))
                    view = {n: {**r, **change} if where.holds(r) else r for n, r in view.items()}
                else:
                    t.delete(where.sql(self.names))
                    view = {n: r for n, r in view.items() if not where.holds(r)}
                self.log.append(f"  {kind} {where.sql(self.names)}")
                tx._lake._files.use_indexes = "always"
                for _ in range(3):
                    self.ask(t, view, self.names, self.condition())
                self.search_all(t, view, self.names)
            rival = self.random.random() < 0.3
            if rival:
                self.do_insert()
            changes = {n: view.get(n) for n in {*view, *base} if view.get(n) != base.get(n)}
            after = {n: r for n, r in {**self.now, **changes}.items() if r is not None}
            try:
                tx.commit()
            except il.ConflictError:
                assert rival
                return
            except il.DuplicateKeyError:
                assert self.is_taken(after)
                return
            assert not self.is_taken(after), "a duplicate was let through"
            self.log.append("commit")
            self.now = after
        finally:
            tx.rollback()

    def job(self, name: str, *args: Any, **options: Any) -> None:
        self.log.append(name)
        getattr(self.handle().pipeline(), name)(*args, **options)

    def do_dump(self) -> None:
        self.job("dump", "t")

    def do_compact(self) -> None:
        self.job("compact", "t")

    def do_freeze(self) -> None:
        self.job("freeze", "t")

    def do_thaw(self) -> None:
        self.job("thaw", "t")

    def do_run(self) -> None:
        self.job("run", "t")
        self.horizon = max(self.horizon, self.lakes[0].table("t")._state().table.horizon)
        self.enforced = self.enforced or self.enforced_now()

    def do_build(self) -> None:
        self.job("build_index", "t")

    def do_fold(self) -> None:
        self.job("merge_index", "t")

    def do_vacuum(self) -> None:
        self.job("vacuum", dry_run=False, grace=timedelta(0))

    def enforced_now(self) -> bool:
        state = self.lakes[0]._readings.latest(self.lakes[0].table("t")._table_id)
        return any(c.index.name == "uniq" for c in state.enforced)

    def missing(self) -> Definition | None:
        names = [name for name in DEFINITIONS if name not in self.there]
        return DEFINITIONS[self.random.choice(names)] if names else None

    def do_create(self) -> None:
        d = self.missing()
        if d is not None:
            self.create(d)

    def create(self, d: Definition) -> None:
        self.log.append(f"create {d.name}")
        columns, include = ([self.names[c] for c in each] for each in (d.columns, d.include))
        if d.unique:
            values = [r["u"] for r in self.now.values() if r["u"] is not None]
            twice = len(set(values)) < len(values)
            try:
                self.table().create_index(d.name, columns, d.kind, unique=True)
            except il.DuplicateKeyError:
                assert twice
                return
            assert not twice
            self.enforced = True
        else:
            self.table().create_index(d.name, columns, d.kind, include=include)
        self.there[d.name] = d

    def do_define(self) -> None:
        """The definition alone: every block is a gap."""
        d = self.missing()
        if d is None or d.unique:
            return
        self.log.append(f"define {d.name}")
        t = self.table()
        columns, include = ([self.names[c] for c in each] for each in (d.columns, d.include))
        t._lake._define(create_index._definition(t, d.name, columns, d.kind, False, include, {}), "create index")
        self.there[d.name] = d

    def do_drop(self) -> None:
        if self.there:
            name = self.random.choice(sorted(self.there))
            self.log.append(f"drop {name}")
            self.table().drop_index(name.upper())
            del self.there[name]
            self.enforced = self.enforced and name != "uniq"

    def do_expire(self) -> None:
        lake = self.handle()
        for each in self.lakes:
            each._maintenance._beat_once()
        with lake.catalog.read() as r:
            moments = dict(r.rows("select snapshot_id, committed_at from indexlake_snapshot"))
        wanted = max(s for s in moments if s <= max(self.horizon, lake.snapshot_id - self.random.randint(0, 12)))
        with clock_of(lake).stopped(moments[wanted] + MINUTE):
            self.horizon = lake.pipeline().expire("t")["main.t"].horizon
        self.log.append(f"expire up to {self.horizon}")

    def do_rename(self) -> None:
        column = self.random.choice(COLUMNS[1:])
        new = f"{column}_{len(self.log)}"
        self.log.append(f"rename {column} to {new}")
        self.table().rename_column(self.names[column], new)
        self.names[column] = new

    def do_widen(self) -> None:
        column = self.random.choice(list(WIDER))
        if self.widened[column] < len(WIDER[column]):
            self.log.append(f"widen {column}")
            self.table().widen_column(self.names[column], WIDER[column][self.widened[column]])
            self.widened[column] += 1

    def do_add_column(self) -> None:
        self.log.append("add column")
        self.table().add_column(f"more_{len(self.log)}", pa.int32(), default=7)

    def do_reopen(self) -> None:
        self.log.append("reopen")
        for lake in self.lakes:
            lake.close()
        self.lakes = [connect(self.folder) for _ in range(2)]

    # ------------------------------------------------------------ what must hold after each step

    def check(self) -> None:
        random = self.random
        t = random.choice(self.lakes).table("t")
        assert {info.name for info in t.indexes()} == set(self.there)
        t._lake._files.use_indexes = "always"
        snapshots = [None, *random.sample(range(self.horizon, max(self.states) + 1), 1)]
        for snapshot in snapshots:
            view = t if snapshot is None else t.at(snapshot)
            state, names = self.states[max(self.states) if snapshot is None else snapshot]
            asked = questions(random)
            for question in random.sample(asked, 7):
                self.ask(view, state, names, question)
            question = random.choice(asked)
            t._lake._files.use_indexes = "never"
            self.ask(view, state, names, question, used=False)
            t._lake._files.use_indexes = "auto"
            self.ask(view, state, names, random.choice(asked), used=False)
            t._lake._files.use_indexes = "always"
            self.search_all(view, state, names)

    def ask(self, t: il.Table, rows: State, names: dict[str, str], question: Question, *, used: bool = True) -> None:
        where = question.sql(names)
        columns = ["id", "a", "s"] if self.random.random() < 0.5 else list(COLUMNS)
        scan = t.scan(where, columns=[names[c] for c in columns])
        found = sorted((tuple(row.values()) for row in scan.to_pylist()), key=lambda row: row[0])
        wanted = [tuple(r[c] for c in columns) for n, r in sorted(rows.items()) if question.holds(r)]
        plan = scan.explain()
        assert found == wanted, f"{where}\n{plan}"
        assert t.scan(where).count() == len(wanted)
        if self.random.random() < 0.2:
            self.ordered(t, rows, names, question)
        able = [i for i in question.indexes if all(part in self.there for part in i.split(" or "))]
        if used and able and plan.blocks_read:
            own = t._tx is not None  # blocks of its own are read as they are
            assert own or plan.found_by != "statistics", f"{where}\n{plan}"
            if plan.segments_read:
                self.used.update(plan.found_by.replace(" or ", " and ").split(" and "))

    def ordered(self, t: il.Table, rows: State, names: dict[str, str], question: Question) -> None:
        where, down = question.sql(names), self.random.random() < 0.5
        found = t.scan(where, order_by=[(names["a"], "desc" if down else "asc")], limit=4).to_pylist()
        values = [r["a"] for r in rows.values() if question.holds(r)]
        known = sorted((v for v in values if v is not None), reverse=down)
        assert [r[names["a"]] for r in found] == (known + [None] * (len(values) - len(known)))[:4], where

    def search_all(self, t: il.Table, rows: State, names: dict[str, str]) -> None:
        random = self.random
        question = self.condition() if random.random() < 0.5 else None
        where = None if question is None else question.sql(names)
        chosen = rows if question is None else {n: r for n, r in rows.items() if question.holds(r)}
        k = random.choice((1, 3, 10, 1000))
        searches: list[tuple[str, Any, str, Any]] = [
            ("place", (0.3, random.uniform(-3, 3)), "_distance", nearest_places),
            ("near", [random.uniform(-5, 5) for _ in range(3)], "_distance", nearest_vectors),
            ("text", " ".join(random.sample(WORDS, 2)), "_score", lambda some, query: ranked_texts(some, query, rows)),
        ]
        for index, query, measure, brute in searches:
            if index in self.there:
                search = t.search(index, query, k=k, where=where, columns=["id"])
                plan = None
                try:
                    same_ranking(search.to_pylist(), measure, brute(chosen, query), k)
                    plan = search.explain()
                except AssertionError as error:
                    raise AssertionError(f"{index} near {query}, k={k}, where {where}\n{search.explain()}") from error
                if plan.segments:
                    self.used[index] += 1


TEXTS_GIVEN = ("b", "ba", "c", None)
SEEDS = range(4)


def run(seed: int, steps: int) -> Counter[str]:
    with small_segments():
        history = History(seed)
        try:
            for _ in range(steps):
                history.step()
                history.check()
        except BaseException:
            print(f"seed {seed}, keyed {history.keyed}, {history.lakes[0].table('t').config}")
            print("\n".join(history.log))
            raise
        finally:
            history.close()
    return history.used


def test_every_index_answers_as_a_look_at_each_row_does_after_every_step() -> None:
    used: Counter[str] = Counter()
    for seed in SEEDS:
        used += run(seed, 30)
    assert set(used) >= set(DEFINITIONS), used
    assert min(used[name] for name in DEFINITIONS) >= 3, used


def test_every_index_in_memory_answers_as_a_look_at_each_row_does(monkeypatch: pytest.MonkeyPatch) -> None:
    in_memory(monkeypatch)
    assert run(7, 30)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_every_index_answers_as_a_look_at_each_row_does_in_many_histories() -> None:
    for seed in range(1000, 1000 + int(os.environ.get("INDEXLAKE_HYPOTHESIS", "100"))):
        run(seed, 120)
