"""What searches of the same form share, whatever they look for: their indexes, the columns to read and those to show.

It depends only on the table's state and the snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from indexlake.catalog.index_definitions import no_index
from indexlake.errors import ExpressionError, SchemaError
from indexlake.indexes.registry import kind_if_known, kind_named
from indexlake.schema import ROW_ID, Field
from indexlake.types.python_rows import is_exact

if TYPE_CHECKING:
    from indexlake.indexes.coverage import Coverage
    from indexlake.indexes.kind import IndexKind
    from indexlake.schema import TableSchema
    from indexlake.snapshots.reading import Reading

SCORE, SNIPPET = "_score", "_snippet"


class Shape(NamedTuple):
    """The indexes with their key columns, the columns to read (``given`` of them are returned), the result's schema."""

    indexes: Sequence[Coverage]
    kinds: Sequence[IndexKind]
    keys: Sequence[Sequence[Field]]
    read: Sequence[Field]
    given: int
    row_id: bool
    shown: pa.Schema
    exact: Sequence[Field]  # the columns to read that Python values reproduce, except for NaN


Form = tuple[int, tuple[str, ...], tuple[str, ...] | None, bool]
"""The table, the names of the indexes or columns, the requested columns, and whether snippets are shown."""


def shape_of(reading: Reading, table: str, form: Form) -> Shape:
    """Return the shape of a search of the table with this name."""
    schema = reading.schema
    _, names, columns, snippet = form
    indexes = [index_for(reading, name, table) for name in names]
    kinds = [kind_named(c.index.kind) for c in indexes]
    measure = SCORE if len(indexes) > 1 else kinds[0].measure
    assert measure is not None
    added = [measure, SNIPPET] if snippet else [measure]
    fields = _fields(schema, columns, added)
    row_id = columns is not None and ROW_ID in map(str.lower, columns)
    shown = [f.arrow() for f in fields]
    if row_id:
        shown.append(pa.field(ROW_ID, pa.int64(), False))
    shown.append(pa.field(measure, pa.float64(), False))
    if snippet:
        shown.append(pa.field(SNIPPET, pa.string()))
    read = [*fields, _text_field(indexes, schema)] if snippet else fields
    keys = [c.index.fields(schema) for c in indexes]
    exact = [f for f in read if is_exact(f.type)]
    return Shape(indexes, kinds, keys, read, len(fields), row_id, pa.schema(shown), exact)


def _fields(schema: TableSchema, columns: Sequence[str] | None, added: Sequence[str]) -> list[Field]:
    """Return the table columns that are in the result."""
    names = schema.names
    if columns is not None:
        names = tuple(c for c in columns if c.lower() not in (ROW_ID, *added))
    fields = list(schema.project(names))
    if len({f.name for f in fields}) < len(fields):
        raise SchemaError("columns names a column twice.")
    for f in fields:
        if f.name.lower() in added:
            raise SchemaError(
                f"Column {f.name!r} has the name of a column that the search adds. Leave it out with columns=[…], "
                "or rename it.",
                column=f.name,
            )
    return fields


def _text_field(indexes: Sequence[Coverage], schema: TableSchema) -> Field:
    for coverage in indexes:
        if kind_named(coverage.index.kind).measure == SCORE:
            return coverage.index.fields(schema)[0]
    raise ExpressionError("snippet=True shows the text that was found: it needs a search by a bm25 index.")


def index_for(reading: Reading, name: str, table: str) -> Coverage:
    """Return the index of that name, or the one that searches the column of that name."""
    usable = [
        c
        for c in reading.state.indexes.values()
        if not c.index.is_primary and c.index.serves(reading.snapshot, reading.schema)
    ]
    # Indexes that existed at the snapshot come first: a newer one may have taken over the name.
    ranked = sorted(usable, key=lambda c: (c.index.begin_snapshot > reading.snapshot, -c.index.begin_snapshot))
    named = [c for c in ranked if c.index.name.lower() == name.lower()]
    for coverage in named:
        if _searches(coverage, unknown=True):
            return coverage
    live = [c for c in usable if c.index.end_snapshot is None]
    column = reading.schema.by_name.get(name.lower())
    searching = [
        c
        for c in ranked
        if column is not None and column in c.index.fields(reading.schema) and _searches(c, unknown=False)
    ]
    on = [c for c in searching if c.index.begin_snapshot <= reading.snapshot] or [c for c in searching if c in live]
    if len(on) == 1:
        return on[0]
    if on:
        names = ", ".join(repr(c.index.name) for c in on)
        raise ExpressionError(f"Column {name!r} of table {table!r} has several indexes to search: name one of {names}.")
    if column is not None:
        raise ExpressionError(
            f"Column {column.name!r} of table {table!r} has no index to search. Create one, for text for example: "
            f't.create_index("{column.name}_text", "{column.name}", kind="bm25").'
        )
    if named:
        raise ExpressionError(
            f"Index {named[0].index.name!r} of table {table!r} is of kind {named[0].index.kind!r}, which where=… uses. "
            "Search by an index of kind 'bm25', 'hnsw' or 'rtree', or by a column that has one."
        )
    raise no_index(table, name, [c.index.name for c in live])


def _searches(coverage: Coverage, *, unknown: bool) -> bool:
    """Return whether indexes of this kind answer searches; ``unknown`` if the kind's package is missing."""
    kind = kind_if_known(coverage.index.kind)
    return unknown if kind is None else kind.measure is not None
