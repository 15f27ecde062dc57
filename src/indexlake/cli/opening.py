"""How the command line opens a lake: secrets come from the environment, never from arguments, which others can see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexlake import environment

if TYPE_CHECKING:
    from indexlake.lake import Lake


def open_lake(address: str, *, create: bool = False, automatic: bool = True) -> Lake:
    import indexlake

    return indexlake.connect(
        address,
        storage_options=environment.storage_options() or None,
        create=create,
        automatic=automatic,
        cache_dir=environment.cache_dir(),
    )
