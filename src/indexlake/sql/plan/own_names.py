"""Macros, types and sequences in a statement: each mention is replaced by what it stands for before planning begins.

A macro is replaced by its text with the arguments filled in, just as DuckDB does with its trees.  So everything that
understands the expression understands the macro: scans, table rules, Spark.  Result columns keep the names that were
written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from indexlake.schema.names import full_name, parts_of
from indexlake.sql.parse import statement as st
from indexlake.sql.parse.fragment import Edit, Fragment, edited
from indexlake.sql.parse.tokens import Source, Token, quoted, tokenize
from indexlake.sql.plan.macro_body import Value, apart, filled, own_name, queried
from indexlake.sql.plan.positions import NO_CALLS, is_operand, is_query_name, is_table
from indexlake.sql.plan.select_items import names

NEXT, CURRENT = "__il_nextval", "__il_currval"
"""What DuckDB calls instead of its own functions, which know nothing of our sequences."""
_SEQUENCE_FUNCTIONS = {"nextval": NEXT, "currval": CURRENT}
NO_MACROS = NO_CALLS | _SEQUENCE_FUNCTIONS.keys()
"""Names that a macro cannot have, because calls of it would not be recognised."""


@dataclass(frozen=True)
class Definitions:
    """What a statement may name, in lower case with its namespace; temporary ones have the namespace ``temp``."""

    macros: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    table_macros: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    types: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.macros or self.table_macros or self.types)


@dataclass(frozen=True)
class _Call:
    name: Token
    namespace: str | None
    start: int
    opening: int  # indices of tokens
    closing: int
    first: int  # where it begins, including everything before its dots
    is_method: bool  # it follows a dot, and what precedes the dot may be a value


@dataclass(frozen=True)
class Meaning:
    """The context in which the names of a statement are looked up."""

    path: tuple[str, ...]
    """The namespaces where unqualified names are looked up, in this order."""
    known: Definitions
    printed: Callable[[str], str | None]
    """Returns DuckDB's name for an expression."""
    aggregates: Collection[str]
    stored: bool = False
    """Whether its expressions are stored with a table, where sequences are named in full."""
    within: tuple[tuple[str, str], ...] = ()
    """The macros that are being expanded."""
    sequence_in: Callable[[str], str] = str
    """Returns the namespace of a sequence."""
    temporary: Collection[str] = ()
    """The temporary sequences, in lower case, which are DuckDB's own."""
    draft: int | None = None
    """The draft of the transaction, if that has defined sequences."""

    @property
    def spaces(self) -> tuple[str, ...]:
        return ("temp", *(namespace.lower() for namespace in self.path))


def drafted(function: str) -> str:
    """Return the name of the same function for the sequences of a draft, which it has as another argument."""
    return f"{function}_of"


def asks(text: Fragment, types: Sequence[Fragment]) -> tuple[bool, bool]:
    """Return whether a statement may name macros or types, and whether it names sequences.  Cached with the text."""
    known = text.__dict__.get("asks")
    if known is None:
        calls = list(_calls(text))
        sequences = any(call.name.value in _SEQUENCE_FUNCTIONS for call in calls)
        others = any(call.name.value not in _SEQUENCE_FUNCTIONS for call in calls)
        named = others or bool(types) or next(_type_spans(text), None) is not None or bool(_pivot_types(text))
        known = text.__dict__["asks"] = named, sequences
    found: tuple[bool, bool] = known
    return found


def replaced(text: Fragment, types: Sequence[Fragment], meaning: Meaning) -> Fragment:
    """Return the statement with names replaced by what they stand for; ``types`` are the parts of it that are types."""
    edits = _edits(text, types, meaning)
    return edited(text, [*edits, *names(text, edits, meaning.printed)]) if edits else text


def of_draft(text: str, draft: int | None) -> str:
    """Return the text of a view with the sequences of a transaction's draft."""
    return text if draft is None else _calling(text, {NEXT: drafted(NEXT), CURRENT: drafted(CURRENT)}, f", {draft}")


