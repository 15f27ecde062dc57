"""faiss, imported when it is first needed."""

from __future__ import annotations

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
