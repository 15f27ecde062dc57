"""Alterations of a table's definition, as values: each turns one definition into the next, or is refused.

Nothing here touches the catalog. The builder applies alterations to the definition it has read, so that an invalid one
fails on its own line; the commit applies them again to the definition by then. Column names are checked after all have
been applied, so two columns can swap names; while two columns share a name, it means the one that had it from the
start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import pyarrow as pa

from indexlake.config import TableConfig
from indexlake.errors import NotFoundError, SchemaError
from indexlake.evolution.table_rules import default_text, new_check
from indexlake.expr.expression import Expression
from indexlake.expr.templates import calls, check_rules
from indexlake.schema import COMMENT, DEFAULT, Field, TableSchema, check_columns, encode_default, unknown_column
from indexlake.schema.field_path import Path, Place, find, parse, shown, type_at
from indexlake.schema.field_steps import AddField, DropField, RenameField, Step, Widen
from indexlake.schema.rules import Check
from indexlake.schema.widening import check_widening, limits
from indexlake.sources.rules import default_encoded
from indexlake.types import SqlValue, check_supported, codec_of
from indexlake.types.hugeint import HELD_AS
from indexlake.types.marks import KEY, cast_type


@dataclass(frozen=True, slots=True)
class Column:
    """A column being altered: its current field, its original one, and the conversion steps in between."""

    field: Field
    before: Field | None  # None: it is new
    steps: tuple[Step, ...] = ()

    def step(self, step: Step) -> Column:
        """Return the column after a conversion step, which applies to its default too.

        A field that is added is null in the default if it can be, whatever existing values get.
        """
        old = self.field
        new = replace(old, type=step.type_after(old.type))
        if old.initial is not None or isinstance(step, AddField):
            new = replace(new, initial=(_converted(step, old, new, old.older),))
        if old.default is not None:
            by_default = replace(step, default=None) if isinstance(step, AddField) and step.nullable else step
            new = replace(new, default=_converted(by_default, old, new, old.default))
        return replace(self, field=new, steps=(*self.steps, step) if self.before is not None else ())


def _converted(step: Step, old: Field, new: Field, value: SqlValue) -> SqlValue:
    return new.codec.encode(step.apply(old.codec.decode([value])))[0]


@dataclass(frozen=True, slots=True)
class Definition:
    """The parts of a table that can be altered."""

    namespace: str
    name: str
    config: TableConfig
    key: tuple[int, ...]
    columns: tuple[Column, ...]
    checks: tuple[Check, ...] = ()

    @staticmethod
    def of(namespace: str, name: str, config: TableConfig, schema: TableSchema) -> Definition:
        columns = tuple(Column(f, f) for f in schema.fields)
        return Definition(namespace, name, config, schema.primary_key, columns, schema.checks)

    @property
    def names(self) -> list[str]:
        return [c.field.name for c in self.columns]

    def column(self, name: str) -> Column:
        found = [c for c in self.columns if c.field.name.lower() == name.lower()]
        if len(found) > 1:
            found = [c for c in found if c.before is not None and c.before.name.lower() == name.lower()] or found
        if not found:
            raise unknown_column(name, self.names)
        return found[0]

    def has(self, name: object) -> bool:
        return isinstance(name, str) and any(own.lower() == name.lower() for own in self.names)

    def resolve(self, path: Path) -> tuple[Column, Place, tuple[str, ...]]:
        """Return the column that a path begins with, the place of the field in it, and all names."""
        if isinstance(path, str) and self.has(path):
            return self.column(path), (), (path,)
        names = parse(path)
        column = self.column(names[0])
        if (type := cast_type(column.field)) is not None:
            raise SchemaError(
                f"Column {column.field.name!r} has the SQL type {type}; its fields cannot be altered. Add a column.",
                column=column.field.name,
            )
        return column, find(column.field.type, names[1:], column.field.name), names

    def with_column(self, old: Column, new: Column | None) -> Definition:
        changed = [new if c is old else c for c in self.columns]
        return replace(self, columns=tuple(c for c in changed if c is not None))

    def refuse_key(self, column: Column, what: str) -> None:
        if column.field.field_id in self.key and column.before is not None:
            raise SchemaError(
                f"Column {column.field.name!r} is part of the primary key: {what}. A key column can only be renamed.",
                column=column.field.name,
            )

    def check(self) -> None:
        """Check what must hold when all alterations have been applied."""
        seen: set[str] = set()
        for name in self.names:
            if name in seen:
                raise SchemaError(f"There is already a column {name!r}. Choose another name.", column=name)
            seen.add(name)
        old = [c.field.name for c in self.columns if c.before is not None and not c.steps]
        check_columns(pa.schema([c.field.arrow() for c in self.columns]), old)
        check_rules(TableSchema([c.field for c in self.columns], self.key, self.checks))


@dataclass(frozen=True, slots=True)
class AddColumn:
    path: Path
    type: Any
    default: Any = None
    nullable: bool = True
    metadata: Mapping[bytes, bytes] | None = None

    def on(self, d: Definition) -> Definition:
        if isinstance(self.path, str) and d.has(self.path):
            raise SchemaError(f"There is already a column {self.path!r}. Choose another name for the new one.",
                              column=self.path)  # fmt: skip
        names = parse(self.path)
        where = shown(names)
        check_supported(self.type, where)
        if isinstance(self.default, Expression):
            return self._computed(d, names)
        default = encode_default(where, codec_of(pa.field(where, self.type, metadata=self.metadata)), self.default)
        if default is None and not self.nullable:
            raise SchemaError(
                f"Column {where!r} is NOT NULL and needs a default for the existing rows: add default=….",
                column=where,
            )
        if len(names) == 1:
            f = Field(-1, names[0], self.type, bool(self.nullable), default, self.metadata)
            return replace(d, columns=(*d.columns, Column(f, None)))
        if not d.has(names[0]):
            raise SchemaError(
                f"There is no column {names[0]!r} to add {names[-1]!r} to. If the new column's own name is "
                f"{self.path!r}, write it as a tuple: ({where!r},).",
                column=names[0],
            )
        column, place, _ = d.resolve(names[:-1])
        d.refuse_key(column, "nothing can be added to it")
        _check_field_name(type_at(column.field.type, place), names[-1], names[:-1])
        step = AddField(place, names[-1], self.type, bool(self.nullable), default)
        return d.with_column(column, column.step(step))

    def _computed(self, d: Definition, names: Sequence[str]) -> Definition:
        """Add a column with a computed default: existing rows take its value of now, new rows compute their own."""
        where = shown(names)
        if len(names) > 1:
            raise SchemaError(f"The default of {where!r}, a field inside a column, is one value.", column=where)
        f = Field(-1, names[0], self.type, bool(self.nullable), None, self.metadata)
        f = replace(f, default_sql=default_text(f, self.default))
        check_rules(TableSchema([f]))
        if calls(self.default.text):
            raise SchemaError(
                f"The default of column {where!r} differs from row to row, and the table already has rows. Add the "
                "column without it, fill it with update(), then set the default.",
                column=where,
            )
        f = replace(f, initial=(default_encoded(f),))
        if f.older is None and not f.nullable:
            raise SchemaError(f"Column {where!r} is NOT NULL, and its default is null.", column=where)
        return replace(d, columns=(*d.columns, Column(f, None)))


@dataclass(frozen=True, slots=True)
class DropColumn:
    path: Path

    def on(self, d: Definition) -> Definition:
        column, place, names = d.resolve(self.path)
        d.refuse_key(column, "it cannot be dropped")
        if not place:
            if len(d.columns) == 1:
                raise SchemaError(
                    f"Column {column.field.name!r} is the last one: a table needs at least one. Drop the table "
                    "instead, or add another column first.",
                    column=column.field.name,
                )
            return d.with_column(column, None)
        struct = _struct_at(column, place, names, "dropped")
        if struct.num_fields == 1:
            raise SchemaError(
                f"{shown(names)!r} is the last field of {shown(names[:-1])!r}: drop {shown(names[:-1])!r} instead.",
                column=shown(names),
            )
        return d.with_column(column, column.step(DropField(place[:-1], place[-1])))


@dataclass(frozen=True, slots=True)
class RenameColumn:
    path: Path
    name: str

    def on(self, d: Definition) -> Definition:
        if not isinstance(self.name, str):
            raise SchemaError(f"The new name of column {self.path!r} must be a string, not {self.name!r}.")
        column, place, names = d.resolve(self.path)
        if not place:
            return d.with_column(column, replace(column, field=replace(column.field, name=self.name)))
        d.refuse_key(column, "its fields cannot be renamed")
        struct = _struct_at(column, place, names, "renamed")
        if struct.field(place[-1]).name == self.name:
            return d
        _check_field_name(struct, self.name, names[:-1], but=place[-1])
        return d.with_column(column, column.step(RenameField(place[:-1], place[-1], self.name)))


@dataclass(frozen=True, slots=True)
class WidenColumn:
    path: Path
    type: Any
    metadata: Mapping[bytes, bytes] | None = None  # what the column gets from now on, added to what it has

    def on(self, d: Definition) -> Definition:
        column, place, names = d.resolve(self.path)
        d.refuse_key(column, "its type cannot change")
        where = shown(names)
        if self.metadata and place:
            raise SchemaError(f"{where!r} is a field inside a column and has no metadata of its own.", column=where)

        old = type_at(column.field.type, place)
        marks = {**(column.field.metadata or {}), **(self.metadata or {})}
        if not place and old == self.type and (old == HELD_AS or KEY in marks):
            return d.with_column(column, self._with_sql_type(column))
        check_widening(where, old, self.type)
        if place and limits(pa.field(where, old), pa.field(where, self.type)) is not None:
            raise SchemaError(
                f"Column {where!r} of type {old} cannot become {self.type}: inside a nested column it is not known "
                f"whether every value fits. Add a field and fill it with update().",
                column=where,
            )
        widened = column.step(Widen(place, self.type))
        if self.metadata:
            metadata = {**(column.field.metadata or {}), **self.metadata}
            widened = replace(widened, field=replace(widened.field, metadata=metadata))
        return d.with_column(column, widened)

    def _with_sql_type(self, column: Column) -> Column:
        """Change the SQL type that the metadata records, such as HUGEINT for a decimal; no value changes."""
        f = column.field
        before, after = (f.metadata or {}).get(KEY), (self.metadata or {}).get(KEY)
        if before == after:
            name = f.type if after is None else after.decode()
            raise SchemaError(f"Column {f.name!r} is of type {name} already.", column=f.name)
        rest = {key: value for key, value in (f.metadata or {}).items() if key != KEY}
        return replace(column, field=replace(f, metadata={**rest, **(self.metadata or {})} or None))


@dataclass(frozen=True, slots=True)
class SetDefault:
    """Sets what new rows take that do not name the column; existing rows keep their values."""

    column: str
    default: Any  # a value, None for none, or an expression
    metadata: Mapping[bytes, bytes] | None = None  # about the default

    def on(self, d: Definition) -> Definition:
        column = d.column(self.column)
        f = column.field
        if f.generated is not None:
            raise SchemaError(f"Column {f.name!r} is generated and cannot have a default.", column=f.name)
        default, text = None, None
        if isinstance(self.default, Expression):
            text = default_text(f, self.default)
        else:
            default = encode_default(f.name, f.codec, self.default)
        metadata = {key: value for key, value in (f.metadata or {}).items() if key != DEFAULT}
        metadata |= self.metadata or {}
        changed = replace(f, default=default, default_sql=text, initial=(f.older,), metadata=metadata or None)
        return d.with_column(column, replace(column, field=changed))


@dataclass(frozen=True, slots=True)
class SetComment:
    """Kept in the column's metadata, as in Spark and other tools."""

    column: str
    comment: str | None

    def on(self, d: Definition) -> Definition:
        if self.comment is not None and not isinstance(self.comment, str):
            raise SchemaError(f"A comment is a text, or None; got {self.comment!r}.", column=self.column)
        column = d.column(self.column)
        metadata = {key: value for key, value in (column.field.metadata or {}).items() if key != COMMENT}
        if self.comment is not None:
            metadata[COMMENT] = self.comment.encode()
        return d.with_column(column, replace(column, field=replace(column.field, metadata=metadata or None)))


