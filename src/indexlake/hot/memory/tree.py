"""``MemTree``: finds the versions with a key, and those in a range of keys.

A plain dict finds a single key. The sorted keys are built for the first range query, and kept up to date from then on.
Keys are those of `indexes.keys`; versions with a null in the key have none and are not in the tree.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sortedcontainers import SortedList

from indexlake.hot.memory.page import BITS
from indexlake.indexes.keys import Key, encode_key, encode_keys
from indexlake.schema import Field

if TYPE_CHECKING:
    from indexlake.hot.memory.page import Page

FEW = 8
"""Up to this fraction of all versions (1/FEW) is removed one by one; for more, the tree is rebuilt."""

Versions = int | list[int]
"""One version, or several, oldest first."""


class MemTree:
    """Finds versions of one table by some columns. Written by the committing thread, read by any."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self.columns = tuple(f.column for f in fields)
        self.codecs = tuple(f.codec for f in fields)
        self.field_ids = tuple(f.field_id for f in fields)
        self._versions: dict[Key, Versions] = {}
        self._sorted: Any = None
        self._sorting = threading.Lock()  # the sorted keys are changed and read by one thread at a time
        self._single = len(self.columns) == 1

    def __len__(self) -> int:
        return len(self._versions)

    def key(self, columns: dict[str, int], values: Sequence[Any]) -> Key | None:
        """Return the key of a version with these columns, or None if it has none."""
        if self._single:
            place = columns.get(self.columns[0])
            if place is None or (value := values[place]) is None:
                return None
            return encode_key(self.codecs, (value,))
        parts = [values[columns[name]] if name in columns else None for name in self.columns]
        return None if None in parts else encode_key(self.codecs, parts)

    def keys(self, columns: dict[str, int], values: Sequence[Sequence[Any]], count: int) -> list[Key | None]:
        """Return the keys of many versions, whose values are given by column."""
        return encode_keys(
            self.codecs, [values[columns[name]] if name in columns else [None] * count for name in self.columns]
        )

    def add_many(self, keys: Iterable[Key | None], first: int) -> None:
        """Add versions with consecutive numbers."""
        new: list[Key] = []
        with self._sorting:
            versions = self._versions
            for version, key in enumerate(keys, first):
                if key is None:
                    continue
                found = versions.setdefault(key, version)
                if isinstance(found, list):
                    found.append(version)
                elif found == version:
                    new.append(key)
                else:
                    versions[key] = [found, version]
            if self._sorted is not None:
                self._sorted.update(new)

    def add(self, key: Key | None, version: int) -> None:
        if key is None:
            return
        found = self._versions.get(key)
        if found is None:
            with self._sorting:
                self._versions[key] = version
                if self._sorted is not None:
                    self._sorted.add(key)
        elif isinstance(found, int):
            self._versions[key] = [found, version]
        else:
            found.append(version)

    def remove(self, key: Key | None, version: int) -> None:
        if key is not None:
            self._keep(key, lambda v: v != version)

    def _keep(self, key: Key, is_kept: Callable[[int], bool]) -> None:
        found = self._versions.get(key)
        left = [] if found is None else [v for v in ([found] if isinstance(found, int) else found) if is_kept(v)]
        if left:
            self._versions[key] = left[0] if len(left) == 1 else left
        elif found is not None:
            with self._sorting:
                del self._versions[key]
                if self._sorted is not None:
                    self._sorted.discard(key)

    def forget(self, gone: Mapping[int, Page], *, everything: bool = False) -> None:
        """Remove the versions of these pages, given by number, or rebuild the tree if they are many."""
        if not everything and sum(page.count for page in gone.values()) <= len(self) // FEW:
            for page in gone.values():
                for key in self.keys(page.place, page.values, page.count):
                    if key is not None:
                        self._keep(key, lambda v: v >> BITS not in gone)
            return
        left: dict[Key, Versions] = {}
        for key, found in () if everything else self._versions.items():
            if isinstance(found, int):
                if found >> BITS not in gone:
                    left[key] = found
            elif rest := [v for v in found if v >> BITS not in gone]:
                left[key] = rest[0] if len(rest) == 1 else rest
        with self._sorting:
            self._versions, self._sorted = left, None

    def find(self, key: Key) -> Iterable[int]:
        """Return the versions with a key, newest first."""
        found = self._versions.get(key)
        if found is None:
            return ()
        return (found,) if isinstance(found, int) else found[::-1]

    def between(self, low: Key | None, high: Key | None) -> Iterator[int]:
        """Yield the versions with keys in [low, high], in key order; None: no bound."""
        with self._sorting:
            if self._sorted is None:
                self._sorted = SortedList(list(self._versions))
            keys = list(self._sorted.irange(low, high))
        for key in keys:
            yield from self.find(key)
