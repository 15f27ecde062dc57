"""A merge in our own terms: the table is ``t`` and the source ``s``, in every condition and every value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from indexlake.display import counted
from indexlake.errors import SchemaError
from indexlake.expr.expression import expr
from indexlake.schema import Field, TableSchema
from indexlake.sources.rules import default_assigned
from indexlake.sql.parse import statement as st
from indexlake.sql.parse.fragment import Fragment
from indexlake.sql.parse.parameters import Parameters
from indexlake.sql.parse.tokens import quoted
from indexlake.sql.plan.qualifiers import requalified

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Sides:
    """Maps the columns of both sides to these qualifiers, including bare columns that only one side has."""

    names: Mapping[str, str]
    bare: Mapping[str, str]
    parameters: Parameters

    def text(self, fragment: Fragment) -> str:
        text = requalified(fragment, self.names, self.bare)
        if text is None:
            fragment.source.fail("A subquery is not allowed here; put it into the source of the merge.", fragment.start)
        return text

    def value(self, fragment: Fragment) -> Any:
        return expr(self.text(fragment), self.parameters.of(fragment.parameters) or None)

    def condition(self, fragment: Fragment | None) -> tuple[str | None, dict[str, Any] | None]:
        """Return the condition as text, with its parameters."""
        if fragment is None:
            return None, None
        return self.text(fragment), self.parameters.of(fragment.parameters) or None

    def add(self, merge: Any, clause: st.MergeClause, schema: TableSchema, source: Sequence[str]) -> Any:
        """Return the merge with one more clause; ``source``: the names of the source's columns."""
        condition = self.condition(clause.condition)
        if clause.action == "nothing":
            return merge.when_do_nothing(clause.rows, *condition)
        by_source = clause.rows == "not matched by source"
        if clause.action == "delete":
            delete = merge.when_not_matched_by_source_delete if by_source else merge.when_matched_delete
            return delete(*condition)
        values: dict[str, Any] | None = None
        if clause.assignments == ():
            values = {f.name: default_assigned(f) for f in schema.fields}
        elif clause.assignments is not None or clause.values is not None:
            fields = [assigned_field(schema, a) for a in clause.assignments or ()] or schema.fields
            given = clause.values or [a.value for a in clause.assignments or ()]
            values = {
                f.name: assigned_default(f) if value.is_default else self.value(value)
                for f, value in paired(fields, given)
            }
        elif not by_source:
            wanted = [schema.field(name) for name in source] if clause.by_name else schema.fields
            values = {f.name: expr(f"s.{quoted(name)}") for f, name in paired(wanted, source)}
        if clause.rows == "not matched":
            return merge.when_not_matched_insert(values, *condition)
        update = merge.when_not_matched_by_source_update if by_source else merge.when_matched_update
        return update(values, *condition)


def assigned_field(schema: TableSchema, assignment: st.Assignment) -> Field:
    """Return the column that an assignment sets."""
    try:
        f = schema.field(assignment.column)
    except SchemaError as error:
        raise assignment.value.source.error(str(error), assignment.place) from None
    if f.generated is not None:
        assignment.value.source.fail(generated_is_given(f), assignment.place)
    return f


def generated_is_given(f: Field) -> str:
    return f"Column {f.name!r} is generated and cannot be assigned: leave it out."


def assigned_default(f: Field) -> Any:
    """Return the default that a column is set to; a missing one for a not-null column only fails with a row."""
    value = default_assigned(f)
    return expr("null") if value is None and not f.nullable else value


def paired(fields: Sequence[Field], values: Sequence[T]) -> Iterator[tuple[Field, T]]:
    """Pair columns with values by position."""
    if len(fields) != len(values):
        raise SchemaError(
            f"{counted(len(values), 'value')} given for {counted(len(fields), 'column')} by position. Name the "
            "columns, or write BY NAME."
        )
    return zip(fields, values, strict=True)
