"""What must be absent when a write-set commits, and where blocks hold it.

Three things are wanted: the primary keys of new rows; the values that a merge found in no row and added rows for; the
keys of loaded blocks, which are too many to hold in memory.  Each names the fields whose values are meant, finds those
that blocks hold, and knows the error to raise when a live row has one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from indexlake.blocks.delete_vector import is_among
from indexlake.blocks.new_block import NewBlock
from indexlake.errors import ConflictError, DuplicateKeyError
from indexlake.indexes.key_set import KeySet
from indexlake.indexes.keys import Key, KeyColumn, decode_key, encode_key, key_to_bytes
from indexlake.schema import ROW_ID, VERSION, Field
from indexlake.types.selection import keep

if TYPE_CHECKING:
    from indexlake.blocks.block import BlockRecord
    from indexlake.blocks.open_files import OpenFiles
    from indexlake.commit.write_set import TableWrites
    from indexlake.errors import IndexLakeError
    from indexlake.hot.store import HotRow
    from indexlake.snapshots.state import TableState

Holder = tuple[int, int, Key]
"""Data file id, position, key."""

Holders = Iterator[tuple["BlockRecord", Sequence[int], Sequence[Key] | KeyColumn]]
"""Positions of a block that are live, and the wanted keys there."""

Probe = Callable[["TableState", Sequence[NewBlock], int], list[Holder]]
"""(state, new blocks, since) → holders in live blocks written after ``since``.

