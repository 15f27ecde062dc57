"""Rows to insert that may conflict on a unique key: ``on conflict``.

Two rows conflict if they have the same values in all columns of the primary key or of a unique index, with no NULL
among them. If rows to insert conflict with each other, the first one wins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.commit.write_set import AbsentValues
from indexlake.schema import Field
from indexlake.snapshots.state import TableState
from indexlake.sources.rules import default_array
from indexlake.writes.assignments import Assignments
from indexlake.writes.edit import Edit
from indexlake.writes.merge.keys import SourceKeys
from indexlake.writes.merge.match import Matching
from indexlake.writes.merge.on import On
from indexlake.writes.merge.source import Source

if TYPE_CHECKING:
    from indexlake.transaction import Transaction

Fields = tuple[Field, ...]
_STEP = 65_536


def unique_keys(state: TableState) -> list[Fields]:
    """Return the columns of each key that no two rows may share, the primary key first."""
    indexes = sorted((coverage.index for coverage in state.enforced), key=lambda index: not index.is_primary)
    return [index.fields(state.current) for index in indexes]


def firsts(source: Source, key: Fields) -> npt.NDArray[np.int64] | None:
    """Return the rows of a source without those that repeat an earlier row's key; None: all of them."""
    groups = _groups(SourceKeys(source, _on(key)), len(source))
    keyed = np.flatnonzero(groups >= 0)
    first = keyed[np.unique(groups[keyed], return_index=True)[1]]
    if len(first) == len(keyed):
        return None
    return np.sort(np.concatenate([first, np.flatnonzero(groups < 0)]))


def insert_absent(tx: Transaction, table_id: int, source: Source, keys: Sequence[Fields]) -> int:
    """Insert the rows that conflict with no other, and return their number; the source has all columns of the keys."""
    found = [SourceKeys(source, _on(key)) for key in keys]
    matching: list[Matching] = []
    with tx.reading(table_id) as reading:
        state = reading.state
        for key, own in zip(keys, found, strict=True):
            matching.append(Matching(reading, tx._lake, _on(key), own))
            matching[-1].plan(())
    tx.pin()
    free = np.ones(len(source), np.bool_)
    for own, search in zip(found, matching, strict=True):
        for match in search.rows():
            for _, rows in own.pairs(match.indices, match.numbers):
                free[rows] = False
    rows = _one_by_one(np.flatnonzero(free), [_groups(own, len(source)) for own in found])
    edit = Edit(tx, state)
    setter = Assignments({}, state.current, copies={name: name for name in source.schema.names})
    for start in range(0, len(rows), _STEP):
        batch = source.take(rows[start : start + _STEP], source.schema.names)
        edit.insert(setter.apply(batch, _defaults(batch)))
    for key, own in zip(keys, found, strict=True):
        places = np.searchsorted(own.rows, rows[np.isin(rows, own.rows)])
        if len(places) and key == state.current.key_fields:
            edit.claimed = own.column.take(places)
        elif len(places):
            edit.absent.append(AbsentValues(key, own.column.take(places)))
    return edit.apply()


def _on(key: Fields) -> On:
    return On(tuple((f, f.name) for f in key), None)


def _groups(keys: SourceKeys, count: int) -> npt.NDArray[np.int64]:
    """Return the number of each row's key; -1: it contains a NULL and conflicts with nothing."""
    groups = np.full(count, -1, np.int64)
    sizes = np.diff(keys.set.starts)
    groups[keys.rows[keys.set.order]] = np.repeat(np.arange(len(sizes)), sizes)
    return groups


def _one_by_one(rows: npt.NDArray[np.int64], groups: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    """Return the rows that remain when each is dropped if it conflicts with one kept before it."""
    if all(_distinct(numbers[rows]) for numbers in groups):
        return rows
    seen: list[set[int]] = [set() for _ in groups]
    kept = []
    for row in rows.tolist():
        own = [int(numbers[row]) for numbers in groups]
        if any(number in known for number, known in zip(own, seen, strict=True)):
            continue
        kept.append(row)
        for number, known in zip(own, seen, strict=True):
            if number >= 0:
                known.add(number)
    return np.array(kept, np.int64)


def _distinct(numbers: npt.NDArray[np.int64]) -> bool:
    keyed = numbers[numbers >= 0]
    return len(np.unique(keyed)) == len(keyed)


def _defaults(batch: pa.RecordBatch) -> Callable[[Field], pa.Array]:
    return lambda f: default_array(f, batch.num_rows)
