"""The commit of a load: blocks that tasks have written, all of them in one commit, with their keys checked.

Row ids come in ranges that are reserved beforehand, one for each task; attempts of one task share its range, and only
the files of the accepted attempt are committed. Primary keys are checked on what was written, never by reading the
source again. Files of a load that fails are left to vacuum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from indexlake.blocks.new_block import NewBlock
from indexlake.catalog import table_heads
from indexlake.commit.absence import Look, look, newer_rows
from indexlake.commit.wanted import Holder, LoadedKeys, duplicate
from indexlake.errors import JobError, SchemaError
from indexlake.indexes.keys import decode_key
from indexlake.pipeline.key_tasks import first_repeated, probe_tasks, run_probe
from indexlake.pipeline.runner import Runner, ThreadRunner

if TYPE_CHECKING:
    from indexlake.lake import Lake
    from indexlake.snapshots.state import TableState
    from indexlake.transaction import Transaction

IDS_PER_TASK = 1 << 30
"""The row ids that each task gets, unless another number is given as ``each``."""


class Loader:
    """One load, whose commit may be retried; ``write`` is called once per schema of the table."""

    def __init__(
        self,
        lake: Lake,
        table_id: int,
        runner: Runner,
        check: Callable[[], None],
        write: Callable[[TableState], list[NewBlock]],
        *,
        overwrite: bool,
    ) -> None:
        self._lake = lake
        self._table_id = table_id
        self._runner = runner
        self._check = check
        self._write = write
        self._overwrite = overwrite
        self._written: tuple[int, list[NewBlock]] | None = None  # schema version, blocks
        self._compared: frozenset[int] = frozenset()  # unique indexes for which no key is in two rows of the blocks

    def apply(self, tx: Transaction) -> int:
        lake = self._lake
        state = lake._readings.latest(self._table_id)
        tx._set_base(state.at)
        blocks = self._write_once(state)
        writes = tx.writes(state)
        if self._overwrite:
            writes.truncate_all(blind=tx.is_statement)
        for block in blocks:
            writes.insert_block(block)
            writes.inserted += block.record_count
        writes.loaded_for = self._compared
        for coverage in state.enforced if blocks and not self._overwrite else ():
            index = coverage.index
            if index.index_id not in self._compared:
                continue  # it is newer than the blocks: the commit looks up their keys
            probe = partial(self._probe, index.index_id)
            unseen = Look.nothing(LoadedKeys(index, index.fields(state.current), blocks, probe))
            with lake._readings.open(self._table_id) as reading:
                rows = newer_rows(unseen, reading.hot, writes)
            writes.loaded += (look(unseen, reading.state, rows, writes, lake._files),)
        return sum(block.record_count for block in blocks)

    def _write_once(self, state: TableState) -> list[NewBlock]:
        if self._written is None or self._written[0] != state.table.schema_version:
            blocks = self._write(state)
            for coverage in state.enforced:
                index = coverage.index
                repeated = first_repeated(self._lake.storage, index, blocks, self._runner, self._check)
                if repeated is not None:
                    fields = index.fields(state.current)
                    raise duplicate(state, index, decode_key([f.codec for f in fields], repeated), twice=True)
            self._compared = frozenset(coverage.index.index_id for coverage in state.enforced)
            self._written = state.table.schema_version, blocks
        return self._written[1]

    def _probe(self, index_id: int, state: TableState, blocks: Sequence[NewBlock], since: int) -> list[Holder]:
        tasks = probe_tasks(state, state.indexes[index_id], blocks, since)
        runner = self._runner if since < 0 else ThreadRunner(self._lake.storage)
        return [holder for found in runner.map(run_probe, tasks, self._check) for holder in found]


class IdRange:
    """The row ids of one task."""

    def __init__(self, first: int, task: int, each: int = IDS_PER_TASK) -> None:
        self._each = each
        self._next = first + task * each
        self._end = self._next + each

    def take(self, count: int) -> int:
        first, self._next = self._next, self._next + count
        if self._next > self._end:
            raise JobError(f"One task of a load has more than {self._each:,} rows. Spread the rows over more of them.")
        return first


def reserve_ids(lake: Lake, table_id: int, tasks: int, each: int = IDS_PER_TASK) -> int:
    """Reserve ranges of row ids for a number of tasks, and return the first id."""
    with lake.catalog.transaction() as tx:
        first = table_heads.reserve_row_ids(tx, table_id, tasks * each)
        tx.commit()
    if first is None:
        raise SchemaError("The table was dropped while it was loaded. Nothing was changed.")
    return first


def give_back_ids(lake: Lake, table_id: int, first: int, reserved: int, used: int, each: int = IDS_PER_TASK) -> None:
    """Return ranges that no task has used, unless others have taken ids since."""
    with lake.catalog.transaction() as tx:
        table_heads.give_back_row_ids(tx, table_id, first + reserved * each, first + used * each)
        tx.commit()