The first time it may spread its work; what is looked at again is little.
"""


class Wanted(ABC):
    """Values of some fields that no live row may have.  ``keys`` is None where they are too many for memory."""

    __slots__ = ("fields", "keys", "since")

    def __init__(self, fields: tuple[Field, ...], keys: KeyColumn | None, since: int = -1) -> None:
        self.fields = fields
        self.keys = keys
        self.since = since  # no version up to this snapshot has them: that was seen when they were read

    @property
    def codecs(self) -> list[Any]:
        return [f.codec for f in self.fields]

    @abstractmethod
    def in_blocks(self, state: TableState, since: int, files: OpenFiles) -> Holders:
        """Live holders in blocks written, physically, after ``since``."""

    def held(self, rows: list[HotRow], state: TableState, files: OpenFiles) -> list[HotRow]:
        """Those of the hot rows that have one of the values."""
        return rows

    def taken(self, writes: TableWrites, values: Sequence[Any]) -> IndexLakeError:
        """A live row has them.  Who found them absent and added a row (upsert, merge) lost a race: run again."""
        key = encode_key(self.codecs, values)
        if not any(key in KeySet(column) for column in writes.claimed):
            return duplicate(writes.state, self.fields, values, twice=False)
        name = writes.state.table.full_name
        return ConflictError(
            f"Another commit has added a row to {name!r} whose key this one wanted to add, after it read the table. "
            "Run it again; lake.run does so by itself.",
            table=name,
        )


class NewKeys(Wanted):
    """Keys of buffered rows and of own blocks."""

    __slots__ = ()

    def in_blocks(self, state: TableState, since: int, files: OpenFiles) -> Holders:
        """Those that are older are found again: that costs less than to keep them out."""
        assert self.keys is not None
        assert state.primary is not None
        if len(self.keys) == 1:
            for block, position in state.primary.find(self.keys[0], state, state.at, files):
                yield block, (position,), self.keys
        else:
            for block, indices, positions in state.primary.find_many(self.keys, state, state.at, files):
                yield block, positions.tolist(), self.keys.take(indices)


class MergeValues(Wanted):
    """What a merge found in no row.  Only versions committed after it read the table can have it."""

    __slots__ = ()

    def in_blocks(self, state: TableState, since: int, files: OpenFiles) -> Holders:
        from indexlake.scan.execute import read_task
        from indexlake.scan.plan import block_task

        assert self.keys is not None
        wanted, codecs = KeySet(self.keys), self.codecs
        for block in state.blocks.records:
            if (
                block.role == "history"
                or block.changed_in <= since
                or block.max_snapshot <= self.since
                or not block.visible_at(state.at)
            ):
                continue
            task = block_task(state, block, state.at)
            for batch in read_task(task, files, self.fields, None, row_id=True, version=True):
                sought = batch.column(VERSION).to_numpy() > self.since
                for n in range(len(codecs)):
                    sought &= np.asarray(batch.column(n).is_valid())
                if not sought.any():
                    continue
                rows = batch if sought.all() else keep(batch, pa.array(sought))
                keys = KeyColumn.from_arrays(codecs, rows.columns[: len(codecs)])
                here = np.flatnonzero(wanted.mask(keys))
                positions = state.addresses(block, files).positions_of(rows.column(ROW_ID).to_numpy()[here])
                yield block, positions.tolist(), keys.take(here)

    def taken(self, writes: TableWrites, values: Sequence[Any]) -> IndexLakeError:
        name = writes.state.table.full_name
        return ConflictError(
            f"Another commit has added rows to {name!r} that this merge would have matched, after it read the table. "
            "Run it again; lake.run does so by itself.",
            table=name,
        )


class LoadedKeys(Wanted):
    """Keys of blocks that a load has written, compared through the segments of these blocks."""

    __slots__ = ("_blocks", "_probe")

    def __init__(self, fields: tuple[Field, ...], blocks: Sequence[NewBlock], probe: Probe) -> None:
        super().__init__(fields, None)
        self._blocks = tuple(blocks)
        self._probe = probe

    def in_blocks(self, state: TableState, since: int, files: OpenFiles) -> Holders:
        for file_id, position, key in self._probe(state, self._blocks, since):
            block = state.blocks.record(file_id)
            assert block is not None
            yield block, (position,), (key,)

    def held(self, rows: list[HotRow], state: TableState, files: OpenFiles) -> list[HotRow]:
        if not rows:
            return []
        codecs = self.codecs
        keys = [encode_key(codecs, row.values) for row in rows]
        column = KeyColumn.from_keys(keys, ints=are_ints(codecs))
        encoded = [key_to_bytes(key) for key in keys]
        low, high = min(encoded), max(encoded)
        held = np.zeros(len(rows), np.bool_)
        assert state.primary is not None
        index = state.primary.index
        for block in self._blocks:
            segment = block.segment(index.index_id)
            if segment is not None and segment.min_key <= high and low <= segment.max_key:
                held[files.segment(segment, index.open).find_many(column)[0]] = True
        return [rows[n] for n in np.flatnonzero(held).tolist()]


def new_keys(writes: TableWrites) -> KeyColumn | None:
    """The primary keys that must be absent; refuses keys that the write-set itself holds twice."""
    schema = writes.state.current
    if not schema.primary_key:
        return None
    codecs, places = schema.key_codecs, schema.key_places
    ints = are_ints(codecs)
    if len(writes.rows) == 1 and not writes.blocks:
        ((row_id, values),) = writes.rows.items()
        if row_id in writes.unkeyed:
            return None
        return KeyColumn.from_keys([encode_key(codecs, [values[p] for p in places])], ints=ints)
    changed = len(writes.unkeyed) < len(writes.rows)
    assert writes.state.primary is not None
    index_id = writes.state.primary.index.index_id
    blocks = [b for b in writes.own_live_blocks() if index_id in b.keys]
    if not changed and all(b.keys_known for b in blocks):
        return None
    parts, needed = [], []
    if writes.rows:
        keys = [encode_key(codecs, [values[p] for p in places]) for values in writes.rows.values()]
        parts.append(KeyColumn.from_keys(keys, ints=ints))
        if len(set(keys)) < len(keys):
            again = parts[0].first_duplicate()
            assert again is not None
            values = list(writes.rows.values())[again]
            raise duplicate(writes.state, schema.key_fields, [values[p] for p in places], twice=True)
        if changed:
            new = [k for k, r in zip(keys, writes.rows, strict=True) if r not in writes.unkeyed]
            needed.append(KeyColumn.from_keys(new, ints=ints) if writes.unkeyed else parts[0])
    for block in blocks:
        live, positions = block.keys[index_id]
        if block.dead:
            live = live.take(np.flatnonzero(~is_among(positions, block.dead)))
        parts.append(live)
        if not block.keys_known:
            needed.append(live)
    together = KeyColumn.concat(parts) if len(parts) > 1 else parts[0]
    if blocks and (again := together.first_duplicate()) is not None:
        raise duplicate(writes.state, schema.key_fields, decode_key(codecs, together[again]), twice=True)
    return KeyColumn.concat(needed) if len(needed) > 1 else needed[0]


def are_ints(codecs: Sequence[Any]) -> bool:
    """Whether a key of these fields is held as an integer."""
    return len(codecs) == 1 and codecs[0].kind == "int"


def duplicate(state: TableState, fields: Sequence[Field], encoded: Sequence[Any], *, twice: bool) -> DuplicateKeyError:
    """The error that names the key as the user wrote it; ``twice``: among the rows to add, not in the table."""
    values = tuple(f.codec.show_one(v) for f, v in zip(fields, encoded, strict=True))
    shown = values[0] if len(values) == 1 else values
    columns = ", ".join(f.name for f in fields)
    name = state.table.full_name
    return DuplicateKeyError(
        f"Primary key {columns} = {shown!r} is given twice: two of the rows for table {name!r} have it. Keep only one."
        if twice
        else f"Primary key {columns} = {shown!r} already exists in table {name!r}. Use update or upsert to change the "
        "existing row.",
        table=name,
        key=shown,
    )
