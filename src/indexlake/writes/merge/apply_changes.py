"""``apply_changes``: the changes that another table went through happen to this one, in one commit.

Of all changes to a primary key the last one counts: an inserted or updated row replaces what is there or is added, a
deleted one is removed if it is there.  So applying the same changes twice does no harm, and it does not matter whether
they come from ``t.changes`` or from another system, in order or with a column that tells the order.  Memory holds the
keys and a few bytes for each change; the rows are in a temporary file if they are large.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexlake.arrow import kernels as pc
from indexlake.errors import ConstraintError, SchemaError
from indexlake.indexes.key_set import KeySet
from indexlake.indexes.keys import KeyColumn
from indexlake.schema import ROW_ID, TableSchema
from indexlake.schema.change_columns import CHANGE_TYPE, DELETE, INSERT, SNAPSHOT_ID, UPDATE_POSTIMAGE, UPDATE_PREIMAGE
from indexlake.schema.fitting import fit
from indexlake.storage.spill import Spill
from indexlake.types import codec_of
from indexlake.types.selection import take
from indexlake.writes.merge.clauses import Clause, source_column
from indexlake.writes.merge.keys import SourceKeys
from indexlake.writes.merge.on import On, bind_on
from indexlake.writes.merge.run import MergeRun
from indexlake.writes.merge.source import Source, SourceBuilder, empty, take_source
from indexlake.writes.merge.upsert import UPSERT, check_has_key, conform_given

if TYPE_CHECKING:
    from indexlake.table import Table
    from indexlake.transaction import Transaction

_TYPES = pa.array([DELETE, UPDATE_PREIMAGE, INSERT, UPDATE_POSTIMAGE])
_BEGINS = 2
"""The first of the types after which the row is there."""

_DELETE = (Clause("matched", "delete"),)


class ApplyChanges:
    """One statement; the changes are read once, however often it has to be run."""

    def __init__(self, table: Table, changes: Any, sequence_by: str | None, *, upsert: bool = False) -> None:
        """``upsert``: no change says that a row is gone, and they need not say anything."""
        self._table = table
        self._changes = changes
        self._sequence_by = sequence_by
        self._write = "upsert" if upsert else "apply_changes"
        self._left: tuple[Source, Source] | None = None  # the rows that are there in the end, the keys that are not

    def __call__(self, tx: Transaction) -> int:
        """Fill the write-set, and return how many rows are changed."""
        table_id = self._table._table_id
        if self._left is None:  # first, because the changes may come from arbitrary code that runs long
            self._left = self._net()
        if not any(map(len, self._left)):
            return 0
        with tx.reading(table_id) as reading:
            schema = reading.schema
        on = On(tuple((f, f.name) for f in schema.key_fields), None)
        edits = [
            MergeRun(tx, table_id, source, on, clauses).edit
            for source, clauses in zip(self._left, (UPSERT, _DELETE), strict=True)
        ]
        return sum(edit.apply() for edit in edits)

    def _net(self) -> tuple[Source, Source]:
        table = self._table
        schema, spill = table._schema_now(), table._lake.storage.spill
        check_has_key(schema, table.name, self._write)
        source = take_source(self._changes, schema, spill)
        if not len(source):
            return source, source
        order_by = self._sequence_by or (SNAPSHOT_ID if _has(source, SNAPSHOT_ID) else None)
        order_by = None if order_by is None else source_column(order_by, source.schema)
        kinds = np.full(len(source), _BEGINS, np.int8) if self._write == "upsert" else _kinds(source)
        last = _last_of_each_key(source, schema, kinds, order_by)
        apart = {CHANGE_TYPE, SNAPSHOT_ID, ROW_ID, *([order_by.lower()] if order_by is not None else [])}
        apart -= {f.name.lower() for f in schema.fields}  # a column that the table has as well is copied
        apart |= {f.name.lower() for f in schema.fields if f.generated is not None}
        names = [name for name in source.schema.names if name.lower() not in apart]
        keys = [name for name in names if name.lower() in {f.name.lower() for f in schema.key_fields}]
        begins = kinds[last] >= _BEGINS
        return (
            _kept(source, last[begins], names, schema, spill, self._write),
            _kept(source, last[~begins], keys, schema, spill, self._write),
        )


def _has(source: Source, name: str) -> bool:
    return name in {column.lower() for column in source.schema.names}


def _kinds(source: Source) -> npt.NDArray[np.int8]:
    """Return the type of each change, as its place among the known types."""
    if not _has(source, CHANGE_TYPE):
        raise SchemaError(
            f"apply_changes needs a column {CHANGE_TYPE!r} that says of each row whether it was inserted, updated "
            f"or deleted, as t.changes(…) gives it: {', '.join(map(repr, _TYPES.to_pylist()))}.",
            column=CHANGE_TYPE,
        )
    column = source_column(CHANGE_TYPE, source.schema)
    parts = [np.zeros(0, np.int8)]
    for _, batch in source.batches([column]):
        given = batch.column(0)
        places = pc.index_in(given.cast(pa.string()), _TYPES)
        if places.null_count:
            wrong = given.filter(pc.is_null(places))[0].as_py()
            raise ConstraintError(
                f"{CHANGE_TYPE!r} is one of {', '.join(map(repr, _TYPES.to_pylist()))}, not {wrong!r}.",
                column=CHANGE_TYPE,
            )
        parts.append(np.asarray(places).astype(np.int8))
    return np.concatenate(parts)


def _last_of_each_key(
    source: Source, schema: TableSchema, kinds: npt.NDArray[np.int8], order_by: str | None
) -> npt.NDArray[np.int64]:
    """Return the number of the last change to each key, in the order of the source."""
    on = bind_on([f.name for f in schema.key_fields], schema, source.schema, None)
    keys = SourceKeys(source, on).column
    if len(keys) < len(source):
        for _, batch in source.batches([column for _, column in on.pairs]):
            for (f, _), array in zip(on.pairs, batch.columns, strict=True):
                fit(array, f)  # refuses a value that the column cannot hold
        raise ConstraintError("Every row needs its primary key; one of them is null.")
    turn = np.arange(len(source))
    if order_by is not None:
        ranks = _ranks(source, order_by)
        # Within one commit of a table, what ends comes before what begins.
        begins = kinds >= _BEGINS if order_by.lower() == SNAPSHOT_ID else np.zeros(len(source), np.bool_)
        turn = np.lexsort((begins, ranks))
    found = KeySet(keys.take(turn))
    return np.sort(turn[found.order[found.starts[1:] - 1]])


def _ranks(source: Source, column: str) -> npt.NDArray[np.int64]:
    """Return the rank of each row's value in a column that tells the order, which is that of a key."""
    parts: list[KeyColumn] = []
    field = source.schema.field(column)
    for _, batch in source.batches([column]):
        if batch.column(0).null_count:
            raise ConstraintError(
                f"The column {column!r} tells the order of changes; it must not be null.", column=column
            )
        codec = codec_of(field)
        if not codec.ordered:
            raise SchemaError(
                f"The column {column!r} of type {field.type} has no order, so it cannot tell that of changes.",
                column=column,
            )
        parts.append(KeyColumn.from_arrays([codec], [batch.column(0)]))
    found = KeySet(KeyColumn.concat(parts))
    ranks = np.empty(len(source), np.int64)
    ranks[found.order] = np.repeat(np.arange(len(found)), np.diff(found.starts))
    return ranks


def _kept(
    source: Source, rows: npt.NDArray[np.int64], names: Sequence[str], schema: TableSchema, spill: Spill, write: str
) -> Source:
    """Return some rows of a source with some of its columns, in the types of the table."""
    shape = pa.schema([source.schema.field(name) for name in names])
    builder = SourceBuilder(conform_given(empty(shape), schema, write).schema, spill)
    for start, batch in source.batches(names):
        low, high = np.searchsorted(rows, (start, start + batch.num_rows))
        if high > low:
            some = take(batch, pa.array(rows[low:high] - start))
            builder.add(conform_given(some, schema, write))
    return builder.finish()
