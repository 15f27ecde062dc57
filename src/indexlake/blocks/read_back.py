"""Reading back what was just written: nothing is committed that cannot be read again.

A new block is opened as every later reader opens it, checksums included, and its first and last rows are compared with
those that were written. A file that fails is removed, and the error names the column. Index segments are read back by
the code that writes them, also within ``removing``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from indexlake.blocks.formats import BlockReader, WrittenFile, open_reader
from indexlake.errors import CorruptionError, StorageError
from indexlake.storage.failure import first_line
from indexlake.types import codec_for

if TYPE_CHECKING:
    from indexlake.storage import Storage


class Ends:
    """Remembers the first and the last of the rows added."""

    def __init__(self) -> None:
        self._first: pa.RecordBatch | None = None
        self._last: pa.RecordBatch | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._first = batch.slice(0, 1) if self._first is None else self._first
            self._last = batch.slice(batch.num_rows - 1)

    def column(self, name: str) -> list[pa.Array]:
        """Return the values of both rows."""
        return [row.column(name) for row in (self._first, self._last) if row is not None]


def check_block(
    storage: Storage, written: WrittenFile, format: str, schema: pa.Schema, ends: Ends, names: Mapping[str, str]
) -> None:
    """Raise ``CorruptionError`` unless the block can be read. ``names`` maps file columns to users' names."""
    with removing(storage, written.path, f"A new {format} block"):
        reader = open_reader(storage, written.path, format, written.size, written.checksums, schema)
        if reader.row_count != written.row_count:
            raise Wrong(f"it has {reader.row_count} rows instead of {written.row_count}")
        if not written.row_count:
            return
        try:
            rows = _ends_of(reader, schema.names)
        except StorageError:
            raise
        except Exception as error:
            raise Wrong(_unreadable_column(reader, names) or first_line(error)) from error
        for name in schema.names:
            if not _same(rows.column(name), ends.column(name)):
                raise Wrong(f"column {names.get(name, name)!r} holds other values than were written")


class Wrong(Exception):
    """Raised with what is wrong with a file."""


@contextmanager
def removing(storage: Storage, path: str, what: str) -> Iterator[None]:
    """Remove the file if it turns out wrong. A store that fails to answer proves nothing about the file."""
    try:
        yield
    except BaseException as error:
        with suppress(Exception):  # vacuum removes what is left
            storage.delete(path)
        if isinstance(error, StorageError) or not isinstance(error, Exception):
            raise
        raise CorruptionError(
            f"{what} was written but cannot be read back: {first_line(error).rstrip('.')}. The file was discarded and "
            "nothing has changed. Please report this; until it is fixed, try another dump_format.",
            path=path,
        ) from None


def _ends_of(reader: BlockReader, columns: list[str]) -> pa.Table:
    positions = np.unique(np.array([0, reader.row_count - 1], np.uint64))
    batches = list(reader.read(columns, positions))
    if sum(batch.num_rows for batch in batches) != len(positions):
        raise Wrong("its first and last rows are not there")
    return pa.Table.from_batches(batches)


def _unreadable_column(reader: BlockReader, names: Mapping[str, str]) -> str | None:
    for name in reader.schema.names:
        try:
            _ends_of(reader, [name])
        except Exception as error:
            return f"column {names.get(name, name)!r}: {first_line(error)}"
    return None


def _same(found: pa.ChunkedArray, written: list[pa.Array]) -> bool:
    """Return whether two rows are equal bit by bit. Arrow also calls NaNs and different dictionaries unequal."""
    rows: list[Any] = [row for chunk in found.chunks for row in (chunk.slice(n, 1) for n in range(len(chunk)))]
    pairs = zip([rows[0], rows[-1]], written, strict=True)
    return all(a.equals(b) or codec_for(a.type).encode(a) == codec_for(b.type).encode(b) for a, b in pairs)
