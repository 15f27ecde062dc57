"""Recognises parameters written as in other libraries: ``:name``, ``%s``, ``%(name)s``.

Only where they cannot be SQL: after an operator, a parenthesis, a comma or a keyword, outside of quotes.
"""

from __future__ import annotations

import re

_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)
_FOREIGN = re.compile(
    r"(?:^|[=<>(,+*/-]|\b(?:and|or|not|in|like|ilike|between|is|select|where|when|then|else|limit|offset|set)\b)"
    r"\s*(:[a-z_]\w*|%s\b|%\(\w+\)s)",
    re.IGNORECASE,
)


def parameter_hint(text: str) -> str | None:
    """Return what to write instead if the text has such a parameter, else None."""
    if ":" not in text and "%" not in text:
        return None
    found = _FOREIGN.search(_QUOTED.sub("''", text))
    if found is None:
        return None
    written = found[1]
    if written == "%s":
        return "a parameter is written ? or $1, not %s; give params=[…]"
    name = re.sub(r"\W", "", written.removesuffix("s") if written.startswith("%") else written)
    return f'a parameter is written ${name}, not {written}; give params={{"{name}": …}}'
