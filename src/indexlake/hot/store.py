"""What every hot store does.

A hot store holds row versions that are not in a block yet: live ones, and superseded ones that retained snapshots
show.  How it tracks which of them have moved to blocks is its own business: callers ask for rows at a snapshot and get
those that no block of the same catalog state holds.  Rows come out as Arrow (`HotRows`) or as encoded values in the
order of the table's fields, and are identified by row id and the snapshot in which they began.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa

from indexlake.expr.test import ALWAYS, Test

if TYPE_CHECKING:
    from pyroaring import BitMap64

    from indexlake.catalog.definitions import TableRecord
    from indexlake.catalog.driver import ReadTransaction, Transaction
    from indexlake.catalog.table_heads import Head
    from indexlake.hot.rows import HotRows
    from indexlake.indexes.keys import KeyColumn
    from indexlake.schema import Field, TableSchema
    from indexlake.schema.fitting import Values
    from indexlake.snapshots.state import TableState


class HotRow(NamedTuple):
    """One row version: ``values`` are encoded, of the fields that were asked for."""

    row_id: int
    begin: int
    values: Values


@dataclass(frozen=True, slots=True)
class ChunkPart:
    """The rows of a chunk that have the same columns: those of one block."""

    schema: TableSchema
    schema_snapshot: int
    rows: pa.Table  # as a block holds them; live rows in row-id order
    last_end: int | None  # of superseded versions; None: they are live

    @property
    def history(self) -> bool:
        """Superseded versions rather than live ones."""
        return self.last_end is not None

    def cut(self, row_count: int) -> Iterator[ChunkPart]:
        """The same rows, up to so many at a time."""
        for start in range(0, self.rows.num_rows, row_count):
            yield replace(self, rows=self.rows.slice(start, row_count))


@dataclass(frozen=True, slots=True)
class Chunk:
    """The oldest rows of a table, ready to become blocks.  ``mark`` is the store's own: where the chunk ends."""

    parts: tuple[ChunkPart, ...]
    mark: Any
    everything: bool  # there were no more rows when these were read
    at: int  # live are those that are so at this snapshot

    @property
    def size(self) -> int:
        return sum(int(part.rows.nbytes) for part in self.parts)


class HotTable(Protocol):
    """The hot rows of one table as one catalog transaction sees them, at one snapshot."""

    # -- reading

    def rows(self, fields: Sequence[Field], test: Test = ALWAYS) -> HotRows:
        """The visible rows, without some that cannot satisfy the test (a necessary condition on file columns)."""
        ...

    def count(self) -> int:
        """How many rows are visible."""
        ...

    def rows_with(self, keys: KeyColumn, fields: Sequence[Field]) -> HotRows:
        """The visible rows, without some that have none of these primary keys."""
        ...

    def row(self, key: Sequence[Any]) -> HotRow | None:
        """The visible row with that primary key, given as encoded values."""
        ...

    def begun(self, since: int, until: int, fields: Sequence[Field]) -> Iterator[pa.RecordBatch]:
        """Versions that began in (since, until], by snapshot and row id; the version column holds that snapshot."""
        ...

    def ended(self, since: int, until: int, fields: Sequence[Field]) -> Iterator[pa.RecordBatch]:
        """Versions that ended in (since, until], by snapshot and row id; the version column holds that snapshot."""
        ...

    def count_changes(self, since: int, until: int) -> int:
        """How many rows ``begun`` and ``ended`` give together."""
        ...

    def sizes(self) -> tuple[int, int]:
        """(live, superseded) versions that no block holds, now."""
        ...

    # -- what a commit validates

    def holders(
        self, fields: Sequence[Field], keys: KeyColumn, since: int, without: BitMap64, *, indexed: bool
    ) -> list[HotRow]:
        """Live rows committed after ``since`` whose values of these fields are one of the keys; ``values`` are those.

        Rows named in ``without`` do not count.  ``indexed``: the fields are the primary key, or those of an index.
        """
        ...

    def since(self, fields: Sequence[Field], since: int) -> Iterator[HotRow]:
        """Live rows committed after ``since``, with their values of these fields."""
        ...

    def is_live(self, row_id: int, begin: int) -> bool:
        """Whether a version is the live one of its row, and no block holds it."""
        ...

    def has_begun_since(self, since: int) -> bool:
        """Whether a commit after ``since`` wrote a row version here, whatever became of it."""
        ...

    # -- what a commit does

    def insert(self, columns: tuple[str, ...], rows: Collection[tuple[int, Values]], snapshot: int) -> None:
        """Add versions: row ids and the encoded values of the named file columns."""
        ...

    def close(self, versions: Mapping[int, int], snapshot: int) -> list[int]:
        """End versions given as row id → begin.  Returns the rows that have moved to a block: they are not ended."""
        ...

    def close_all(self, snapshot: int) -> int:
        """End every live version; how many there were."""
        ...

    # -- what a dump reads

    def chunk(
        self, state: TableState, *, history: bool, above: Chunk | None, check: Callable[[], None]
    ) -> Chunk | None:
        """The oldest rows that no block holds, or those above another chunk; None when there are none."""
        ...


