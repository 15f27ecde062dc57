"""The scan plan: everything a read needs, fixed at one snapshot.

Hot rows come out of the same catalog transaction as the block list, so no concurrent dump can hide or double a
row.  After planning nothing depends on the catalog any more.  Tasks are plain values without secrets: they can be
printed, pickled and run elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.blocks.block import BlockRecord
from indexlake.catalog import inline
from indexlake.catalog.driver import ReadTransaction
from indexlake.errors import ConstraintError
from indexlake.evolution.lineage import older_tests
from indexlake.expr.test import ALWAYS, All, Any_, ColumnTest, Test
from indexlake.keys.encoding import Key, KeyColumn, encode_key
from indexlake.scan.hot_rows import HotRows
from indexlake.schema import ROW_ID, Field, TableSchema
from indexlake.state import TableState
from indexlake.types import Codec

if TYPE_CHECKING:
    from indexlake.blocks.open_files import OpenFiles
    from indexlake.commit.write_set import TableWrites
    from indexlake.expr import Bound

MOST_KEYS = 10_000
"""A predicate that names up to so many primary keys is answered through the key segments."""

Kind = Literal["block", "history", "own block"]


@dataclass(frozen=True, slots=True)
class BlockTask:
    """Read one block: its live positions, filtered by version where the block is younger than the snapshot."""

    kind: Kind
    file_id: int
    path: str
    format: str
    size: int
    checksum: bytes
    record_count: int
    fields: tuple[Field, ...]  # what the file holds
    begin_snapshot: int
    deleted: bytes | None  # serialised positions
    only: npt.NDArray[np.uint64] | None  # candidates found through keys or row ids
    versions_up_to: int | None  # None: every row of the block is old enough
    shown: tuple[Field, ...] = ()  # the columns at the snapshot: what a predicate may name


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

    @property
    def row_bytes(self) -> int:
        """About what the widest rows take, by the sizes of the files that they are in."""
        blocks = max((task.size // max(1, task.record_count) for task in self.tasks), default=0)
        return max(blocks, self.hot.size // max(1, self.hot.count))


def plan_scan(
    r: ReadTransaction,
    state: TableState,
    snapshot: int,
    files: OpenFiles,
    *,
    predicate: Bound | None,
    columns: Sequence[Field],
    newest: bool,
    writes: TableWrites | None = None,
    counting: bool = False,
) -> ScanPlan:
    """Plan inside a read transaction; ``columns`` are the fields that hot rows must carry.

    ``counting``: only the number of hot rows is asked for, and no predicate chooses among them.
    """
    schema = state.as_of(snapshot).current
    test = file_test(predicate, schema)
    notes: dict[str, Any] = {"blocks": len(state.blocks)}
    hidden = None
    if writes is not None and writes.closed:
        hidden = np.frombuffer(writes.closed.to_array(), np.uint64).astype(np.int64)
    if writes is not None and writes.truncate:
        hot, tasks = HotRows(columns, files.storage.spill), []
    else:
        hot = HotRows(columns, files.storage.spill)
        if counting and predicate is None and writes is None:
            hot.count = inline.count_visible(r, state.table, snapshot, newest=newest)
        else:
            found = inline.visible_rows(
                r, state.table, snapshot, hot.columns, test, schema.column_codecs, schema.column_since, newest=newest
            )
            hot.read(found)
        tasks = _block_tasks(state, snapshot, files, schema, test, notes)
    if writes is not None:
        tasks += own_tasks(state, writes)
        hot = hot.without(hidden)
        hot.read_own(writes.rows, state.current)
    return ScanPlan(state.table.full_name, snapshot, schema, predicate, hot, tuple(tasks), hidden, notes)


def file_test(predicate: Bound | None, schema: TableSchema) -> Test:
    """The predicate's necessary condition on file columns."""
    return ALWAYS if predicate is None else renamed(predicate.test(), schema.column_of)


def renamed(test: Test, names: Mapping[str, str]) -> Test:
    if isinstance(test, ColumnTest):
        return ColumnTest(names[test.column], test.op, test.values)
    return type(test)(tuple(renamed(child, names) for child in test.children))


def with_older_columns(test: Test, schema: TableSchema) -> tuple[Test, dict[str, Codec]]:
    """The test for statistics: of a column that was widened, also on the columns that older blocks hold instead.

    A block holds one column of a line, and statistics know nothing of the others, so all may be asked at once.
    """
    codecs = dict(schema.column_codecs)
    fields = {f.column: f for f in schema.fields if f.source is not None}

    def extended(part: Test) -> Test:
        if not isinstance(part, ColumnTest):
            return type(part)(tuple(extended(child) for child in part.children))
        if part.column not in fields:
            return part
        older = older_tests(fields[part.column], part.op, part.values)
        codecs.update({f.column: f.codec for f, _ in older})
        return All((part, *(ColumnTest(f.column, part.op, values) for f, values in older)))

    return extended(test), codecs


