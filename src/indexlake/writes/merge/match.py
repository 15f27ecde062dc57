"""Find the rows of a table that the rows of a source match.

If ``on`` names the whole primary key, rows are found through the key segments and the database's own index, so the cost
depends on the source. Otherwise the columns of ``on`` are scanned, with the source's values as a condition that prunes
blocks and rows; the other columns are read only for rows that matched. Planned in one read transaction, run after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.blocks.block import BlockRecord
from indexlake.expr.test import ColumnTest
from indexlake.hot.rows import HotRows
from indexlake.scan.execute import Piece, pieces, read_task
from indexlake.scan.plan import BlockTask, ScanPlan, block_task, plan_keys, plan_scan
from indexlake.schema import ROW_ID, Field
from indexlake.types.convert import convert
from indexlake.types.selection import take
from indexlake.writes.merge.keys import SourceKeys, plain_type
from indexlake.writes.merge.on import On
from indexlake.writes.merge.source import one_batch

if TYPE_CHECKING:
    from indexlake.expr import Bound
    from indexlake.lake import Lake
    from indexlake.snapshots.reading import Reading

Indices = npt.NDArray[np.int64]

FEW_VALUES = 500
"""Up to this many distinct values of a column are looked up individually; beyond that, only their range is used."""

_SLICE = 65_536


@dataclass(frozen=True, slots=True)
class Found:
    """Rows of the table, and which of them have which keys of the source."""

    piece: Piece
    indices: Indices  # into the piece
    numbers: Indices  # of their keys


class Matching:
    """A search for the rows of a table that match a source."""

    def __init__(self, reading: Reading, lake: Lake, on: On, keys: SourceKeys) -> None:
        self._reading = reading
        self._lake = lake
        self._state = reading.state
        self._snapshot = reading.snapshot
        self._on = on
        self._keys = keys
        self._by_key = on.covers_key(reading.schema)
        self._primary = keys.primary(len(reading.schema.key_fields)) if self._by_key else keys.column

    # ------------------------------------------------------------ rows with a partner

    def plan(self, fields: Sequence[Field]) -> None:
        files = self._lake._files
        self._fields = tuple(fields)
        self._all = tuple(dict.fromkeys((*self._on.fields, *fields)))
        if self._by_key:
            self._plan = plan_keys(self._reading, files, self._primary, self._all, blocks=False)
        else:
            self._plan = plan_scan(self._reading, files, predicate=self._predicate(), columns=self._all)

    def rows(self) -> Iterator[Found]:
        """Yield the rows that have partners, with the planned columns and their row ids."""
        if not self._by_key:
            yield from self._scanned()
            return
        if not self._reading.truncated:
            yield from self._by_segments()
        yield from self._matches(self._plan, self._all)

    def _matches(self, plan: ScanPlan, fields: Sequence[Field]) -> Iterator[Found]:
        return (found for found in self._joined(plan, fields) if len(found.indices))

    def _joined(self, plan: ScanPlan, fields: Sequence[Field]) -> Iterator[Found]:
        lake = self._lake
        return map(self._join, pieces(plan, lake._files, lake._scan_threads, fields, row_id=True))

    def _join(self, piece: Piece) -> Found:
        arrays = [plain(piece.batch.column(f.name), f) for f in self._on.fields]
        return Found(piece, *self._keys.find(arrays))

    def _by_segments(self) -> Iterator[Found]:
        state, files = self._state, self._lake._files
        assert state.primary is not None
        hits = state.primary.find_many(self._primary, state, self._snapshot, files)
        for block, numbers, positions in hits:
            order = np.argsort(positions, kind="stable")
            for at in range(0, len(order), _SLICE):
                some = order[at : at + _SLICE]
                yield from self._at_positions(block, positions[some], numbers[some])

    def _at_positions(self, block: BlockRecord, positions: Indices, numbers: Indices) -> Iterator[Found]:
        """Yield rows at ascending positions of a block, which hold the keys of these numbers."""
        state, hidden = self._state, self._plan.hidden_rows
        ids = state.row_ids_at(block, positions, self._lake._files)
        whole = self._on.is_key(state.current)
        fields = self._fields if whole else self._all
        if fields or block.max_snapshot > self._snapshot:
            for batch in self._read(block_task(state, block, self._snapshot, positions.astype(np.uint64)), fields):
                piece = Piece("block", block.data_file_id, batch)
                yield _found_again(piece, ids, numbers) if whole else self._join(piece)
            return
        if hidden is not None:
            seen = ~np.isin(ids, hidden)
            ids, numbers = ids[seen], numbers[seen]
        if len(ids):
            piece = Piece("block", block.data_file_id, pa.RecordBatch.from_arrays([pa.array(ids)], [ROW_ID]))
            yield Found(piece, np.arange(len(ids)), numbers)

    def _scanned(self) -> Iterator[Found]:
        """Scan for matches, reading the ``on`` columns of blocks first and the others only for rows that matched.

        Rows outside blocks are read with all columns at once.
        """
        late: dict[int, BlockTask] = {}
        if any(f not in self._on.fields for f in self._fields):
            late = {t.file_id: t for t in self._plan.tasks if t.kind != "history"}
        if late:
            later = replace(self._plan, tasks=tuple(late.values()), hot=HotRows(self._all))
            for found in self._matches(later, self._on.fields):
                yield from self._completed(found, late[found.piece.file_id])
        now = replace(self._plan, tasks=tuple(t for t in self._plan.tasks if t.file_id not in late))
        yield from self._matches(now, self._all)

    def _completed(self, found: Found, task: BlockTask) -> Iterator[Found]:
        """Yield the same rows with all columns."""
        ids = found.piece.batch.column(ROW_ID).to_numpy()[found.indices]
        state = self._state
        if task.kind == "block":
            record = state.blocks.record(task.file_id)
            assert record is not None
            positions = state.addresses(record, self._lake._files).positions_of(ids)
        else:
            assert self._reading.writes is not None
            positions = self._reading.writes.blocks[-task.file_id - 1].row_ids.positions_of(ids)
        only = replace(task, only=np.sort(positions).astype(np.uint64))
        for batch in self._read(only, self._all):
            yield _found_again(replace(found.piece, batch=batch), ids, found.numbers)

    def _read(self, task: BlockTask, fields: Sequence[Field]) -> Iterable[pa.RecordBatch]:
        """Read the few rows of a task, in one batch if their types allow it."""
        files, hidden = self._lake._files, self._plan.hidden_rows
        batches = list(read_task(task, files, fields, None, row_id=True, hidden=hidden))
        if len(batches) < 2 or any(f.type != plain_type(f) for f in fields):
            return batches
        return [one_batch(pa.Table.from_batches(batches))]

    def _predicate(self) -> Bound | None:
        """Return a short necessary condition for having one of the source's values."""
        from indexlake.expr.compiler import satisfying

        tests: list[ColumnTest] = []
        for n, f in enumerate(self._on.fields):
            found = self._keys.bounds(n, FEW_VALUES)
            if found is None:
                continue
            values, low, high = found
            if values is not None:
                tests.append(ColumnTest(f.name, "in", tuple(values)))
            else:
                tests += [ColumnTest(f.name, ">=", (low,)), ColumnTest(f.name, "<=", (high,))]
        return satisfying(self._reading.schema.arrow_with_row_id, tests) if tests else None

    # ------------------------------------------------------------ rows without one

    def plan_all(self, fields: Sequence[Field], condition: Bound | None) -> None:
        """Plan to read all rows that satisfy a condition on the table's own columns."""
        self._rest_fields = tuple(dict.fromkeys((*self._on.fields, *fields)))
        named = () if condition is None else condition.columns
        extra = [f for f in self._reading.schema.fields if f.name in named]
        self._rest = plan_scan(
            self._reading, self._lake._files, predicate=condition,
            columns=tuple(dict.fromkeys((*self._rest_fields, *extra))),
        )  # fmt: skip

    def all_rows(self) -> Iterator[Found]:
        """Yield the rows of ``plan_all``, with their partners if they have any."""
        return self._joined(self._rest, self._rest_fields)


def _found_again(piece: Piece, ids: Indices, numbers: Indices) -> Found:
    """Match rows that were read by position: ``numbers`` are the key numbers of the rows with these ids."""
    order = np.argsort(ids, kind="stable")
    at = np.searchsorted(ids, piece.batch.column(ROW_ID).to_numpy(), sorter=order)
    return Found(piece, np.arange(piece.batch.num_rows), numbers[order[at]])


def plain(array: pa.Array, f: Field) -> pa.Array:
    """Return a column's values without dictionary or view."""
    return convert(array, plain_type(f))


def only(piece: Piece, indices: Indices) -> Piece:
    """Return some rows of a piece by row id alone, which is enough to close them."""
    ids = piece.batch.column(ROW_ID).take(pa.array(indices))
    begins = None if piece.begins is None else take(piece.begins, pa.array(indices))
    return replace(piece, batch=pa.RecordBatch.from_arrays([ids], [ROW_ID]), begins=begins)
