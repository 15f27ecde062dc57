"""The commit of a load: blocks that tasks have written, all of them in one commit, with their keys checked.

Row ids come in ranges that are reserved beforehand, one for each task; attempts of one task share its range, and only
the files of the attempt whose result is accepted are committed.  Primary keys are checked on what was written, never
on a second reading of the source.  Files of a load that fails are left to vacuum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from indexlake.blocks.new_block import NewBlock
from indexlake.catalog import layout
from indexlake.commit.key_check import decode_key, duplicate
from indexlake.commit.loaded import LoadedKeys
from indexlake.errors import JobError, SchemaError
from indexlake.pipeline.key_tasks import first_repeated, probe_tasks, run_probe
from indexlake.pipeline.runner import Runner, ThreadRunner

if TYPE_CHECKING:
    from indexlake.keys.encoding import Key
    from indexlake.lake import Lake
    from indexlake.state import TableState
    from indexlake.transaction import Transaction

IDS_PER_TASK = 1 << 30


class Loader:
    """One load, whose commit may have to be tried again; ``write`` is called once per schema of the table."""

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

    def apply(self, tx: Transaction) -> int:
        lake = self._lake
        with lake._reading(self._table_id) as (_, state, last):
            tx._set_base(last)
        blocks = self._blocks(state)
        writes = tx.writes(state)
        if self._overwrite:
            writes.truncate_all(blind=tx.is_statement)
        for block in blocks:
            writes.insert_block(block)
            writes.inserted += block.record_count
        if state.current.primary_key and blocks and not self._overwrite:
            loaded = LoadedKeys(blocks, self._probe, claimed=False)
            with lake._reading(self._table_id) as (r, newest, _last):
                hot = loaded.hot_since(r, newest)
            loaded.look(newest, hot, lake._files, writes.closed)
            writes.loaded = loaded
        return sum(block.record_count for block in blocks)

    def _blocks(self, state: TableState) -> list[NewBlock]:
        if self._written is None or self._written[0] != state.table.schema_version:
            blocks = self._write(state)
            if state.current.primary_key:
                repeated = first_repeated(self._lake.storage, blocks, self._runner, self._check)
                if repeated is not None:
                    raise duplicate(state, decode_key(state, repeated), twice=True)
            self._written = state.table.schema_version, blocks
        return self._written[1]

    def _probe(self, state: TableState, blocks: Sequence[NewBlock], since: int) -> list[tuple[int, int, Key]]:
        tasks = probe_tasks(state, blocks, since)
        runner = self._runner if since < 0 else ThreadRunner(self._lake.storage)
        return [holder for found in runner.map(run_probe, tasks, self._check) for holder in found]


class IdRange:
    """The row ids of one task."""

    def __init__(self, first: int, task: int) -> None:
        self._next = first + task * IDS_PER_TASK
        self._end = self._next + IDS_PER_TASK

    def take(self, count: int) -> int:
        first, self._next = self._next, self._next + count
        if self._next > self._end:
            raise JobError(
                f"One task of a load has more than {IDS_PER_TASK:,} rows. Spread the rows over more of them."
            )
        return first


def reserve_ids(lake: Lake, table_id: int, tasks: int) -> int:
    """The first row id of ranges for so many tasks."""
    with lake.catalog.transaction() as tx:
        first = layout.reserve_row_ids(tx, table_id, tasks * IDS_PER_TASK)
        tx.commit()
    if first is None:
        raise SchemaError("The table was dropped while it was loaded. Nothing was changed.")
    return first


def give_back_ids(lake: Lake, table_id: int, first: int, reserved: int, used: int) -> None:
    """Ranges that no task has used, unless others have taken ids since."""
    with lake.catalog.transaction() as tx:
        layout.give_back_row_ids(tx, table_id, first + reserved * IDS_PER_TASK, first + used * IDS_PER_TASK)
        tx.commit()
