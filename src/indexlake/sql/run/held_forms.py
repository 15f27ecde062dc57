"""How a marked column becomes what it is in SQL, and a value of SQL what a table holds: the text of both expressions.

Most types are cast to one that Arrow has, and back.  A UNION is held as a struct of its tag and its members, a
GEOMETRY as WKB, and a text with a collation is the same text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from indexlake.sql.parse.tokens import quoted, text_literal
from indexlake.types.marks import cast_type, collation_of

TAG = "union_tag"
"""The field of a held UNION that names the member which is there."""


def in_sql(field: Any) -> str | None:
    """A marked column as SQL has it; None: it is what it is."""
    type, name = cast_type(field), quoted(field.name)
    if type is None:
        return None
    if (collation := collation_of(field)) is not None:
        return f"{name} collate {collation}"
    if type == "GEOMETRY":
        return f"system.main.st_geomfromwkb({name})"  # and not the function of ours, which gives WKB
    if type.startswith("UNION("):
        members = [member.name for member in field.type][1:]
        cases = (
            f"when {text_literal(m)} then cast(union_value({quoted(m)} := {name}.{quoted(m)}) as {type})"
            for m in members
        )
        return f"case {name}.{TAG} {' '.join(cases)} end"
    return f"cast({name} as {type})"


def all_in_sql(fields: Iterable[Any]) -> str:
    """``cast(a as bit) as a, …`` for the marked columns."""
    formed = ((quoted(f.name), form) for f in fields if (form := in_sql(f)) is not None)
    return ", ".join(f"{form} as {name}" for name, form in formed)


def held(type: str, held_as: str, members: Sequence[str]) -> tuple[str, str]:
    """What stands before and after a value that a table is to hold: of a type, and of the one in its place.

    ``members``: of a UNION.
    """
    if type == "GEOMETRY":
        return "st_aswkb(cast((", ") as GEOMETRY))"
    if type.startswith("UNION(") and members:
        fields = "".join(f", {text_literal(m)}: union_extract(u, {text_literal(m)})" for m in members)
        struct = f"cast({{'{TAG}': union_tag(u)::varchar{fields}}} as {held_as})"
        return (
            "list_transform([cast((",
            f") as {type})], lambda u: case when u is null then null else {struct} end)[1]",
        )
    return "cast(cast((", f") as {type}) as {held_as})"
