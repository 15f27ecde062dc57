"""What a transaction has defined and not committed yet.

Its definitions are tried out: a catalog transaction applies them to those of the transaction's snapshot, answers what
is asked, and is rolled back.  So the transaction sees its own definitions wherever the catalog is asked, nobody else
does, and a crash leaves nothing.  The commit applies the same changes, with the same numbers for tables and columns, in
its critical section.  If another commit has changed the same table since the snapshot, that is a conflict.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from indexlake.catalog import commits, rewound, tables
from indexlake.catalog.named import named_in
from indexlake.catalog.numbers import Numbers
from indexlake.catalog.owned_sequences import tables_needing
from indexlake.errors import ConflictError, NotFoundError, SchemaError
from indexlake.snapshots.reading import Reading, Readings
from indexlake.snapshots.seen import Seen
from indexlake.snapshots.state import TableState, load

if TYPE_CHECKING:
    from indexlake.catalog.definitions import DefinitionChange
    from indexlake.catalog.driver import Catalog, Transaction
    from indexlake.catalog.named import Named
    from indexlake.commit.write_set import TableWrites
    from indexlake.hot.store import HotStore
    from indexlake.schema import Field
    from indexlake.snapshots.sequences import Sequences

_versions = count(1)


@dataclass(slots=True)
class Drafted:
    """A definition of a transaction, which is applied again and again with the same numbers and the same outcome."""

    change: DefinitionChange
    numbers: Numbers = field(default_factory=Numbers)
    outcome: Any = None  # whether there was anything to change, and what it replaced

    @property
    def table_id(self) -> int | None:
        return self.change.table_id

    def apply(self, tx: Transaction, hot: HotStore, snapshot: int) -> bool:
        try:
            with self.numbers.given():
                happened = self.change.apply(tx, hot, snapshot)
        except (SchemaError, NotFoundError) as error:
            if self.outcome is None:
                raise
            raise ConflictError(
                "Another commit has changed what a definition of this transaction depends on, after it began. Run it "
                f"again; lake.run does so by itself. {error}",
                **error.details,
            ) from None
        outcome = (happened, tuple(getattr(self.change, "replaced", ())))
        if self.outcome is None:
            self.outcome = outcome
        elif outcome != self.outcome:
            raise ConflictError(
                "Another commit has created or dropped what this transaction defines, after it began. Run it again; "
                "lake.run does so by itself."
            )
        return happened


@dataclass(frozen=True, slots=True)
class Draft:
    """The definitions of one transaction, which reads at snapshot ``base``; another draft for each one that is added.

    ``version`` takes the place of the number of the commit that will change the tables: negative, and never the same.
    """

    base: int
    changes: tuple[Drafted, ...] = ()
    created: frozenset[int] = frozenset()  # tables that the transaction has created
    altered: frozenset[int] = frozenset()  # tables of the snapshot that it has altered
    dropped: frozenset[int] = frozenset()
    version: int = 0
    sequences: Sequences | None = None  # those that the transaction sees, if it has defined or dropped some

    def touches(self, table_id: int) -> bool:
        return table_id in self.created or table_id in self.altered or table_id in self.dropped

    def with_change(self, catalog: Catalog, hot: HotStore, change: DefinitionChange, sequences: Sequences) -> Draft:
        """Check a change and return the draft with it, or the same draft if there is nothing to change.

        The numbers that it takes are used up, whatever becomes of the transaction.
        """
        drafted = Drafted(change)
        named = () if change.table_id is None else (change.table_id,)
        new = replace(
            self, changes=(*self.changes, drafted), altered=self.altered.union(named), version=-next(_versions)
        )
        found: list[tuple[int, bool, bool]] = []
        own: dict[str, Named | None] = {}
        needing: set[int] = set()
        with catalog.transaction() as tx:
            with suppress(_Undone), tx.savepoint():
                others = new.apply(tx, TriedHot(hot))
                found = rewound.tables_changed_in(tx, _number(tx))
                own = named_in(tx, "sequence", _number(tx))
                for sequence in filter(None, own.values()):
                    needing |= {table_id for table_id, _, _ in tables_needing(tx, sequence)}
                refuse_changed(tx, others & needing.union(table_id for table_id, _, _ in found))
                raise _Undone
            for name, taken in drafted.numbers.counts().items():
                tables.next_values(tx, name, taken)
            tx.commit()
        happened, _ = drafted.outcome
        if not happened:
            return self
        created = frozenset(table_id for table_id, is_new, ended in found if is_new and not ended)
        dropped = frozenset(table_id for table_id, _, ended in found if ended)
        altered = needing.union(table_id for table_id, _, _ in found) - created - dropped
        seen = sequences.with_own(own) if own else None
        return replace(new, created=created, altered=frozenset(altered), dropped=dropped, sequences=seen)

    def named_ids(self) -> list[int]:
        """Return the numbers of the views, sequences and the like that it has defined, even if it has dropped them."""
        return [n for drafted in self.changes for n in drafted.numbers.of("named")]

    def apply(self, tx: Transaction, hot: Any) -> set[int]:
        """Apply the changes to the definitions of the snapshot; return the tables that others have changed since."""
        number = _number(tx)
        others = rewound.tables_changed_since(tx, self.base)
        refuse_changed(tx, others & (self.altered | self.dropped))
        if number > self.base + 1:
            rewound.rewind(tx, self.base)
        for drafted in self.changes:
            drafted.apply(tx, hot, number)
        return others

    def require(self, tx: Transaction) -> None:
        """Raise ``ConflictError`` if another commit has changed one of the tables; called before ``apply``."""
        refuse_changed(tx, rewound.tables_changed_since(tx, self.base) & (self.altered | self.dropped))


def _number(tx: Transaction) -> int:
    """Return the number of a commit made now."""
    return commits.last_snapshot(tx)[0] + 1


def refuse_changed(tx: Transaction, table_ids: Collection[int]) -> None:
    for table_id in table_ids:
        name = rewound.name_of(tx, table_id)
        raise ConflictError(
            f"The definition of table {name!r}, which this transaction changes, was changed by another commit after it "
            "began. Run it again; lake.run does so by itself.",
            table=name,
        )


class _Undone(Exception):
    """Leaves a savepoint."""


class TriedHot:
    """What definitions that are tried out ask of the hot store: done for a table only when its rows are read."""

    def __init__(self, store: HotStore) -> None:
        self.store = store.inline  # what the catalog's transaction rolls back
        self._real = store
        self._new: set[int] = set()
        self._asked: dict[int, list[Callable[[], object]]] = defaultdict(list)

    def __getattr__(self, name: str) -> Callable[..., None]:
        def ask(tx: Transaction, table_id: int, *args: Any) -> None:
            if name in ("create", "add_columns"):
                self.store.check_width(tx, table_id)
            self._asked[table_id].append(partial(getattr(self.store, name), tx, table_id, *args))
            if name == "create":
                self._new.add(table_id)

        return ask

    def bounds(self, tx: Transaction, table_id: int, f: Field) -> tuple[int, int] | None:
        return None if table_id in self._new else self._real.bounds(tx, table_id, f)

    def settle(self, table_id: int) -> None:
        for asked in self._asked.pop(table_id, ()):
            asked()


class Tried(Seen):
    """The catalog with the definitions of a draft, applied within a transaction that is rolled back."""

    def __init__(self, readings: Readings, draft: Draft) -> None:
        super().__init__(readings, None)
        self._draft = draft
        self._hot = TriedHot(readings.store)

    def __enter__(self) -> Tried:
        draft = self._draft
        tx = self._tx = self.r = self.readings.catalog.transaction()
        try:
            draft.apply(tx, self._hot)
        except BaseException as error:
            tx.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def state(self, table_id: int) -> TableState:
        draft = self._draft
        if not draft.touches(table_id):
            return super().state(table_id)
        number = _number(self._tx)
        self.readings.store.still_there(self._tx, number - 1)
        state = self.readings.asking(load(self._tx, table_id, number - 1), draft.sequences)
        if state.table.end_snapshot is not None:
            raise NotFoundError(f"Table {state.table.full_name!r} was dropped.", name=state.table.full_name)
        begin = min(state.table.begin_snapshot, draft.base)
        return state._replace(table=replace(state.table, schema_version=draft.version, begin_snapshot=begin))

    def reading(self, state: TableState, snapshot: int, writes: TableWrites | None) -> Reading:
        table_id, store = state.table.table_id, self.readings.store
        self._hot.settle(table_id)
        new = table_id in self._draft.created
        reading = Reading(self.r, state, snapshot, self._hot.store if new else store, writes)
        if self._draft.touches(table_id):
            reading.newest = False  # nobody else may use what is derived from it
        return reading
