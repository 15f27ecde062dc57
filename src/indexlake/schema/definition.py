"""The columns of a table to be created: turns what users give, checked by name, into fields."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from indexlake.errors import ConstraintError, SchemaError
from indexlake.schema.field_steps import value_from_json, value_to_json
from indexlake.schema.table_schema import RESERVED_PREFIX, Field, unknown_column
from indexlake.types import Codec, SqlValue, check_supported, codec_for, codec_of
from indexlake.types.names import as_type, is_type, meant_type

DEFAULT_BYTES = 16 << 10
"""The largest default allowed, as every row of a batch may have it."""


def as_schema(given: Any) -> pa.Schema | None:
    """Return a schema if one is given: an Arrow schema, or a dict of column names and types or names of types.

    A dict whose values are all strings is taken for a schema as well: a misspelt type must not become a row.
    """
    if isinstance(given, pa.Schema):
        return given
    if not isinstance(given, Mapping) or not given:
        return None
    no_values = [isinstance(value, pa.DataType) or callable(value) for value in given.values()]
    if not any(no_values) and not all(isinstance(value, str) for value in given.values()):
        return None  # a row
    for name, value in given.items():
        if not isinstance(name, str):
            raise SchemaError(f"Column names are strings, not {name!r}.")
        if not is_type(value):
            meant = meant_type(value)
            instead = f"; write {meant!r}" if meant else ""
            raise SchemaError(
                f"Column {name!r}: {_shown(value)} is not a type{instead}. A schema gives one for every column, as "
                "pyarrow names it: {'id': 'int64', 'city': 'string', 'at': 'timestamp[us]'}. If this is a row, put it "
                "in a list: [{'id': 1, 'city': 'Oslo'}].",
                column=name,
            )
    return pa.schema([(name, as_type(value)) for name, value in given.items()])


def _shown(value: Any) -> str:
    name = getattr(value, "__name__", None)
    return repr(value) if name is None else f"the {'class' if isinstance(value, type) else 'function'} {name}"


def check_columns(schema: pa.Schema, old: Collection[str] = ()) -> None:
    """Refuse schemas that no table can have, naming the column at fault.  ``old`` columns exist already."""
    if len(schema) == 0:
        raise SchemaError("A table needs at least one column.")
    seen: dict[str, str] = {}
    for f in schema:
        if not f.name or "\x00" in f.name:
            raise SchemaError(f"{f.name!r} is not a column name: it is empty or holds a NUL character.", column=f.name)
        if f.name.lower().startswith(RESERVED_PREFIX):
            raise SchemaError(
                f"Column {f.name!r}: names that begin with {RESERVED_PREFIX!r} are reserved. Rename the column.",
                column=f.name,
            )
        if f.name.lower() in seen:
            raise SchemaError(
                f"Columns {seen[f.name.lower()]!r} and {f.name!r} differ only in case. Rename one.",
                column=f.name,
            )
        seen[f.name.lower()] = f.name
        check_supported(f.type, f.name, old=f.name in old)


def check_primary_key(schema: pa.Schema, primary_key: Sequence[str]) -> list[str]:
    """Return the key's columns as the schema spells them."""
    names = {name.lower(): name for name in schema.names}
    key: list[str] = []
    for wanted in primary_key:
        name = names.get(wanted.lower()) if isinstance(wanted, str) else None
        if name is None:
            raise unknown_column(wanted, schema.names)
        if name in key:
            raise SchemaError(f"The primary key names column {name!r} twice.", column=name)
        if not codec_for(schema.field(name).type).ordered:
            raise SchemaError(
                f"Column {name!r} of type {schema.field(name).type} has no order, so it cannot be part of a "
                "primary key. Use a scalar column.",
                column=name,
            )
        key.append(name)
    return key


def encode_default(field_name: str, codec: Codec, value: Any) -> SqlValue:
    try:
        encoded = codec.encode_one(value)
    except ConstraintError as error:
        raise SchemaError(f"The default of column {field_name!r} does not fit: {error}", column=field_name) from None
    if isinstance(encoded, bytes) and len(encoded) > DEFAULT_BYTES:
        raise SchemaError(
            f"The default of column {field_name!r} takes {len(encoded):,} bytes; the limit is {DEFAULT_BYTES:,}. "
            "Give such values with the rows.",
            column=field_name,
        )
    return encoded


def default_to_text(value: SqlValue) -> str | None:
    return None if value is None else json.dumps(value_to_json(value))


def default_from_text(text: str | None) -> SqlValue:
    return None if text is None or text == "null" else value_from_json(json.loads(text))


def new_fields(
    schema: pa.Schema, primary_key: str | Sequence[str] | None, defaults: Mapping[str, Any]
) -> tuple[list[Field], list[int]]:
    """Return the checked columns of a table to be created, and the positions of its key columns."""
    check_columns(schema)
    if not isinstance(primary_key, str | list | tuple | None):
        raise SchemaError(f"primary_key is a column name or a list of them, not {primary_key!r}.")
    wanted = [primary_key] if isinstance(primary_key, str) else list(primary_key or ())
    key = check_primary_key(schema, wanted)
    folded = {name.lower(): value for name, value in defaults.items()}
    fields = []
    for n, f in enumerate(schema):
        default = None
        if f.name.lower() in folded:
            default = encode_default(f.name, codec_of(f), folded.pop(f.name.lower()))
        nullable = f.nullable and f.name not in key
        fields.append(Field(n, f.name, f.type, nullable, default, f.metadata))
    if folded:
        raise SchemaError(f"defaults names columns that the table does not have: {', '.join(folded)}.")
    return fields, [schema.names.index(name) for name in key]
