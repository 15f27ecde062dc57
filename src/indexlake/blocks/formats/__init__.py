"""Block files: rows written once in a columnar format, and read back exactly, by position and by predicate.

Formats are `vortex` (warm), `parquet` (cold, for every engine) and `ipc` (Arrow files of clustered tables).
Whatever the format, a column comes back with the logical Arrow type it was written with, and no byte reaches
a decoder before it has been compared with the checksums in the catalog: damage is a `CorruptionError`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.errors import CorruptionError, SchemaError
from indexlake.storage import Storage
from indexlake.storage.checksum import CHUNK_SIZE, Checksums

if TYPE_CHECKING:
    from indexlake.expr import Bound

Positions = npt.NDArray[np.uint64]

_MODULES = {
    "vortex": "indexlake.blocks.formats.vortex",
    "parquet": "indexlake.blocks.formats.parquet",
    "ipc": "indexlake.blocks.formats.ipc",
}
_CHUNK_SIZES = {"ipc": 64 * 1024}
"""Of what is verified at once: a row of an Arrow file lies close together, and nothing else is read for it."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that is durable and visible in storage, with what the catalog must remember of it."""

    path: str
    size: int
    checksums: Checksums
    row_count: int


class BlockReader(Protocol):
    """An open block.  Cheap to keep, safe for any number of threads, not for use after a fork."""

    path: str
    schema: pa.Schema

    @property
    def row_count(self) -> int: ...

    @property
    def bytes_read(self) -> int:
        """Bytes taken from storage so far."""

    def chunk_starts(self) -> Positions:
        """The positions at which those rows begin that are best read together, and after them the row count."""

    def surviving(self, predicate: Bound) -> npt.NDArray[np.bool_] | None:
        """For each chunk whether a row of it may match (None: any may)."""

    def read(
        self,
        columns: Sequence[str],
        positions: Positions | None = None,
        predicate: Bound | None = None,
        batch_rows: int = 65536,
        dictionaries: Collection[str] = (),
        rows: tuple[int, int] | None = None,
        without: Positions | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Rows in file order, only those at the given sorted positions and for which the predicate is true.

        Without positions: only chunks that begin in `rows`, [first, end), and all but the rows at sorted positions to
        do `without`; a predicate is not asked about these.  A file with `without` tells rows apart by their ids.

        Row groups and segments that hold none of the positions are not fetched.  Batches hold about
        `batch_rows` rows; empty ones are left out.  A text column among `dictionaries` may come as the dictionary
        (`types.dictionaries.TEXT`) that the file holds, in one batch and not in the next.
        """

    def dictionary_columns(self, columns: Sequence[str]) -> list[str]:
        """Those text columns that the file begins to hold as dictionaries."""

    def take(self, positions: Any, columns: Sequence[str]) -> pa.Table:
        """The rows at these positions, in the order given, repeated where a position is."""

    def row(self, position: int, columns: Sequence[str]) -> dict[str, Any]:
        """One row as Python values: what `take` and `to_pylist` give, at less cost."""

    def few_rows(self, positions: Sequence[int], columns: Sequence[str]) -> list[dict[str, Any]] | None:
        """Some rows as Python values that make the same arrays again; None: there are none, or `take` is as fast."""

    def location(self, position: int) -> str:
        """The place of a row inside the file, as `locate` shows it."""


def write_file(
    storage: Storage,
    path: str,
    format: str,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    metadata: Mapping[str, str],
) -> WrittenFile:
    """Write a block file from a stream of batches.

    Memory is bounded by a few batches; Vortex besides keeps the compressed columns until it writes the last.
    `metadata` is kept in the file by Parquet and IPC.  Vortex has no place for it and leaves it out.
    If anything fails, the iterator of batches included, no file appears.
    """
    with storage.create_file(path, chunk_size=_CHUNK_SIZES.get(format, CHUNK_SIZE)) as out:
        row_count: int = _module(format).write(out, schema, batches, dict(metadata))
        out.close()
        return WrittenFile(path, out.checksums.size, out.checksums, row_count)


def open_reader(
    storage: Storage, path: str, format: str, size: int, checksums: Checksums, schema: pa.Schema
) -> BlockReader:
    """Open a block file.  `schema` is the logical schema of the file's columns."""
    module = _module(format)
    if size != checksums.size:
        raise CorruptionError(
            f"file {path!r} is recorded with {size} bytes and with checksums of {checksums.size}: "
            "its catalog record is damaged",
            path=path,
        )
    reader: BlockReader = module.open_reader(storage.open_file(path, checksums), schema)
    return reader


def _module(format: str) -> Any:
    if format not in _MODULES:
        raise SchemaError(f"block format {format!r} is not known; use one of {', '.join(_MODULES)}")
    return import_module(_MODULES[format])
