"""Judges what threads did to a lake by playing their commits again, in the order of snapshots, on a plain-Python model.

Each attempt says which statements it made and what the engine answered.  A transaction is played at the snapshot that
it read: every answer must be the model's, it must commit exactly when the model lets it, and a refusal must have a
cause at a moment between the call and its return.  A single statement says nothing of the snapshot it was computed at:
one between the call and its commit must explain it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.model.model_table import Kind, ModelTable, ModelTransaction, contents

Change = tuple[str, tuple[Any, ...]]
"""What a feed shows of one row: the kind of change, and the values."""


@dataclass
class Statement:
    table: str
    text: str
    model: Callable[[ModelTransaction], Any]
    """Plays it; the answer that the engine must give, or OverflowError where it must fail."""
    answer: Any = None

    def __repr__(self) -> str:
        return f"{self.table}: {self.text} -> {self.answer}"


@dataclass
class Attempt:
    """A transaction, or (`base` is None) a single statement."""

    name: str
    base: int | None
    statements: list[Statement] = field(default_factory=list)
    outcome: str = "open"
    """committed, rolled back, failed (a single statement with an error), or how the commit was refused."""
    snapshot: int = 0
    """Where it was committed."""
    asked: int = 0
    """The newest snapshot before the commit was asked for (of a single statement: before the call)."""
    answered: int = 0
    """The newest snapshot afterwards."""

    @property
    def blind(self) -> bool:
        """It does not depend on what was there."""
        return self.base is None and all(s.text in ("truncate", "overwrite") for s in self.statements)

    def __repr__(self) -> str:
        what = f"at {self.base}" if self.base is not None else "single"
        return f"{self.name} ({what}, asked at {self.asked}) {self.outcome} {self.snapshot}: {self.statements}"


class Wrong(AssertionError):
    """The engine and the model do not agree."""


class Judge:
    """The model of all tables, and the feed that they must show."""

    def __init__(self, kinds: Iterable[Kind], created_in: dict[str, int], newest: int) -> None:
        self.tables = {kind.name: ModelTable(kind, created_in[kind.name]) for kind in kinds}
        self.feed: dict[str, dict[int, Counter[Change]]] = {name: {} for name in self.tables}
        self.committed: dict[int, Attempt] = {}
        self.advance(newest)

    @property
    def last(self) -> int:
        return min(table.last for table in self.tables.values())

    def advance(self, snapshot: int) -> None:
        for table in self.tables.values():
            table.advance(snapshot)

    def judge(self, attempts: Iterable[Attempt], newest: int, there: Callable[[str, int], Counter[Any]]) -> None:
        """Play all attempts up to the newest snapshot; `there` reads the rows of a table at a snapshot."""
        attempts = list(attempts)
        commits: dict[int, Attempt] = {}
        refused = [a for a in attempts if a.outcome not in ("committed", "rolled back")]
        for attempt in attempts:
            if attempt.outcome == "committed" and not self._changes_nothing(attempt):
                other = commits.setdefault(attempt.snapshot, attempt)
                if other is not attempt:
                    raise Wrong(f"two commits in one snapshot:\n{other}\n{attempt}")
        reads = [a for a in attempts if a.outcome == "committed" and commits.get(a.snapshot) is not a]
        first = self.last
        for snapshot in range(first, newest + 1):
            if snapshot > first:
                if snapshot in commits:
                    self._commit(commits[snapshot], there)
                self.advance(snapshot)
            refused = [a for a in refused if not self._has_cause(a, snapshot)]
        for attempt in reads:
            self._play(attempt, attempt.snapshot)
        for attempt in attempts:
            if attempt.outcome == "rolled back":
                assert attempt.base is not None
                self._play(attempt, attempt.base)
        if refused:
            raise Wrong(f"no cause for the refusal of {refused[0]}\n{self._since(refused[0])}")

    # ------------------------------------------------------------ playing

    def _play(self, attempt: Attempt, base: int) -> dict[str, ModelTransaction]:
        """What it would write, computed at a snapshot; Wrong: it has seen something else."""
        views: dict[str, ModelTransaction] = {}
        for statement in attempt.statements:
            table = self.tables[statement.table]
            if statement.table not in views:
                views[statement.table] = ModelTransaction(table, base, dict(table.states[base]))
            try:
                wanted = statement.model(views[statement.table])
            except OverflowError:
                wanted = "overflow"
            if wanted != statement.answer:
                raise Wrong(
                    f"{attempt.name} at {base}: {statement}, but the model answers {wanted}\n{attempt}\n"
                    f"rows at {base}: {list(table.states[base].values())}"
                )
        return views

    def _changes_nothing(self, attempt: Attempt) -> bool:
        """A transaction that commits nothing stays at its snapshot; a statement that finds no row makes none."""
        if attempt.base is not None:
            return attempt.snapshot == attempt.base
        return not attempt.blind and attempt.statements[0].answer == 0

    def _possible(self, attempt: Attempt, until: int) -> Iterator[int]:
        """Snapshots at which it may have been computed, when it was decided on top of `until`."""
        if attempt.base is not None:
            yield attempt.base
        elif attempt.blind:
            yield until
        else:
            yield from range(until, attempt.asked - 1, -1)

    def _commit(self, attempt: Attempt, there: Callable[[str, int], Counter[Any]]) -> None:
        """The first way to explain it that leads to the rows that are there."""
        snapshot, wrong = attempt.snapshot, [f"{attempt} has no base"]
        for base in self._possible(attempt, snapshot - 1):
            try:
                views = self._play(attempt, base)
            except Wrong as error:
                wrong.append(str(error))
                continue
            refusals = {way for view in views.values() for way in view.expected()}
            if refusals:
                wrong.append(f"{attempt}\ncommitted, though the model says {refusals}\n{self._since(attempt)}")
                continue
            after = {name: contents(view.after().values()) for name, view in views.items()}
            differing = [name for name in after if there(name, snapshot) != after[name]]
            if differing:
                name = differing[0]
                wrong.append(
                    f"{attempt}\nat {snapshot}, {name}: too much {there(name, snapshot) - after[name]}, "
                    f"missing {after[name] - there(name, snapshot)}\n{self._since(attempt)}"
                )
                continue
            self._done(attempt, views)
            return
        raise Wrong(wrong[-1])

    def _done(self, attempt: Attempt, views: dict[str, ModelTransaction]) -> None:
        snapshot = attempt.snapshot
        self.committed[snapshot] = attempt
        for name, view in views.items():
            before = view.table.now
            view.committed(snapshot)
            after, kind = view.table.now, view.table.kind
            changes: Counter[Change] = Counter()
            for n, row in before.items():
                if n not in after:
                    changes["delete", _values(kind, row)] += 1
                elif n in view.changed:
                    changes["update_preimage", _values(kind, row)] += 1
                    changes["update_postimage", _values(kind, after[n])] += 1
            for n in after.keys() - before.keys():
                changes["insert", _values(kind, after[n])] += 1
            if changes:
                self.feed[name][snapshot] = changes

    def _has_cause(self, attempt: Attempt, now: int) -> bool:
        """Whether the model refuses it too at this moment, between the call and its answer."""
        if not attempt.asked <= now <= attempt.answered:
            return False
        for base in self._possible(attempt, now):
            try:
                views = self._play(attempt, base)
            except Wrong:
                if attempt.base is not None:
                    raise
                continue
            if attempt.outcome == "failed" or attempt.outcome in {w for v in views.values() for w in v.expected()}:
                return True
        return False

    def _since(self, attempt: Attempt) -> str:
        """The commits that it met."""
        first = attempt.asked if attempt.base is None else attempt.base
        names = {s.table for s in attempt.statements}
        lines = [
            f"  {snapshot}: {[s for s in other.statements if s.table in names]}"
            for snapshot, other in sorted(self.committed.items())
            if snapshot > first and any(s.table in names for s in other.statements)
        ]
        return "\n".join(["committed since:", *lines])


def _values(kind: Kind, row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in kind.schema.names)
