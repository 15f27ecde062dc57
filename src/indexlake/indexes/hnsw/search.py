"""Searches several segments for one vector, each in whichever way is faster, and ranks all results by exact distance.

A graph knows nothing of filters.  It returns the nearest of all rows, and those that may be found are picked out.
Wherever these are, the first k of them are right if they come early enough in the graph's answer.  If they do not, for
example because all eligible rows are far from the query, either the graph is asked for more or the distances to all
eligible rows are computed, whichever is estimated to be faster.  So there are always min(k, live) results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from indexlake.indexes.hnsw import costs
from indexlake.indexes.hnsw.copied import SPARE
from indexlake.indexes.hnsw.exact import in_full, nearest
from indexlake.indexes.hnsw.findable import Findable
from indexlake.indexes.hnsw.graph import Graph
from indexlake.indexes.hnsw.header import Facts, wrong
from indexlake.indexes.hnsw.metric import Vectors
from indexlake.indexes.hnsw.places import Places
from indexlake.indexes.hnsw.query import VectorQuery
from indexlake.indexes.kind import Hits, Part

_MEASURED = 10  # a graph's breadth was measured for this many results
_MORE = 1.5  # the additional breadth per further rank

Rows = npt.NDArray[np.int64]


def search(params: Mapping[str, Any], query: VectorQuery, parts: Sequence[Part], k: int) -> Hits:
    """Return the k nearest live slots of all parts."""
    if len(parts) == 1:
        slots, far = _search_part(params, query, parts[0], k)
        return Hits(np.zeros(len(slots), np.int64), slots, far)
    found = [_search_part(params, query, part, k) for part in parts]
    if not found:
        return Hits(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float64))
    of = np.repeat(np.arange(len(found)), [len(slots) for slots, _ in found])
    at, far = (np.concatenate(each) for each in zip(*found, strict=True))
    best = np.lexsort((at, of, far))[:k]
    return Hits(of[best], at[best], far[best])


def _search_part(
    params: Mapping[str, Any], query: VectorQuery, part: Part, k: int
) -> tuple[Rows, npt.NDArray[np.float64]]:
    """Return the slots of the k nearest in a part, nearest first, and their distances."""
    segment, mask = part.segment, part.mask
    facts: Facts = segment.facts
    if facts.dimension != len(query.vector):
        raise wrong(segment.path, f"its vectors have {facts.dimension} numbers and not {len(query.vector)}")
    places: Places = segment.places()
    some = None if mask is None else segment.findable().by(mask, places)
    count = facts.rows if some is None else len(some.rows)
    if not count or k <= 0:
        return np.empty(0, np.int64), np.empty(0, np.float64)
    if count == facts.rows:
        some = None
    rows = None
    if facts.breadth and not query.exact and not query.is_huge:
        breadth = query.ef or params["ef_search"] or facts.breadth
        if some is not None or k > _MEASURED or breadth > facts.breadth:
            rows = _by_graph(segment, query.vector, some, count, k, breadth)
        else:  # a graph is only made if this is faster than computing all distances
            rows = segment.graph().search(query.vector, k, max(breadth, k))
            rows = rows if len(rows) == k else None
    vectors: Vectors = segment.vectors()
    if rows is None and some is not None and some.may_be_copied and k + SPARE < count and not query.is_huge:
        copied = segment.findable().copied(some)
        if copied is not None:
            numbers, bound = copied.nearest(query, k + SPARE)
            rows = some.rows[numbers]
            slots, far = places.nearest(rows, in_full(facts.metric, vectors, rows, query), mask, k)
            if far[-1] < bound:
                return slots, far
            rows = None
    if rows is None:
        rows = nearest(facts.metric, vectors, segment.lengths(), None if some is None else some.rows, query, k)
    return places.nearest(rows, in_full(facts.metric, vectors, rows, query), mask, k)


def _by_graph(segment: Any, query: Vectors, some: Findable | None, count: int, k: int, breadth: int) -> Rows | None:
    """Return rows found by the graph, or None if computing the distances to all of them is faster."""
    rows, dimension = segment.facts.rows, segment.facts.dimension
    exact = costs.in_order(rows, dimension)
    if some is not None:
        cost = costs.copied if some.may_be_copied else costs.chosen
        exact = min(exact, cost(count, dimension))
    rank = k * rows / count  # the estimated rank of the last of them among all rows
    while costs.by_graph(ef := int(breadth + _MORE * max(rank - _MEASURED, 0)), dimension) < exact:
        graph: Graph = segment.graph()
        if some is None:
            found = graph.search(query, k, ef)
            return found if len(found) == k else None
        found = graph.search(query, max(ef, k), ef)
        there = found[some.live[found]]
        if len(there) >= k:
            return there[:k]
        rank = max(2 * rank, k * len(found) / (len(there) + 1))
    return None
