"""The critical section: one catalog transaction that excludes every other commit.

Users and jobs commit the same way: their *requirements* are checked, then their *effects* are applied under the next
number. No storage I/O and no user code runs inside it. A section that ends without a commit has changed nothing,
neither in the catalog nor in the hot store.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from indexlake.catalog import data_files, delete_entries, table_heads
from indexlake.commit import effects, requirements
from indexlake.commit.sequencer import Sequencer
from indexlake.commit.write_set import TableWrites, WriteResult, WriteSet
from indexlake.storage import faults

if TYPE_CHECKING:
    from indexlake.catalog.driver import Catalog
    from indexlake.catalog.table_heads import Head
    from indexlake.commit.absence import Look
    from indexlake.hot.store import HotStore, HotTable

_NONE: Mapping[int, Sequence[Look]] = {}


class Section:
    """A critical section: begins when constructed, ends when left as a context manager."""

    __slots__ = ("_committed", "heads", "hot", "sequencer", "tx", "writing")

    def __init__(
        self,
        catalog: Catalog,
        hot: HotStore,
        first: WriteSet | None = None,
        looks: Mapping[int, Sequence[Look]] = _NONE,
    ) -> None:
        """If the first write-set is given, what its requirements ask travels with the lock."""
        self.hot = hot
        self.heads: dict[int, Head] = {}  # kept while members of the group leave them unchanged
        self.writing = False  # whether the write-set in progress has passed validation
        self._committed = False
        self.tx = catalog.transaction(None if first is None else partial(requirements.foreseen, hot, first, looks))
        self.sequencer = Sequencer(catalog, self.tx, hot)

    def __enter__(self) -> Section:
        return self

    def __exit__(self, *how: Any) -> None:
        try:
            if not self._committed:
                self.hot.undo(self.tx)
        finally:
            self.tx.__exit__(*how)

    def commit(self) -> None:
        self.tx.commit()
        self._committed = True
        if self.writing:
            self.hot.committed(self.sequencer.last)

    def head(self, table_id: int) -> Head | None:
        """Return the table's current head, or None if its record is gone."""
        return table_heads.read_head(self.tx, table_id)

    def live_blocks(self, writes: TableWrites, file_ids: Collection[int]) -> set[int]:
        """Return those of the blocks that are still live."""
        return data_files.live_block_ids(self.tx, list(file_ids))

    def delete(self, table_id: int, file_id: int, snapshot: int, positions: Any) -> None:
        """Record that rows of a block are deleted from a snapshot on."""
        delete_entries.add_delete(self.tx, table_id, file_id, snapshot, positions, snapshot)

    def write(self, ws: WriteSet, looks: Mapping[int, Sequence[Look]], commit_token: str | None) -> WriteResult:
        """Validate and apply a write-set; raise ``LookNeeded`` if newer blocks must be searched first.

        Except for definitions, nothing is written before everything is validated. A write-set that fails leaves nothing
        behind, even if others of its group succeed.
        """
        done = self._done()
        try:
            if not ws.definitions:
                return self._write(ws, looks, commit_token)
            with self.tx.savepoint():
                return self._write(ws, looks, commit_token)
        except BaseException:
            self._undo(done)
            raise

    def _done(self) -> Any:
        """Return what has been done so far, for ``_undo``."""
        return self.hot.done(self.tx)

    def _undo(self, done: Any) -> None:
        self.hot.undo(self.tx, done)

    def _write(self, ws: WriteSet, looks: Mapping[int, Sequence[Look]], commit_token: str | None) -> WriteResult:
        tx, sequencer = self.tx, self.sequencer
        self.writing = False
        if ws.token is not None:
            done = ws.token.done(sequencer.result_of(ws.token.name))
            if done is not None:
                return done
        summary: list[str] = []
        if ws.definitions:
            if ws.draft is not None:
                ws.draft.require(tx)
            snapshot = sequencer.next
            changed = [change for change in ws.definitions if change.apply(tx, self.hot, snapshot)]
            if not changed and ws.rows_empty:
                return WriteResult(0, sequencer.last)
            summary = [f'"{change.table_id}":[0,0,0]' for change in changed if change.table_id is not None]
            self.heads.clear()
        tables: list[tuple[int, TableWrites, HotTable]] = []
        for table_id, writes in ws.tables.items():
            if not writes.empty:
                tables.append((table_id, writes, requirements.require(self, ws, writes, looks.get(table_id, ()))))
        faults.step("commit.validated")
        self.writing = True
        snapshot = sequencer.next
        inserted = updated = deleted = 0
        for table_id, writes, hot in tables:
            gone = writes.deleted + effects.apply(self, ws, writes, hot, snapshot)
            summary.append(f'"{table_id}":[{writes.inserted},{writes.updated},{gone}]')  # JSON
            inserted, updated, deleted = inserted + writes.inserted, updated + writes.updated, deleted + gone
            if writes.blocks or writes.truncate:
                self.heads.pop(table_id, None)
        total = WriteResult(inserted + updated + deleted, snapshot, inserted, updated, deleted)
        told = "{" + ",".join(summary) + "}"
        sequencer.record(ws.operation or "write", job=False, summary=told, token=commit_token)
        if ws.token is not None:
            sequencer.keep_result(ws.token.name, ws.token.record(total))
        faults.step("commit.applied")
        return total
