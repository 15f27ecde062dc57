"""Keys of loaded blocks: they must be absent like those of any insert, and are too many to hold in memory.

They are compared through the segments that the load has written: with the table's blocks by tasks (`key_tasks`), with
hot rows by looking these up.  As with few keys (`key_check`) everything up to a snapshot is looked at outside the
critical section; inside it only what is newer matters, and calls for another look.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from pyroaring import BitMap64

from indexlake.blocks.new_block import NewBlock
from indexlake.catalog import inline, layout
from indexlake.catalog.driver import ReadTransaction, Transaction
from indexlake.catalog.layout import Head
from indexlake.commit.key_check import LookNeeded, decode_key, duplicate, is_live_in_block, lost_key
from indexlake.errors import IndexLakeError
from indexlake.keys.encoding import Key, KeyColumn, encode_key, key_to_bytes
from indexlake.state import TableState

if TYPE_CHECKING:
    from indexlake.blocks.open_files import OpenFiles
    from indexlake.commit.write_set import TableWrites

Probe = Callable[[TableState, Sequence[NewBlock], int], list[tuple[int, int, Key]]]
"""(state, new blocks, since) → holders (data file id, position, key) in live blocks written after ``since``.

The first time it may spread its work; what is looked at again is little.
"""


@dataclass(frozen=True, slots=True)
class HotKey:
    begin: int
    row_id: int
    key: Key


class LoadedKeys:
    """What is known about the keys of some new blocks: who else held one of them, up to a snapshot."""

    def __init__(self, blocks: Sequence[NewBlock], probe: Probe, *, claimed: bool, at: int = -1) -> None:
        self.blocks = tuple(blocks)
        self._probe = probe
        self.claimed = claimed  # the load found them absent: losing the race for one is a conflict, not a duplicate
        self.at = at
        self.in_blocks: list[tuple[int, int, Key]] = []
        self.in_hot: list[HotKey] = []

    def hot_since(self, r: ReadTransaction | Transaction, state: TableState) -> list[HotKey]:
        """Live hot rows that have not been looked at."""
        schema = state.current
        rows = inline.live_keys_since(r, state.table.table_id, state.table.hot_floor, self.at, schema.key_columns)
        return [HotKey(row[0], row[1], encode_key(schema.key_codecs, row[3:])) for row in rows]

    def look_again(
        self, r: ReadTransaction | Transaction, state: TableState, files: OpenFiles, writes: TableWrites
    ) -> None:
        self.look(state, self.hot_since(r, state), files, writes.closed)

    def look(self, state: TableState, hot: Sequence[HotKey], files: OpenFiles, closed: BitMap64) -> None:
        """Take in everything that the state knows and this does not yet."""
        found = [
            (file_id, position, key)
            for file_id, position, key in self._probe(state, self.blocks, self.at)
            if not _is_closed(state, file_id, position, closed)
        ]
        self.in_blocks += found
        self.in_hot += [h for h in self._held(hot, state, files) if h.row_id not in closed]
        self.at = state.at

    def _held(self, hot: Sequence[HotKey], state: TableState, files: OpenFiles) -> list[HotKey]:
        """Those of the hot rows whose key is in a new block."""
        if not hot:
            return []
        codecs = state.current.key_codecs
        ints = len(codecs) == 1 and codecs[0].kind == "int"
        keys = KeyColumn.from_keys([h.key for h in hot], ints=ints)
        encoded = [key_to_bytes(h.key) for h in hot]
        low, high = min(encoded), max(encoded)
        held = np.zeros(len(hot), np.bool_)
        for block in self.blocks:
            segment = block.segment
            if segment is not None and segment.min_key <= high and low <= segment.max_key:
                file = segment.file
                held[files.segment_of(file.path, file.size, file.checksum).find_many(keys)[0]] = True
        return [hot[n] for n in np.flatnonzero(held).tolist()]

    def check(self, tx: Transaction, head: Head, writes: TableWrites) -> None:
        """Inside the critical section: nothing, ``LookNeeded``, or the error."""
        state = writes.state
        table_id = state.table.table_id
        if head.blocks_changed_in > self.at and layout.has_new_live_blocks(tx, table_id, self.at):
            raise LookNeeded
        for file_id, position, key in self.in_blocks:
            if is_live_in_block(tx, file_id, position):
                raise self._taken(state, key)
        for h in self.in_hot:
            for row in inline.rows_by_id(tx, table_id, h.row_id, ()):
                if row[0] == h.begin and row[2] is None and (h.begin, h.row_id) > head.hot_floor:
                    raise self._taken(state, h.key)
        newer = inline.live_keys_since(tx, table_id, head.hot_floor, self.at, ())
        if next(iter(newer), None) is not None:
            raise LookNeeded

    def _taken(self, state: TableState, key: Key) -> IndexLakeError:
        return lost_key(state) if self.claimed else duplicate(state, decode_key(state, key), twice=False)


def _is_closed(state: TableState, file_id: int, position: int, closed: BitMap64) -> bool:
    """Whether the row is one that the load itself replaces."""
    block = state.blocks.record(file_id)
    assert block is not None
    return state.row_ids(block).row_id_at(position) in closed
