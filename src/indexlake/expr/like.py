"""`like` and `ilike`: `%` matches any text, `_` one character, even line breaks; an escape makes both literal."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indexlake.errors import ExpressionError

ANY, ONE = "any", "one"


@dataclass(frozen=True, slots=True)
class Pattern:
    """A parsed pattern: literal text, `ANY` and `ONE` in order; `impossible` if nothing can match."""

    parts: tuple[tuple[str, str], ...]  # ("text", …) | ("any", "") | ("one", "")
    impossible: bool = False

    @property
    def prefix(self) -> str:
        """The text with which every match starts."""
        return self.parts[0][1] if self.parts and self.parts[0][0] == "text" else ""

    @property
    def exact(self) -> str | None:
        """The only text that matches, if the pattern has no wildcard."""
        if not self.parts:
            return ""
        return self.parts[0][1] if len(self.parts) == 1 and self.parts[0][0] == "text" else None


@lru_cache(maxsize=256)
def parse_pattern(pattern: str, escape: str = "") -> Pattern:
    if len(escape.encode()) > 1:
        raise ExpressionError(f"the escape of `like` is one character or empty, not '{escape}'")
    parts: list[tuple[str, str]] = []
    text: list[str] = []

    def flush() -> None:
        if text:
            parts.append(("text", "".join(text)))
            text.clear()

    index = 0
    while index < len(pattern):
        char = pattern[index]
        index += 1
        if escape and char == escape:
            if index == len(pattern):
                return Pattern((), impossible=True)
            text.append(pattern[index])
            index += 1
        elif char == "%":
            flush()
            if not parts or parts[-1][0] != ANY:
                parts.append((ANY, ""))
        elif char == "_":
            flush()
            parts.append((ONE, ""))
        else:
            text.append(char)
    flush()
    return Pattern(tuple(parts))


@lru_cache(maxsize=256)
def python_regex(pattern: Pattern) -> re.Pattern[str]:
    body = "".join({ANY: ".*", ONE: "."}.get(kind) or re.escape(text) for kind, text in pattern.parts)
    return re.compile(body + r"\Z", re.DOTALL)


@lru_cache(maxsize=256)
def _re2(pattern: Pattern) -> str:
    body = "".join({ANY: ".*", ONE: "."}.get(kind) or _quoted(text) for kind, text in pattern.parts)
    return rf"(?s)\A{body}\z"


def _quoted(text: str) -> str:
    return "".join(char if char.isalnum() or ord(char) > 127 else f"\\x{ord(char):02x}" for char in text)


def match(values: Any, pattern: Pattern) -> Any:
    """Return whether each value matches, null where it is null."""
    kinds = tuple(kind for kind, _ in pattern.parts)
    if pattern.impossible:
        return pc.if_else(pc.is_valid(values), pa.scalar(False), pa.scalar(None, pa.bool_()))
    if pattern.exact is not None:
        return pc.equal(values, pa.scalar(pattern.exact, values.type))
    if kinds == ("text", ANY):
        return pc.starts_with(values, pattern.parts[0][1])
    if kinds == (ANY, "text"):
        return pc.ends_with(values, pattern.parts[1][1])
    if kinds == (ANY, "text", ANY):
        return pc.match_substring(values, pattern.parts[1][1])
    return pc.match_substring_regex(values, _re2(pattern))


def match_each(values: pa.Array, patterns: pa.Array, escape: str) -> pa.Array:
    """Match every value with the pattern of its own row, in one pass per distinct pattern."""
    encoded = patterns.dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    parts, places = [], []
    for index, text in enumerate(encoded.dictionary.to_pylist()):
        rows = pc.indices_nonzero(
            pc.fill_null(pc.equal(encoded.indices, pa.scalar(index, encoded.indices.type)), False)
        )
        parts.append(match(values.take(rows), parse_pattern(text, escape)))
        places.append(rows)
    missing = pc.indices_nonzero(pc.is_null(patterns))
    parts.append(pa.nulls(len(missing), pa.bool_()))
    places.append(missing)
    order = pc.sort_indices(pa.concat_arrays(places))
    return pa.concat_arrays(parts).take(order)