def for_duckdb(text: str) -> str:
    """Return the text of a view as DuckDB understands it by itself."""
    return _calling(text, {own: name for name, own in _SEQUENCE_FUNCTIONS.items()})


def _calling(text: str, functions: Mapping[str, str], argument: str = "") -> str:
    """Replace the names of functions, and add an argument to their calls."""
    if not any(name in text for name in functions):
        return text
    source = Source(text)
    fragment = Fragment(source, tokenize(source), {})
    edits: list[Edit] = []
    for call in _calls(fragment):
        if call.name.value in functions:
            end = fragment.tokens[call.closing].start
            edits += [(call.name.start, call.name.end, functions[call.name.value]), (end, end, argument)]
    return edited(fragment, edits).text


def _edits(text: Fragment, types: Sequence[Fragment], meaning: Meaning) -> list[Edit]:
    found: list[Edit] = []
    done = -1
    for call in _calls(text):
        if call.start < done:
            continue  # inside the arguments of another call, which is replaced as a whole
        edit = (
            _sequence_edit(text, call, meaning) or _macro_edit(text, call, meaning) or _schema_edit(text, call, meaning)
        )
        if edit is not None:
            found.append(edit)
            done = edit[1]
    for tokens in _pivot_types(text):
        found += [(a, b, new.removeprefix("ENUM")) for a, b, new in _type_edits(tokens, meaning) if new[:5] == "ENUM("]
    for tokens in [*(fragment.tokens for fragment in types), *_type_spans(text)]:
        found += [e for e in _type_edits(tokens, meaning) if not any(a <= e[0] < b for a, b, _ in found)]
    return found


def _expanded(text: str, meaning: Meaning, place: tuple[Source, int]) -> str:
    """Expand the text of an argument or a macro; its errors are located at the call."""
    source = Source(text, (place[0], lambda _: place[1]))
    fragment = Fragment(source, tokenize(source), {})
    return edited(fragment, _edits(fragment, (), meaning)).text if fragment.tokens else text


# ---------------------------------------------------------------- calls


def _calls(text: Fragment) -> Iterator[_Call]:
    tokens = text.tokens
    for n in range(len(tokens) - 1):
        name = tokens[n]
        if not tokens[n + 1].is_symbol("(") or name.kind not in ("word", "name") or name.is_word(*NO_CALLS):
            continue
        first = n
        while first >= 2 and tokens[first - 1].is_symbol(".") and tokens[first - 2].kind in ("word", "name"):
            first -= 2
        is_method = n > 0 and tokens[n - 1].is_symbol(".")
        is_value = first > 0 and tokens[first - 1].is_symbol(".")  # something other than a name precedes the dot
        closing = _closing(text, n + 1)
        if is_query_name(tokens, closing + 1) or not (is_operand(tokens, first) or is_value):
            continue
        space = tokens[first] if first == n - 2 and not is_value else None
        start = name.start if space is None else space.start
        yield _Call(name, _value(space), start, n + 1, closing, first, is_method)


def _value(token: Token | None) -> str | None:
    return None if token is None else token.value.lower()


def _closing(text: Fragment, opening: int) -> int:
    depth = 0
    for n in range(opening, len(text.tokens)):
        depth += text.tokens[n].is_symbol("(", "[", "{") - text.tokens[n].is_symbol(")", "]", "}")
        if not depth:
            return n
    raise text.source.error("This parenthesis is not closed.", text.tokens[opening].start)


