"""How tests that open one lake several times run on a hot store that has one owner (`--hot memory`).

Opened again in the same process, a lake has a handle of its own, with caches and groups of its own, on the versions in
memory of the first one; what a test sends to other processes runs in threads of this one.
"""

from __future__ import annotations

import multiprocessing
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import indexlake as il
from indexlake.hot import registry
from indexlake.hot.memory import opening
from indexlake.hot.memory.owned_catalog import OwnedCatalog
from tests.support.folders import new_folder


def other_processes(count: int) -> Executor:
    """Where other clients of a lake run."""
    if registry.DEFAULT == registry.MEMORY:
        return ThreadPoolExecutor(count)
    return ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))


class _SharedCatalog(OwnedCatalog):
    """That of one handle; the last one that is closed closes the store."""

    handles: list[_SharedCatalog]

    def close(self) -> None:
        if self not in self.handles:
            return
        self.handles.remove(self)
        if self.inner is not self.store.catalog:
            self.inner.close()
        if not self.handles:
            self.store.close()
            self.store.catalog.close()


def in_memory(patch: pytest.MonkeyPatch) -> None:
    """Every lake that is made from here on has its newest rows in the memory of this process."""
    if registry.DEFAULT == registry.MEMORY:
        return
    patch.setattr(registry, "DEFAULT", registry.MEMORY)
    share_memory(patch)


def share_memory(patch: pytest.MonkeyPatch) -> None:
    """From here on a lake whose owner is this process can be opened again."""
    open_memory, connect = opening.open_memory, il.connect
    opened: dict[str, tuple[Any, Any, list[_SharedCatalog]]] = {}
    log_folders: dict[tuple[str, Any], str] = {}

    def shared(catalog: Any, spill: Any, place: Any, *more: Any) -> Any:
        if place.folder is None:
            return open_memory(catalog, spill, place, *more)
        if place.folder not in opened or not opened[place.folder][2]:
            store, _, recovery = open_memory(catalog, spill, place, *more)
            opened[place.folder] = store, recovery, []
        store, recovery, handles = opened[place.folder]
        handle = _SharedCatalog(catalog, store)
        handle.handles = handles
        handles.append(handle)
        return store, handle, recovery

    def with_log(catalog: str | Path, **options: Any) -> il.Lake:
        if str(catalog).startswith("postgres") and not options.get("log_dir"):
            key = str(catalog), options.get("catalog_schema")
            options["log_dir"] = log_folders.setdefault(key, str(new_folder("log")))
        return connect(catalog, **options)

    patch.setattr(opening, "open_memory", shared)
    patch.setattr(il, "connect", with_log)
