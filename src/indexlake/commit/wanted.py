"""What must be absent when a write-set commits, and how to find it in blocks.

Three things can be wanted: the keys of new rows in a unique index, including the primary key; the values for which a
merge found no row and added one; and the keys of loaded blocks, which are too many to keep in memory. Each names the
fields concerned, finds the values that blocks hold, and knows the error to raise if a live row has one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.blocks.delete_vector import is_among
from indexlake.blocks.new_block import NewBlock
from indexlake.display import short
from indexlake.errors import ConflictError, DuplicateKeyError
from indexlake.indexes.key_set import KeySet
from indexlake.indexes.keys import FewKeys, Key, KeyColumn, decode_key, encode_key, key_to_bytes
from indexlake.schema import ROW_ID, VERSION, Field
from indexlake.types.selection import keep

if TYPE_CHECKING:
    from indexlake.blocks.block import BlockRecord
    from indexlake.blocks.open_files import OpenFiles
    from indexlake.commit.write_set import TableWrites, Values
    from indexlake.errors import IndexLakeError
    from indexlake.hot.store import HotRow
    from indexlake.indexes.coverage import Coverage
    from indexlake.indexes.index import Index
    from indexlake.schema import TableSchema
    from indexlake.snapshots.state import TableState
    from indexlake.types import Codec

MANY = 64
"""From this many keys on, Arrow encodes them; fewer are encoded one by one, which is cheaper."""

Holder = tuple[int, int, Key]
"""Data file id, position, key."""

Holders = Iterator[tuple["BlockRecord", Sequence[int], Sequence[Key] | KeyColumn]]
"""For each block, live positions with the wanted keys found there."""

Probe = Callable[["TableState", Sequence[NewBlock], int], list[Holder]]
"""(state, new blocks, since) → holders in live blocks written after ``since``.

