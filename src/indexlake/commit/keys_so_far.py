"""Refuses a taken key in the statement that writes it, while the transaction goes on.

The commit decides in any case.  What is refused here would have made it fail, unless the transaction or another one had
removed the other row before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from itertools import takewhile
from typing import TYPE_CHECKING

from indexlake.commit.absence import Look, look
from indexlake.commit.wanted import new_keys
from indexlake.indexes.key_set import KeySet
from indexlake.indexes.keys import Key, KeyColumn, decode_key

if TYPE_CHECKING:
    from indexlake.blocks.new_block import NewBlock
    from indexlake.blocks.open_files import OpenFiles
    from indexlake.commit.write_set import TableWrites, Values
    from indexlake.indexes.coverage import Coverage
    from indexlake.snapshots.reading import Reading, Readings
    from indexlake.snapshots.state import TableState


class KeysSoFar:
    """The keys that a transaction has written to one table.  Only new ones are looked up."""

    def __init__(self, base: int) -> None:
        self._base = base  # the snapshot that the transaction reads
        self._rows: dict[int, Values] = {}
        self._blocks: list[NewBlock] = []
        self._few: dict[int, set[Key]] = {}  # by index; also those of rows that have been changed again
        self._many: dict[int, list[KeySet]] = {}

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
                for coverage in reading.state.enforced:
                    if coverage.index.is_primary or coverage.index.fits(writes.state.current):
                        self._check(coverage, added, writes, reading, files)
        self._rows.update(added.rows)
        self._blocks += added.blocks

    def _check(
        self, coverage: Coverage, added: TableWrites, writes: TableWrites, reading: Reading | None, files: OpenFiles
    ) -> None:
        wanted = new_keys(added, coverage, files)
        if wanted is None:
            return
        assert wanted.keys is not None
        if self._may_repeat(coverage.index.index_id, wanted.keys, in_block=bool(added.blocks)):
            new_keys(writes, coverage, files)
        if reading is None or writes.truncate:
            return
        rows = reading.hot.holders(wanted.fields, wanted.keys, -1, writes.closed, indexed=True)
        found = look(Look.nothing(wanted), reading.state, rows, writes, files)
        since = self._base if writes.absent or writes.claimed else reading.state.at
        for values in _held(found, reading.state, since):
            raise wanted.taken(writes, values)

    def _may_repeat(self, index_id: int, keys: KeyColumn, *, in_block: bool) -> bool:
        """Return whether one of the keys may have been written before; remember them."""
        few, many = self._few.setdefault(index_id, set()), self._many.setdefault(index_id, [])
        if in_block:
            new = KeySet(keys)
            again = any(key in new for key in few) or any(before.mask(keys).any() for before in many)
            many.append(new)
        else:
            listed = keys.to_list()
            again = not few.isdisjoint(listed) or any(key in before for before in many for key in listed)
            few.update(listed)
        return again


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
