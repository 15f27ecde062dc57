"""``pyarrow.compute``, loaded when the first kernel is called: importing it takes a good part of ``import indexlake``.

Use it in its place: ``from indexlake import kernels as pc``.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    import pyarrow.compute

    found = globals()[name] = getattr(pyarrow.compute, name)
    return found