The first call may distribute its work; later calls have little to look at.
"""


class Wanted(ABC):
    """Values of some fields that no live row may have. ``keys`` is None if they are too many for memory."""

    __slots__ = ("fields", "index", "keys", "since")

    def __init__(self, index: Index | None, fields: tuple[Field, ...], keys: KeyColumn | None, since: int = -1) -> None:
        self.index = index  # the unique index whose keys these are
        self.fields = fields
        self.keys = keys
        self.since = since  # no version up to this snapshot has the values: that was seen when they were read

    @property
    def codecs(self) -> list[Any]:
        return [f.codec for f in self.fields]

    @abstractmethod
    def in_blocks(self, state: TableState, since: int, files: OpenFiles) -> Holders:
        """Yield live holders in blocks physically written after ``since``."""

    def _scanned(self, state: TableState, blocks: Iterable[BlockRecord], files: OpenFiles) -> Holders:
        """Read the given blocks, and yield the holders in rows committed after ``self.since``."""
        from indexlake.scan.execute import read_task
        from indexlake.scan.plan import block_task

        codecs, among = self.codecs, self._among(files)
        for block in blocks:
            task = block_task(state, block, state.at)
            for batch in read_task(task, files, self.fields, None, row_id=True, version=True):
                sought = batch.column(VERSION).to_numpy() > self.since
                for n in range(len(codecs)):
                    sought &= np.asarray(batch.column(n).is_valid())
                if not sought.any():
                    continue
                rows = batch if sought.all() else keep(batch, pa.array(sought))
                keys = KeyColumn.from_arrays(codecs, rows.columns[: len(codecs)])
                here = np.flatnonzero(among(keys))
                positions = state.addresses(block, files).positions_of(rows.column(ROW_ID).to_numpy()[here])
                yield block, positions.tolist(), keys.take(here)

    def _among(self, files: OpenFiles) -> Callable[[KeyColumn], npt.NDArray[np.bool_]]:
        """Return a function that tells which of some keys are wanted."""
        assert self.keys is not None
        return KeySet(self.keys).mask

    def held(self, rows: list[HotRow], state: TableState, files: OpenFiles) -> list[HotRow]:
        """Return those of the hot rows that have one of the values."""
        return rows

    def taken(self, writes: TableWrites, values: Sequence[Any]) -> IndexLakeError:
        """Return the error for values that a live row has: a conflict if an upsert or merge found them absent."""
        assert self.index is not None
        key = encode_key(self.codecs, values)
        if not self.index.is_primary or not any(key in KeySet(column) for column in writes.claimed):
            return duplicate(writes.state, self.index, values, twice=False)
        name = writes.state.table.full_name
        return ConflictError(
            f"Another commit has added a row to {name!r} whose key this one wanted to add, after it read the table. "
            "Run it again; lake.run does so by itself.",
            table=name,
        )


class NewKeys(Wanted):
    """Keys of buffered rows and of own blocks."""

    __slots__ = ()

    def in_blocks(self, state: TableState, since: int, files: OpenFiles) -> Holders:
        """Yield holders in older blocks too: finding those again costs less than excluding them."""
        assert self.keys is not None
        assert self.index is not None
        coverage = state.indexes[self.index.index_id]
        if len(self.keys) == 1:
            for block, position in coverage.find(self.keys[0], state, state.at, files):
                yield block, (position,), self.keys
        else:
            for block, indices, positions in coverage.find_many(self.keys, state, state.at, files):
                yield block, positions.tolist(), self.keys.take(indices)
        if coverage.gaps:
            yield from self._scanned(state, _uncovered(state, coverage), files)


class MergeValues(Wanted):
    """Values that a merge found in no row: only versions committed after it read the table can have them."""

    __slots__ = ()

    def in_blocks(self, state: TableState, since: int, files: OpenFiles) -> Holders:
        newer = (
            block
            for block in state.blocks.records
            if block.role != "history"
            and block.changed_in > since
            and block.max_snapshot > self.since
            and block.visible_at(state.at)
        )
        return self._scanned(state, newer, files)

    def taken(self, writes: TableWrites, values: Sequence[Any]) -> IndexLakeError:
        name = writes.state.table.full_name
        return ConflictError(
            f"Another commit has added rows to {name!r} that this merge would have matched, after it read the table. "
            "Run it again; lake.run does so by itself.",
            table=name,
        )


class LoadedKeys(Wanted):
    """Keys of blocks that a load has written, compared through the segments of those blocks."""

    __slots__ = ("_blocks", "_probe")

    def __init__(self, index: Index, fields: tuple[Field, ...], blocks: Sequence[NewBlock], probe: Probe) -> None:
        super().__init__(index, fields, None)
        self._blocks = tuple(blocks)
        self._probe = probe

    def in_blocks(self, state: TableState, since: int, files: OpenFiles) -> Holders:
        for file_id, position, key in self._probe(state, self._blocks, since):
            block = state.blocks.record(file_id)
            assert block is not None
            yield block, (position,), (key,)
        assert self.index is not None
        uncovered = _uncovered(state, state.indexes[self.index.index_id])
        yield from self._scanned(state, (b for b in uncovered if b.changed_in > since), files)

    def _among(self, files: OpenFiles) -> Callable[[KeyColumn], npt.NDArray[np.bool_]]:
        assert self.index is not None
        index = self.index
        segments = [s for b in self._blocks if (s := b.segment(index.index_id)) is not None]

        def among(keys: KeyColumn) -> npt.NDArray[np.bool_]:
            held = np.zeros(len(keys), np.bool_)
            if len(keys):
                ordered = keys.take(keys.argsort())
                low, high = key_to_bytes(ordered[0]), key_to_bytes(ordered[len(ordered) - 1])
                for segment in segments:
                    if segment.min_key <= high and low <= segment.max_key:
                        held[files.segment(segment, index.open).find_many(keys)[0]] = True
            return held

        return among

    def held(self, rows: list[HotRow], state: TableState, files: OpenFiles) -> list[HotRow]:
        keyed = [row for row in rows if None not in row.values]
        codecs = self.codecs
        keys = KeyColumn.from_keys([encode_key(codecs, row.values) for row in keyed], ints=are_ints(codecs))
        return [keyed[n] for n in np.flatnonzero(self._among(files)(keys)).tolist()]


def _uncovered(state: TableState, coverage: Coverage) -> Iterator[BlockRecord]:
    """Return the live blocks that an index does not cover."""
    found = map(state.blocks.record, coverage.gaps)
    return (block for block in found if block is not None and block.visible_at(state.at))


def new_keys(writes: TableWrites, coverage: Coverage, files: OpenFiles) -> NewKeys | None:
    """Return the keys of a unique index that must be absent; raise if the write-set itself repeats a key.

    Rows with a null in their key have no key. For the primary key, rows that keep their old key are left out.
    """
    index, schema = coverage.index, writes.state.current
    is_primary = index.is_primary
    unkeyed = writes.unkeyed if is_primary else set()
    if unkeyed and not writes.blocks and unkeyed.issuperset(writes.rows):
        return None
    fields, codecs, places = parts_of_key = key_parts(index, schema)
    if not writes.blocks and len(writes.rows) < MANY:
        return _few_new_keys(writes, index, parts_of_key, unkeyed)
    index_id = index.index_id
    blocks = [] if index_id in writes.loaded_for else writes.own_live_blocks()
    keyed, columns = list(writes.rows), [[row[p] for row in writes.rows.values()] for p in places]
    if any(None in column for column in columns):
        whole = [n for n, key in enumerate(zip(*columns, strict=True)) if None not in key]
        keyed, columns = [keyed[n] for n in whole], [[column[n] for n in whole] for column in columns]
    if not blocks and not keyed:
        return None
    known = is_primary and all(b.keys_known for b in blocks)
    if known and all(row_id in unkeyed for row_id in keyed):
        return None
    parts, needed = [], []
    if keyed:
        arrays = [codec.decode(column) for codec, column in zip(codecs, columns, strict=True)]
        parts.append(keys := KeyColumn.from_arrays(codecs, arrays))
        if (again := keys.first_duplicate()) is not None:
            raise duplicate(writes.state, index, [column[again] for column in columns], twice=True)
        new = [n for n, row_id in enumerate(keyed) if row_id not in unkeyed] if unkeyed else []
        needed.append(parts[0].take(np.array(new, np.int64)) if unkeyed else parts[0])
    for block in blocks:
        live, _ = keys_of_block(block, index, schema, files)
        parts.append(live)
        if not (is_primary and block.keys_known):
            needed.append(live)
    together = KeyColumn.concat(parts) if len(parts) > 1 else parts[0]
    if blocks and (again := together.first_duplicate()) is not None:
        raise duplicate(writes.state, index, decode_key(codecs, together[again]), twice=True)
    return NewKeys(index, fields, KeyColumn.concat(needed) if len(needed) > 1 else needed[0])


def _few_new_keys(writes: TableWrites, index: Index, parts: KeyParts, unkeyed: set[int]) -> NewKeys | None:
    keys: set[Key] = set()
    new: list[Key] = []
    for row_id, key in parts.of_rows(writes.rows.items()):
        if key in keys:
            raise duplicate(writes.state, index, decode_key(parts.codecs, key), twice=True)
        keys.add(key)
        if row_id not in unkeyed:
            new.append(key)
    return NewKeys(index, parts.fields, FewKeys(new)) if new else None


class KeyParts(NamedTuple):
    """The fields of an index's key, and where their values are in a row."""

    fields: tuple[Field, ...]
    codecs: Sequence[Codec]
    places: Sequence[int]

    def of_rows(self, rows: Iterable[tuple[int, Values]]) -> Iterator[tuple[int, Key]]:
        """Yield row ids and keys, without the rows that have a null in their key."""
        for row_id, values in rows:
            parts = [values[place] for place in self.places]
            if None not in parts:
                yield row_id, encode_key(self.codecs, parts)


