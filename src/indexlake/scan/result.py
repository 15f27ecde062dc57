"""What you can do with anything that returns rows: a table, a scan, a change feed, a query result."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indexlake.errors import ExpressionError, MissingExtraError
from indexlake.types.python_rows import checked_arrow, pandas_frame, polars_frame, python_rows

if TYPE_CHECKING:
    from indexlake.storage import Storage

_DICTS = 1_000
"""How many rows are turned into Python objects at a time during iteration."""


class Result(ABC):
    """Rows of one schema.  Nothing is read before the first batch is asked for.

    It is an Arrow stream, so DuckDB, polars, pandas and pyarrow accept it directly; iterating gives rows as dicts.
    """

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of the result."""

    @abstractmethod
    def _run(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Start reading: return the schema, and the rows as a stream."""

    def _own_storage(self) -> Storage | None:
        """The storage of the lake that the rows come from."""
        return None

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """A stream of record batches, in bounded memory."""
        return (checked_arrow(batch) for batch in self._run()[1])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The rows one by one, as dicts, in bounded memory."""
        for batch in self._run()[1]:
            for start in range(0, batch.num_rows, _DICTS):
                yield from python_rows(batch.slice(start, _DICTS))

    def to_arrow(self) -> pa.Table:
        """The whole result in memory."""
        return checked_arrow(self._table_of_all())

    def _table_of_all(self) -> pa.Table:
        """The same, for ourselves: with values that other readers of Arrow data would misread."""
        schema, batches = self._run()
        return pa.Table.from_batches(list(batches), schema)

    def head(self, n: int = 10) -> pa.Table:
        """The first rows.  Reads no more than it needs."""
        check_count(n)
        schema, batches = self._run()
        held: list[pa.RecordBatch] = []
        count = 0
        while count < n and (batch := next(batches, None)) is not None:
            held.append(batch.slice(0, n - count))
            count += held[-1].num_rows
        return checked_arrow(pa.Table.from_batches(held, schema))

    def count(self) -> int:
        """The number of rows, without keeping them."""
        return sum(batch.num_rows for batch in self._run()[1])

    def to_pylist(self) -> list[dict[str, Any]]:
        """The rows as dicts."""
        return python_rows(self._table_of_all())

    def to_pandas(self) -> Any:
        """A pandas DataFrame."""
        try:
            import pandas  # noqa: F401
        except ImportError:
            raise MissingExtraError("to_pandas needs pandas: pip install pandas", extra="pandas") from None
        return pandas_frame(self._table_of_all())

    def to_polars(self) -> Any:
        """A polars DataFrame."""
        try:
            import polars  # noqa: F401
        except ImportError:
            raise MissingExtraError("to_polars needs polars: pip install polars", extra="polars") from None
        return polars_frame(self._table_of_all())

    def to_duckdb(self, connection: Any = None) -> Any:
        """A DuckDB relation over the result, in memory."""
        try:
            import duckdb
        except ImportError:
            raise MissingExtraError("to_duckdb needs DuckDB: pip install 'indexlake[sql]'", extra="sql") from None
        return (connection or duckdb.connect()).from_arrow(self.to_arrow())

    def to_parquet(
        self,
        path: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        storage_options: Mapping[str, str] | None = None,
        progress: bool | None = None,
    ) -> int:
        """Write the rows to one Parquet file, in bounded memory, and return how many there were.

        The file appears under its name once it is complete; a failure leaves nothing behind.  If it already exists,
        that is an error unless ``overwrite=True``.  ``path`` may be ``s3://bucket/…``: in the lake's own bucket its own
        options are used; for any other, pass ``storage_options``.

        Examples
        --------
        >>> t.scan("city = 'Oslo'").to_parquet("oslo.parquet")  # doctest: +SKIP
        """
        from indexlake.scan.parquet_file import write_parquet

        return write_parquet(self, os.fspath(path), overwrite, storage_options, progress)

    # ------------------------------------------------------------ the Arrow PyCapsule interface

    def __arrow_c_schema__(self) -> Any:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        reader = pa.RecordBatchReader.from_batches(self.schema, _FirstBatch(self))
        return reader.__arrow_c_stream__(requested_schema)


def check_count(n: Any) -> None:
    """Refuse a number of rows to show that is not a whole number, 0 or more."""
    if not isinstance(n, int) or isinstance(n, bool) or n < 0:
        raise ExpressionError(f"head takes a whole number, 0 or more; got {n!r}.")


class _FirstBatch:
    """A stream of batches that starts reading only when the first one is asked for."""

    def __init__(self, result: Result) -> None:
        self._result = result

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield from self._result.to_batches()
