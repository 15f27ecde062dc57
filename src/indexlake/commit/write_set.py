"""What a transaction wants to change: buffered in the client, then committed or thrown away.

Each row is identified by its row id. A version that the transaction replaces or deletes is *closed*: the write-set
remembers where it was when it was read, and the commit finds it again if a background job has moved it since. New
versions are either encoded row tuples, which go to the hot store, or finished blocks.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64, FrozenBitMap64

from indexlake.blocks.addresses import Noted, ranked
from indexlake.blocks.delete_vector import positions_bitmap
from indexlake.blocks.new_block import NewBlock
from indexlake.catalog.definitions import DefinitionChange
from indexlake.display import html_facts
from indexlake.errors import ConflictError, SchemaError
from indexlake.indexes.keys import Key, KeyColumn, encode_key
from indexlake.schema import Field, SchemaHistory, TableSchema
from indexlake.schema.lineage import line
from indexlake.snapshots.state import TableState
from indexlake.types import SqlValue

if TYPE_CHECKING:
    from indexlake.blocks.block import BlockRecord
    from indexlake.blocks.row_ids import RowIds
    from indexlake.commit.absence import Look
    from indexlake.commit.draft import Draft
    from indexlake.commit.token import Token
    from indexlake.commit.turns import Turn
    from indexlake.indexes.coverage import Coverage

Values = tuple[SqlValue, ...]
RowIdArray = npt.NDArray[np.int64]
_NO_ROWS: Any = FrozenBitMap64()


@dataclass(frozen=True, slots=True)
class AbsentValues:
    """Values that no row had in some columns when they were read, so that rows were added for them."""

    fields: tuple[Field, ...]
    keys: KeyColumn  # encoded by the codecs of the fields


class TableWrites:
    """The changes to one table."""

    truncate = False
    whole = False  # it depends on all rows that it saw: no other may be changed or added
    blind = False  # a truncate that removes whatever is there when it commits
    locked: BitMap64 = _NO_ROWS
    loaded_for: frozenset[int] = frozenset()  # unique indexes for which the keys in ``loaded`` were compared already
    inserted = updated = deleted = 0
    absent: tuple[AbsentValues, ...] = ()  # no row with these values may have been added meanwhile
    loaded: tuple[Look, ...] = ()  # for the keys of blocks that are too many for memory
    claimed: tuple[KeyColumn, ...] = ()  # primary keys found absent: losing the race for one is a conflict
    _row_of_key: dict[Key, int] | None = None
    _adopted: TableSchema | None = None

    def __init__(self, state: TableState, base: int) -> None:
        self.state = state
        self.base = base  # the snapshot that the transaction reads; the state may be newer
        self.closed = BitMap64()  # row ids of versions that this transaction replaces or deletes
        self.hot_closes: dict[int, int] = {}  # row id -> begin of the hot version read
        self.block_closes: dict[int, Any] = {}  # data file id -> positions
        self.addresses: dict[int, RowIds | Noted] = {}  # to find moved rows of these blocks again
        self.places: dict[int, tuple[RowIdArray, RowIdArray]] = {}  # data file id -> ids and positions of moved rows
        self.located_at = base  # the places of closed rows are known as of this snapshot
        self.rows: dict[int, Values] = {}  # row id -> new version
        self.unkeyed: set[int] = set()  # row ids of new versions that keep their key: no need to look it up
        self.blocks: list[NewBlock] = []
        self.checked: set[int] = set()  # ids of unique indexes whose keys were looked up

    @property
    def empty(self) -> bool:
        return not (self.truncate or self.whole or self.closed or self.rows or self.blocks or self.locked)

    # -- statements

    def insert(self, rows: Iterable[tuple[int, Values]]) -> None:
        before = len(self.rows)
        self.rows.update(rows)
        self.inserted += len(self.rows) - before
        self._row_of_key = None

    def insert_block(self, block: NewBlock) -> None:
        self.blocks.append(block)
        block.token = -len(self.blocks)

    def close_hot(self, row_id: int, begin: int) -> None:
        self.hot_closes[row_id] = begin
        self.closed.add(row_id)

    def take_back(self, token: int, row_ids: RowIdArray) -> None:
        """Remove rows from a block that this transaction itself has written."""
        block = self.blocks[-token - 1]
        block.dead |= positions_bitmap(block.row_ids.positions_of(row_ids))

    def close_in_block(self, block: BlockRecord, positions: RowIdArray, row_ids: RowIdArray) -> None:
        file_id, bitmap = block.data_file_id, positions_bitmap(positions)
        if block.row_order == "row_id":
            self.addresses[file_id] = ranked(block.row_ids)
        else:
            noted, before = Noted(positions, row_ids), self.addresses.get(file_id)
            self.addresses[file_id] = before.joined(noted) if isinstance(before, Noted) else noted
        known = self.block_closes.get(file_id)
        self.block_closes[file_id] = bitmap if known is None else known | bitmap
        self.closed |= row_id_set(row_ids)

    def drop_own(self, row_id: int) -> None:
        """Remove a buffered row of this transaction."""
        del self.rows[row_id]
        self.unkeyed.discard(row_id)
        self._row_of_key = None

    def replace(self, row_id: int, values: Values, *, same_key: bool) -> None:
        """Buffer the new version of a row that was closed before."""
        self.rows[row_id] = values
        self._row_of_key = None
        if same_key:
            self.unkeyed.add(row_id)
        else:
            self.unkeyed.discard(row_id)

    def truncate_all(self, *, blind: bool) -> None:
        """Remove everything that precedes this statement, including this transaction's own writes.

        A truncate that is a transaction by itself is blind; a longer transaction may have read the rows that it
        removes. The counts start again at zero: the rows that were live are counted once, when the truncate commits.
        """
        state, base, locked = self.state, self.base, self.locked
        vars(self).clear()
        self.__init__(state, base)  # type: ignore[misc]
        self.truncate, self.blind, self.locked = True, blind, locked

    def copied(self) -> TableWrites:
        """Return the same changes, to go back to."""
        other = copy(self)
        vars(other).update({k: copy(v) for k, v in vars(self).items() if isinstance(v, dict | set | list | BitMap64)})
        other.blocks = [replace(block, dead=copy(block.dead)) for block in self.blocks]
        return other

    # -- a definition that changed

    def redefined(self, state: TableState) -> TableWrites:
        """Return the same changes for the columns that the transaction itself has defined since."""
        old, new = self.state.current, state.current
        if self.blocks and new.columns != old.columns:
            raise SchemaError(
                f"Table {self.state.table.full_name!r} cannot be altered in this transaction, which has written many "
                "rows to it, straight to files. Alter the table before that, or outside the transaction."
            )
        other = copy(self)
        other.state, other._row_of_key = state, None
        if new.columns != old.columns:
            place = {f.field_id: n for n, f in enumerate(old.fields)}
            columns = list(zip(*self.rows.values(), strict=True))
            made = [_converted(f, place, columns, len(self.rows)) for f in new.fields]
            other.rows = dict(zip(self.rows, zip(*made, strict=True), strict=True))
        return other

    # -- a definition that changed meanwhile

    def adopt(self, history: SchemaHistory) -> None:
        """Commit with the table's current columns: new ones take their default, dropped ones are left out.

        Raises ``ConflictError`` if a column that it writes was altered, if there is a new check, or if the buffered
        rows may lack what a column requires.
        """
        schema, computed = history.current, {f.field_id for f in history.fields if f.generated is not None}
        own, name = self.state.current.by_id, self.state.table.full_name
        for f in schema.fields:
            if f.field_id not in own and any(g.field_id in own for g in line(f)):
                raise ConflictError(
                    f"Column {f.name!r} of table {name!r} was altered after this transaction began. Run it again; "
                    "lake.run does so by itself.",
                    table=name,
                )
        known = {check.check_id for check in self.state.current.checks}

        def lacks(f: Field) -> bool:
            """Return whether the buffered rows may lack what a column of the new definition requires."""
            if f.field_id in own:
                return not f.nullable and own[f.field_id].nullable
            if f.field_id in computed or f.default_sql is not None:
                return True
            return not f.nullable and (f.default is None or f.older is None)

        if any(check.check_id not in known for check in schema.checks) or any(map(lacks, schema.fields)):
            raise ConflictError(
                f"Table {name!r} got a new rule after this transaction began. Run it again; lake.run "
                "does so by itself.",
                table=name,
            )
        self._adopted = schema

    def stored(self) -> tuple[tuple[str, ...], Collection[tuple[int, Values]]]:
        """Return the file columns and the buffered rows as the commit writes them."""
        schema, new = self.state.current, self._adopted
        if new is None or new.columns == schema.columns:
            return schema.columns, self.rows.items()
        place = {f.field_id: n for n, f in enumerate(schema.fields)}
        given = [(place.get(f.field_id), f.default) for f in new.fields]
        rows = [
            (row_id, tuple(default if n is None else values[n] for n, default in given))
            for row_id, values in self.rows.items()
        ]
        return new.columns, rows

    # -- what reads and the commit ask

    def positions_in(self, file_id: int, row_ids: RowIdArray) -> RowIdArray:
        """Return where moved rows lie in a block sorted by key; -1: not in it."""
        ids, positions = self.places.get(file_id, (row_ids[:0], row_ids[:0]))
        if not len(ids):
            return np.full(len(row_ids), -1, np.int64)
        at = np.minimum(np.searchsorted(ids, row_ids), len(ids) - 1)
        return np.where(ids[at] == row_ids, positions[at], -1)

    def own_row(self, key: Key) -> Values | None:
        """Return the buffered row with a primary key."""
        if self._row_of_key is None:
            schema = self.state.current
            codecs, places = schema.key_codecs, schema.key_places
            self._row_of_key = {encode_key(codecs, [v[p] for p in places]): r for r, v in self.rows.items()}
        row_id = self._row_of_key.get(key)
        return None if row_id is None else self.rows[row_id]

    def enforced(self, state: TableState) -> Iterator[Coverage]:
        """Yield the unique indexes of a state, without those that the transaction itself has dropped."""
        kept = {coverage.index.index_id for coverage in self.state.enforced}
        for coverage in state.enforced:
            since = coverage.index.enforced_snapshot
            if coverage.index.index_id in kept or since is None or since > self.base:
                yield coverage

    def own_live_blocks(self) -> list[NewBlock]:
        return [b for b in self.blocks if len(b.dead) < b.record_count]


def _converted(
    f: Field, place: Mapping[int, int], columns: Sequence[Sequence[SqlValue]], count: int
) -> Sequence[SqlValue]:
    """Return the values of a column for buffered rows that may be older than it."""
    if not count:
        return ()
    if f.field_id in place:
        return columns[place[f.field_id]]
    if f.source is None:
        return [f.older] * count
    older = f.source.codec.decode(_converted(f.source, place, columns, count))
    try:
        return f.codec.encode(f.derived(older))
    except pa.ArrowInvalid as error:
        raise SchemaError(f"Column {f.name!r} cannot become {f.type}: {error}", column=f.name) from None


class WriteSet:
    """All changes of one transaction, which reads at snapshot ``base``."""

    draft: Draft | None = None  # what the definitions are part of
    operation: str | None = None
    turn: Turn | None = None  # the caller's turn

    def __init__(self, base: int, token: Token | None = None, *, single: bool = False) -> None:
        self.base = base
        self.token = token
        self.single = single  # a single statement, which is run again when a definition has changed
        self.tables: dict[int, TableWrites] = {}
        self.definitions: list[DefinitionChange] = []
        self.repeats = single  # the caller builds it anew when it loses

    @property
    def empty(self) -> bool:
        return not self.definitions and self.rows_empty

    @property
    def rows_empty(self) -> bool:
        """Whether it changes no rows."""
        for writes in self.tables.values():  # noqa: SIM110 (many times faster than a generator)
            if not writes.empty:
                return False
        return True

    @property
    def rows_alone(self) -> bool:
        """Whether it does nothing but end versions of rows and add new ones."""
        if self.definitions:
            return False
        for writes in self.tables.values():  # noqa: SIM110
            if writes.blocks or writes.truncate:
                return False
        return True

    def is_new(self, table_id: int) -> bool:
        """Return whether the transaction itself creates the table."""
        return self.draft is not None and table_id in self.draft.created

    def writes(self, state: TableState) -> TableWrites:
        found = self.tables.get(state.table.table_id)
        if found is None:
            found = self.tables[state.table.table_id] = TableWrites(state, self.base)
        return found


class WriteResult(NamedTuple):
    """What a write did.  ``snapshot_id`` is None inside a transaction that has not committed yet."""

    rows: int
    snapshot_id: int | None = None
    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    def _repr_html_(self) -> str:
        facts = {"snapshot": self.snapshot_id, **self.to_json()}
        return html_facts("written", facts, note=None if self.snapshot_id is not None else "Not committed yet.")

    def to_json(self) -> dict[str, Any]:
        return {"rows": self.rows, "inserted": self.inserted, "updated": self.updated, "deleted": self.deleted}


def row_id_set(row_ids: npt.NDArray[np.int64]) -> BitMap64:
    return BitMap64(array("Q", row_ids.astype(np.uint64, copy=False).tobytes()))
