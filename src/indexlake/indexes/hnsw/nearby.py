"""The order in which the vectors of a graph are stored: those that are near each other lie together, so that a search
meets fewer places of memory, which is most of what it takes."""

from __future__ import annotations

import math

import numpy as np

from indexlake.indexes.hnsw.library import building_threads, faiss
from indexlake.indexes.hnsw.metric import Vectors
from indexlake.indexes.kind import Slots

_ROUNDS = 4
_SAMPLE = 50  # vectors for each centre


def nearby(vectors: Vectors) -> Slots:
    """Return an order of vectors: by the nearest of some centres, then by the second nearest."""
    centres = faiss().Kmeans(
        vectors.shape[1],
        math.isqrt(len(vectors)),
        niter=_ROUNDS,
        max_points_per_centroid=_SAMPLE,
        min_points_per_centroid=1,
    )
    with building_threads():
        centres.train(vectors)
        near = centres.index.search(vectors, 2)[1]
    return np.lexsort((near[:, 1], near[:, 0]))
