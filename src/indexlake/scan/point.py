"""One row by its primary key: where it is, and what it holds.

The sources are asked in this order: the reading transaction's own rows, the hot store, blocks through their key
segments, and, at past snapshots, history blocks.  The first two are asked inside the read transaction and the others
after it, since files are read outside.  Reads decode the row that was found; writes close it.  Arrow's fixed cost per
call is avoided wherever possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.blocks.addresses import ranked
from indexlake.blocks.block import BlockRecord
from indexlake.errors import ConstraintError
from indexlake.expr.test import ColumnTest, conjuncts
from indexlake.hot.store import HotRow
from indexlake.indexes.key_set import KeySet
from indexlake.indexes.keys import Key, KeyColumn, encode_key
from indexlake.scan.access import ByStatistics, keys_test
from indexlake.scan.execute import read_task
from indexlake.scan.plan import block_task
from indexlake.schema import ROW_ID, VERSION, TableSchema
from indexlake.schema.fitting import Values
from indexlake.schema.lineage import file_columns, file_value, file_values
from indexlake.snapshots.state import TableState
from indexlake.types import SqlValue
from indexlake.types.python_rows import python_columns, python_rows
from indexlake.types.selection import as_mask, keep

if TYPE_CHECKING:
    from indexlake.blocks.formats import BlockReader
    from indexlake.blocks.open_files import OpenFiles
    from indexlake.commit.write_set import TableWrites
    from indexlake.expr import Bound
    from indexlake.snapshots.reading import Reading

Row = dict[str, Any]


class BlockRow(NamedTuple):
    """A row at a position of a block."""

    files: OpenFiles
    state: TableState
    block: BlockRecord
    position: int

    @property
    def row_id(self) -> int:
        if self.block.row_order == "row_id":
            return int(ranked(self.block.row_ids).row_id_at(self.position))
        return int(self._in_file()[1].row(self.position, (ROW_ID,))[ROW_ID])

    def _in_file(self) -> tuple[TableSchema, BlockReader]:
        in_file = self.state.schema.at(self.block.schema_snapshot)
        return in_file, self.files.reader(self.block, in_file.file)

    def read_begin(self) -> int:
        """Return the snapshot in which this version was committed."""
        version = self._in_file()[1].row(self.position, (VERSION,))[VERSION]
        return self.block.begin_snapshot if version is None else version

    def read(self) -> Row:
        schema = self.state.current
        in_file, reader = self._in_file()
        same = in_file is schema
        columns: Sequence[str] = schema.columns if same else file_columns(schema.fields, in_file.by_id)
        try:
            row = reader.row(self.position, columns)
        except (ConstraintError, OverflowError, ValueError):
            names = {f.column: f.name for f in in_file.fields}
            found = reader.take(np.array([self.position], np.uint64), list(columns))
            python_columns(found.rename_columns([names[c] for c in found.column_names]))  # names it
            raise
        return _named(schema, row) if same else {f.name: file_value(f, row) for f in schema.fields}

    def read_values(self) -> Values:
        """Return the encoded values in the order of the current fields."""
        schema = self.state.current
        in_file, reader = self._in_file()
        at = np.array([self.position], np.uint64)
        columns = schema.columns if in_file is schema else file_columns(schema.fields, in_file.by_id)
        younger = in_file is not schema and any(f.field_id not in in_file.by_id for f in schema.fields)
        if not younger and len(schema.plain_names) == len(schema):
            row = reader.row(self.position, columns)
            if all(value == value for value in row.values()):  # converting a NaN to Python may change its bits
                return tuple([codec.encode_one(row[c]) for c, codec in zip(schema.columns, schema.codecs, strict=True)])
        arrays = reader.take(at, columns).combine_chunks().to_batches()[0].columns if columns else []
        values = dict(zip(columns, arrays, strict=True))
        return tuple([f.codec.encode(file_values(f, values, 1))[0] for f in schema.fields])


LiveRow = HotRow | BlockRow
"""Where a committed row is.  Both classes have ``row_id``."""


def find_recent(reading: Reading, files: OpenFiles, key: Sequence[SqlValue]) -> HotRow | Row | None:
    """Find the row with that key among the transaction's own rows, returned decoded, and among the hot rows."""
    writes = reading.writes
    if writes is not None:
        own = _own_row(files, reading.state, writes, key)
        if own is not None or writes.truncate:
            return own
    hot = reading.hot.row(key)
    return hot if hot is None or writes is None or hot.row_id not in writes.closed else None


