"""Which rows of a table the rows of a source match.

Where ``on`` names the whole primary key, rows are found through the key segments and the database's own index, so that
the cost follows the source.  Otherwise the columns of ``on`` are scanned, with the source's values as a condition
that prunes blocks and rows; the other columns are read of the rows that matched.  Planned in one read transaction,
run after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.blocks.block import BlockRecord
from indexlake.catalog import inline
from indexlake.catalog.driver import ReadTransaction
from indexlake.commit.key_check import decode_key
from indexlake.merge.keys import SourceKeys, plain_type
from indexlake.merge.on import On
from indexlake.merge.source import one_batch
from indexlake.scan.execute import Piece, pieces, read_task
from indexlake.scan.hot_rows import HotRows
from indexlake.scan.plan import BlockTask, ScanPlan, block_task, own_tasks, plan_scan
from indexlake.schema import ROW_ID, Field
from indexlake.state import TableState
from indexlake.types.convert import convert
from indexlake.types.floats import is_float
from indexlake.types.selection import take

if TYPE_CHECKING:
    from indexlake.expr import Bound
    from indexlake.transaction import Transaction

Indices = npt.NDArray[np.int64]

FEW_VALUES = 500
"""Up to so many distinct values of a column are looked for one by one; of more, only their range is."""

HOT_LOOKUPS = 10_000
"""Up to so many keys are looked up among the hot rows; of more, all hot rows are compared with them."""

FEW_LOOKUPS = 500
"""More keys than that are looked up only where there are more hot rows than keys."""

_SLICE = 65_536


@dataclass(frozen=True, slots=True)
class Found:
    """Rows of the table, and which of them have which keys of the source."""

    piece: Piece
    indices: Indices  # into the piece
    numbers: Indices  # of their keys


class Matching:
    """A search for the rows of a table that match a source.  ``fields``: the columns to bring along."""

    def __init__(self, tx: Transaction, state: TableState, snapshot: int, on: On, keys: SourceKeys) -> None:
        self._tx = tx
        self._state = state
        self._snapshot = snapshot
        self._on = on
        self._keys = keys
        self._by_key = on.covers_key(state.current)
        self._primary = keys.primary(len(state.current.key_fields)) if self._by_key else keys.column

    # ------------------------------------------------------------ rows with a partner

    def plan(self, r: ReadTransaction, fields: Sequence[Field]) -> None:
        state, lake = self._state, self._tx._lake
        self._fields = tuple(fields)
        self._all = tuple(dict.fromkeys((*self._on.fields, *fields)))
        if not self._by_key:
            self._plan = plan_scan(
                r, state, self._snapshot, lake._files, predicate=self._predicate(), columns=self._all,
                newest=self._snapshot == state.at, writes=self._writes,
            )  # fmt: skip
            return
        writes = self._writes
        tasks: list[BlockTask] = []
        hot = HotRows(self._all, lake.storage.spill)
        hidden = None
        if writes is None or not writes.truncate:
            self._read_hot(r, hot)
            if self._snapshot != state.at:
                visible = state.blocks.visible_at(self._snapshot)
                tasks = [
                    block_task(state, block, self._snapshot)
                    for block, seen in zip(state.blocks.records, visible, strict=True)
                    if seen and block.role == "history"
                ]
        if writes is not None:
            if writes.closed:
                hidden = np.frombuffer(writes.closed.to_array(), np.uint64).astype(np.int64)
            tasks += own_tasks(state, writes)
            hot = hot.without(hidden)
            hot.read_own(writes.rows, state.current)
        self._plan = ScanPlan(state.table.full_name, self._snapshot, state.current, None, hot, tuple(tasks), hidden, {})

    @property
    def _writes(self) -> Any:
        return self._tx.own_writes(self._state.table.table_id)

    def _read_hot(self, r: ReadTransaction, hot: HotRows) -> None:
        state, schema = self._state, self._state.current
        keys, newest = self._primary, self._snapshot == state.at
        if (
            len(keys) <= HOT_LOOKUPS
            and not any(is_float(codec) for codec in schema.key_codecs)
            and (
                len(keys) <= FEW_LOOKUPS
                or inline.has_more_visible(r, state.table, self._snapshot, len(keys), newest=newest)
            )
        ):
            encoded = (decode_key(state, key) for key in keys)
            rows = inline.rows_with_keys(r, state.table.table_id, schema.key_columns, encoded, hot.columns)
            hot.read(row for row in rows if inline.is_visible(row, self._snapshot, state.table))
        else:
            hot.read(inline.visible_rows(r, state.table, self._snapshot, hot.columns, newest=newest))

    def rows(self) -> Iterator[Found]:
        """The rows that have partners, with the columns asked for and their row ids."""
        if not self._by_key:
            yield from self._scanned()
            return
        truncated = self._writes is not None and self._writes.truncate
        if not truncated:
            yield from self._by_segments()
        for piece in self._pieces(self._plan, self._all):
            found = self._join(piece)
            if len(found.indices):
                yield found

    def _pieces(self, plan: ScanPlan, fields: Sequence[Field]) -> Iterator[Piece]:
        lake = self._tx._lake
        return pieces(plan, lake._files, lake._scan_threads, fields, row_id=True)

    def _join(self, piece: Piece) -> Found:
        arrays = [plain(piece.batch.column(f.name), f) for f in self._on.fields]
        return Found(piece, *self._keys.find(arrays))

    def _by_segments(self) -> Iterator[Found]:
        state, files = self._state, self._tx._lake._files
        hits = state.finder.find_many(self._primary, state, self._snapshot, files)
        for block, numbers, positions in hits:
            order = np.argsort(positions, kind="stable")
            for at in range(0, len(order), _SLICE):
                some = order[at : at + _SLICE]
                yield from self._at_positions(block, positions[some], numbers[some])

    def _at_positions(self, block: BlockRecord, positions: Indices, numbers: Indices) -> Iterator[Found]:
        """Rows at ascending positions of a block, which hold the keys of these numbers."""
        state, hidden = self._state, self._plan.hidden_rows
        ids = state.row_ids(block).row_ids_at(positions)
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
        """Blocks: the columns of ``on`` first, the others of the rows that matched.  Other rows: all at once."""
        late = {t.file_id: t for t in self._plan.tasks if t.kind != "history"}
        rest = tuple(f for f in self._fields if f not in self._on.fields)
        if not rest:
            late = {}
        later = replace(self._plan, tasks=tuple(late.values()), hot=HotRows(self._all)) if late else None
        if later is not None:
            for piece in self._pieces(later, self._on.fields):
                found = self._join(piece)
                if len(found.indices):
                    yield from self._completed(found, late[piece.file_id])
        now = replace(self._plan, tasks=tuple(t for t in self._plan.tasks if t.file_id not in late))
        for piece in self._pieces(now, self._all):
            found = self._join(piece)
            if len(found.indices):
                yield found

    def _completed(self, found: Found, task: BlockTask) -> Iterator[Found]:
        """The same rows with all columns, and only those rows."""
        ids = found.piece.batch.column(ROW_ID).to_numpy()[found.indices]
        state = self._state
        if task.kind == "block":
            record = state.blocks.record(task.file_id)
            assert record is not None
            positions = state.row_ids(record).positions_of(ids)
        else:
            positions = self._writes.blocks[-task.file_id - 1].row_ids.positions_of(ids)
        only = replace(task, only=np.sort(positions).astype(np.uint64))
        for batch in self._read(only, self._all):
            yield _found_again(replace(found.piece, batch=batch), ids, found.numbers)

    def _read(self, task: BlockTask, fields: Sequence[Field]) -> Iterable[pa.RecordBatch]:
        """The rows of a task, which are few; in one batch where their types allow it."""
        files, hidden = self._tx._lake._files, self._plan.hidden_rows
        batches = list(read_task(task, files, fields, None, row_id=True, hidden=hidden))
        if len(batches) < 2 or any(f.type != plain_type(f) for f in fields):
            return batches
        return [one_batch(pa.Table.from_batches(batches))]

    def _predicate(self) -> Bound | None:
        """What a row must satisfy to have one of the source's values, as far as it can be said briefly."""
        from indexlake.expr import compile

        parts: list[str] = []
        params: dict[str, Any] = {}
        for n, f in enumerate(self._on.fields):
            found = self._keys.bounds(n, FEW_VALUES)
            if found is None:
                continue
            values, low, high = found
            name = '"' + f.name.replace('"', '""') + '"'
            if values is not None:
                parts.append(f"{name} in $v{n}")
                params[f"v{n}"] = values
            else:
                parts.append(f"{name} >= $low{n} and {name} <= $high{n}")
                params |= {f"low{n}": low, f"high{n}": high}
        if not parts:
            return None
        return compile(" and ".join(parts), self._state.current.arrow_with_row_id, params)

    # ------------------------------------------------------------ rows without one

    def plan_all(self, r: ReadTransaction, fields: Sequence[Field], condition: Bound | None) -> None:
        """All rows that satisfy a condition on the table's own columns."""
        state = self._state
        self._rest_fields = tuple(dict.fromkeys((*self._on.fields, *fields)))
        named = () if condition is None else condition.columns
        extra = [f for f in state.current.fields if f.name in named]
        self._rest = plan_scan(
            r, state, self._snapshot, self._tx._lake._files, predicate=condition,
            columns=tuple(dict.fromkeys((*self._rest_fields, *extra))), newest=self._snapshot == state.at,
            writes=self._writes,
        )  # fmt: skip

    def all_rows(self) -> Iterator[Found]:
        """Those, with what partners they have."""
        for piece in self._pieces(self._rest, self._rest_fields):
            yield self._join(piece)


def _found_again(piece: Piece, ids: Indices, numbers: Indices) -> Found:
    """Rows that were read by their positions: ``numbers`` are those of the keys of the rows with these ids."""
    order = np.argsort(ids, kind="stable")
    at = np.searchsorted(ids, piece.batch.column(ROW_ID).to_numpy(), sorter=order)
    return Found(piece, np.arange(piece.batch.num_rows), numbers[order[at]])


def plain(array: pa.Array, f: Field) -> pa.Array:
    """A column's values without dictionary or view."""
    return convert(array, plain_type(f))


def only(piece: Piece, indices: Indices) -> Piece:
    """Some rows of a piece, by row id alone: what is needed to close them."""
    ids = piece.batch.column(ROW_ID).take(pa.array(indices))
    begins = None if piece.begins is None else take(piece.begins, pa.array(indices))
    return replace(piece, batch=pa.RecordBatch.from_arrays([ids], [ROW_ID]), begins=begins)
