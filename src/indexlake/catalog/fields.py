"""Field records in the catalog: the columns of a table, with every name, type and conversion step they ever had.

Records are ended and added, never changed or removed: files refer to the columns of the snapshot that wrote them.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from indexlake.catalog.driver import ReadTransaction, Transaction
from indexlake.catalog.named import find_named
from indexlake.errors import NotFoundError
from indexlake.schema import Field, SchemaHistory, default_from_text, default_to_text
from indexlake.schema.field_steps import steps_from_text, steps_to_text
from indexlake.schema.names import split_name
from indexlake.schema.rules import Check, Template
from indexlake.types import type_from_text, type_to_text

if TYPE_CHECKING:
    from indexlake.catalog.definitions import TableRecord


def read_schema(r: ReadTransaction | Transaction, table: TableRecord) -> SchemaHistory:
    """Read every field record of the table."""
    rows = r.rows(
        """select field_id, field_name, data_type, nullable, default_value, metadata, begin_snapshot, end_snapshot,
        position, source_field_id, steps, released_in, default_sql, generated, initial_value
        from indexlake_field where table_id = ?
        order by field_id, begin_snapshot""",
        (table.table_id,),
    )
    fields: list[Field] = []
    known: dict[int, Field] = {}  # a source has a lower id than what is made from it
    for field_id, name, type_, null, default, metadata, begin, end, position, source, steps, released, *rules in rows:
        first = known.get(field_id)
        default_sql, generated, initial = rules
        since = first.since if first is not None else 0 if begin == table.begin_snapshot else begin
        f = Field(
            field_id, name, type_from_text(type_), bool(null), default_from_text(default), _metadata(metadata), begin,
            end, position, since, known[source] if source is not None else None, steps_from_text(steps),
            released is not None, default_sql, None if generated is None else Template.from_text(generated),
            first is not None and (first.nullable or first.held_null),
            None if initial is None else (default_from_text(initial),),
        )  # fmt: skip
        known[field_id] = f
        fields.append(f)
    return SchemaHistory(fields, table.primary_key, read_checks(r, table.table_id), table.full_name)


def read_checks(r: ReadTransaction | Transaction, table_id: int) -> list[Check]:
    """Return every check that the table ever had."""
    rows = r.rows(
        """select check_id, check_name, condition, begin_snapshot, end_snapshot, validated_in from indexlake_check
        where table_id = ? order by check_id""",
        (table_id,),
    )
    return [
        Check(number, name, Template.from_text(text), begin, end, validated is not None)
        for number, name, text, begin, end, validated in rows
    ]


def insert_checks(tx: Transaction, table_id: int, checks: Sequence[Check], snapshot: int) -> None:
    """Add checks that begin with this snapshot."""
    tx.execute_many(
        """insert into indexlake_check (check_id, table_id, check_name, condition, begin_snapshot, validated_in)
        values (?, ?, ?, ?, ?, ?)""",
        [
            (c.check_id, table_id, c.name, c.condition.to_text(), snapshot, snapshot if c.validated else None)
            for c in checks
        ],
    )


def held_columns(r: ReadTransaction | Transaction, table_id: int) -> tuple[str, ...]:
    """Return the columns that the table's inline rows have."""
    known = r.rows(
        "select distinct field_id from indexlake_field where table_id = ? and (released_in is null or released_in > 0)",
        (table_id,),
    )
    return tuple(f"f{field_id}" for (field_id,) in sorted(known))


def insert_fields(tx: Transaction, table_id: int, fields: list[Field], snapshot: int) -> None:
    """Add field records that begin with this snapshot."""
    for f in fields:
        for namespace, name in sequences_in(f.default_sql):
            if find_named(tx, "sequence", namespace, name) is None:
                raise NotFoundError(
                    f"There is no sequence '{namespace}.{name}', which the default of column {f.name!r} uses.",
                    name=f"{namespace}.{name}",
                )
    tx.execute_many(
        """insert into indexlake_field (field_id, table_id, field_name, data_type, nullable, default_value, metadata,
        position, source_field_id, steps, default_sql, generated, initial_value, begin_snapshot)
        values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        [
            (f.field_id, table_id, f.name, type_to_text(f.type), int(f.nullable), default_to_text(f.default),
             _metadata_text(f.metadata), f.position, f.source.field_id if f.source is not None else None,
             steps_to_text(f.steps), f.default_sql, None if f.generated is None else f.generated.to_text(),
             None if f.initial is None else default_to_text(f.initial[0]) or "null", snapshot)
            for f in fields
        ],
    )  # fmt: skip


def sequences_in(default_sql: str | None) -> list[tuple[str, str]]:
    """Return (namespace, name) of the sequences that a default uses."""
    found = _NEXTVAL.findall(default_sql or "")
    return [split_name(name.replace("''", "'")) for name in found]


_NEXTVAL = re.compile(r"""\bnextval\s*\(\s*'((?:[^']|'')*)'\s*\)""", re.IGNORECASE)


def _metadata(text: str | None) -> Mapping[bytes, bytes] | None:
    if text is None:
        return None
    return {base64.b64decode(k): base64.b64decode(v) for k, v in json.loads(text).items()}


def _metadata_text(metadata: Mapping[bytes, bytes] | None) -> str | None:
    if not metadata:
        return None
    return json.dumps({base64.b64encode(k).decode(): base64.b64encode(v).decode() for k, v in metadata.items()})
