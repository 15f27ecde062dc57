"""Must-be-absent keys: looked up in blocks outside the critical section, confirmed inside it.

A *look* is as of S', the snapshot of the state it used.  Inside the section only what came after S' matters:
hot rows are found by the database's own index, and a live block that was written since, physically, calls for
another look.  A key is a duplicate when a live row holds it that the write-set itself does not close.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from indexlake.catalog import inline, layout
from indexlake.catalog.driver import ReadTransaction, Transaction
from indexlake.catalog.layout import Head
from indexlake.commit.write_set import TableWrites
from indexlake.errors import ConflictError, DuplicateKeyError
from indexlake.keys.encoding import Key, KeyColumn, encode_key
from indexlake.keys.key_set import KeySet
from indexlake.state import TableState
from indexlake.types.floats import is_float

if TYPE_CHECKING:
    from indexlake.blocks.open_files import OpenFiles

FEW = 64
"""Up to so many keys are looked up one by one in the hot store; more are compared with all of it."""


HOT_PER_KEY = 4
"""A hot row costs about a quarter of a look-up."""


class LookNeeded(Exception):
    """Blocks were written since the look: leave the section, look again, come back."""


@dataclass(frozen=True, slots=True)
class KeyLook:
    """What a look found: holders of wanted keys, live at snapshot ``at``."""

    at: int
    keys: KeyColumn
    in_blocks: tuple[tuple[int, int, Key], ...]  # (data file id, position, key)
    in_hot: tuple[tuple[int, int], ...] = ()  # (begin, row id); only for many keys

    @property
    def many(self) -> bool:
        return len(self.keys) > FEW


def wanted_keys(writes: TableWrites) -> KeyColumn | None:
    """The keys that must be absent; refuses keys that the write-set itself holds twice."""
    schema = writes.state.current
    if not schema.primary_key:
        return None
    codecs, places = schema.key_codecs, schema.key_places
    ints = len(codecs) == 1 and codecs[0].kind == "int"
    if len(writes.rows) == 1 and not writes.blocks:
        ((row_id, values),) = writes.rows.items()
        if row_id in writes.unkeyed:
            return None
        return KeyColumn.from_keys([encode_key(codecs, [values[p] for p in places])], ints=ints)
    wanted = writes.key_rows()
    blocks = [b for b in writes.own_live_blocks() if b.keys is not None]
    if not wanted and all(b.keys_known for b in blocks):
        return None
    parts, needed = [], []
    if writes.rows:
        rows = writes.rows if writes.unkeyed else {r: writes.rows[r] for r in wanted}
        keys = [encode_key(codecs, [values[p] for p in places]) for values in rows.values()]
        if len(set(keys)) < len(keys):
            seen: set[Key] = set()
            for key, values in zip(keys, rows.values(), strict=True):
                if key in seen:
                    raise duplicate(writes.state, [values[p] for p in places], twice=True)
                seen.add(key)
        parts.append(KeyColumn.from_keys(keys, ints=ints))
        if wanted:
            needed.append(
                parts[0]
                if not writes.unkeyed
                else KeyColumn.from_keys(
                    [k for k, r in zip(keys, rows, strict=True) if r not in writes.unkeyed], ints=ints
                )
            )
    for block in blocks:
        assert block.keys is not None
        live = block.keys
        if block.dead:
            keep = np.ones(len(live), bool)
            keep[np.frombuffer(block.dead.to_array(), np.uint32)] = False
            live = live.take(np.flatnonzero(keep))
        parts.append(live)
        if not block.keys_known:
            needed.append(live)
    together = KeyColumn.concat(parts) if len(parts) > 1 else parts[0]
    if blocks and (again := together.first_duplicate()) is not None:
        raise duplicate(writes.state, decode_key(writes.state, together[again]), twice=True)
    return KeyColumn.concat(needed) if len(needed) > 1 else needed[0]


def look(
    state: TableState,
    writes: TableWrites,
    keys: KeyColumn,
    files: OpenFiles,
    r: ReadTransaction | Transaction | None,
) -> KeyLook:
    """Find the keys in blocks, and when they are many also among hot rows of the same read transaction."""
    in_blocks: list[tuple[int, int, Key]] = []
    if len(keys) == 1:
        for block, position in state.finder.find(keys[0], state, state.at, files):
            if state.row_ids(block).row_id_at(position) not in writes.closed:
                in_blocks.append((block.data_file_id, position, keys[0]))
    else:
        for block, indices, positions in state.finder.find_many(keys, state, state.at, files):
            holders = state.row_ids(block).row_ids_at(positions)
            for index, position, row_id in zip(indices.tolist(), positions.tolist(), holders.tolist(), strict=True):
                if row_id not in writes.closed:
                    in_blocks.append((block.data_file_id, position, keys[index]))
    in_hot: list[tuple[int, int]] = []
    if len(keys) > FEW:
        assert r is not None, "many keys are compared with the hot rows of one read transaction"
        in_hot = _hot_holders(r, state, state.table.hot_floor, -1, writes, keys)
    return KeyLook(state.at, keys, tuple(in_blocks), tuple(in_hot))


def check_keys(tx: Transaction, head: Head, writes: TableWrites, found: KeyLook | None) -> None:
    """Inside the critical section: nothing, ``LookNeeded`` or ``DuplicateKeyError``."""
    if found is None:
        return
    state = writes.state
    table_id, schema = state.table.table_id, state.current
    if head.blocks_changed_in > found.at and layout.has_new_live_blocks(tx, table_id, found.at):
        raise LookNeeded
    for file_id, position, key in found.in_blocks:
        if is_live_in_block(tx, file_id, position):
            raise _taken(writes, decode_key(state, key))
    columns = schema.key_columns
    if found.many:
        for begin, row_id in found.in_hot:
            for row in inline.rows_by_id(tx, table_id, row_id, columns):
                if row[0] == begin and row[2] is None and (begin, row_id) > head.hot_floor:
                    raise _taken(writes, row[3:])
        since = _hot_holders(tx, state, head.hot_floor, found.at, writes, found.keys)
        if since:
            row = next(r for r in inline.rows_by_id(tx, table_id, since[0][1], columns) if r[0] == since[0][0])
            raise _taken(writes, row[3:])
        return
    for wanted in found.keys.to_list():
        _check_hot(tx, head, writes, columns, decode_key(state, wanted))


def _check_hot(tx: Transaction, head: Head, writes: TableWrites, columns: tuple[str, ...], key: Sequence[Any]) -> None:
    state = writes.state
    condition, values = inline.key_condition(columns, state.current.key_codecs, key)
    for row in inline.rows_by_key(tx, state.table.table_id, (), condition, values):
        begin, holder, end = row
        if end is None and (begin, holder) > head.hot_floor and holder not in writes.closed:
            raise _taken(writes, key)


def _hot_holders(
    r: ReadTransaction | Transaction,
    state: TableState,
    floor: tuple[int, int],
    since: int,
    writes: TableWrites,
    keys: KeyColumn,
) -> list[tuple[int, int]]:
    """(begin, row id) of live hot rows committed after ``since`` that hold one of the keys.

    The smaller side drives: hot rows are compared with the keys while they are few; once they prove to be many, the
    keys are looked up among them.
    """
    schema = state.current
    codecs, table_id = schema.key_codecs, state.table.table_id
    wanted: KeySet | None = None
    found: list[tuple[int, int]] = []
    rows = inline.live_keys_since(r, table_id, floor, since, schema.key_columns)
    for seen, row in enumerate(rows):
        if seen > HOT_PER_KEY * len(keys) and not any(is_float(codec) for codec in codecs):
            return _holders_by_index(r, state, floor, since, writes, keys)
        wanted = wanted or KeySet(keys)
        if row[1] not in writes.closed and encode_key(codecs, row[3:]) in wanted:
            found.append((row[0], row[1]))
    return found


def _holders_by_index(
    r: ReadTransaction | Transaction,
    state: TableState,
    floor: tuple[int, int],
    since: int,
    writes: TableWrites,
    keys: KeyColumn,
) -> list[tuple[int, int]]:
    encoded = (decode_key(state, key) for key in keys)
    return [
        (begin, row_id)
        for begin, row_id, end in inline.rows_with_keys(r, state.table.table_id, state.current.key_columns, encoded)
        if end is None and begin > since and (begin, row_id) > floor and row_id not in writes.closed
    ]


def is_live_in_block(tx: Transaction, file_id: int, position: int) -> bool:
    """Whether the row at a position of a block is there now."""
    return bool(layout.live_block_ids(tx, [file_id])) and not any(
        position in dead for dead in layout.deleted_positions(tx, file_id)
    )


def _taken(writes: TableWrites, encoded: Sequence[Any]) -> DuplicateKeyError | ConflictError:
    """A wanted key has a holder.  Who found it absent and added a row for it (upsert, merge) lost a race: run again."""
    state = writes.state
    key = encode_key(state.current.key_codecs, encoded)
    if any(key in KeySet(column) for column in writes.claimed):
        return lost_key(state)
    return duplicate(state, encoded, twice=False)


def lost_key(state: TableState) -> ConflictError:
    name = state.table.full_name
    return ConflictError(
        f"Another commit has added a row to {name!r} whose key this one wanted to add, after it read the table. "
        "Run it again; lake.run does so by itself.",
        table=name,
    )


def duplicate(state: TableState, encoded: Sequence[Any], *, twice: bool) -> DuplicateKeyError:
    """The error that names the key as the user wrote it; ``twice``: among the rows to add, not in the table."""
    schema = state.current
    values = tuple(codec.show_one(v) for codec, v in zip(schema.key_codecs, encoded, strict=True))
    shown = values[0] if len(values) == 1 else values
    columns = ", ".join(f.name for f in schema.key_fields)
    name = state.table.full_name
    return DuplicateKeyError(
        f"Primary key {columns} = {shown!r} is given twice: two of the rows for table {name!r} have it. Keep only one."
        if twice
        else f"Primary key {columns} = {shown!r} already exists in table {name!r}. Use update or upsert to change the "
        "existing row.",
        table=name,
        key=shown,
    )


def decode_key(state: TableState, key: Key) -> list[Any]:
    """The encoded column values of a key."""
    codecs = state.current.key_codecs
    if isinstance(key, int):
        return [key - (1 << 63)]
    if len(codecs) == 1:
        return [key]
    values: list[Any] = []
    rest = key
    for n, codec in enumerate(codecs):
        if codec.kind == "int":
            values.append(int.from_bytes(rest[:8], "big") - (1 << 63))
            rest = rest[8:]
        elif n == len(codecs) - 1:
            values.append(rest)
        else:
            end = 0
            while rest[end : end + 2] != b"\x00\x00":
                end += 2 if rest[end] == 0 else 1
            values.append(rest[:end].replace(b"\x00\xff", b"\x00"))
            rest = rest[end + 2 :]
    return values
