"""How the command line opens a lake: secrets come from the environment, never from arguments, which others can see."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from indexlake.storage import environment
from indexlake.storage.temporary import is_writable

if TYPE_CHECKING:
    from indexlake.lake import Lake


def open_lake(address: str, *, create: bool = False, automatic: bool = True, reading: bool = False) -> Lake:
    """The lake.  ``reading``: also in a folder that cannot be written to."""
    import indexlake

    folder = os.path.expanduser(address)
    lake = indexlake.connect(
        address,
        storage_options=environment.storage_options() or None,
        create=create,
        read_only=reading and os.path.isdir(folder) and not is_writable(folder),
        automatic=automatic,
        cache_dir=environment.cache_dir(),
    )
    if lake._new:
        print(f"Made a new lake: {lake.catalog.location}, files in {lake.storage.root}", file=sys.stderr)
    return lake
