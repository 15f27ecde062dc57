"""The next file of the redo log: the old one is sealed and the new one listed in one transaction of the catalog."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from indexlake.catalog import log_records
from indexlake.catalog.log_records import Segment
from indexlake.errors import CatalogError
from indexlake.hot.memory.redo import segment_name
from indexlake.storage import faults

if TYPE_CHECKING:
    from indexlake.hot.memory.store import MemoryStore


def rotate(store: MemoryStore) -> None:
    """The caller has the turn.  While the catalog is away the log goes on in the same file."""
    log = store.log
    assert log is not None
    switch = log.next_file()
    try:
        with store.catalog.transaction() as tx:
            if log_records.read_epoch(tx) == store.epoch:
                log_records.seal(tx, log.epoch, log.number, store.visible, log.size)
                log_records.list_segment(tx, Segment(log.epoch, log.number + 1, None, None))
                faults.step("log.sealed")
                tx.commit()
                switch()
                return
    except CatalogError:
        pass
    os.unlink(os.path.join(log.folder, segment_name(log.epoch, log.number + 1)))


def sweep(store: MemoryStore) -> int:
    """Delete files of the log that are not listed any more; none that somebody is about to list."""
    log, count = store.log, 0
    if log is None:
        return 0
    with store.catalog.read() as r:
        listed = {(s.epoch, s.number) for s in log_records.read_segments(r)}
    for name in os.listdir(log.folder):
        found = _numbers(name)
        if found is not None and found not in listed and found < (log.epoch, log.number):
            faults.step("log.truncate")
            os.unlink(os.path.join(log.folder, name))
            count += 1
    return count


def _numbers(name: str) -> tuple[int, int] | None:
    parts = name.split(".")
    if len(parts) == 4 and (parts[0], parts[3]) == ("redo", "log") and parts[1].isdigit() and parts[2].isdigit():
        return int(parts[1]), int(parts[2])
    return None


def remove_files(store: MemoryStore) -> None:
    """The lake has no log any more.  Files of a later owner stay."""
    log = store.log
    if log is not None:
        log.close()
        for name in os.listdir(log.folder):
            found = _numbers(name)
            if found is not None and found[0] <= log.epoch:
                os.unlink(os.path.join(log.folder, name))
