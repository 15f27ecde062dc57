"""How the command line opens a lake: secrets come from the environment, never from arguments that others can see."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from indexlake.errors import OwnershipError
from indexlake.hot.memory.ownership import described
from indexlake.storage import environment
from indexlake.storage.temporary import is_writable

if TYPE_CHECKING:
    from indexlake.lake import Lake


def open_lake(
    address: str,
    *,
    create: bool = False,
    automatic: bool = True,
    reading: bool = False,
    files: Sequence[str] | None = None,
) -> Lake:
    """Open a lake; ``reading``: even in a read-only folder, or beside a process that owns the lake."""
    import indexlake

    folder = os.path.expanduser(address)
    connect = partial(
        indexlake.connect,
        address,
        storage_options=environment.storage_options() or None,
        create=create,
        automatic=automatic,
        cache_dir=environment.cache_dir(),
        log_dir=environment.log_dir(),
        files=files,
    )
    try:
        lake = connect(read_only=reading and os.path.isdir(folder) and not is_writable(folder))
    except OwnershipError as error:
        if not reading:
            raise
        lake = connect(read_only=True)
        by = described(error.details.get("owner"))
        print(f"As of snapshot {lake.snapshot_id}, the last checkpoint of {by}.", file=sys.stderr)
    if lake._new:
        print(f"Created a new lake: {lake.catalog.location}, files in {lake.storage.root}", file=sys.stderr)
    return lake
