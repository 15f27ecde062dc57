"""Are the wanted values absent? Looked up outside the critical section, confirmed inside it.

A *look* is as of S', the snapshot of the state it used.  Inside the section, only what came after S' matters: if a
live block has been physically written since, another look is needed, and the store finds hot rows.  Whatever a look
has found counts only if it is still live.  A holder that the write-set itself closes does not count.
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
"""Up to so many keys are looked up among the hot rows inside the section; more need a read transaction before it."""


class LookNeeded(Exception):
    """Something was written since the look: leave the section, look again, come back."""


class Look(NamedTuple):
    """Live rows that have wanted values: those of blocks as of snapshot ``at``, hot ones as of ``hot_at``."""

    wanted: Wanted
    at: int
    hot_at: int
    in_blocks: tuple[Holder, ...] = ()
    in_hot: tuple[HotRow, ...] = ()

    @staticmethod
    def nothing(wanted: Wanted) -> Look:
        """Before the first look."""
        return Look(wanted, wanted.since, wanted.since)


# ---------------------------------------------------------------- outside the section


def first_look(writes: TableWrites, base: int, readings: Readings, files: OpenFiles) -> tuple[Look, ...]:
    """With the state at hand where it will do: what it misses is checked at the commit."""
    state = writes.state
    writes.checked.clear()  # it may be committed once more, after it has waited for its turn
    keys: list[Look] | None
    try:
        keys = _looks_for_keys(writes, state, files)
    except DuplicateKeyError:  # among its own rows: that counts unless the index was dropped meanwhile
        keys = None
    if keys is None:
        writes.checked.clear()
        state = readings.latest(state.table.table_id)
        keys = _looks_for_keys(writes, state, files)
    if writes.truncate:
        return ()
    before = list(writes.loaded)
    for values in writes.absent:
        before.append(Look.nothing(MergeValues(None, values.fields, values.keys, base)))
    if keys:
        if False not in [_are_few(each.wanted) for each in keys] and not (writes.absent and state.at > base):
            return (*before, *[look(each, state, None, writes, files) for each in keys])
        before += keys
    elif not writes.absent or state.at <= base:
        return tuple(before)
    with readings.open(state.table.table_id) as reading:
        return look_again(before, reading, writes, files)


def _looks_for_keys(writes: TableWrites, state: TableState, files: OpenFiles) -> list[Look]:
    """For the keys of unique indexes that nobody has looked for yet, in the state's indexes."""
    found: list[Look] = []
    if not writes.rows and not writes.blocks:
        return found
    for coverage in state.enforced:
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


def _are_few(wanted: Wanted) -> bool:
    return wanted.keys is not None and len(wanted.keys) <= FEW


def look_again(before: Sequence[Look], reading: Reading, writes: TableWrites, files: OpenFiles) -> tuple[Look, ...]:
    """Take in what was committed since, as far as the reading knows, and the indexes that became unique."""
    fresh = _looks_for_keys(writes, reading.state, files)
    if writes.truncate:
        return ()  # what was there goes; the write-set's own rows were compared with each other
    enforced = {coverage.index.index_id for coverage in reading.state.enforced}
    kept = (each for each in before if each.wanted.index is None or each.wanted.index.index_id in enforced)
    before = [*kept, *fresh]
    return tuple(look(old, reading.state, newer_rows(old, reading.hot, writes), writes, files) for old in before)


def newer_rows(before: Look, hot: HotTable, writes: TableWrites) -> list[HotRow] | None:
    """Hot rows that a look has not seen and that may have wanted values; None: they are found inside the section."""
    wanted = before.wanted
    if wanted.keys is None:
        return [row for row in hot.since(wanted.fields, before.hot_at) if row.row_id not in writes.closed]
    if wanted.since < 0 and _are_few(wanted):
        return None
    return hot.holders(wanted.fields, wanted.keys, before.hot_at, writes.closed, indexed=wanted.index is not None)


def look(before: Look, state: TableState, rows: list[HotRow] | None, writes: TableWrites, files: OpenFiles) -> Look:
    """Find wanted values in blocks, and among hot rows of the same read transaction if there are any."""
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
    """Nothing, ``LookNeeded``, or the error that a wanted value is taken."""
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
    """Whether the row at a position of a block is there now."""
    return bool(data_files.live_block_ids(tx, [file_id])) and not any(
        position in dead for dead in delete_entries.deleted_positions(tx, file_id)
    )
