"""Become the owner of a lake whose newest rows are in memory."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from indexlake.catalog import commits, log_records
from indexlake.errors import CatalogError
from indexlake.hot.memory.owned_catalog import OwnedCatalog
from indexlake.hot.memory.ownership import become_owner, lock_folder
from indexlake.hot.memory.recovery import Recovery, recover
from indexlake.hot.memory.store import MemoryStore

if TYPE_CHECKING:
    from indexlake.catalog.driver import Catalog
    from indexlake.hot.memory.ownership import FolderLock
    from indexlake.hot.memory.redo import Durability
    from indexlake.storage.spill import Spill


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Where the redo log goes (``folder`` None: there is no log), and how durable a commit is when it returns.

    ``beside``: the folder lies in the catalog's own folder. ``take_over``: the previous owner is gone for good.
    """

    folder: str | None
    beside: bool = False
    durability: Durability = "fdatasync"
    take_over: bool = False


def open_memory(
    catalog: Catalog, spill: Spill, place: LogPlace, lock: FolderLock | None = None
) -> tuple[MemoryStore, OwnedCatalog, Recovery]:
    """Become the owner of the lake, and recover its rows from the log; ``lock`` is the folder's if already held."""
    store = MemoryStore(catalog, spill)
    if place.folder is None:
        with catalog.transaction() as tx:
            store.layout, store.committed_at = commits.last_snapshot(tx)
            store.begin_at(store.layout)
            store.set_clock(tx)
            store.epoch, _ = become_owner(tx, None, store.visible, take_over=False)
            tx.commit()
        return store, OwnedCatalog(catalog, store), Recovery(epoch=store.epoch, last_commit=store.visible)
    lock = lock or lock_folder(catalog, place.folder, beside=place.beside)
    store.on_close(lock.release)
    store.on_close(lambda: _leave(catalog, store.epoch))
    try:
        found = recover(store, catalog, lock, place.durability, take_over=place.take_over)
    except BaseException:
        store.close()
        raise
    return store, OwnedCatalog(catalog, store), found


def _leave(catalog: Catalog, epoch: int) -> None:
    """Record that the lake was closed. Those who open the same folder also learn it from the lock."""
    with suppress(CatalogError), catalog.transaction() as tx:
        log_records.leave(tx, epoch)
        tx.commit()
