"""Runs a scan plan in this process: blocks in parallel with bounded prefetch, then the hot rows.

``read_task`` is the one piece of code that turns a block task into rows, wherever it runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from indexlake.arrow import kernels as pc
from indexlake.arrow.buffers import fixed_values
from indexlake.arrow.values import scalar_of
from indexlake.blocks.delete_vector import is_among, positions_from_bytes
from indexlake.scan.plan import BlockTask, ScanPlan, arrow_schema
from indexlake.scan.prefetch import Prefetch
from indexlake.schema import END, ROW_ID, VERSION, Field, TableSchema
from indexlake.schema.lineage import file_columns, file_values
from indexlake.types import selection
from indexlake.types.dictionaries import is_text

if TYPE_CHECKING:
    from indexlake.blocks.formats import BlockReader
    from indexlake.blocks.open_files import OpenFiles
    from indexlake.expr import Bound
    from indexlake.scan.lookup import Covered

SMALL_TASKS, SMALL_ROWS = 16, 8
"""Up to this many blocks with up to this many selected rows each are read without threads,"""

LOCAL_ROWS = 128
"""and so are up to this many rows in total on local storage: threads would cost more than they save."""

BATCH_ROWS = 65_536
NONE = np.zeros(0, np.int64)
SPREAD_ROWS = 2 * BATCH_ROWS
"""How many rows of a block one thread reads while others read the rest."""
FEW_DELETED = 0.1
FIRST_PART_ROWS = 8_192
PART_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows from one source.  Columns have the names that users gave them, then comes the row id if it was asked for."""

    kind: str  # "hot" | "own" | "block" | "history" | "own block"
    file_id: int
    batch: pa.RecordBatch
    begins: Any = None  # hot rows only: the snapshot in which each began


