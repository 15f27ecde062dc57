"""The rows that a search looks through, in blocks with a segment, in blocks without one, and in memory."""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.indexes.kind import Part, Slots
from indexlake.indexes.registry import kind_named
from indexlake.scan.execute import read_task
from indexlake.scan.numbers import Column, numbers_of, plain
from indexlake.scan.plan import block_task
from indexlake.schema import ROW_ID
from indexlake.schema.lineage import file_columns, file_values
from indexlake.types.selection import take

if TYPE_CHECKING:
    from indexlake.blocks.block import BlockRecord
    from indexlake.blocks.formats import BlockReader
    from indexlake.blocks.open_files import OpenFiles
    from indexlake.indexes.coverage import Group
    from indexlake.indexes.index import Index
    from indexlake.scan.matches import Where
    from indexlake.scan.search_parts import Remembered
    from indexlake.schema import Field
    from indexlake.snapshots.reading import Reading

Mask = npt.NDArray[np.bool_]
Row = dict[str, Any]

Piece = tuple[slice, list[Any]]
"""Some of the requested rows, by ascending slot: which of them these are, and their columns."""


class View:
    """The table as one search sees it; ``hidden`` are the committed rows that its own transaction has closed."""

    def __init__(self, reading: Reading, files: OpenFiles, remembered: Remembered) -> None:
        self.reading = reading
        self.files = files
        self.remembered = remembered
        self.hidden: npt.NDArray[np.int64] | None = None
        if reading.writes is not None and reading.writes.closed:
            self.hidden = np.frombuffer(reading.writes.closed.to_array(), np.uint64).astype(np.int64)

    def positions(self, block: BlockRecord, row_ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return self.reading.state.addresses(block, self.files).positions_of(row_ids)

    def row_ids(self, block: BlockRecord, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return self.reading.state.row_ids_at(block, positions, self.files)


class BlockRows:
    """Reads visible rows of a block by position."""

    def __init__(self, view: View, block: BlockRecord) -> None:
        self._files = view.files
        self._block = block
        self._held = view.reading.state.schema.at(block.schema_snapshot)

    def columns(self, positions: npt.NDArray[np.int64], fields: Sequence[Field]) -> list[Any]:
        found = self._reader().take(positions, file_columns(fields, self._held.by_id))
        if all(f.field_id in self._held.by_id for f in fields):
            return [found.column(f.column) for f in fields]
        pieces = [(dict(zip(found.column_names, b.columns, strict=True)), b.num_rows) for b in found.to_batches()]
        if not found.num_columns:
            pieces = [({}, len(positions))]
        return [pa.chunked_array([file_values(f, *piece) for piece in pieces], f.type) for f in fields]

    def few_rows(self, positions: Sequence[int], fields: Sequence[Field]) -> list[Row] | None:
        """Return rows as Python values by column; None if these would not reproduce the columns exactly."""
        by_id = self._held.by_id
        for f in fields:
            if f.field_id not in by_id:
                return None
        return self._reader().few_rows(positions, tuple([f.column for f in fields]))

    def numbers(self, f: Field) -> Iterator[Column | None]:
        """Yield the column of all rows piece by piece, or None if it has nulls or no plain numbers."""
        if f.field_id not in self._held.by_id:
            yield None
            return
        for batch in self._reader().read([f.column]):
            yield numbers_of(batch.column(0))

    def _reader(self) -> BlockReader:
        return self._files.reader(self._block, self._held.file)


class RowsSource:
    """Rows in memory.  With ``chosen``, all of them satisfy the predicate."""

    def __init__(self, rows: pa.RecordBatch, live: Mask | None, segments: Any, *, chosen: bool = False) -> None:
        self._rows = rows  # columns named as in files, and the row id
        self._live = None if live is None or live.all() else live
        self._segments = segments
        self._chosen = chosen
        self._numbers: dict[str, Column | None] = {}

    def part(self, index: Index) -> Part:
        return Part(self._segments(index), self._live)

    def wanted(self, where: Where) -> Mask | None:
        """Return a mask of the visible slots whose rows satisfy the predicate, or None if all of them do."""
        if self._chosen:
            return None
        mask = where.mask(self._rows)
        return mask if self._live is None else mask & self._live

    @property
    def count(self) -> int:
        return int(self._live.sum()) if self._live is not None else self._rows.num_rows

    def row_ids(self, slots: Slots) -> npt.NDArray[np.int64]:
        found: npt.NDArray[np.int64] = self._rows.column(ROW_ID).to_numpy()[slots]
        return found

    def rows(self, slots: Slots, fields: Sequence[Field]) -> Iterator[Piece]:
        wanted = pa.array(slots)
        yield slice(None), [take(self._rows.column(f.column), wanted) for f in fields]

    def place(self, slot: int) -> tuple[RowsSource | BlockRows, int]:
        """Return what holds a row, and the row's position in it."""
        return self, slot

    def numbers(self, f: Field, wanted: int) -> Column | None:
        """Return a numeric column in memory by slot, else None.  ``wanted``: how many slots are needed."""
        if f.column not in self._numbers:
            self._numbers[f.column] = numbers_of(self._rows.column(f.column))
        return self._numbers[f.column]

    def held(self, f: Field, slots: Slots) -> pa.Array | None:
        """Return a column of some rows if it is in memory, else None."""
        return take(self._rows.column(f.column), pa.array(slots))

    def few_rows(self, slots: Sequence[int], fields: Sequence[Field]) -> list[Row] | None:
        """Return rows as Python values by column; None if these would not reproduce the columns exactly."""
        columns = {f.column: self._rows.column(f.column) for f in fields}
        return [{name: column[slot].as_py() for name, column in columns.items()} for slot in slots]


class GapSource(RowsSource):
    """Rows of a block without a segment; columns beyond those already read come from the block."""

    def __init__(self, view: View, block: BlockRecord, rows: pa.RecordBatch, segments: Any, *, chosen: bool) -> None:
        super().__init__(rows, None, segments, chosen=chosen)
        self._view = view
        self._block = block
        self._held = BlockRows(view, block)

    def numbers(self, f: Field, wanted: int) -> Column | None:
        return None

    def held(self, f: Field, slots: Slots) -> pa.Array | None:
        return None

    def rows(self, slots: Slots, fields: Sequence[Field]) -> Iterator[Piece]:
        yield slice(None), self._held.columns(self._positions(slots), fields)

    def few_rows(self, slots: Sequence[int], fields: Sequence[Field]) -> list[Row] | None:
        return self._held.few_rows(self._positions(np.array(slots)).tolist(), fields)

    def _positions(self, slots: Slots) -> npt.NDArray[np.int64]:
        return self._view.positions(self._block, self.row_ids(slots))


class BlocksSource:
    """Blocks that one segment covers."""

    def __init__(self, view: View, group: Group, index: Index) -> None:
        self._view = view
        self._index = index
        self._group = group
        self._blocks = group.blocks
        self._path = group.segment.path
        self._ids = tuple([block.data_file_id for block, _ in group.blocks])
        self._numbers: dict[str, weakref.ref[Column]] = {}  # weak, since remembered columns may be dropped
        self._segment = view.files.segment(group.segment, index.open)
        self._live = self._visible()

    def part(self, index: Index) -> Part:
        return Part(self._segment, self._live)

    def wanted(self, where: Where) -> Mask:
        """Return a mask of the visible slots whose rows satisfy the predicate."""
        starts = self._segment.starts
        wanted = np.zeros(starts[-1], np.bool_)
        for block, ordinal in self._blocks:
            where.mark(block, wanted[starts[ordinal] : starts[ordinal + 1]])
        if self._live is not None:
            wanted &= self._live
        return wanted

    def _visible(self) -> Mask | None:
        """Return a mask of the slots whose rows are visible, or None if all are."""
        view, starts = self._view, self._segment.starts
        state, snapshot = view.reading.state, view.reading.snapshot
        live = self._undeleted()
        for block, ordinal in self._blocks:
            if block.max_snapshot > snapshot:  # some of its rows may be younger than the snapshot
                live = np.ones(starts[-1], np.bool_) if live is None else live.copy()
                seen = np.zeros(block.record_count, np.bool_)
                task = block_task(state, block, snapshot)
                for batch in read_task(task, view.files, (), None, row_id=True):
                    seen[view.positions(block, batch.column(ROW_ID).to_numpy())] = True
                live[starts[ordinal] : starts[ordinal + 1]] &= seen
        if view.hidden is not None:
            live = np.ones(starts[-1], np.bool_) if live is None else live.copy()
            for block, ordinal in self._blocks:
                positions = view.positions(block, view.hidden)
                live[starts[ordinal] + positions[positions >= 0]] = False
        return live

    def _undeleted(self) -> Mask | None:
        """Return a mask of rows in visible blocks that are not deleted at the snapshot, or None if that is all rows."""
        view, starts = self._view, self._segment.starts
        reading = view.reading
        logs = tuple(reading.state.deletes.get(block.data_file_id) for block, _ in self._blocks)
        if len(self._blocks) == len(starts) - 1 and all(log is None for log in logs):
            return None
        ids = self._ids
        known = view.remembered.masks.get(self._path) if reading.newest else None
        if known is not None and known[0] == ids and all(a is b for a, b in zip(known[1], logs, strict=True)):
            return known[2]
        live = np.zeros(starts[-1], np.bool_)
        for (_, ordinal), log in zip(self._blocks, logs, strict=True):
            live[starts[ordinal] : starts[ordinal + 1]] = True
            gone = log.at(reading.snapshot) if log is not None else None
            if gone:
                live[starts[ordinal] + np.frombuffer(gone.to_array(), np.uint32)] = False
        if reading.newest:
            live.flags.writeable = False  # kinds may cache what they learn about a mask that cannot change
            view.remembered.masks.put(self._path, (ids, logs, live))
        return live

    def row_ids(self, slots: Slots) -> npt.NDArray[np.int64]:
        found = np.zeros(len(slots), np.int64)
        for block, here, positions in self._group.split(self._segment.starts, slots):
            found[here] = self._view.row_ids(block, positions)
        return found

    def rows(self, slots: Slots, fields: Sequence[Field]) -> Iterator[Piece]:
        for block, here, positions in self._group.split(self._segment.starts, slots):
            yield here, BlockRows(self._view, block).columns(positions, fields)

    def numbers(self, f: Field, wanted: int) -> Column | None:
        """See `RowsSource`."""
        known = self._numbers.get(f.column)
        found = None if known is None else known()
        if found is None:
            key, slots = f"{self._path} {f.column}", self._segment.starts[-1]
            found = self._view.remembered.numbers.column(key, self._ids, slots, wanted, lambda: self._all_numbers(f))
            if found is not None:
                self._numbers[f.column] = weakref.ref(found)
        return found

    def held(self, f: Field, slots: Slots) -> pa.Array | None:
        """See `RowsSource`."""
        index = self._index
        if f not in index.fields(self._view.reading.schema)[:1]:
            return None
        return kind_named(index.kind).values(self._segment, slots, f.type)

    def _all_numbers(self, f: Field) -> Column | None:
        if not plain(f.type):
            return None
        starts = self._segment.starts
        found = np.zeros(starts[-1], f.type.to_pandas_dtype())
        for ordinal, held in self._held.items():
            at = starts[ordinal]
            for piece in held.numbers(f):
                if piece is None:
                    return None
                found[at : at + len(piece)] = piece
                at += len(piece)
        return found

    def place(self, slot: int) -> tuple[BlockRows, int]:
        starts = self._segment.starts
        ordinal = bisect_right(starts, slot) - 1
        return self._held[ordinal], slot - starts[ordinal]

    @cached_property
    def _held(self) -> dict[int, BlockRows]:
        return {ordinal: BlockRows(self._view, block) for block, ordinal in self._blocks}


Source = RowsSource | BlocksSource
