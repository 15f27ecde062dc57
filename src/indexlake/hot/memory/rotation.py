"""Continue the redo log in another file, and remove files that are no longer needed.

One catalog transaction seals a file and lists the next one; records only go to a listed file. A file is taken off the
list when the catalog and its blocks hold every commit in it, and is deleted after that.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from indexlake.catalog import commits, definitions, log_records
from indexlake.catalog.driver import CommitUnknown
from indexlake.catalog.log_records import Segment
from indexlake.errors import CatalogError, IndexLakeError
from indexlake.hot.memory.owned_catalog import OwnedCatalog
from indexlake.hot.memory.redo import RedoLog, segment_name
from indexlake.hot.memory.to_inline import write_inline
from indexlake.storage import faults

if TYPE_CHECKING:
    from indexlake.catalog.driver import Catalog
    from indexlake.hot.memory.store import MemoryStore


def rotate(store: MemoryStore) -> None:
    """Begin the next file; on failure continue in the same file and try again later.

    The caller holds the sequencer's turn.
    """
    log = store.log
    assert log is not None
    faults.step("log.rotate")
    try:
        handle, size = log.create(log.number + 1, log.last)
    except OSError:
        log.try_later()
        return
    try:
        listed = _list_next(store, log)
    except BaseException as error:  # an interrupt
        _end(log, handle, size, _is_listed(store, log, error))
        raise
    _end(log, handle, size, listed)


def _end(log: RedoLog, handle: int, size: int, listed: bool | None) -> None:
    """Continue in the new file if it was listed, otherwise in the old one."""
    if listed:
        log.switch(handle, size)
        return
    log.try_later()
    os.close(handle)
    if listed is False:
        with suppress(OSError):
            os.unlink(os.path.join(log.folder, segment_name(log.epoch, log.number + 1)))


def _list_next(store: MemoryStore, log: RedoLog) -> bool | None:
    """Seal the open file and list the next one; return whether that happened.

    None: the outcome is unknown, and the store is marked as lost. The sealed file is durable: the transaction first
    tells the catalog of its commits, which syncs it.
    """
    try:
        with OwnedCatalog(store.catalog, store).transaction() as tx:
            log_records.seal(tx, log.epoch, log.number, log.last, log.size)
            log_records.list_segment(tx, Segment(log.epoch, log.number + 1, None, None))
            bound = store.bound(store.visible)
            log_records.set_bound(tx, bound)
            log_records.unlist_up_to(tx, bound)
            faults.step("log.sealed")
            tx.commit()
    except CommitUnknown as error:
        return _is_listed(store, log, error)
    except (OSError, IndexLakeError):
        return False
    return True


def _is_listed(store: MemoryStore, log: RedoLog, error: BaseException) -> bool | None:
    store.lost = (
        f"It is not known whether the redo log goes on in another file ({error!r}), and the catalog does not answer. "
        "Close the lake and connect again."
    )
    try:
        with store.catalog.transaction() as tx:
            listed = log_records.read_segments(tx)
            commits.write_over_lost_commit(tx)
            tx.commit()
    except CatalogError:
        return None
    store.lost = None
    return any((s.epoch, s.number) == (log.epoch, log.number + 1) for s in listed)


def trim(store: MemoryStore) -> None:
    """Remove files whose commits are completely in the catalog, replacing the open one too if that applies to it."""
    log = store.log
    if log is None or log.poisoned is not None or store.lost is not None:
        return
    with store.turn:
        _leave_dropped(store)
        bound = store.bound(store.visible)
        with store.catalog.read() as r:
            owner = log_records.read_owner(r)
        if log.before < log.last <= bound:
            rotate(store)
        elif owner is not None and bound > owner.bound:
            with OwnedCatalog(store.catalog, store).transaction() as tx:
                log_records.set_bound(tx, bound)
                log_records.unlist_up_to(tx, bound)
                tx.commit()
    sweep(store.catalog, log.folder, (log.epoch, log.number))


def _leave_dropped(store: MemoryStore) -> None:
    """Leave the rows of dropped tables to the catalog, so that neither the log nor memory keeps them: no dump will."""
    with store.catalog.read() as r:
        dropped = [t for t in definitions.list_dropped_tables(r) if t.table_id in store.tables]
    if alone := [t for t in dropped if store.has_alone(t.table_id)]:
        with OwnedCatalog(store.catalog, store).transaction() as tx:
            for table in alone:
                write_inline(tx, store, table)
                log_records.move_idle_bound(tx, table.table_id, store.visible)
            tx.commit()
    oldest = min([reader.at for reader in list(store.readers)], default=store.visible)
    for table in dropped:
        if table.end_snapshot is not None and table.end_snapshot <= oldest:
            store.leave(table.table_id)


def sweep(catalog: Catalog, folder: str, open_file: tuple[int, int]) -> None:
    """Delete log files that are no longer listed, except those about to be listed."""
    with catalog.read() as r:
        listed = {(s.epoch, s.number) for s in log_records.read_segments(r)}
    for name in os.listdir(folder):
        found = numbers_of(name)
        if found is not None and found not in listed and found < open_file:
            with suppress(OSError):  # another thread or the next sweep deletes it
                faults.step("log.truncate")
                os.unlink(os.path.join(folder, name))


def numbers_of(name: str) -> tuple[int, int] | None:
    """Return (epoch, number) of a log file by its name, or None for any other file."""
    parts = name.split(".")
    if len(parts) == 4 and (parts[0], parts[3]) == ("redo", "log") and parts[1].isdigit() and parts[2].isdigit():
        return int(parts[1]), int(parts[2])
    return None
