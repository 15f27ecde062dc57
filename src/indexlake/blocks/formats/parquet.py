"""Parquet blocks: the cold tier, which every engine reads.

zstd, row groups of at most 64 Ki rows, statistics and page index, no INT96. A few types that Parquet would change or
refuse are written as integers or with another width, and restored from the table's schema when read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from indexlake.blocks.formats.batches import (
    BATCH_ROWS,
    encoded,
    rechunked,
    stored_schema,
)
from indexlake.blocks.formats.chunked import ChunkedReader, looked_up
from indexlake.blocks.formats.parquet_statistics import statistics_of, weakened
from indexlake.blocks.prune import Bounds, prune, read_bounds
from indexlake.errors import CorruptionError
from indexlake.expr.test import columns_of
from indexlake.storage import InputFile, OutputFile
from indexlake.storage.failure import first_line
from indexlake.types import codec_of
from indexlake.types.convert import in_files, mapped_leaves

if TYPE_CHECKING:
    from indexlake.expr import Bound


DICTIONARY_BYTES = 128 << 10
"""The largest dictionary of a row group's column. Values that need a larger one hardly repeat: the file would grow, and
Spark would take a fifth longer to read it."""


def write(out: OutputFile, schema: pa.Schema, batches: Iterable[pa.RecordBatch], metadata: Mapping[str, str]) -> int:
    """Write all batches and return how many rows they hold."""
    import pyarrow.parquet as pq

    stored = stored_schema(schema, parquet_type)
    row_count = 0
    writer = pq.ParquetWriter(
        pa.PythonFile(out, mode="w"),
        stored.with_metadata(dict(metadata)),
        version="2.6",
        compression="zstd",
        dictionary_pagesize_limit=DICTIONARY_BYTES,
        write_statistics=True,
        write_page_index=True,
        use_deprecated_int96_timestamps=False,
    )
    with writer:
        for batch in rechunked(encoded(batches, stored), BATCH_ROWS):
            writer.write_batch(batch, row_group_size=BATCH_ROWS)
            row_count += batch.num_rows
    return row_count


def open_reader(file: InputFile, schema: pa.Schema) -> ChunkedReader:
    return ChunkedReader(_RowGroups(file, schema), schema)


def parquet_type(type: Any) -> Any:
    """Return the Arrow type in which values of `type` are written to a Parquet file and come back unchanged."""
    return mapped_leaves(type, _parquet_leaf, _is_optional)


def _is_optional(field: Any) -> bool:
    """Return whether a field is written as optional: pyarrow cannot read a required fixed-size list below a null."""
    return bool(field.nullable or pa.types.is_fixed_size_list(field.type))


def _parquet_leaf(type: Any) -> Any:
    t = pa.types
    if t.is_date64(type) or (t.is_timestamp(type) and type.unit == "s"):
        return pa.int64()
    if t.is_time32(type) and type.unit == "s":
        return pa.int32()
    if t.is_decimal(type) and not 0 <= type.scale <= type.precision:
        return _unscaled(type)
    return in_files(type)


def _unscaled(type: Any) -> Any:
    return {32: pa.decimal32, 64: pa.decimal64, 128: pa.decimal128, 256: pa.decimal256}[type.bit_width](
        type.precision, 0
    )


class _RowGroups:
    mapped = False

    def __init__(self, file: InputFile, schema: pa.Schema) -> None:
        self.path = file.path
        self._file = file
        self._schema = schema
        self.stored = stored_schema(schema, parquet_type)
        self._bounds: dict[str, Bounds] = {}
        self._metadata: Any = None
        self._metadata = self._open().metadata
        paths = self._metadata.schema
        self._places = {paths.column(place).path: place for place in range(len(paths))}

    @property
    def bytes_read(self) -> int:
        return self._file.bytes_read

    def starts(self) -> Any:
        counts = [self._metadata.row_group(index).num_rows for index in range(self._metadata.num_row_groups)]
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.uint64)

    def load(self, index: int, columns: list[str], *, referring: bool = False) -> pa.RecordBatch:
        references = self._references(index, columns)
        try:
            table = self._open(references).read_row_group(index, columns=columns, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise self._unreadable(error) from None
        batches = table.select(columns).combine_chunks().to_batches()
        if len(batches) != 1:
            raise self._unreadable(ValueError(f"row group {index} is {len(batches)} batches of rows"))
        return batches[0] if referring else looked_up(batches[0])

    def run_length(self, chunks: Sequence[int]) -> int:
        return 1

    def load_run(self, first: int, count: int, columns: list[str]) -> pa.Table:
        return pa.Table.from_batches([self.load(index, columns) for index in range(first, first + count)])

    def _references(self, index: int, columns: list[str]) -> list[str]:
        """Return those text columns of which a row group holds few values, and references to them.

        Arrow resolves the references one by one in half the time that it takes to decode such a column itself, but
        takes three times as long for columns stored without references.
        """
        group = self._metadata.row_group(index)
        found = []
        for name in columns:
            if pa.types.is_string(self.stored.field(name).type):
                column = group.column(self._places[name])
                if column.has_dictionary_page and column.total_uncompressed_size <= 2 * column.num_values:
                    found.append(name)
        return found

    def values(self, index: int, place: int, columns: tuple[str, ...]) -> list[Any]:
        chunk = self.load(index, list(dict.fromkeys(columns)))
        return [chunk.column(name)[place].as_py() for name in columns]

    def surviving(self, predicate: Bound) -> Any:
        test = weakened(predicate.test(), self._schema)
        codecs = {name: codec_of(self._schema.field(name)) for name in columns_of(test) if self._prunable(name)}
        return prune(test, codecs, self._metadata.num_row_groups, self._bounds_of) if codecs else None

    def _prunable(self, name: str) -> bool:
        """Return whether the statistics in the file are of the column's own values, not of an encoding."""
        return bool(self._schema.field(name).type == self.stored.field(name).type)

    def _bounds_of(self, column: str, kind: str) -> Bounds:
        found = self._bounds.get(column)
        if found is None:
            codec = codec_of(self._schema.field(column))
            statistics = statistics_of(self._metadata, self._places.get(column), column, codec)
            found = self._bounds[column] = read_bounds(statistics, column, kind)
        return found

    def _open(self, dictionaries: Sequence[str] = ()) -> Any:
        import pyarrow.parquet as pq

        far = self._file.map is None  # worth fetching several columns at once, in another thread
        try:
            return pq.ParquetFile(self._source(), metadata=self._metadata, read_dictionary=dictionaries, pre_buffer=far)
        except (pa.ArrowException, OSError) as error:
            raise self._unreadable(error) from None

    def _source(self) -> Any:
        return pa.PythonFile(self._file.duplicate(), mode="r")

    def _unreadable(self, error: Exception) -> CorruptionError:
        return CorruptionError(
            f"file {self.path!r} matches its checksums but is not readable as Parquet: {first_line(error)}",
            path=self.path,
        )
