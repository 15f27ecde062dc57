"""Convert a lake from one hot store to the other, in one commit of the catalog.

To ``inline``: rows that are only in memory, live ones and history, are written to the catalog, and the log is emptied.
To ``memory``: the lake gets a bound, and the process that opens it loads the rows of the catalog. The commit raises the
epoch, so a process that has the lake open can no longer commit or read through the store that it knows. After a crash
before the commit, the lake is unchanged; after a crash following it, it opens with the other store.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from indexlake.catalog import commits, definitions, log_records, tables
from indexlake.catalog.driver import Catalog, CommitUnknown
from indexlake.commit.section import Section
from indexlake.errors import SchemaError
from indexlake.hot import registry
from indexlake.hot.inline import InlineStore
from indexlake.hot.memory.opening import open_memory
from indexlake.hot.memory.owned_catalog import OwnedCatalog
from indexlake.hot.memory.ownership import lock_folder
from indexlake.hot.memory.rotation import sweep
from indexlake.hot.memory.store import MemoryStore
from indexlake.hot.memory.to_inline import write_inline
from indexlake.pipeline.due import HotStoreFill
from indexlake.pipeline.dump import dump
from indexlake.pipeline.job import JobBusy
from indexlake.storage import faults

if TYPE_CHECKING:
    from indexlake.hot.memory.opening import LogPlace
    from indexlake.hot.spec import HotSpec
    from indexlake.lake import Lake


def convert(lake: Lake, spec: HotSpec) -> None:
    if spec.name is None:
        raise SchemaError("convert takes hot='inline' or hot='memory'.")
    if spec.name == lake.hot:
        return
    assert lake._log_place is not None
    place = lake._log_place(spec) if spec.name == registry.MEMORY else None
    _make_room(lake)
    with lake._maintenance.quiet(lake._turns.timeout), lake._converting:
        if spec.name == lake.hot:
            return  # another thread was faster
        if place is not None:
            _to_memory(lake, place)
        else:
            _to_inline(lake)


def _make_room(lake: Lake) -> None:
    """Dump what is due first, so that the commit need not carry it."""
    with lake.catalog.read() as r:
        found = definitions.list_tables(r)
    for table in found:
        if HotStoreFill(lake, table.table_id).due:
            with suppress(JobBusy):
                dump(lake, table.table_id)


def _to_inline(lake: Lake) -> None:
    store, owned = lake._hot, lake.catalog
    assert isinstance(store, MemoryStore)
    assert isinstance(owned, OwnedCatalog)
    with store.turn:
        with Section(owned, store) as section:
            tx = section.tx
            assert section.sequencer.next
            for table in [*definitions.list_tables(tx), *definitions.list_dropped_tables(tx)]:
                if table.table_id not in store.left:
                    write_inline(tx, store, table)
            epoch = log_records.convert(tx, log_records.EVERYTHING)
            _record(section, registry.INLINE)
            section.commit()
        faults.step("convert.committed")
        store.converted = True  # set first, so that nobody sees only one of the two changes that follow
        lake._use(owned.inner, InlineStore(owned.inner, store.spill, epoch))
        lake._recovery = None
        if store.log is not None:
            store.log.close()
            sweep(owned.inner, store.log.folder, (store.epoch + 1, 0))
        faults.step("convert.removed")
    store.close()


def _to_memory(lake: Lake, place: LogPlace) -> None:
    catalog, store = lake.catalog, lake._hot
    lock = None if place.folder is None else lock_folder(catalog, place.folder, beside=place.beside)
    try:
        with Section(catalog, store) as section:
            log_records.convert(section.tx, section.sequencer.next)
            _record(section, registry.MEMORY)
            try:
                section.commit()
            except CommitUnknown:
                section.tx.__exit__(None, None, None)
                if not _has_happened(catalog):
                    raise
        faults.step("convert.committed")
    except BaseException:
        if lock is not None:
            lock.release()
        raise
    opened, owned, lake._recovery = open_memory(catalog, lake.storage.spill, place, lock)
    lake._use(owned, opened)


def _record(section: Section, hot: str) -> None:
    tables.set_property(section.tx, "hot", hot)
    section.sequencer.record("convert", job=True)
    faults.step("convert.commit")


def _has_happened(catalog: Catalog) -> bool:
    with catalog.transaction() as tx:
        record = tables.lake_record(tx)
        commits.write_over_lost_commit(tx)
        tx.commit()
    return record is not None and record.properties["hot"] == registry.MEMORY
