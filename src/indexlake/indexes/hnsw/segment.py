"""A vector segment: an immutable file with the vectors of its blocks, and a graph if there are many.

It is read through verified reads: a damaged byte raises `CorruptionError`.  Opening reads the header and the starts;
vectors and graph are read when first searched, and are used in place if the file is mapped.  An open segment is safe to
share between threads.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from indexlake.indexes.hnsw.exact import Lengths, rough_lengths
from indexlake.indexes.hnsw.findable import FindableRows
from indexlake.indexes.hnsw.graph import Graph, Links
from indexlake.indexes.hnsw.header import HEADER_SIZE, Section, parse, wrong
from indexlake.indexes.hnsw.metric import Vectors, unit
from indexlake.indexes.hnsw.places import Places

if TYPE_CHECKING:
    from indexlake.storage import InputFile

_SLICE = 1 << 14


class VectorSegment:
    """An open vector segment.  Its vectors are numbered by *row*; `places` maps these to slots."""

    def __init__(self, file: InputFile, metric: str) -> None:
        self.path = file.path
        self._file = file
        self._header = parse(self.path, file.size(), file.read_at(0, HEADER_SIZE))
        self.facts = self._header.facts
        if self.facts.metric != metric:
            raise wrong(self.path, f"it is for {self.facts.metric}, but its index is for {metric}")
        starts = self._array(self._header.starts, "<i8")
        if starts[0] != 0 or starts[-1] != self.facts.slots or bool((np.diff(starts) < 0).any()):
            raise wrong(self.path, "its blocks contradict each other")
        self.starts: list[int] = starts.tolist()
        self._lock = threading.Lock()
        self._vectors: Vectors | None = None
        self._lengths: Lengths | None = None
        self._graph: Graph | None = None
        self._places: Places | None = None
        self._findable: FindableRows | None = None

    def __len__(self) -> int:
        """Return the number of distinct vectors."""
        return self.facts.rows

    def __repr__(self) -> str:
        kind = "a graph" if self.facts.breadth else "no graph"
        return f"VectorSegment({self.path!r}, {len(self)} vectors of {self.facts.dimension}, {kind})"

    def places(self) -> Places:
        """Return which slots each vector belongs to."""
        if self._places is None:
            facts = self.facts
            slots = None if facts.found == facts.slots else np.flatnonzero(self.validity())
            groups = self.groups()
            if (slots is not None and len(slots) != facts.found) or (
                groups is not None
                and (int(groups.max()) >= facts.rows or not np.bincount(groups, minlength=facts.rows).all())
            ):
                raise wrong(self.path, "its vectors contradict its slots")
            self._places = Places(facts.rows, slots, groups)
        return self._places

    @property
    def is_at_length_one(self) -> bool:
        """Whether it stores the vectors scaled to length one."""
        return self.facts.metric == "cosine" and self.facts.item_size == 4

    def findable(self) -> FindableRows:
        """Return the rows that may be found, by mask."""
        if self._findable is None:
            self._findable = FindableRows(self.facts.metric, self.vectors())
        return self._findable

    def validity(self) -> npt.NDArray[np.bool_]:
        """Return which slots have a vector that can be found."""
        if self.facts.found == self.facts.slots:
            return np.ones(self.facts.slots, np.bool_)
        bits = self._array(self._header.validity, "u1")
        return np.unpackbits(bits, count=self.facts.slots, bitorder="little").view(np.bool_)

    def groups(self) -> npt.NDArray[np.uint32] | None:
        """Return the row of each slot that has a vector; None if they are numbered alike."""
        return self._array(self._header.groups, "<u4") if self._header.groups.size else None

    def stored(self) -> npt.NDArray[Any]:
        """Return the vectors as they are in the file."""
        found = self._array(self._header.vectors, f"<f{self.facts.item_size}")
        return found.reshape(self.facts.rows, self.facts.dimension)

    def vectors(self) -> Vectors:
        """Return the vectors as they are compared."""
        if self._vectors is None:
            with self._lock:
                if self._vectors is None:
                    self._vectors = as_compared(self.facts.metric, self.stored())
        return self._vectors

    def lengths(self) -> Lengths | None:
        """Return the lengths of the vectors if their distances depend on them; not less than they are."""
        if self._lengths is None and self.facts.metric == "ip":
            self._lengths = rough_lengths(self.vectors())
        return self._lengths

    def graph(self) -> Graph | None:
        """Return the graph, or None if the segment has none."""
        if self._graph is None and self.facts.breadth:
            vectors = self.vectors()
            with self._lock:
                if self._graph is None:
                    facts, header = self.facts, self._header
                    levels, links = self._array(header.levels, "u1"), self._array(header.links, "<i4")
                    stored = Links(facts.m, facts.breadth, facts.entry, levels, links)
                    self._graph = Graph(self.path, facts.metric, vectors, stored)
        return self._graph

    def close(self) -> None:
        """Close the file.  May be called repeatedly."""
        self._file.close()

    def _array(self, section: Section, dtype: str) -> npt.NDArray[Any]:
        return np.frombuffer(self._file.read_at(section.start, section.size), dtype)


def as_compared(metric: str, stored: npt.NDArray[Any]) -> Vectors:
    """Return stored vectors as float32, scaled to length one under cosine."""
    if stored.dtype == np.float32:
        return stored
    found = np.empty(stored.shape, np.float32)
    for at in range(0, len(stored), _SLICE):
        part = stored[at : at + _SLICE]
        found[at : at + _SLICE] = unit(part) if metric == "cosine" else part
    return found
