"""Block files: rows written once in a columnar format, and read back exactly, by position and by predicate.

Formats are `vortex` (warm), `parquet` (cold, for every engine) and `ipc` (Arrow files of clustered tables). Whatever
the format, a column comes back with the logical Arrow type it was written with, and no byte reaches a decoder before it
has been compared with the checksums in the catalog: damage is a `CorruptionError`.
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
"""How much is verified at once: less for Arrow, whose rows lie close together and are read without anything else."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that is durable and visible in storage, with what the catalog must record about it."""

    path: str
    size: int
    checksums: Checksums
    row_count: int


class BlockReader(Protocol):
    """An open block. Cheap to keep, safe for any number of threads, not for use after a fork."""

    path: str
    schema: pa.Schema

    @property
    def row_count(self) -> int: ...

    @property
    def bytes_read(self) -> int:
        """Bytes taken from storage so far."""

    def chunk_starts(self) -> Positions:
        """Return the first positions of groups of rows that are best read together, followed by the row count."""

    def surviving(self, predicate: Bound) -> npt.NDArray[np.bool_] | None:
        """Return, for each chunk, whether a row of it may match; None: any chunk may."""

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
        """Yield rows in file order: those at the given sorted positions, if given, for which the predicate is true.

        Without positions: only chunks that begin in `rows`, [first, end), except the rows at the sorted positions
        `without`; the predicate is not evaluated for those. A file read with `without` tells rows apart by their ids.

        Row groups and segments that hold none of the positions are not fetched. Batches hold about `batch_rows` rows;
        empty ones are left out. A text column among `dictionaries` may come as the dictionary
        (`types.dictionaries.TEXT`) that the file holds, in one batch and not in the next.
        """

    def dictionary_columns(self, columns: Sequence[str]) -> list[str]:
        """Return those text columns that the file stores as dictionaries, at least at its start."""

    def take(self, positions: Any, columns: Sequence[str]) -> pa.Table:
        """Return the rows at these positions, in the given order, repeated if a position is."""

    def row(self, position: int, columns: Sequence[str]) -> dict[str, Any]:
        """Return one row as Python values, as `take` and `to_pylist` would, at less cost."""

    def few_rows(self, positions: Sequence[int], columns: Sequence[str]) -> list[dict[str, Any]] | None:
        """Return some rows as Python values that make the same arrays again; None: impossible, or `take` is as fast."""

    def location(self, position: int) -> str:
        """Return the place of a row inside the file, as `locate` shows it."""


def write_file(
    storage: Storage,
    path: str,
    format: str,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    metadata: Mapping[str, str],
) -> WrittenFile:
    """Write a block file from a stream of batches.

    Memory is bounded by a few batches; Vortex also keeps the compressed columns until the end. `metadata` is kept in
    the file by Parquet and IPC; Vortex has no place for it. If anything fails, including the iterator of batches, no
    file appears.
    """
    with storage.create_file(path, chunk_size=_CHUNK_SIZES.get(format, CHUNK_SIZE)) as out:
        row_count: int = _module(format).write(out, schema, batches, dict(metadata))
        out.close()
        return WrittenFile(path, out.checksums.size, out.checksums, row_count)


def open_reader(
    storage: Storage, path: str, format: str, size: int, checksums: Checksums, schema: pa.Schema
) -> BlockReader:
    """Open a block file. `schema` is the logical schema of the file's columns."""
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