def _block_tasks(
    state: TableState, snapshot: int, files: OpenFiles, schema: TableSchema, test: Test, notes: dict[str, Any]
) -> list[BlockTask]:
    block_test, codecs = (test, schema.column_codecs) if not schema.evolved else with_older_columns(test, schema)
    chosen = [state.blocks.records[n] for n in state.blocks.candidates(block_test, codecs, snapshot)]
    notes["pruned by statistics"] = len(state.blocks) - len(chosen)
    ids = _row_ids_in(test)
    if ids is not None:
        notes["found by"] = "row id"
        return _tasks_for_row_ids(state, snapshot, chosen, np.array(sorted(ids), np.int64))
    keys = keys_in(test, schema)
    if keys is not None:
        notes["found by"] = "primary key"
        return tasks_for_keys(state, snapshot, files, chosen, keys)
    return [block_task(state, block, snapshot) for block in chosen]


def _tasks_for_row_ids(
    state: TableState, snapshot: int, chosen: Sequence[BlockRecord], ids: npt.NDArray[np.int64]
) -> list[BlockTask]:
    tasks = []
    for block in chosen:
        within = ids[(ids >= block.min_row_id) & (ids <= block.max_row_id)]
        if not len(within):
            continue
        if block.role == "history":
            tasks.append(block_task(state, block, snapshot))
            continue
        positions = state.row_ids(block).positions_of(within)
        positions = positions[positions >= 0]
        if len(positions):
            tasks.append(block_task(state, block, snapshot, positions.astype(np.uint64)))
    return tasks


def tasks_for_keys(
    state: TableState, snapshot: int, files: OpenFiles, chosen: Sequence[BlockRecord], keys: KeyColumn
) -> list[BlockTask]:
    """Where rows with one of the keys may lie, among the chosen blocks."""
    tasks = [block_task(state, block, snapshot) for block in chosen if block.role == "history"]
    if len(keys) == 1:
        for block, position in state.finder.find(keys[0], state, snapshot, files):
            tasks.append(block_task(state, block, snapshot, np.array([position], np.uint64)))
        return tasks
    for block, _, positions in state.finder.find_many(keys, state, snapshot, files):
        tasks.append(block_task(state, block, snapshot, np.unique(positions).astype(np.uint64)))
    return tasks


def block_task(
    state: TableState, block: BlockRecord, snapshot: int, only: npt.NDArray[np.uint64] | None = None
) -> BlockTask:
    """The rows of a block that are visible at the snapshot, or those of them at some positions."""
    log = state.deletes.get(block.data_file_id)
    deleted: bytes | None = None
    if log is not None:
        if only is not None and len(only) == 1:
            # A point read builds no bitmap.
            if log.contains(int(only[0]), snapshot):
                only = only[:0]
        else:
            gone = log.at(snapshot)
            deleted = gone.serialize() if gone else None
    history = block.role == "history"
    return BlockTask(
        "history" if history else "block", block.data_file_id, block.path, block.format, block.size, block.checksum,
        block.record_count, state.schema.at(block.schema_snapshot).fields, block.begin_snapshot, deleted, only,
        snapshot if history or block.max_snapshot > snapshot else None, state.as_of(snapshot).current.fields,
    )  # fmt: skip


def own_tasks(state: TableState, writes: TableWrites) -> list[BlockTask]:
    """Blocks that the reading transaction has written and not committed."""
    return [
        BlockTask(
            "own block", block.token, block.file.path, block.format, block.file.size, block.file.checksum,
            block.record_count, state.current.fields, 0, block.dead.serialize() if block.dead else None, None, None,
            state.current.fields,
        )
        for block in writes.own_live_blocks()
    ]  # fmt: skip


def _row_ids_in(test: Test) -> set[int] | None:
    """The row ids that a matching row must be among, when the test says so."""
    for part in conjuncts(test):
        if isinstance(part, ColumnTest) and part.column == ROW_ID and part.op in ("=", "in"):
            return {int(v) for v in part.values if v is not None}
    return None


def keys_in(test: Test, schema: TableSchema) -> KeyColumn | None:
    """The primary keys that a matching row must have, when the test names them all."""
    if not schema.primary_key:
        return None
    choices: list[Sequence[Any]] = []
    count = 1
    parts = conjuncts(test)
    for key_field in schema.key_fields:
        named = [
            p.values
            for p in parts
            if isinstance(p, ColumnTest) and p.column == key_field.column and p.op in ("=", "in")
        ]
        if not named:
            return None
        choices.append(min(named, key=len))
        count *= len(choices[-1])
        if count > MOST_KEYS:
            return None
    codecs = schema.key_codecs
    keys: set[Key] = set()
    try:
        for values in product(*choices):
            if None not in values:
                keys.add(encode_key(codecs, [c.encode_constant(v) for c, v in zip(codecs, values, strict=True)]))
    except ConstraintError:
        return None
    return KeyColumn.from_keys(sorted(keys), ints=len(codecs) == 1 and codecs[0].kind == "int")


def conjuncts(test: Test) -> list[Test]:
    if isinstance(test, All):
        return [part for child in test.children for part in conjuncts(child)]
    if isinstance(test, Any_) and len(test.children) == 1:
        return conjuncts(test.children[0])
    return [test]


def arrow_schema(fields: Sequence[Field], *, row_id: bool) -> pa.Schema:
    shown = [f.arrow() for f in fields]
    return pa.schema([*shown, pa.field(ROW_ID, pa.int64(), False)] if row_id else shown)
