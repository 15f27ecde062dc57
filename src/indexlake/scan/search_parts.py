"""What a search looks through: every visible row of the table is in exactly one source.

Blocks that a segment covers are asked through it, with a mask of the slots that are visible at the snapshot and satisfy
``where``.  All other rows (hot ones, a transaction's own, those of blocks without a segment and of history blocks) are
read, and get a segment in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.blocks.open_files import Recent
from indexlake.hot.rows import HotRows
from indexlake.indexes.builder import segment_in_memory
from indexlake.indexes.registry import kind_named
from indexlake.scan.execute import read_task
from indexlake.scan.hot_mirror import Chunk, HotMirror, hot_rows, one_batch
from indexlake.scan.matches import Matches
from indexlake.scan.plan import BlockTask, block_task, own_tasks
from indexlake.scan.search_sources import BlocksSource, GapSource, Mask, RowsSource, Source
from indexlake.schema import ROW_ID
from indexlake.schema.lineage import file_columns, file_values

if TYPE_CHECKING:
    from indexlake.blocks.block import BlockRecord
    from indexlake.expr import Bound
    from indexlake.indexes.coverage import Coverage
    from indexlake.indexes.index import Index
    from indexlake.lake import Lake
    from indexlake.schema import Field, TableSchema
    from indexlake.snapshots.reading import Reading

_REMEMBERED = 256


class Remembered:
    """What searches of one lake keep for the next ones: hot rows, masks of deleted rows, matches of predicates."""

    def __init__(self) -> None:
        self._mirrors: dict[int, HotMirror] = {}
        self.masks: Recent[tuple[Any, Any, Mask]] = Recent(_REMEMBERED)
        self.matches: Recent[npt.NDArray[np.int64]] = Recent(_REMEMBERED)

    def mirror(self, table_id: int) -> HotMirror:
        return self._mirrors.setdefault(table_id, HotMirror())


class Parts:
    """The table as one search sees it.  Made inside a read transaction; files are read after it."""

    def __init__(
        self, reading: Reading, lake: Lake, predicate: Bound | None, fields: Sequence[Field], remembered: Remembered
    ) -> None:
        self.reading = reading
        self.files = lake._files
        self.remembered = remembered
        self.predicate = predicate
        self._fields = tuple(dict.fromkeys(fields))  # of the result
        self._names = {f.name: f.column for f in reading.schema.fields}
        writes = reading.writes
        self.hidden: npt.NDArray[np.int64] | None = None
        if writes is not None and writes.closed:
            self.hidden = np.frombuffer(writes.closed.to_array(), np.uint64).astype(np.int64)
        self._hot: list[Chunk] = [] if reading.truncated else self._hot_chunks()
        own = self._own_rows()
        if own is not None:
            self._hot.append(Chunk(own, reading.schema))
        self.matches: Matches | None = None if predicate is None or reading.truncated else Matches(self, predicate)
        self.scanned = 0  # blocks without a segment

    def _hot_chunks(self) -> list[Chunk]:
        reading = self.reading
        if reading.newest:
            chunks = self.remembered.mirror(reading.state.table.table_id).chunks(reading)
        else:
            rows = hot_rows(reading)
            chunks = [] if rows is None else [Chunk(rows, reading.schema)]
        if self.hidden is not None:
            for chunk in chunks:
                chunk.live &= ~np.isin(chunk.rows.column(ROW_ID).to_numpy(), self.hidden)
        return chunks

    def _own_rows(self) -> pa.RecordBatch | None:
        writes = self.reading.writes
        if writes is None or not writes.rows:
            return None
        own = HotRows(self.reading.schema.fields, self.files.storage.spill)
        own.read_own(writes.rows, self.reading.state.current)
        return one_batch(list(own.batches()))

    def sources(self, coverage: Coverage) -> list[Source]:
        """After the read transaction.  In an order that depends on the table alone."""
        found: list[Source] = []
        reading, index = self.reading, coverage.index
        if not reading.truncated:
            covered: set[int] = set()
            for group in coverage.groups(reading.state, reading.snapshot):
                found.append(BlocksSource(self, group, self.files.segment(group.segment, index.open)))
                covered |= {block.data_file_id for block, _ in group.blocks}
            blocks = reading.state.blocks
            for block in blocks.records:
                if block.data_file_id not in covered and block.visible_at(reading.snapshot):
                    self.scanned += 1
                    found += self._scanned(block_task(reading.state, block, reading.snapshot), index)
        if reading.writes is not None:
            for task in own_tasks(reading.state, reading.writes):
                found += self._scanned(task, index)
        for chunk in self._hot:
            wanted = self._matching(chunk.rows)
            if wanted is not None:
                wanted &= chunk.live
            found.append(RowsSource(chunk.rows, chunk.live, wanted, chunk.segment))
        return found

    def _matching(self, rows: pa.RecordBatch) -> Mask | None:
        """Which rows, with columns named as in files, satisfy the predicate; None: there is none."""
        if self.predicate is None:
            return None
        names = sorted(self.predicate.columns) or [ROW_ID]
        named = pa.RecordBatch.from_arrays([rows.column(self._names.get(n, n)) for n in names], names)
        mask: Mask = np.array(self.predicate.mask(named).fill_null(False))
        return mask

    def _scanned(self, task: BlockTask, index: Index) -> Iterator[Source]:
        """The visible rows of a block, read; only those that satisfy the predicate if the others do not matter."""
        schema = self.reading.schema
        block = self.reading.state.blocks.record(task.file_id) if task.kind == "block" else None
        keys = index.all_fields(schema)
        all_ = self.predicate is not None and kind_named(index.kind).ranks_by_all
        named = [f for f in schema.fields if all_ and self.predicate is not None and f.name in self.predicate.columns]
        fields = tuple(dict.fromkeys((*keys, *named, *(self._fields if block is None else ()))))
        pushed = None if all_ else self.predicate
        rows = one_batch(list(read_task(task, self.files, fields, pushed, row_id=True, hidden=self.hidden)))
        if rows is None:
            return
        rows = pa.RecordBatch.from_arrays(rows.columns, [*(f.column for f in fields), ROW_ID])
        wanted = self._matching(rows) if all_ else None
        segment = partial(_segment_of, schema, [rows.column(f.column) for f in keys])
        if block is None:
            yield RowsSource(rows, None, wanted, segment)
        else:
            yield GapSource(self, block, rows, wanted, segment)

    def columns_at(self, block: BlockRecord, positions: npt.NDArray[np.int64], fields: Sequence[Field]) -> list[Any]:
        """Columns of rows of a block, which are visible."""
        held = self.reading.state.schema.at(block.schema_snapshot)
        found = self.files.reader(block, held.file).take(positions, file_columns(fields, held.by_id))
        return [file_values(f, found, len(positions)) for f in fields]

    def rows_at(
        self, block: BlockRecord, positions: npt.NDArray[np.int64], fields: Sequence[Field]
    ) -> list[dict[str, Any]] | None:
        """The same as Python values by column; None: they take longer, or do not tell everything."""
        held = self.reading.state.schema.at(block.schema_snapshot)
        if not all(f.field_id in held.by_id for f in fields):
            return None
        return self.files.reader(block, held.file).few_rows(positions.tolist(), tuple(f.column for f in fields))

    def positions(self, block: BlockRecord, row_ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return self.reading.state.addresses(block, self.files).positions_of(row_ids)


def _segment_of(schema: TableSchema, keys: Sequence[pa.Array], index: Index) -> Any:
    return segment_in_memory(index, schema, [keys])
