"""The versions of one table as a reader or a commit sees them: at a snapshot, together with the blocks of a state.

A reader's snapshot is that of a visible commit; anything written meanwhile begins, ends or moves after it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from indexlake.arrow.batch_size import BATCH_BYTES, column_chunks
from indexlake.errors import ConstraintError
from indexlake.expr.test import ALWAYS, ColumnTest, Test, conjuncts
from indexlake.hot.collected import Collected
from indexlake.hot.memory.page import BITS, LIVE, SLOT, Mask, Page, masked
from indexlake.hot.rows import BATCH_ROWS, HotRows
from indexlake.hot.store import Chunk, HotRow
from indexlake.indexes.key_set import KeySet
from indexlake.indexes.keys import Key, KeyColumn, encode_key
from indexlake.schema import Field, TableSchema
from indexlake.schema.lineage import HeldColumns

if TYPE_CHECKING:
    from pyroaring import BitMap64

    from indexlake.hot.memory.store import MemoryStore
    from indexlake.hot.memory.tree import MemTree
    from indexlake.hot.memory.versions import Versions
    from indexlake.snapshots.state import TableState

CHUNK_BYTES = 256 << 20
FEW_ROWS = 8
"""Fewer rows than these are added one by one."""

PRIMARY = 0
_NONE = np.zeros(0, np.int64)


class MemoryTable:
    """One table at one snapshot."""

    __slots__ = ("_at", "_of", "_pages", "_schema", "_snapshot", "_store", "_table_id", "_tx")

    def __init__(
        self, store: MemoryStore, tx: Any, table_id: int, of: Versions, schema: TableSchema, snapshot: int, at: int
    ) -> None:
        self._store = store
        self._tx = tx
        self._table_id = table_id
        self._of = of
        self._pages = of.pages
        self._schema = schema
        self._snapshot = snapshot
        self._at = at

    # ------------------------------------------------------------ reading

    def rows(self, fields: Sequence[Field], test: Test = ALWAYS) -> HotRows:
        columns = HeldColumns(fields)
        found = self._probe(test)
        masks = self._masks("visible", self._snapshot, self._at) if found is None else self._selected(found)
        return self._arrow(masks, columns)

    def count(self) -> int:
        return sum(int(mask.sum()) for _, mask in self._masks("visible", self._snapshot, self._at))

    def rows_with(self, keys: KeyColumn, fields: Sequence[Field]) -> HotRows:
        tree = self._of.trees.get(PRIMARY)
        if tree is None:
            return self.rows(fields)
        found = (version for key in keys for version in tree.find(key))
        return self._arrow(self._selected(found), HeldColumns(fields))

    def row(self, key: Sequence[Any]) -> HotRow | None:
        schema = self._schema
        for version in self._of.trees[PRIMARY].find(encode_key(schema.key_codecs, key)):
            page, slot = self._pages.get(version >> BITS), version & SLOT
            if page is not None and self._is_visible(page, slot):
                return self._hot_row(page, slot, schema)
        return None

    def _hot_row(self, page: Page, slot: int, schema: TableSchema) -> HotRow:
        begin = page.begins[slot]
        if page.columns == schema.columns and not schema.evolved:
            return HotRow(page.row_ids[slot], begin, tuple([column[slot] for column in page.values]))
        held = schema.held
        return HotRow(page.row_ids[slot], begin, held.row(begin, page.row(slot, held.columns)))

    def _is_visible(self, page: Page, slot: int) -> bool:
        snapshot = self._snapshot
        return page.begins[slot] <= snapshot < page.ends[slot] and page.moved[slot] > self._at

    def _masks(self, method: str, *args: int) -> Iterator[tuple[Page, Mask]]:
        return masked(self._pages.values(), method, *args)

    def _selected(self, versions: Iterable[int]) -> Iterator[tuple[Page, Mask]]:
        """Yield the visible versions among those given, as masks of their pages."""
        slots: dict[int, list[int]] = {}
        for version in versions:
            slots.setdefault(version >> BITS, []).append(version & SLOT)
        for number, wanted in slots.items():
            page = self._pages.get(number)
            if page is None:
                continue
            chosen = [slot for slot in wanted if self._is_visible(page, slot)]
            if chosen:
                mask = np.zeros(page.count, np.bool_)
                mask[chosen] = True
                yield page, mask

    def _arrow(self, masks: Iterable[tuple[Page, Mask]], columns: HeldColumns) -> HotRows:
        hot = HotRows(columns.fields, self._store.spill)
        if columns.direct and all(_is_plain(f.type) for f in columns.fields):
            for some, size in _groups(masks):
                if size <= BATCH_BYTES:
                    hot.add_arrays(*_arrays(some, columns.fields))
                else:
                    for ids, begins, _, values in _cut(_gather(some, columns.columns), size):
                        hot.add(values, ids, begins)
            return hot
        for ids, begins, _, values in _batches(masks, columns.columns):
            hot.add(columns.values(begins, values), ids, begins)
        return hot

    def begun(self, since: int, until: int, fields: Sequence[Field]) -> Iterator[pa.RecordBatch]:
        return self._changes("begin", since, until, fields)

    def ended(self, since: int, until: int, fields: Sequence[Field]) -> Iterator[pa.RecordBatch]:
        return self._changes("end", since, until, fields)

    def _changes(self, kind: str, since: int, until: int, fields: Sequence[Field]) -> Iterator[pa.RecordBatch]:
        columns = HeldColumns(fields)
        ids, begins, ends, values = _gather(self._changed(kind, since, until), columns.columns)
        numbers = begins if kind == "begin" else ends
        order = np.lexsort((ids, numbers))
        for start in range(0, len(order), BATCH_ROWS):
            some = order[start : start + BATCH_ROWS]
            taken = [[held[n] for n in some] for held in values]
            for part in column_chunks(taken, len(some)):
                hot, rows = HotRows(fields, self._store.spill), some[part]
                hot.add(columns.values(begins[rows], [held[part] for held in taken]), ids[rows], numbers[rows])
                yield from hot.batches()

    def _changed(self, kind: str, since: int, until: int) -> Iterator[tuple[Page, Mask]]:
        """Yield versions that no block holds and that began or ended in (since, until]."""
        for page, here in self._masks("here", self._at):
            _, begins, ends = page.numbers(len(here))
            numbers = begins if kind == "begin" else ends
            mask = here & (numbers > since) & (numbers <= until)
            if mask.any():
                yield page, mask

    def count_changes(self, since: int, until: int) -> int:
        return sum(int(mask.sum()) for kind in ("begin", "end") for _, mask in self._changed(kind, since, until))

    def sizes(self) -> tuple[int, int]:
        return self._of.sizes(self._at, self._store.horizon(self._table_id))

    # ------------------------------------------------------------ through a tree

    def _probe(self, test: Test) -> Iterable[int] | None:
        """Return the versions that may satisfy a test, using the tree of one of its columns; None: no tree helps."""
        if test is ALWAYS or self._schema.evolved:
            return None
        tests = [part for part in conjuncts(test) if isinstance(part, ColumnTest)]
        for tree in self._of.trees.values():
            if len(tree.columns) == 1:
                named = [part for part in tests if part.column == tree.columns[0]]
                found = _answer(tree, named) if named else None
                if found is not None:
                    return found
        return None

    # ------------------------------------------------------------ what a commit validates

    def holders(
        self, fields: Sequence[Field], keys: KeyColumn, since: int, without: BitMap64, *, indexed: bool
    ) -> list[HotRow]:
        schema = self._schema
        if fields is schema.key_fields:
            tree = self._of.trees.get(PRIMARY)
        else:
            ids = tuple(f.field_id for f in fields)
            tree = next((t for t in self._of.trees.values() if t.field_ids == ids), None)
        if tree is None or (schema.evolved and any(f.since for f in fields)):
            wanted, codecs = KeySet(keys), tuple(f.codec for f in fields)
            return [
                row
                for row in self.since(fields, since)
                if row.row_id not in without and None not in row.values and encode_key(codecs, row.values) in wanted
            ]
        columns, found = tree.columns, []
        for key in keys.to_list():
            for version in tree.find(key):
                page, slot = self._of.pages.get(version >> BITS), version & SLOT
                if page is None or page.ends[slot] != LIVE or page.moved[slot] != LIVE or page.begins[slot] <= since:
                    continue
                if page.row_ids[slot] not in without:
                    values = tuple(page.row(slot, columns))
                    found.append(HotRow(page.row_ids[slot], page.begins[slot], values))
        return found

    def since(self, fields: Sequence[Field], since: int) -> Iterator[HotRow]:
        held = HeldColumns(fields)
        for page, mask in self._of.masked("live"):
            _, begins, _ = page.numbers(len(mask))
            for slot in np.flatnonzero(mask & (begins > since)).tolist():
                begin = page.begins[slot]
                yield HotRow(page.row_ids[slot], begin, held.row(begin, page.row(slot, held.columns)))

    def is_live(self, row_id: int, begin: int) -> bool:
        version = self._of.live_version(row_id)
        return version is not None and self._of.pages[version >> BITS].begins[version & SLOT] == begin

    def has_begun_since(self, since: int) -> bool:
        return any(
            bool(((b := page.numbers(page.count)[1]) > since).any() and (b[b > since] < LIVE).any())
            for page in self._of.pages.values()
        )

    # ------------------------------------------------------------ what a commit does

    def insert(self, columns: tuple[str, ...], rows: Collection[tuple[int, Sequence[Any]]], snapshot: int) -> None:
        of = self._of
        self._store.note(self._tx, of.undo_since, snapshot)
        if len(rows) < FEW_ROWS:
            for row_id, values in rows:
                of.add(columns, row_id, values, snapshot)
        else:
            row_ids, values_of = zip(*rows, strict=True)
            count = len(row_ids)
            of.add_many(columns, row_ids, [snapshot] * count, [LIVE] * count, list(zip(*values_of, strict=True)))
        self._store.inserted(self._tx, self._table_id, columns, rows, snapshot)

    def close(self, versions: Mapping[int, int], snapshot: int) -> list[int]:
        here: list[int] = []
        moved: list[int] = []
        for row_id in versions:
            version = self._of.live_version(row_id)
            if version is None:
                moved.append(row_id)
            else:
                here.append(version)
        self._end(here, snapshot)
        return moved

    def close_all(self, snapshot: int) -> int:
        versions = self._of.live_versions()
        self._end(versions, snapshot)
        return len(versions)

    def _end(self, versions: Sequence[int], snapshot: int) -> None:
        self._store.note(self._tx, self._of.end, versions, LIVE)
        self._of.end(versions, snapshot)

    # ------------------------------------------------------------ what a dump reads

    def chunk(
        self, state: TableState, *, history: bool, above: Chunk | None, check: Callable[[], None]
    ) -> Chunk | None:
        """Collect the versions begun in a range of commits into one chunk: live rows, and rows superseded within it."""
        since = above.mark[0] if above is not None else -1
        table = state.table
        until = self._cut(since, table.config.block_row_count)
        if until is None:
            return None
        at = max(until, table.horizon)  # whatever ended up to the horizon is forgotten, and may not be looked up
        chosen: list[tuple[Page, Mask]] = []
        live: list[tuple[Page, Mask]] = []
        dead: list[tuple[Page, Mask]] = []
        for page, here in self._masks("here", self._at):
            _, begins, ends = page.numbers(len(here))
            mask = here & (begins > since) & (begins <= until)
            if mask.any():
                chosen.append((page, mask))
                live.append((page, mask & (ends > at)))
                dead.append((page, mask & (ends <= at) & (ends > table.horizon)))
        found = []
        for masks, history in ((live, False), (dead, True)):
            collected = Collected(state.schema, table.horizon, table.begin_snapshot, history=history)
            for ids, begins, ends, values in _batches(masks, collected.columns):
                check()
                collected.add_columns(begins, ids, ends, values)
            found.append(collected.parts())
        parts = [cut for part in found[0] for cut in part.cut(table.config.block_row_count)]
        return Chunk((*parts, *found[1]), (until, chosen), everything=until == self._snapshot, at=at)

    def _cut(self, since: int, size: int) -> int | None:
        """Return the commit at which to end a chunk of about ``size`` versions, or None if there are none."""
        found = [
            begins[mask & (begins > since) & (begins <= self._snapshot)]
            for page, mask in self._masks("here", self._at)
            for begins in [page.numbers(len(mask))[1]]
        ]
        numbers = np.concatenate(found) if found else np.zeros(0, np.int64)
        if not len(numbers):
            return None
        per_row = max(1, self._of.bytes // max(1, self._of.count))
        size = max(1, min(size, CHUNK_BYTES // per_row))
        return self._snapshot if len(numbers) <= size else int(np.partition(numbers, size - 1)[size - 1])


Gathered = tuple[Any, Any, Any, list[list[Any]]]
"""(row ids, begins, ends, values of each column) of some versions."""


def _batches(masks: Iterable[tuple[Page, Mask]], names: Sequence[str]) -> Iterator[Gathered]:
    """Yield the versions in pages in batches of suitable size."""
    for some, size in _groups(masks):
        yield from _cut(_gather(some, names), size)


def _groups(masks: Iterable[tuple[Page, Mask]]) -> Iterator[tuple[list[tuple[Page, Mask]], int]]:
    """Yield groups of pages that make up a batch, with their approximate size in bytes."""
    some: list[tuple[Page, Mask]] = []
    rows = size = 0
    for page, mask in masks:
        some.append((page, mask))
        rows, size = rows + len(mask), size + page.bytes
        if rows >= BATCH_ROWS or size > BATCH_BYTES:
            yield some, size
            some, rows, size = [], 0, 0
    if some:
        yield some, size


def _is_plain(type: pa.DataType) -> bool:
    """Return whether arrays of this type can always be concatenated."""
    other = isinstance(type, pa.BaseExtensionType) or pa.types.is_nested(type) or pa.types.is_dictionary(type)
    return not (other or pa.types.is_string_view(type) or pa.types.is_binary_view(type))


def _arrays(masks: Sequence[tuple[Page, Mask]], fields: Sequence[Field]) -> tuple[list[Any], Any, Any]:
    """Return the values of each field, the row ids and the begins."""
    ids, begins, _, _ = _gather(masks, ())
    parts = [[page.array(f.column, f.codec, mask) for page, mask in masks] for f in fields]
    return [part[0] if len(part) == 1 else pa.concat_arrays(part) for part in parts], ids, begins


def _cut(found: Gathered, size: int) -> Iterator[Gathered]:
    """Split values that take too many bytes for one batch."""
    ids, begins, ends, values = found
    if size > BATCH_BYTES and len(ids):
        for part in column_chunks(values, len(ids)):
            yield ids[part], begins[part], ends[part], [held[part] for held in values]
    elif len(ids):
        yield found


def _gather(masks: Iterable[tuple[Page, Mask]], names: Sequence[str]) -> Gathered:
    numbers: list[Any] = [(_NONE, _NONE, _NONE)]
    values: list[list[Any]] = [[] for _ in names]
    for page, mask in masks:
        numbers.append([each[mask] for each in page.numbers(len(mask))])
        for name, held in zip(names, values, strict=True):
            held += page.column(name, mask)
    ids, begins, ends = (np.concatenate(part) for part in zip(*numbers, strict=True))
    return ids, begins, ends, values


def _answer(tree: MemTree, tests: Sequence[ColumnTest]) -> Iterable[int] | None:
    """Return the versions found in a one-column tree for tests of that column; None: it cannot answer them."""
    codec = tree.codecs[0]

    def key(value: Any) -> Key:
        return encode_key(tree.codecs, (codec.encode_constant(value),))

    low: Key | None = None
    high: Key | None = None
    try:
        for test in tests:
            if test.op in ("=", "in"):
                return [version for each in {key(value) for value in test.values} for version in tree.find(each)]
            if not codec.ordered:
                continue
            if test.op in (">", ">="):
                low = key(test.values[0]) if low is None else max(low, key(test.values[0]))
            elif test.op in ("<", "<="):
                high = key(test.values[0]) if high is None else min(high, key(test.values[0]))
    except ConstraintError:
        return None
    return None if low is None and high is None else tree.between(low, high)
