"""Tokens: what makes it safe to write again after an answer was lost.

A token is a name, or a name with a number.  A commit under a name happens once.  A commit under a name and a number
happens only if its number is greater than all earlier ones of that name, so a stream that writes batch after batch
needs one record in the catalog however long it runs.  That record is never forgotten, while plain names are after
seven days.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from indexlake.commit.write_set import WriteResult
from indexlake.errors import SchemaError

_NUMBER = "number"
MOST_BYTES = 1_000
"""How long a name may be: every catalog keeps it as a key."""


class Token(NamedTuple):
    """The name of a commit, or of a series of commits with the number of this one."""

    name: str
    number: int | None = None

    @staticmethod
    def of(given: Any) -> Token | None:
        """Return what a user gave as a token, checked."""
        if given is None or isinstance(given, Token):
            return given
        name, number = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
        if (
            not isinstance(name, str)
            or not _is_text(name)
            or not (number is None or (type(number) is int and 0 <= number < 1 << 63))
            or (isinstance(given, tuple) and number is None)
        ):
            raise SchemaError(
                f"token must be a non-empty string that names this write, of up to {MOST_BYTES:,} bytes in UTF-8 "
                "and without NUL, or a pair of such a name and a number that grows with each write, such as "
                '("orders", 17); '
                f"got {given!r:.100}."
            )
        return Token(name, number)

    def done(self, found: Mapping[str, Any] | None) -> WriteResult | None:
        """Return what the commit did if it has happened; ``found`` is the record of the name."""
        if found is None:
            return None
        number = found.get(_NUMBER)
        if (number is None) != (self.number is None):
            raise SchemaError(
                f"The token {self.name!r} was used {'without' if number is None else 'with'} a number before. Use "
                "another name."
            )
        if number is not None and self.number is not None and number < self.number:
            return None
        return WriteResult(**{fact: value for fact, value in found.items() if fact != _NUMBER})

    def record(self, result: WriteResult) -> dict[str, Any]:
        """Return what is to be kept of the commit under its name."""
        return result.to_json() if self.number is None else {**result.to_json(), _NUMBER: self.number}


def _is_text(name: str) -> bool:
    """Return whether every catalog can keep a name."""
    try:
        return 0 < len(name.encode()) <= MOST_BYTES and "\0" not in name
    except UnicodeEncodeError:  # half of a pair of surrogates
        return False


TokenLike = Token | str | tuple[str, int]
"""What users give as a token."""
