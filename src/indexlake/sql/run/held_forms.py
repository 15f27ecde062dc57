"""The SQL expressions that convert marked columns to their SQL types, and SQL values to what a table holds.

Most types are cast to a type that Arrow has, and back.  A UNION is held as a struct of its tag and its members, a
GEOMETRY as WKB, and a text with a collation is the same text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from indexlake.sql.parse.tokens import quoted, text_literal
from indexlake.types.marks import cast_type, collation_of

TAG = "union_tag"
"""The field of a held UNION with the name of the member that has the value."""


_MOST_BYTES = 50_000
"""Of a BIGNUM: DuckDB takes seconds to print one of this size, and four times as long for one of twice the size."""


def in_sql(field: Any) -> str | None:
    """Return the expression for a column in its SQL type, or None if it has no mark."""
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
    """Return ``cast(a as bit) as a, …`` for the marked columns."""
    formed = ((quoted(f.name), form) for f in fields if (form := in_sql(f)) is not None)
    return ", ".join(f"{form} as {name}" for name, form in formed)


def held(type: str, held_as: str, members: Sequence[str]) -> tuple[str, str]:
    """Return the text before and after a value of ``type`` that converts it to ``held_as``, which tables hold instead.

    ``members``: the names of a UNION's members.
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
    if type == "BIGNUM":
        size = "octet_length(create_sort_key(n, 'ASC NULLS LAST'))"
        refusal = f"error('A BIGNUM of more than {_MOST_BYTES:,} bytes cannot be returned or stored as text.')"
        return (
            "list_transform([cast((",
            f") as BIGNUM)], lambda n: case when {size} > {_MOST_BYTES} then {refusal} else n::{held_as} end)[1]",
        )
    return "cast(cast((", f") as {type}) as {held_as})"
