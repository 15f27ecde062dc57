"""What decides between a graph and exact distances: their costs, and recall under filters of every width and place.

    python -m benchmarks.risks.vector_search [--rows 100000] [--dimension 64] [--metric l2]

Bare faiss is the same graph asked directly, without a filter and with the same breadth.  Filters are random, or
correlated: *near* keeps the share of rows that is nearest to the query, *far* the farthest, *ring* those behind the
nearest half.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from benchmarks.risks.measure import percentile, print_table

from indexlake.indexes.hnsw import exact
from indexlake.indexes.hnsw.kind import Hnsw
from indexlake.indexes.hnsw.library import threads
from indexlake.indexes.hnsw.segment import VectorSegment
from indexlake.indexes.index import Index
from indexlake.indexes.kind import Part
from indexlake.schema.table_schema import Field
from indexlake.storage.input_file import in_memory

KIND = Hnsw()
SHARES = (1.0, 0.99, 0.5, 0.3, 0.2, 0.1, 0.01, 0.001, 0.0001)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--dimension", type=int, default=64)
    parser.add_argument("--metric", default="l2")
    parser.add_argument("--queries", type=int, default=100)
    args = parser.parse_args()
    for name, make in (("clusters", clusters), ("noise", noise)):
        run(name, make(args.rows, args.dimension, 1), make(args.queries, args.dimension, 2), args.metric)


def run(name: str, vectors: npt.NDArray[np.float32], queries: npt.NDArray[np.float32], metric: str) -> None:
    field = Field(1, "v", pa.list_(pa.float32(), vectors.shape[1]), nullable=True)
    params = KIND.define([field], [], False, {"metric": metric})
    index = Index(1, "near", "hnsw", (1,), (), False, params, 1, None, None, 1)
    builder = KIND.builder(index, [field], lasting=True)
    builder.add([pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), type=field.type)])
    builder.end_block()
    start = time.perf_counter()
    file = in_memory(builder.content().pieces)
    built = time.perf_counter() - start
    segment = KIND.open(index, file)
    start = time.perf_counter()
    graph = segment.graph()
    opened = time.perf_counter() - start
    print(
        f"\n{name}: {len(vectors)} x {vectors.shape[1]}, {metric}: built in {built:.1f} s, "
        f"{file.size() / len(vectors):.0f} bytes a row, open in {1e3 * opened:.1f} ms, breadth {segment.facts.breadth}"
    )
    with threads(1):
        costs(segment, queries, index, field)
    if graph is not None:
        filters(segment, queries, index, field)


def costs(segment: VectorSegment, queries: npt.NDArray[np.float32], index: Index, field: Field) -> None:
    """Microseconds of exact distances and of the graph."""
    vectors, metric, long = segment.vectors(), segment.facts.metric, segment.lengths()
    asked = [KIND.query(index, [field], query, {}) for query in queries]
    rng = np.random.default_rng(3)
    rows = []
    for count in (1000, 3000, 10_000, 20_000, 30_000, 50_000, 100_000):
        if count > len(vectors):
            break
        some = np.sort(rng.choice(len(vectors), count, replace=False))
        chosen = median(lambda q, some=some: exact.nearest(metric, vectors, long, some, q, 10), asked)  # type: ignore[misc]
        first, there = vectors[:count], None if long is None else long[:count]
        ordered = median(
            lambda q, first=first, there=there: exact.nearest(metric, first, there, None, q, 10),  # type: ignore[misc]
            asked,
        )
        rows.append((count, f"{chosen:.0f}", f"{ordered:.0f}"))
    print_table("exact, us", ("rows", "chosen ones", "in order"), rows)
    graph = segment.graph()
    if graph is None:
        return
    true = [set(exact_rows(segment, q)) for q in asked]
    table = []
    for ef in (16, 32, 64, 96, 128, 192, 256, 384, 512):
        took = median(lambda q, ef=ef: graph.search(q.vector, 10, ef), asked)  # type: ignore[misc]
        wide = median(lambda q, ef=ef: graph.search(q.vector, ef // 2, ef), asked)  # type: ignore[misc]
        found = [graph.search(q.vector, 10, ef).tolist() for q in asked]
        recall = np.mean([len(best & set(rows)) / 10 for best, rows in zip(true, found, strict=True)])
        table.append((ef, f"{took:.0f}", f"{wide:.0f}", f"{recall:.3f}", f"{took / ef:.2f}"))
    print_table("graph, us", ("ef", "top 10", "top ef/2", "recall@10", "us per ef"), table)


def filters(segment: VectorSegment, queries: npt.NDArray[np.float32], index: Index, field: Field) -> None:
    """Recall and time of searches under filters."""
    breadth = segment.facts.breadth
    graph: Any = segment.graph()
    bare = graph._index
    parameters = faiss.SearchParametersHNSW(efSearch=breadth)
    floor = median(lambda q: bare.search(q.reshape(1, -1), 10, params=parameters), list(queries))
    rows = []
    for kind in ("random", "near", "far", "ring"):
        for share in SHARES:
            if kind != "random" and share > 0.5:
                continue
            cases = list(masks(segment, queries, index, field, kind, share))
            times, found = [], []
            for query, live in cases:
                start = time.perf_counter()
                found.append(KIND.search(index, KIND.query(index, [field], query, {}), [Part(segment, live)], 10))
                times.append(1e6 * (time.perf_counter() - start))
            recalls = []
            for (query, live), hits in zip(cases, found, strict=True):
                asked = KIND.query(index, [field], query, {"exact": True})
                best = KIND.search(index, asked, [Part(segment, live)], 10)
                assert len(hits.slots) == len(best.slots) == min(10, len(segment) if live is None else live.sum())
                if len(best.slots):
                    recalls.append(len(set(best.slots.tolist()) & set(hits.slots.tolist())) / len(best.slots))
            took = percentile(times, 0.5)
            rows.append((kind, f"{100 * share:g} %", f"{np.mean(recalls):.3f}", f"{took:.0f}", f"{took / floor:.2f}"))
    print_table(
        f"search, bare faiss with ef {breadth}: {floor:.0f} us", ("filter", "share", "recall@10", "us", "to bare"), rows
    )


def masks(
    segment: VectorSegment, queries: npt.NDArray[np.float32], index: Index, field: Field, kind: str, share: float
) -> Iterator[tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_] | None]]:
    """Each query with a filter that keeps a share of the rows."""
    rng = np.random.default_rng(5)
    count = len(segment)
    for query in queries:
        if share == 1.0:
            yield query, None
            continue
        if kind == "random":
            yield query, rng.random(count) < share
            continue
        everything = KIND.search(index, KIND.query(index, [field], query, {}), [Part(segment, None)], count)
        kept = max(1, int(share * count))
        first = {"near": 0, "far": count - kept, "ring": min(count // 2, count - kept)}[kind]
        live = np.zeros(count, np.bool_)
        live[everything.slots[first : first + kept]] = True
        yield query, live


def exact_rows(segment: VectorSegment, query: Any) -> list[int]:
    vectors = segment.vectors()
    metric = segment.facts.metric
    near = exact.nearest(metric, vectors, segment.lengths(), None, query, 10)
    found: list[int] = near[exact.in_full(metric, vectors, near, query).argsort()[:10]].tolist()
    return found


def median(call: Callable[[Any], object], asked: list[Any]) -> float:
    """Microseconds."""
    times = []
    for each in [asked[0], *asked]:
        start = time.perf_counter()
        call(each)
        times.append(1e6 * (time.perf_counter() - start))
    return percentile(times[1:], 0.5)


def clusters(count: int, dimension: int, seed: int) -> npt.NDArray[np.float32]:
    """A thousand clusters, longer in some directions than in others: much like embeddings."""
    shape, rng = np.random.default_rng(99), np.random.default_rng(seed)
    centres, directions = shape.standard_normal((1000, dimension)), shape.standard_normal((16, dimension))
    spread = 0.25 * rng.standard_normal((count, 16)) @ directions + 0.15 * rng.standard_normal((count, dimension))
    return (0.7 * centres[rng.integers(0, 1000, count)] + spread).astype(np.float32)


def noise(count: int, dimension: int, seed: int) -> npt.NDArray[np.float32]:
    """No structure at all: the hardest."""
    return np.random.default_rng(seed).standard_normal((count, dimension)).astype(np.float32)


if __name__ == "__main__":
    main()
