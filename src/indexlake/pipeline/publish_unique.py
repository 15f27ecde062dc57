"""Publishing a unique index that has been built: no two live rows have the same key, and none may from then on.

All rows are compared at one snapshot, outside the critical section. Rows committed in the meantime are compared with
the others in rounds; the last round, with the few remaining rows, is inside the section that publishes the index. Until
then the index causes no errors. If there are duplicate keys, the index is dropped instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.arrow import kernels as pc
from indexlake.blocks.delete_vector import is_among
from indexlake.catalog import segments, table_heads
from indexlake.catalog.index_definitions import drop_index
from indexlake.commit.section import Section
from indexlake.commit.wanted import NewKeys
from indexlake.display import short
from indexlake.errors import DuplicateKeyError
from indexlake.indexes.key_set import KeySet
from indexlake.indexes.keys import Key, KeyColumn, decode_key
from indexlake.pipeline.key_tasks import ranges
from indexlake.scan.execute import read_task
from indexlake.scan.plan import block_task
from indexlake.schema import VERSION
from indexlake.snapshots.reading import Reading
from indexlake.snapshots.state import refresh
from indexlake.storage import faults

if TYPE_CHECKING:
    from indexlake.blocks.block import BlockRecord
    from indexlake.indexes.coverage import Coverage
    from indexlake.lake import Lake

ROUNDS_OUTSIDE = 3
NAMED = 5
"""How many duplicate keys the error names."""


def publish_unique(lake: Lake, table_id: int, index_id: int) -> None:
    """Enforce the index, or raise ``DuplicateKeyError`` and drop it if two rows have the same key.

    Does nothing to an index that is not unique or is already enforced.
    """
    since, rounds = -1, 0
    while True:
        with lake._readings.open(table_id) as reading:
            coverage = reading.state.indexes.get(index_id)
            if coverage is None or not coverage.index.unique:
                return
            if coverage.index.end_snapshot is not None or coverage.index.enforced_snapshot is not None:
                return
            hot = _hot_keys(reading, coverage, -1 if since < 0 else since)
            everything = hot if since < 0 else _hot_keys(reading, coverage, -1)
        twice = _repeated(lake, reading, coverage, hot, everything, since)
        since = reading.snapshot
        faults.step("publish_unique.validated")
        if _publish(lake, table_id, coverage, twice, since, inside=rounds >= ROUNDS_OUTSIDE):
            return
        rounds += 1


def _publish(lake: Lake, table_id: int, coverage: Coverage, twice: list[Key], since: int, *, inside: bool) -> bool:
    """Enforce or drop the index; return False if rows were committed after ``since`` that must be compared first."""
    index = coverage.index
    with Section(lake.catalog, lake._hot) as section:
        tx, s = section.tx, section.sequencer.next
        if index.index_id not in segments.live_index_ids(tx, table_id):
            return True
        if not twice:
            state = refresh(tx, table_id, None)
            reading = Reading(tx, state, state.at, lake._hot)
            if reading.hot.has_begun_since(since) or section.sequencer.has_changed_since(table_id, since):
                if not inside:
                    return False
                now = state.indexes[index.index_id]
                hot, everything = (_hot_keys(reading, now, from_) for from_ in (since, -1))
                twice = _repeated(lake, reading, now, hot, everything, since)
        if twice:
            drop_index(tx, section.hot, table_id, index, s)
        else:
            segments.enforce_index(tx, index.index_id, s)
            table_heads.touch_table(tx, table_id, s)
        section.sequencer.record("publish_index", job=True)
        faults.step("publish_unique.commit")
        section.commit()
    if twice:
        raise _duplicates(lake, table_id, coverage, twice)
    return True


def _hot_keys(reading: Reading, coverage: Coverage, since: int) -> KeyColumn:
    """Return the keys of the hot rows that were committed after ``since``."""
    fields = coverage.index.fields(reading.schema)
    parts = [
        _keys(coverage, reading, batch.columns[: len(fields)], batch.column(VERSION).to_numpy() > since)
        for batch in reading.hot.rows(fields).batches()
    ]
    return _joined(parts, coverage, reading)


def _keys(
    coverage: Coverage, reading: Reading, columns: Sequence[pa.Array], wanted: npt.NDArray[np.bool_]
) -> KeyColumn:
    """Return the keys of the wanted rows, except those with a null in their key."""
    codecs = [f.codec for f in coverage.index.fields(reading.schema)]
    for column in columns:
        wanted = wanted & np.asarray(column.is_valid())
    kept = [column.filter(pa.array(wanted)) for column in columns]
    return KeyColumn.from_arrays(codecs, kept)


def _joined(parts: list[KeyColumn], coverage: Coverage, reading: Reading) -> KeyColumn:
    codecs = [f.codec for f in coverage.index.fields(reading.schema)]
    nothing = KeyColumn.from_keys([], ints=len(codecs) == 1 and codecs[0].kind == "int")
    return KeyColumn.concat([nothing, *parts])


def _repeated(
    lake: Lake, reading: Reading, coverage: Coverage, hot: KeyColumn, all_hot: KeyColumn, since: int
) -> list[Key]:
    """Return keys that two live rows have, one of which was committed after ``since``."""
    newer = _joined([hot, *_newer_in_blocks(lake, reading, coverage, since)], coverage, reading)
    if since < 0:
        return _among_all(lake, reading, coverage, newer)
    if not len(newer):
        return []
    wanted = KeySet(newer)
    found = [wanted.find(all_hot)[1]]
    state, files = reading.state, lake._files
    holders = NewKeys(coverage.index, coverage.index.fields(reading.schema), wanted.keys)
    for _, _, keys in holders.in_blocks(state, -1, files):
        column = keys if isinstance(keys, KeyColumn) else KeyColumn.from_keys(list(keys), ints=wanted.keys.is_int)
        found.append(wanted.find(column)[1])
    counts = np.bincount(np.concatenate(found), minlength=len(wanted))
    return [wanted.keys[n] for n in np.flatnonzero(counts > 1)[:NAMED].tolist()]


def _newer_in_blocks(lake: Lake, reading: Reading, coverage: Coverage, since: int) -> Iterator[KeyColumn]:
    """Yield keys in blocks of rows committed after ``since``; if that is negative, only in blocks without a segment."""
    state = reading.state
    fields = coverage.index.fields(reading.schema)
    for block in state.blocks.records:
        if block.role == "history" or not block.visible_at(state.at) or block.max_snapshot <= since:
            continue
        if since < 0 and block.data_file_id not in coverage.gaps:
            continue
        for batch in read_task(
            block_task(state, block, state.at), lake._files, fields, None, row_id=False, version=True
        ):
            yield _keys(coverage, reading, batch.columns[: len(fields)], batch.column(VERSION).to_numpy() > since)


def _among_all(lake: Lake, reading: Reading, coverage: Coverage, others: KeyColumn) -> list[Key]:
    """Return keys that occur twice among the live rows known to segments and ``others``, a range at a time."""
    groups = coverage.groups(reading.state, reading.snapshot)
    opened = [(lake._files.segment(group.segment, coverage.index.open), group.blocks) for group in groups]
    found: list[Key] = []
    for low, high in ranges([segment for segment, _ in opened]):
        parts = [others.take(_between(others, low, high))]
        for segment, blocks in opened:
            first, end = segment.rows_between(low, high)
            slots = segment.key_slots(first, end)
            live = _live(reading, segment.starts, blocks, slots)
            parts.append(segment.keys(first, end).take(np.flatnonzero(live)))
        keys = KeyColumn.concat(parts)
        while len(found) < NAMED and (again := keys.first_duplicate()) is not None:
            found.append(keys[again])
            keys = keys.take(np.flatnonzero(~KeySet(keys.slice(again, 1)).mask(keys)))
    return sorted(found)


def _live(
    reading: Reading, starts: Sequence[int], blocks: Sequence[tuple[BlockRecord, int]], slots: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Return which slots hold rows that are live now."""
    live = np.zeros(len(slots), np.bool_)
    for block, ordinal in blocks:
        here = np.flatnonzero((slots >= starts[ordinal]) & (slots < starts[ordinal + 1]))
        log = reading.state.deletes.get(block.data_file_id)
        dead = log.at(reading.snapshot) if log is not None else None
        live[here] = ~is_among(slots[here] - starts[ordinal], dead) if dead else True
    return live


