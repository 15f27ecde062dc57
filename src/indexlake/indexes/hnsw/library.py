"""faiss, imported when it is first needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from indexlake.errors import MissingExtraError


def faiss() -> Any:
    """The module.  Everything of it that we use releases the GIL while it computes."""
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
    """How many threads faiss takes for calls from this thread; other threads of the process have their own number."""
    library = faiss()
    before = library.omp_get_max_threads()
    library.omp_set_num_threads(count)
    try:
        yield
    finally:
        library.omp_set_num_threads(before)
