"""Writes a segment term by term, in order, with their postings.  Memory does not grow with the amount written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from indexlake.errors import SchemaError
from indexlake.indexes.bm25.layout import FENCE_STEP, PAIR, SECTIONS, TABLE, Header, pack, padding
from indexlake.indexes.spool import Spool

Pairs = npt.NDArray[np.int64]
"""Pairs of (frequency, length), each as one number with the frequency in the upper half."""

MOST_SLOTS = 1 << 32


class Documents(NamedTuple):
    """The rows of a segment: document lengths in a spool of int32 (-1: no document), each block's first slot."""

    lengths: Spool
    starts: Sequence[int]
    documents: int  # rows that have a document
    length: int  # of all documents
    longest: int


class Batch(NamedTuple):
    """Terms in order, the number of postings of each, and the postings of all of them concatenated."""

    terms: Any  # an Arrow array of large_string
    counts: npt.NDArray[np.int64]
    slots: npt.NDArray[Any]
    codes: npt.NDArray[Any]
    positions: npt.NDArray[Any] | None


def ordered_pairs(pairs: Pairs, documents: Documents, k1: float, b: float) -> Pairs:
    """Return the pairs in the order a segment numbers them: the greatest weight first."""
    pairs = np.unique(pairs)
    frequency, length = pairs >> 32, pairs & 0xFFFFFFFF
    average = max(documents.length / max(documents.documents, 1), 1e-9)
    weight = frequency / (frequency + k1 * (1 - b + b * length / average))
    return pairs[np.argsort(-weight, kind="stable")]


class Writer:
    """Collects the sections of one segment."""

    def __init__(self, documents: Documents, pairs: Pairs, last_position: int, *, positions: bool) -> None:
        if documents.starts[-1] > MOST_SLOTS:
            raise SchemaError(f"A full-text segment has at most {MOST_SLOTS} rows.")
        self._documents = documents
        self._pairs = pairs
        self._frequencies = pairs >> 32
        self._sections = {name: Spool() for name in SECTIONS}
        self._code_type = next(f"<u{width}" for width in (1, 2, 4) if len(pairs) <= 1 << 8 * width)
        self._position_type = "<u2" if last_position < 1 << 16 else "<u4"
        self._has_positions = positions
        self._terms = self._postings = self._occurrences = 0
        self._term_bytes = self._fence_bytes = 0

    def add(self, batch: Batch) -> None:
        """Add the next terms, with all of their postings."""
        frequencies = self.add_postings(batch)
        firsts = np.cumsum(batch.counts) - batch.counts
        self.end_terms(
            batch.terms,
            batch.counts,
            np.add.reduceat(frequencies, firsts) if len(firsts) else batch.counts,
            np.maximum.reduceat(frequencies, firsts) if len(firsts) else batch.counts,
        )

    def add_postings(self, batch: Batch) -> npt.NDArray[np.int64]:
        """Add postings of a term that is not complete yet, and return their frequencies."""
        self._sections["slots"].write(batch.slots.astype("<u4", copy=False))
        self._sections["codes"].write(batch.codes.astype(self._code_type, copy=False))
        if self._has_positions:
            assert batch.positions is not None
            self._sections["positions"].write(batch.positions.astype(self._position_type, copy=False))
        frequencies: npt.NDArray[np.int64] = self._frequencies[batch.codes]
        return frequencies

    def end_terms(
        self, terms: Any, counts: npt.NDArray[Any], occurrences: npt.NDArray[Any], most: npt.NDArray[Any]
    ) -> None:
        """Complete the terms whose postings have been added since the last call."""
        table = np.zeros(len(counts), TABLE)
        table["posting"] = self._postings + np.cumsum(counts) - counts
        table["position"] = self._occurrences + np.cumsum(occurrences) - occurrences
        table["most"] = most
        self._sections["table"].write(table)
        self._postings += int(counts.sum())
        self._occurrences += int(occurrences.sum())
        offsets, data = string_parts(terms)
        self._sections["term_starts"].write((self._term_bytes + offsets[:-1]).astype("<u8"))
        self._sections["terms"].write(data)
        for row in range(-self._terms % FENCE_STEP, len(counts), FENCE_STEP):
            fence = data[offsets[row] : offsets[row + 1]]
            self._fence_bytes += len(fence)
            self._sections["fences"].write(fence)
            self._sections["fence_ends"].write(np.array([self._fence_bytes], "<u4"))
        self._terms += len(counts)
        self._term_bytes += int(offsets[-1])

    def pieces(self) -> Iterator[Any]:
        """Yield the file.  Sections that were spilled are read back piece by piece."""
        sections, documents = self._sections, self._documents
        end = np.zeros(1, TABLE)
        end["posting"], end["position"] = self._postings, self._occurrences
        sections["table"].write(end)
        sections["term_starts"].write(np.array([self._term_bytes], "<u8"))
        sections["starts"].write(np.array(documents.starts, "<u8"))
        pairs = np.empty(len(self._pairs), PAIR)
        pairs["frequency"], pairs["length"] = self._pairs >> 32, self._pairs & 0xFFFFFFFF
        sections["pairs"].write(pairs)
        length_type = "<u2" if documents.longest < 0xFFFF else "<u4"
        for piece in documents.lengths.pieces():
            sections["lengths"].write(np.frombuffer(piece, np.int32).astype(length_type))  # -1 becomes all bits set
        header = Header(
            slots=documents.starts[-1],
            documents=documents.documents,
            length=documents.length,
            terms=self._terms,
            postings=self._postings,
            occurrences=self._occurrences,
            pairs=len(pairs),
            has_positions=self._has_positions,
            spans={},
        )
        at = len(head := pack(header, {name: spool.size for name, spool in sections.items()}))
        yield head
        for name in SECTIONS:
            yield bytes(padding(at))
            at += padding(at) + sections[name].size
            yield from sections[name].pieces()


def string_parts(terms: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Return where each term starts, and the bytes of all terms."""
    _, offsets, data = terms.buffers()
    starts = np.frombuffer(offsets, np.int64, len(terms) + 1, 8 * terms.offset)
    size = int(starts[-1] - starts[0])
    found = np.frombuffer(data, np.uint8, size, int(starts[0])) if size else np.empty(0, np.uint8)
    return starts - starts[0], found
