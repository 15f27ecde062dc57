"""``Search``: the best k rows at one snapshot, by one index or by several.

The answer covers all visible rows, whatever is indexed and wherever rows are: statistics are gathered over all parts
before any of them computes scores, and visibility and ``where`` are applied before each part's best k.  There are
always min(k, matches) rows.  The snapshot is fixed at the first execution and kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from indexlake.display import FIRST_ROWS, html_rows, html_text, shown
from indexlake.errors import ExpressionError
from indexlake.indexes.kind import whole_number
from indexlake.scan.fuse import fuse_weights, fused
from indexlake.scan.ranked import Ranked, joined, read_rows
from indexlake.scan.result import Result
from indexlake.scan.scan import bind_predicate, check_where, checked_columns
from indexlake.scan.search_parts import Looked, Parts
from indexlake.scan.search_shape import SCORE, Shape, shape_of
from indexlake.scan.search_sources import BlocksSource, RowsSource

if TYPE_CHECKING:
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
        if not isinstance(snippet, bool):
            raise ExpressionError(f"snippet is True or False, not {snippet!r}.")
        check_where(where, params)
        self._table = table
        self._queries = _queries(by, query, options)
        self._weights = fuse_weights(fuse, len(self._queries))
        self._k, self._where, self._params = count, where, params
        given = checked_columns(columns)
        names = tuple([asked.name for asked in self._queries])
        self._form = (table._table_id, names, None if given is None else tuple(given), snippet)
        self._snippet = snippet
        self._snapshot: int | None = None

    def __reduce__(self) -> Any:
        raise TypeError("A Search belongs to the process that made it and cannot be pickled. Pickle its result.")

    def _repr_html_(self) -> str:
        """Show the rows found, which are few."""
        return shown(lambda: html_rows(self.head(FIRST_ROWS), caption=repr(self)[1:-1]))

    def __repr__(self) -> str:
        by = ", ".join(self._form[1])
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
            return shape_of(reading, self._table._name, self._form).shown

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
        known = self._as_before()
        if known is not None:
            reading, shape, searched = known
            queries, parts = self._asked(reading, shape, searched)
        else:
            with table._reading(self._snapshot) as reading:
                shape = shape_of(reading, table._name, self._form)
                queries, parts = self._asked(reading, shape)
        self._snapshot = reading.snapshot
        with lake._pins.pin(reading.snapshot):
            looked = parts.looked()
            if known is None and parts.shared:
                lake._remembered.at(reading).remember(self._form, shape)
            found = self._best(shape, queries, looked)
            if explained is not None:
                explained.append(self._explain(parts, looked))
            columns = read_rows(found, shape.read, shape.exact)
            arrays = columns[: shape.given]
            if shape.row_id:
                arrays.append(pa.array(found.row_ids()))
        arrays.append(pa.array(found.scores, pa.float64()))
        if self._snippet:
            arrays.append(self._snippets(shape, queries, columns[-1]))
        return pa.Table.from_arrays(arrays, schema=shape.shown)

    def _as_before(self) -> tuple[Reading, Shape, Sequence[Looked]] | None:
        """Return what the last search of this form began with, if nothing has been committed since."""
        table = self._table
        if table._tx is not None or table._snapshot is not None or self._snapshot is not None:
            return None
        latest = table._lake._remembered.latest.get(table._table_id)
        ready = None if latest is None else latest.ready.get(self._form)
        if latest is None or ready is None or not table._lake._readings.unchanged(latest.reading):
            return None
        return latest.reading, *ready

    def _asked(
        self, reading: Reading, shape: Shape, searched: Sequence[Looked] | None = None
    ) -> tuple[list[Any], Parts]:
        """Return the checked queries, and the parts to search."""
        queries = [
            kind.query(c.index, fields, asked.query, asked.options)
            for kind, c, fields, asked in zip(shape.kinds, shape.indexes, shape.keys, self._queries, strict=True)
        ]
        predicate = None if self._where is None else bind_predicate(self._where, reading.schema, self._params)
        return queries, Parts(reading, self._table._lake, predicate, shape, searched)

    def _best(self, shape: Shape, queries: Sequence[Any], looked: Sequence[Looked]) -> Ranked:
        """Return the best rows with the scores to show."""
        if len(queries) == 1:
            hits = shape.kinds[0].search(shape.indexes[0].index, queries[0], looked[0].parts, self._k)
            return Ranked(looked[0].sources, *hits)
        depth = max(100, 10 * self._k)
        while True:
            ranked = [
                Ranked(each.sources, *kind.search(coverage.index, query, each.parts, depth))
                for kind, coverage, query, each in zip(shape.kinds, shape.indexes, queries, looked, strict=True)
            ]
            chosen, scores = fused(
                [r.row_ids() for r in ranked],
                [r.scores for r in ranked],
                [kind.measure == SCORE for kind in shape.kinds],
                self._weights,
            )
            if len(chosen) >= self._k or all(len(r.scores) < depth for r in ranked):
                return joined(ranked, chosen[: self._k], scores[: self._k])
            depth *= 8

    def _snippets(self, shape: Shape, queries: Sequence[Any], values: pa.Array) -> pa.Array:
        for kind, coverage, query in zip(shape.kinds, shape.indexes, queries, strict=True):
            if kind.measure == SCORE:
                return pa.array(kind.snippets(coverage.index, query, values.to_pylist()), pa.string())
        raise AssertionError("no index of text")

    def explain(self) -> SearchExplanation:
        """Run the search and return what it looked through."""
        explained: list[SearchExplanation] = []
        self._find(explained)
        return explained[0]

    def _explain(self, parts: Parts, looked: Sequence[Looked]) -> SearchExplanation:
        segments = sum(isinstance(source, BlocksSource) for each in looked for source in each.sources)
        rows = sum(source.count for source in looked[0].sources if type(source) is RowsSource)
        return SearchExplanation(
            self._table._name, parts.reading.snapshot, tuple(c.index.name for c in parts.indexes), segments, rows,
            parts.scanned, self._where, parts.where.found_by if parts.where is not None else None,
        )  # fmt: skip


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
