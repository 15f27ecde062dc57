"""The ``inline`` hot store: rows in the catalog database, one database table for each table of the lake.

Many processes may write. A live version at or below the *hot floor* has been dumped: the copy in its block is the row,
and the inline copy awaits the purge. The same holds for superseded versions and the *history floor*. Floors are
(snapshot, row id) pairs in the table's record; only the inline store compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from indexlake.arrow.batch_size import row_columns
from indexlake.catalog import log_records, table_heads
from indexlake.catalog.inline import Change, InlineRows, InlineTables, Row, queries_by_key
from indexlake.errors import ConvertedError
from indexlake.expr.test import ALWAYS, Test
from indexlake.hot.collected import Collected
from indexlake.hot.rows import BATCH_ROWS, HotRows
from indexlake.hot.store import Chunk, HotRow
from indexlake.indexes.key_set import KeySet
from indexlake.indexes.keys import KeyColumn, decode_key, encode_key
from indexlake.schema import ROW_ID, VERSION, Field, TableSchema
from indexlake.schema.lineage import HeldColumns
from indexlake.types.floats import is_float

if TYPE_CHECKING:
    from pyroaring import BitMap64

    from indexlake.catalog.definitions import TableRecord
    from indexlake.catalog.driver import Catalog, Query, ReadTransaction, Transaction
    from indexlake.catalog.table_heads import Head
    from indexlake.snapshots.state import TableState
    from indexlake.storage.spill import Spill

CHUNK_BYTES = 256 << 20

FEW_KEYS = 64
"""Up to this many keys are looked up one by one at a commit; more are compared with the rows while those are few."""

ROWS_PER_KEY = 4
"""Comparing a row costs about a quarter of a look-up."""

ROWS_TOGETHER = 4_096
"""How many rows are compared with the keys at once."""

FEW_LOOKUPS = 500
"""A read looks up more keys than this only if there are more rows than keys,"""

MOST_LOOKUPS = 10_000
"""and never more than this: beyond that, all rows are compared with the keys."""


class InlineStore(InlineTables):
    """The hot store of a lake in its catalog database."""

    keeps_superseded = True

    def __init__(self, catalog: Catalog, spill: Spill, epoch: int = 0) -> None:
        super().__init__(catalog)
        self._spill = spill
        self.epoch = epoch  # raised by each conversion
        self.known = -1  # the newest commit as of which the lake had this hot store

    def table(
        self,
        r: Any,
        table_id: int,
        moved: TableRecord | Head,
        schema: TableSchema,
        snapshot: int,
        *,
        at: int,
        newest: bool,
    ) -> InlineTable:
        return InlineTable(r, table_id, moved, schema, snapshot, newest, self._spill)

    @property
    def inline(self) -> InlineStore:
        return self

    def foreseen(self, table_id: int, fields: Sequence[Field], keys: KeyColumn) -> Iterator[Query]:
        if len(keys) <= FEW_KEYS and not any(f.since for f in fields):
            columns, codecs = tuple(f.column for f in fields), tuple(f.codec for f in fields)
            few = [decode_key(codecs, key) for key in keys]
            yield from queries_by_key(table_id, columns, few, columns, codecs)

    def release(self, tx: Transaction, table_id: int, chunk: Chunk, snapshot: int) -> bool:
        floor, new_floor = chunk.mark
        name = "history_floor" if chunk.parts[0].history else "hot_floor"
        return table_heads.set_floor(tx, table_id, name, floor, new_floor, snapshot)

    def settle(self) -> None:
        """Do nothing: the store keeps nothing besides the versions."""

    def locations(self, table_id: int, row_ids: Sequence[int]) -> list[str]:
        return ["inline"] * len(row_ids)

    def still_there(self, r: ReadTransaction | Transaction, newest: int) -> None:
        """Check that the lake was not converted; not needed if ``newest`` is known, since a conversion is a commit."""
        if newest != self.known:
            if log_records.read_epoch(r) != self.epoch:
                raise ConvertedError(
                    "The hot store of this lake was changed with lake.convert after you opened it. Connect again."
                )
            self.known = newest

    def committed(self, number: int) -> None:
        self.known = number

    def done(self, tx: Transaction) -> int:
        return 0

    def undo(self, tx: Transaction, done: int = 0) -> None:
        """Do nothing: the database rolls back by itself."""


class ReplicaStore(InlineStore):
    """For readers beside the owner of a lake in memory: the rows that the catalog holds, up to the lake's bound."""

    def still_there(self, r: ReadTransaction | Transaction, newest: int) -> None:
        """Do nothing: the bound tells how much can be read, even after a conversion."""


