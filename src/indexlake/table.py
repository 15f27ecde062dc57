"""``Table``: a handle to one table, at the newest snapshot, at a past one, or inside a transaction.

A handle holds no rows.  Every read is at one snapshot; every write is one commit, or part of the transaction that the
handle belongs to.  Threads may share a handle unless it belongs to a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indexlake.catalog import commits, definitions
from indexlake.commit.token import TokenLike
from indexlake.commit.write_set import TableWrites, WriteResult
from indexlake.config import TableConfig
from indexlake.display import Listing, html_schema, shown
from indexlake.errors import ExpressionError, IndexLakeError, NotFoundError, OwnershipError
from indexlake.scan.by_keys import encoded_key, encoded_keys, rows_by_keys
from indexlake.scan.point import find_in_blocks, find_recent, read_row
from indexlake.scan.result import Result
from indexlake.scan.scan import Scan, bind_predicate
from indexlake.schema import ROW_ID, TableSchema
from indexlake.snapshots.partition_info import PartitionInfo, clustered_stats, partitions
from indexlake.snapshots.state import TableState
from indexlake.snapshots.stats import Snapshot, TableStats, snapshot_of, table_stats
from indexlake.snapshots.time_travel import check_snapshot, snapshot_number
from indexlake.storage.names import table_folder
from indexlake.table_definition import TableDefinition
from indexlake.types.python_rows import checked_arrow
from indexlake.writes.delete import delete, truncate
from indexlake.writes.insert import Insert
from indexlake.writes.update import lock, update

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from indexlake.feed.changes import Changes
    from indexlake.lake import Lake
    from indexlake.scan.search import Search
    from indexlake.snapshots.reading import OpenReading
    from indexlake.storage import Storage
    from indexlake.transaction import Transaction
    from indexlake.writes.merge.merge import Merge

Params = Mapping[str, Any] | Sequence[Any] | None


@cache
def _search() -> type[Search]:
    """Return the class of searches, which is only imported with the first one."""
    from indexlake.scan.search import Search

    return Search


class Table(TableDefinition, Result):
    """Returned by ``lake.table(name)``, ``lake.create_table`` and ``tx.table(name)``.

    It reads like ``t.scan()``: ``for row in t``, ``t.head()``, ``t.to_pandas()``, ``t.to_arrow()``, ``t.count()``, each
    at the snapshot that is newest when it begins.
    """

    def __init__(
        self,
        lake: Lake,
        table_id: int,
        name: str,
        *,
        snapshot: int | None = None,
        transaction: Transaction | None = None,
    ) -> None:
        self._lake = lake
        self._table_id = table_id
        self._name = name
        self._snapshot = snapshot
        self._tx = transaction

    def __repr__(self) -> str:
        """The columns and the key.  Looks at the catalog at most once, and not at all if the lake is closed."""
        try:
            schema = self._schema_now()
        except IndexLakeError:
            return f"<{self._title()}>"
        columns = ", ".join(f"{f.name} {f.type}" for f in schema.fields)
        key = f", primary key ({', '.join(f.name for f in schema.key_fields)})" if schema.key_fields else ""
        return f"<{self._title()}: {columns}{key}>"

    def _title(self) -> str:
        return f"Table {self._name}" + (f" at snapshot {self._snapshot}" if self._snapshot is not None else "")

    def _repr_html_(self) -> str:
        """The columns and the key.  Reads no rows; ``t.scan(limit=10)`` shows some."""
        return shown(lambda: html_schema(self._schema_now(), caption=self._title()))

    def __reduce__(self) -> Any:
        raise TypeError("A Table belongs to the process that opened its lake and cannot be pickled. Send its name.")

    # ------------------------------------------------------------ what it is

    @property
    def name(self) -> str:
        """The current name, or the name at the snapshot that this handle is fixed to."""
        if self._snapshot is None and self._tx is None:
            with suppress(IndexLakeError):  # if the lake is closed, the last known name is returned
                self._state()
        return self._name

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""
        return self._schema_now().arrow

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The columns of the primary key; empty if there is none."""
        return tuple(f.name for f in self._schema_now().key_fields)

    @property
    def config(self) -> TableConfig:
        """The table's settings; change them with ``set_config``."""
        return self._state().table.config

    def __len__(self) -> int:
        return self.count()

    def __contains__(self, key: Any) -> bool:
        """Whether there is a row with this primary key: ``7 in t``."""
        return self.get(key) is not None

    def count(self, where: str | None = None, params: Params = None) -> int:
        """The number of rows, or of those that satisfy ``where``.

        Examples
        --------
        >>> t.count("total > $low", {"low": 20})
        7
        """
        return self.scan(where, params=params).count()

    def head(self, n: int = 10) -> pa.Table:
        """The first rows.  Reads no more than it needs."""
        return self.scan().head(n)

    def _run(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        return self.scan()._run()

    def _own_storage(self) -> Storage:
        return self._lake.storage

    def _state(self) -> TableState:
        if self._tx is not None:
            return self._tx.state_of(self._table_id)
        state = self._lake._readings.latest(self._table_id)
        if self._snapshot is None and state.table.named_in <= state.newest:
            self._name = state.table.full_name
        return state

    def _schema_now(self) -> TableSchema:
        """The schema at the newest snapshot, or at the one this handle is fixed to."""
        state = self._state()
        return state.current if self._snapshot is None else state.schema.at(self._snapshot)

    def at(self, snapshot: int | None = None, *, time: datetime | None = None) -> Table:
        """A read-only view of the table as it was."""
        if self._tx is not None:
            raise OwnershipError("at() does not work inside a transaction, which already reads one snapshot.")
        number = snapshot_number(self._lake, snapshot, time)
        view = Table(self._lake, self._table_id, self._name, snapshot=number)
        with view._reading() as reading:
            view._name = definitions.name_at(reading.transaction, reading.state.table, number)
            return view

    # ------------------------------------------------------------ reading

    def _reading(self, kept: int | None = None) -> OpenReading:
        """Open the table as this handle sees it; ``kept`` is a snapshot chosen earlier."""
        if self._tx is not None:
            self._tx._check()
            return self._tx.reading(self._table_id)

        def choose(state: TableState) -> tuple[int, None]:
            wanted = self._snapshot if kept is None else kept
            if wanted is None:
                wanted, end = state.newest, state.table.end_snapshot
                if end is not None and end <= wanted:
                    raise NotFoundError(f"Table {self._name!r} was dropped.", name=self._name)
            check_snapshot(wanted, state.newest, state.table)
            return wanted, None

        return self._lake._readings.open(self._table_id, choose)

    def scan(
        self,
        where: str | None = None,
        *,
        params: Params = None,
        columns: Sequence[str] | None = None,
        order_by: Any = None,
        limit: int | None = None,
        offset: int = 0,
        with_row_id: bool = False,
        for_update: bool = False,
    ) -> Scan:
        """Read rows, lazily; see ``Scan`` for what you can do with the result.

        Examples
        --------
        >>> t.scan("total > $low", params={"low": 10}, order_by=[("total", "desc")], limit=3)
        """
        if for_update and self._tx is None:
            raise OwnershipError("for_update=True belongs in a transaction: with lake.transaction() as tx: …")
        return Scan(self, where, params, columns, order_by, limit, offset, with_row_id, for_update)

    def search(
        self,
        by: str | Sequence[tuple[str, Any]],
        query: Any = None,
        k: int = 10,
        where: str | None = None,
        params: Params = None,
        columns: Sequence[str] | None = None,
        *,
        snippet: bool = False,
        fuse: str | Sequence[float] = "rrf",
        **options: Any,
    ) -> Search:
        """The k best rows by an index, best first, with ``_score`` or ``_distance``; lazy like a scan.

        ``by`` is the name of an index, or of a column that has a search index.  The query is text for bm25, a vector
        for hnsw, a point for rtree.  Several (name, query) pairs become one ranking, by rank (``"rrf"``) or by weighted
        scores.  Only rows that satisfy ``where`` are found, and always min(k, matches) of them.

        Examples
        --------
        >>> info = t.create_index("words", "city", kind="bm25")
        >>> [row["id"] for row in t.search("city", "lima", k=2, where="total > 20")]
        [3, 4]
        """
        return _search()(self, by, query, k, where, params, columns, snippet, fuse, options)

    def to_spark(
        self,
        spark: SparkSession | None = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        params: Params = None,
    ) -> DataFrame:
        """A Spark DataFrame of the rows at this snapshot, which stays readable while the lake is open.

        Without a session, the active one is used or a local one started.  Name the columns that you need: Spark does
        not tell us which of them it will use.

        Examples
        --------
        >>> t.to_spark(columns=["city", "total"]).groupBy("city").sum("total").show()
        """
        from indexlake.spark.frame import to_spark

        return to_spark(self, spark, columns, where, params)

    def changes(
        self,
        since: int | datetime,
        until: int | datetime | None = None,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        params: Params = None,
        with_row_id: bool = False,
    ) -> Changes:
        """What commits after ``since``, up to ``until`` (by default the newest), did to each row; lazy like a scan.

        Changes come in commit order with ``_change_type`` (insert, update_preimage, update_postimage, delete) and
        ``_snapshot_id``, which the predicate may use too.  Continue with ``since=feed.until``.

        Examples
        --------
        >>> t.changes(since=1, where="_change_type <> 'update_preimage'").to_arrow()
        """
        from indexlake.feed.changes import Changes

        return Changes(self, since, until, columns, where, params, with_row_id)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """All rows, as from ``scan()``: you can pass a table directly to pandas, polars, DuckDB and pyarrow."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def get(self, key: Any) -> dict[str, Any] | None:
        """The row with that primary key, or None.  A composite key is a tuple or a dict."""
        self._lake._check()
        files = self._lake._files
        with self._reading() as reading:
            wanted = encoded_key(reading.schema, key, self._name)
            found = find_recent(reading, files, wanted)
        return read_row(reading.schema, found or find_in_blocks(reading, files, wanted))

    def get_many(self, keys: Any) -> pa.Table:
        """The rows with those primary keys that exist, in no particular order."""
        self._lake._check()
        many = isinstance(keys, Iterable) and not isinstance(keys, str | bytes | Mapping)
        given = list(keys) if many else keys  # before the read transaction, because an iterable may run arbitrary code
        with self._reading() as reading:
            wanted = encoded_keys(reading.schema, given, self._name)
            rows = rows_by_keys(reading, self._lake, wanted) if wanted else ()
        return checked_arrow(pa.Table.from_batches(rows, reading.schema.arrow))

    def _lock_rows(self, row_ids: list[int]) -> None:
        assert self._tx is not None
        self._tx._check(writing=True)
        lock(self._tx, self._table_id, row_ids)

    # ------------------------------------------------------------ writing

    def insert(self, rows: Any, token: TokenLike | None = None, progress: bool | None = None) -> WriteResult:
        """Add rows: one dict, a list of dicts, files, or any Arrow-compatible data.

        Large inputs go straight to blocks.

        Give files as a path, a pattern such as ``"data/*.csv"``, a folder, a list of those, or ``il.files(…)``; they
        may be on an object store: ``"s3://bucket/data/*.parquet"``.

        ``token`` makes it safe to retry: a write whose token was used in this lake in the last 7 days changes nothing
        and returns the first result, whatever its own rows are.  A pair of a name and a number that grows, such as
        ``("orders", 17)``, does so for this number and all smaller ones, and is never forgotten.
        ``progress``: show a bar on standard error; by default, slow operations do so in a terminal or notebook.
        """
        if type(rows) is dict and token is None and self._tx is None and self._snapshot is None:
            joined = self._lake._joined_inserts(self._table_id)
            if joined is not None:
                return joined.insert(rows)
        return self._write("insert", Insert(self._table_id, self._reaching(rows), progress), token)

    def update(
        self,
        assignments: Mapping[str, Any],
        where: str | None = None,
        params: Params = None,
        token: TokenLike | None = None,
    ) -> WriteResult:
        """Change rows.  Plain values are taken literally; ``il.expr("total * 0.9")`` is SQL over the old row."""
        if where is None:
            raise ExpressionError("update needs where=…; to change every row pass where='true'.")
        return self._write(
            "update",
            lambda tx: update(tx, self._table_id, assignments, lambda s: bind_predicate(where, s, params)),
            token,
        )

    def delete(self, where: str | None = None, params: Params = None, token: TokenLike | None = None) -> WriteResult:
        """Remove rows.  To remove all of them, use ``truncate()``."""
        if where is None:
            raise ExpressionError("delete needs where=…; to remove every row use truncate().")
        return self._write(
            "delete", lambda tx: delete(tx, self._table_id, lambda s: bind_predicate(where, s, params)), token
        )

    def upsert(self, rows: Any, token: TokenLike | None = None) -> WriteResult:
        """Update rows that have the same primary key, and add the others.  Only the given columns change.

        Examples
        --------
        >>> t.upsert([{"id": 1, "total": 9.5}, {"id": 7, "total": 3.0}])
        """
        from indexlake.writes.merge.upsert import Upsert

        return self._write("upsert", Upsert(self, self._reaching(rows)), token)

    def apply_changes(
        self, changes: Any, *, sequence_by: str | None = None, token: TokenLike | None = None
    ) -> WriteResult:
        """Do to this table what the changes say was done to another: of all changes to a key, the last one counts.

        ``changes`` is a feed, ``other.changes(since)``, or any rows with a column ``_change_type``: ``insert`` and
        ``update_postimage`` are rows that are there, ``delete`` and ``update_preimage`` rows that are gone.  They are
        in order, or ``sequence_by`` names the column that tells the order; a feed has ``_snapshot_id``.

        Examples
        --------
        >>> copy = lake.create_table("copy", t.schema, primary_key="id")
        >>> feed = t.changes(since=0)
        >>> copy.apply_changes(feed, token=("copy of orders", feed.until)).inserted
        9
        """
        from indexlake.writes.merge.apply_changes import ApplyChanges

        return self._write("changes", ApplyChanges(self, self._reaching(changes), sequence_by), token)

    def merge(self, source: Any, on: str | Sequence[str], params: Params = None) -> Merge:
        """Match rows of a source with rows of this table: ``on`` is a column, columns, or SQL over ``t`` and ``s``.

        Add clauses, then call ``execute()``.

        Examples
        --------
        >>> t.merge(rows, on="id").when_matched_update().when_not_matched_insert().execute()
        """
        from indexlake.writes.merge.merge import merge

        return merge(self, self._reaching(source), on, params)

    def truncate(self, token: TokenLike | None = None) -> WriteResult:
        """Remove every row that is there when this commits.

        In a transaction, it conflicts with commits that changed the table's rows after the transaction began.
        """
        return self._write("truncate", self._truncate, token)

    def _truncate(self, tx: Transaction) -> int:
        rows = 0 if tx.is_statement else len(self)  # a commit of its own counts what it removes
        truncate(tx, self._table_id)
        return rows

    def _reaching(self, rows: Any) -> Any:
        """The rows; files in the lake's own bucket are reached with the lake's own options."""
        if isinstance(rows, (dict, Mapping)):
            return rows
        from indexlake.sources.files import reaching

        return reaching(rows, self._lake.storage)

    def _write(self, operation: str, apply: Callable[[Transaction], int], token: TokenLike | None) -> WriteResult:
        if self._snapshot is not None:
            raise OwnershipError(f"{self._name} at snapshot {self._snapshot} is a view of the past: it is read-only.")
        (self._tx or self._lake)._check(writing=True)
        if self._tx is not None:
            if token is not None:
                raise OwnershipError("Inside a transaction the token belongs to it: lake.transaction(token=…).")
            return self._in_transaction(self._tx, operation, apply)
        return self._lake._autocommit(operation, apply, token)

    def _in_transaction(self, tx: Transaction, operation: str, apply: Callable[[Transaction], int]) -> WriteResult:
        before = _counts(tx.own_writes(self._table_id))
        rows = apply(tx)
        after = _counts(tx.own_writes(self._table_id))
        done = [max(0, now - then) for now, then in zip(after, before, strict=True)]
        if operation == "truncate":  # the transaction counts it when it commits
            done = [0, 0, rows]
        return WriteResult(rows, None, *done)

    # ------------------------------------------------------------ inspection

    def stats(self) -> TableStats:
        """How many rows there are, and where they are; prints as a picture."""
        with self._reading() as reading:
            live, dead = reading.hot.sizes()
            clustered = clustered_stats(reading)
        state, snapshot = reading.state, reading.snapshot
        everything = self.scan()
        everything._snapshot = snapshot
        rows, cache = everything.count(), self._lake.storage.cache
        cached = cache.stats(table_folder(state.table.table_id)) if cache is not None else None
        return table_stats(self._name, state, snapshot, rows, live, dead, cached, clustered, self._lake.hot)

    def partitions(self) -> list[PartitionInfo]:
        """The key ranges of a clustered table in order, with the files that hold their rows; prints as a table."""
        with self._reading() as reading:
            pass
        return partitions(reading)

    def locate(self, row_id: int) -> str | None:
        """Where a row is: ``inline``, ``memory:page:slot`` or ``format:path:group:offset``.  None: no such row."""
        for found in self.row_metadata(where=f"{ROW_ID} = $id", params={"id": row_id}).read_all().to_pylist():
            return str(found["location"])
        return None

    def row_metadata(self, where: str | None = None, params: Params = None) -> pa.RecordBatchReader:
        """Stream (``_indexlake_row_id``, ``location``, ``deleted``) for the rows that satisfy the predicate."""
        from indexlake.scan.address import ADDRESS_SCHEMA, addresses

        return pa.RecordBatchReader.from_batches(ADDRESS_SCHEMA, addresses(self, where, params))

    def history(self) -> list[Snapshot]:
        """The commits that changed this table, oldest first, as far back as history is kept."""
        with self._reading() as reading:
            state, snapshot = reading.state, reading.snapshot
            first = max(state.table.begin_snapshot, state.table.horizon)
            rows = list(commits.list_snapshots(reading.transaction, first))
        found = (snapshot_of(row, self._table_id) for row in rows)
        return Listing(s for s in found if s.snapshot_id <= snapshot and self._concerns(s, state))

    def _concerns(self, snapshot: Snapshot, state: TableState) -> bool:
        return snapshot.snapshot_id == state.table.begin_snapshot or str(self._table_id) in snapshot.summary


def _counts(writes: TableWrites | None) -> tuple[int, int, int]:
    return (0, 0, 0) if writes is None else (writes.inserted, writes.updated, writes.deleted)
