"""Functions of text.  Positions and lengths count characters (code points), starting with 1."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indexlake.errors import ExpressionError
from indexlake.expr import tree
from indexlake.expr.build import Builder
from indexlake.expr.coercion import castable, implicit_cost
from indexlake.expr.constants import NotCovered
from indexlake.expr.functions.function import Function, Signature, constant, same_for_all
from indexlake.expr.sqltype import BLOB, BOOL, INT32, INT64, VARCHAR, SqlType, list_of

# Characters of the Unicode category Zs, which `trim` removes.
SPACES = " \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_LIMIT = 2**31 - 1
_ONE = (((VARCHAR,), VARCHAR),)
_TWO = (((VARCHAR,), VARCHAR), ((VARCHAR, VARCHAR), VARCHAR))
_ASK = (((VARCHAR, VARCHAR), BOOL),)
_ASK_WITH_OPTIONS = (*_ASK, ((VARCHAR, VARCHAR, VARCHAR), BOOL))


def _bytes(values: list[Any], call: tree.Call) -> Any:
    return pc.binary_length(values[0]).cast(pa.int64())


def _trim(kernel: Any) -> Any:
    def trimmed(values: list[Any], call: tree.Call) -> Any:
        characters = constant(values[1]) if len(values) > 1 else SPACES
        return kernel(values[0], characters=characters) if characters else values[0]

    return trimmed


def _test(kernel: Any) -> Any:
    return lambda values, call: kernel(values[0], constant(values[1]))


def _replace(values: list[Any], call: tree.Call) -> Any:
    pattern, replacement = constant(values[1]), constant(values[2])
    return pc.replace_substring(values[0], pattern, replacement) if pattern else values[0]


def _ascii_only(function: Any) -> Any:
    """Restrict a case mapping to ASCII: beyond that, Python's differs from DuckDB's."""

    def mapped(text: str) -> str:
        if not text.isascii():
            raise NotCovered
        result: str = function(text)
        return result

    return mapped


def _substring(values: list[Any], call: tree.Call) -> Any:
    start = constant(values[1])
    length = constant(values[2]) if len(values) > 2 else _LIMIT - start
    if not (1 <= start < _LIMIT and 0 <= length < _LIMIT):
        raise NotCovered
    return pc.utf8_slice_codeunits(values[0], start - 1, start - 1 + length)


def _substring_row(text: str, offset: int, length: int = _LIMIT) -> str:
    """Take a part: a position below 0 counts from the end, 0 precedes the first; a negative length goes back."""
    if abs(offset) > _LIMIT or abs(length) > _LIMIT:
        raise NotCovered
    start = offset - 1 if offset > 0 else len(text) + offset if offset < 0 else -1
    first, last = (start, start + length) if length >= 0 else (start + length, start)
    return text[max(first, 0) : max(last, 0)]


def _slice_left(values: list[Any], call: tree.Call) -> Any:
    return pc.utf8_slice_codeunits(values[0], 0, _small(constant(values[1])))


def _slice_right(values: list[Any], call: tree.Call) -> Any:
    count = _small(constant(values[1]))
    return pc.utf8_slice_codeunits(values[0], -count) if count else pc.utf8_slice_codeunits(values[0], 0, 0)


def _small(count: int) -> int:
    if abs(count) > _LIMIT:
        raise NotCovered
    return count


def _left(text: str, count: int) -> str:
    return text[:count]


def _right(text: str, count: int) -> str:
    taken = min(count, len(text)) if count >= 0 else max(len(text) + count, 0)
    return text[len(text) - taken :]


def _repeat(text: Any, count: int) -> Any:
    if len(text) * count > 1_000_000:
        raise NotCovered
    return text * count


def _padding(text: str, count: int, pad: str) -> str:
    missing = count - len(text)
    if missing > 1_000_000:
        raise NotCovered
    if not pad:
        raise ExpressionError("the padding text of lpad() and rpad() is empty")
    return (pad * (missing // len(pad) + 1))[:missing]


def _lpad(text: str, count: int, pad: str) -> str:
    return text[: max(count, 0)] if count <= len(text) else _padding(text, count, pad) + text


def _rpad(text: str, count: int, pad: str) -> str:
    return text[: max(count, 0)] if count <= len(text) else text + _padding(text, count, pad)


def _reverse(text: str) -> str:
    if not text.isascii():
        raise NotCovered  # DuckDB reverses whole graphemes
    return text[::-1]


def _split_part(text: str, separator: str, place: int) -> str:
    if not separator:
        raise NotCovered
    parts = text.split(separator)
    index = place - 1 if place > 0 else len(parts) + place
    return parts[index] if place != 0 and 0 <= index < len(parts) else ""


def _chr(code: int) -> str:
    if not 0 <= code <= 0x10FFFF or 0xD800 <= code < 0xE000:
        raise NotCovered
    return chr(code)


def _code_point(text: str, empty: int) -> int:
    return ord(text[0]) if text else empty


def _concat_types(operands: tuple[SqlType, ...], literals: tuple[Any, ...]) -> Signature | None:
    if not all(castable(type, VARCHAR) for type in operands):
        return None
    return (VARCHAR,) * len(operands), VARCHAR


def _concat_ws_types(operands: tuple[SqlType, ...], literals: tuple[Any, ...]) -> Signature | None:
    return None if implicit_cost(operands[0], VARCHAR) is None else _concat_types(operands, literals)


def _concat_lists(builder: Builder, arguments: list[tree.Node]) -> tree.Node | None:
    lists = any(argument.type.kind in ("list", "array") for argument in arguments)
    return builder.call("list_concat", arguments) if lists else None


def _concat(values: list[Any], call: tree.Call) -> Any:
    texts = [value.cast(pa.large_string()) for value in values]
    joined = pc.binary_join_element_wise(
        *texts, pa.scalar("", pa.large_string()), null_handling="replace", null_replacement=""
    )
    return joined.cast(pa.string())


def _concat_row(*texts: str | None) -> str:
    return "".join(text for text in texts if text is not None)


def _concat_ws(separator: str | None, *texts: str | None) -> str | None:
    return None if separator is None else separator.join(text for text in texts if text is not None)


# fmt: off
FUNCTIONS = (
    Function(
        "lower", "text", "the text in lower case", _ONE,
        kernel=lambda v, call: pc.utf8_lower(v[0]), row=same_for_all(_ascii_only(str.lower)), synonyms=("lcase",),
    ),
    Function(
        "upper", "text", "the text in upper case", _ONE,
        kernel=lambda v, call: pc.utf8_upper(v[0]), row=same_for_all(_ascii_only(str.upper)), synonyms=("ucase",),
    ),
    Function(
        "trim", "text[, characters]", "the text without spaces (or the characters) at both ends", _TWO,
        kernel=_trim(pc.utf8_trim), row=same_for_all(lambda text, characters=SPACES: text.strip(characters)),
    ),
    Function(
        "ltrim", "text[, characters]", "the text without spaces (or the characters) at its beginning", _TWO,
        kernel=_trim(pc.utf8_ltrim), row=same_for_all(lambda text, characters=SPACES: text.lstrip(characters)),
    ),
    Function(
        "rtrim", "text[, characters]", "the text without spaces (or the characters) at its end", _TWO,
        kernel=_trim(pc.utf8_rtrim), row=same_for_all(lambda text, characters=SPACES: text.rstrip(characters)),
    ),
    Function(
        "strlen", "text", "how many bytes the text has in UTF-8", (((VARCHAR,), INT64),),
        kernel=_bytes, row=same_for_all(lambda text: len(text.encode())),
    ),
    Function(
        "substring", "text, first position[, length]", "a part of the text; a negative position counts from the end",
        (((VARCHAR, INT64), VARCHAR), ((VARCHAR, INT64, INT64), VARCHAR)),
        kernel=_substring, row=same_for_all(_substring_row), synonyms=("substr",),
    ),
    Function(
        "left", "text, count", "the first characters; a negative count leaves out as many at the end",
        (((VARCHAR, INT64), VARCHAR),), kernel=_slice_left, row=same_for_all(_left),
    ),
    Function(
        "right", "text, count", "the last characters; a negative count leaves out as many at the beginning",
        (((VARCHAR, INT64), VARCHAR),), kernel=_slice_right, row=same_for_all(_right),
    ),
    Function(
        "replace", "text, text, text", "the text with each occurrence of the second replaced by the third",
        (((VARCHAR, VARCHAR, VARCHAR), VARCHAR),), kernel=_replace,
        row=same_for_all(lambda text, old, new: text.replace(old, new) if old else text),
    ),
    Function(
        "translate", "text, characters, characters", "the text with each of the characters replaced by its counterpart",
        (((VARCHAR, VARCHAR, VARCHAR), VARCHAR),),
    ),
    Function(
        "concat", "values, or lists", "the values as one text, or the lists as one list; nulls are left out",
        resolve=_concat_types, arity=(1, None), expand=_concat_lists, kernel=_concat, row=same_for_all(_concat_row),
        strict=False,
    ),
    Function(
        "concat_ws", "separator, values", "the values as one text with the separator between them; nulls are left out",
        resolve=_concat_ws_types, arity=(2, None), row=same_for_all(_concat_ws), strict=False,
    ),
    Function(
        "starts_with", "text, text", "whether the first begins with the second; also `a ^@ b`", _ASK,
        kernel=_test(pc.starts_with), row=same_for_all(str.startswith), synonyms=("prefix",),
    ),
    Function(
        "ends_with", "text, text", "whether the first ends with the second", _ASK,
        kernel=_test(pc.ends_with), row=same_for_all(str.endswith), synonyms=("suffix",),
    ),
    Function(
        "strpos", "text, text", "where the second begins in the first, 0 if nowhere; also `position(b in a)`",
        (((VARCHAR, VARCHAR), INT64),), row=same_for_all(lambda text, part: text.find(part) + 1), synonyms=("instr",),
    ),
    Function(
        "regexp_matches", "text, pattern[, options]", "whether the pattern (RE2) matches somewhere", _ASK_WITH_OPTIONS,
    ),
    Function(
        "regexp_full_match", "text, pattern[, options]",
        "whether the pattern matches the whole text; also `a ~ b` and `a similar to b`", _ASK_WITH_OPTIONS,
    ),
    Function(
        "regexp_replace", "text, pattern, replacement[, options]",
        "the text with the first match replaced, with option 'g' every match",
        (((VARCHAR,) * 3, VARCHAR), ((VARCHAR,) * 4, VARCHAR)),
    ),
    Function(
        "regexp_extract", "text, pattern[, group[, options]]", "the first match or a group of it, '' if there is none",
        (
            ((VARCHAR, VARCHAR), VARCHAR),
            ((VARCHAR, VARCHAR, INT32), VARCHAR),
            ((VARCHAR, VARCHAR, INT32, VARCHAR), VARCHAR),
        ),
    ),
    Function(
        "split_part", "text, separator, place", "the part at that place, '' if there is none; negative from the end",
        (((VARCHAR, VARCHAR, INT64), VARCHAR),), row=same_for_all(_split_part),
    ),
    Function(
        "string_split", "text, separator", "the parts as a list", (((VARCHAR, VARCHAR), list_of(VARCHAR)),),
        strict=False, synonyms=("str_split", "split"),
    ),
    Function(
        "lpad", "text, length, padding", "the text with padding before it, cut to the length",
        (((VARCHAR, INT32, VARCHAR), VARCHAR),), row=same_for_all(_lpad),
    ),
    Function(
        "rpad", "text, length, padding", "the text with padding after it, cut to the length",
        (((VARCHAR, INT32, VARCHAR), VARCHAR),), row=same_for_all(_rpad),
    ),
    Function("reverse", "text", "the text backwards", _ONE, row=same_for_all(_reverse)),
    Function(
        "repeat", "text or bytes, count", "the text as many times",
        tuple(((type, INT64), type) for type in (VARCHAR, BLOB)), row=same_for_all(_repeat),
    ),
    Function(
        "ascii", "text", "the code point of the first character, 0 if there is none", (((VARCHAR,), INT32),),
        row=same_for_all(lambda text: _code_point(text, 0)),
    ),
    Function(
        "unicode", "text", "the code point of the first character, -1 if there is none", (((VARCHAR,), INT32),),
        row=same_for_all(lambda text: _code_point(text, -1)), synonyms=("ord",),
    ),
    Function("chr", "code point", "the character", (((INT32,), VARCHAR),), row=same_for_all(_chr)),
    Function(
        "md5", "text or bytes", "the MD5 digest in hexadecimal",
        tuple(((type,), VARCHAR) for type in (VARCHAR, BLOB)),
    ),
    Function(
        "octet_length", "bytes", "how many bytes there are", (((BLOB,), INT64),),
        kernel=_bytes, row=same_for_all(len),
    ),
)
# fmt: on
