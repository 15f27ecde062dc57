"""Memory that was freed stays with the process and is used again.

The C library's `malloc` returns large blocks to the system soon after they are freed. Whatever is decoded next gets new
pages, and their faults can take longer than decoding. `keep_freed_memory` has glibc keep up to `KEPT_BYTES` in each
arena instead. It changes nothing with another C library, or where variables of the environment configure `malloc`.
"""

from __future__ import annotations

import os
from functools import cache

KEPT_BYTES = 64 << 20
_LARGEST_BLOCK = 32 << 20
"""Larger blocks are still returned at once. glibc itself arrives at this limit when it sees such blocks."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as in malloc.h
_VARIABLES = ("GLIBC_TUNABLES", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_TRIM_THRESHOLD_")


@cache
def keep_freed_memory() -> None:
    """Configure this process's `malloc`."""
    if any(name in os.environ for name in _VARIABLES):
        return
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST_BLOCK)
        mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
