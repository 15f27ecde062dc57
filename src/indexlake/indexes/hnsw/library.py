"""faiss, imported only when first needed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
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


def building_threads() -> AbstractContextManager[None]:
    """Use one thread on small machines and up to four on large ones for what this thread builds."""
    return threads(max(1, min(4, (os.cpu_count() or 1) // 2)))
