"""Rows on their way in: whatever the caller gives becomes encoded row tuples or exact Arrow batches, or an error.

Small inputs become tuples of encoded values, in the order of the table's fields.  Large ones stay Arrow and stream.
Nothing is written here; an error names the column that is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from itertools import chain
from os import PathLike
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indexlake.arrow import batch_size
from indexlake.arrow.batch_size import batch_bytes, cut, encoded_bytes, row_chunks
from indexlake.errors import ConstraintError, SchemaError
from indexlake.schema import TableSchema
from indexlake.schema.fitting import Values, decode_batch, encode_batch, in_column, null_error
from indexlake.sources.rules import completed_rows, conform, default_encoded
from indexlake.types import SqlValue
from indexlake.types.inference import inferred_column

if TYPE_CHECKING:
    from indexlake.display.progress import ProgressBar

_DICTS_PER_BATCH = 10_000
_GATHERED_ROWS = 8_192
_GATHERED_BYTES = 16 << 20


class RowEncoder:
    """Turns dicts into encoded tuples, without Arrow's fixed cost per row.  Rules over whole rows are applied later."""

    def __init__(self, schema: TableSchema) -> None:
        self._schema = schema
        self._columns = [
            (f.name, f.codec.encode_one, f.nullable or f.generated is not None, f.default) for f in schema.fields
        ]
        self._computed = {f.name: f for f in schema.fields if f.default_sql is not None}
        self.asks = any(f.sequences is not None for f in schema.fields)
        """Whether a default may need sequence numbers, which are better taken for several rows together."""
        self._names = frozenset(f.name for f in schema.fields)

    def encode(self, row: Mapping[str, Any]) -> Values:
        values: list[SqlValue] = []
        named = 0
        for name, encode, nullable, default in self._columns:
            if name in row:
                named += 1
                try:
                    value = encode(row[name])
                except ConstraintError as error:
                    raise in_column(name, error) from None
            else:
                value = default if name not in self._computed else default_encoded(self._computed[name])
            if value is None and not nullable:
                if name not in row and not self._names.issuperset(row):
                    break  # it may be spelt in another case
                raise null_error(name, given=name in row)
            values.append(value)
        if named != len(row):
            return self.encode(self._respelt(row))
        return tuple(values)

    def _respelt(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the row with column names in the table's own case; unknown or duplicate names are errors."""
        result: dict[str, Any] = {}
        for key, value in row.items():
            name = self._schema.field(key).name
            if name in result:
                raise SchemaError(f"Column {name!r} is given twice in one row.", column=name)
            result[name] = value
        return result


Taken = list[Values] | Iterator[pa.RecordBatch]
"""Few rows as encoded tuples, or a stream of exact batches."""


def take_dicts(rows: Any, schema: TableSchema, encoder: RowEncoder, limit: int) -> Taken | None:
    """Return a single row, or fewer than ``limit`` rows, given as dicts; None if they are given in another form."""
    if isinstance(rows, (dict, Mapping)):
        found = [encoder.encode(rows)]
    elif isinstance(rows, list | tuple) and len(rows) < (2 if encoder.asks else limit) and _are_mappings(rows):
        found = [encoder.encode(row) for row in rows]
    else:
        return None
    found = completed_rows(found, schema)
    few = encoded_bytes(found) <= batch_size.BATCH_BYTES
    return found if few else (decode_batch(some, schema) for some in row_chunks(found, _DICTS_PER_BATCH))


def take_rows(rows: Any, schema: TableSchema, limit: int, bar: ProgressBar | None = None) -> Taken:
    """Return fewer than ``limit`` rows, if they are small, as encoded tuples; otherwise a stream of exact batches."""
    given = arrow_batches(rows, schema)
    if bar is not None:
        given = bar.watch(given, getattr(rows, "num_rows", None))
    batches = (conform(batch, schema) for batch in gathered(given))
    held: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        size += batch_bytes(batch)
        if count >= limit or size > batch_size.BATCH_BYTES:
            return chain(held, batches)
    return [values for batch in held for values in encode_batch(batch, schema)]


def _are_mappings(rows: Iterable[Any]) -> bool:
    return not [row for row in rows if not isinstance(row, (dict, Mapping))]  # faster than a generator


def arrow_batches(rows: Any, schema: TableSchema | None) -> Iterator[pa.RecordBatch]:
    """Return anything that holds rows as record batches, with the columns it came with."""
    from indexlake.sources.files import as_files
    from indexlake.sources.objects import checked, reader_of
    from indexlake.sources.stream import FileStream

    if (found := as_files(rows)) is not None:
        return FileStream(found.list(), schema)
    if (reader := reader_of(rows)) is not None:
        return checked(reader)
    if isinstance(rows, Iterable) and not isinstance(rows, str | bytes) and not hasattr(rows, "_asdict"):
        return _from_items(iter(rows), schema)
    raise SchemaError(
        f"Rows cannot be read from {type(rows).__name__}. Give a dict, a list of dicts, files, or Arrow-compatible "
        f"data: a pyarrow Table, a pandas or polars DataFrame, a DuckDB relation.{_as_dict(rows)}"
    )


def gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches that are neither too large nor too small: small neighbours are joined."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in (part for given in batches for part in cut(given)):
        if held and (not batch.schema.equals(held[0].schema) or size + batch.nbytes > _GATHERED_BYTES):
            yield from _joined(held)
            held, rows, size = [], 0, 0
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _GATHERED_ROWS or size >= _GATHERED_BYTES:
            yield from _joined(held)
            held, rows, size = [], 0, 0
    if held:
        yield from _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    try:
        return [pa.concat_batches(batches)] if len(batches) > 1 else batches
    except pa.ArrowInvalid:
        return batches  # one dictionary could not number the values of all of them


def schema_and_rows(source: Any) -> tuple[pa.Schema, Any]:
    """Return the schema of a table made from the source, and the rows to insert; a stream is not started yet."""
    from indexlake.sources.files import as_files
    from indexlake.sources.objects import reader_of
    from indexlake.sources.stream import common_schema

    if (found := as_files(source)) is not None:
        return common_schema(found), found
    if (reader := reader_of(source)) is not None:
        return reader.schema, reader
    batches = arrow_batches([source] if isinstance(source, Mapping) else source, None)
    first = next(batches, None)
    if first is None:
        raise SchemaError("A table cannot be created from no rows: give a schema, such as {'id': 'int64'}.")
    return first.schema, chain([first], batches)


def _from_items(items: Iterator[Any], schema: TableSchema | None) -> Iterator[pa.RecordBatch]:
    encoder = RowEncoder(schema) if schema is not None else None
    for first in items:
        if isinstance(first, pa.RecordBatch | pa.Table):
            yield from arrow_batches(first, schema)
            continue
        rows = map(as_row, chain([first], items))
        if encoder is not None and schema is not None:
            for chunk in row_chunks(map(encoder.encode, rows), _DICTS_PER_BATCH):
                yield decode_batch(chunk, schema)
        else:
            yield from _inferred(list(rows)).to_batches()  # types are inferred from all rows together


def as_row(row: Any) -> Mapping[str, Any]:
    if not isinstance(row, Mapping):
        raise SchemaError(f"A row is a dict of column names and values, not {type(row).__name__}.{_as_dict(row)}")
    return row


def _as_dict(row: Any) -> str:
    """Say how an object becomes a row, if it has a usual way."""
    if isinstance(row, str | PathLike):
        return " Give paths of files as a list."
    if is_dataclass(row) and not isinstance(row, type):
        return " Give dataclasses.asdict(row)."
    ways = (way for way in ("_asdict", "model_dump") if callable(getattr(row, way, None)))
    return next((f" Give row.{way}()." for way in ways), "")


def _inferred(rows: list[Mapping[str, Any]]) -> pa.Table:
    """Return dicts as a table with every column that any of them names."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.table([inferred_column(name, [row.get(name) for row in rows]) for name in names], names)
