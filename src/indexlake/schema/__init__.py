"""Schemas: the columns of a table, now and at every snapshot, and how older rows and files show newer columns."""

from indexlake.schema.definition import (
    as_schema,
    check_columns,
    check_primary_key,
    default_from_text,
    default_to_text,
    encode_default,
    new_fields,
)
from indexlake.schema.table_schema import (
    COMMENT,
    DEFAULT,
    END,
    RESERVED_PREFIX,
    ROW_ID,
    VERSION,
    Field,
    SchemaHistory,
    TableSchema,
    unknown_column,
)

__all__ = [
    "COMMENT",
    "DEFAULT",
    "END",
    "RESERVED_PREFIX",
    "ROW_ID",
    "VERSION",
    "Field",
    "SchemaHistory",
    "TableSchema",
    "as_schema",
    "check_columns",
    "check_primary_key",
    "default_from_text",
    "default_to_text",
    "encode_default",
    "new_fields",
    "unknown_column",
]
