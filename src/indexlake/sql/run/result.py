"""What a statement returns: rows, or what it changed.

A query's rows are streamed: nothing is held except what the caller keeps.  Reading again runs the query again, at the
same snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indexlake.commit.write_set import WriteResult
from indexlake.display import FIRST_ROWS, html_rows, shown, shown_rows, text_table
from indexlake.errors import IndexLakeError
from indexlake.scan.result import Result
from indexlake.types import codec_of
from indexlake.types.python_rows import python_columns

if TYPE_CHECKING:
    from indexlake.storage import Storage

Batches = tuple[pa.Schema, Iterator[pa.RecordBatch]]


class SqlResult(Result):
    """Returned by ``lake.sql`` and ``tx.sql``.  An Arrow stream for pandas, polars, pyarrow and DuckDB."""

    _storage: Storage | None = None  # of the lake that was queried
    _before: tuple[SqlResult, ...] = ()  # of the statements before it in the same text

    def __init__(self, run: Callable[[], Batches], snapshot_id: int | None) -> None:
        self._begin = run
        self._schema, batches = run()
        self._waiting: Iterator[pa.RecordBatch] | None = batches
        self.snapshot_id = snapshot_id

    @property
    def results(self) -> tuple[SqlResult, ...]:
        """The results of all statements, if this is the result of the last of several."""
        return (*self._before, self)

    def let_go(self) -> None:
        """Hold nothing open; reading the rows runs the query again."""
        self._waiting = None

    def __reduce__(self) -> Any:
        raise TypeError("A result belongs to the process that made it and cannot be pickled. Pickle its Arrow table.")

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""
        return self._schema

    @property
    def columns(self) -> list[str]:
        names: list[str] = self._schema.names
        return names

    def _again(self) -> Batches:
        return self._begin()

    def _run(self) -> Batches:
        batches, self._waiting = self._waiting, None
        return self._schema, self._again()[1] if batches is None else batches

    def _own_storage(self) -> Storage | None:
        return self._storage

    def fetchall(self) -> list[tuple[Any, ...]]:
        """The rows as tuples."""
        return list(self.tuples())

    def tuples(self) -> Iterator[tuple[Any, ...]]:
        """The rows as tuples, one after the other."""
        for batch in self._run()[1]:
            yield from _tuples(batch)

    def fetchone(self) -> tuple[Any, ...] | None:
        """The first row, or None if there is none."""
        for batch in self._first_batches():
            return next(_tuples(batch))
        return None

    def scalar(self) -> Any:
        """The first column of the first row, or None if there is none."""
        row = self.fetchone()
        return None if row is None else row[0]

    # ------------------------------------------------------------ showing

    def _first_batches(self) -> list[pa.RecordBatch]:
        """Return the first batch, if there is one, and put it back for the next reader."""
        batches = self._run()[1]
        first = [batch for batch in [next(batches, None)] if batch is not None]
        self._waiting = chain(first, batches)
        return first

    def _head(self) -> tuple[pa.Table, bool]:
        """Return the first rows, and whether there are more."""
        table = pa.Table.from_batches(self._first_batches(), self._schema)
        return table.slice(0, FIRST_ROWS), table.num_rows > FIRST_ROWS

    def __repr__(self) -> str:
        try:
            rows, more = self._head()
            names = [f.name for f in rows.schema]
            text = text_table(names, [_shown_row(row) for row in shown_rows(rows)])
        except IndexLakeError as error:
            return f"<SqlResult: {type(error).__name__}: {error}>"
        return f"{text}\n… the first {FIRST_ROWS} rows" if more else text

    def _repr_html_(self) -> str:
        def html() -> str:
            rows, more = self._head()
            return html_rows(rows, note=f"The first {FIRST_ROWS} rows." if more else None)

        return shown(html)


_COUNTS = pa.schema([(name, pa.int64()) for name in ("rows", "inserted", "updated", "deleted")])


class SqlChange(SqlResult):
    """What a statement changed.  As rows: those it ``returned``, or one row with the counts."""

    def __init__(self, operation: str, result: WriteResult, returned: pa.Table | None = None) -> None:
        self.operation = operation
        self.result = result
        self.returned = returned
        self.snapshot_id = result.snapshot_id
        self._schema = _COUNTS if returned is None else returned.schema
        self._waiting = None  # most callers do not read rows

    def _again(self) -> Batches:
        table = self.returned
        if table is None:
            counts = [pa.array([getattr(self.result, name)], pa.int64()) for name in _COUNTS.names]
            table = pa.table(counts, schema=_COUNTS)
        return table.schema, iter(table.to_batches())

    @property
    def rows(self) -> int:
        """How many rows were affected."""
        return self.result.rows

    @property
    def inserted(self) -> int:
        return self.result.inserted

    @property
    def updated(self) -> int:
        return self.result.updated

    @property
    def deleted(self) -> int:
        return self.result.deleted

    def __repr__(self) -> str:
        if self.returned is not None:
            return super().__repr__()
        at = "" if self.snapshot_id is None else f", snapshot {self.snapshot_id}"
        counts = ", ".join(f"{n} {name}" for name in ("inserted", "updated", "deleted") if (n := getattr(self, name)))
        return f"<{self.operation}: {counts or f'{self.rows} rows'}{at}>"


class RowResult(SqlResult):
    """One row that is already known, or none."""

    def __init__(self, schema: pa.Schema, row: tuple[Any, ...] | None, snapshot_id: int) -> None:
        self._schema = schema
        self._row = row
        self._waiting = None
        self.snapshot_id = snapshot_id

    def _again(self) -> Batches:
        if self._row is None:
            return self._schema, iter(())
        arrays = [codec_of(f).array([value]) for value, f in zip(self._row, self._schema, strict=True)]
        return self._schema, iter([pa.RecordBatch.from_arrays(arrays, schema=self._schema)])

    def fetchone(self) -> tuple[Any, ...] | None:
        return self._row


class SqlText(SqlResult):
    """A plan: rows of (part, text), shown as text."""

    def __init__(self, parts: list[tuple[str, str]], snapshot_id: int | None) -> None:
        self._parts = parts
        table = pa.table({"part": [name for name, _ in parts], "plan": [text for _, text in parts]})
        super().__init__(lambda: (table.schema, iter(table.to_batches())), snapshot_id)

    def __str__(self) -> str:
        return "\n\n".join(text for _, text in self._parts)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from indexlake.display import html_text

        return html_text(str(self))


def table_result(table: pa.Table, snapshot_id: int | None) -> SqlResult:
    return SqlResult(lambda: (table.schema, iter(table.to_batches())), snapshot_id)


def _tuples(data: pa.RecordBatch | pa.Table) -> Iterator[tuple[Any, ...]]:
    columns = python_columns(data)
    return zip(*columns, strict=True) if columns else iter([()] * data.num_rows)


def _shown_row(row: tuple[Any, ...]) -> list[Any]:
    return ["NULL" if value is None else value for value in row]
