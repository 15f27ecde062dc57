"""Parses statements about sequences, types, macros and comments."""

from __future__ import annotations

from typing import Any

from indexlake.sql.parse import statement as st
from indexlake.sql.parse.fragment import Fragment
from indexlake.sql.parse.token_reader import TableName, TokenReader

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
KINDS = ("sequence", "type", "macro", "function")


def create_named(r: TokenReader, replace: bool, temporary: bool, if_not_exists: bool) -> st.CreateNamed:
    """Parse what follows ``create … sequence | type | macro [if not exists]``."""
    kind = r.tokens[r.place - (4 if if_not_exists else 1)].value
    name = r.table_name(f"the name of the {kind}")
    if kind == "sequence":
        return st.CreateNamed(kind, name, if_not_exists, replace, temporary, _sequence(r))
    if kind == "type":
        return _type(r, name, if_not_exists, replace, temporary)
    return _macro(r, name, if_not_exists, replace, temporary)


# ---------------------------------------------------------------- sequences


def _sequence(r: TokenReader) -> dict[str, Any]:
    given: dict[str, Any] = {}

    def note(name: str, value: Any) -> None:
        if name in given:
            r.fail(f"{name.upper()} is given twice.", r.tokens[r.place - 1])
        given[name] = value

    while not r.at_end:
        if r.take("start"):
            r.take("with")
            note("start", _whole(r))
        elif r.take("increment"):
            r.take("by")
            note("increment", _whole(r))
        elif r.take("minvalue"):
            note("min", _whole(r))
        elif r.take("maxvalue"):
            note("max", _whole(r))
        elif r.take("no", "minvalue"):
            note("min", None)
        elif r.take("no", "maxvalue"):
            note("max", None)
        elif r.take("no", "cycle"):
            note("cycle", False)
        elif r.take("cycle"):
            note("cycle", True)
        else:
            r.fail(
                "A sequence can have START [WITH] n, INCREMENT [BY] n, MINVALUE n, MAXVALUE n, NO MINVALUE, NO "
                "MAXVALUE, CYCLE and NO CYCLE."
            )
    return _checked(r, given)


def _checked(r: TokenReader, given: dict[str, Any]) -> dict[str, Any]:
    step = given.get("increment", 1)
    if not step:
        r.fail("INCREMENT cannot be 0: a sequence has to go somewhere.", r.tokens[0])
    lowest, highest = (1, HIGHEST) if step > 0 else (LOWEST, -1)
    low, high = given.get("min"), given.get("max")
    low, high = lowest if low is None else low, highest if high is None else high
    start = given.get("start", low if step > 0 else high)
    if low >= high:
        r.fail(f"MINVALUE ({low}) must be less than MAXVALUE ({high}).", r.tokens[0])
    if not low <= start <= high:
        r.fail(f"START ({start}) must lie between MINVALUE ({low}) and MAXVALUE ({high}).", r.tokens[0])
    return {"start": start, "increment": step, "min": low, "max": high, "cycle": given.get("cycle", False)}


def _whole(r: TokenReader) -> int:
    negative = r.take_symbol("-")
    token = r.here
    if token is None or token.kind != "number" or not token.text.replace("_", "").isdigit():
        r.fail("Expected a whole number here.")
    r.place += 1
    value = int(token.text.replace("_", "")) * (-1 if negative else 1)
    if not LOWEST <= value <= HIGHEST:
        r.fail("Sequences use 64-bit numbers, and this one is larger.", token)
    return value


# ---------------------------------------------------------------- types


def _type(r: TokenReader, name: TableName, if_not_exists: bool, replace: bool, temporary: bool) -> st.CreateNamed:
    r.expect("as")
    if r.sees("enum") and len(r.tokens) > r.place + 2 and r.tokens[r.place + 2].is_word("select", "from", "with"):
        r.expect("enum")
        query = st.Query(r.parenthesised())
        r.expect_end()
        return st.CreateNamed("type", name, if_not_exists, replace, temporary, {}, (), query)
    text = r.rest("a type")
    if text.parameters:
        r.fail("A type is stored, so it cannot have parameters: write the values.", r.tokens[0])
    return st.CreateNamed("type", name, if_not_exists, replace, temporary, {"text": text.text}, (text,))


# ---------------------------------------------------------------- macros


