"""Table schemas: columns with field ids, defaults and a primary key.

A column is named ``f<field_id>`` in the hot store and in files, so its user-facing name is metadata only.  A rename is
another record of the same field; a column that changes in what it holds is another field, which knows the one it
replaced.  Schemas are immutable; ``SchemaHistory.at(snapshot)`` returns the columns that existed then.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from typing import Any

import pyarrow as pa

from indexlake.errors import ConstraintError, SchemaError
from indexlake.schema.field_steps import Step
from indexlake.schema.lineage import HeldColumns, line
from indexlake.schema.rules import Check, Template
from indexlake.types import Codec, SqlValue, codec_for, codec_of
from indexlake.types.marks import cast_type
from indexlake.types.uuids import is_uuid

ROW_ID = "_indexlake_row_id"
VERSION = "_indexlake_snapshot"
END = "_indexlake_end"
RESERVED_PREFIX = "_indexlake_"
COMMENT = b"comment"
"""The metadata key for a column's comment."""
DEFAULT = b"indexlake:default"
"""The metadata key for a constant default: the value as it is stored, and the SQL that it was written as."""

FUNCTIONS_WITHOUT_PARENTHESES = frozenset({
    "current_date", "current_time", "current_timestamp", "localtime", "localtimestamp", "current_user", "session_user",
    "user", "current_schema", "current_catalog", "current_role",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Field:
    """One column, from one snapshot to another.

    ``default`` is the encoded value for rows that do not name the column, unless there is a ``default_sql``.  Row
    versions and files older than ``since`` do not hold the column: they take the value of its ``source`` through
    ``steps``, or ``older``.
    """

    field_id: int
    name: str
    type: pa.DataType
    nullable: bool
    default: SqlValue = None
    metadata: Mapping[bytes, bytes] | None = field(default=None, hash=False)
    begin_snapshot: int = 0  # the first snapshot with this name
    end_snapshot: int | None = None
    position: int = 0  # in the order of the table's columns
    since: int = 0  # the snapshot that added the column; 0: as old as the table
    source: Field | None = None
    steps: tuple[Step, ...] = ()
    released: bool = False  # whether the hot store no longer needs the column
    default_sql: str | None = None  # computes the value for new rows instead of the default
    generated: Template | None = None  # computes every row's value
    held_null: bool = False  # whether it was nullable before, so that older row versions may be null
    initial: tuple[SqlValue] | None = None  # the value for rows older than the column, if not the default
    sequences: Any = field(default=None, compare=False, repr=False)  # provides the numbers that the default asks for

    @property
    def column(self) -> str:
        return f"f{self.field_id}"

    @property
    def codec(self) -> Codec:
        return codec_of(self)

    def arrow(self, name: str | None = None) -> pa.Field:
        return pa.field(name or self.name, self.type, self.nullable, self.metadata)

    @property
    def comment(self) -> str | None:
        found = (self.metadata or {}).get(COMMENT)
        return None if found is None else found.decode()

    @property
    def older(self) -> SqlValue:
        """The value of rows that are older than the column."""
        return self.default if self.initial is None else self.initial[0]

    @property
    def default_value(self) -> Any:
        """The default as a Python value, or as an Arrow scalar if Python cannot represent it."""
        try:
            return self.codec.decode_one(self.default)
        except ConstraintError:
            return self.codec.decode([self.default])[0]

    def derived(self, array: Any) -> Any:
        """Return values of this column, made from those of its source."""
        for step in self.steps:
            array = step.apply(array)
        return array


class TableSchema:
    """The columns of a table at one snapshot, with lookups by name and the derived Arrow schemas."""

    def __init__(
        self,
        fields: Sequence[Field],
        primary_key: Sequence[int] = (),
        checks: Sequence[Check] = (),
        table_name: str = "",
    ) -> None:
        self.fields = tuple(fields)
        self.primary_key = tuple(primary_key)
        self.checks = tuple(checks)
        self.table_name = table_name
        self.by_name = {f.name.lower(): f for f in self.fields}
        self.by_id = {f.field_id: f for f in self.fields}

    def __repr__(self) -> str:
        return f"TableSchema({', '.join(f'{f.name} {f.type}' for f in self.fields)})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TableSchema)
            and self.fields == other.fields
            and self.primary_key == other.primary_key
            and self.checks == other.checks
        )

    def __hash__(self) -> int:
        return hash((tuple(f.field_id for f in self.fields), self.primary_key))

    def __len__(self) -> int:
        return len(self.fields)

    @cached_property
    def by_root(self) -> dict[int, Field]:
        """The columns by the oldest field of their line, which stays the same whatever happens to a column."""
        return {[g.field_id for g in line(f)][-1]: f for f in self.fields}

    @cached_property
    def evolved(self) -> bool:
        """Whether a row version or file may be older than one of the columns."""
        return any(f.since for f in self.fields)

    @cached_property
    def has_rules(self) -> bool:
        """Whether there are checks or generated columns."""
        return bool(self.checks) or any(f.generated is not None for f in self.fields)

    @cached_property
    def arrow(self) -> pa.Schema:
        """The schema that users see."""
        return pa.schema([f.arrow() for f in self.fields])

    @cached_property
    def arrow_with_row_id(self) -> pa.Schema:
        """The columns that predicates may name."""
        return self.arrow.append(pa.field(ROW_ID, pa.int64(), False))

    @cached_property
    def sql_arrow(self) -> pa.Schema:
        """The columns that our own SQL conditions may name: not those that have another type in SQL."""
        return pa.schema([f for f in self.arrow_with_row_id if cast_type(f) is None and not self.hides_functions])

    @cached_property
    def hides_functions(self) -> bool:
        """Whether a column has the name of a function that SQL calls without parentheses: then the column is meant."""
        return not FUNCTIONS_WITHOUT_PARENTHESES.isdisjoint(self.by_name)

    @cached_property
    def file(self) -> pa.Schema:
        """The schema of a data block."""
        hidden = [pa.field(ROW_ID, pa.int64(), False), pa.field(VERSION, pa.int64(), True)]
        held = [f.arrow(f.column).with_nullable(f.nullable or f.held_null) for f in self.fields]
        return pa.schema(held + hidden)

    @cached_property
    def history_file(self) -> pa.Schema:
        """The schema of a history block."""
        return self.file.append(pa.field(END, pa.int64(), False))

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.fields)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return tuple(f.column for f in self.fields)

    @cached_property
    def column_of(self) -> dict[str, str]:
        """User-facing name to file column, including the row id."""
        return {f.name: f.column for f in self.fields} | {ROW_ID: ROW_ID}

    @cached_property
    def codecs(self) -> tuple[Codec, ...]:
        return tuple(f.codec for f in self.fields)

    @cached_property
    def decoders(self) -> tuple[tuple[str, Callable[[SqlValue], Any]], ...]:
        """The decoder of each column's encoded values, with the column's name."""
        return tuple((f.name, f.codec.decode_one) for f in self.fields)

    @cached_property
    def column_codecs(self) -> dict[str, Codec]:
        return {f.column: f.codec for f in self.fields} | {ROW_ID: codec_for(pa.int64())}

    @cached_property
    def column_since(self) -> dict[str, int]:
        """For columns added later, the snapshot before which rows do not hold them."""
        return {f.column: f.since for f in self.fields if f.since}

    @cached_property
    def held(self) -> HeldColumns:
        """How all columns are read from hot rows, including older ones."""
        return HeldColumns(self.fields)

    @cached_property
    def key_fields(self) -> tuple[Field, ...]:
        return tuple(self.by_id[i] for i in self.primary_key)

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.key_fields)

    @cached_property
    def key_set(self) -> frozenset[str]:
        return frozenset(self.key_names)

    @cached_property
    def key_columns(self) -> tuple[str, ...]:
        return tuple(f.column for f in self.key_fields)

    @cached_property
    def key_places(self) -> tuple[int, ...]:
        """The positions of the key columns in a row tuple."""
        place = {f.field_id: i for i, f in enumerate(self.fields)}
        return tuple(place[i] for i in self.primary_key)

    @cached_property
    def key_codecs(self) -> tuple[Codec, ...]:
        return tuple(f.codec for f in self.key_fields)

    @cached_property
    def plain_names(self) -> frozenset[str]:
        """The columns whose values Python represents exactly."""
        return frozenset(f.name for f in self.fields if _is_plain(f.type))

    @cached_property
    def place_of(self) -> dict[str, int]:
        """The position of each column in a row tuple."""
        return {f.name: i for i, f in enumerate(self.fields)}

    def field(self, name: str) -> Field:
        """Return the column with that name, in any case; otherwise raise an error that suggests the closest one."""
        found = self.by_name.get(name.lower()) if isinstance(name, str) else None
        if found is None:
            raise unknown_column(name, self.names)
        return found

    def project(self, columns: Iterable[str]) -> tuple[Field, ...]:
        return tuple(self.field(name) for name in columns)


