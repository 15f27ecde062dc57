"""An open full-text segment: where terms and their postings are.

The file (see `layout`) is read through verified reads: a damaged byte raises `CorruptionError`, never gives a wrong
answer.  Looking up a term reads one page of terms, its entry and its own postings.  Little is kept in memory: fences,
pairs and the terms looked up most recently.  Safe to share between threads.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import cached_property
from itertools import pairwise
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.indexes.bm25.layout import FENCE_STEP, HEADER_SIZE, PAIR, TABLE, parse, wrong

if TYPE_CHECKING:
    from indexlake.errors import CorruptionError
    from indexlake.indexes.bm25.collection import Collection
    from indexlake.indexes.bm25.liveness import Liveness
    from indexlake.storage import InputFile

_REMEMBERED = 4096
_KEPT = 1 << 20
_ENTRIES = Struct("<QQIxxxxQQxxxxxxxx")


def saturation(frequency: Any, length: Any, k1: float, b: float, average: float) -> Any:
    """Return the part of BM25 that depends on a term's frequency in a document and the document's length."""
    return (k1 + 1) * frequency / (frequency + k1 * (1 - b + b / average * length))


class Entry(NamedTuple):
    """A term of a segment: where its postings and positions are, and its greatest frequency in any document."""

    first: int
    end: int
    first_position: int
    end_position: int
    most: int


class Segment:
    def __init__(self, file: InputFile) -> None:
        self.path = file.path
        self._file = file
        self.header = header = parse(self.path, file.size(), file.read_at(0, min(HEADER_SIZE, file.size())))
        self._code_width = header.width("codes", header.postings)
        self._position_width = header.width("positions", header.occurrences)
        self._slots_at = header.spans["slots"][0]
        self._codes_at = header.spans["codes"][0]
        self._is_small = file.map is not None and header.spans["slots"][1] <= _KEPT
        self._remembered: dict[str, Entry | None] = {}
        self.last_liveness: Liveness | None = None
        self.last_collections: tuple[Collection, ...] = ()
        self._units: tuple[tuple[float, ...], npt.NDArray[np.float64]] = (), np.empty(0)

    def __repr__(self) -> str:
        return f"Segment({self.path!r}, {self.header.terms} terms of {self.header.documents} documents)"

    @cached_property
    def starts(self) -> list[int]:
        """The first slot of each block, and the total number of slots."""
        found: list[int] = self._array("starts", "<u8").tolist()
        if found[0] != 0 or found[-1] != self.header.slots or any(a > b for a, b in pairwise(found)):
            raise self._nonsense()
        return found

    @cached_property
    def pairs(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """The frequency and the length of each pair, as floats for calculations."""
        found = self._array("pairs", PAIR)
        return found["frequency"].astype(np.float64), found["length"].astype(np.float64)

    @cached_property
    def shortest(self) -> float:
        """The length of the shortest document that has a term."""
        return float(self.pairs[1].min()) if self.header.pairs else 0.0

    def units(self, k1: float, b: float, average: float) -> npt.NDArray[np.float64]:
        """Return the weight of a posting with each pair before the idf is applied; the last answer is cached."""
        of, units = self._units
        if of != (k1, b, average):
            units = saturation(*self.pairs, k1, b, average)
            self._units = (k1, b, average), units
        return units

    def lengths(self) -> npt.NDArray[Any]:
        """Return the document length of each slot; the type's greatest value means no document."""
        return self._array("lengths", f"<u{self.header.width('lengths', self.header.slots)}")

    # Terms

    def find(self, term: str) -> Entry | None:
        """Return where a term's postings are, or None if no document has it."""
        try:
            return self._remembered[term]
        except KeyError:
            found = self._find(term.encode())
        if len(self._remembered) >= _REMEMBERED:
            self._remembered.clear()
        self._remembered[term] = found
        return found

    def _find(self, term: bytes) -> Entry | None:
        row, same = self._place(term)
        return self.entry(row) if same else None

    def first_from(self, term: bytes) -> int:
        """Return the number of the first term that is not less than ``term``."""
        return self._place(term)[0]

    def _place(self, term: bytes) -> tuple[int, bool]:
        """Return the number of the first term that is not less, and whether it is equal."""
        page = max(bisect_right(self._fences, term) - 1, 0) * FENCE_STEP
        count = min(FENCE_STEP, self.header.terms - page)
        starts = self._term_starts(page, page + count).tolist()
        at, size = self.header.spans["terms"]
        low, high = starts[0], starts[-1]
        if not low <= high <= size:
            raise self._nonsense()
        data = bytes(self._file.read_at(at + low, high - low))
        row = bisect_left(range(count), term, key=lambda row: data[starts[row] - low : starts[row + 1] - low])
        return page + row, row < count and data[starts[row] - low : starts[row + 1] - low] == term

    def entry(self, row: int) -> Entry:
        """Return where the postings of a term are."""
        at, _ = self.header.spans["table"]
        entries = self._file.read_at(at + row * TABLE.itemsize, 2 * TABLE.itemsize)
        first, first_position, most, end, end_position = _ENTRIES.unpack(entries)
        if not first < end <= self.header.postings or not first_position <= end_position <= self.header.occurrences:
            raise self._nonsense()
        return Entry(first, end, first_position, end_position, most)

    def entries(self, first: int, end: int) -> npt.NDArray[Any]:
        """Return the table entries of some terms, and the one after the last."""
        at, _ = self.header.spans["table"]
        found = np.frombuffer(
            self._file.read_at(at + first * TABLE.itemsize, (end + 1 - first) * TABLE.itemsize), TABLE
        )
        for name, most in (("posting", self.header.postings), ("position", self.header.occurrences)):
            numbers = found[name].astype(np.int64)
            if int(numbers[-1]) > most or int(numbers[0]) < 0 or bool((np.diff(numbers) < 0).any()):
                raise self._nonsense()
        return found

    def terms(self, first: int, end: int) -> pa.LargeStringArray:
        starts = self._term_starts(first, end).astype(np.int64)
        at, size = self.header.spans["terms"]
        low, high = int(starts[0]), int(starts[-1])
        if not low <= high <= size or bool((np.diff(starts) < 0).any()):
            raise self._nonsense()
        data = self._file.read_at(at + low, high - low)
        buffers = [None, pa.py_buffer(starts - low), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.large_string(), end - first, buffers)

    @cached_property
    def _fences(self) -> list[bytes]:
        data = bytes(self._section("fences"))
        ends: list[int] = self._array("fence_ends", "<u4").tolist()
        if ends and ends[-1] != len(data):
            raise self._nonsense()
        return [data[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)] if ends else []

    def _term_starts(self, first: int, end: int) -> npt.NDArray[Any]:
        width = self.header.width("term_starts", self.header.terms + 1)
        at, _ = self.header.spans["term_starts"]
        return np.frombuffer(self._file.read_at(at + first * width, (end + 1 - first) * width), f"<u{width}")

    # Postings

    def slots(self, first: int, end: int) -> npt.NDArray[np.uint32]:
        if self._is_small:
            return self._small[0][first:end]
        return np.frombuffer(self._file.read_at(self._slots_at + 4 * first, 4 * (end - first)), "<u4")

    def codes(self, first: int, end: int) -> npt.NDArray[Any]:
        """Return the pair numbers of some postings."""
        if self._is_small:
            return self._small[1][first:end]
        width = self._code_width
        return np.frombuffer(self._file.read_at(self._codes_at + width * first, width * (end - first)), f"<u{width}")

    @cached_property
    def _small(self) -> tuple[npt.NDArray[np.uint32], npt.NDArray[Any]]:
        """All slots and codes of a small segment, whose postings are read together instead of term by term."""
        return self._array("slots", "<u4"), self._array("codes", f"<u{self._code_width}")

    def positions(self, first: int, end: int) -> npt.NDArray[Any]:
        width = self._position_width
        at, _ = self.header.spans["positions"]
        return np.frombuffer(self._file.read_at(at + width * first, width * (end - first)), f"<u{width}")

    def check_codes(self, codes: npt.NDArray[Any]) -> None:
        """Raise an error unless all codes are numbers of pairs."""
        if len(codes) and int(codes.max()) >= self.header.pairs:
            raise self._nonsense()

    @property
    def last_position(self) -> int:
        """An upper bound of all positions."""
        return 0xFFFF if self._position_width == 2 else 0xFFFFFFFF

    # Bytes

    def _section(self, name: str) -> memoryview:
        return self._file.read_at(*self.header.spans[name])

    def _array(self, name: str, dtype: Any) -> npt.NDArray[Any]:
        return np.frombuffer(self._section(name), dtype)

    def _nonsense(self) -> CorruptionError:
        return wrong(self.path, "it contradicts itself")