def _sequence_edit(text: Fragment, call: _Call, meaning: Meaning) -> Edit | None:
    if call.name.value not in _SEQUENCE_FUNCTIONS or call.is_method:
        return None
    inside = text.tokens[call.opening + 1 : call.closing]
    if len(inside) == 1 and inside[0].is_word("null"):
        return call.start, text.tokens[call.closing].end, "cast(null as bigint)"
    named = inside[::2] and all(t.kind == "string" for t in inside[::2])
    if not named or len(inside) % 2 == 0 or not all(t.is_symbol("||") for t in inside[1::2]):
        text.source.fail(f"{call.name.text} needs the name of a sequence: {call.name.text}('s').", call.start)
    name = "".join(t.value for t in inside[::2])
    if name.count('"') % 2:
        text.source.fail("This name begins with a quotation mark that is not closed.", inside[0].start)
    parts = parts_of(name)
    if parts is None or len(parts) > 2:
        text.source.fail("A sequence is named 's' or 'schema.s'.", inside[0].start)
    space, own = ("", *parts)[-2:]
    if space.lower() in ("", "temp") and own.lower() in meaning.temporary:
        return (inside[0].start, inside[-1].end, f"'{quoted(own)}'".replace("''", "'")) if space else None
    full = full_name(space or meaning.sequence_in(own), own).replace("'", "''")
    function = call.name.value if meaning.stored else _SEQUENCE_FUNCTIONS[call.name.value]
    if meaning.draft is None or meaning.stored:
        made = f"{function}('{full}')"
    else:
        made = f"{drafted(function)}('{full}', {meaning.draft})"
    end = text.tokens[call.closing].end
    written = text.source.text[call.start : end]
    return None if written == made else (call.start, end, made)


def _macro_edit(text: Fragment, call: _Call, meaning: Meaning) -> Edit | None:
    name = call.name.value.lower()
    own = meaning.spaces
    spaces = own if call.namespace is None else (call.namespace,)
    tables = meaning.known.table_macros
    at_table = any((s, name) in tables for s in (*own, *spaces)) and is_table(text.tokens, call.first)
    known = tables if at_table else meaning.known.macros
    space = next((s for s in spaces if (s, name) in known), None)
    if call.is_method and (space is None or call.namespace is None) and any((s, name) in known for s in own):
        text.source.fail(
            f"{call.name.text} is a macro, and cannot be called after a dot: write {call.name.text}(…) with what is "
            "before the dot as the first argument.",
            call.start,
        )
    if space is None or (call.is_method and call.namespace is None):
        return None
    new = _expansion(text, call, space, known[space, name], meaning, at_table)
    end = text.tokens[call.closing].end
    after = text.tokens[call.closing + 1] if call.closing + 1 < len(text.tokens) else None
    if after is not None and after.is_word("over") and _is_one_call(new[1:-1]):
        new = new[1:-1]
    if (after is not None and after.is_word("filter")) or text.tokens[call.opening + 1].is_word("distinct"):
        text.source.fail(f"{call.name.text} is a macro: DISTINCT and FILTER belong into the macro itself.", call.start)
    if at_table:
        new += "" if after is not None and _is_alias(after) else f" as {quoted(call.name.value)}"
    return call.start, end, new


def _schema_edit(text: Fragment, call: _Call, meaning: Meaning) -> Edit | None:
    """Tell what DuckDB, which knows only its own schema, would say of the current one."""
    if call.name.value != "current_schema" or call.is_method or len(meaning.path) == 1:
        return None
    return call.start, text.tokens[call.closing].end, "'" + meaning.path[0].replace("'", "''") + "'"


def _is_one_call(text: str) -> bool:
    """Return whether an expression is a single function call, perhaps with a filter."""
    source = Source(text)
    fragment = Fragment(source, tokenize(source), {})
    tokens = fragment.tokens
    if len(tokens) < 3 or not tokens[1].is_symbol("("):
        return False
    last = _closing(fragment, 1)
    if last + 2 < len(tokens) and tokens[last + 1].is_word("filter"):
        last = _closing(fragment, last + 2)
    return last == len(tokens) - 1


_AFTER_TABLE = (
    "where", "join", "left", "right", "inner", "full", "cross", "natural", "asof", "positional", "semi", "anti", "on",
    "using", "order", "group", "having", "limit", "offset", "union", "except", "intersect", "qualify", "window",
    "select", "sample", "tablesample", "pivot", "unpivot", "returning", "when", "set",
)  # fmt: skip


def _is_alias(token: Token) -> bool:
    return token.kind == "name" or (token.kind == "word" and token.value not in _AFTER_TABLE)


