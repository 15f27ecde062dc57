"""Reads the tokens of one statement from left to right: keywords, names, and fragments up to a keyword."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from indexlake.errors import ExpressionError
from indexlake.schema.names import full_name
from indexlake.sql.parse.fragment import Fragment
from indexlake.sql.parse.tokens import Source, Token

T = TypeVar("T")
DATABASE = "memory"
"""DuckDB's name for its only database, as ``information_schema`` shows it."""
_OPENING, _CLOSING = {"(": ")", "[": "]", "{": "}"}, {")", "]", "}"}


@dataclass(frozen=True, slots=True)
class TableName:
    """``namespace.table`` as written; ``namespace`` is None when none was given."""

    namespace: str | None
    name: str
    place: int

    def full(self, namespace: str) -> str:
        return full_name(self.namespace or namespace, self.name)


def is_file(name: str) -> bool:
    """Return whether a name in single quotes is that of a file, rather than of a table."""
    return any(mark in name for mark in "./\\*?[:")


class TokenReader:
    def __init__(self, source: Source, tokens: Sequence[Token], question_marks: dict[int, int]) -> None:
        self.source = source
        self.tokens = tokens
        self.question_marks = question_marks
        self.place = 0

    # ------------------------------------------------------------ looking

    @property
    def here(self) -> Token | None:
        return self.tokens[self.place] if self.place < len(self.tokens) else None

    @property
    def at_end(self) -> bool:
        return self.place >= len(self.tokens)

    def sees(self, *words: str) -> bool:
        """Return whether these words come next, in this order."""
        ahead = self.tokens[self.place : self.place + len(words)]
        return len(ahead) == len(words) and all(t.is_word(w) for t, w in zip(ahead, words, strict=True))

    def sees_symbol(self, symbol: str) -> bool:
        return self.here is not None and self.here.is_symbol(symbol)

    def fail(self, problem: str, token: Token | None = None) -> NoReturn:
        raise self.wrong(problem, token)

    def wrong(self, problem: str, token: Token | None = None) -> ExpressionError:
        token = token or self.here
        place = token.start if token is not None else self.tokens[-1].end if self.tokens else 0
        return self.source.error(problem, place)

    # ------------------------------------------------------------ taking

    def take(self, *words: str) -> bool:
        """Move past these words if they come next, and return whether they did."""
        if self.sees(*words):
            self.place += len(words)
            return True
        return False

    def take_symbol(self, symbol: str) -> bool:
        if self.sees_symbol(symbol):
            self.place += 1
            return True
        return False

    def expect(self, *words: str) -> None:
        if not self.take(*words):
            self.fail(f"Expected {' '.join(words).upper()} here.")

    def expect_symbol(self, symbol: str) -> None:
        if not self.take_symbol(symbol):
            self.fail(f"Expected {symbol!r} here.")

    def expect_end(self) -> None:
        if not self.at_end:
            self.fail("Unexpected text here.")

    def name(self, what: str = "a name") -> str:
        token = self.here
        if token is None or token.kind not in ("word", "name"):
            self.fail(f"Expected {what} here.")
        self.place += 1
        return token.text if token.kind == "word" else token.value

    def name_or_text(self, what: str) -> str:
        """Parse a name that may also be written as a text."""
        token = self.here
        if token is None or token.kind != "string":
            return self.name(what)
        self.place += 1
        return token.value

    def names(self, what: str = "a column") -> list[str]:
        """Parse ``(a, b, …)``."""
        return self.listed(lambda: self.name(what))

    def listed(self, item: Callable[[], T], *, trailing: bool = False) -> list[T]:
        """Parse ``(…, …)``, each item with ``item``; with ``trailing``, a comma may come at the end."""
        self.expect_symbol("(")
        found = [item()]
        while self.take_symbol(",") and not (trailing and self.sees_symbol(")")):
            found.append(item())
        self.expect_symbol(")")
        return found

    def options(self) -> tuple[tuple[str, Fragment], ...]:
        """Parse ``(name = value, …)``."""

        def option() -> tuple[str, Fragment]:
            name = self.name("an option")
            self.expect_symbol("=")
            return name, self.operand("Expected the option's value here.")

        return tuple(self.listed(option))

    def parts(self, what: str) -> list[str]:
        """Parse ``a.b.c``."""
        found = [self.name(what)]
        while self.take_symbol("."):
            found.append(self.name(what))
        return found

    def table_name(self, what: str = "a table name") -> TableName:
        token = self.here
        if token is not None and token.kind == "string" and token.text[0] == "'" and not is_file(token.value):
            self.place += 1
            return TableName(None, token.value, token.start)
        parts = self.parts(what)
        assert token is not None
        if len(parts) == 3 and parts[0].lower() == DATABASE:
            parts = parts[1:]
        if len(parts) > 2:
            self.fail("A table is named `table` or `namespace.table`.", token)
        return TableName(parts[0] if len(parts) == 2 else None, parts[-1], token.start)

    def alias(self, *not_these: str) -> str | None:
        """Parse ``[as] name``, unless a keyword that continues the statement comes next."""
        if self.take("as"):
            return self.name("an alias")
        if self.here is not None and (
            self.here.kind == "name" or (self.here.kind == "word" and not self.here.is_word(*not_these))
        ):
            return self.name()
        return None

    def parenthesised(self) -> Fragment:
        """Parse an opening parenthesis up to its closing one, and return what is between them; never empty."""
        opening = self.here
        self.expect_symbol("(")
        first = self.place
        self._skip_to(lambda t: t.is_symbol(")"))
        if self.at_end:
            self.fail("This parenthesis is not closed.", opening)
        found = self._fragment(first, "something between the parentheses")
        self.place += 1
        return found

    def until(self, *words: str, comma: bool = False, what: str = "an expression") -> Fragment:
        """Return the tokens up to one of these words (or a comma) outside of brackets and ``case … end``."""
        first = self.place

        def stops(token: Token) -> bool:
            if comma and token.is_symbol(","):
                return True
            if not token.is_word(*words):
                return False
            before = self.tokens[self.place - 1] if self.place else None
            return not (token.is_word("from") and before is not None and before.is_word("distinct"))

        self._skip_to(stops)
        return self._fragment(first, what)

    def until_symbol(self, *symbols: str, what: str) -> Fragment:
        """Return the tokens up to one of these symbols outside of parentheses."""
        first = self.place
        self._skip_to(lambda token: token.is_symbol(*symbols))
        return self._fragment(first, what)

    def operand(self, problem: str, *words: str) -> Fragment:
        """Return at least one token, up to a comma, a closing bracket or, after the first, one of these words."""
        first, depth = self.place, 0
        while self.here is not None:
            token = self.here
            if not depth and (token.is_symbol(",", *_CLOSING) or (self.place > first and token.is_word(*words))):
                break
            depth += token.is_symbol(*_OPENING) - token.is_symbol(*_CLOSING)
            self.place += 1
        if first == self.place:
            self.fail(problem)
        return self.since(first)

    def since(self, first: int) -> Fragment:
        """Return the tokens from ``first`` up to here."""
        return Fragment(self.source, self.tokens[first : self.place], self.question_marks)

    def rest(self, what: str = "an expression") -> Fragment:
        first, self.place = self.place, len(self.tokens)
        return self._fragment(first, what)

    def _fragment(self, first: int, what: str) -> Fragment:
        if first == self.place:
            self.fail(f"Expected {what} here.")
        return self.since(first)

    def _skip_to(self, stops: Callable[[Token], bool]) -> None:
        depth: list[str] = []
        while self.here is not None:
            token = self.here
            if not depth and stops(token):
                return
            if token.kind == "symbol" and token.text in _OPENING:
                depth.append(_OPENING[token.text])
            elif token.is_word("case"):
                depth.append("end")
            elif depth and (token.text == depth[-1] or (token.is_word("end") and depth[-1] == "end")):
                depth.pop()
            elif token.kind == "symbol" and token.text in _CLOSING:
                self.fail(f"{token.text!r} has no opening counterpart.")
            self.place += 1
