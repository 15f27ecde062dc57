"""Resolves dotted names: which column they mean, and which field inside it.

Names match case-insensitively; an exact match takes precedence.  `a.b.c` is, in this order: the column named "a.b.c",
field c of the column "a.b", field b.c of the column "a".  With qualifiers (`t`, `s` of a merge) the columns are named
"t.a", "s.a"; a name without a qualifier means the only side that has it.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import pyarrow as pa

from indexlake.errors import ExpressionError


class Names:
    """The column names of one schema."""

    def __init__(self, schema: pa.Schema, qualifiers: tuple[str, ...] = ()) -> None:
        self.all = schema.names
        self.exact = set(schema.names)
        self.folded = {name.lower(): name for name in reversed(schema.names)}
        self.qualifiers = qualifiers

    def find(self, parts: Sequence[str]) -> tuple[str, list[str]]:
        """Return the column, and the path of fields inside it."""
        for length in range(len(parts), 0, -1):
            column = self._column(".".join(parts[:length]))
            if column is not None:
                return column, list(parts[length:])
        qualified = len(parts) > 1 and parts[0].lower() in {qualifier.lower() for qualifier in self.qualifiers}
        places = () if qualified else self.qualifiers
        found = [name for qualifier in places if (name := self._column(f"{qualifier}.{parts[0]}")) is not None]
        if len(found) > 1:
            raise ExpressionError(f'column "{parts[0]}" is ambiguous; write {" or ".join(found)}')
        if found:
            return found[0], list(parts[1:])
        raise ExpressionError(self._unknown(".".join(parts)))

    def _column(self, name: str) -> str | None:
        return name if name in self.exact else self.folded.get(name.lower())

    def _unknown(self, name: str) -> str:
        near = difflib.get_close_matches(name.lower(), self.folded, 1, 0.5)
        hint = f'; did you mean "{self.folded[near[0]]}"?' if near else "."
        some = ", ".join(self.all[:20]) + (", …" if len(self.all) > 20 else "")
        return f'there is no column "{name}"{hint} The columns are: {some}'


def field_place(name: str, names: tuple[str, ...]) -> int | None:
    """Return the index of the struct field with that name, or None."""
    if name in names:
        return names.index(name)
    folded = [each.lower() for each in names]
    return folded.index(name.lower()) if name.lower() in folded else None
