"""The rows that a search looks through, in blocks with a segment, in blocks without one, and in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.indexes.kind import Part
from indexlake.scan.execute import read_task
from indexlake.scan.plan import block_task
from indexlake.schema import ROW_ID
from indexlake.types.selection import take

if TYPE_CHECKING:
    from indexlake.blocks.block import BlockRecord
    from indexlake.indexes.coverage import Group
    from indexlake.indexes.index import Index
    from indexlake.scan.search_parts import Parts
    from indexlake.schema import Field

Mask = npt.NDArray[np.bool_]


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
            found[here] = self._search.reading.state.row_ids_at(block, positions, self._search.files)
        return found

    def rows(self, slots: npt.NDArray[np.int64], fields: Sequence[Field]) -> list[pa.Array]:
        return self._search.columns_at(self._split(slots), fields)


Source = RowsSource | BlocksSource
