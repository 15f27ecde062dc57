"""faiss, imported only when first needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from indexlake.errors import MissingExtraError


def faiss() -> Any:
    """Return the faiss module.  All functions of it that are used here release the GIL while they compute."""
    try:
        import faiss as module
    except ImportError:
        raise MissingExtraError(
            "A vector index (kind 'hnsw') needs faiss. Install it with: pip install 'indexlake[vector]'",
            extra="vector",
        ) from None
    return module


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Set the number of threads faiss uses for calls from this thread; other threads of the process keep their own."""
    library = faiss()
    before = library.omp_get_max_threads()
    library.omp_set_num_threads(count)
    try:
        yield
    finally:
        library.omp_set_num_threads(before)
