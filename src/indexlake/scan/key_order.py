"""Scans in primary key order of a clustered table: its blocks are already in that order and need no sorting.

They are merged by the bounds of their keys (`partitions/merging`), whatever partitions they belonged to.  Rows that are
not in that order (hot rows, history blocks, blocks from before the table was clustered) are sorted together and become
one more source of the merge.  Threads read blocks ahead in parts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from queue import Queue
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indexlake.expr.test import ColumnTest, Test, conjuncts
from indexlake.indexes.keys import KeyColumn
from indexlake.partitions.merging import Merge, Source, Stream, turned
from indexlake.scan.execute import FIRST_PART_ROWS, parts_of, pieces, read_task
from indexlake.scan.order import OrderBy, ordered
from indexlake.scan.plan import BlockTask, KeyBounds, ScanPlan, arrow_schema
from indexlake.scan.prefetch import Prefetch
from indexlake.scan.sorted_runs import BATCH_ROWS
from indexlake.schema import ROW_ID

if TYPE_CHECKING:
    from indexlake.blocks.open_files import OpenFiles
    from indexlake.schema import Field
    from indexlake.snapshots.reading import Reading


SMALL_PARTS = 4
"""Up to this many small parts are read before threads are started."""


def as_key_order(reading: Reading, order: OrderBy, test: Test) -> list[tuple[str, str]] | None:
    """Return an order by the whole primary key that also satisfies ``order``, or None if there is none.

    Columns that the test fixes to one value are ignored, and so is everything after the whole key.
    """
    schema = reading.schema
    if reading.state.ranges is None or not order:
        return None
    fixed = {part.column for part in conjuncts(test) if isinstance(part, ColumnTest) and part.op == "="}
    keys = [f for f in schema.key_fields if f.column not in fixed]
    wanted = [(c, d) for c, d in order if c == ROW_ID or schema.field(c).column not in fixed][: len(keys)]
    if [c for c, _ in wanted] != [f.name for f in keys[: len(wanted)]] or len({d for _, d in wanted}) > 1:
        return None
    direction = wanted[0][1] if wanted else "asc"
    return [(f.name, direction) for f in schema.key_fields]


def with_key_bounds(reading: Reading, plan: ScanPlan) -> ScanPlan:
    """Return the plan with the key bounds of all blocks whose rows are sorted by key."""
    bounds: dict[int, KeyBounds] = {}
    for task in plan.tasks:
        record = reading.state.blocks.record(task.file_id) if task.kind == "block" else None
        if record is not None and record.first_key is not None and record.last_key is not None:
            bounds[task.file_id] = record.first_key, record.last_key
    for block in () if reading.writes is None else reading.writes.own_live_blocks():
        if block.placed is not None:
            bounds[block.token] = block.placed.first_key, block.placed.last_key
    return replace(plan, key_bounds=bounds)


def rows_in_key_order(
    plan: ScanPlan,
    files: OpenFiles,
    workers: int,
    fields: Sequence[Field],
    order: OrderBy,
    most: int | None,
    *,
    row_id: bool,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a plan with key bounds in primary key order; ``fields`` must include the key columns.

    Of the rows that have to be sorted first, only the first ``most`` are needed.
    """
    schema, descending = arrow_schema(fields, row_id=row_id), order[0][1] == "desc"
    bounds = plan.key_bounds
    assert bounds is not None
    unsorted = replace(plan, tasks=tuple(task for task in plan.tasks if task.file_id not in bounds))
    names, codecs = [f.name for f in plan.schema.key_fields], plan.schema.key_codecs

    def keys_of(batch: pa.RecordBatch) -> KeyColumn:
        return KeyColumn.from_arrays(codecs, [batch.column(name) for name in names])

    def read(task: BlockTask) -> Iterator[pa.RecordBatch]:
        return read_task(task, files, fields, plan.predicate, row_id=row_id, hidden=plan.hidden_rows)

    with _ReadAhead(read, workers) as ahead:
        sources: list[Source] = []
        for task in plan.tasks:
            if task.file_id in bounds:
                parts = parts_of(task, files, plan.predicate, backward=descending)
                sources.append(_Block(ahead, parts, *bounds[task.file_id], backward=descending))
        if unsorted.tasks or plan.hot.count:
            loose = (piece.batch for piece in pieces(unsorted, files, workers, fields, row_id=row_id))
            rows = ordered(loose, schema, order, most, files.storage.spill)
            sources.append(Stream(map(turned, rows) if descending else rows))
        ahead.merge = Merge(sources, keys_of, descending=descending)
        for found in ahead.merge:
            for start in range(0, found.rows.num_rows, BATCH_ROWS):
                yield found.rows.slice(start, BATCH_ROWS)


class _Block:
    """A block that is sorted by key, read part by part."""

    def __init__(
        self, ahead: _ReadAhead, parts: Iterator[BlockTask], first: bytes, last: bytes, *, backward: bool
    ) -> None:
        self.first: bytes = first
        self.last: bytes | None = last
        self.pending: deque[Queue[Any]] = deque()  # queues that threads fill, in order
        self.parts = parts
        self._ahead = ahead
        self._backward = backward
        self._read: list[pa.RecordBatch] = []  # the batches of one part, the next one last

    def next_batch(self) -> pa.RecordBatch | None:
        while not self._read:
            found = self._ahead.part(self)
            if found is None:
                return None
            self._read = found if self._backward else found[::-1]
        return self._read.pop()


class _ReadAhead:
    """Reads parts of blocks in threads: one ahead for each open block, then more in key order.

    The first small parts are read without threads, since a limit or a range may need no more.
    """

    def __init__(self, read: Callable[[BlockTask], Iterator[pa.RecordBatch]], workers: int) -> None:
        self.merge: Merge | None = None
        self._read = read
        self._workers = workers
        self._alone = SMALL_PARTS if workers > 1 else None  # how many more parts to read without threads; None: all
        self._threads: Prefetch | None = None
        self._pending = 0

    def __enter__(self) -> _ReadAhead:
        return self

    def __exit__(self, *_: object) -> None:
        if self._threads is not None:
            self._threads.stop()

    def part(self, block: _Block) -> list[pa.RecordBatch] | None:
        """Return the rows of the next part of a block, or None at its end."""
        if not block.pending:
            part = next(block.parts, None)
            if part is None:
                return None
            if self._alone is None or (self._alone > 0 and part.only is not None and len(part.only) <= FIRST_PART_ROWS):
                self._alone = None if self._alone is None else self._alone - 1
                return list(self._read(part))
            self._begin(block, part)
        self._look_ahead()
        self._pending -= 1
        return list(self._running().rows(block.pending.popleft()))

    def _running(self) -> Prefetch:
        if self._threads is None:
            self._alone = 0
            self._threads = Prefetch(self._read, self._workers).__enter__()
        return self._threads

    def _begin(self, block: _Block, part: BlockTask) -> None:
        block.pending.append(self._running().begin(part))
        self._pending += 1

    def _begin_next(self, block: _Block) -> bool:
        """Start reading the next part of a block.  Return False if there is none."""
        part = next(block.parts, None)
        if part is not None:
            self._begin(block, part)
        return part is not None

    def _look_ahead(self) -> None:
        assert self.merge is not None
        open_ = [source for source in self.merge.open if isinstance(source, _Block)]
        for block in open_:
            if len(block.pending) < 2:
                self._begin_next(block)
        for source in (*open_, *self.merge.waiting):
            while self._pending <= self._workers and isinstance(source, _Block) and self._begin_next(source):
                pass
            if self._pending > self._workers:
                return
