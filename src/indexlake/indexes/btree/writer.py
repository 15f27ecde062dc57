"""Puts together the contents of new key segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from indexlake.indexes.btree import header
from indexlake.indexes.btree.partial import after, first_part
from indexlake.indexes.btree.run_writer import RunWriter, same_as_next
from indexlake.indexes.keys import KeyColumn, key_to_bytes
from indexlake.indexes.kind import Content, Slots

_MAX_BOUND = 64


@dataclass(frozen=True, slots=True)
class Entries:
    """What goes into a segment.  Keys are in any order; slots of equal keys ascend, and so do those of nulls."""

    keys: KeyColumn
    slots: Slots
    starts: Sequence[int]
    partial_keys: KeyColumn | None = None
    partial_slots: Slots = field(default_factory=lambda: np.zeros(0, np.int64))
    nulls: Slots = field(default_factory=lambda: np.zeros(0, np.int64))
    values: dict[str, Any] = field(default_factory=dict)  # the sections of the included columns


def segment_content(entries: Entries, *, filtered: bool = True, repeated: bool = False) -> Content:
    """Return a segment; without the filter it is built faster.  ``repeated``: a slot may have a key twice."""
    keys, slots = entries.keys, entries.slots
    order = keys.order()
    if order is not None:
        keys, slots = keys.take(order), slots[order]
    if repeated and len(keys):
        kept = np.flatnonzero(np.append(True, (slots[1:] != slots[:-1]) | ~same_as_next(keys)))
        keys, slots = keys.take(kept), slots[kept]
    count = entries.starts[-1]
    run = RunWriter(keys.common_prefix(), ints=keys.is_int, slot_count=count, filtered=filtered, whole=True)
    run.add(keys, slots)
    partial = None
    if entries.partial_keys is not None and len(entries.partial_keys):
        order = entries.partial_keys.argsort()
        keys = entries.partial_keys.take(order)
        partial = RunWriter(keys.common_prefix(), ints=False, slot_count=count, whole=True)
        partial.add(keys, entries.partial_slots[order])
        partial.note_valued(keys)
    nulls = entries.nulls.astype(f"<u{header.slot_size(count)}")
    return content_of(run, partial, entries.starts, nulls, entries.values)


def content_of(
    run: RunWriter, partial: RunWriter | None, starts: Sequence[int], nulls: Any, values: Mapping[str, Any]
) -> Content:
    """Return a segment put together from its runs and its other sections."""
    contents = run.sections() | {"starts": np.array(starts, "<u8"), "bloom": run.bloom(), "nulls": nulls} | dict(values)
    low, high = _bounds(run)
    if partial is not None:
        contents |= {f"partial_{name}": section for name, section in partial.sections().items()}
        low, high = _partial_bounds(partial, low, high)
    pieces = header.assemble(
        contents,
        key_count=run.count,
        is_int=run.is_int,
        unique=run.unique,
        width=run.width,
        slot_count=starts[-1],
        partial_count=0 if partial is None else partial.count,
        partial_width=0 if partial is None else partial.width,
    )
    return Content(pieces, low, high)


def _bounds(run: RunWriter) -> tuple[bytes, bytes]:
    """Return bounds of the keys for the catalog; without keys, bounds that no key is within."""
    if run.first is None or run.last is None:
        return b"\xff" * 8, b"\x00" * 8 if run.is_int else b""
    return lower_bound(key_to_bytes(run.first)), upper_bound(key_to_bytes(run.last))


def _partial_bounds(run: RunWriter, low: bytes, high: bytes) -> tuple[bytes, bytes]:
    """Widen the bounds to the first values of keys with nulls, except keys that start with a null."""
    if run.last_valued is None:
        return low, high
    assert isinstance(run.first, bytes)
    assert isinstance(run.last_valued, bytes)
    first, last = first_part(run.first), first_part(run.last_valued)
    return min(low, lower_bound(first)), max(high, upper_bound(after(last) or b"\xff" * 4 * _MAX_BOUND))


def lower_bound(key: bytes) -> bytes:
    """Return a bound at or below a key that is short enough for a catalog record."""
    return key[:_MAX_BOUND]


def upper_bound(key: bytes) -> bytes:
    """Return a bound at or above a key, short unless the key starts with many FF bytes."""
    if len(key) <= _MAX_BOUND:
        return key
    kept = key[:_MAX_BOUND].rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else key
