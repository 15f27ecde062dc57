"""Writes key segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from indexlake import kernels as pc
from indexlake.blocks.checksum import Checksums
from indexlake.keys import bloom, layout
from indexlake.keys.encoding import KeyColumn, binary_parts, key_to_bytes

if TYPE_CHECKING:
    from indexlake.storage import Storage

_MAX_BOUND = 64


@dataclass(frozen=True, slots=True)
class WrittenSegment:
    """A segment file that is in storage.  `min_key` and `max_key` bound its keys, in `key_to_bytes` form."""

    path: str
    size: int
    checksums: Checksums
    key_count: int
    min_key: bytes
    max_key: bytes


def write_segment(storage: Storage, path: str, keys: KeyColumn, positions: npt.ArrayLike) -> WrittenSegment:
    """Write the segment of some keys, in any order, each with its position in the block."""
    places = np.asarray(positions)
    if len(places) != len(keys):
        raise ValueError(f"{len(keys)} keys but {len(places)} positions")
    if len(places) and (int(places.min()) < 0 or int(places.max()) >= 1 << 32):
        raise ValueError("a position in a block is from 0 to 2**32 - 1")
    order = keys.argsort()
    ordered = keys.take(order)
    pieces = segment_pieces(ordered, places[order].astype("<u4"))
    with storage.create_file(path) as file:
        for piece in pieces:
            file.write(piece)
    low, high = (ordered[0], ordered[len(ordered) - 1]) if len(ordered) else (b"", b"")
    return WrittenSegment(
        path,
        sum(map(len, pieces)),
        file.checksums,
        len(keys),
        lower_bound(key_to_bytes(low)),
        upper_bound(key_to_bytes(high)),
    )


def segment_pieces(keys: KeyColumn, positions: npt.NDArray[np.uint32]) -> Sequence[memoryview]:
    """The contents of a segment file, from sorted keys and their little-endian positions."""
    common = keys.common_prefix()
    prefixes = keys.prefixes(len(common)).astype("<u8", copy=False)
    contents: dict[str, Any] = {
        "common": common,
        "fences": prefixes[:: layout.FENCE_STEP].copy(),
        "bloom": bloom.build(bloom.hash_keys(keys), bloom.block_count(len(keys))),
        "prefixes": np.ascontiguousarray(prefixes),
        "positions": positions,
    }
    width = 8
    if not keys.is_int:
        offsets, data = binary_parts(keys.binary)
        width = _fixed_width(offsets)
        contents["keys"] = data
        if not width:
            contents["offsets"] = offsets.astype("<u4" if len(data) < 1 << 32 else "<u8")
    return layout.assemble(
        contents, key_count=len(keys), is_int=keys.is_int, unique=_is_unique(keys, prefixes), width=width
    )


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
