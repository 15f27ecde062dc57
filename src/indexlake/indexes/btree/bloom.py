"""A blocked Bloom filter over keys: all bits of a key are in one 64-byte block, which is one cache line.

With 10 bits per key, about one absent key in a hundred passes.  The filter is part of the file format: hashes and bit
positions are the same in every process and on every platform.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

BLOCK_BYTES = 64
BITS_PER_KEY = 10

_PROBES = 7
_WORD = (1 << 64) - 1
_SPREAD = 0x9E3779B97F4A7C15
_SLICE = 1 << 14
_PIECE_BLOCKS = 1 << 13  # 512 kB of the file, 4 MB while being built


def block_count(key_count: int) -> int:
    """Return the number of blocks of a filter for this many keys."""
    return max(1, -(-key_count * BITS_PER_KEY // (8 * BLOCK_BYTES)))


def build(hashes: npt.NDArray[np.uint64], blocks: int) -> npt.NDArray[np.uint64]:
    """Return the filter of some hashes: `blocks` times eight words, little-endian on disk."""
    return np.concatenate(list(pieces(lambda: [np.sort(hashes)], blocks)))


def pieces(hashes: Callable[[], Iterable[npt.NDArray[np.uint64]]], blocks: int) -> Iterator[npt.NDArray[np.uint64]]:
    """Yield the filter piece by piece, going through all hashes again for each piece.

    The hashes in each array ascend, and so do their blocks: so those of a piece lie together, and bits are set in
    memory that is still in the processor's cache.
    """
    for first in range(0, blocks, _PIECE_BLOCKS):
        count = min(_PIECE_BLOCKS, blocks - first)
        bits = np.zeros(count * 8 * BLOCK_BYTES, np.uint8)  # one byte per bit is much faster than setting bits
        least, most = _least_hash(first, blocks), _least_hash(first + count, blocks) - 1
        for several in hashes():
            low = np.searchsorted(several, np.uint64(least))
            high = np.searchsorted(several, np.uint64(most), "right")
            for start in range(low, high, _SLICE):
                part = several[start : min(high, start + _SLICE)]
                places = part * np.uint64(_SPREAD)
                base = (_block_numbers(part, blocks) - np.uint64(first)) << np.uint64(9)
                for probe in range(_PROBES):
                    bit = (places >> np.uint64(9 * probe)) & np.uint64(511)
                    bit |= base
                    bits[bit.view(np.int64)] = 1
        yield np.packbits(bits, bitorder="little").view("<u8")


def _least_hash(block: int, blocks: int) -> int:
    """Return the least hash whose bits are in this block or a later one."""
    return -(-(block << 32) // blocks) << 32


def block_of(hash_: int, blocks: int) -> int:
    """Return the number of the block that holds the bits of a hash."""
    return ((hash_ >> 32) * blocks) >> 32


def block_has(block: Any, hash_: int) -> bool:
    """Return whether a block (64 bytes) has all bits of a hash."""
    b = (hash_ * _SPREAD) & _WORD
    mask = (
        1 << (b & 511)
        | 1 << (b >> 9 & 511)
        | 1 << (b >> 18 & 511)
        | 1 << (b >> 27 & 511)
        | 1 << (b >> 36 & 511)
        | 1 << (b >> 45 & 511)
        | 1 << (b >> 54 & 511)
    )
    return int.from_bytes(block, "little") & mask == mask


def may_hold(words: npt.NDArray[np.uint64], hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Return which hashes may be in the filter, given all its words."""
    blocks = len(words) // 8
    base = (_block_numbers(hashes, blocks) << np.uint64(3)).astype(np.int64)
    bits = hashes * np.uint64(_SPREAD)
    found = np.ones(len(hashes), np.bool_)
    for probe in range(_PROBES):
        bit = (bits >> np.uint64(9 * probe)) & np.uint64(511)
        word = words[base + (bit >> np.uint64(6)).astype(np.int64)]
        found &= ((word >> (bit & np.uint64(63))) & np.uint64(1)).astype(np.bool_)
    return found


def _block_numbers(hashes: npt.NDArray[np.uint64], blocks: int) -> npt.NDArray[np.uint64]:
    return ((hashes >> np.uint64(32)) * np.uint64(blocks)) >> np.uint64(32)


def full() -> npt.NDArray[np.uint64]:
    """Return a filter that every hash passes."""
    return np.full(8, _WORD, "<u8")
