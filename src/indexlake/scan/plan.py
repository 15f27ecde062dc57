"""The scan plan: everything a read needs, fixed at one snapshot.

Hot rows come out of the same catalog transaction as the block list, so no concurrent dump can hide or double a
row.  After planning nothing depends on the catalog any more: a plan has the checksums of files that are not open.
Tasks are plain values without secrets: they can be printed, pickled and run elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, SupportsBytes

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.blocks.block import BlockRecord
from indexlake.catalog.checksums import bytes_of
from indexlake.expr.test import ALWAYS, Test
from indexlake.hot.rows import HotRows
from indexlake.scan.access import ByStatistics, choose_path, file_test, places_of_keys, uncovered
from indexlake.schema import ROW_ID, Field, TableSchema
from indexlake.snapshots.state import TableState, without_collection

if TYPE_CHECKING:
    from indexlake.blocks.open_files import OpenFiles
    from indexlake.commit.write_set import TableWrites
    from indexlake.expr import Bound
    from indexlake.indexes.keys import KeyColumn
    from indexlake.scan.lookup import Covered
    from indexlake.snapshots.reading import Reading

Kind = Literal["block", "history", "own block"]

KeyBounds = tuple[bytes, bytes]
"""The first and last keys of a block that is sorted by key, as bytes in key order."""


@dataclass(frozen=True, slots=True)
class BlockTask:
    """How to read one block: its live positions, filtered by version if the block is younger than the snapshot."""

    kind: Kind
    file_id: int
    path: str
    format: str
    size: int
    checksum: SupportsBytes
    record_count: int
    fields: tuple[Field, ...]  # the columns that the file holds
    begin_snapshot: int
    deleted: bytes | None  # serialised positions
    only: npt.NDArray[np.uint64] | None  # candidates, found through keys, row ids or indexes
    versions_up_to: int | None  # None: every row of the block is old enough
    shown: tuple[Field, ...] = ()  # the columns at the snapshot, which a predicate may name
    covered: Covered | None = None  # an index segment that also holds some columns of these rows
    rows: tuple[int, int] | None = None  # only chunks that begin at positions from … up to …; None: all


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """One read of one table at one snapshot."""

    table: str
    snapshot: int
    schema: TableSchema  # of the snapshot
    predicate: Bound | None
    hot: HotRows
    tasks: tuple[BlockTask, ...]
    hidden_rows: npt.NDArray[np.int64] | None = None  # rows that the reading transaction itself has closed
    notes: Mapping[str, Any] = field(default_factory=dict)
    key_bounds: Mapping[int, KeyBounds] | None = None  # by file id; rows are to be returned in key order

    @property
    def row_bytes(self) -> int:
        """A rough size of the widest rows, from the sizes of the files that they are in."""
        blocks = max((task.size // max(1, task.record_count) for task in self.tasks), default=0)
        return max(blocks, self.hot.size // max(1, self.hot.count))


def plan_scan(
    reading: Reading,
    files: OpenFiles,
    *,
    predicate: Bound | None,
    columns: Sequence[Field],
    counting: bool = False,
    test: Test | None = None,
) -> ScanPlan:
    """Plan inside the read transaction of ``reading``; ``columns`` are the fields that hot rows must carry.

    ``counting``: if nothing filters the hot rows, only their number is determined, and few blocks are opened, if any.
    ``test``: the predicate's test on file columns, if the caller has it already.
    """
    test = file_test(predicate, reading.schema) if test is None else test
    notes: dict[str, Any] = {"blocks": len(reading.state.blocks)}
    tasks: list[BlockTask] = []
    hot = HotRows(columns, files.storage.spill)
    if not reading.truncated:
        if counting and predicate is None and reading.writes is None:
            hot.count = reading.hot.count()
        else:
            hot = reading.hot.rows(columns, test)
        tasks, found = plan_blocks(reading, files, test, opening=not counting)
        notes |= found
    return _with_own_writes(reading, hot, tasks, predicate, notes)


@without_collection()
def plan_blocks(
    reading: Reading, files: OpenFiles, test: Test, *, opening: bool = False
) -> tuple[list[BlockTask], dict[str, Any]]:
    """Return tasks for the committed rows in blocks that may satisfy the test, and notes on how they were found.

    ``opening``: the blocks will be opened, so the checksums of those that are not open are read together.
    """
    path = choose_path(reading, files, test, ByStatistics(reading, test))
    places = list(path.places)
    closed = [block for block, _, _ in places if files.open_reader(block.path) is None] if opening else []
    checksums = dict(zip([b.data_file_id for b in closed], bytes_of([b.checksum for b in closed]), strict=True))
    tasks = [
        block_task(reading.state, block, reading.snapshot, only, covered, checksums.get(block.data_file_id))
        for block, only, covered in places
    ]
    notes: dict[str, Any] = {"found by": path.found_by, "offers": path.offers, "segments": path.segments}
    if reading.state.ranges is not None:
        notes["partitions"] = [b for b, _, _ in places if b.partition_id is not None], reading.state.ranges
    return tasks, notes


def plan_keys(
    reading: Reading, files: OpenFiles, keys: KeyColumn, columns: Sequence[Field], test: Test = ALWAYS,
    *, blocks: bool = True,
) -> ScanPlan:  # fmt: skip
    """Plan to read all rows that have one of the primary keys, possibly with others; ``test`` is applied to statistics.

    ``blocks=False`` leaves out the blocks that the primary key's index covers, because the caller searches it itself.
    """
    tasks: list[BlockTask] = []
    hot = HotRows(columns, files.storage.spill)
    if not reading.truncated:
        hot = reading.hot.rows_with(keys, columns)
        chosen = [] if reading.newest else ByStatistics(reading, test)  # the key index covers all blocks
        assert reading.state.primary is not None
        places = places_of_keys(reading, files, chosen, keys) if blocks else uncovered(chosen, reading.state.primary)
        tasks = [block_task(reading.state, block, reading.snapshot, only) for block, only in places]
    return _with_own_writes(reading, hot, tasks, None, {})


def _with_own_writes(
    reading: Reading, hot: HotRows, tasks: list[BlockTask], predicate: Bound | None, notes: Mapping[str, Any]
) -> ScanPlan:
    """Return the plan, with the reading transaction's own deletes and rows applied."""
    state, writes, hidden = reading.state, reading.writes, None
    if writes is not None:
        if writes.closed:
            hidden = np.frombuffer(writes.closed.to_array(), np.uint64).astype(np.int64)
        tasks += own_tasks(state, writes)
        hot = hot.without(hidden)
        hot.read_own(writes.rows, state.current)
    return ScanPlan(
        state.table.full_name, reading.snapshot, reading.schema, predicate, hot, tuple(tasks), hidden, notes
    )


