"""Rows of a segment in key order: those of the run, with rows that have a null in their key in between.

A row with a null comes after all rows with the same values before the null.  Forward, nulls are last; backward is
exactly the reverse, which for columns without nulls is descending order.  Lazy: the first rows cost little.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from indexlake.indexes.btree.partial import BEHIND_NULL, after, before_null
from indexlake.indexes.btree.run import Run

Spans = Sequence[tuple[int, int]]


class Ordered:
    """Spans of rows of a run and of the partial run, ascending within each."""

    def __init__(self, run: Run, spans: Spans, partial: Run | None, partial_spans: Spans) -> None:
        self._run, self._spans = run, spans
        self._partial, self._partial_spans = partial, partial_spans

    def forward(self) -> Iterator[tuple[Run, int, int]]:
        spans = list(reversed(self._spans))
        for group, place in self._groups(backward=False):
            while spans and spans[-1][0] < place:
                first, end = spans.pop()
                yield self._run, first, min(end, place)
                if end > place:
                    spans.append((place, end))
            yield group
        for first, end in reversed(spans):
            yield self._run, first, end

    def backward(self) -> Iterator[tuple[Run, int, int]]:
        spans = list(self._spans)
        for group, place in self._groups(backward=True):
            while spans and spans[-1][1] > place:
                first, end = spans.pop()
                yield self._run, max(first, place), end
                if first < place:
                    spans.append((first, place))
            yield group
        for first, end in reversed(spans):
            yield self._run, first, end

    def _groups(self, *, backward: bool) -> Iterator[tuple[tuple[Run, int, int], int]]:
        """Yield groups of partial rows with the same values before a null, and the number of run rows before each."""
        partial = self._partial
        if partial is None:
            return
        for first, end in reversed(self._partial_spans) if backward else self._partial_spans:
            while first < end:
                key: Any = partial.keys_at([end - 1 if backward else first])[0]
                same, plain = before_null(key)
                place = self._place(after(plain))
                if backward:
                    edge = max(first, partial.row_of(same))
                    yield (partial, edge, end), place
                    end = edge
                else:
                    edge = min(end, partial.row_of(same[:-1] + BEHIND_NULL))
                    yield (partial, first, edge), place
                    first = edge

    def _place(self, key: bytes | None) -> int:
        return len(self._run) if key is None else self._run.row_of(key)
