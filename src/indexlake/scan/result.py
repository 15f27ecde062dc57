"""What can be done with anything that yields record batches of one schema: a scan, a change feed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from indexlake.errors import MissingExtraError
from indexlake.python_rows import pandas_frame, python_rows


class Result(ABC):
    """A lazy result.  Nothing is read before the first batch; asking twice gives the same rows.

    An Arrow stream, so DuckDB, polars, pandas and pyarrow take it as it is.
    """

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of the result."""

    @abstractmethod
    def _run(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Begin to read: the columns, and the rows as a stream."""

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """A stream of record batches, in bounded memory."""
        return self._run()[1]

    def to_arrow(self) -> pa.Table:
        """The whole result in memory."""
        schema, batches = self._run()
        return pa.Table.from_batches(list(batches), schema)

    def to_pylist(self) -> list[dict[str, Any]]:
        return python_rows(self.to_arrow())

    def to_pandas(self) -> Any:
        try:
            import pandas  # noqa: F401
        except ImportError as error:
            raise MissingExtraError("to_pandas needs pandas: pip install pandas", extra="pandas") from error
        return pandas_frame(self.to_arrow())

    def to_polars(self) -> Any:
        try:
            import polars
        except ImportError as error:
            raise MissingExtraError("to_polars needs polars: pip install polars", extra="polars") from error
        return polars.from_arrow(self.to_arrow())

    def to_duckdb(self, connection: Any = None) -> Any:
        """A DuckDB relation over the result, in memory."""
        try:
            import duckdb
        except ImportError as error:
            raise MissingExtraError("to_duckdb needs DuckDB: pip install 'indexlake[sql]'", extra="sql") from error
        return (connection or duckdb.connect()).from_arrow(self.to_arrow())

    # ------------------------------------------------------------ the Arrow PyCapsule interface

    def __arrow_c_schema__(self) -> Any:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        reader = pa.RecordBatchReader.from_batches(self.schema, _FirstBatch(self))
        return reader.__arrow_c_stream__(requested_schema)


class _FirstBatch:
    """Begins to read only when a batch is asked for."""

    def __init__(self, result: Result) -> None:
        self._result = result

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield from self._result.to_batches()
