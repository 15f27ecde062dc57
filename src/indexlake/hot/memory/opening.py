"""Become the owner of a lake whose newest rows are in memory, or learn who is."""

from __future__ import annotations

import fcntl
import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from indexlake.catalog import commits, log_records
from indexlake.errors import OwnershipError, StorageError
from indexlake.hot.memory.owned_catalog import OwnedCatalog
from indexlake.hot.memory.recovery import Recovery, recover
from indexlake.hot.memory.store import MemoryStore

if TYPE_CHECKING:
    from indexlake.catalog.driver import Catalog
    from indexlake.hot.memory.redo import Durability
    from indexlake.storage.spill import Spill

LOCK = "owner.lock"


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Where the redo log goes, and how durable a commit is when it returns.  ``folder`` None: there is no log."""

    folder: str | None
    durability: Durability = "fdatasync"


def open_memory(catalog: Catalog, spill: Spill, place: LogPlace) -> tuple[MemoryStore, OwnedCatalog, Recovery]:
    store = MemoryStore(catalog, spill)
    if place.folder is None:
        with catalog.transaction() as tx:
            store.visible, store.committed_at = commits.last_snapshot(tx)
            store.layout = store.visible
            store.set_clock(tx)
            store.epoch = log_records.take_over(tx, _process(), socket.gethostname(), "", store.visible)
            tx.commit()
        return store, OwnedCatalog(catalog, store), Recovery(epoch=store.epoch, last_commit=store.visible)
    _make_folder(place.folder)
    lock = _lock(catalog, place.folder)
    try:
        found = recover(store, catalog, place.folder, (_process(), socket.gethostname()), place.durability)
    except BaseException:
        store.close()
        os.close(lock)
        raise
    store.on_close(lambda: os.close(lock))
    return store, OwnedCatalog(catalog, store), found


def _make_folder(folder: str) -> None:
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot make the folder {folder} for the redo log: {error.strerror}", path=folder) from None


def _lock(catalog: Catalog, folder: str) -> int:
    """A kernel lock that goes with the process."""
    handle = os.open(os.path.join(folder, LOCK), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        with catalog.read() as r:
            owner = log_records.read_owner(r)
        by = "another process" if owner is None else f"{owner.owner} on {owner.host}"
        raise OwnershipError(
            f"This lake keeps its newest rows in the memory of {by}, which has it open. Close it there first, or "
            "connect with read_only=True to read what its last checkpoint holds."
        ) from None
    return handle


def _process() -> str:
    return f"process {os.getpid()}"
