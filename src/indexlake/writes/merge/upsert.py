"""``upsert``: rows replace those with the same primary key, or are added.

Only the given columns change; a new row takes defaults for the others. One or a few dicts are handled like a point
change: each row is found by its key and encoded in Python. Anything else is a merge on the primary key, in bounded
memory; if all columns are given, old rows are not read at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indexlake.arrow.batch_size import python_bytes, row_chunks
from indexlake.display import short
from indexlake.errors import ConstraintError, DuplicateKeyError, SchemaError
from indexlake.indexes.keys import Key, KeyColumn, decode_key, encode_key
from indexlake.scan.point import LiveRow, find_in_blocks, find_recent, read_values
from indexlake.schema import TableSchema
from indexlake.schema.fitting import Values, fit, null_error
from indexlake.snapshots.state import TableState
from indexlake.sources.rows import as_row
from indexlake.sources.rules import completed_row, default_encoded
from indexlake.storage.spill import Spill
from indexlake.types import SqlValue, holds_null
from indexlake.writes.edit import Edit
from indexlake.writes.merge.clauses import Clause
from indexlake.writes.merge.keys import SourceKeys
from indexlake.writes.merge.on import On
from indexlake.writes.merge.run import MergeRun
from indexlake.writes.merge.source import Source, SourceBuilder, dict_batch, take_source

if TYPE_CHECKING:
    from indexlake.table import Table
    from indexlake.transaction import Transaction

FEW = 64
"""Up to this many dicts are looked up one by one."""

_DICTS = 10_000
UPSERT = (Clause("matched", "update"), Clause("not matched", "insert"))


class Upsert:
    """One statement; its rows are read once, however often it has to be run."""

    def __init__(self, table: Table, rows: Any) -> None:
        self._table = table
        self._table_id = table._table_id
        self._few = _few_dicts(rows)
        self._rows = rows
        self._sources: list[Source] | None = None

    def __call__(self, tx: Transaction) -> int:
        """Fill the write-set, and return how many rows are changed."""
        if self._few is not None and tx.own_writes(self._table_id) is None:
            done = _upsert_few(tx, self._table_id, self._few)
            if done is not None:
                return done
        if self._sources is None:  # first, because the rows may come from arbitrary code that runs long
            schema = self._table._schema_now()
            check_has_key(schema, self._table.name)
            self._sources = _take_sources(self._rows, schema, self._table._lake.storage.spill)
        with tx.reading(self._table_id) as reading:
            state, schema = reading.state, reading.schema
        on = On(tuple((f, f.name) for f in schema.key_fields), None)
        keys = [SourceKeys(source, on) for source in self._sources]
        _check_distinct(state, keys)
        edits = [
            MergeRun(tx, self._table_id, source, on, UPSERT, found).edit
            for source, found in zip(self._sources, keys, strict=True)
        ]
        return sum(edit.apply() for edit in edits)


def _few_dicts(rows: Any) -> list[Mapping[str, Any]] | None:
    if isinstance(rows, Mapping):
        return [rows]
    if isinstance(rows, list | tuple) and len(rows) <= FEW and all(isinstance(row, Mapping) for row in rows):
        return list(rows)
    return None


# ---------------------------------------------------------------- many rows


def _take_sources(rows: Any, schema: TableSchema, spill: Spill) -> list[Source]:
    """Read the rows once, into one source for each set of columns, since dicts need not all name the same."""
    rows = [rows] if isinstance(rows, Mapping) else rows
    if isinstance(rows, Iterator) or (isinstance(rows, list | tuple) and rows and isinstance(rows[0], Mapping)):
        items = iter(rows)
        first = next(items, None)
        rows = [] if first is None else chain([first], items)
        if isinstance(first, Mapping):
            return _take_dicts(rows, schema, spill)
    return [take_source(rows, schema, spill, lambda batch: conform_given(batch, schema))]


def _take_dicts(rows: Iterable[Any], schema: TableSchema, spill: Spill) -> list[Source]:
    builders: dict[frozenset[str], tuple[pa.Schema, SourceBuilder]] = {}
    for chunk in row_chunks(map(as_row, rows), _DICTS, python_bytes):
        by_columns: dict[frozenset[str], list[Mapping[str, Any]]] = {}
        for row in chunk:
            by_columns.setdefault(frozenset(row), []).append(row)
        for names, some in by_columns.items():
            if names not in builders:
                shape = pa.schema([schema.field(name).arrow().with_name(name).with_nullable(True) for name in names])
                builders[names] = shape, SourceBuilder(conform_given(dict_batch([], shape), schema).schema, spill)
            shape, builder = builders[names]
            builder.add(conform_given(dict_batch(some, shape), schema))
    return [builder.finish() for _, builder in builders.values()]


def conform_given(batch: pa.RecordBatch, schema: TableSchema, write: str = "upsert") -> pa.RecordBatch:
    """Return the columns with the table's names and types; refuse columns that the table does not have."""
    given: dict[str, pa.Array] = {}
    for array, name in zip(batch.columns, batch.schema.names, strict=True):
        f = schema.field(name)
        if f.name in given:
            raise SchemaError(f"Column {f.name!r} is given twice.", column=f.name)
        given[f.name] = fit(array, f)
        if not f.nullable and holds_null(array):
            raise null_error(f.name, given=True)
    _check_key_given(set(given), schema, write)
    fields = [schema.field(name).arrow().with_nullable(True) for name in given]
    return pa.RecordBatch.from_arrays(list(given.values()), schema=pa.schema(fields))


