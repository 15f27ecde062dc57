"""The contents of new key segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.arrow import kernels as pc
from indexlake.indexes.btree import bloom, header
from indexlake.indexes.btree.partial import NULL, after, first_part
from indexlake.indexes.keys import KeyColumn, binary_parts, hash_keys, key_to_bytes
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
    values: dict[str, Any] = field(default_factory=dict)  # their sections


def segment_content(entries: Entries, *, filtered: bool = True, repeated: bool = False) -> Content:
    """Without the filter it is made faster and looked into slower.  ``repeated``: a slot may have a key twice."""
    order = entries.keys.argsort()
    keys, slots = entries.keys.take(order), entries.slots[order]
    if repeated and len(keys):
        kept = np.flatnonzero(np.append(True, (slots[1:] != slots[:-1]) | ~_same_as_next(keys)))
        keys, slots = keys.take(kept), slots[kept]
    count = entries.starts[-1]
    contents, width = _run_sections(keys, slots, count)
    contents["starts"] = np.array(entries.starts, "<u8")
    contents["bloom"] = bloom.build(hash_keys(keys), bloom.block_count(len(keys))) if filtered else bloom.full()
    contents["nulls"] = entries.nulls.astype(f"<u{header.slot_size(count)}")
    contents |= entries.values
    low, high = _bounds(keys)
    partial_width = partial_count = 0
    if entries.partial_keys is not None and (partial_count := len(entries.partial_keys)):
        order = entries.partial_keys.argsort()
        partial = entries.partial_keys.take(order)
        sections, partial_width = _run_sections(partial, entries.partial_slots[order], count)
        contents |= {f"partial_{name}": section for name, section in sections.items()}
        low, high = _partial_bounds(partial, low, high)
    pieces = header.assemble(
        contents,
        key_count=len(keys),
        is_int=keys.is_int,
        unique=_is_unique(keys, contents["prefixes"]),
        width=width,
        slot_count=count,
        partial_count=partial_count,
        partial_width=partial_width,
    )
    return Content(pieces, low, high)


def _run_sections(keys: KeyColumn, slots: Slots, slot_count: int) -> tuple[dict[str, Any], int]:
    """The sections of sorted keys, and the width of the keys."""
    common = keys.common_prefix()
    prefixes = np.ascontiguousarray(keys.prefixes(len(common)).astype("<u8", copy=False))
    sections: dict[str, Any] = {
        "common": common,
        "fences": prefixes[:: header.FENCE_STEP].copy(),
        "prefixes": prefixes,
        "positions": slots.astype(f"<u{header.slot_size(slot_count)}"),
    }
    if keys.is_int:
        return sections, 8
    offsets, data = binary_parts(keys.binary)
    width = _fixed_width(offsets)
    sections["keys"] = data
    if not width:
        sections["offsets"] = offsets.astype("<u4" if len(data) < 1 << 32 else "<u8")
    return sections, width


def _bounds(ordered: KeyColumn) -> tuple[bytes, bytes]:
    """What the keys are between, for the catalog; of no keys, something that no key is between."""
    if not len(ordered):
        return b"\xff" * 8, b"\x00" * 8 if ordered.is_int else b""
    low, high = ordered[0], ordered[len(ordered) - 1]
    return lower_bound(key_to_bytes(low)), upper_bound(key_to_bytes(high))


def _partial_bounds(ordered: KeyColumn, low: bytes, high: bytes) -> tuple[bytes, bytes]:
    """Bounds that also hold the values in front of the nulls of some keys; those that start with a null have none."""
    keys: Any = ordered.binary
    valued = pc.sum(pc.less(keys, pa.scalar(NULL, pa.large_binary()))).as_py()
    if not valued:
        return low, high
    first, last = first_part(keys[0].as_py()), first_part(keys[valued - 1].as_py())
    return min(low, lower_bound(first)), max(high, upper_bound(after(last) or b"\xff" * 4 * _MAX_BOUND))


def lower_bound(key: bytes) -> bytes:
    """At or below a key, and short enough for a catalog record."""
    return key[:_MAX_BOUND]


def upper_bound(key: bytes) -> bytes:
    """At or above a key, and short unless the key starts with many FF."""
    if len(key) <= _MAX_BOUND:
        return key
    kept = key[:_MAX_BOUND].rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else key


def _fixed_width(offsets: npt.NDArray[np.int64]) -> int:
    widths = np.diff(offsets)
    return int(widths[0]) if len(widths) and bool((widths == widths[0]).all()) else 0


def _is_unique(keys: KeyColumn, prefixes: npt.NDArray[np.uint64]) -> bool:
    if not (prefixes[1:] == prefixes[:-1]).any():
        return True
    return not (keys.is_int or _same_as_next(keys).any())


def _same_as_next(keys: KeyColumn) -> npt.NDArray[np.bool_]:
    if keys.ints is not None:
        same: npt.NDArray[np.bool_] = keys.ints[1:] == keys.ints[:-1]
        return same
    return np.asarray(pc.equal(keys.binary.slice(1), keys.binary.slice(0, len(keys) - 1)))
