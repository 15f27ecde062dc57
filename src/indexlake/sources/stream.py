"""All files of a source as one stream of record batches, with the columns of the table they are for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import pyarrow as pa

from indexlake.errors import SchemaError
from indexlake.schema import Field, TableSchema
from indexlake.schema.fitting import fit, null_error
from indexlake.sources import arrow, csv, json, parquet
from indexlake.sources.failures import naming
from indexlake.sources.files import Files, SourceFile
from indexlake.types import check_values, holds_null
from indexlake.types.uuids import is_uuid

READERS: Mapping[str, ModuleType] = {"parquet": parquet, "csv": csv, "json": json, "arrow": arrow}
"""A reader has ``inferred(file)`` and ``batches(file, schema)``, which also returns how many bytes of the file have
been read.  Readers of text formats also have ``columns(file, schema)``."""

BINARY = ("parquet", "arrow")


class FileStream:
    """An iterator of batches; ``done`` of ``total`` bytes have been read so far.

    With a table's schema, columns are matched by name and have the table's types and spelling, as far as the file has
    them.  Without one, they have the schema that all files have in common.
    """

    def __init__(self, files: Sequence[SourceFile], schema: TableSchema | None) -> None:
        self._files = files
        self._schema = schema if schema is not None else _as_table(_common(files))
        self.total = sum(file.size for file in files)
        self.done = 0
        _check_columns(files, self._schema)
        self._batches = self._read()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)

    def _read(self) -> Iterator[pa.RecordBatch]:
        before = 0
        for file in self._files:
            with naming(file):
                for batch, position in READERS[file.format].batches(file, self._schema):
                    self.done = before + min(position, file.size)
                    if file.format in BINARY:
                        _check_bits(batch)
                    yield _fitted(batch, self._schema)
            before += file.size
            self.done = before


def checked_files(files: Files, schema: TableSchema) -> list[SourceFile]:
    """Return the files, after checking that they have no column that the table lacks."""
    found = files.list()
    _check_columns(found, schema)
    return found


def pieces(file: SourceFile, size: int) -> Iterator[SourceFile]:
    """Yield parts of about this size if the format can be read in parts; otherwise the whole file."""
    if file.format != "parquet" or file.size <= size:
        yield file
        return
    with naming(file):
        yield from parquet.pieces(file, size)


def common_schema(files: Files) -> pa.Schema:
    """Return the schema of all files, which must agree in names and types."""
    return _common(files.list())


def _check_columns(files: Sequence[SourceFile], schema: TableSchema) -> None:
    """Check all files for unknown columns before the first row is read."""
    for file in files:
        with naming(file):
            reader = READERS[file.format]
            binary = file.format in BINARY
            _check_names(reader.inferred(file).names if binary else reader.columns(file, schema), schema)


def _common(files: Sequence[SourceFile]) -> pa.Schema:
    merged: dict[str, pa.Field] = {}
    for file in files:
        with naming(file):
            found = READERS[file.format].inferred(file)
            _check_doubled(found.names)
        if not merged:
            merged = {f.name.lower(): f for f in found}
            continue
        own = {f.name.lower(): f for f in found}
        for name in [*own, *merged]:
            if name not in own or name not in merged:
                has, lacks = (file, files[0]) if name in own else (files[0], file)
                raise SchemaError(
                    f"The files do not agree: {has.path!r} has a column {(own.get(name) or merged[name]).name!r}, "
                    f"{lacks.path!r} does not. Create the table with a schema, then insert the files.",
                    column=name,
                    path=file.path,
                )
            merged[name] = _agreed(merged[name], own[name], files[0], file)
    # A column without any value has no type of its own.
    return pa.schema([f.with_type(pa.string()) if pa.types.is_null(f.type) else f for f in merged.values()])


def _agreed(first: pa.Field, other: pa.Field, first_file: SourceFile, file: SourceFile) -> pa.Field:
    if pa.types.is_null(first.type) or pa.types.is_null(other.type):
        type = other.type if pa.types.is_null(first.type) else first.type
    elif first.type == other.type:
        type = first.type
    else:
        raise SchemaError(
            f"The files do not agree: column {first.name!r} is {first.type} in {first_file.path!r} and {other.type} in "
            f"{file.path!r}. Create the table with a schema, then insert the files.",
            column=first.name,
            path=file.path,
        )
    return pa.field(first.name, type, first.nullable or other.nullable, first.metadata)


def _check_names(names: Sequence[str], schema: TableSchema) -> None:
    _check_doubled(names)
    unknown = [name for name in names if name.lower() not in schema.by_name]
    if len(unknown) > 1:
        raise SchemaError(
            f"It has columns that the table does not have: {', '.join(map(repr, unknown))}. "
            f"The columns are {', '.join(schema.names)}.",
            column=unknown[0],
        )
    if unknown:
        schema.field(unknown[0])


def _check_doubled(names: Any) -> None:
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise SchemaError(f"It has the column {name!r} twice.", column=name)
        seen.add(name.lower())


def _check_bits(batch: pa.RecordBatch) -> None:
    """Check binary data, as computing with it relies on valid offsets, indices and text."""
    for f, column in zip(batch.schema, batch.columns, strict=True):
        if is_uuid(column.type) or not isinstance(column.type, pa.BaseExtensionType):
            check_values(column, f)


def _fitted(batch: pa.RecordBatch, schema: TableSchema) -> pa.RecordBatch:
    found = [schema.field(name) for name in batch.schema.names]
    arrays = [fit(column, f) for column, f in zip(batch.columns, found, strict=True)]
    for f, array in zip(found, arrays, strict=True):
        if not f.nullable and f.generated is None and holds_null(array):
            raise null_error(f.name, given=True)
    return pa.RecordBatch.from_arrays(arrays, [f.name for f in found])


def _as_table(schema: pa.Schema) -> TableSchema:
    return TableSchema([Field(n, f.name, f.type, f.nullable, None, f.metadata) for n, f in enumerate(schema)])