class SchemaHistory:
    """Every field record that a table ever had.  The schema of each snapshot is built only once."""

    def __init__(
        self,
        fields: Sequence[Field],
        primary_key: Sequence[int] = (),
        checks: Sequence[Check] = (),
        table_name: str = "",
    ) -> None:
        self.fields = tuple(sorted(fields, key=lambda f: (f.position, f.begin_snapshot)))
        self.primary_key = tuple(primary_key)
        self.checks = tuple(checks)
        self._table_name = table_name
        dated: list[Field | Check] = [*self.fields, *self.checks]
        ends = {d.end_snapshot for d in dated if d.end_snapshot is not None}
        self._changes = sorted({d.begin_snapshot for d in dated} | ends)
        self._schemas: dict[int, TableSchema] = {}

    def __repr__(self) -> str:
        return f"SchemaHistory({len(self.fields)} fields, {len(self._changes)} changes)"

    @property
    def current(self) -> TableSchema:
        return self._schema(len(self._changes))

    @cached_property
    def asks_sequences(self) -> bool:
        """Whether a default needs sequence numbers but has no source for them yet."""
        return any(f.default_sql is not None and "nextval" in f.default_sql and not f.sequences for f in self.fields)

    def asking(self, sequences: Any) -> SchemaHistory:
        """Return the same schemas, with defaults that take their numbers from ``sequences``."""
        fields = [
            replace(f, sequences=sequences) if f.default_sql is not None and "nextval" in f.default_sql else f
            for f in self.fields
        ]
        return SchemaHistory(fields, self.primary_key, self.checks, self._table_name)

    def at(self, snapshot: int) -> TableSchema:
        return self._schema(bisect_right(self._changes, snapshot))

    def since(self, snapshot: int) -> list[TableSchema]:
        """Return the schemas of a snapshot and of all later ones, in order."""
        return [self._schema(n) for n in range(bisect_right(self._changes, snapshot), len(self._changes) + 1)]

    def _schema(self, number: int) -> TableSchema:
        """Return the columns after this many changes."""
        found = self._schemas.get(number)
        if found is None:
            at = self._changes[number - 1] if number else -1

            def exists(dated: Field | Check) -> bool:
                return dated.begin_snapshot <= at and (dated.end_snapshot is None or dated.end_snapshot > at)

            fields, checks = list(filter(exists, self.fields)), list(filter(exists, self.checks))
            found = self._schemas[number] = TableSchema(fields, self.primary_key, checks, self._table_name)
        return found


def _is_plain(type: pa.DataType) -> bool:
    t = pa.types
    kinds = (t.is_boolean, t.is_integer, t.is_float64, t.is_string, t.is_large_string, t.is_binary, t.is_large_binary)
    return is_uuid(type) or any(kind(type) for kind in kinds)


def unknown_column(name: object, names: Sequence[str]) -> SchemaError:
    close = get_close_matches(str(name), names, 1)
    hint = f" Did you mean {close[0]!r}?" if close else f" The columns are {', '.join(names) or 'none'}."
    return SchemaError(f"There is no column {name!r}.{hint}", column=str(name))
