"""The syntax of expressions: DuckDB's, with calls left as they are written.

sqlglot's own DuckDB dialect turns calls into its general vocabulary (it swaps the arguments of `date_diff`, shifts list
indices, drops the time of day from `interval '1 day 02:00'`, and makes `~` bind more tightly than `+`).  Here a call
keeps its name and its arguments; only forms that are not plain calls (`cast`, `extract`, `trim(both …)`, `position(… in
…)`) have their own syntax.
"""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar

_FORMS = ("CAST", "TRY_CAST", "EXTRACT", "POSITION", "SUBSTRING", "TRIM")


@cache
def expression_dialect() -> Any:
    """Return the dialect class, which is made on first use because sqlglot is imported on first use."""
    from sqlglot import TokenType, exp
    from sqlglot.dialects.duckdb import DuckDB

    names = (TokenType.VAR, TokenType.IDENTIFIER)
    parser: Any = DuckDB.Parser
    equals = TokenType.ADJACENT  # an operator on ranges, which DuckDB does not have
    words: dict[str, Any] = {word: token for word, token in DuckDB.Tokenizer.KEYWORDS.items() if token != equals}

    class Expressions(DuckDB):
        INDEX_OFFSET = 0

        class Tokenizer(DuckDB.Tokenizer):
            KEYWORDS = {**words, "==": equals}  # noqa: RUF012
            HEREDOC_STRINGS: ClassVar[list[Any]] = []  # `$x || ''` would be taken for an unfinished `$x$…$x$`

        class Parser(parser):  # type: ignore[misc]
            FUNCTIONS: dict[str, Any] = {}  # noqa: RUF012 (as sqlglot has it)
            FUNCTION_PARSERS = {name: parser.FUNCTION_PARSERS[name] for name in _FORMS}  # noqa: RUF012
            NO_PAREN_FUNCTION_PARSERS = {  # noqa: RUF012
                **{name: parse for name, parse in parser.NO_PAREN_FUNCTION_PARSERS.items() if name != "IF"},
                "@": lambda self: exp.Abs(this=self._parse_term()),
            }

            PLACEHOLDER_PARSERS = {  # noqa: RUF012 (`:n` is the end of a slice)
                token: parse for token, parse in parser.PLACEHOLDER_PARSERS.items() if token != TokenType.COLON
            }
            # In DuckDB these are operators like `||` and `&`: below `+`, above `=`.
            BITWISE = {  # noqa: RUF012
                **parser.BITWISE,
                equals: lambda this, expression: exp.Paren(this=exp.EQ(this=this, expression=expression)),
                TokenType.TILDE: exp.RegexpLike,
                TokenType.CARET_AT: exp.StartsWith,
            }
            UNARY_PARSERS = {  # noqa: RUF012
                **parser.UNARY_PARSERS,
                TokenType.TILDE: lambda self: exp.BitwiseNot(this=self._parse_term()),
            }
            ARRAY_CONSTRUCTORS = {"ARRAY": exp.Array}  # noqa: RUF012 (`list[1]` is an element of a column)

            def _parse_in(self, this: Any, alias: bool = False) -> Any:
                """Parse `x in [1, 2]`, which searches a list and treats nulls differently from `x in (1, 2)`."""
                if self._curr is not None and self._curr.token_type == TokenType.L_BRACKET:
                    return exp.In(this=this, field=self._parse_bitwise())
                return super()._parse_in(this, alias)

            def _parse_interval(self, *args: Any, **kwargs: Any) -> Any:
                """Parse `interval '…' [unit]`, keeping the text whole."""
                given = self._curr is not None and self._curr.token_type == TokenType.INTERVAL
                if given and self._next is not None and self._next.token_type == TokenType.STRING:
                    self._advance(2)
                    text, unit = self._prev.text, None
                    if self._curr is not None and self._curr.token_type in names:
                        unit = exp.var(self._curr.text)
                        self._advance()
                    return exp.Interval(this=exp.Literal.string(text), unit=unit)
                return super()._parse_interval(*args, **kwargs)

            def _parse_types(self, check_func: bool = False, *args: Any, **kwargs: Any) -> Any:
                """Treat a name where a value is expected as a type only before a text, as in `date '2020-01-01'`."""
                start = self._index
                found = super()._parse_types(check_func, *args, **kwargs)
                literal = self._curr is not None and self._curr.token_type == TokenType.STRING
                if check_func and found is not None and not literal:
                    self._retreat(start)
                    return None
                return found

    return Expressions
