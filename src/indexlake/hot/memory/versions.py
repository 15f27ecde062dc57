"""The versions of one table in memory: pages, the newest version of each row, and a tree for each index.

The committing thread writes them under the store's lock; readers take no lock. The dictionaries of pages and of trees
are replaced, never changed, so that a reader keeps those it began with. Anything written before an error or an
interrupt can be undone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from indexlake.hot.memory.page import BITS, LIVE, PAGE_ROWS, SLOT, Mask, Page, masked
from indexlake.hot.memory.tree import FEW, MemTree
from indexlake.schema import Field

_VERSION_BYTES = 156
"""Bytes per version besides its values and trees: the numbers in its page, and the newest version of its row."""

_NULL_BYTES, _NUMBER_BYTES = 16, 32
"""Bytes per value: a slot in a list, another in Arrow once its page was scanned, and the object itself. Text and bytes
also take their own length."""

_TREE_BYTES = 80
"""Bytes per version in a tree."""


class Versions:
    def __init__(self) -> None:
        self.pages: dict[int, Page] = {}
        self.newest: dict[int, int] = {}  # row id -> its newest version
        self.trees: dict[int, MemTree] = {}  # by index id; 0 for the primary key
        self.count = 0  # versions that no block holds
        self.bytes = 0
        self._filling: dict[tuple[str, ...], Page] = {}
        self._next = 0

    # ------------------------------------------------------------ writing

    def add_tree(self, index_id: int, fields: Sequence[Field]) -> None:
        tree = MemTree(fields)
        for page in self.pages.values():
            for slot in range(page.count):
                values = [column[slot] for column in page.values]
                tree.add(tree.key(page.place, values), page.number << BITS | slot)
        self.put_back_tree(index_id, tree)

    def drop_tree(self, index_id: int) -> MemTree | None:
        tree = self.trees.get(index_id)
        if tree is not None:
            self.trees = {n: tree for n, tree in self.trees.items() if n != index_id}
            self._count_tree(-_TREE_BYTES)
        return tree

    def put_back_tree(self, index_id: int, tree: MemTree) -> None:
        if index_id not in self.trees:
            self.trees = {**self.trees, index_id: tree}
            self._count_tree(_TREE_BYTES)

    def _count_tree(self, size: int) -> None:
        """Count a tree that takes so many more bytes per version."""
        for page in self.pages.values():
            self._count_in(page, 0, size * page.count)

    def add(self, columns: tuple[str, ...], row_id: int, values: Sequence[Any], begin: int) -> int:
        page = self._page(columns)
        version = page.number << BITS | page.add(row_id, begin, values, self.newest.get(row_id, -1))
        self.newest[row_id] = version
        for tree in self.trees.values():
            tree.add(tree.key(page.place, values), version)
        self._count_in(page, 1, _row_bytes(values))
        return version

    def add_many(
        self,
        columns: tuple[str, ...],
        row_ids: Sequence[int],
        begins: Sequence[int],
        ends: Sequence[int],
        values: Sequence[Sequence[Any]],
    ) -> None:
        """Add versions in the order of their commits; ``values`` are given by column."""
        done, newest = 0, self.newest
        while done < len(row_ids):
            page = self._page(columns)
            first = page.number << BITS | page.count
            upto = min(len(row_ids), done + PAGE_ROWS - page.count)
            part = slice(done, upto)
            previous: list[int] = []
            new: dict[int, int] = {}
            for version, row_id in enumerate(row_ids[part], first):
                previous.append(new.get(row_id, newest.get(row_id, -1)))
                new[row_id] = version
            parts = [held[part] for held in values]
            page.add_many(row_ids[part], begins[part], ends[part], previous, parts)
            newest.update(new)  # only now: an undo starts from what the pages hold
            for tree in self.trees.values():
                tree.add_many(tree.keys(page.place, parts, upto - done), first)
            self._count_in(page, upto - done, sum(map(_column_bytes, parts)))
            done = upto

    def _count_in(self, page: Page, versions: int, size: int) -> None:
        """Count new versions of a page, and the approximate bytes of what they hold."""
        size += (_VERSION_BYTES + _TREE_BYTES * len(self.trees)) * versions
        page.bytes += size
        self.bytes += size
        self.count += versions

    def _page(self, columns: tuple[str, ...]) -> Page:
        """Return the page that takes the next version with these columns."""
        page = self._filling.get(columns)
        if page is None or page.count == PAGE_ROWS:
            page = Page(self._next, columns)
            self._next += 1
            self.pages = {**self.pages, page.number: page}
            self._filling[columns] = page
        return page

    def undo_since(self, snapshot: int) -> None:
        """Remove the versions that began in this commit or later."""
        for page in self.pages.values():
            page.cut()
            slot = page.count - 1
            while slot >= 0 and page.begins[slot] >= snapshot:
                if page.begins[slot] < LIVE:
                    self._undo_add(page, slot)
                slot -= 1
        self.count = sum(int(mask.sum()) for _, mask in self.masked("here", LIVE - 1))

    def _undo_add(self, page: Page, slot: int) -> None:
        row_id, previous, version = page.row_ids[slot], page.previous[slot], page.number << BITS | slot
        if previous < 0:
            self.newest.pop(row_id, None)
        else:
            self.newest[row_id] = previous
        values = [column[slot] for column in page.values]
        for tree in self.trees.values():
            tree.remove(tree.key(page.place, values), version)
        page.void(slot)

    def end(self, versions: Iterable[int], snapshot: int) -> None:
        for version in versions:
            self.pages[version >> BITS].ends[version & SLOT] = snapshot

    def live_version(self, row_id: int) -> int | None:
        """Return the version of a row that is neither superseded nor in a block, if any."""
        version = self.newest.get(row_id)
        if version is None:
            return None
        page, slot = self.pages[version >> BITS], version & SLOT
        return version if page.ends[slot] == LIVE and page.moved[slot] == LIVE else None

    def live_versions(self) -> list[int]:
        return [
            page.number << BITS | slot for page, mask in self.masked("live") for slot in np.flatnonzero(mask).tolist()
        ]

    # ------------------------------------------------------------ letting go

    def release(self, before: int, horizon: int) -> int:
        """Drop pages that no reader needs any more; return how many versions they held."""
        gone = {n: page for n, page in self.pages.items() if page.count and page.is_gone(before, horizon)}
        if not gone:
            return 0
        freed = sum(page.count for page in gone.values())
        if len(gone) == len(self.pages):
            self.newest = {}
        elif freed > len(self.newest) // FEW:
            self.newest = {row_id: version for row_id, version in self.newest.items() if version >> BITS not in gone}
        else:
            for page in gone.values():
                for row_id in page.row_ids[: page.count]:
                    if self.newest.get(row_id, -1) >> BITS in gone:
                        del self.newest[row_id]
        for tree in self.trees.values():
            tree.forget(gone, everything=len(gone) == len(self.pages))
        for page in gone.values():
            if self._filling.get(page.columns) is page:
                del self._filling[page.columns]
            self.bytes -= page.bytes
        self.pages = {n: page for n, page in self.pages.items() if n not in gone}
        return freed

    # ------------------------------------------------------------ reading

    def masked(self, method: str, *args: int) -> Iterator[tuple[Page, Mask]]:
        return masked(self.pages.values(), method, *args)

    def oldest(self) -> int | None:
        """Return the commit in which the oldest version that no block holds began."""
        found = [int(page.numbers(len(mask))[1][mask].min()) for page, mask in self.masked("here", LIVE - 1)]
        return min(found, default=None)

    def first_after(self, bound: int) -> int | None:
        """Return the first commit after ``bound`` that began or ended a version that no block holds."""
        found = [n[mask] for page, mask in self.masked("here", LIVE - 1) for n in page.numbers(len(mask))[1:]]
        later = [int(some.min()) for numbers in found if len(some := numbers[(numbers > bound) & (numbers < LIVE)])]
        return min(later, default=None)

    def sizes(self, at: int, horizon: int) -> tuple[int, int]:
        """Return the numbers of (live, superseded but retained) versions that no block holds."""
        live = dead = 0
        for page, mask in self.masked("here", at):
            ends = page.numbers(len(mask))[2][mask]
            is_live = int(np.count_nonzero(ends == LIVE))
            live += is_live
            dead += int(np.count_nonzero(ends > horizon)) - is_live
        return live, dead


def _row_bytes(values: Sequence[Any]) -> int:
    """Return about how many bytes the values of one version take."""
    size = _NULL_BYTES * len(values)
    for value in values:
        if value is not None:
            size += _NUMBER_BYTES
            if type(value) is bytes:
                size += len(value)
    return size


def _column_bytes(values: Sequence[Any]) -> int:
    """Return about how many bytes one column of many versions takes."""
    size = _NULL_BYTES * len(values) + _NUMBER_BYTES * (len(values) - values.count(None))
    if isinstance(next((v for v in values if v is not None), None), bytes):
        size += sum([len(v) for v in values if v is not None])
    return size
