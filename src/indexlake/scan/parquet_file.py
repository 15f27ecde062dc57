"""Writes rows to one Parquet file for the user, local or on an object store.

Rows are written as they come, in row groups of bounded size; the file appears under its name when it is complete.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from indexlake.display.progress import ProgressBar
from indexlake.errors import AlreadyExistsError, NotFoundError, SchemaError
from indexlake.storage import OutputFile, Storage
from indexlake.storage.address import is_remote, storage_of
from indexlake.types.convert import convert, mapped_leaves, without_view
from indexlake.types.python_rows import checked_arrow

if TYPE_CHECKING:
    from indexlake.scan.result import Result

_GROUP_ROWS = 1 << 17
_GROUP_BYTES = 64 << 20


def write_parquet(
    result: Result, path: str, overwrite: bool, options: Mapping[str, str] | None, progress: bool | None
) -> int:
    """Write the file and return the number of rows."""
    storage, name = _place(result, path, options)
    if not overwrite and storage.exists(name):
        raise AlreadyExistsError(f"{path!r} already exists. Pass overwrite=True to replace it.", name=path)
    schema, batches = result._run()
    with ProgressBar(f"writing {path}", progress) as bar, storage.create_file(name, overwrite=overwrite) as out:
        return _write(out, schema, bar.watch(checked_arrow(batch) for batch in batches), path)


def _place(result: Result, path: str, options: Mapping[str, str] | None) -> tuple[Storage, str]:
    if is_remote(path):
        return storage_of(path, options, result._own_storage(), "to_parquet(…, storage_options={…})")
    full = os.path.abspath(os.path.expanduser(path))
    folder, name = os.path.split(full)
    if not os.path.isdir(folder):
        raise NotFoundError(f"There is no folder {folder!r} to write {name!r} to. Create it first.", name=folder)
    if os.path.isdir(full):
        raise AlreadyExistsError(f"{path!r} is a folder. Give the name of a file in it.", name=path)
    return Storage.open(folder), name


def _write(out: OutputFile, schema: pa.Schema, batches: Iterator[pa.RecordBatch], path: str) -> int:
    import pyarrow.parquet as pq

    written = pa.schema([f.with_type(_written(f.type)) for f in schema], schema.metadata)
    rows = 0
    try:
        with pq.ParquetWriter(pa.PythonFile(out, mode="w"), written, compression="zstd") as writer:
            for group in _groups(batches):
                columns = [convert(column, type) for column, type in zip(group.columns, written.types, strict=True)]
                writer.write_table(pa.table(columns, schema=written), row_group_size=_GROUP_ROWS)
                rows += group.num_rows
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise SchemaError(f"The rows cannot be written as Parquet to {path!r}: {error}") from None
    return rows


def _written(type: pa.DataType) -> pa.DataType:
    """Return the type to write.  Parquet has no view types; it refuses other types that it cannot hold itself."""
    plain = mapped_leaves(type, without_view)
    return plain if "_view" in str(type) else type


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(b.num_rows for b in held) >= _GROUP_ROWS or sum(b.nbytes for b in held) >= _GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)
