"""A thread of the random transactions: what it asks of the lake, how the model takes it, and what came back."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import indexlake as il
from tests.model.model_table import (
    KINDS,
    Assignment,
    Kind,
    ModelTransaction,
    Predicate,
    assignments,
    contents,
    predicates,
)
from tests.trials.model_judge import Attempt, Statement

KEYS = 8
REFUSED = {il.ConflictError: "conflict", il.DuplicateKeyError: "duplicate", il.SnapshotExpiredError: "expired"}
WRITES = ("insert", "insert", "insert many", "update", "update", "update", "delete", "upsert", "merge", "merge")


class Client:
    """One thread."""

    def __init__(self, lake: il.Lake, name: str, seed: int, first: int) -> None:
        self.lake = lake
        self.name = name
        self.random = random.Random(f"{seed}-{name}")
        self.first = first  # snapshots before it may expire
        self.attempts: list[Attempt] = []
        self.gave_up = 0

    def work(self, count: int) -> None:
        for _ in range(count):
            name = f"{self.name}.{len(self.attempts)}"
            draw = self.random.random()
            if draw < 0.35:
                self.single(Attempt(name, None, asked=self.lake.snapshot_id))
            elif draw < 0.9:
                self.transaction(name)
            else:
                self.look_back(name)

    # ------------------------------------------------------------ attempts

    def transaction(self, name: str) -> None:
        tx = self.lake.transaction()
        attempt = Attempt(name, tx.snapshot_id)
        self.attempts.append(attempt)
        kinds = self.random.sample(list(KINDS.values()), self.random.choice((1, 1, 2, 3)))
        for _ in range(self.random.randint(1, 4)):
            kind = self.random.choice(kinds)
            what = self.random.choice(("read", "read", "get", "lock", *WRITES))
            if self.random.random() < 0.04:
                what = "truncate"
            attempt.asked = self.lake.snapshot_id
            try:
                self.run(attempt, *self.statement(kind, what), tx)
            except il.DuplicateKeyError:  # SQL refuses at once what the commit would refuse
                assert tx.state == "failed"
                self.refused_as_duplicate(attempt)
                return
        attempt.asked = self.lake.snapshot_id
        if self.random.random() < 0.08:
            tx.rollback()
            attempt.outcome = "rolled back"
            return
        try:
            attempt.snapshot = tx.commit().snapshot_id or 0
            attempt.outcome = "committed"
        except tuple(REFUSED) as error:
            attempt.outcome = REFUSED[type(error)]
        attempt.answered = self.lake.snapshot_id

    def single(self, attempt: Attempt) -> None:
        kind = self.random.choice(list(KINDS.values()))
        what = self.random.choice(WRITES)
        if self.random.random() < 0.06:
            what = self.random.choice(("truncate", "overwrite"))
        try:
            attempt.snapshot = self.run(attempt, *self.statement(kind, what), self.lake)
            attempt.outcome = "failed" if attempt.statements[0].answer == "overflow" else "committed"
            attempt.answered = self.lake.snapshot_id
        except il.DuplicateKeyError:
            self.refused_as_duplicate(attempt)
        except il.ConflictError:  # it has been tried again for long enough
            self.gave_up += 1
            return
        self.attempts.append(attempt)

    def refused_as_duplicate(self, attempt: Attempt) -> None:
        attempt.outcome = "duplicate"
        statement = attempt.statements[-1]  # there is no answer: any will do
        play = statement.model
        statement.model = lambda view: (play(view), None)[1]
        attempt.answered = self.lake.snapshot_id

    def look_back(self, name: str) -> None:
        """Rows of the past, while jobs move them."""
        kind = self.random.choice(list(KINDS.values()))
        snapshot = self.random.randint(self.first, self.lake.snapshot_id)
        where = self.where(kind)
        attempt = Attempt(name, snapshot, outcome="rolled back")
        if self.random.random() < 0.3:
            rows = self.lake.sql(f"select * from {kind.name} where {where.text}", where.params, at=snapshot).to_pylist()
        else:
            rows = self.lake.table(kind.name).at(snapshot).scan(where.text, params=where.params).to_pylist()
        attempt.statements.append(Statement(kind.name, f"look back where {where}", found(where), contents(rows)))
        self.attempts.append(attempt)

    def run(
        self, attempt: Attempt, statement: Statement, act: Callable[[Any], Any], where: il.Transaction | il.Lake
    ) -> int:
        """Make one statement and keep its answer; the snapshot that the result tells."""
        attempt.statements.append(statement)
        try:
            result = act(where)
        except il.ExpressionError as error:
            if "range" not in str(error).lower() and "overflow" not in str(error).lower():
                raise
            statement.answer = "overflow"
            return 0
        if isinstance(result, Counter | dict) or result is None:
            statement.answer = result
            return 0
        statement.answer = None if statement.text in ("truncate", "overwrite") else result.rows
        return result.snapshot_id or 0

    # ------------------------------------------------------------ statements

    def where(self, kind: Kind) -> Predicate:
        n, m, v = self.random.randrange(KEYS), self.random.randrange(KEYS), self.random.randint(-60, 60)
        return self.random.choice(predicates(n, m, v, kind))

    def rows(self, kind: Kind, count: int) -> list[dict[str, Any]]:
        space = range(KEYS) if self.random.random() < 0.5 else range(KEYS * 5)
        chosen = self.random.sample(space, min(count, len(space)))
        return [kind.row(n, self.random.randint(-120, 120), self.random.choice(("a", "b", None))) for n in chosen]

    def statement(self, kind: Kind, what: str) -> tuple[Statement, Callable[[Any], Any]]:
        """As the model takes it, and as a transaction or a lake takes it."""
        name, where, by_sql = kind.name, self.where(kind), self.random.random() < 0.25
        if what in ("read", "lock"):
            return self.read(kind, where, what == "lock", by_sql)
        if what == "get":
            return self.get(kind)
        if what == "truncate":
            truncate = (lambda w: w.sql(f"truncate {name}")) if by_sql else (lambda w: w.table(name).truncate())
            return Statement(name, what, lambda view: (view.truncate(), None)[1]), truncate
        if what == "overwrite":
            rows = self.rows(kind, 6)
            load = lambda w: w.pipeline(runner="threads").load(rows, name, "overwrite")  # noqa: E731
            return Statement(name, what, lambda view: (view.truncate(), view.insert(rows), None)[2]), load
        if what == "delete":
            text = f"delete where {where}"
            if by_sql:
                return Statement(name, text, lambda view: view.delete(where)), lambda w: w.sql(
                    f"delete from {name} where {where.text}", where.params
                )
            return Statement(name, text, lambda view: view.delete(where)), lambda w: w.table(name).delete(
                where.text, where.params
            )
        if what == "update":
            v = self.random.randint(-60, 60)
            change = self.random.choice(assignments(where_number(where), self.random.randrange(KEYS), v))
            return self.update(kind, change, where, by_sql and not change.shown.startswith("swap"))
        if what in ("merge", "upsert"):
            return self.merge(kind, what == "upsert" and bool(kind.key), by_sql)
        rows = self.rows(kind, 1 if what == "insert" else self.random.choice((2, 6, 20)))
        return self.insert(kind, rows, by_sql)

    def read(
        self, kind: Kind, where: Predicate, lock: bool, by_sql: bool
    ) -> tuple[Statement, Callable[[Any], Counter[Any]]]:
        name = kind.name
        if lock:
            model = lambda view: (found(where)(view), view.lock(where))[0]  # noqa: E731
            return Statement(name, f"lock {where}", model), lambda w: contents(
                w.table(name).scan(where.text, params=where.params, for_update=True).to_pylist()
            )
        statement = Statement(name, f"read {where}", found(where))
        if by_sql:
            text = f"select * from {name} where {where.text}"
            return statement, lambda w: contents(w.sql(text, where.params).to_pylist())
        return statement, lambda w: contents(w.table(name).scan(where.text, params=where.params).to_pylist())

    def get(self, kind: Kind) -> tuple[Statement, Callable[[Any], Any]]:
        if not kind.key:
            return self.read(kind, self.where(kind), False, False)
        key = kind.key_of(kind.row(self.random.randrange(KEYS + 2)))

        def model(view: ModelTransaction) -> Any:
            same = [row for row in view.view.values() if kind.key_of(row) == key]
            return same[0] if len(same) == 1 else None if not same else answer[0]

        answer: list[Any] = []  # of a key that the transaction itself has given twice, either is right

        def act(w: Any) -> Any:
            answer[:] = [w.table(kind.name).get(key)]
            return answer[0]

        return Statement(kind.name, f"get {key}", model), act

    def update(
        self, kind: Kind, change: Assignment, where: Predicate, by_sql: bool
    ) -> tuple[Statement, Callable[[Any], Any]]:
        statement = Statement(kind.name, f"update {change} where {where}", lambda view: view.update([change], where))
        if by_sql:
            text = f"update {kind.name} set {change.column} = {change.shown} where {where.text}"
            return statement, lambda w: w.sql(text, where.params)
        given = {change.column: change.given}
        return statement, lambda w: w.table(kind.name).update(given, where.text, where.params)

    def insert(self, kind: Kind, rows: list[dict[str, Any]], by_sql: bool) -> tuple[Statement, Callable[[Any], Any]]:
        statement = Statement(kind.name, f"insert {rows}", lambda view: view.insert(rows))
        if by_sql:
            marks = ", ".join(f"({', '.join('?' for _ in kind.schema)})" for _ in rows)
            values = [value for row in rows for value in row.values()]
            return statement, lambda w: w.sql(f"insert into {kind.name} values {marks}", values)
        given: Any = rows[0] if len(rows) == 1 else rows
        if self.random.random() < 0.3:
            given = pa.Table.from_pylist(rows, kind.schema)
        return statement, lambda w: w.table(kind.name).insert(given)

    def merge(self, kind: Kind, by_upsert: bool, by_sql: bool) -> tuple[Statement, Callable[[Any], Any]]:
        rows = [row | {"s": None} for row in self.rows(kind, self.random.choice((1, 3, 6)))]
        word = "upsert" if by_upsert else "merge"
        statement = Statement(kind.name, f"{word} {rows}", lambda view: view.merge(rows))
        if by_upsert:
            given = [{c: row[c] for c in (*kind.key, "v")} for row in rows]
            return statement, lambda w: w.table(kind.name).upsert(given)
        if by_sql:
            marks = ", ".join(f"({', '.join('?' for _ in kind.schema)})" for _ in rows)
            text = (
                f"merge into {kind.name} as t using (values {marks}) as s({', '.join(kind.schema.names)}) "
                f"on {' and '.join(f't.{c} = s.{c}' for c in kind.same)} "
                f"when matched then update set v = s.v when not matched then insert ({', '.join(kind.schema.names)}) "
                f"values ({', '.join(f's.{c}' for c in kind.schema.names)})"
            )
            return statement, lambda w: w.sql(text, [value for row in rows for value in row.values()])

        def merge(w: Any) -> Any:
            merge = w.table(kind.name).merge(rows, on=list(kind.same))
            return merge.when_matched_update({"v": il.expr("s.v")}).when_not_matched_insert().execute()

        return statement, merge


def found(where: Predicate) -> Callable[[ModelTransaction], Counter[Any]]:
    return lambda view: contents(row for row in view.view.values() if where.holds(row))


def where_number(where: Predicate) -> int:
    """A key that the predicate may be about."""
    return int((where.params or {}).get("n", 3))
