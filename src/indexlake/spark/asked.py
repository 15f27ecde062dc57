"""Which columns Spark asks a data source for: those of ``.schema("…")``, or all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from indexlake.errors import SchemaError
from indexlake.spark.types import spark_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def columns_of(table: str, columns: pa.Schema, schema: StructType) -> list[str]:
    """Return the requested columns, after checking that their types are right."""
    known = {f.name.lower(): f for f in spark_schema(list(columns)).fields}
    required = {f.name.lower() for f in columns if not f.nullable}
    for asked in schema.fields:
        found = known.get(asked.name.lower())
        if found is None:
            raise SchemaError(
                f"Table {table!r} has no column {asked.name!r}; it has {', '.join(columns.names)}.",
                column=asked.name,
            )
        if found.dataType != asked.dataType:
            raise SchemaError(
                f"Column {asked.name!r} of {table!r} is {found.dataType.simpleString()} in Spark, not "
                f"{asked.dataType.simpleString()}. Read it as it is, then cast it.",
                column=asked.name,
            )
        if not asked.nullable and asked.name.lower() not in required:
            raise SchemaError(
                f"Column {asked.name!r} of {table!r} may be null. Ask for it without NOT NULL.", column=asked.name
            )
    return [known[f.name.lower()].name for f in schema.fields]


def asked_schema(columns: pa.Schema, schema: StructType) -> pa.Schema:
    """Return columns in Spark's types with the names and the nullability that Spark expects."""
    pairs = zip(columns, schema.fields, strict=True)
    return pa.schema([f.with_name(asked.name).with_nullable(asked.nullable) for f, asked in pairs])
