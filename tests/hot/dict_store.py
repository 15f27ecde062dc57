"""A second hot store, deliberately simple: row versions in Python lists, for one process.

It passes the conformance suite through the protocol of `indexlake.hot.store` alone, and is the proof that the rest of
the engine knows no hot store by name.  Nothing survives the process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from indexlake.hot.collected import Collected
from indexlake.hot.rows import HotRows
from indexlake.hot.store import Chunk, HotRow
from indexlake.indexes.keys import encode_key
from indexlake.schema import Field, TableSchema
from indexlake.schema.lineage import HeldColumns


@dataclass(eq=False)
class Version:
    row_id: int
    begin: int
    values: dict[str, Any]  # encoded, by file column
    end: int | None = None
    moved: int | None = None  # the commit since which a block holds it

    def key(self, fields: Sequence[Field]) -> tuple[Any, ...]:
        return tuple(self.values.get(f.column) for f in fields)


class DictStore:
    keeps_superseded = True

    def __init__(self, catalog: Any, spill: Any, epoch: int) -> None:
        self.spill = spill
        self.lock = threading.RLock()
        self.tables: dict[int, list[Version]] = {}
        self._writer: Any = None  # the transaction that wrote last, and how to take back what it wrote
        self._undo: list[Callable[[], None]] = []

    @property
    def inline(self) -> DictStore:
        """Nothing of it is in the catalog: what is tried out in an empty store is rolled back by forgetting it."""
        return DictStore(None, self.spill, 0)

    def table(
        self, r: Any, table_id: int, moved: Any, schema: TableSchema, snapshot: int, *, at: int, newest: bool
    ) -> DictTable:
        return DictTable(self, r, table_id, moved.horizon, schema, snapshot, at)

    def check_width(self, tx: Any, table_id: int) -> None:
        """A dict holds any number of columns."""

    def create(self, tx: Any, table_id: int, fields: Sequence[Field], key: Sequence[int]) -> None:
        self.tables[table_id] = []

    def drop(self, tx: Any, table_id: int) -> None:
        self.tables.pop(table_id, None)

    def add_columns(self, tx: Any, table_id: int, fields: Sequence[Field]) -> None:
        """Versions hold what they were given."""

    def drop_column(self, tx: Any, table_id: int, field_id: int) -> None:
        for version in self.tables[table_id]:
            version.values.pop(f"f{field_id}", None)

    def add_index(self, tx: Any, table_id: int, index_id: int, fields: Sequence[Field]) -> None:
        """All versions are looked at anyway."""

    def drop_index(self, tx: Any, table_id: int, index_id: int) -> None:
        """There is none."""

    def bounds(self, tx: Any, table_id: int, f: Field) -> tuple[int, int] | None:
        held = [v.values.get(f.column) for v in self.tables[table_id] if v.end is None]
        known = [value for value in held if value is not None]
        return (min(known), max(known)) if known else None

    def oldest(self, tx: Any, table_id: int) -> int | None:
        return min((v.begin for v in self.tables[table_id]), default=None)

    def release(self, tx: Any, table_id: int, chunk: Chunk, snapshot: int) -> bool:
        versions: list[Version] = chunk.mark
        with self.lock:
            if any(v.moved is not None for v in versions):
                return False
            for version in versions:
                if (version.end is not None) == chunk.parts[0].history:  # a version that was superseded meanwhile stays
                    self.change(tx, version, "moved", snapshot)
        return True

    def purge(self, tx: Any, table: Any, limit: int) -> int:
        """Readers of an older state may still ask for what has moved, so it stays."""
        with self.lock:
            versions = self.tables.get(table.table_id, [])
            dead = [v for v in versions if v.end is not None and v.end <= table.horizon][:limit]
            for version in dead:
                versions.remove(version)
        return len(dead)

    def settle(self) -> None:
        """Nothing else is kept."""

    def locations(self, table_id: int, row_ids: Sequence[int]) -> list[str]:
        return [f"dict:{row_id}" for row_id in row_ids]

    def foreseen(self, table_id: int, fields: Sequence[Field], keys: Any) -> Iterable[Any]:
        return ()

    def still_there(self, r: Any, newest: int) -> None:
        pass

    def committed(self, number: int) -> None:
        pass

    def done(self, tx: Any) -> int:
        return len(self._undo) if self._writer is tx else 0

    def undo(self, tx: Any, done: int = 0) -> None:
        with self.lock:
            if self._writer is tx:
                while len(self._undo) > done:
                    self._undo.pop()()

    def change(self, tx: Any, version: Version, name: str, value: int) -> None:
        before = getattr(version, name)
        setattr(version, name, value)
        self.note(tx, lambda: setattr(version, name, before))

    def note(self, tx: Any, undo: Callable[[], None]) -> None:
        if self._writer is not tx:  # the one before has ended: writers come one after the other
            self._writer, self._undo = tx, []
        self._undo.append(undo)


class DictTable:
    def __init__(
        self, store: DictStore, tx: Any, table_id: int, horizon: int, schema: TableSchema, snapshot: int, at: int
    ) -> None:
        self._store = store
        self._tx = tx
        self._table_id = table_id
        self._horizon = horizon
        self._schema = schema
        self._snapshot = snapshot
        self._last = at

    def _here(self) -> list[Version]:
        """What no block of the transaction's state holds."""
        with self._store.lock:
            found = list(self._store.tables.get(self._table_id, []))
        return [v for v in found if v.begin <= self._last + 1 and (v.moved is None or v.moved > self._last)]

    def _live(self) -> list[Version]:
        return [v for v in self._here() if v.end is None]

    def _visible(self) -> list[Version]:
        at = self._snapshot
        return [v for v in self._here() if v.begin <= at and (v.end is None or v.end > at)]

    # -- reading

    def rows(self, fields: Sequence[Field], test: Any = None) -> HotRows:
        return self._arrow(self._visible(), fields, lambda v: v.begin)

    def _arrow(self, versions: Iterable[Version], fields: Sequence[Field], stamp: Callable[[Version], Any]) -> HotRows:
        held, hot = HeldColumns(fields), HotRows(fields, self._store.spill)
        versions = list(versions)
        if versions:
            columns = [[v.values.get(name) for v in versions] for name in held.columns]
            values = held.values([v.begin for v in versions], columns)
            hot.add(values, [v.row_id for v in versions], [stamp(v) for v in versions])
        return hot

    def count(self) -> int:
        return len(self._visible())

    def rows_with(self, keys: Any, fields: Sequence[Field]) -> HotRows:
        return self.rows(fields)

    def row(self, key: Sequence[Any]) -> HotRow | None:
        schema = self._schema
        wanted = encode_key(schema.key_codecs, key)
        for v in self._visible():
            if encode_key(schema.key_codecs, v.key(schema.key_fields)) == wanted:
                held = HeldColumns(schema.fields)
                return HotRow(v.row_id, v.begin, held.row(v.begin, [v.values.get(name) for name in held.columns]))
        return None

    def begun(self, since: int, until: int, fields: Sequence[Field]) -> Iterator[pa.RecordBatch]:
        found = [v for v in self._here() if since < v.begin <= until]
        found.sort(key=lambda v: (v.begin, v.row_id))
        return self._arrow(found, fields, lambda v: v.begin).batches()

    def ended(self, since: int, until: int, fields: Sequence[Field]) -> Iterator[pa.RecordBatch]:
        found = [v for v in self._here() if v.end is not None and since < v.end <= until]
        found.sort(key=lambda v: (v.end, v.row_id))
        return self._arrow(found, fields, lambda v: v.end).batches()

    def count_changes(self, since: int, until: int) -> int:
        here = self._here()
        return sum(since < v.begin <= until for v in here) + sum(
            v.end is not None and since < v.end <= until for v in here
        )

    def sizes(self) -> tuple[int, int]:
        here = self._here()
        return sum(v.end is None for v in here), sum(v.end is not None and v.end > self._horizon for v in here)

    # -- what a commit validates

    def holders(self, fields: Sequence[Field], keys: Any, since: int, without: Any, *, indexed: bool) -> list[HotRow]:
        codecs, wanted = [f.codec for f in fields], set(keys)
        return [
            row
            for row in self.since(fields, since)
            if row.row_id not in without and None not in row.values and encode_key(codecs, row.values) in wanted
        ]

    def since(self, fields: Sequence[Field], since: int) -> Iterator[HotRow]:
        held = HeldColumns(fields)
        return iter(
            [
                HotRow(v.row_id, v.begin, held.row(v.begin, [v.values.get(name) for name in held.columns]))
                for v in self._live()
                if v.begin > since
            ]
        )

    def is_live(self, row_id: int, begin: int) -> bool:
        return any((v.row_id, v.begin) == (row_id, begin) for v in self._live())

    def has_begun_since(self, since: int) -> bool:
        with self._store.lock:
            return any(v.begin > since for v in self._store.tables[self._table_id])

    # -- what a commit does

    def insert(self, columns: tuple[str, ...], rows: Collection[tuple[int, Any]], snapshot: int) -> None:
        store, versions = self._store, self._store.tables[self._table_id]
        with store.lock:
            for row_id, values in rows:
                version = Version(row_id, snapshot, dict(zip(columns, values, strict=True)))
                versions.append(version)
                store.note(self._tx, lambda version=version: versions.remove(version))

    def close(self, versions: Mapping[int, int], snapshot: int) -> list[int]:
        live = {(v.row_id, v.begin): v for v in self._live()}
        moved = []
        with self._store.lock:
            for row_id, begin in versions.items():
                version = live.get((row_id, begin))
                if version is None:
                    moved.append(row_id)
                else:
                    self._store.change(self._tx, version, "end", snapshot)
        return moved

    def close_all(self, snapshot: int) -> int:
        live = self._live()
        with self._store.lock:
            for version in live:
                self._store.change(self._tx, version, "end", snapshot)
        return len(live)

    # -- what a dump reads

    def chunk(self, state: Any, *, history: bool, above: Chunk | None, check: Callable[[], None]) -> Chunk | None:
        check()
        size = state.table.config.block_row_count
        taken = set(map(id, above.mark)) if above is not None else set()
        found = [v for v in self._here() if v.begin <= self._last and _is_dead(v, self._last) == history]
        found = [v for v in found if id(v) not in taken]
        found.sort(key=lambda v: ((v.end if history else v.begin), v.row_id))
        if above is not None and found:
            last = max(((v.end if history else v.begin), v.row_id) for v in above.mark)
            found = [v for v in found if ((v.end if history else v.begin), v.row_id) > last]
        some = found[:size]
        if not some:
            return None
        collected = Collected(state.schema, state.table.horizon, state.table.begin_snapshot, history=history)
        collected.add([(v.begin, v.row_id, v.end, *[v.values.get(c) for c in collected.columns]) for v in some])
        return Chunk(collected.parts(), some, everything=len(found) <= size, at=self._last)


def _is_dead(version: Version, last: int) -> bool:
    return version.end is not None and version.end <= last