def _expansion(
    text: Fragment, call: _Call, space: str, body: Mapping[str, Any], meaning: Meaning, at_table: bool
) -> str:
    place = text.source, call.start
    positional, named = _arguments(text, call)
    found: list[str] = []
    for overload in body["overloads"]:
        own = [name.lower() for name, _, _ in overload["parameters"]]
        given = dict(zip(own, positional, strict=False))
        if len(positional) > len(own) or not named.keys() <= set(own) or given.keys() & named.keys():
            continue
        given |= named
        defaults = {name.lower(): default for name, _, default in overload["parameters"] if default is not None}
        if set(own) <= given.keys() | defaults.keys():
            arguments = {name: _expanded(value, meaning, place) for name, value in (defaults | given).items()}
            found.append(put_in(space, call.name.value, overload, arguments, meaning, place, is_table=at_table))
    if len(found) == 1:
        return found[0]
    forms = ", ".join(
        f"{call.name.text}({', '.join(p[0] if p[2] is None else f'{p[0]} := {p[2]}' for p in o['parameters'])})"
        for o in body["overloads"]
    )
    what = "These arguments fit several forms of the macro" if found else "The macro takes other arguments"
    raise text.source.error(f"{what}: {forms}.", call.start)


def put_in(
    space: str,
    name: str,
    overload: Mapping[str, Any],
    arguments: Mapping[str, str],
    meaning: Meaning,
    place: tuple[Source, int],
    *,
    is_table: bool,
) -> str:
    """Return the text of an overload with the arguments (by lower-case parameter) and its own names filled in."""
    key = space.lower(), name.lower()
    if key in meaning.within:
        raise place[0].error(
            f"The macro {name} calls itself, directly or through another one: replace one of them.", place[1]
        )
    tag = "_".join(key)
    own = apart(overload["text"], {p[0].lower() for p in overload["parameters"]}, tag)
    own = _with_sequences(own, {own_name(tag, name): argument for name, argument in arguments.items()})
    own = _expanded(own, replace(meaning, within=(*meaning.within, key)), place)
    values: dict[str, Value] = {}
    for parameter, type_text, _ in overload["parameters"]:
        argument = arguments[parameter.lower()]
        text = f"({argument})" if type_text is None else f"cast(({argument}) as {_type_text(type_text, meaning)})"
        values[own_name(tag, parameter)] = Value(argument, text)
    try:
        return queried(own, values) if is_table else filled(own, tag, values, meaning.aggregates)
    except ValueError as error:
        raise place[0].error(str(error), place[1]) from None


def _with_sequences(text: str, arguments: Mapping[str, str]) -> str:
    """Fill in the arguments that name sequences."""
    source = Source(text)
    fragment = Fragment(source, tokenize(source), {})
    edits: list[Edit] = []
    for call in _calls(fragment):
        inside = fragment.tokens[call.opening + 1 : call.closing]
        if call.name.value in _SEQUENCE_FUNCTIONS and len(inside) == 1 and inside[0].value in arguments:
            edits.append((inside[0].start, inside[0].end, arguments[inside[0].value]))
    return edited(fragment, edits).text if edits else text


def _type_text(text: str, meaning: Meaning) -> str:
    source = Source(text)
    fragment = Fragment(source, tokenize(source), {})
    return edited(fragment, list(_type_edits(fragment.tokens, meaning))).text


def _arguments(text: Fragment, call: _Call) -> tuple[list[str], dict[str, str]]:
    """Return the positional and the named arguments of a call."""
    positional: list[str] = []
    named: dict[str, str] = {}
    tokens = text.tokens[call.opening + 1 : call.closing]
    depth, first = 0, 0
    for n, token in enumerate([*tokens, None]):
        if token is not None:
            depth += token.is_symbol("(", "[", "{") - token.is_symbol(")", "]", "}")
        if token is not None and (depth or not token.is_symbol(",")):
            continue
        part, first = tokens[first:n], n + 1
        if not part:
            continue
        if len(part) > 2 and part[1].is_symbol(":=", "=>") and part[0].kind in ("word", "name"):
            named[part[0].value.lower()] = Fragment(text.source, part[2:], text.question_marks).text
        elif named:
            text.source.fail("Named arguments must come last.", part[0].start)
        else:
            positional.append(Fragment(text.source, part, text.question_marks).text)
    return positional, named


