"""Refuses a taken key in the statement that writes it, while the transaction goes on.

The commit decides in any case.  What is refused here would have made it fail, unless the transaction or another one had
removed the other row before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from itertools import takewhile
from typing import TYPE_CHECKING

from indexlake.commit.absence import Look, look
from indexlake.commit.wanted import are_ints, duplicate, key_parts, keys_of_block, new_keys
from indexlake.indexes.key_set import KeySet
from indexlake.indexes.keys import Key, KeyColumn, decode_key

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from indexlake.blocks.new_block import NewBlock
    from indexlake.blocks.open_files import OpenFiles
    from indexlake.commit.write_set import TableWrites, Values
    from indexlake.indexes.coverage import Coverage
    from indexlake.indexes.index import Index
    from indexlake.snapshots.reading import Reading, Readings
    from indexlake.snapshots.state import TableState


class KeysSoFar:
    """The keys that a transaction has written to one table.  Only new ones are looked up."""

    def __init__(self, base: int) -> None:
        self._base = base  # the snapshot that the transaction reads
        self._rows: dict[int, Values] = {}
        self._blocks: list[NewBlock] = []
        self._written: dict[int, _Written] = {}  # by index

    def check(self, writes: TableWrites, readings: Readings | None, files: OpenFiles) -> None:
        """Raise if what was written since the last call has a key that is taken.

        Without ``readings``, the table is new: there are no other rows.
        """
        added = copy(writes)
        newest = takewhile(lambda row: self._rows.get(row[0]) is not row[1], reversed(writes.rows.items()))
        added.rows = dict(reversed(list(newest)))
        added.blocks = [block for block in writes.own_live_blocks() if not any(block is b for b in self._blocks)]
        if not added.rows and not added.blocks:
            return
        if readings is None:
            for coverage in writes.state.enforced:
                self._check(coverage, added, writes, None, files)
        else:
            with readings.open(writes.state.table.table_id) as reading:
                for coverage in writes.enforced(reading.state):
                    if coverage.index.is_primary or coverage.index.fits(writes.state.current):
                        self._check(coverage, added, writes, reading, files)
        self._rows.update(added.rows)
        self._blocks += added.blocks

    def _check(
        self, coverage: Coverage, added: TableWrites, writes: TableWrites, reading: Reading | None, files: OpenFiles
    ) -> None:
        wanted = new_keys(added, coverage, files)
        self._written.setdefault(coverage.index.index_id, _Written()).add(added, writes, coverage.index, files)
        if wanted is None or reading is None or writes.truncate:
            return
        assert wanted.keys is not None
        rows = reading.hot.holders(wanted.fields, wanted.keys, -1, writes.closed, indexed=True)
        found = look(Look.nothing(wanted), reading.state, rows, writes, files)
        since = self._base if writes.absent or writes.claimed else reading.state.at
        for values in _held(found, reading.state, since):
            raise wanted.taken(writes, values)


class _Written:
    """Which row was the last to be written with each key of an index; it may have been changed again since."""

    def __init__(self) -> None:
        self._rows: dict[Key, int] = {}
        self._blocks: list[tuple[NewBlock, KeySet, npt.NDArray[np.int64]]] = []  # with the positions of the keys

    def add(self, added: TableWrites, writes: TableWrites, index: Index, files: OpenFiles) -> None:
        """Remember the keys of what was added; raise if another row of the transaction has one of them."""
        schema = writes.state.current
        parts = key_parts(index, schema)
        ints = are_ints(parts.codecs)

        def refuse(keys: Iterable[Key]) -> None:
            for key in keys:
                raise duplicate(writes.state, index, decode_key(parts.codecs, key), twice=True)

        def holds(row_id: int, key: Key) -> bool:
            values = writes.rows.get(row_id)
            return values is not None and (row_id, key) in parts.of_rows([(row_id, values)])

        def in_blocks(keys: KeyColumn) -> Iterator[Key]:
            for block, written, positions in self._blocks:
                if any(block is b for b in writes.blocks):
                    for n in written.find(keys)[1].tolist():
                        if int(positions[written.order[n]]) not in block.dead:
                            yield written.keys[n]

        rows = {key: row_id for row_id, key in parts.of_rows(added.rows.items())}
        for key in self._rows.keys() & rows.keys():
            if self._rows[key] != rows[key] and holds(self._rows[key], key):
                refuse([key])
        self._rows |= rows
        if self._blocks and rows:
            refuse(in_blocks(KeyColumn.from_keys(list(rows), ints=ints)))
        for block in added.blocks:
            live, positions = keys_of_block(block, index, schema, files)
            written = KeySet(live)
            here = written.find(KeyColumn.from_keys(list(self._rows), ints=ints))[1].tolist() if self._rows else []
            refuse(key for key in map(written.keys.__getitem__, here) if holds(self._rows[key], key))
            refuse(in_blocks(live))
            self._blocks.append((block, written, positions))


def _held(found: Look, state: TableState, since: int) -> Iterator[Sequence[object]]:
    """Yield the wanted values of rows that have been there since some snapshot.

    What a merge found absent is a conflict if others have added it, and only the commit knows which of the two it is.
    Rows that a job has moved count as added by others.
    """
    for file_id, _, key in found.in_blocks:
        block = state.blocks.record(file_id)
        if block is not None and block.begin_snapshot <= since:
            yield decode_key(found.wanted.codecs, key)
    for row in found.in_hot:
        if row.begin <= since:
            yield row.values
