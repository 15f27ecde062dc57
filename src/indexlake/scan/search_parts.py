"""What a search looks through: every visible row of the table is in exactly one source.

Blocks that a segment covers are searched through it, with a mask of the slots that are visible at the snapshot and
satisfy ``where``.  All other rows (hot rows, a transaction's own rows, blocks without a segment, history blocks) are
read and indexed in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.blocks.open_files import Recent
from indexlake.hot.rows import HotRows
from indexlake.indexes.builder import segment_in_memory
from indexlake.indexes.registry import kind_named
from indexlake.scan.execute import read_task
from indexlake.scan.hot_mirror import MOST_BYTES, Chunk, HotMirror, hot_rows, one_batch
from indexlake.scan.matches import Where
from indexlake.scan.numbers import Numbers
from indexlake.scan.plan import BlockTask, block_task, own_tasks
from indexlake.scan.search_sources import BlocksSource, GapSource, Mask, RowsSource, Source, View
from indexlake.schema import ROW_ID

if TYPE_CHECKING:
    from indexlake.expr import Bound
    from indexlake.indexes.coverage import Coverage
    from indexlake.indexes.index import Index
    from indexlake.indexes.kind import Part
    from indexlake.lake import Lake
    from indexlake.scan.search_shape import Form, Shape
    from indexlake.schema import TableSchema
    from indexlake.snapshots.reading import Reading

_REMEMBERED = 256
_MASK_BYTES = 64 << 20


class Remembered:
    """What the searches of one lake keep for later ones: hot rows, masks of deleted rows, matches of predicates,
    numeric columns, and what follows from the latest state of each table."""

    def __init__(self) -> None:
        self._mirrors: dict[int, HotMirror] = {}
        self.masks: Recent[tuple[Any, Any, Mask]] = Recent(_REMEMBERED)
        self.matches: Recent[tuple[object, npt.NDArray[np.int64]]] = Recent(16 * _REMEMBERED, MOST_BYTES)
        self.numbers = Numbers()
        self.filtered: Recent[tuple[object, Looked]] = Recent(_REMEMBERED, _MASK_BYTES)
        self.latest: dict[int, Latest] = {}  # by table

    def mirror(self, table_id: int) -> HotMirror:
        return self._mirrors.setdefault(table_id, HotMirror())

    def at(self, reading: Reading) -> Latest:
        """Return what is known of the table in the state of a reading of the newest snapshot."""
        table_id = reading.state.table.table_id
        found = self.latest.get(table_id)
        if found is None or found.reading.state is not reading.state:
            found = self.latest[table_id] = Latest(reading)
        return found


class Looked(NamedTuple):
    """What one index is searched in: the sources of rows, and each as a part that the index kind understands."""

    sources: Sequence[Source]
    parts: Sequence[Part]


class Latest:
    """What searches have found out about a table in one state."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.looked: dict[int, Looked] = {}  # by index
        self.ready: dict[Form, tuple[Shape, Sequence[Looked]]] = {}  # what a search looks through, without ``where``

    def looked_by(self, indexes: Sequence[Coverage]) -> list[Looked] | None:
        """Return what searches by these indexes have looked through, if there have been some by each of them."""
        ids = [coverage.index.index_id for coverage in indexes]
        return [self.looked[i] for i in ids] if all(i in self.looked for i in ids) else None

    def remember(self, form: Form, shape: Shape) -> None:
        """Let later searches of this form begin with what this one has found out, if that can be shared."""
        searched = self.looked_by(shape.indexes)
        if searched is not None:
            if len(self.ready) >= _REMEMBERED:
                self.ready = {}
            self.ready[form] = shape, searched


