"""Several tables at one moment: a query's view of the lake, and the single transaction that plans its scans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from indexlake.catalog import definitions
from indexlake.catalog.driver import ReadTransaction
from indexlake.catalog.driver import Transaction as CatalogTransaction
from indexlake.catalog.named import find_named
from indexlake.errors import ConvertedError, NotFoundError, SnapshotExpiredError
from indexlake.snapshots.reading import Reading
from indexlake.snapshots.seen import Seen
from indexlake.snapshots.state import Stale
from indexlake.snapshots.time_travel import check_snapshot
from indexlake.sql.parse.token_reader import TableName
from indexlake.sql.plan.views import View, ViewsNamed

if TYPE_CHECKING:
    from indexlake.lake import Lake
    from indexlake.table import Table
    from indexlake.transaction import Transaction

T = TypeVar("T")
MAIN = "main"


@dataclass(frozen=True, slots=True)
class Viewpoint:
    """The newest snapshot, a past one, or that of a transaction with its own writes."""

    lake: Lake
    namespace: str
    snapshot: int | None = None
    transaction: Transaction | None = None
    used: bool = False  # the namespace comes from USE, so that main is searched after it

    @property
    def within(self) -> Lake | Transaction:
        """The transaction, or the lake outside of one: where definitions are looked up and made."""
        return self.lake if self.transaction is None else self.transaction

    def seen(self) -> Seen:
        """Return the catalog as of this viewpoint, with what its transaction has defined."""
        return self.within._seen(self.snapshot)

    def table(self, name: str) -> Table:
        return self.within._table(name, self.snapshot)

    @property
    def path(self) -> tuple[str, ...]:
        """The namespaces where unqualified names are looked up, in this order."""
        return (self.namespace, MAIN) if self.used and self.namespace.lower() != MAIN else (self.namespace,)


def read_together(
    view: Viewpoint,
    wanted: Sequence[tuple[TableName, int | None]],
    then: Callable[[list[Reading]], T],
    views: Sequence[tuple[TableName, int | None, int]] = (),
) -> T:
    """Find the tables, each at its snapshot if one is given, and call ``then`` inside the same read transaction.

    Raises ``ViewsNamed`` if some are views.  ``views`` are names that must still mean the view with the given number;
    otherwise raises ``ViewsChanged``.
    """
    lake = view.lake
    lake._check()
    if view.transaction is not None:
        view.transaction._check()
    while True:
        readings = lake._readings
        with view.seen() as seen:
            try:
                found = [_find(seen, view, name, at) for name, at in wanted]
            except Stale:
                continue  # another thread has read a later state: start again
            except ConvertedError as error:
                readings.successor(error, readings)
                continue
            for name, at, number in views:
                if getattr(_find(seen, view, name, at), "number", None) != number:
                    raise ViewsChanged
            tables = [f for f in found if isinstance(f, Reading)]
            if len(tables) < len(found):
                raise ViewsNamed({n: f for n, f in enumerate(found) if isinstance(f, View)})
            return then(tables)


class ViewsChanged(Exception):
    """A view was replaced or dropped while a query was being planned."""


def _find(seen: Seen, view: Viewpoint, name: TableName, at: int | None) -> Reading | View:
    tx, r = view.transaction, seen.r
    snapshot = at if at is not None else seen.at
    for namespace in view.path if name.namespace is None else (name.namespace,):
        record = definitions.find_table(r, namespace, name.name, snapshot)
        if record is not None:
            break
        if (found := find_named(r, "view", namespace, name.name, snapshot)) is not None:
            return View(found.named_id, found.full_name, found.body["text"], tuple(found.body["columns"]))
    if record is None:
        raise _not_found(r, name.full(view.namespace), snapshot)
    state = seen.state(record.table_id)
    last = state.newest
    writes = None
    if snapshot is None:
        snapshot = last
    if tx is not None:
        tx._set_base(last)
        if at is None:
            assert tx.snapshot_id is not None
            snapshot = tx.snapshot_id
            writes = tx.own_writes(record.table_id)
            if snapshot < state.table.horizon:
                raise SnapshotExpiredError(
                    f"Snapshot {snapshot} of {state.table.full_name!r} is older than the history that is kept "
                    f"(from {state.table.horizon} on). Begin a new transaction.",
                    snapshot_id=snapshot,
                    horizon=state.table.horizon,
                )
    check_snapshot(snapshot, last, state.table)
    return seen.reading(state, snapshot, writes)


def newest_snapshot(view: Viewpoint) -> int:
    """Return the snapshot that a query without tables reads."""
    if view.snapshot is not None:
        return view.snapshot
    if view.transaction is not None and view.transaction.snapshot_id is not None:
        return view.transaction.snapshot_id
    return view.lake._readings.newest()


def _not_found(r: ReadTransaction | CatalogTransaction, full: str, snapshot: int | None) -> NotFoundError:
    near = definitions.near_name(full, [t.full_name for t in definitions.list_tables(r, snapshot)])
    hint = f" Did you mean {near!r}?" if near else ""
    when = "" if snapshot is None else f" at snapshot {snapshot}"
    return NotFoundError(f"There is no table {full!r}{when}.{hint}", name=full)