def block_task(
    state: TableState,
    block: BlockRecord,
    snapshot: int,
    only: npt.NDArray[np.uint64] | None = None,
    covered: Covered | None = None,
    checksum: bytes | None = None,
) -> BlockTask:
    """Return a task for the rows of a block that are visible at the snapshot, all or those at some positions.

    ``checksum``: the file's checksum, if it has been read already.
    """
    log = state.deletes.get(block.data_file_id)
    deleted: bytes | None = None
    if log is not None:
        if only is not None and len(only) == 1:
            # A point read needs no bitmap.
            if log.contains(int(only[0]), snapshot):
                only = only[:0]
        else:
            gone = log.at(snapshot)
            deleted = gone.serialize() if gone else None
    history = block.role == "history"
    return BlockTask(
        "history" if history else "block", block.data_file_id, block.path, block.format, block.size,
        checksum or block.checksum, block.record_count, state.schema.at(block.schema_snapshot).fields,
        block.begin_snapshot, deleted, only, snapshot if history or block.max_snapshot > snapshot else None,
        state.as_of(snapshot).current.fields, covered,
    )  # fmt: skip


def own_tasks(state: TableState, writes: TableWrites) -> list[BlockTask]:
    """Return tasks for the blocks that the reading transaction has written but not committed."""
    return [
        BlockTask(
            "own block", block.token, block.file.path, block.format, block.file.size, block.file.checksum,
            block.record_count, state.current.fields, 0, block.dead.serialize() if block.dead else None, None, None,
            state.current.fields,
        )
        for block in writes.own_live_blocks()
    ]  # fmt: skip


_SCHEMAS = 256
_schemas: dict[tuple[int, ...], tuple[Sequence[Field], pa.Schema]] = {}


def arrow_schema(fields: Sequence[Field], *, row_id: bool) -> pa.Schema:
    """Return the schema of a result.  It is cached: while a table's columns stay the same, so do its field objects."""
    key = (row_id, *map(id, fields))
    known = _schemas.get(key)
    if known is None:
        shown = [f.arrow() for f in fields]
        known = tuple(fields), pa.schema([*shown, pa.field(ROW_ID, pa.int64(), False)] if row_id else shown)
        if len(_schemas) >= _SCHEMAS:
            _schemas.clear()
        _schemas[key] = known
    return known[1]
