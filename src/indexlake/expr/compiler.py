"""From SQL text, a schema and parameters to a `Bound`, keeping what has been made.

A text is parsed once, a text and schema are bound once per set of parameter types, and only the values of
parameters are new.  The caches are bounded and shared by all threads.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import pyarrow as pa

from indexlake.errors import ExpressionError, MissingExtraError
from indexlake.expr import casts, constants
from indexlake.expr.bind import Binder, Slot
from indexlake.expr.bound import Bound, Template, named
from indexlake.expr.parse import Parsed, parse
from indexlake.expr.sqltype import INTEGERS, VARCHAR, SqlType, combine, normal

MAX_TEMPLATES = 1024

Parameters = Mapping[str, Any] | Sequence[Any] | None

# By the identity of the schema, which is kept alive so that its id stays its own; then by equality.
_whole: dict[tuple[str, int], tuple[pa.Schema, Bound]] = {}
_templates: dict[tuple[str, int, Any], tuple[pa.Schema, Template]] = {}
_equal: dict[tuple[str, pa.Schema, Any], Template] = {}
_lock = threading.Lock()


def compile(text: str, schema: pa.Schema, params: Parameters = None) -> Bound:
    """Bind SQL text to a schema and parameters: `$name` from a mapping, `$1` and `?` from a sequence.

    Raises `ExpressionError` for text that does not parse, unknown columns, wrong types and missing parameters.
    """
    if not params and isinstance(text, str):
        whole = _whole.get((text, id(schema)))
        if whole is not None and whole[0] is schema:
            return whole[1]
    parsed = parse(text)
    given = _given(parsed, params)
    key = (text, id(schema), tuple([constants.signature(value) for value in given]))
    known = _templates.get(key)
    template = known[1] if known is not None and known[0] is schema else _template(parsed, schema, given, key)
    bound = Bound(template, _values(template, given), tuple(given))
    if not given:
        with _lock:
            _bounded(_whole)
            _whole[(text, id(schema))] = schema, bound
    return bound


def _given(parsed: Parsed, params: Parameters) -> list[Any]:
    """The parameter values in the order in which the text names them."""
    names = parsed.parameters
    if isinstance(params, Mapping):
        try:
            values = [constants.plain(params[str(name)]) for name in names]
        except KeyError:
            missing = ", ".join(f"${name}" for name in names if str(name) not in params)
            _fail(parsed, f"parameter {missing} has no value; give params={{…}} with it")
        known = set(map(str, names))
        unused = [name for name in params if name not in known]
        if unused:
            _fail(parsed, f"parameter ${unused[0]} is given but not used")
        return values
    if params is None:
        params = ()
    if isinstance(params, (str, bytes)):
        _fail(parsed, "params is a mapping of names or a sequence of values, not text")
    for name in names:
        if isinstance(name, str):
            _fail(parsed, f'parameter ${name} has no value; give params={{"{name}": …}}')
        elif name > len(params):
            _fail(parsed, f"parameter ${name} has no value: {len(params)} given")
    highest = max((name for name in names if isinstance(name, int)), default=0)
    if len(params) > highest:
        _fail(parsed, f"{len(params)} parameters are given, but the text uses {highest}")
    return [constants.plain(params[int(name) - 1]) for name in names]


def _fail(parsed: Parsed, problem: str) -> NoReturn:
    raise ExpressionError(f"{problem} (in `{parsed.text}`)", text=parsed.text)


def _template(parsed: Parsed, schema: pa.Schema, given: list[Any], key: tuple[str, int, Any]) -> Template:
    found = _equal.get((parsed.text, schema, key[2]))
    if found is None or not found.schema.equals(schema):
        types = {name: _parameter_type(value) for name, value in zip(parsed.parameters, given, strict=True)}
        binder = Binder(parsed, schema, types)
        try:
            root = binder.root(parsed.tree)
        except RecursionError as error:
            raise ExpressionError(f"`{parsed.text[:200]}…` is nested too deeply", text=parsed.text) from error
        slots = tuple(binder.slots)
        literals = [None if slot.parameter is not None else _converted(slot, slot.value, parsed.text) for slot in slots]
        found = Template(parsed, schema, root, slots, tuple(literals))
    with _lock:
        _bounded(_equal)
        _equal[(parsed.text, schema, key[2])] = found
        _bounded(_templates)
        _templates[key] = schema, found
    return found


def _bounded(cache: dict[Any, Any]) -> None:
    if len(cache) >= MAX_TEMPLATES:
        for key in list(cache)[: MAX_TEMPLATES // 4]:
            del cache[key]


def _parameter_type(value: Any) -> SqlType | list[SqlType]:
    return _merged(constants.list_types(value)) if isinstance(value, list) else constants.typed(value)[0]


def _merged(types: list[SqlType]) -> list[SqlType]:
    """One type where the elements of a list agree on one."""
    if not types:
        return []
    first = types[0]
    for other in types[1:]:
        both = combine(first, other)
        if both is None:
            return types
        first = both
    return [first]


def _values(template: Template, given: list[Any]) -> tuple[Any, ...]:
    if not given:
        return template.literals
    names = template.parsed.parameters
    text = template.parsed.text
    values = list(template.literals)
    for index, slot in enumerate(template.slots):
        if slot.parameter is None:
            continue
        value = given[names.index(slot.parameter)]
        if isinstance(value, list):
            values[index] = _list_constant(slot, value, text)
        else:
            source, constant = constants.typed(value)
            done = len(slot.casts) == 1 and source == slot.target
            values[index] = constant if done else _converted(slot, constant, text)
    return tuple(values)


def _converted(slot: Slot, value: Any, text: str) -> Any:
    """A literal or parameter value as a constant of the type that the expression uses it in."""
    source = slot.source
    for target, lenient in slot.casts:
        value = _cast(slot, value, source, target, lenient, text)
        source = target
    return value


def _cast(slot: Slot, value: Any, source: SqlType, target: SqlType, lenient: bool, text: str) -> Any:
    try:
        return constants.convert(value, source, target)
    except constants.NotCovered:
        pass
    except ExpressionError as error:
        if lenient:
            return None
        raise named(error, text) from error
    scalar = constants.to_scalar(value, source)
    try:
        converted = casts.cast(scalar, normal(source), target, lenient)
    except (ExpressionError, MissingExtraError) as error:
        shown = f"'{value}'" if isinstance(value, str) else f"a constant of type {normal(source)}"
        role = f", the type of {slot.beside}" if slot.beside else ""
        hint = "; less usual spellings need DuckDB: pip install 'indexlake[sql]'"
        problem = f"{shown} cannot be read as {target}{role}"
        raise ExpressionError(
            f"{problem}{hint if isinstance(error, MissingExtraError) else ''} (in `{text}`)", text=text
        ) from error
    return constants.from_scalar(converted, target)


def _list_constant(slot: Slot, items: list[Any], text: str) -> tuple[Any, ...]:
    present = items if None not in items else [item for item in items if item is not None]
    kinds = set(map(type, present))
    if (kinds == {int} and slot.target.kind in INTEGERS) or (kinds == {str} and slot.target == VARCHAR):
        return tuple(present)  # the binder chose a type that holds them all
    converted = []
    for item in present:
        source, value = constants.typed(item)
        converted.append(_cast(slot, value, source, slot.target, False, text))
    return tuple(converted)


def rebuilt(text: str, schema: pa.Schema, params: dict[str, Any], names: dict[str, str]) -> Bound:
    bound = compile(text, schema, params or None)
    return bound.renamed(names) if names else bound
