"""The protocol of hot stores.

A hot store holds row versions that are not in a block yet: live ones, and superseded ones that retained snapshots show.
How it tracks which of them have moved to blocks is its own business: callers ask for rows at a snapshot and get those
that no block of the same catalog state holds. Rows come out as Arrow (`HotRows`) or as encoded values in the order of
the table's fields, and are identified by row id and the snapshot in which they began.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa

from indexlake.expr.test import ALWAYS, Test

if TYPE_CHECKING:
    from pyroaring import BitMap64

    from indexlake.catalog.definitions import TableRecord
    from indexlake.catalog.driver import Query, ReadTransaction, Transaction
    from indexlake.catalog.table_heads import Head
    from indexlake.hot.rows import HotRows
    from indexlake.indexes.keys import KeyColumn
    from indexlake.schema import Field, TableSchema
    from indexlake.schema.fitting import Values
    from indexlake.snapshots.state import TableState


class HotRow(NamedTuple):
    """One row version; ``values`` are the encoded values of the requested fields."""

    row_id: int
    begin: int
    values: Values


@dataclass(frozen=True, slots=True)
class ChunkPart:
    """The rows of a chunk that have the same columns: those of one block."""

    schema: TableSchema
    schema_snapshot: int
    rows: pa.Table  # in the layout of a block; live rows in row-id order
    last_end: int | None  # the last end of superseded versions; None: the rows are live

    @property
    def history(self) -> bool:
        """Whether these are superseded versions rather than live ones."""
        return self.last_end is not None

    def cut(self, row_count: int) -> Iterator[ChunkPart]:
        """Split the part into parts of at most ``row_count`` rows."""
        for start in range(0, self.rows.num_rows, row_count):
            yield replace(self, rows=self.rows.slice(start, row_count))


@dataclass(frozen=True, slots=True)
class Chunk:
    """The oldest rows of a table, ready to become blocks. ``mark`` tells the store where the chunk ends."""

    parts: tuple[ChunkPart, ...]
    mark: Any
    everything: bool  # there were no more rows when these were read
    at: int  # the snapshot at which live rows are live

    @property
    def size(self) -> int:
        return sum(int(part.rows.nbytes) for part in self.parts)


class HotTable(Protocol):
    """The hot rows of one table as one catalog transaction sees them, at one snapshot."""

    # -- reading

    def rows(self, fields: Sequence[Field], test: Test = ALWAYS) -> HotRows:
        """Return the visible rows; those that cannot satisfy the test, a necessary condition, may be left out."""
        ...

    def count(self) -> int:
        """Return the number of visible rows."""
        ...

    def rows_with(self, keys: KeyColumn, fields: Sequence[Field]) -> HotRows:
        """Return the visible rows; those that have none of these primary keys may be left out."""
        ...

    def row(self, key: Sequence[Any]) -> HotRow | None:
        """Return the visible row with a primary key, given as encoded values."""
        ...

    def begun(self, since: int, until: int, fields: Sequence[Field]) -> Iterator[pa.RecordBatch]:
        """Yield versions begun in (since, until], by snapshot and row id; the version column holds that snapshot."""
        ...

    def ended(self, since: int, until: int, fields: Sequence[Field]) -> Iterator[pa.RecordBatch]:
        """Yield versions ended in (since, until], by snapshot and row id; the version column holds that snapshot."""
        ...

    def count_changes(self, since: int, until: int) -> int:
        """Return how many rows ``begun`` and ``ended`` yield together."""
        ...

    def sizes(self) -> tuple[int, int]:
        """Return the numbers of (live, superseded) versions that no block holds now."""
        ...

    # -- what a commit validates

    def holders(
        self, fields: Sequence[Field], keys: KeyColumn, since: int, without: BitMap64, *, indexed: bool
    ) -> list[HotRow]:
        """Return live rows committed after ``since`` whose ``values``, of these fields, are one of the keys.

        Rows in ``without`` are left out. ``indexed``: the fields are the primary key or those of an index.
        """
        ...

    def since(self, fields: Sequence[Field], since: int) -> Iterator[HotRow]:
        """Yield live rows committed after ``since``, with their values of these fields."""
        ...

    def is_live(self, row_id: int, begin: int) -> bool:
        """Return whether a version is the live one of its row and in no block."""
        ...

    def has_begun_since(self, since: int) -> bool:
        """Return whether a commit after ``since`` wrote a row version here, whatever became of it."""
        ...

    # -- what a commit does

    def insert(self, columns: tuple[str, ...], rows: Collection[tuple[int, Values]], snapshot: int) -> None:
        """Add versions: row ids with encoded values of the named file columns."""
        ...

    def close(self, versions: Mapping[int, int], snapshot: int) -> list[int]:
        """End versions given as row id → begin; return the rows that have moved to a block and were not ended."""
        ...

    def close_all(self, snapshot: int) -> int:
        """End every live version; return how many there were."""
        ...

    # -- what a dump reads

    def chunk(
        self, state: TableState, *, history: bool, above: Chunk | None, check: Callable[[], None]
    ) -> Chunk | None:
        """Return the oldest rows that no block holds, or those above another chunk; None if there are none."""
        ...


class HotStore(Protocol):
    """The store that takes the commits of one lake."""

    keeps_superseded: bool
    """Whether versions superseded after their chunk was read stay here, so that their copies in blocks are hidden.

    They are dumped in chunks of their own; otherwise, all versions are dumped together.
    """

    @property
    def inline(self) -> HotStore:
        """The part of the store that is in the catalog and is rolled back with it."""
        ...

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
        """Return a table at a snapshot.

        ``moved`` is the table's record in the same catalog transaction, which tells what has moved to blocks; the
        blocks are those as of commit ``at``. ``newest`` promises that no commit is later than the snapshot.
        """
        ...

    def check_width(self, tx: Transaction, table_id: int) -> None:
        """Refuse a table with more columns than the catalog's database can hold."""
        ...

    def create(self, tx: Transaction, table_id: int, fields: Sequence[Field], key: Sequence[int]) -> None:
        """Create a table; ``key`` lists the field ids of its primary key."""
        ...

    def drop(self, tx: Transaction, table_id: int) -> None:
        """Drop a table whose records are being removed."""
        ...

    def add_columns(self, tx: Transaction, table_id: int, fields: Sequence[Field]) -> None: ...

    def drop_column(self, tx: Transaction, table_id: int, field_id: int) -> None:
        """Drop a column that no reader needs any more."""
        ...

    def add_index(self, tx: Transaction, table_id: int, index_id: int, fields: Sequence[Field]) -> None:
        """Prepare to find rows by values of these columns from now on."""
        ...

    def drop_index(self, tx: Transaction, table_id: int, index_id: int) -> None: ...

    def bounds(self, tx: Transaction, table_id: int, f: Field) -> tuple[Any, Any] | None:
        """Return the least and greatest encoded value of a column in live rows; None: no value."""
        ...

    def oldest(self, tx: Transaction, table_id: int) -> int | None:
        """Return the snapshot in which the oldest version still here began."""
        ...

    def foreseen(self, table_id: int, fields: Sequence[Field], keys: KeyColumn) -> Iterable[Query]:
        """Return the queries that ``HotTable.holders`` will make for the keys of an index, as far as they are known."""
        ...

    def release(self, tx: Transaction, table_id: int, chunk: Chunk, snapshot: int) -> bool:
        """Declare that blocks hold the chunk from this commit on; False if another job has taken rows of it."""
        ...

    def purge(self, tx: Transaction, table: TableRecord, limit: int) -> int:
        """Remove up to ``limit`` versions that blocks hold or that no retained snapshot shows; return how many."""
        ...

    def settle(self) -> None:
        """Release what else was kept for versions that a job has moved or removed."""
        ...

    def locations(self, table_id: int, row_ids: Sequence[int]) -> list[str]:
        """Return where hot rows are, as shown by ``t.locate``."""
        ...

    def still_there(self, r: ReadTransaction | Transaction, newest: int) -> None:
        """Raise if the lake has another hot store or owner by now; ``newest`` is its newest commit."""
        ...

    def committed(self, number: int) -> None:
        """Note that a user's write was committed with this number, while the lake had this hot store."""
        ...

    def done(self, tx: Transaction) -> int:
        """Return how much was written through the transaction, for ``undo``."""
        ...

    def undo(self, tx: Transaction, done: int = 0) -> None:
        """Undo what was written through the transaction beyond ``done``."""
        ...