def _between(keys: KeyColumn, low: Key | None, high: Key | None) -> npt.NDArray[np.int64]:
    inside = np.ones(len(keys), np.bool_)
    for bound, (numbers, texts) in ((low, (np.greater_equal, pc.greater_equal)), (high, (np.less, pc.less))):
        if bound is not None and keys.ints is not None:
            inside &= numbers(keys.ints, np.uint64(bound))
        elif bound is not None:
            inside &= np.asarray(texts(keys.binary, pa.scalar(bound, pa.large_binary())))
    return np.flatnonzero(inside)


def _duplicates(lake: Lake, table_id: int, coverage: Coverage, twice: list[Key]) -> DuplicateKeyError:
    state = lake._readings.latest(table_id)
    fields = coverage.index.fields(state.current)
    codecs = [f.codec for f in fields]
    keys = []
    for key in twice:
        values = tuple(f.codec.show_one(v) for f, v in zip(fields, decode_key(codecs, key), strict=True))
        keys.append(values[0] if len(values) == 1 else values)
    columns, name = ", ".join(f.name for f in fields), state.table.full_name
    return DuplicateKeyError(
        f"Index {coverage.index.name!r} of table {name!r} cannot be unique: several rows have {columns} = "
        f"{', '.join(map(short, keys))}{' and others' if len(twice) == NAMED else ''}. The index was dropped again; "
        "change these rows and create it anew, or create it without unique=True.",
        table=name,
        key=keys[0],
        index=coverage.index.name,
    )
