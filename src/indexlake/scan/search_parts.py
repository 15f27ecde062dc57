"""What a search looks through: every visible row of the table is in exactly one source.

Blocks that a segment covers are asked through it, with a mask of the slots that are visible at the snapshot and satisfy
``where``.  All other rows (hot ones, a transaction's own, those of blocks without a segment and of history blocks) are
read, and get a segment in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.blocks.open_files import Recent
from indexlake.expr import tree
from indexlake.hot.rows import HotRows
from indexlake.indexes.builder import segment_in_memory
from indexlake.indexes.kind import Part
from indexlake.indexes.registry import kind_named
from indexlake.scan.access import file_test
from indexlake.scan.execute import read_task
from indexlake.scan.hot_mirror import Chunk, HotMirror, hot_rows, one_batch
from indexlake.scan.plan import BlockTask, block_task, own_tasks, plan_blocks
from indexlake.schema import ROW_ID
from indexlake.types.selection import take

if TYPE_CHECKING:
    from indexlake.blocks.block import BlockRecord
    from indexlake.expr import Bound
    from indexlake.indexes.coverage import Coverage, Group
    from indexlake.indexes.index import Index
    from indexlake.lake import Lake
    from indexlake.schema import Field, TableSchema
    from indexlake.snapshots.reading import Reading

Mask = npt.NDArray[np.bool_]

_REMEMBERED = 256


class Remembered:
    """What searches of one lake keep for the next ones: hot rows, masks of deleted rows, matches of predicates."""

    def __init__(self) -> None:
        self._mirrors: dict[int, HotMirror] = {}
        self.masks: Recent[tuple[Any, Any, Mask]] = Recent(_REMEMBERED)
        self.matches: Recent[npt.NDArray[np.int64]] = Recent(_REMEMBERED)

    def mirror(self, table_id: int) -> HotMirror:
        return self._mirrors.setdefault(table_id, HotMirror())


class RowsSource:
    """Rows in memory."""

    def __init__(self, rows: pa.RecordBatch, live: Mask | None, wanted: Mask | None, segments: Any) -> None:
        self._rows = rows  # columns named as in files, and the row id
        self._live = live
        self._wanted = wanted
        self._segments = segments

    def part(self, index: Index) -> Part:
        live = None if self._live is None or self._live.all() else self._live
        return Part(self._segments(index), live, self._wanted)

    @property
    def count(self) -> int:
        return int(self._live.sum()) if self._live is not None else self._rows.num_rows

    def row_ids(self, slots: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        found: npt.NDArray[np.int64] = self._rows.column(ROW_ID).to_numpy()[slots]
        return found

    def rows(self, slots: npt.NDArray[np.int64], fields: Sequence[Field]) -> list[pa.Array]:
        wanted = pa.array(slots)
        return [take(self._rows.column(f.column), wanted) for f in fields]


class GapSource(RowsSource):
    """Rows of a block without a segment: of those that are found, the other columns are read from the block."""

    def __init__(
        self, search: Parts, block: BlockRecord, rows: pa.RecordBatch, wanted: Mask | None, segments: Any
    ) -> None:
        super().__init__(rows, None, wanted, segments)
        self._search = search
        self._block = block

    def rows(self, slots: npt.NDArray[np.int64], fields: Sequence[Field]) -> list[pa.Array]:
        positions = self._search.positions(self._block, self.row_ids(slots))
        return self._search.columns_at([(self._block, np.arange(len(slots)), positions)], fields)


class BlocksSource:
    """Blocks that one segment covers."""

    def __init__(self, search: Parts, group: Group, segment: Any) -> None:
        self._search = search
        self._blocks = group.blocks
        self._path = group.segment.path
        self._segment = segment

    def part(self, index: Index) -> Part:
        live = self._live()
        return Part(self._segment, live, self._wanted(live))

    def _wanted(self, live: Mask | None) -> Mask | None:
        """The visible slots whose rows satisfy the predicate; None: there is none."""
        search, starts = self._search, self._segment.starts
        if search.matches is None:
            return None
        wanted = np.zeros(starts[-1], np.bool_)
        for block, ordinal in self._blocks:
            search.matches.mark(block, wanted[starts[ordinal] : starts[ordinal + 1]])
        if live is not None:
            wanted &= live
        return wanted

    def _live(self) -> Mask | None:
        """The slots whose rows are visible; None: all of them."""
        search, starts = self._search, self._segment.starts
        state, snapshot = search.reading.state, search.reading.snapshot
        live = self._undeleted()
        for block, ordinal in self._blocks:
            if block.max_snapshot > snapshot:  # rows of it may be younger than the snapshot
                live = np.ones(starts[-1], np.bool_) if live is None else live.copy()
                seen = np.zeros(block.record_count, np.bool_)
                task = block_task(state, block, snapshot)
                for batch in read_task(task, search.files, (), None, row_id=True):
                    seen[search.positions(block, batch.column(ROW_ID).to_numpy())] = True
                live[starts[ordinal] : starts[ordinal + 1]] &= seen
        if search.hidden is not None:
            live = np.ones(starts[-1], np.bool_) if live is None else live.copy()
            for block, ordinal in self._blocks:
                positions = state.addresses(block, search.files).positions_of(search.hidden)
                live[starts[ordinal] + positions[positions >= 0]] = False
        return live

    def _undeleted(self) -> Mask | None:
        """Without those that the deletes at the snapshot name, and the blocks that are not visible."""
        search, starts = self._search, self._segment.starts
        reading = search.reading
        logs = tuple(reading.state.deletes.get(block.data_file_id) for block, _ in self._blocks)
        if len(self._blocks) == len(starts) - 1 and all(log is None for log in logs):
            return None
        ids = tuple(block.data_file_id for block, _ in self._blocks)
        known = search.remembered.masks.get(self._path) if reading.newest else None
        if known is not None and known[0] == ids and all(a is b for a, b in zip(known[1], logs, strict=True)):
            return known[2]
        live = np.zeros(starts[-1], np.bool_)
        for (_, ordinal), log in zip(self._blocks, logs, strict=True):
            live[starts[ordinal] : starts[ordinal + 1]] = True
            gone = log.at(reading.snapshot) if log is not None else None
            if gone:
                live[starts[ordinal] + np.frombuffer(gone.to_array(), np.uint32)] = False
        if reading.newest:
            live.flags.writeable = False  # kinds may remember what they learn about a mask that stays as it is
            search.remembered.masks.put(self._path, (ids, logs, live))
        return live

    def _split(self, slots: npt.NDArray[np.int64]) -> Iterator[tuple[BlockRecord, npt.NDArray[np.int64], Any]]:
        """(block, indices into the slots, positions) of each block that holds some."""
        starts = self._segment.starts
        for block, ordinal in self._blocks:
            here = np.flatnonzero((slots >= starts[ordinal]) & (slots < starts[ordinal + 1]))
            if len(here):
                yield block, here, slots[here] - starts[ordinal]

    def row_ids(self, slots: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        found = np.zeros(len(slots), np.int64)
        for block, here, positions in self._split(slots):
            found[here] = self._search.reading.state.addresses(block, self._search.files).row_ids_at(positions)
        return found

    def rows(self, slots: npt.NDArray[np.int64], fields: Sequence[Field]) -> list[pa.Array]:
        return self._search.columns_at(self._split(slots), fields)


Source = RowsSource | BlocksSource


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

    def columns_at(
        self,
        places: Iterable[tuple[BlockRecord, npt.NDArray[np.int64], npt.NDArray[np.int64]]],
        fields: Sequence[Field],
    ) -> list[pa.Array]:
        """Columns of rows in blocks: (block, numbers of the rows, their positions); in the order of the numbers."""
        parts: list[pa.RecordBatch] = []
        order: list[npt.NDArray[np.int64]] = []
        for block, numbers, positions in places:
            ascending = np.argsort(positions, kind="stable")
            task = block_task(self.reading.state, block, self.reading.snapshot, positions[ascending].astype(np.uint64))
            parts += read_task(replace(task, versions_up_to=None), self.files, fields, None, row_id=not fields)
            order.append(numbers[ascending])
        back = pa.array(np.argsort(np.concatenate(order), kind="stable"))
        whole = one_batch(parts)
        assert whole is not None
        assert whole.num_rows == len(back)
        return [take(whole.column(n), back) for n in range(len(fields))]

    def positions(self, block: BlockRecord, row_ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return self.reading.state.addresses(block, self.files).positions_of(row_ids)


class Matches:
    """Where rows that satisfy a predicate lie in blocks; what a block file holds never changes, so it is remembered."""

    def __init__(self, search: Parts, predicate: Bound) -> None:
        self._search = search
        self._predicate = predicate
        self.found_by = "what earlier searches found"
        self._tasks: dict[int, BlockTask] | None = None
        calls = any(isinstance(node, tree.Call) for node in _nodes(predicate.root))  # now() changes
        self._key = None if calls else f"{predicate!r} {search.reading.state.table.schema_version}"

    def mark(self, block: BlockRecord, mask: Mask) -> None:
        """Mark the rows of the block that satisfy the predicate, deleted ones included."""
        mask[self._positions(block)] = True

    def _holds_always(self, task: BlockTask | None) -> bool:
        """Whether no row was left out because it is deleted at this snapshot: others may show it."""
        return self.found_by != "primary key" and (task is None or task.only is None or len(task.only) > 1)

    def _positions(self, block: BlockRecord) -> npt.NDArray[np.int64]:
        search, key = self._search, None if self._key is None else f"{block.path} {self._key}"
        known = search.remembered.matches.get(key) if key is not None else None
        if known is not None:
            return known
        positions = np.zeros(0, np.int64)
        task = self._planned().get(block.data_file_id)
        if task is not None:
            whole = replace(task, deleted=None, versions_up_to=None)
            batches = read_task(whole, search.files, (), self._predicate, row_id=True)
            found = [search.positions(block, batch.column(ROW_ID).to_numpy()) for batch in batches]
            positions = np.concatenate(found) if found else positions
        if key is not None and self._holds_always(task):
            search.remembered.matches.put(key, positions)
        return positions

    def _planned(self) -> dict[int, BlockTask]:
        """The blocks that may hold matching rows."""
        if self._tasks is None:
            search = self._search
            test = file_test(self._predicate, search.reading.schema)
            tasks, notes = plan_blocks(search.reading, search.files, test)
            self.found_by = notes["found by"]
            self._tasks = {task.file_id: task for task in tasks if task.kind == "block"}
        return self._tasks


def _segment_of(schema: TableSchema, keys: Sequence[pa.Array], index: Index) -> Any:
    return segment_in_memory(index, schema, [keys])


def _nodes(root: Any) -> Iterator[Any]:
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(node.children())