def read_task(
    task: BlockTask,
    files: OpenFiles,
    fields: Sequence[Field],
    predicate: Bound | None,
    *,
    row_id: bool,
    version: bool = False,
    hidden: npt.NDArray[np.int64] | None = None,
    dictionaries: Collection[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield the visible rows of a block that satisfy the predicate, with exactly the columns asked for.

    ``version`` adds, as the last column, the snapshot in which each row version was committed.  Text columns named in
    ``dictionaries`` may come dictionary-encoded, as the file holds them.
    """
    gone = _few_deleted(task)
    positions = _positions(task) if gone is None else None
    if positions is not None and not len(positions):
        return
    if not version and is_covered(task, fields, predicate, row_id=row_id, hidden=hidden):
        assert task.covered is not None
        yield from _read_covered(task.covered, positions, files, fields, predicate, task.shown)
        return
    if task.fields is task.shown:  # the file holds the columns as they are
        pushed, columns, named = predicate, list(dict.fromkeys([f.column for f in fields])), []
    else:
        in_file = {f.field_id for f in task.fields}
        named = [] if predicate is None else [f for f in task.shown if f.name in predicate.columns]
        # A predicate on a column that the file lacks can only be evaluated once that column's values are filled in.
        pushed = predicate if all(f.field_id in in_file for f in named) else None
        columns = file_columns(fields if predicate is None or pushed is not None else [*fields, *named], in_file)
    has_versions, history = task.versions_up_to is not None, task.kind == "history"
    hidden_columns = []
    if row_id or hidden is not None or (pushed is None and predicate is not None and ROW_ID in predicate.columns):
        hidden_columns.append(ROW_ID)
    if has_versions or version:
        hidden_columns.append(VERSION)
    if history:
        hidden_columns.append(END)
    reader = _reader(task, files)
    bound = _in_file_columns(task, pushed) if pushed is not None else None
    asked = [*columns, *hidden_columns] or [ROW_ID]
    held: Collection[str] = ()
    if dictionaries and pushed is predicate:
        held = {f.column for f in fields if f.name in dictionaries}.intersection(columns)
    early = gone is not None and (bound is not None or not selection.are_sparse(gone, task.record_count))
    deleted_rows = _DeletedRows(reader, task.rows, gone) if gone is not None and not early else None
    for batch in reader.read(asked, positions, bound, BATCH_ROWS, held, task.rows, gone if early else None):
        keep = _visible(batch, task, hidden)
        drop = deleted_rows.among(batch.num_rows) if deleted_rows is not None else NONE
        if keep is not None or (len(drop) and predicate is not None):
            live = selection.others(batch.num_rows, drop)
            batch = selection.keep(batch, live if keep is None else pc.and_(keep, live))
            drop = NONE
        if not batch.num_rows:
            continue
        rows = _dressed(batch, fields, row_id=row_id)
        if version:
            begun = pc.fill_null(batch.column(VERSION), scalar_of(task.begin_snapshot, pa.int64()))
            rows = rows.append_column(pa.field(VERSION, pa.int64(), False), begun)
        if predicate is not None and pushed is None:
            dressed = _dressed(batch, named, row_id=ROW_ID in predicate.columns)
            rows = selection.keep(rows, predicate.mask(dressed))
            if not rows.num_rows:
                continue
        yield from selection.without(rows, drop) if len(drop) else (rows,)


class _DeletedRows:
    """Finds the deleted rows in the batches of a read, which must return every row of the chunks it covers."""

    def __init__(self, reader: BlockReader, rows: tuple[int, int] | None, gone: npt.NDArray[np.uint64]) -> None:
        starts = reader.chunk_starts()
        self._next = 0 if rows is None else int(starts[np.searchsorted(starts, rows[0])])
        self._gone = gone.astype(np.int64)

    def among(self, count: int) -> npt.NDArray[np.int64]:
        """Return the indices of the deleted rows among the next ``count`` rows."""
        start, self._next = self._next, self._next + count
        first, end = np.searchsorted(self._gone, [start, self._next])
        return self._gone[first:end] - start


def _in_file_columns(task: BlockTask, predicate: Bound) -> Bound:
    return predicate.renamed({f.name: f.column for f in task.shown if f.name in predicate.columns})


def parts_of(
    task: BlockTask, files: OpenFiles, predicate: Bound | None, *, backward: bool = False
) -> Iterator[BlockTask]:
    """Split the task between chunks of its file, in row order; the first parts are the smallest.

    Chunks in which no row can satisfy the predicate are left out.
    """
    reader = _reader(task, files)
    starts = reader.chunk_starts().astype(np.int64)
    wanted, live = task.only, None
    if wanted is not None:
        wanted = _positions(task)
    else:
        if task.deleted is not None:
            live = _others(positions_from_bytes(task.deleted), task.record_count)
        in_file = {f.name for f in task.shown if f.field_id in {g.field_id for g in task.fields}} | {ROW_ID}
        if predicate is not None and predicate.columns <= in_file:
            survivors = reader.surviving(_in_file_columns(task, predicate))
            if survivors is not None:
                rows = np.repeat(survivors, np.diff(starts))
                live = rows if live is None else live & rows
    cuts = starts if wanted is None else np.searchsorted(wanted, starts)
    most = max(1, min(BATCH_ROWS, PART_BYTES * task.record_count // max(1, task.size)))
    for start, end in _spans(cuts, FIRST_PART_ROWS, most, backward=backward):
        if wanted is not None:
            only = wanted[start:end]
        elif live is not None:
            only = (np.flatnonzero(live[start:end]) + start).astype(np.uint64)
        else:
            only = np.arange(start, end, dtype=np.uint64)
        if len(only):
            yield replace(task, only=only, deleted=None)


def _spans(cuts: Any, rows: int, most: int, *, backward: bool) -> Iterator[tuple[int, int]]:
    """Yield consecutive spans between cuts, from either end; spans double in size, up to ``most`` rows."""
    first, last = 0, len(cuts) - 1
    while first < last:
        size = min(rows, most)
        if backward:
            at = min(last - 1, int(np.searchsorted(cuts, cuts[last] - size)))
            yield int(cuts[at]), int(cuts[last])
            last = at
        else:
            at = max(first + 1, int(np.searchsorted(cuts, cuts[first] + size, "right")) - 1)
            yield int(cuts[first]), int(cuts[at])
            first = at
        rows *= 2


def is_covered(
    task: BlockTask,
    fields: Sequence[Field],
    predicate: Bound | None,
    *,
    row_id: bool,
    hidden: npt.NDArray[np.int64] | None = None,
) -> bool:
    """Return whether an index segment holds all that is needed of the rows, so that the block is not opened."""
    if task.covered is None or task.versions_up_to is not None or row_id or hidden is not None:
        return False
    names = set() if predicate is None else set(predicate.columns)
    needed = {f.field_id for f in fields} | {f.field_id for f in task.shown if f.name in names}
    return needed <= set(task.covered.field_ids) and ROW_ID not in names


def _read_covered(
    covered: Covered,
    positions: Any,
    files: OpenFiles,
    fields: Sequence[Field],
    predicate: Bound | None,
    shown: Sequence[Field],
) -> Iterator[pa.RecordBatch]:
    """Yield the rows from an index segment that holds every column needed, without opening the block."""
    names = {f.field_id: f.name for f in shown}
    segment = files.segment(covered.segment, covered.index.open)
    for found in segment.rows(positions.astype(np.int64) + covered.start):
        batch = pa.RecordBatch.from_arrays(found.columns, [names[i] for i in covered.field_ids])
        if predicate is not None:
            batch = selection.keep(batch, predicate.mask(batch))
        if batch.num_rows:
            yield _shown(batch, [batch.column(f.name) for f in fields], fields, row_id=False)


def _reader(task: BlockTask, files: OpenFiles) -> BlockReader:
    known = files.open_reader(task.path)
    if known is not None:
        return known
    schema = TableSchema(task.fields)
    file_schema = schema.history_file if task.kind == "history" else schema.file
    return files.reader_of(task.path, task.format, task.size, task.checksum, file_schema)


def _few_deleted(task: BlockTask) -> npt.NDArray[np.uint64] | None:
    """Return the deleted positions if they are few and nothing else selects rows: dropping them is then cheaper."""
    if task.deleted is None or task.only is not None or task.kind == "history":
        return None
    gone = positions_from_bytes(task.deleted)
    return None if len(gone) > FEW_DELETED * task.record_count else _as_array(gone)


def _positions(task: BlockTask) -> npt.NDArray[np.uint64] | None:
    if task.deleted is None:
        return task.only
    gone = positions_from_bytes(task.deleted)
    if task.only is not None:
        return task.only[~is_among(task.only, gone)]
    first, end = task.rows or (0, task.record_count)
    return (np.flatnonzero(_others(gone, task.record_count)[first:end]) + first).astype(np.uint64)


def _others(gone: BitMap, count: int) -> npt.NDArray[np.bool_]:
    """Return a mask of ``count`` rows that is true for those not in ``gone``."""
    live = np.ones(count, np.bool_)
    live[_as_array(gone)] = False
    return live


def _as_array(positions: BitMap) -> npt.NDArray[np.uint64]:
    return np.frombuffer(positions.to_array(), np.uint32).astype(np.uint64)


def _visible(batch: pa.RecordBatch, task: BlockTask, hidden: npt.NDArray[np.int64] | None) -> Any:
    keep: Any = None
    if task.versions_up_to is not None:
        versions = pc.fill_null(batch.column(VERSION), scalar_of(task.begin_snapshot, pa.int64()))
        keep = pc.less_equal(versions, scalar_of(task.versions_up_to, pa.int64()))
        if task.kind == "history":
            keep = pc.and_(keep, pc.greater(batch.column(END), scalar_of(task.versions_up_to, pa.int64())))
    if hidden is not None and task.kind != "own block":
        own = selection.as_mask(~np.isin(fixed_values(batch.column(ROW_ID), np.int64), hidden))
        keep = own if keep is None else pc.and_(keep, own)
    return keep


def _dressed(batch: pa.RecordBatch, fields: Sequence[Field], *, row_id: bool) -> pa.RecordBatch:
    """Return the columns under their user-facing names; those added after the file was written are filled in."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    return _shown(batch, [file_values(f, columns, batch.num_rows) for f in fields], fields, row_id=row_id)


def _shown(batch: pa.RecordBatch, arrays: list[Any], fields: Sequence[Field], *, row_id: bool) -> pa.RecordBatch:
    """Return a batch of exactly the fields and row id asked for; if that is nothing, one column for the row count."""
    if not fields and not row_id:
        return pa.RecordBatch.from_arrays([batch.columns[-1]], ["_"])
    schema = arrow_schema(fields, row_id=row_id)
    for n, (f, array) in enumerate(zip(fields, arrays, strict=True)):
        if array.type != f.type or pa.types.is_nested(
            f.type
        ):  # equal nested types may still differ in the names of their inner fields
            schema = schema.set(n, schema.field(n).with_type(array.type))
    return pa.RecordBatch.from_arrays([*arrays, batch.column(ROW_ID)] if row_id else arrays, schema=schema)


def hot_pieces(plan: ScanPlan, fields: Sequence[Field], *, row_id: bool) -> Iterator[Piece]:
    """Yield the matching hot rows, the transaction's own last."""
    for batch in plan.hot.batches():
        names = [*(f.name for f in plan.hot.fields), ROW_ID]
        shown = pa.RecordBatch.from_arrays(batch.columns[: len(names)], names)
        begins = batch.column(VERSION)
        if plan.predicate is not None:
            mask = plan.predicate.mask(shown)
            shown, begins = selection.keep(shown, mask), begins.filter(mask)
        if not shown.num_rows:
            continue
        own = begins.null_count == len(begins)
        result = _shown(shown, [shown.column(f.name) for f in fields], fields, row_id=row_id)
        yield Piece("own" if own else "hot", 0, result, begins)


def dictionary_columns(plan: ScanPlan, files: OpenFiles, fields: Sequence[Field]) -> list[str]:
    """Return the text columns that are dictionary-encoded at the start of the plan's first Vortex block."""
    task = next((t for t in plan.tasks if t.format == "vortex"), None)
    if task is None:
        return []
    in_file = {f.field_id for f in task.fields}
    text = {f.column: f.name for f in fields if f.field_id in in_file and is_text(f.type)}
    return [text[column] for column in _reader(task, files).dictionary_columns(list(text))] if text else []


def pieces(
    plan: ScanPlan,
    files: OpenFiles,
    workers: int,
    fields: Sequence[Field],
    *,
    row_id: bool,
    dictionaries: Collection[str] = (),
) -> Iterator[Piece]:
    """Yield all rows of the plan: blocks in plan order, then hot rows.  For ``dictionaries`` see ``read_task``."""

    def read(task: BlockTask) -> Iterator[pa.RecordBatch]:
        return read_task(
            task, files, fields, plan.predicate, row_id=row_id, hidden=plan.hidden_rows, dictionaries=dictionaries
        )

    copies = files.storage.is_local and (plan.predicate is None or plan.predicate.condition().exact)
    alone = {"vortex", "ipc"} if copies else {"vortex"}
    tasks = [part for task in plan.tasks for part in _spread(task, alone)] if workers > 1 else plan.tasks
    if workers < 2 or len(tasks) < 2 or _is_small(plan, files):
        for task in tasks:
            for batch in read(task):
                yield Piece(task.kind, task.file_id, batch)
    else:
        with Prefetch(read, min(workers, len(tasks))) as ahead:
            for task, batch in ahead.in_order(tasks):
                yield Piece(task.kind, task.file_id, batch)
    yield from hot_pieces(plan, fields, row_id=row_id)


def _spread(task: BlockTask, alone: Collection[str]) -> Iterator[BlockTask]:
    """Split the task for several threads, unless it is small or one thread is to read files of this format alone.

    Vortex has threads of its own. Rows of an Arrow file are only copied, or compared with constants, in calls so short
    that several threads would mostly wait for the interpreter.
    """
    if task.only is not None or task.record_count <= SPREAD_ROWS or task.format in alone:
        yield task
        return
    for first in range(0, task.record_count, SPREAD_ROWS):
        yield replace(task, rows=(first, first + SPREAD_ROWS))


def _is_small(plan: ScanPlan, files: OpenFiles) -> bool:
    """Return whether starting threads would take longer than reading everything."""
    counts = [len(task.only) for task in plan.tasks if task.only is not None]
    if len(counts) < len(plan.tasks):
        return False
    few = len(counts) <= SMALL_TASKS and max(counts) <= SMALL_ROWS
    return few or (files.storage.is_local and sum(counts) <= LOCAL_ROWS)