def check_has_key(schema: TableSchema, name: str, write: str = "upsert") -> None:
    if not schema.primary_key:
        raise SchemaError(
            f"Table {name!r} has no primary key, so {write} cannot tell which rows are the same. "
            "Use merge(…, on=…), or insert."
        )


def _check_key_given(names: Set[str], schema: TableSchema, write: str = "upsert") -> None:
    for f in schema.key_fields:
        if f.name not in names:
            raise ConstraintError(
                f"{write} needs the primary key of every row: column {f.name!r} is missing.", column=f.name
            )


def _check_distinct(state: TableState, keys: list[SourceKeys]) -> None:
    """Refuse repeated keys, since it would be unclear which of the rows wins."""
    column = KeyColumn.concat([found.column for found in keys]) if len(keys) > 1 else keys[0].column
    again = column.first_duplicate() if len(keys) > 1 or len(keys[0].set) < len(column) else None
    if again is not None:
        raise _repeated_key(state, decode_key(state.current.key_codecs, column[again]))


def _repeated_key(state: TableState, encoded: Sequence[SqlValue]) -> DuplicateKeyError:
    schema = state.current
    values = tuple(codec.show_one(v) for codec, v in zip(schema.key_codecs, encoded, strict=True))
    shown = values[0] if len(values) == 1 else values
    return DuplicateKeyError(
        f"Primary key {', '.join(f.name for f in schema.key_fields)} = {short(shown)} is given twice in the rows to "
        f"upsert into {state.table.full_name!r}. Keep only one of them.",
        table=state.table.full_name,
        key=shown,
    )


# ---------------------------------------------------------------- one or a few dicts


def _upsert_few(tx: Transaction, table_id: int, rows: list[Mapping[str, Any]]) -> int | None:
    """Upsert a few rows by key; return None if the general path has to do it."""
    files = tx._lake._files
    with tx.reading(table_id) as reading:
        state = reading.state
        check_has_key(state.current, state.table.full_name)
        if not reading.newest or len(rows) >= state.table.config.direct_write_row_count:
            return None
        given = [_encoded(tx, state, row) for row in rows]
        keys = [[values[p] for p in state.current.key_places] for values in given]
        recent = [find_recent(reading, files, key) for key in keys]
    wanted = [encode_key(state.current.key_codecs, key) for key in keys]
    seen: set[Key] = set()
    for number, key in zip(wanted, keys, strict=True):
        if number in seen:
            raise _repeated_key(state, key)
        seen.add(number)
    edit = Edit(tx, state)
    new: dict[Key, Values] = {}
    for values, key, number, found in zip(given, keys, wanted, recent, strict=True):
        row = found or find_in_blocks(reading, files, key)
        assert not isinstance(row, dict)  # neither the transaction's own nor of the past
        version = _version(state.current, values, row)
        if row is None:
            new[number] = version
        else:
            edit.update_row(row, version, same_key=True)
    if new:
        edit.insert_rows(list(new.values()))
        edit.claimed = KeyColumn.from_keys(list(new), ints=isinstance(wanted[0], int))
    return edit.apply()


def _encoded(tx: Transaction, state: TableState, row: Mapping[str, Any]) -> Mapping[int, SqlValue] | Values:
    """Return the encoded values that a dict gives, by the place of their column."""
    schema = state.current
    if len(row) == len(schema):
        return tx._lake._encoder(state).encode(row)
    given: dict[int, SqlValue] = {}
    for name, value in row.items():
        f = schema.field(name)
        place = schema.place_of[f.name]
        if place in given:
            raise SchemaError(f"Column {f.name!r} is given twice in one row.", column=f.name)
        try:
            given[place] = f.codec.encode_one(value)
        except ConstraintError as error:
            raise ConstraintError(f"Column {f.name!r}: {error}", column=f.name) from None
        if given[place] is None and not f.nullable and f.generated is None:
            raise null_error(f.name, given=True)
    _check_key_given({schema.fields[place].name for place in given}, schema)
    return given


def _version(schema: TableSchema, given: Mapping[int, SqlValue] | Values, row: LiveRow | None) -> Values:
    """Return the whole new row: the given values, and for the rest the row's old values or the defaults."""
    if isinstance(given, tuple):
        return completed_row(given, schema)
    if row is None:
        old = [None if n in given else default_encoded(f) for n, f in enumerate(schema.fields)]
    else:
        old = [None if f.generated is not None else v for f, v in zip(schema.fields, read_values(row), strict=True)]
    values = tuple(given.get(n, value) for n, value in enumerate(old))
    for f, value in zip(schema.fields, values, strict=True):
        if value is None and not f.nullable and f.generated is None:
            raise null_error(f.name, given=False)
    return completed_row(values, schema)