def key_parts(index: Index, schema: TableSchema) -> KeyParts:
    if index.is_primary:
        return KeyParts(schema.key_fields, schema.key_codecs, schema.key_places)
    fields = index.fields(schema)
    return KeyParts(fields, tuple(f.codec for f in fields), tuple(schema.fields.index(f) for f in fields))


def keys_of_block(
    block: NewBlock, index: Index, schema: TableSchema, files: OpenFiles
) -> tuple[KeyColumn, npt.NDArray[np.int64]]:
    """Return keys and positions of the rows in an own block that were not taken back."""
    known = block.keys.get(index.index_id)
    live, positions = known if known is not None else _derived(block, key_parts(index, schema).fields, schema, files)
    if block.dead:
        kept = np.flatnonzero(~is_among(positions, block.dead))
        live, positions = live.take(kept), positions[kept]
    return live, positions


def _derived(
    block: NewBlock, fields: Sequence[Field], schema: TableSchema, files: OpenFiles
) -> tuple[KeyColumn, npt.NDArray[np.int64]]:
    """Return keys and positions in an own block that was written before its index was published."""
    file = block.file
    reader = files.reader_of(file.path, block.format, file.size, file.checksum, schema.file)
    rows = pa.Table.from_batches(reader.read([f.column for f in fields])).combine_chunks()
    valid = np.ones(rows.num_rows, np.bool_)
    for column in rows.columns:
        valid &= np.asarray(column.is_valid())
    positions = np.flatnonzero(valid).astype(np.int64)
    kept = rows if valid.all() else rows.take(pa.array(positions))
    return KeyColumn.from_arrays([f.codec for f in fields], kept.columns), positions


def are_ints(codecs: Sequence[Any]) -> bool:
    """Return whether a key of these fields is a single integer."""
    return len(codecs) == 1 and codecs[0].kind == "int"


def duplicate(state: TableState, index: Index, encoded: Sequence[Any], *, twice: bool) -> DuplicateKeyError:
    """Return the error for a key that is in the table or, if ``twice``, repeated among the rows to add."""
    fields = index.fields(state.current)
    values = tuple(f.codec.show_one(v) for f, v in zip(fields, encoded, strict=True))
    shown = values[0] if len(values) == 1 else values
    columns = ", ".join(f.name for f in fields)
    name = state.table.full_name
    what = f"Primary key {columns}" if index.is_primary else f"Key {columns} of unique index {index.name!r}:"
    said = f"{what} = {short(shown)}" if index.is_primary else f"{what} {short(shown)}"
    return DuplicateKeyError(
        f"{said} is given twice: two of the rows for table {name!r} have it. Keep only one."
        if twice
        else f"{said} already exists in table {name!r}. "
        + (
            "Use update or upsert to change the existing row."
            if index.is_primary
            else "Change or remove that row first."
        ),
        table=name,
        key=shown,
        index=index.name,
    )
