"""Alterations that replace a column by another one made from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from indexlake.errors import SchemaError
from indexlake.evolution.alterations import Column, Definition
from indexlake.expr.templates import template_of, with_rule
from indexlake.schema import COMMENT, Field
from indexlake.types import check_supported

_THE_SAME = ("field_id", "nullable", "default", "default_sql", "metadata")  # its snapshot is not known before a commit


@dataclass(frozen=True, slots=True)
class AddGenerated:
    """Adds a column that is computed for every row written from now on; existing rows have null."""

    name: str
    type: Any
    text: str
    metadata: Mapping[bytes, bytes] | None = None

    def on(self, d: Definition) -> Definition:
        check_supported(self.type, self.name)
        fields = [c.before for c in d.columns if c.before is not None]
        with_rule(f"Generated column {self.name!r}", lambda: template_of(self.text, fields))
        made = Field(-1, self.name, self.type, True, None, self.metadata, generated=template_of(self.text, fields))
        return replace(d, columns=(*d.columns, Column(made, None)))


@dataclass(frozen=True, slots=True)
class TakePlace:
    """Turns a generated column into a plain one with the name, place and comment of a column that is dropped."""

    column: str
    of: Field
    """The field as it was when the values were computed."""

    def on(self, d: Definition) -> Definition:
        new, old = d.column(self.column), d.column(self.of.name)
        record = old.before
        if record is None or any(getattr(record, part) != getattr(self.of, part) for part in _THE_SAME):
            raise SchemaError(f"Column {self.of.name!r} was altered meanwhile. Run it again.", column=self.of.name)
        d.refuse_key(old, "its type cannot change")
        if old.field.generated is not None:
            raise SchemaError(
                f"Column {old.field.name!r} is generated: its type is that of what it is computed from.",
                column=old.field.name,
            )
        metadata = dict(new.field.metadata or {})
        if (comment := (old.field.metadata or {}).get(COMMENT)) is not None:
            metadata[COMMENT] = comment
        field = replace(
            new.field, name=old.field.name, position=old.field.position, metadata=metadata or None, generated=None
        )
        columns = (replace(new, field=field) if c is old else c for c in d.columns if c is not new)
        return replace(d, columns=tuple(columns))