# ---------------------------------------------------------------- types


def _type_spans(text: Fragment) -> Iterator[Sequence[Token]]:
    """Yield the types named in casts (after ``::``, and in ``cast(… as …)``) and in ``type 'text'``."""
    tokens = text.tokens
    casts: list[int] = []  # closing parentheses of casts
    for n, token in enumerate(tokens):
        if token.is_symbol("::"):
            end = n + 2
            if end < len(tokens) and tokens[end].is_symbol("."):
                end += 2
            if end < len(tokens) and tokens[end].is_symbol("("):
                end = _closing(text, end) + 1
            yield tokens[n + 1 : end]
        elif token.is_word("cast", "try_cast") and n + 1 < len(tokens) and tokens[n + 1].is_symbol("("):
            casts.append(_closing(text, n + 1))
        elif token.is_word("as") and casts:
            ends = [c for c in casts if c > n]
            if ends:
                yield tokens[n + 1 : min(ends)]
        elif _is_typed_text(tokens, n):
            yield tokens[n : n + 1]


def _pivot_types(text: Fragment) -> list[Sequence[Token]]:
    """Return the enums that list the values of a pivot: ``pivot (… for c in mood)``, ``pivot t on c in mood``."""
    if not text.has_word("pivot", "pivot_wider"):
        return []
    tokens = text.tokens
    return [
        tokens[n + 1 : n + 2]
        for n, token in enumerate(tokens[:-1])
        if token.is_word("in") and tokens[n + 1].kind in ("word", "name")
    ]


def _is_typed_text(tokens: Sequence[Token], n: int) -> bool:
    """Return whether ``type 'text'`` begins here."""
    if not n or n + 1 == len(tokens) or tokens[n].kind not in ("word", "name") or tokens[n - 1].is_word("as"):
        return False
    return tokens[n + 1].kind == "string" and tokens[n + 1].text.startswith("'")


def _type_edits(tokens: Sequence[Token], meaning: Meaning) -> Iterator[Edit]:
    for n, token in enumerate(tokens):
        if token.kind not in ("word", "name"):
            continue
        after = tokens[n + 1] if n + 1 < len(tokens) else None
        is_list = after is not None and after.is_word("array")
        if after is not None and not is_list and (after.kind in ("word", "name") or after.is_symbol(".")):
            continue  # the name of a field or a namespace
        space = tokens[n - 2] if n >= 2 and tokens[n - 1].is_symbol(".") else None
        spaces = meaning.spaces if space is None else (space.value.lower(),)
        name, known = token.value.lower(), meaning.known.types
        body = next((known[s, name] for s in spaces if (s, name) in known), None)
        if body is None:
            continue
        first = n if space is None else n - 2
        if first and tokens[first - 1].is_word("setof"):
            first -= 1
        if is_list and after is not None:  # DuckDB takes ARRAY only behind the name of a type
            has_length = n + 2 < len(tokens) and tokens[n + 2].is_symbol("[")
            yield tokens[first].start, after.end, body["text"] + ("" if has_length else "[]")
        else:
            yield tokens[first].start, token.end, body["text"]


def types_of(statement: st.Statement) -> tuple[Fragment, ...]:
    """Return the parts of a definition that are types."""
    if isinstance(statement, st.CreateTable):
        return tuple(column.type for column in statement.columns if column.type is not None)
    if isinstance(statement, st.AlterTable):
        action = statement.action
        if isinstance(action, st.AddColumn) and action.column.type is not None:
            return (action.column.type,)
        return (action.type,) if isinstance(action, st.ChangeType) else ()
    if isinstance(statement, st.CreateNamed) and statement.kind == "type":
        return statement.texts
    if isinstance(statement, st.CreateTemporaryTable):
        return statement.types
    return ()
