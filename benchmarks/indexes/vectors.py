"""Vectors: the nearest ten beside bare faiss at the same recall, and with conditions."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.indexes import data
from benchmarks.outcome import Outcome, at_most, in_turn, spread

WIDTH, QUERIES = 64, 200


def nearest_ten(folder: Path, rows: int) -> Iterator[Outcome]:
    rows = rows // 50
    vectors, queries = _clustered(rows)
    schema = pa.schema([("id", pa.int64()), ("share", pa.int64()), ("vec", pa.list_(pa.float32(), WIDTH))])
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), WIDTH)
    shares = np.random.default_rng(2).integers(0, 1000, rows)
    lake = data.open_lake(folder, "vectors")
    table = data.table_of(lake, rows, 4, schema=schema)
    table.insert(pa.table([np.arange(rows), shares, column], schema=schema))
    table.create_index("near", "vec", kind="hnsw")
    true = [set(_exact(vectors, query, None)) for query in queries]

    def ours(n: int, where: str | None = None) -> list[int]:
        found = table.search("vec", queries[n % QUERIES], where=where, columns=["id"]).to_arrow()
        ids: list[int] = found["id"].to_pylist()
        return ids

    reached = _recall(ours, true)
    bare, theirs = _faiss(vectors, queries, true, reached)
    times = in_turn({"ours": ours, "faiss": bare}, 400, together=20)
    medians = {name: statistics.median(t) for name, t in times.items()}
    detail = f"recall {reached:.3f} and {theirs:.3f}; ours {spread(times['ours'])}; faiss {spread(times['faiss'])}"
    yield at_most(
        f"hnsw top 10 of {rows:,}, and faiss at this recall", medians["ours"], medians["faiss"], 1.5, detail=detail
    )
    for share in (100, 10):
        some = partial(ours, where=f"share < {share}")
        found = [set(_exact(vectors, query, shares < share)) for query in queries]
        recall = _recall(some, found)
        times = in_turn({"filtered": some, "all": ours}, 200, together=20)
        filtered, plain = (statistics.median(times[name]) for name in ("filtered", "all"))
        yield at_most(f"hnsw top 10 of {share / 10:g} %, and of all", filtered, plain, 2, detail=f"recall {recall:.3f}")
    lake.close()


def _clustered(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Vectors as embeddings are: many, around fewer centres."""
    pick = np.random.default_rng(1)
    centres = pick.normal(size=(max(1, rows // 100), WIDTH))
    made = [
        (centres[pick.integers(0, len(centres), count)] + 0.5 * pick.normal(size=(count, WIDTH))).astype(np.float32)
        for count in (rows, QUERIES)
    ]
    return made[0], made[1]


def _exact(vectors: np.ndarray, query: np.ndarray, among: np.ndarray | None) -> list[int]:
    places = np.arange(len(vectors)) if among is None else np.flatnonzero(among)
    away = np.square(vectors[places] - query).sum(1)
    found: list[int] = places[np.argsort(away)[:10]].tolist()
    return found


def _recall(ask: Callable[[int], list[int]], true: list[set[int]]) -> float:
    return sum(len(want & set(ask(n))) for n, want in enumerate(true)) / sum(map(len, true))


def _faiss(
    vectors: np.ndarray, queries: np.ndarray, true: list[set[int]], wanted: float
) -> tuple[Callable[[int], Any], float]:
    """Bare faiss, searched as broadly as our recall takes."""
    import faiss

    index = faiss.IndexHNSWFlat(vectors.shape[1], 16)
    index.hnsw.efConstruction = 100
    index.add(vectors)
    faiss.omp_set_num_threads(1)

    def ask(n: int) -> list[int]:
        found: list[int] = index.search(queries[n % QUERIES][None, :], 10)[1][0].tolist()
        return found

    reached = 0.0
    for breadth in (10, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512):
        index.hnsw.efSearch = breadth
        reached = _recall(ask, true)
        if reached >= wanted:
            break
    return ask, reached
