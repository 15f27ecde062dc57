"""Replay commits, from the redo log and from the catalog in the order of their numbers, as versions in memory.

For each table, only commits above its bound count. The catalog holds the rows that its own commits closed and the hot
versions that they added; these are merged between the records of the log. Versions are collected and added in batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from pyroaring import BitMap64

from indexlake.catalog import commits, definitions, fields, log_records, segments
from indexlake.catalog.inline import select_rows
from indexlake.hot.memory.page import LIVE
from indexlake.hot.memory.record import columns_of, field_ids
from indexlake.hot.memory.view import PRIMARY
from indexlake.indexes.registry import kind_if_known

if TYPE_CHECKING:
    from indexlake.catalog.definitions import TableRecord
    from indexlake.catalog.driver import ReadTransaction
    from indexlake.hot.memory.store import MemoryStore
    from indexlake.hot.memory.versions import Versions

MOST_COLLECTED = 256
"""Versions that are added at once: few enough to stay in the processor's cache."""


class Replay:
    """Replays into a store that nobody reads yet."""

    def __init__(self, store: MemoryStore, r: ReadTransaction) -> None:
        self.rows = 0
        self.commits = 0
        tables = [*definitions.list_tables(r), *definitions.list_dropped_tables(r)]
        bounds = log_records.read_bounds(r)
        self._tables = {
            table.table_id: _Table(_open(store, r, table, bounds[table.table_id]), bounds[table.table_id])
            for table in tables
        }
        self._of_catalog = sorted(_events(store, r, tables, bounds), key=lambda event: (event.number, event.rank))
        self._next = 0

    def record(self, number: int, changes: Iterable[tuple[Any, ...]]) -> None:
        """Replay one record of the log; ``changes`` are its tables as stored in the record."""
        if self._next < len(self._of_catalog):
            self._catalog_before(number)
        replayed = False
        for table_id, closed, _, ids, row_ids, columns in changes:
            table = self._tables.get(table_id)
            if table is None or number <= table.bound:  # the table is gone, or blocks hold this
                continue
            if closed is not None:
                table.close(BitMap64.deserialize(closed) if isinstance(closed, bytes) else closed, number)
            if row_ids:
                table.add(ids, row_ids, number, columns)
                self.rows += len(row_ids)
            replayed = True
        self.commits += replayed

    def _catalog_before(self, number: int) -> None:
        """Replay the catalog's commits up to this number; closing rows that the log has closed as well is harmless."""
        events, before = self._of_catalog, 0
        while self._next < len(events) and (event := events[self._next]).number <= number:
            self._next += 1
            table = self._tables[event.table_id]
            if event.rank == _ALL:
                table.close_all(event.number)
            elif event.rank == _CLOSED:
                table.close(
                    event.what if isinstance(event.what, tuple) else BitMap64.deserialize(event.what), event.number
                )
            else:
                columns, row_id, values = event.what
                table.add(field_ids(columns), (row_id,), event.number, [(value,) for value in values])
                self.rows += 1
            if event.number != number:
                self.commits += event.number != before
                before = event.number

    def end(self) -> None:
        self._catalog_before(LIVE)
        for table in self._tables.values():
            table.flush()


class _Table:
    """The versions of one table, and a batch waiting to be added, all with the same columns."""

    __slots__ = ("_closed", "_collected", "_count", "_ids", "_of", "_placed", "_places", "bound")

    def __init__(self, of: Versions, bound: int) -> None:
        self.bound = bound
        self._of = of
        self._clear(())

    def _clear(self, ids: tuple[int, ...]) -> None:
        self._ids = ids  # field ids
        self._collected: list[tuple[int, Sequence[int], Sequence[Sequence[Any]]]] = []  # number, row ids, values
        self._count = 0
        self._closed: dict[int, int] = {}  # place among the collected versions -> the commit that ended it
        self._places: dict[int, int] = {}  # row -> place of its newest version in the first ``_placed`` records
        self._placed = 0

    def add(self, ids: tuple[int, ...], row_ids: Sequence[int], number: int, values: Sequence[Sequence[Any]]) -> None:
        if ids != self._ids or self._count > MOST_COLLECTED:
            self.flush()
            self._ids = ids
        self._collected.append((number, row_ids, values))
        self._count += len(row_ids)

    def close(self, row_ids: Iterable[int], number: int) -> None:
        """End the live versions of those rows that have one here."""
        of, places, collected = self._of, self._places, self._collected
        place = self._count - sum([len(ids) for _, ids, _ in collected[self._placed :]])
        for _, ids, _ in collected[self._placed :]:
            for row_id in ids:
                places[row_id] = place
                place += 1
        self._placed = len(collected)
        for row_id in row_ids:
            found = places.get(row_id)
            if found is not None:
                self._closed.setdefault(found, number)
            elif (version := of.live_version(row_id)) is not None:
                of.end((version,), number)

    def close_all(self, number: int) -> None:
        self.flush()
        for version in self._of.live_versions():
            self._of.end((version,), number)

    def flush(self) -> None:
        if self._collected:
            ends = [LIVE] * self._count
            for place, number in self._closed.items():
                ends[place] = number
            numbers, ids, values = zip(*self._collected, strict=True)
            begins = chain.from_iterable(map(repeat, numbers, map(len, ids)))
            columns = [list(chain.from_iterable(column)) for column in zip(*values, strict=True)]
            self._of.add_many(columns_of(self._ids), list(chain.from_iterable(ids)), list(begins), ends, columns)
        self._clear(self._ids)


# ---------------------------------------------------------------- what the catalog knows

_ALL, _CLOSED, _ROW = range(3)
"""The order of events within one commit."""


class _Event(NamedTuple):
    """What a commit did to the versions of a table: ended all, ended some, or added one."""

    number: int
    rank: int
    table_id: int
    what: Any = None


def _open(store: MemoryStore, r: ReadTransaction, table: TableRecord, bound: int) -> Versions:
    schema = fields.read_schema(r, table).current
    of = store.open_table(table.table_id, bound, table.horizon)
    if table.primary_key:
        of.add_tree(PRIMARY, [schema.by_id[i] for i in table.primary_key])
    for index in segments.read_indexes(r, table.table_id):
        kind = None if index.is_primary or index.end_snapshot is not None else kind_if_known(index.kind)
        if kind is not None and index.fits(schema) and (kept := kind.hot_fields(index.fields(schema))):
            of.add_tree(index.index_id, kept)
    return of


def _events(
    store: MemoryStore, r: ReadTransaction, tables: Sequence[TableRecord], bounds: dict[int, int]
) -> Iterator[_Event]:
    for table in tables:
        table_id = table.table_id
        for number, data in commits.touched_since(r, table_id, bounds[table_id]):
            yield _Event(number, _ALL if data is None else _CLOSED, table_id, data)
        for begin, row_id, end, columns, values in _inline_rows(r, table):
            store.holds_inline(table_id)
            yield _Event(begin, _ROW, table_id, (columns, row_id, values))
            if end is not None:
                yield _Event(end, _CLOSED, table_id, (row_id,))


def _inline_rows(r: ReadTransaction, table: TableRecord) -> Iterator[tuple[int, int, int | None, Any, Any]]:
    """Yield the versions that the catalog holds and no block does."""
    columns = fields.held_columns(r, table.table_id)
    for begin, row_id, end, *values in r.query(select_rows(table.table_id, columns)):
        floor = table.hot_floor if end is None else table.history_floor
        if (begin if end is None else end, row_id) > floor:
            yield begin, row_id, end, columns, values
