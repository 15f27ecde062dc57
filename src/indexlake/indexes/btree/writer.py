"""The contents of new key segments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from indexlake.arrow import kernels as pc
from indexlake.indexes.btree import bloom, header
from indexlake.indexes.keys import KeyColumn, binary_parts, hash_keys, key_to_bytes
from indexlake.indexes.kind import Content, Slots

_MAX_BOUND = 64


def segment_content(keys: KeyColumn, slots: Slots, starts: Sequence[int], *, filtered: bool = True) -> Content:
    """A segment of some keys, in any order, each with its slot; the slots of equal keys ascend.

    Without the filter it is made faster and looked into slower.
    """
    order = keys.argsort()
    ordered, places = keys.take(order), slots[order]
    contents, width = _run_sections(ordered, places, starts[-1])
    prefixes = contents["prefixes"]
    contents["starts"] = np.array(starts, "<u8")
    contents["bloom"] = bloom.build(hash_keys(ordered), bloom.block_count(len(ordered))) if filtered else bloom.full()
    pieces = header.assemble(
        contents,
        key_count=len(keys),
        is_int=keys.is_int,
        unique=_is_unique(ordered, prefixes),
        width=width,
        slot_count=starts[-1],
    )
    return Content(pieces, *_bounds(ordered))


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
    if keys.is_int:
        return False
    return not pc.any(pc.equal(keys.binary.slice(1), keys.binary.slice(0, len(keys) - 1))).as_py()