@dataclass(slots=True, eq=False)
class InlineTable(InlineRows):
    """One table in one catalog transaction.  Outside the critical section only its reading half is used."""

    _spill: Spill

    # ------------------------------------------------------------ reading

    def rows(self, fields: Sequence[Field], test: Test = ALWAYS) -> HotRows:
        schema = self._schema
        columns = schema.held if fields == schema.fields else HeldColumns(fields)
        return self._taken(self._visible_rows(columns.columns, test), columns)

    def rows_with(self, keys: KeyColumn, fields: Sequence[Field]) -> HotRows:
        codecs = self._schema.key_codecs
        if (
            len(keys) > MOST_LOOKUPS
            or any(is_float(codec) for codec in codecs)
            or (len(keys) > FEW_LOOKUPS and not self._has_more_than(len(keys)))
        ):
            return self.rows(fields)
        columns = HeldColumns(fields)
        encoded = (decode_key(codecs, key) for key in keys)
        rows = self._with_keys(columns.columns, encoded, self._schema.key_columns, codecs)
        return self._taken((row for row in rows if self._is_visible(row)), columns)

    def _taken(self, rows: Iterator[Row], columns: HeldColumns) -> HotRows:
        hot = HotRows(columns.fields, self._spill)
        for begins, row_ids, _, values in _decodable(rows, columns):
            hot.add(values, row_ids, begins)
        return hot

    def row(self, key: Sequence[Any]) -> HotRow | None:
        schema = self._schema
        older = schema.held if schema.evolved else None
        columns = schema.columns if older is None else older.columns
        row = self._visible_with_key(columns, key, schema.key_columns, schema.key_codecs)
        if row is None:
            return None
        return HotRow(row[1], row[0], row[3:] if older is None else older.row(row[0], row[3:]))

    def begun(self, since: int, until: int, fields: Sequence[Field]) -> Iterator[pa.RecordBatch]:
        return self._batches("_begin", since, until, fields)

    def ended(self, since: int, until: int, fields: Sequence[Field]) -> Iterator[pa.RecordBatch]:
        return self._batches("_end", since, until, fields)

    def _batches(self, kind: Change, since: int, until: int, fields: Sequence[Field]) -> Iterator[pa.RecordBatch]:
        columns = HeldColumns(fields)
        rows = self._changes(kind, since, until, columns.columns)
        for begins, row_ids, ends, values in _decodable(rows, columns):
            hot = HotRows(fields, self._spill)
            hot.add(values, row_ids, begins if kind == "_begin" else ends)
            yield from hot.batches()

    # ------------------------------------------------------------ what a commit validates

    def holders(
        self, fields: Sequence[Field], keys: KeyColumn, since: int, without: BitMap64, *, indexed: bool
    ) -> list[HotRow]:
        """Compare the rows with the keys while they are few; otherwise look the keys up."""
        schema = self._schema
        if fields is schema.key_fields:
            columns, codecs = schema.key_columns, schema.key_codecs
        else:
            columns, codecs = tuple(f.column for f in fields), tuple(f.codec for f in fields)
        if any(f.since for f in fields):
            wanted = KeySet(keys)
            return [
                row
                for row in self._derived(fields, since)
                if row.row_id not in without and None not in row.values and encode_key(codecs, row.values) in wanted
            ]
        if indexed and len(keys) <= FEW_KEYS:
            few = [decode_key(codecs, key) for key in keys]
            return self._newer(self._with_keys(columns, few, columns, codecs), since, without)
        indexed = indexed and not any(is_float(codec) for codec in codecs)
        if indexed and keys.ints is not None:
            low, high = (decode_key(codecs, int(key))[0] for key in (keys.ints.min(), keys.ints.max()))
            if not self._has_between(columns[0], low, high):
                return []  # new keys often lie above all existing ones
        among: KeySet | None = None
        found: list[HotRow] = []
        seen, most, live = 0, ROWS_PER_KEY * len(keys), self._live_since(since, columns)
        while some := list(islice(live, min(ROWS_TOGETHER, most + 1 - seen) if indexed else ROWS_TOGETHER)):
            seen += len(some)
            if indexed and seen > most:
                encoded = (decode_key(codecs, key) for key in keys)
                return self._newer(self._with_keys(columns, encoded, columns, codecs), since, without)
            among = among or KeySet(keys)
            some = [row for row in some if row[1] not in without and None not in row[3:]]
            arrays = [codec.decode([row[3 + n] for row in some]) for n, codec in enumerate(codecs)]
            for n in among.find(KeyColumn.from_arrays(codecs, arrays))[0].tolist():
                found.append(HotRow(some[n][1], some[n][0], some[n][3:]))
        return found

    def _newer(self, rows: Iterable[Row], since: int, without: BitMap64) -> list[HotRow]:
        floor = self._floors.hot_floor
        return [
            HotRow(row[1], row[0], row[3:])
            for row in rows
            if row[2] is None and row[0] > since and (row[0], row[1]) > floor and row[1] not in without
        ]

    def since(self, fields: Sequence[Field], since: int) -> Iterator[HotRow]:
        if any(f.since for f in fields):
            yield from self._derived(fields, since)
            return
        for row in self._live_since(since, tuple(f.column for f in fields)):
            yield HotRow(row[1], row[0], row[3:])

    def _derived(self, fields: Sequence[Field], since: int) -> Iterator[HotRow]:
        """Yield the same as ``since`` for columns that older versions lack, reading all rows as users see them."""
        for batch in self.rows(fields).batches():
            ids, begins = batch.column(ROW_ID).to_pylist(), batch.column(VERSION).to_pylist()
            columns = [f.codec.encode(batch.column(n)) for n, f in enumerate(fields)]
            for row_id, begin, *values in zip(ids, begins, *columns, strict=True):
                if begin > since:
                    yield HotRow(row_id, begin, tuple(values))

    # ------------------------------------------------------------ what a dump reads

    def chunk(
        self, state: TableState, *, history: bool, above: Chunk | None, check: Callable[[], None]
    ) -> Chunk | None:
        table, floors = state.table, self._floors
        floor = above.mark[1] if above is not None else floors.history_floor if history else floors.hot_floor
        size = table.config.block_row_count
        collected = Collected(state.schema, table.horizon, table.begin_snapshot, history=history)
        oldest = self._oldest(floor, collected.columns, size, history=history)
        count = 0
        final: Row | None = None
        for begins, row_ids, ends, *columns in row_columns(oldest, BATCH_ROWS):
            check()
            over = np.array(ends, np.int64) if history else np.zeros(len(ends), np.int64)  # live versions have no end
            collected.add_columns(np.array(begins, np.int64), np.array(row_ids, np.int64), over, columns)
            final = begins[-1], row_ids[-1], ends[-1]
            count += len(begins)
            if collected.bytes > CHUNK_BYTES:
                count = size  # there may be more
                break
        if final is None:
            return None
        new_floor = (final[2] if history else final[0], final[1])
        return Chunk(collected.parts(), (floor, new_floor), everything=count < size, at=state.at)


def _decodable(rows: Iterable[Row], columns: HeldColumns) -> Iterator[tuple[Any, Any, Any, Any]]:
    """Yield (begins, row ids, ends, encoded values of each field), some rows at a time."""
    for begins, row_ids, ends, *values in row_columns(rows, BATCH_ROWS):
        yield begins, row_ids, ends, columns.values(begins, values)
