"""The available hot stores, by the name in a lake's record."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from indexlake.errors import CatalogError
from indexlake.hot.inline import InlineStore, ReplicaStore

if TYPE_CHECKING:
    from indexlake.catalog.driver import Catalog
    from indexlake.hot.store import HotStore
    from indexlake.storage.spill import Spill

INLINE = "inline"
DEFAULT = INLINE
"""The hot store of a new lake."""

MEMORY = "memory"
"""The store that only the lake's owner opens."""

STORES: dict[str, Callable[[Catalog, Spill, int], HotStore]] = {"inline": InlineStore}


def hot_name(store: HotStore) -> str:
    """Return the name of a store in a lake's record."""
    return INLINE if isinstance(store, InlineStore) and not isinstance(store, ReplicaStore) else MEMORY


def open_store(name: str, catalog: Catalog, spill: Spill, epoch: int = 0) -> HotStore:
    """Return the hot store of a lake whose record says ``name``, since ``epoch``."""
    make = STORES.get(name)
    if make is None:
        raise CatalogError(
            f"The lake at {catalog.location} keeps its newest rows in a hot store {name!r}; this IndexLake knows "
            f"{', '.join(map(repr, (*STORES, MEMORY)))}. Upgrade with: pip install -U indexlake"
        )
    return make(catalog, spill, epoch)