@dataclass(frozen=True, slots=True)
class SetNullable:
    """Whether a column may be null; that existing rows comply was checked before."""

    column: str
    nullable: bool

    def on(self, d: Definition) -> Definition:
        column = d.column(self.column)
        if self.nullable:
            d.refuse_key(column, "it cannot be null")
        return d.with_column(column, replace(column, field=replace(column.field, nullable=self.nullable)))


@dataclass(frozen=True, slots=True)
class AddCheck:
    """Applies to new rows at once, and to all rows once it has been validated."""

    name: str | None
    condition: str

    def on(self, d: Definition) -> Definition:
        fields = [c.before for c in d.columns if c.before is not None]
        check = new_check(d.name, self.name, self.condition, fields, d.checks)
        return replace(d, checks=(*d.checks, replace(check, validated=False)))


@dataclass(frozen=True, slots=True)
class DropCheck:
    name: str

    def on(self, d: Definition) -> Definition:
        kept = tuple(c for c in d.checks if c.name.lower() != self.name.lower())
        if len(kept) == len(d.checks):
            known = f" The checks are {', '.join(c.name for c in d.checks)}." if d.checks else " It has no checks."
            raise SchemaError(f"Table {d.namespace}.{d.name} has no check {self.name!r}.{known}")
        return replace(d, checks=kept)


