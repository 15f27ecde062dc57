"""A table as plain dictionaries: what the engine must show at every snapshot, and how each commit must end.

Rows are named by numbers of the model's own, so that two versions of one row are known as such.  A `ModelTable`
keeps the whole table of every snapshot; a `ModelTransaction` keeps what a transaction sees and has written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

import indexlake as il

Row = dict[str, Any]
State = dict[int, Row]
EVERYTHING = "everything"  # what a truncate touches

VALUES = [pa.field("v", pa.int8()), pa.field("s", pa.string())]


@dataclass(frozen=True)
class Kind:
    """One shape of table."""

    name: str
    schema: pa.Schema
    key: tuple[str, ...]

    def key_of(self, row: Mapping[str, Any]) -> Any:
        values = tuple(row[c] for c in self.key)
        return values[0] if len(values) == 1 else values

    @property
    def same(self) -> tuple[str, ...]:
        """The columns by which a merge tells rows apart."""
        return self.key or ("id",)

    def row(self, n: int, v: int | None = None, s: str | None = None) -> Row:
        """The row of key number n."""
        if self.name == "composite":
            return {"a": "xy"[n % 2] * (n % 3), "id": n, "v": v, "s": s}
        return {"id": n, "v": v, "s": s}


INTEGER = Kind("integer", pa.schema([pa.field("id", pa.int64()), *VALUES]), ("id",))
COMPOSITE = Kind("composite", pa.schema([pa.field("a", pa.string()), pa.field("id", pa.int64()), *VALUES]), ("a", "id"))
KEYLESS = Kind("keyless", pa.schema([pa.field("id", pa.int64()), *VALUES]), ())
KINDS = {k.name: k for k in (INTEGER, COMPOSITE, KEYLESS)}


@dataclass(frozen=True)
class Predicate:
    text: str
    holds: Callable[[Row], bool]
    params: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return f"{self.text!r} {self.params or ''}"


@dataclass(frozen=True)
class Assignment:
    """One SET of an update; `compute` gives the new value or raises OverflowError."""

    column: str
    given: Any
    compute: Callable[[Row], Any]
    shown: str

    def __repr__(self) -> str:
        return f"{self.column} = {self.shown}"


def predicates(n: int, m: int, v: int, kind: Kind) -> list[Predicate]:
    """Some conditions on key numbers n and m and a value v; the last two name one whole key."""
    low, high = min(n, m), max(n, m)
    key = {c: kind.row(n)[c] for c in kind.key or ("id",)}
    whole = " and ".join(f"{c} = ${c}" for c in key)

    def is_it(row: Row) -> bool:
        return all(row[c] == value for c, value in key.items())

    return [
        Predicate("id = $n", lambda r: r["id"] == n, {"n": n}),
        Predicate("id in (?, ?)".replace("?, ?", f"{n}, {m}"), lambda r: r["id"] in (n, m)),
        Predicate("id between $low and $high", lambda r: low <= r["id"] <= high, {"low": low, "high": high}),
        Predicate("true", lambda r: True),
        Predicate(f"v > {v}", lambda r: r["v"] is not None and r["v"] > v),
        Predicate(f"v <= {v} or id = {n}", lambda r: (r["v"] is not None and r["v"] <= v) or r["id"] == n),
        Predicate("v is null", lambda r: r["v"] is None),
        Predicate("s = 'b' and id >= $n", lambda r: r["s"] == "b" and r["id"] >= n, {"n": n}),
        Predicate("s is not null and id <> $n", lambda r: r["s"] is not None and r["id"] != n, {"n": n}),
        Predicate(whole, is_it, key),
        Predicate(f"{whole} and v < {v}", lambda r: is_it(r) and r["v"] is not None and r["v"] < v, key),
    ]


def assignments(n: int, m: int, v: int) -> list[Assignment]:
    def plus(row: Row) -> int | None:
        if row["v"] is None:
            return None
        if not -128 <= row["v"] + v <= 127:
            raise OverflowError
        return int(row["v"] + v)

    swap = f"case when id = {n} then {m} when id = {m} then {n} else id end"
    return [
        Assignment("v", v, lambda r: v, str(v)),
        Assignment("v", None, lambda r: None, "null"),
        Assignment("s", "b", lambda r: "b", "'b'"),
        Assignment("v", il.expr(f"v + {v}" if v >= 0 else f"v - {-v}"), plus, f"v + {v}"),
        Assignment("id", il.expr("id + 1"), lambda r: r["id"] + 1, "id + 1"),
        Assignment("id", il.expr("id - 1"), lambda r: r["id"] - 1, "id - 1"),
        Assignment("id", il.expr(swap), lambda r: {n: m, m: n}.get(r["id"], r["id"]), f"swap {n}, {m}"),
        Assignment("id", n, lambda r: n, str(n)),
    ]


class ModelTable:
    """Every snapshot of one table."""

    def __init__(self, kind: Kind, created_in: int) -> None:
        self.kind = kind
        self.created_in = created_in
        self.states: dict[int, State] = {created_in: {}}
        self.written: dict[int, set[int] | str] = {}  # rows that a commit updated, deleted or locked
        self.added: set[int] = set()  # commits that inserted rows
        self.commits: dict[int, tuple[int, int, int]] = {}  # snapshot -> (inserted, updated, deleted)
        self.version: dict[int, int] = {}  # row -> the commit that wrote its newest version
        self.last = created_in
        self.horizon = 0
        self._rows = 0

    @property
    def now(self) -> State:
        return self.states[self.last]

    def new_row(self) -> int:
        self._rows += 1
        return self._rows

    def advance(self, snapshot: int) -> None:
        """Snapshots up to this one changed nothing that readers see."""
        for s in range(self.last + 1, snapshot + 1):
            self.states[s] = self.states[self.last]
        self.last = max(self.last, snapshot)

    def retained(self) -> Iterable[int]:
        return range(max(self.horizon, self.created_in), self.last + 1)

    def begin(self, *, blind: bool = False) -> ModelTransaction:
        return ModelTransaction(self, self.last, dict(self.now), blind=blind)

    def duplicates(self, state: State) -> bool:
        keys = [self.kind.key_of(row) for row in state.values()] if self.kind.key else []
        return len(set(keys)) < len(keys)


@dataclass
class ModelTransaction:
    table: ModelTable
    base: int
    view: State
    closed: set[int] = field(default_factory=set)  # committed rows that it updated or deleted
    own: set[int] = field(default_factory=set)  # rows that it inserted
    locked: set[int] = field(default_factory=set)
    absent: set[Any] = field(default_factory=set)  # what a merge found in no row and added rows for
    truncated: bool = False
    blind: bool = False  # a statement of its own: its truncate conflicts with nothing
    counts: list[int] = field(default_factory=lambda: [0, 0, 0])

    @property
    def changed(self) -> set[int]:
        return (self.own | self.closed) & self.view.keys()

    # -- statements: how many rows they concern

    def insert(self, rows: Iterable[Row]) -> int:
        count = 0
        for row in rows:
            number = self.table.new_row()
            self.view[number] = dict(row)
            self.own.add(number)
            count += 1
        self.counts[0] += count
        return count

    def update(self, sets: Iterable[Assignment], predicate: Predicate) -> int:
        sets = list(sets)
        new = {}
        for number, row in self.view.items():
            if predicate.holds(row):
                new[number] = row | {a.column: a.compute(row) for a in sets}
        self.view |= new
        self.closed |= new.keys() - self.own
        self.counts[1] += len(new)
        return len(new)

    def delete(self, predicate: Predicate) -> int:
        gone = [number for number, row in self.view.items() if predicate.holds(row)]
        for number in gone:
            del self.view[number]
        self.closed |= set(gone) - self.own
        self.own -= set(gone)
        self.counts[2] += len(gone)
        return len(gone)

    def merge(self, rows: Iterable[Row]) -> int:
        """Rows that are there take the value of the given one, the others are added."""
        same, before = self.table.kind.same, dict(self.view)
        count = 0
        for row in rows:
            there = [n for n, old in before.items() if all(old[c] == row[c] for c in same)]
            for number in there:
                self.view[number] = before[number] | {"v": row["v"]}
            self.closed |= set(there) - self.own
            self.counts[1] += len(there)
            if not there:
                self.insert([row])
                self.absent.add(tuple(row[c] for c in same))
            count += len(there) or 1
        return count

    def lock(self, predicate: Predicate) -> None:
        self.locked |= {n for n, row in self.view.items() if predicate.holds(row)} - self.own

    def truncate(self) -> int:
        count = len(self.view)
        self.view, self.closed, self.own, self.absent, self.truncated = {}, set(), set(), set(), True
        self.counts = [0, 0, 0]
        return count

    # -- the commit

    def expected(self) -> set[str]:
        """The ways in which the commit may be refused; none: it must succeed."""
        table, ways = self.table, set()
        mine = self.closed | self.locked
        if mine or self.own or self.truncated:
            if self.base < table.horizon and (mine or not (self.truncated and self.blind)):
                ways.add("expired")
            since = [w for s, w in table.written.items() if s > self.base]
            if self.truncated and not self.blind and (since or any(s > self.base for s in table.added)):
                ways.add("conflict")
            if any(mine and (w == EVERYTHING or mine & w) for w in since):  # type: ignore[operator]
                ways.add("conflict")
            if table.duplicates({n: self.view[n] for n in self.changed}):
                ways.add("duplicate")
            ways |= self.taken()
        return ways

    def taken(self) -> set[str]:
        """How others are in the way who have committed since."""
        table, kind, ways = self.table, self.table.kind, set()
        if self.truncated:
            return ways
        others = {n: row for n, row in table.now.items() if n not in self.closed}
        mine = {kind.key_of(self.view[n]) for n in self.changed} if kind.key else set()
        for number, row in others.items():
            guarded = tuple(row[c] for c in kind.same) in self.absent
            if kind.key and kind.key_of(row) in mine:
                ways.add("conflict" if guarded else "duplicate")
            elif not kind.key and guarded and table.version[number] > self.base:
                ways.add("conflict")
        return ways

    def after(self) -> State:
        """The whole table if this commits now."""
        kept = {} if self.truncated else {n: row for n, row in self.table.now.items() if n not in self.closed}
        return kept | {n: self.view[n] for n in self.changed}

    def committed(self, snapshot: int) -> None:
        """The engine says that it committed in this snapshot."""
        table = self.table
        after = self.after()
        gone = len(table.now) if self.truncated else 0
        if snapshot <= table.last:
            assert after == table.now, "a commit that changes rows takes a snapshot of its own"
            return
        table.advance(snapshot - 1)
        table.states[snapshot] = after
        table.version |= dict.fromkeys(self.changed, snapshot)
        table.last = snapshot
        written = self.closed | self.locked
        if self.own & self.view.keys():
            table.added.add(snapshot)
        if self.truncated:
            table.written[snapshot] = EVERYTHING
        elif written:
            table.written[snapshot] = written
        table.commits[snapshot] = (self.counts[0], self.counts[1], self.counts[2] + gone)


def contents(rows: Iterable[Mapping[str, Any]]) -> Counter[tuple[Any, ...]]:
    """Rows as a multiset."""
    return Counter(tuple(row.values()) for row in rows)
