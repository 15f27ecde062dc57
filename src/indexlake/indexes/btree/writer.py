"""Writes key segments, for one block or for several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from indexlake.arrow import kernels as pc
from indexlake.indexes.btree import bloom, header
from indexlake.indexes.builder import WrittenSegment
from indexlake.indexes.keys import KeyColumn, binary_parts, hash_keys, key_to_bytes
from indexlake.indexes.kind import ORDINAL_SHIFT

if TYPE_CHECKING:
    from indexlake.storage import Storage

_MAX_BOUND = 64


def write_segment(
    storage: Storage, path: str, keys: KeyColumn, positions: npt.ArrayLike, ordinals: npt.ArrayLike | None = None
) -> WrittenSegment:
    """Write the segment of some keys, in any order, each with its position in the block.

    ``ordinals`` are those of the keys' blocks in a segment for several.
    """
    places = np.asarray(positions)
    if len(places) != len(keys):
        raise ValueError(f"{len(keys)} keys but {len(places)} positions")
    if len(places) and (int(places.min()) < 0 or int(places.max()) >= 1 << 32):
        raise ValueError("a position in a block is from 0 to 2**32 - 1")
    order = keys.argsort()
    ordered = keys.take(order)
    if ordinals is None:
        addresses = places[order].astype("<u4")
    else:
        blocks = np.asarray(ordinals).astype("<u8")
        addresses = (blocks << np.uint64(ORDINAL_SHIFT) | places.astype("<u8"))[order]
    pieces = segment_pieces(ordered, addresses)
    with storage.create_file(path) as file:
        for piece in pieces:
            file.write(piece)
    low, high = (ordered[0], ordered[len(ordered) - 1]) if len(ordered) else (b"", b"")
    bounds = lower_bound(key_to_bytes(low)), upper_bound(key_to_bytes(high))
    return WrittenSegment(sum(map(len, pieces)), file.checksums, *bounds)


def segment_pieces(keys: KeyColumn, addresses: npt.NDArray[Any]) -> Sequence[memoryview]:
    """The contents of a segment file, from sorted keys and their little-endian addresses."""
    common = keys.common_prefix()
    prefixes = keys.prefixes(len(common)).astype("<u8", copy=False)
    contents: dict[str, Any] = {
        "common": common,
        "fences": prefixes[:: header.FENCE_STEP].copy(),
        "bloom": bloom.build(hash_keys(keys), bloom.block_count(len(keys))),
        "prefixes": np.ascontiguousarray(prefixes),
        "positions": addresses,
    }
    width = 8
    if not keys.is_int:
        offsets, data = binary_parts(keys.binary)
        width = _fixed_width(offsets)
        contents["keys"] = data
        if not width:
            contents["offsets"] = offsets.astype("<u4" if len(data) < 1 << 32 else "<u8")
    return header.assemble(
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