def _macro(r: TokenReader, name: TableName, if_not_exists: bool, replace: bool, temporary: bool) -> st.CreateNamed:
    overloads: list[dict[str, Any]] = []
    texts: list[Fragment] = []
    kinds: set[bool] = set()
    while True:
        parameters = _parameters(r)
        r.expect("as")
        is_table = r.take("table")
        kinds.add(is_table)
        text = _body(r, is_table)
        if text.parameters:
            r.fail(
                "A macro is stored, so it cannot use parameters of the call: declare them in its own list.", r.tokens[0]
            )
        texts.append(text)
        overloads.append({"parameters": parameters, "text": text.text})
        if not r.take_symbol(","):
            break
    r.expect_end()
    if len(kinds) > 1:
        r.fail("The overloads of a macro must all return values or all return tables.", r.tokens[0])
    taken: set[int] = set()
    for overload in overloads:
        count = len(overload["parameters"])
        if count in taken:
            r.fail(
                "Two overloads of a macro take the same number of arguments: give them different names.", r.tokens[0]
            )
        taken.add(count)
    kind = "table macro" if True in kinds else "macro"
    body = {"overloads": overloads}
    return st.CreateNamed(kind, name, if_not_exists, replace, temporary, body, tuple(texts))


def _parameters(r: TokenReader) -> list[tuple[str, str | None, str | None]]:
    """Parse ``(a, b INTEGER, c := 5)``: the name, type and default of each parameter."""

    def parameter() -> tuple[str, str | None, str | None]:
        own = r.name("a parameter")
        type_text = default = None
        if not any(map(r.sees_symbol, (",", ")", ":=", "=>"))):
            type_text = r.until_symbol(",", ")", ":=", "=>", "=", what="a type").text
            if r.sees_symbol("="):
                r.fail("The default of a parameter comes behind `:=`.")
        if r.take_symbol(":=") or r.take_symbol("=>"):
            default = r.operand("Expected the default of the parameter here.").text
        return own, type_text, default

    if r.sees_symbol("(") and len(r.tokens) > r.place + 1 and r.tokens[r.place + 1].is_symbol(")"):
        r.place += 2
        return []
    found = r.listed(parameter)
    names = [name.lower() for name, _, _ in found]
    if len(set(names)) < len(names):
        r.fail("Two parameters of a macro have the same name.", r.tokens[r.place - 1])
    defaults = [default is not None for _, _, default in found]
    if defaults != sorted(defaults):
        r.fail("Parameters without a default must come first.", r.tokens[r.place - 1])
    return found


def _body(r: TokenReader, is_table: bool) -> Fragment:
    """Read up to the comma before another overload, which begins with its parameters."""
    if r.at_end:
        r.fail("Expected a query here." if is_table else "Expected an expression here.")
    first = r.place
    while not r.at_end:
        r.until(comma=True, what="an expression")
        if r.sees_symbol(",") and not _overload_follows(r):
            r.place += 1
            continue
        break
    return r.since(first)


def _overload_follows(r: TokenReader) -> bool:
    if not (len(r.tokens) > r.place + 1 and r.tokens[r.place + 1].is_symbol("(")):
        return False
    depth = 0
    for n in range(r.place + 1, len(r.tokens)):
        depth += r.tokens[n].is_symbol("(") - r.tokens[n].is_symbol(")")
        if not depth:
            return n + 1 < len(r.tokens) and r.tokens[n + 1].is_word("as")
    return False


# ---------------------------------------------------------------- drop and comment


def drop_named(r: TokenReader) -> st.DropNamed:
    kind = r.name()
    kind = "macro" if kind.lower() == "function" else kind.lower()
    if kind == "macro" and r.take("table"):
        kind = "table macro"
    if_exists = r.take("if", "exists")
    name = r.table_name(f"the name of the {kind}")
    cascade = r.take("cascade")
    if not cascade:
        r.take("restrict")
    return st.DropNamed(kind, name, if_exists, cascade)


def comment(r: TokenReader) -> st.CommentOn:
    r.expect("comment")
    r.expect("on")
    what = r.here
    kind = r.name("TABLE, COLUMN, VIEW, INDEX, SEQUENCE, TYPE or MACRO").lower()
    kind = "macro" if kind == "function" else kind
    if kind == "macro" and r.take("table"):
        kind = "table macro"
    if kind not in ("table", "column", "view", "index", "sequence", "type", "macro", "table macro"):
        r.fail(
            f"COMMENT ON {kind.upper()} is not supported. There are TABLE, COLUMN, VIEW, INDEX, SEQUENCE, TYPE "
            "and MACRO.",
            what,
        )
    first = r.here
    parts = r.parts("a name")
    column = parts.pop() if kind == "column" else None
    if not 1 <= len(parts) <= 2:
        r.fail("A column is named `table.column` or `namespace.table.column`." if column else "Expected a name.", first)
    assert first is not None
    r.expect("is")
    text = None if r.take("null") else r.rest("the comment, a text")
    r.expect_end()
    return st.CommentOn(kind, TableName(parts[0] if len(parts) > 1 else None, parts[-1], first.start), column, text)
