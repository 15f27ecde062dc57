"""Checking and encoding primary keys as callers pass them, and looking up the rows of many keys.

Many keys are looked up with one plan, made in one read transaction, at a cost that depends on the number of keys: hot
rows are found through the database's index on the key, rows in blocks through the key segments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indexlake.errors import ConstraintError, SchemaError
from indexlake.expr.test import ALWAYS
from indexlake.indexes.key_set import KeySet
from indexlake.indexes.keys import KeyColumn, encode_key
from indexlake.scan.access import keys_test
from indexlake.scan.execute import pieces
from indexlake.scan.plan import ScanPlan, plan_keys
from indexlake.scan.point import mask_of
from indexlake.schema import TableSchema
from indexlake.types import SqlValue
from indexlake.types.selection import as_mask, keep

if TYPE_CHECKING:
    from indexlake.lake import Lake
    from indexlake.snapshots.reading import Reading

_PLAIN = frozenset({int, str})


def rows_by_keys(reading: Reading, lake: Lake, keys: Sequence[Sequence[SqlValue]]) -> Iterator[pa.RecordBatch]:
    """Yield the rows that have one of the keys, in no particular order.  Plans now, reads after the transaction."""
    schema = reading.schema
    codecs = schema.key_codecs
    encoded = [encode_key(codecs, key) for key in keys]
    wanted = KeySet(KeyColumn.from_keys(encoded, ints=len(codecs) == 1 and codecs[0].kind == "int"))
    test = ALWAYS if reading.newest else keys_test(schema, keys)
    return _rows(lake, plan_keys(reading, lake._files, wanted.keys, schema.fields, test), wanted)


def _rows(lake: Lake, plan: ScanPlan, keys: KeySet) -> Iterator[pa.RecordBatch]:
    with lake._pins.pin(plan.snapshot):
        for piece in pieces(plan, lake._files, lake._scan_threads, plan.schema.fields, row_id=False):
            mask = mask_of(keys, piece.batch, plan.schema)
            yield piece.batch if mask.all() else keep(piece.batch, as_mask(mask))


def encoded_key(schema: TableSchema, key: Any, table: str) -> list[SqlValue]:
    """Return the encoded key of one row.  ``table`` is the table's name, for error messages."""
    encoded = _encoded(schema, key, table)
    if None in encoded:
        name = schema.key_fields[encoded.index(None)].name
        raise ConstraintError(f"Primary key column {name!r} cannot be null.", column=name)
    return encoded


def encoded_keys(schema: TableSchema, keys: Any, table: str) -> list[list[SqlValue]]:
    """Return many encoded keys.  A key with a null matches no row and is left out."""
    _check_has_key(schema, table)
    if not isinstance(keys, list):
        raise ConstraintError(f"get_many takes a list of keys, not {keys!r}; for one key use get.")
    encoded = [_encoded(schema, key, table) for key in keys]
    return [key for key in encoded if None not in key]


def _encoded(schema: TableSchema, key: Any, table: str) -> list[SqlValue]:
    fields = schema.key_fields
    single = len(fields) == 1 and (type(key) in _PLAIN or not isinstance(key, Mapping))
    values = (key,) if single else _values(schema, key, table)
    encoded = []
    for place, codec in enumerate(schema.key_codecs):
        try:
            encoded.append(codec.encode_one(values[place]))
        except ConstraintError as error:
            name = fields[place].name
            raise ConstraintError(f"Primary key column {name!r}: {error}", column=name) from None
    return encoded


def _values(schema: TableSchema, key: Any, table: str) -> Sequence[Any]:
    _check_has_key(schema, table)
    names = [f.name for f in schema.key_fields]
    if isinstance(key, Mapping):
        folded = {str(name).lower(): value for name, value in key.items()}
        if set(folded) != {name.lower() for name in names}:
            raise ConstraintError(
                f"The primary key of {table!r} is ({', '.join(names)}); the key given names {', '.join(map(str, key))}."
            )
        return [folded[name.lower()] for name in names]
    if not isinstance(key, tuple | list) or len(key) != len(names):
        raise ConstraintError(
            f"The primary key of {table!r} is ({', '.join(names)}): give a tuple of {len(names)} values or a dict, "
            f"not {key!r}."
        )
    return key


def _check_has_key(schema: TableSchema, table: str) -> None:
    if not schema.primary_key:
        raise SchemaError(f"Table {table!r} has no primary key; use scan(where=…) to find rows.")