class Parts:
    """The parts of a search; made inside a read transaction, while files are read after it.

    ``searched`` is known from an earlier search of the same state; then no transaction is needed.
    """

    def __init__(
        self, reading: Reading, lake: Lake, predicate: Bound | None, shape: Shape, searched: Sequence[Looked] | None
    ) -> None:
        self.reading = reading
        self.indexes = shape.indexes
        self.scanned = 0  # how many blocks have no segment
        self.where: Where | None = None
        self.shared = reading.newest and reading.writes is None  # whether other searches may reuse the parts
        self._remembered = lake._remembered
        if searched is None and self.shared:
            searched = self._remembered.at(reading).looked_by(shape.indexes)
        self._searched = searched
        if searched is not None and predicate is None:
            return
        self._view = View(reading, lake._files, lake._remembered)
        self.where = None if predicate is None else Where(self._view, predicate)
        if searched is None:
            self._fields = tuple(dict.fromkeys(shape.read))  # the columns of the result
            self._hot: list[Chunk] = [] if reading.truncated else self._hot_chunks()
            own = self._own_rows()
            if own is not None:
                self._hot = [*self._hot, Chunk(own, reading.schema)]

    def _hot_chunks(self) -> list[Chunk]:
        reading, hidden = self.reading, self._view.hidden
        if reading.newest:
            chunks = self._remembered.mirror(reading.state.table.table_id).chunks(reading)
        else:
            rows = hot_rows(reading)
            chunks = [] if rows is None else [Chunk(rows, reading.schema)]
        if hidden is not None:
            chunks = [chunk.without(hidden) for chunk in chunks]
        return chunks

    def _own_rows(self) -> pa.RecordBatch | None:
        writes = self.reading.writes
        if writes is None or not writes.rows:
            return None
        own = HotRows(self.reading.schema.fields, self._view.files.storage.spill)
        own.read_own(writes.rows, self.reading.state.current)
        return one_batch(list(own.batches()))

    def looked(self) -> Sequence[Looked]:
        """Return what to search for each index, after the read transaction.  The order depends on the table alone."""
        if self._searched is None:
            self._searched = [self._look(coverage) for coverage in self.indexes]
        if self.where is None:
            return self._searched
        indexes = [coverage.index.index_id for coverage in self.indexes]
        return [self._filtered(i, looked, self.where) for i, looked in zip(indexes, self._searched, strict=True)]

    def _look(self, coverage: Coverage) -> Looked:
        sources = list(self._sources(coverage))
        looked = Looked(sources, [source.part(coverage.index) for source in sources])
        self.shared &= not self.scanned and sum(chunk.rows.nbytes for chunk in self._hot) <= MOST_BYTES
        if self.shared:
            self._remembered.at(self.reading).looked[coverage.index.index_id] = looked
        return looked

    def _filtered(self, index_id: int, looked: Looked, where: Where) -> Looked:
        """Return the same with masks of the rows that satisfy ``where``, from the cache if possible."""
        shared = self.shared and where.form is not None
        key = (index_id, where.key)
        known = self._remembered.filtered.get(key) if shared else None
        if known is not None and known[0] is where.form and known[1].sources is looked.sources:
            return known[1]
        masks = [source.wanted(where) for source in looked.sources]
        parts = [part._replace(wanted=mask) for part, mask in zip(looked.parts, masks, strict=True)]
        found = Looked(looked.sources, parts)
        if shared:
            for mask in masks:
                if mask is not None:
                    mask.flags.writeable = False
            size = sum(mask.nbytes for mask in masks if mask is not None)
            self._remembered.filtered.put(key, (where.form, found), size)
        return found

    def _sources(self, coverage: Coverage) -> Iterator[Source]:
        reading, index, view = self.reading, coverage.index, self._view
        if not reading.truncated:
            covered: set[int] = set()
            for group in coverage.groups(reading.state, reading.snapshot):
                yield BlocksSource(view, group, index)
                covered |= {block.data_file_id for block, _ in group.blocks}
            for block in reading.state.blocks.records:
                if block.data_file_id not in covered and block.visible_at(reading.snapshot):
                    self.scanned += 1
                    yield from self._scanned(block_task(reading.state, block, reading.snapshot), index)
        if reading.writes is not None:
            for task in own_tasks(reading.state, reading.writes):
                yield from self._scanned(task, index)
        for chunk in self._hot:
            yield RowsSource(chunk.rows, chunk.live, chunk.segment)

    def _scanned(self, task: BlockTask, index: Index) -> Iterator[Source]:
        """Read the visible rows of a block; only matching ones, if the kind's ranking ignores the others."""
        schema, view = self.reading.schema, self._view
        block = self.reading.state.blocks.record(task.file_id) if task.kind == "block" else None
        keys = index.all_fields(schema)
        predicate = None if self.where is None else self.where.predicate
        pushed = None if kind_named(index.kind).ranks_by_all else predicate
        named = [f for f in schema.fields if predicate is not None and pushed is None and f.name in predicate.columns]
        fields = tuple(dict.fromkeys((*keys, *named, *(self._fields if block is None else ()))))
        rows = one_batch(list(read_task(task, view.files, fields, pushed, row_id=True, hidden=view.hidden)))
        if rows is None:
            return
        rows = pa.RecordBatch.from_arrays(rows.columns, [*(f.column for f in fields), ROW_ID])
        segment = partial(_segment_of, schema, [rows.column(f.column) for f in keys])
        if block is None:
            yield RowsSource(rows, None, segment, chosen=pushed is not None)
        else:
            yield GapSource(view, block, rows, segment, chosen=pushed is not None)


def _segment_of(schema: TableSchema, keys: Sequence[pa.Array], index: Index) -> Any:
    return segment_in_memory(index, schema, [keys])