class HotStore(Protocol):
    """Where the commits of one lake land."""

    keeps_superseded: bool
    """Whether a version that was superseded after its chunk was read stays here: its block copy is not shown then."""

    def table(
        self,
        r: ReadTransaction | Transaction,
        table_id: int,
        moved: TableRecord | Head,
        schema: TableSchema,
        snapshot: int,
        *,
        at: int,
        newest: bool,
    ) -> HotTable:
        """A table at a snapshot.

        ``moved`` is the catalog's record of it in the same transaction, which tells what has moved to blocks; the
        blocks are those as of commit ``at``.  ``newest`` promises that no commit is later than the snapshot.
        """
        ...

    def create(self, tx: Transaction, table_id: int, fields: Sequence[Field], key: Sequence[int]) -> None:
        """A new table; ``key`` names the fields of its primary key by id."""
        ...

    def drop(self, tx: Transaction, table_id: int) -> None:
        """The table's records are being removed."""
        ...

    def add_columns(self, tx: Transaction, table_id: int, fields: Sequence[Field]) -> None: ...

    def drop_column(self, tx: Transaction, table_id: int, field_id: int) -> None:
        """No reader asks for the column any more."""
        ...

    def add_index(self, tx: Transaction, table_id: int, index_id: int, fields: Sequence[Field]) -> None:
        """Rows are asked for by values of these columns from now on."""
        ...

    def drop_index(self, tx: Transaction, table_id: int, index_id: int) -> None: ...

    def bounds(self, tx: Transaction, table_id: int, f: Field) -> tuple[int, int] | None:
        """The least and greatest encoded value of an integer-coded column in live rows; None when there is none."""
        ...

    def oldest(self, tx: Transaction, table_id: int) -> int | None:
        """The snapshot in which the oldest version that is still here began."""
        ...

    def release(self, tx: Transaction, table_id: int, chunk: Chunk, snapshot: int) -> bool:
        """From this commit on blocks hold the chunk; False when another job has taken rows since it was read."""
        ...

    def purge(self, tx: Transaction, table: TableRecord, limit: int) -> int:
        """Remove up to so many versions that blocks hold or that no retained snapshot shows; how many were removed."""
        ...

    def settle(self) -> None:
        """A job has moved or removed versions: let go of what else was kept for them."""
        ...

    def locations(self, table_id: int, row_ids: Sequence[int]) -> list[str]:
        """Where the hot rows lie, as ``t.locate`` tells it."""
        ...

    def still_there(self, r: ReadTransaction | Transaction, newest: int) -> None:
        """Raise if the lake has another hot store by now, or another owner; ``newest`` is its newest commit."""
        ...

    def committed(self, number: int) -> None:
        """A write of a user was committed with that number: the lake had this hot store then."""
        ...

    def done(self, tx: Transaction) -> int:
        """How much was written through the transaction, for ``undo``."""
        ...

    def undo(self, tx: Transaction, done: int = 0) -> None:
        """What was written through the transaction after that did not happen: it, or a part of it, was given up."""
        ...
