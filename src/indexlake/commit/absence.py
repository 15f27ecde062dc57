"""Check that wanted values are absent: look them up outside the critical section, confirm inside it.

A *look* holds as of the snapshot of the state it used. Inside the section only what came later matters: live blocks
written since then require another look, and hot rows are queried directly. A row that a look has found counts only if
it is still live, and rows that the write-set itself closes never count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from indexlake.catalog import data_files, delete_entries
from indexlake.commit.wanted import Holder, MergeValues, Wanted, new_keys
from indexlake.errors import ConflictError, DuplicateKeyError
from indexlake.indexes.keys import decode_key

if TYPE_CHECKING:
    from indexlake.blocks.open_files import OpenFiles
    from indexlake.catalog.driver import Transaction
    from indexlake.catalog.table_heads import Head
    from indexlake.commit.write_set import TableWrites
    from indexlake.hot.store import HotRow, HotTable
    from indexlake.snapshots.reading import Reading, Readings
    from indexlake.snapshots.state import TableState

FEW = 64
"""Up to this many keys are looked up among the hot rows inside the section; more are looked up before it."""


class LookNeeded(Exception):
    """Raised in the section when something relevant was written since the look: leave, look again, come back."""


class Look(NamedTuple):
    """Live rows that have wanted values: those in blocks as of snapshot ``at``, hot ones as of ``hot_at``."""

    wanted: Wanted
    at: int
    hot_at: int
    in_blocks: tuple[Holder, ...] = ()
    in_hot: tuple[HotRow, ...] = ()

    @staticmethod
    def nothing(wanted: Wanted) -> Look:
        """Return a look that has seen nothing yet."""
        return Look(wanted, wanted.since, wanted.since)


# ---------------------------------------------------------------- outside the section


def first_look(writes: TableWrites, base: int, readings: Readings | None, files: OpenFiles) -> tuple[Look, ...]:
    """Look for every value that must be absent, in the write-set's own state if that is recent enough.

    Without ``readings``, the table is new: there are no other rows.
    """
    state = writes.state
    writes.checked.clear()  # cleared because the write-set may be committed again after waiting for its turn
    keys: list[Look] | None
    try:
        keys = _looks_for_keys(writes, state, files)
    except DuplicateKeyError:  # its own rows repeat a key: an error unless the index was dropped meanwhile
        if readings is None:
            raise
        keys = None
    if keys is None:
        assert readings is not None
        writes.checked.clear()
        state = readings.latest(state.table.table_id)
        keys = _looks_for_keys(writes, state, files)
    if writes.truncate or not (keys or writes.loaded or writes.absent):
        return ()
    before = list(writes.loaded)
    for values in writes.absent:
        before.append(Look.nothing(MergeValues(None, values.fields, values.keys, base)))
    if readings is None:
        return tuple(look(each, state, None, writes, files) for each in (*before, *(keys or ())))
    if keys:
        if False not in map(_are_few, keys) and not (writes.absent and state.at > base):
            for each in keys:
                before.append(look(each, state, None, writes, files))
            return tuple(before)
        before += keys
    elif not writes.absent or state.at <= base:
        return tuple(before)
    with readings.open(state.table.table_id) as reading:
        return look_again(before, reading, writes, files)


def _looks_for_keys(writes: TableWrites, state: TableState, files: OpenFiles) -> list[Look]:
    """Return empty looks for the keys of enforced unique indexes that must be looked up and have not been."""
    found: list[Look] = []
    if not writes.rows and not writes.blocks:
        return found
    for coverage in writes.enforced(state):
        index = coverage.index
        if index.index_id in writes.checked:
            continue
        if not index.is_primary and not index.fits(writes.state.current):
            name = writes.state.table.full_name
            raise ConflictError(
                f"Unique index {index.name!r} of table {name!r} is on a column that was added after this transaction "
                "began. Run it again; lake.run does so by itself.",
                table=name,
            )
        writes.checked.add(index.index_id)
        if (wanted := new_keys(writes, coverage, files)) is not None:
            found.append(Look.nothing(wanted))
    return found


def _are_few(each: Look) -> bool:
    keys = each.wanted.keys
    return keys is not None and len(keys) <= FEW


def look_again(before: Sequence[Look], reading: Reading, writes: TableWrites, files: OpenFiles) -> tuple[Look, ...]:
    """Extend looks to everything the reading can see, including indexes that have become unique since."""
    fresh = _looks_for_keys(writes, reading.state, files)
    if writes.truncate:
        return ()  # every existing row goes; the write-set's own rows were compared with each other
    enforced = {coverage.index.index_id for coverage in reading.state.enforced}
    kept = (each for each in before if each.wanted.index is None or each.wanted.index.index_id in enforced)
    before = [*kept, *fresh]
    return tuple(look(old, reading.state, newer_rows(old, reading.hot, writes), writes, files) for old in before)


def newer_rows(before: Look, hot: HotTable, writes: TableWrites) -> list[HotRow] | None:
    """Return hot rows newer than the look that may hold wanted values; None: leave finding them to the section."""
    wanted = before.wanted
    if wanted.keys is None:
        return [row for row in hot.since(wanted.fields, before.hot_at) if row.row_id not in writes.closed]
    if wanted.since < 0 and _are_few(before):
        return None
    return hot.holders(wanted.fields, wanted.keys, before.hot_at, writes.closed, indexed=wanted.index is not None)


def look(before: Look, state: TableState, rows: list[HotRow] | None, writes: TableWrites, files: OpenFiles) -> Look:
    """Extend a look to the blocks of ``state``, and to hot rows read in the same transaction if given."""
    wanted, at, hot_at, in_blocks, in_hot = before
    if state.at > at:
        found: list[Holder] = []
        for block, positions, keys in wanted.in_blocks(state, at, files):
            row_ids = state.row_ids_at(block, positions, files).tolist()
            for row_id, position, key in zip(row_ids, positions, keys, strict=True):
                if row_id not in writes.closed:
                    found.append((block.data_file_id, position, key))
        at, in_blocks = state.at, (*in_blocks, *found)
    if rows is not None:
        hot_at, in_hot = max(hot_at, state.at), (*in_hot, *wanted.held(rows, state, files))
    return Look(wanted, at, hot_at, in_blocks, in_hot)


# ---------------------------------------------------------------- inside the section


def check(tx: Transaction, head: Head, hot: HotTable, writes: TableWrites, found: Look) -> None:
    """Raise ``LookNeeded`` if the look is out of date, or the appropriate error if a wanted value is taken."""
    wanted = found.wanted
    if head.blocks_changed_in > found.at and data_files.has_new_live_blocks(
        tx, writes.state.table.table_id, found.at, wanted.since
    ):
        raise LookNeeded
    for file_id, position, key in found.in_blocks:
        if is_live_in_block(tx, file_id, position):
            raise wanted.taken(writes, decode_key(wanted.codecs, key))
    for row in found.in_hot:
        if hot.is_live(row.row_id, row.begin):
            raise wanted.taken(writes, row.values)
    if wanted.keys is None:
        if next(hot.since((), found.hot_at), None) is not None:
            raise LookNeeded
        return
    for row in hot.holders(wanted.fields, wanted.keys, found.hot_at, writes.closed, indexed=wanted.index is not None):
        raise wanted.taken(writes, row.values)


def is_live_in_block(tx: Transaction, file_id: int, position: int) -> bool:
    """Return whether the row at a position of a block is live now."""
    return bool(data_files.live_block_ids(tx, [file_id])) and not any(
        position in dead for dead in delete_entries.deleted_positions(tx, file_id)
    )