def find_in_blocks(reading: Reading, files: OpenFiles, key: Sequence[SqlValue]) -> BlockRow | Row | None:
    """Find the row with that key in blocks, if ``find_recent`` found none.  Rows of history blocks are decoded."""
    if reading.truncated:
        return None
    state, snapshot, writes = reading.state, reading.snapshot, reading.writes
    wanted = encode_key(state.current.key_codecs, key)
    assert state.primary is not None
    for block, position in state.primary.find(wanted, state, snapshot, files):
        row = BlockRow(files, state, block, position)
        if writes is not None and row.row_id in writes.closed:
            continue
        if block.max_snapshot <= snapshot or row.read_begin() <= snapshot:
            return row
    return None if reading.newest else _find_in_history(reading, files, key, wanted)


def read_row(schema: TableSchema, found: LiveRow | Row | None) -> Row | None:
    if isinstance(found, HotRow):
        return _decoded(schema, found.values)
    return found.read() if isinstance(found, BlockRow) else found


def read_values(found: LiveRow) -> Values:
    """Return the encoded values of a row."""
    return found.values if isinstance(found, HotRow) else found.read_values()


def key_in(predicate: Bound, schema: TableSchema) -> list[SqlValue] | None:
    """Return the encoded primary key that a matching row must have, if the predicate names exactly one; else None."""
    values = predicate.equal_to(schema.key_names)
    if values is None:
        named = {
            part.column: part.values[0]
            for part in conjuncts(predicate.test())
            if isinstance(part, ColumnTest) and part.op in ("=", "in") and len(part.values) == 1
        }
        values = [named.get(name) for name in schema.key_names]
    key: list[SqlValue] = []
    for value, codec in zip(values, schema.key_codecs):  # noqa: B905 (as many of both)
        if value is None:
            return None
        try:
            key.append(codec.encode_constant(value))
        except ConstraintError:
            return None
    return key or None


def _own_row(files: OpenFiles, state: TableState, writes: TableWrites, key: Sequence[SqlValue]) -> Row | None:
    schema = state.current
    wanted = encode_key(schema.key_codecs, key)
    values = writes.own_row(wanted)
    if values is not None:
        return _decoded(schema, values)
    assert state.primary is not None
    for block in writes.own_live_blocks():
        keys, positions = block.keys[state.primary.index.index_id]
        for position, own in zip(positions.tolist(), keys.to_list(), strict=True):
            if own == wanted and position not in block.dead:
                reader = files.reader_of(
                    block.file.path, block.format, block.file.size, block.file.checksum, schema.file
                )
                return _named(schema, reader.row(position, schema.columns))
    return None


def _find_in_history(reading: Reading, files: OpenFiles, key: Sequence[SqlValue], wanted: Key) -> Row | None:
    """Find a version that was superseded after the snapshot and has since moved to a history block."""
    schema, state, writes = reading.schema, reading.state, reading.writes
    keys = KeySet(KeyColumn.from_keys([wanted], ints=isinstance(wanted, int)))
    for block in ByStatistics(reading, keys_test(schema, [key])):
        if block.role != "history":
            continue
        for batch in read_task(block_task(state, block, reading.snapshot), files, schema.fields, None, row_id=True):
            for row in python_rows(keep(batch, as_mask(mask_of(keys, batch, schema)))):
                if row.pop(ROW_ID) not in (() if writes is None else writes.closed):
                    return row
    return None


def mask_of(keys: KeySet, batch: pa.RecordBatch, schema: TableSchema) -> npt.NDArray[np.bool_]:
    """Return which rows have one of the keys.  Keys are compared encoded: NaN equals itself, and -0.0 equals 0.0."""
    columns = [batch.column(f.name) for f in schema.key_fields]
    return keys.mask(KeyColumn.from_arrays(schema.key_codecs, columns))


def _decoded(schema: TableSchema, values: Values) -> Row:
    try:
        return {name: decode(values[place]) for place, (name, decode) in enumerate(schema.decoders)}
    except ConstraintError:
        arrays = [codec.decode([v]) for codec, v in zip(schema.codecs, values, strict=True)]
        python_columns(pa.table(arrays, schema.names))  # raises an error that names the column
        raise


def _named(schema: TableSchema, row: Row) -> Row:
    return dict(zip(schema.names, [row[c] for c in schema.columns], strict=True))
