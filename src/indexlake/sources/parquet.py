"""Parquet files: row group by row group."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from indexlake.schema import TableSchema
from indexlake.sources.files import SourceFile

_BATCH_ROWS = 65_536


def columns(file: SourceFile, schema: TableSchema) -> tuple[str, ...]:
    return tuple(inferred(file).names)


def inferred(file: SourceFile) -> pa.Schema:
    import pyarrow.parquet as pq

    with pq.ParquetFile(file.path) as opened:
        return opened.schema_arrow


def batches(file: SourceFile, schema: TableSchema) -> Iterator[tuple[pa.RecordBatch, int]]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(file.path, page_checksum_verification=True) as opened:
        total = max(1, opened.metadata.num_rows)
        seen = 0
        for batch in opened.iter_batches(_BATCH_ROWS):
            seen += batch.num_rows
            yield batch, file.size * seen // total
