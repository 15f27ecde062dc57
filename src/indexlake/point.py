"""Point reads: one row by primary key, without Arrow's fixed costs where it can be helped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from indexlake.blocks.block import BlockRecord
from indexlake.catalog import inline
from indexlake.catalog.driver import ReadTransaction
from indexlake.errors import ConstraintError
from indexlake.evolution.lineage import file_columns, file_value, file_values
from indexlake.keys.encoding import encode_key
from indexlake.python_rows import python_columns, python_rows
from indexlake.schema import VERSION, Field, TableSchema
from indexlake.state import TableState
from indexlake.types import SqlValue

if TYPE_CHECKING:
    from indexlake.blocks.formats import BlockReader
    from indexlake.blocks.open_files import OpenFiles
    from indexlake.commit.write_set import TableWrites

Row = dict[str, Any]


def read_by_key(
    files: OpenFiles,
    r: ReadTransaction,
    state: TableState,
    snapshot: int,
    key: list[SqlValue],
    writes: TableWrites | None,
) -> Row | Callable[[], Row | None] | None:
    """The row, None, or what is left to do once the read transaction has ended (files are read outside it)."""
    schema = state.current if snapshot == state.at else state.schema.at(snapshot)
    if writes is not None:
        found, decided = _own_row(files, state, writes, key)
        if decided:
            return found
    if writes is None or not writes.truncate:
        condition, values = inline.key_condition(schema.key_columns, schema.key_codecs, key)
        older = schema.inline if schema.evolved else None
        columns = schema.columns if older is None else older.columns
        for row in inline.rows_by_key(r, state.table.table_id, columns, condition, values):
            if inline.is_visible(row, snapshot, state.table) and (writes is None or row[1] not in writes.closed):
                return decoded(schema, row[3:] if older is None else older.row(row[0], row[3:]))
        return lambda: _from_blocks(files, state, schema, snapshot, key, writes)
    return None


def decoded(schema: TableSchema, values: tuple[SqlValue, ...]) -> Row:
    try:
        return {f.name: codec.decode_one(v) for f, codec, v in zip(schema.fields, schema.codecs, values, strict=True)}
    except ConstraintError:
        arrays = [codec.decode([v]) for codec, v in zip(schema.codecs, values, strict=True)]
        python_columns(pa.table(arrays, schema.names))  # names the column
        raise


def _own_row(files: OpenFiles, state: TableState, writes: TableWrites, key: list[SqlValue]) -> tuple[Row | None, bool]:
    """A row that the reading transaction itself has written."""
    schema = state.current
    wanted = encode_key(schema.key_codecs, key)
    values = writes.own_row(wanted)
    if values is not None:
        return decoded(schema, values), True
    for block in writes.own_live_blocks():
        assert block.keys is not None
        for position, own in enumerate(block.keys.to_list()):
            if own == wanted and position not in block.dead:
                reader = files.reader_of(
                    block.file.path, block.format, block.file.size, block.file.checksum, schema.file
                )
                return _named(schema, reader.row(position, schema.columns)), True
    return None, False


def _from_blocks(
    files: OpenFiles,
    state: TableState,
    schema: TableSchema,
    snapshot: int,
    key: list[SqlValue],
    writes: TableWrites | None,
) -> Row | None:
    wanted = encode_key(schema.key_codecs, key)
    for block, position in state.finder.find(wanted, state, snapshot, files):
        if writes is not None and state.row_ids(block).row_id_at(position) in writes.closed:
            continue
        row = read_row(files, state, schema, block, position, snapshot)
        if row is not None:
            return row
    if snapshot == state.at:
        return None
    return _from_history(files, state, schema, snapshot, key, writes)


def read_row(
    files: OpenFiles, state: TableState, schema: TableSchema, block: BlockRecord, position: int, snapshot: int
) -> Row | None:
    """One row of a block, or None when its version is younger than the snapshot."""
    in_file = state.schema.at(block.schema_snapshot)
    reader = files.reader(block, in_file.file)
    check = block.max_snapshot > snapshot
    same = in_file is schema
    columns: Sequence[str] = schema.columns if same else file_columns(schema.fields, in_file.by_id)
    try:
        row = reader.row(position, [*columns, VERSION] if check else columns)
    except (ConstraintError, OverflowError, ValueError):
        names = {f.column: f.name for f in in_file.fields}
        found = reader.take(np.array([position], np.uint64), list(columns))
        python_columns(found.rename_columns([names[c] for c in found.column_names]))  # names the column
        raise
    if check:
        version = row[VERSION]
        if (block.begin_snapshot if version is None else version) > snapshot:
            return None
    return _named(schema, row) if same else {f.name: file_value(f, row) for f in schema.fields}


def _named(schema: TableSchema, row: Row) -> Row:
    return dict(zip(schema.names, [row[c] for c in schema.columns], strict=True))


def older_values(
    reader: BlockReader, position: int, missing: Sequence[Field], in_file: TableSchema
) -> dict[str, pa.Array]:
    """The values, each an array of one, of columns that are younger than the file of a row."""
    columns = file_columns(missing, in_file.by_id)
    batch = pa.record_batch({})
    if columns:
        batch = reader.take(np.array([position], np.uint64), columns).combine_chunks().to_batches()[0]
    return {f.column: file_values(f, batch, 1) for f in missing}


def _from_history(
    files: OpenFiles,
    state: TableState,
    schema: TableSchema,
    snapshot: int,
    key: list[SqlValue],
    writes: TableWrites | None,
) -> Row | None:
    """A version that was superseded after the snapshot and moved to a history block since."""
    from indexlake.expr.test import All, ColumnTest
    from indexlake.scan.execute import read_task
    from indexlake.scan.plan import block_task
    from indexlake.schema import ROW_ID

    test = All(
        tuple(ColumnTest(f.column, "=", (f.codec.decode_one(v),)) for f, v in zip(schema.key_fields, key, strict=True))
    )
    wanted = encode_key(schema.key_codecs, key)
    for n in state.blocks.candidates(test, schema.column_codecs, snapshot):
        block = state.blocks.records[n]
        if block.role != "history":
            continue
        task = block_task(state, block, snapshot)
        for batch in read_task(task, files, schema.fields, None, row_id=True):
            keys = zip(*[f.codec.encode(batch.column(f.name)) for f in schema.key_fields], strict=True)
            for place, own in enumerate(keys):
                if encode_key(schema.key_codecs, list(own)) == wanted:
                    row = python_rows(batch.slice(place, 1))[0]
                    if writes is None or row[ROW_ID] not in writes.closed:
                        del row[ROW_ID]
                        return row
    return None
