"""From SQL text, a schema and parameters to a `Bound`, with caching.

A text is parsed once, and a text and schema are bound once per set of parameter types; only the values of parameters
are new.  The caches are bounded and shared by all threads.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NoReturn

import pyarrow as pa

from indexlake.display import counted
from indexlake.errors import ExpressionError, IndexLakeError, MissingExtraError
from indexlake.expr import casts, constants, tree
from indexlake.expr.bind import Binder
from indexlake.expr.bound import Bound, Template, named
from indexlake.expr.build import MOMENT, Builder, Leaf, Slot
from indexlake.expr.coercion import combine_all
from indexlake.expr.constant_casts import convert
from indexlake.expr.fold import Computed, fold, varies
from indexlake.expr.functions import FUNCTIONS
from indexlake.expr.moment import present, statement
from indexlake.expr.parse import Parsed, parse
from indexlake.expr.sqltype import INTEGERS, NULL, VARCHAR, SqlType, normal, of_column, quoted
from indexlake.expr.test import ColumnTest
from indexlake.types.hugeint import hugeints

MAX_TEMPLATES = 1024

Parameters = Mapping[str, Any] | Sequence[Any] | None

# By the schema's id (the schema is kept alive, so that its id stays unique), then by equality.
_whole: dict[tuple[str, int], tuple[pa.Schema, Bound]] = {}
_templates: dict[tuple[str, int, Any], tuple[pa.Schema, Template]] = {}
_equal: dict[tuple[str, pa.Schema, Any], Template] = {}
_lock = threading.Lock()


def compile(
    text: str,
    schema: pa.Schema,
    params: Parameters = None,
    *,
    qualifiers: tuple[str, ...] = (),
    target: SqlType | None = None,
) -> Bound:
    """Bind SQL text to a schema and parameters: `$name` from a mapping, `$1` and `?` from a sequence.

    With `qualifiers`, the columns of the schema are named "qualifier.column", and a column may be written without
    its qualifier where only one has it.  With `target`, the value is converted to what a column of that type holds
    (`of_column` gives it).
    Raises `ExpressionError` for text that does not parse, unknown columns, wrong types and missing parameters.
    """
    if not params and isinstance(text, str) and not qualifiers and target is None:
        whole = _whole.get((text, id(schema)))
        if whole is not None and whole[0] is schema:
            return whole[1]
    parsed = parse(text)
    given = _given(parsed, params)
    form = (qualifiers, target, *map(constants.signature, given))
    key = (text, id(schema), form)
    known = _templates.get(key)
    template = known[1] if known is not None and known[0] is schema else _template(parsed, schema, given, key)
    moment = present() if template.timed else None
    bound = Bound(template, _values(template, given, moment), tuple(given), moment)
    if not given and not qualifiers and target is None and not template.timed:
        with _lock:
            _bounded(_whole)
            _whole[(text, id(schema))] = schema, bound
    return bound


def satisfying(schema: pa.Schema, tests: Sequence[ColumnTest]) -> Bound:
    """Return the conjunction of column tests as a predicate, without parsing text.  Each test must have values."""
    given = [list(test.values) if test.op == "in" else test.values[0] for test in tests]
    names = tuple(f"v{n}" for n in range(len(tests)))
    text = " and ".join(f"{quoted(test.column)} {test.op} ${name}" for test, name in zip(tests, names, strict=True))
    build = Builder(text, FUNCTIONS)
    nodes = []
    for test, name, value in zip(tests, names, given, strict=True):
        column, type = tree.Column(test.column, of_column(schema.field(test.column))), _parameter_type(value)
        if isinstance(type, list):
            nodes.append(build.among_parameter(column, name, type))
        else:
            nodes.append(build.compare(test.op, column, Leaf(None, name, type)))
    root = nodes[0] if len(nodes) == 1 else tree.And(tuple(nodes))
    slots = tuple(build.slots)
    template = Template(Parsed(text, None, names, {}), schema, root, slots, (None,) * len(slots))
    return Bound(template, _values(template, given, None), tuple(given))


def _given(parsed: Parsed, params: Parameters) -> list[Any]:
    """Return the parameter values in the order in which the text names them."""
    names = parsed.parameters
    if isinstance(params, (dict, Mapping)):
        try:
            values = [constants.plain(params[str(name)]) for name in names]
        except KeyError:
            missing = ", ".join(f"${name}" for name in names if str(name) not in params)
            _fail(parsed, f"parameter {missing} has no value; give params={{…}} with it")
        if len(params) != len(names):
            known = set(map(str, names))
            unused = next(name for name in params if name not in known)
            _fail(parsed, f"parameter ${unused} is given but not used")
        return values
    if params is None:
        params = ()
    if isinstance(params, str | bytes) or not isinstance(params, Sequence):
        _fail(parsed, f"params must be a dict of names or a list of values, not {type(params).__name__}")
    for name in names:
        if isinstance(name, str):
            _fail(parsed, f'parameter ${name} has no value; give params={{"{name}": …}}')
        elif name > len(params):
            _fail(parsed, f"parameter ${name} has no value: {len(params)} given")
    highest = max((name for name in names if isinstance(name, int)), default=0)
    if len(params) > highest:
        _fail(parsed, f"{counted(len(params), 'parameter')} given, but the text uses {highest}")
    return [constants.plain(params[int(name) - 1]) for name in names]


def _fail(parsed: Parsed, problem: str) -> NoReturn:
    raise ExpressionError(f"{problem} (in `{parsed.text}`)", text=parsed.text) from None


def _template(parsed: Parsed, schema: pa.Schema, given: list[Any], key: tuple[str, int, Any]) -> Template:
    form = (*key[2], hugeints(schema))
    found = _equal.get((parsed.text, schema, form))
    if found is None or not found.schema.equals(schema):
        try:
            found = _bound(parsed, schema, given, *key[2][:2])
        except RecursionError:
            raise ExpressionError(f"`{parsed.text[:200]}…` is nested too deeply", text=parsed.text) from None
    with _lock:
        _bounded(_equal)
        _equal[(parsed.text, schema, form)] = found
        _bounded(_templates)
        _templates[key] = schema, found
    return found


def _bound(
    parsed: Parsed, schema: pa.Schema, given: list[Any], qualifiers: tuple[str, ...], target: SqlType | None
) -> Template:
    types = {name: _parameter_type(value) for name, value in zip(parsed.parameters, given, strict=True)}
    binder = Binder(parsed, schema, types, qualifiers)
    root = binder.root(parsed.tree, target)
    slots: list[Slot | Computed] = [*binder.build.slots]
    literals = [
        None if slot.parameter is not None else _converted(slot, slot.value, parsed.text) for slot in binder.build.slots
    ]
    given_slots = tuple(slots)
    unfolded = root

    @cache
    def plain() -> Bound:
        return Bound(Template(parsed, schema, unfolded, given_slots, tuple(literals)), tuple(literals))

    def raises(node: tree.Node) -> bool:
        if varies(node, slots):
            return False
        try:
            plain().value_of(node)
        except IndexLakeError:
            return True
        return False

    root = fold(root, slots, raises)
    for slot in slots[len(given_slots) :]:
        assert isinstance(slot, Computed)
        literals.append(None if varies(slot.node, slots) else _computed(slot, plain(), parsed.text))
    template = Template(parsed, schema, root, tuple(slots), tuple(literals))
    template.qualifiers, template.target = qualifiers, target
    return template


def _computed(slot: Computed, bound: Bound, text: str) -> Any:
    """Return the value of a part of the expression without columns."""
    try:
        return constants.from_scalar(bound.value_of(slot.node), slot.target)
    except ExpressionError as error:
        raise named(error, text) from None


def _bounded(cache: dict[Any, Any]) -> None:
    if len(cache) >= MAX_TEMPLATES:
        for key in list(cache)[: MAX_TEMPLATES // 4]:
            del cache[key]


def _parameter_type(value: Any) -> SqlType | list[SqlType]:
    if not isinstance(value, list):
        return constants.typed(value)[0]
    types = constants.list_types(value)
    one = combine_all(types) if types else None  # if the elements of a list have a common type
    return types if one is None else [one]


def _values(template: Template, given: list[Any], moment: int | None) -> tuple[Any, ...]:
    if not given and moment is None:
        return template.literals
    text = template.parsed.text
    values = list(template.literals)
    for index, place, slot, takes_integers in template.parameters:
        value = given[place]
        if takes_integers and type(value) is int:
            values[index] = value
        elif isinstance(value, list) and slot.source == NULL:  # the list searched by `in $list`
            values[index] = _list_constant(slot, value, text)
        else:
            source, constant = constants.typed(value)
            done = len(slot.casts) == 1 and source == slot.target
            values[index] = constant if done else _converted(slot, constant, text, source)
    if template.timed:
        for index, each in enumerate(template.slots):
            if isinstance(each, Slot) and each.parameter == MOMENT:
                values[index] = _converted(each, moment, text)
    if template.computed:
        partial = Bound(template, tuple(values))
        for index, part in template.computed:
            values[index] = _computed(part, partial, text)
    return tuple(values)


def _converted(slot: Slot, value: Any, text: str, source: SqlType | None = None) -> Any:
    """Convert a literal or parameter value to the type in which the expression uses it.

    ``source`` is the type of this value if it differs from the one that the slot was made for.
    """
    source = source or slot.source
    for target, lenient in slot.casts:
        value = _cast(slot, value, source, target, lenient, text) if source != target else value
        source = target
    return value


def _cast(slot: Slot, value: Any, source: SqlType, target: SqlType, lenient: bool, text: str) -> Any:
    try:
        return convert(value, source, target)
    except constants.NotCovered:
        pass
    except ExpressionError as error:
        if lenient:
            return None
        raise named(error, text) from None
    scalar = constants.to_scalar(value, source)
    try:
        converted = casts.cast(scalar, normal(source), target, lenient)
    except (ExpressionError, MissingExtraError) as error:
        shown = f"'{value}'" if isinstance(value, str) else f"a constant of type {normal(source)}"
        role = f", the type of {slot.beside}" if slot.beside else ""
        hint = "; less usual spellings need DuckDB: pip install 'indexlake[sql]'"
        reason = "" if isinstance(value, str) or isinstance(error, MissingExtraError) else f": {error}"
        problem = f"{shown} cannot be read as {target}{role}{reason}"
        raise ExpressionError(
            f"{problem}{hint if isinstance(error, MissingExtraError) else ''} (in `{text}`)", text=text
        ) from None
    return constants.from_scalar(converted, target)


def _list_constant(slot: Slot, items: list[Any], text: str) -> tuple[Any, ...]:
    present = items if None not in items else [item for item in items if item is not None]
    kinds = set(map(type, present))
    if (kinds == {int} and slot.target.kind in INTEGERS) or (kinds == {str} and slot.target == VARCHAR):
        return tuple(present)  # the binder chose a type that holds them all
    typed = map(constants.typed, present)
    return tuple(_cast(slot, value, source, slot.target, False, text) for source, value in typed)


def rebuilt(
    text: str,
    schema: pa.Schema,
    params: dict[str, Any],
    names: dict[str, str],
    qualifiers: tuple[str, ...],
    target: SqlType | None,
    moment: int | None,
) -> Bound:
    """Recreate a pickled expression, with the moment it had then."""
    with statement(moment):
        bound = compile(text, schema, params or None, qualifiers=qualifiers, target=target)
    return bound.renamed(names) if names else bound
