"""``Search``: the best k rows at one snapshot, by one index or by several.

The answer covers all visible rows, whatever is indexed and wherever rows are: statistics are gathered over all parts
before any of them computes scores, and visibility and ``where`` are applied before each part's best k.  There are
always min(k, matches) rows.  The snapshot is fixed at the first execution and kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.display import FIRST_ROWS, html_rows, html_text, shown
from indexlake.errors import ExpressionError
from indexlake.indexes.kind import whole_number
from indexlake.indexes.registry import kind_named
from indexlake.scan.fuse import fuse_weights, fused
from indexlake.scan.ranked import Chosen, Ranked, read_rows
from indexlake.scan.result import Result
from indexlake.scan.scan import bind_predicate, check_text, checked_columns
from indexlake.scan.search_parts import Looked, Parts
from indexlake.scan.search_shape import SCORE, Shape, shape_of
from indexlake.scan.search_sources import BlocksSource, RowsSource

if TYPE_CHECKING:
    from indexlake.indexes.coverage import Coverage
    from indexlake.snapshots.reading import Reading
    from indexlake.storage import Storage
    from indexlake.table import Table


@dataclass(frozen=True, slots=True)
class SearchExplanation:
    """What a search looked through; prints as text."""

    table: str
    snapshot_id: int
    indexes: tuple[str, ...]
    segments: int
    hot_rows: int
    blocks_scanned: int
    where: str | None
    found_by: str | None

    def __str__(self) -> str:
        where = f" where {self.where}, found by {self.found_by}" if self.where else ""
        return (
            f"search {self.table} at snapshot {self.snapshot_id} by {', '.join(self.indexes)}{where}\n"
            f"  {self.segments:,} segments, {self.hot_rows:,} rows in memory, "
            f"{self.blocks_scanned:,} blocks without a segment"
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_text(str(self))


class Search(Result):
    """Returned by ``table.search``."""

    def __init__(
        self,
        table: Table,
        by: Any,
        query: Any,
        k: int,
        where: str | None,
        params: Mapping[str, Any] | Sequence[Any] | None,
        columns: Sequence[str] | None,
        snippet: bool,
        fuse: Any,
        options: Mapping[str, Any],
    ) -> None:
        count = whole_number(k)
        if count is None or count < 0:
            raise ExpressionError(f"k is how many rows to find: a whole number, 0 or more; got {k!r}.")
        if where is not None:
            check_text(where)
        self._table = table
        self._queries = _queries(by, query, options)
        self._weights = fuse_weights(fuse, len(self._queries))
        self._k, self._where, self._params = count, where, params
        self._columns = checked_columns(columns)
        self._snippet = snippet
        self._snapshot: int | None = None

    def __reduce__(self) -> Any:
        raise TypeError("A Search belongs to the process that made it and cannot be pickled. Pickle its result.")

    def _repr_html_(self) -> str:
        """Show the rows found, which are few."""
        return shown(lambda: html_rows(self.head(FIRST_ROWS), caption=repr(self)[1:-1]))

    def __repr__(self) -> str:
        by = ", ".join(asked.name for asked in self._queries)
        where = f" where {self._where}" if self._where else ""
        return f"<Search of {self._table.name} by {by}{where}, k={self._k}>"

    def _own_storage(self) -> Storage:
        return self._table._lake.storage

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot that the search reads; None before it starts."""
        return self._snapshot

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        with self._table._reading(self._snapshot) as reading:
            return self._shape(reading).shown

    def _shape(self, reading: Reading) -> Shape:
        names = tuple([asked.name for asked in self._queries])
        shapes = self._table._lake._remembered.shapes
        return shape_of(shapes, reading, self._table._name, names, self._columns, snippet=self._snippet)

    # ------------------------------------------------------------ running

    def _run(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        result = self._find()
        return result.schema, iter(result.to_batches(max_chunksize=65_536))

    def to_arrow(self) -> pa.Table:
        """The whole result in memory."""
        return self._find()

    def _find(self, explained: list[SearchExplanation] | None = None) -> pa.Table:
        table = self._table
        lake = table._lake
        lake._check()
        with table._reading(self._snapshot) as reading:
            shape = self._shape(reading)
            schema, found = reading.schema, shape.indexes
            queries = [
                kind_named(c.index.kind).query(c.index, fields, asked.query, asked.options)
                for c, fields, asked in zip(found, shape.keys, self._queries, strict=True)
            ]
            predicate = None if self._where is None else bind_predicate(self._where, schema, self._params)
            parts = Parts(reading, lake, predicate, shape.read, lake._remembered)
        self._snapshot = reading.snapshot
        with lake._pins.pin(reading.snapshot):
            ranked, chosen, scores = self._best(parts, found, queries)
            if explained is not None:
                explained.append(self._explain(parts, found, ranked))
            columns = read_rows(ranked, chosen, shape.read)
            arrays = columns[: shape.given]
            if shape.row_id:
                arrays.append(pa.array(chosen.row_ids(ranked)))
        arrays.append(pa.array(scores, pa.float64()))
        if self._snippet:
            arrays.append(self._snippets(found, queries, columns[-1]))
        return pa.Table.from_arrays(arrays, schema=shape.shown)

    def _best(
        self, parts: Parts, indexes: Sequence[Coverage], queries: Sequence[Any]
    ) -> tuple[list[Ranked], Chosen, npt.NDArray[np.float64]]:
        """Return the ranking of each index, and the best rows with the scores to show."""
        looked = [parts.looked(coverage) for coverage in indexes]
        if len(indexes) == 1:
            ranked = [_ranked(indexes[0], queries[0], looked[0], self._k)]
            count = len(ranked[0].scores)
            return ranked, Chosen(np.zeros(count, np.int64), np.arange(count)), ranked[0].scores
        depth = max(100, 10 * self._k)
        while True:
            ranked = [_ranked(c, q, each, depth) for c, q, each in zip(indexes, queries, looked, strict=True)]
            chosen, scores = fused(
                [r.row_ids() for r in ranked],
                [r.scores for r in ranked],
                [kind_named(c.index.kind).measure == SCORE for c in indexes],
                self._weights,
            )
            if len(chosen) >= self._k or all(len(r.scores) < depth for r in ranked):
                rankings, places = np.array(chosen[: self._k], np.int64).reshape(-1, 2).T
                return ranked, Chosen(rankings, places), scores[: self._k]
            depth *= 8

    def _snippets(self, indexes: Sequence[Coverage], queries: Sequence[Any], values: pa.Array) -> pa.Array:
        for coverage, query in zip(indexes, queries, strict=True):
            kind = kind_named(coverage.index.kind)
            if kind.measure == SCORE:
                return pa.array(kind.snippets(coverage.index, query, values.to_pylist()), pa.string())
        raise AssertionError("no index of text")

    def explain(self) -> SearchExplanation:
        """Run the search and return what it looked through."""
        explained: list[SearchExplanation] = []
        self._find(explained)
        return explained[0]

    def _explain(self, parts: Parts, indexes: Sequence[Coverage], ranked: Sequence[Ranked]) -> SearchExplanation:
        segments = sum(isinstance(source, BlocksSource) for r in ranked for source in r.sources)
        rows = sum(source.count for source in ranked[0].sources if type(source) is RowsSource)
        return SearchExplanation(
            self._table._name, parts.reading.snapshot, tuple(c.index.name for c in indexes), segments, rows,
            parts.scanned, self._where, parts.where.found_by if parts.where is not None else None,
        )  # fmt: skip


def _ranked(coverage: Coverage, query: Any, looked: Looked, k: int) -> Ranked:
    hits = kind_named(coverage.index.kind).search(coverage.index, query, looked.parts, k)
    return Ranked(looked.sources, hits.parts, hits.slots, hits.scores)


class _IndexQuery(NamedTuple):
    """The query for one index."""

    name: str
    query: Any
    options: Mapping[str, Any]


def _queries(by: Any, query: Any, options: Mapping[str, Any]) -> list[_IndexQuery]:
    """Return the queries: one for a single index, or one for each of several, each with its own options if given."""
    if isinstance(by, str):
        return [_IndexQuery(by, query, options)]
    given = [tuple(each) for each in by] if isinstance(by, list | tuple) and all(map(_is_pair, by)) else []
    if query is not None or not given:
        raise ExpressionError(
            'Search by the name of an index or column and a query, as in t.search("note", "late parcel"), or by '
            'several of them: t.search([("note", "late parcel"), ("vec", [0.1, 0.2])]).'
        )
    return [_IndexQuery(each[0], each[1], {**options, **(each[2] if len(each) > 2 else {})}) for each in given]


def _is_pair(each: Any) -> bool:
    """Return whether this is a pair of name and query, optionally with options."""
    return (
        isinstance(each, list | tuple)
        and len(each) in (2, 3)
        and isinstance(each[0], str)
        and (len(each) == 2 or isinstance(each[2], Mapping))
    )
