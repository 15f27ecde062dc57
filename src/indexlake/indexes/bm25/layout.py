"""The file of a full-text segment, little-endian: a fixed header, then sections at 64-byte boundaries.

starts        8 bytes a block and one more: the first slot of each block
pairs         8 bytes for each different pair of (frequency, length of the document) that occurs.  What a posting weighs
              under BM25 depends on nothing else, so postings name their pair by number; the pair that weighs most at
              the segment's own average length comes first, so `code <= n` leaves out what cannot be among the best
lengths       2 or 4 bytes a slot: the number of terms of the document; all bits set where the row has no document
fence_ends    4 bytes for every 64th term: where it ends in `fences`
fences        every 64th term
term_starts   4 or 8 bytes a term and one more: where each starts in `terms`
terms         the terms in UTF-8, sorted by byte
table         24 bytes a term and one more: its first posting, its first position, its greatest frequency
slots         4 bytes a posting, ascending for each term
codes         1, 2 or 4 bytes a posting: the number of its pair
positions     2 or 4 bytes for each occurrence, ascending for each posting; absent where the index has no positions
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from indexlake.errors import CorruptionError

FENCE_STEP = 64
SECTIONS = (
    *("starts", "pairs", "lengths", "fence_ends", "fences", "term_starts", "terms", "table"),
    *("slots", "codes", "positions"),
)
TABLE = np.dtype([("posting", "<u8"), ("position", "<u8"), ("most", "<u4"), ("unused", "<u4")])
PAIR = np.dtype([("frequency", "<u4"), ("length", "<u4")])

_MAGIC = b"ILTEXSEG"
_VERSION = 1
_HEADER = struct.Struct("<8sHBBI7Q")
_SPANS = struct.Struct(f"<{2 * len(SECTIONS)}Q")
_ALIGNMENT = 64
_POSITIONS = 1
HEADER_SIZE = _HEADER.size + _SPANS.size


@dataclass(frozen=True, slots=True)
class Header:
    """The counts of everything in the file, and where each section is, as (start, size)."""

    slots: int
    documents: int
    length: int  # of all documents
    terms: int
    postings: int
    occurrences: int
    pairs: int
    has_positions: bool
    spans: Mapping[str, tuple[int, int]]

    def width(self, section: str, count: int) -> int:
        """Return the size in bytes of one of the ``count`` entries of a section."""
        return self.spans[section][1] // count if count else 1


def pack(header: Header, sizes: Mapping[str, int]) -> bytes:
    """Return the header of a file whose sections have these sizes."""
    spans: list[int] = []
    at = HEADER_SIZE
    for name in SECTIONS:
        at += padding(at)
        spans += [at, sizes[name]]
        at += sizes[name]
    flags = _POSITIONS * header.has_positions
    counts = (header.slots, header.documents, header.length, header.terms, header.postings, header.occurrences)
    return _HEADER.pack(_MAGIC, _VERSION, flags, 0, FENCE_STEP, *counts, header.pairs) + _SPANS.pack(*spans)


def padding(at: int) -> int:
    """Return the number of padding bytes before a section that could start at ``at``."""
    return -at % _ALIGNMENT


def parse(path: str, size: int, data: Any) -> Header:
    """Parse a header, and check that its sections fit the file and each other."""
    if len(data) < HEADER_SIZE:
        raise wrong(path, "it is shorter than its header")
    magic, version, flags, _, step, *counts = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise wrong(path, "it does not start like a full-text segment")
    if version != _VERSION:
        raise wrong(path, f"its version is {version}, and this release reads version {_VERSION}")
    numbers = _SPANS.unpack_from(data, _HEADER.size)
    spans = dict(zip(SECTIONS, zip(numbers[::2], numbers[1::2], strict=True), strict=True))
    slots, documents, length, terms, postings, occurrences, pairs = counts
    has_positions = bool(flags & _POSITIONS)
    found = Header(slots, documents, length, terms, postings, occurrences, pairs, has_positions, spans)
    if step != FENCE_STEP or not _fits(found, size):
        raise wrong(path, "its sections do not fit together")
    return found


def _fits(header: Header, size: int) -> bool:
    spans = header.spans
    occurrences = header.occurrences if header.has_positions else 0

    def has(section: str, count: int, *widths: int) -> bool:
        return spans[section][1] in [count * width for width in widths]

    return (
        all(start >= HEADER_SIZE and start + length <= size for start, length in spans.values())
        and header.documents <= header.slots
        and spans["starts"][1] >= 8
        and spans["starts"][1] % 8 == 0
        and has("pairs", header.pairs, PAIR.itemsize)
        and has("lengths", header.slots, 2, 4)
        and has("fence_ends", -(-header.terms // FENCE_STEP), 4)
        and has("term_starts", header.terms + 1, 4, 8)
        and has("table", header.terms + 1, TABLE.itemsize)
        and has("slots", header.postings, 4)
        and has("codes", header.postings, 1, 2, 4)
        and has("positions", occurrences, 2, 4)
    )


def wrong(path: str, what: str) -> CorruptionError:
    return CorruptionError(
        f"full-text segment {path!r} cannot be read: {what}; restore the file or rebuild the index", path=path
    )