@dataclass(frozen=True, slots=True)
class MarkValidated:
    """Records that all rows were found to satisfy a check."""

    check_id: int

    def on(self, d: Definition) -> Definition:
        checks = (replace(c, validated=True) if c.check_id == self.check_id else c for c in d.checks)
        return replace(d, checks=tuple(checks))


@dataclass(frozen=True, slots=True)
class RenameTable:
    """Without a namespace, the table stays in its own."""

    name: str

    def on(self, d: Definition) -> Definition:
        from indexlake.schema.names import split_name

        try:
            namespace, name = split_name(self.name, d.namespace)
        except NotFoundError as error:
            raise SchemaError(str(error)) from None
        return replace(d, namespace=namespace, name=name)


@dataclass(frozen=True, slots=True)
class SetConfig:
    """Changes the given settings; the others stay."""

    changes: tuple[tuple[str, Any], ...]

    def on(self, d: Definition) -> Definition:
        known = [f.name for f in fields(TableConfig)]
        for name, _ in self.changes:
            if name not in known:
                raise SchemaError(f"There is no setting {name!r}. The settings are {', '.join(known)}.")
        return replace(d, config=replace(d.config, **dict(self.changes)))


class Alteration(Protocol):
    """Turns a definition into the next one."""

    def on(self, d: Definition) -> Definition: ...


