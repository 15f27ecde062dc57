"""Recognises query syntax of other search engines that this one does not have.

Read as plain words it would silently give wrong answers, so it is refused with a hint at what to write instead. Plain
punctuation is not such syntax: ``don't``, ``3:45``, ``R&D``, ``what?``.
"""

from __future__ import annotations

import re

_NEGATED = re.compile(r"!+(?P<word>\w.*)?", re.DOTALL)
_BOOSTED = re.compile(r"(?P<word>.*?)(?P<boost>\^\d+(\.\d+)?)", re.DOTALL)
_OF_COLUMN = re.compile(r"(?P<column>[^\W\d_]\w*):(?P<word>[^\W\d_].*)?", re.DOTALL)
_ONE_LETTER = re.compile(r"\?[^\W\d_]")
_INNER_STAR = re.compile(r"\w\*+[^\W\d_]")
_QUOTE = "or put it in quotes to find it as text"


def refusal(word: str, follows: str, is_one_word: bool) -> str | None:
    """Return the error for a word of foreign syntax, without its sign, or None; ``follows`` is the next character.

    ``is_one_word``: the tokenizer keeps all of its characters, so it can be looked up as it is.
    """
    before_more = follows in ("(", '"') and bool(follows)
    if word in ("&&", "||"):
        name = "AND" if word == "&&" else "OR"
        return f"{word} is not an operator. Write 'late {name} parcel'"
    if (match := _NEGATED.fullmatch(word)) and (match["word"] or before_more):
        example = match["word"] or "(…)"
        return f"'!' does not exclude. Write '-{example}' or 'NOT {example}', {_QUOTE}"
    if match := _BOOSTED.fullmatch(word):
        return f"boosts (^) are not supported. Leave {match['boost']} out, {_QUOTE}"
    if is_one_word:
        return None
    if (match := _OF_COLUMN.fullmatch(word)) and (match["word"] or before_more):
        return f"a search is on one column. Leave '{match['column']}:' out, {_QUOTE}"
    if _ONE_LETTER.search(word):
        return f"'?' is not a wildcard; only a '*' at the end of a word is. Write 'parc*', {_QUOTE}"
    if _INNER_STAR.search(word):
        return f"a '*' can only stand at the end of a word. Write 'parc*', {_QUOTE}"
    return None
