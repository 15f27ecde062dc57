"""Parquet files: row group by row group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from indexlake.arrow.batch_size import rows_of
from indexlake.schema import TableSchema
from indexlake.sources.files import SourceFile

_BATCH_ROWS = 65_536


def inferred(file: SourceFile) -> pa.Schema:
    import pyarrow.parquet as pq

    with file.open() as raw, pq.ParquetFile(raw) as opened:
        return opened.schema_arrow


def batches(file: SourceFile, schema: TableSchema) -> Iterator[tuple[pa.RecordBatch, int]]:
    import pyarrow.parquet as pq

    far = file.remote is not None  # then the data of a row group is fetched together, one group after the other
    with file.open() as raw, pq.ParquetFile(raw, page_checksum_verification=True, pre_buffer=far) as opened:
        groups = range(*(file.groups or (0, opened.num_row_groups)))
        found = [opened.metadata.row_group(n) for n in groups]
        total = max(1, sum(group.num_rows for group in found))
        widest = max((group.total_byte_size // max(1, group.num_rows) for group in found), default=0)
        seen = 0
        most = min(_BATCH_ROWS, rows_of(widest))
        for some in [[n] for n in groups] if far else [list(groups)]:
            for batch in opened.iter_batches(most, row_groups=some):
                seen += batch.num_rows
                yield batch, file.size * seen // total


def pieces(file: SourceFile, size: int) -> Iterator[SourceFile]:
    """Yield parts of neighbouring row groups that take about ``size`` bytes of the file."""
    import pyarrow.parquet as pq

    with file.open() as raw, pq.ParquetFile(raw) as opened:
        sizes = [_stored(opened.metadata.row_group(n)) for n in range(opened.num_row_groups)]
    first, held = 0, 0
    for n, own in enumerate(sizes):
        if held and held + own > size:
            yield replace(file, groups=(first, n), size=held)
            first, held = n, 0
        held += own
    yield replace(file, groups=(first, len(sizes)), size=held)


def _stored(group: Any) -> int:
    return sum(group.column(n).total_compressed_size for n in range(group.num_columns))