def altered(d: Definition, alterations: Sequence[Alteration]) -> Definition:
    """Apply all alterations, one after the other, and check the result."""
    for alteration in alterations:
        d = alteration.on(d)
    d.check()
    return d


def _struct_at(column: Column, place: Place, names: Sequence[str], done: str) -> pa.DataType:
    """Return the struct that holds the field at a place; raise for elements of lists and values of maps."""
    outer = type_at(column.field.type, place[:-1])
    if not pa.types.is_struct(outer):
        raise SchemaError(
            f"{shown(names)!r} is what the {'map' if pa.types.is_map(outer) else 'list'} {shown(names[:-1])!r} "
            f"consists of: it cannot be {done}.",
            column=shown(names),
        )
    return outer


def _check_field_name(struct: pa.DataType, name: str, inside: Sequence[str], but: int = -1) -> None:
    where = shown(inside)
    if not pa.types.is_struct(struct):
        way = ""
        if pa.types.is_nested(struct):
            way = f" Write {where + ('.value' if pa.types.is_map(struct) else '.element')!r} for what it consists of."
        raise SchemaError(f"{where!r} is of type {struct}, not a struct: it has no named fields.{way}", column=where)
    if not name or "\x00" in name:
        raise SchemaError(f"{name!r} is not a field name: it is empty or holds a NUL character.", column=where)
    for n in range(struct.num_fields):
        if n != but and struct.field(n).name.lower() == name.lower():
            raise SchemaError(
                f"There is a field {struct.field(n).name!r} in {where!r} already. Choose another name.",
                column=shown([*inside, name]),
            )
