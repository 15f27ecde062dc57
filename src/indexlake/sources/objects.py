"""Objects of other libraries as a stream of Arrow batches: whatever supports the Arrow PyCapsule interface, and the few
that do not.  None of those libraries is imported for this."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa

from indexlake.errors import IndexLakeError, SchemaError
from indexlake.types.inference import inferred_column

_PLAIN_OBJECTS = frozenset((str, bytes, bool, float, Decimal, date))
_MOST_ROWS = 1 << 18
"""The most rows of a batch to convert at once; a frame may come as a single batch."""


def reader_of(rows: Any) -> pa.RecordBatchReader | None:
    """Return a reader over the object's rows, or None if it has no Arrow data.  Copies only if Arrow must."""
    try:
        return _reader_of(rows)
    except IndexLakeError:
        raise
    except Exception as error:  # whatever the library behind the object raises
        raise _refused(rows, error) from None


def _reader_of(rows: Any) -> pa.RecordBatchReader | None:
    if isinstance(rows, pa.RecordBatchReader):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(rows.schema, [rows])
    if isinstance(rows, pa.Table):
        return rows.to_reader()
    if _is_a(rows, "indexlake.scan.result", "Result"):
        schema, batches = rows._run()  # not through the C interface, which keeps only the text of an error
        return pa.RecordBatchReader.from_batches(schema, batches)
    if _is_a(rows, "pandas", "DataFrame"):
        return _from_pandas(rows)
    if _is_a(rows, "pyarrow.dataset", "Dataset"):
        return rows.scanner().to_reader()
    if _is_a(rows, "pyarrow.dataset", "Scanner"):
        return rows.to_reader()
    if _is_a(rows, "polars", "LazyFrame"):
        raise SchemaError("A polars LazyFrame has no rows yet. Give its result: frame.collect().")
    if hasattr(rows, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(rows)
    if hasattr(rows, "__arrow_c_array__"):
        batch = pa.record_batch(rows)
        return pa.RecordBatchReader.from_batches(batch.schema, [batch])
    return None


def checked(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Yield the batches, large ones in slices, turning errors of the library behind them into ours."""
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except (pa.ArrowException, OSError) as error:
            raise _refused(reader, error) from None
        for start in range(0, max(1, batch.num_rows), _MOST_ROWS):
            yield batch.slice(start, _MOST_ROWS)


def _from_pandas(frame: Any) -> pa.RecordBatchReader:
    """Read a pandas frame; a named index becomes columns, an unnamed one is just the default numbering."""
    names = list(frame.index.names)
    named = [name for name in names if name is not None]
    if named and len(named) < len(names):
        raise SchemaError("Some levels of the frame's index have no name. Call frame.reset_index() first.")
    others = [name for name in frame.columns if not isinstance(name, str)]
    if others:
        raise SchemaError(f"The frame has a column named {others[0]!r}. Column names must be strings; rename it first.")
    return pa.Table.from_pandas(_exact_objects(frame), preserve_index=bool(named)).to_reader()


def _exact_objects(frame: Any) -> Any:
    """Return the frame with its columns of Python objects in Arrow types.

    pyarrow converts objects of mixed kinds arbitrarily: a naive moment among zoned ones as UTC, a set as a list.
    pandas' missing values become null.
    """
    import pandas as pd

    copy = None
    for n, name in enumerate(frame.columns):
        column = frame.iloc[:, n]
        if column.dtype != object:
            continue
        values = [None if value is None or value is pd.NA or value is pd.NaT else value for value in column]
        values = [None if isinstance(value, float) and value != value else value for value in values]
        kinds = {type(value) for value in values} - {type(None)}
        if len(kinds) > 1 or not kinds <= _PLAIN_OBJECTS:
            copy = frame.copy(deep=False) if copy is None else copy
            copy.isetitem(n, pd.arrays.ArrowExtensionArray(pa.chunked_array([inferred_column(name, values)])))
    return frame if copy is None else copy


def _is_a(rows: Any, module: str, name: str) -> bool:
    """Return whether it is of a class that exists only if its library has been imported."""
    loaded = sys.modules.get(module)
    kind = getattr(loaded, name, None)
    return isinstance(kind, type) and isinstance(rows, kind)


def _refused(rows: Any, error: Exception) -> SchemaError:
    kind = type(rows).__name__
    if kind == "Series":
        return SchemaError("A Series is one column, not rows. Give a frame: series.to_frame(name).")
    return SchemaError(f"The rows of this {kind} are not readable as Arrow data: {error}")
