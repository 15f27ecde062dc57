"""An expression bound to a schema and to parameter values, ready to run.

`compile` keeps what it has made: a text is parsed once, a text and schema bound once, and only the values of
parameters are new.  Everything here may be used by several threads at once.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from indexlake.errors import ExpressionError, MissingExtraError
from indexlake.expr import casts, conditions, constants, tree
from indexlake.expr.bind import Binder, Slot
from indexlake.expr.conditions import Condition
from indexlake.expr.evaluate import Evaluation
from indexlake.expr.narrow import Members, Narrowed, members, narrow, sides
from indexlake.expr.parse import Parsed, parse
from indexlake.expr.pushdown import ArrowDialect, VortexDialect, push
from indexlake.expr.row import RowPlan
from indexlake.expr.sqltype import BOOL, INTEGERS, VARCHAR, SqlType, castable, combine, normal, to_arrow
from indexlake.expr.test import Test

MAX_TEMPLATES = 1024

Parameters = Mapping[str, Any] | Sequence[Any] | None


class Template:
    """A bound tree and how its constants come about; shared by every `Bound` of the text, schema and types."""

    __slots__ = (
        "columns",
        "constants",
        "literals",
        "origin",
        "parsed",
        "predicate",
        "renamed",
        "root",
        "row",
        "schema",
        "slots",
        "type",
    )

    def __init__(self, parsed: Parsed, schema: pa.Schema, root: tree.Node, slots: list[Slot]) -> None:
        self.parsed = parsed
        self.schema = schema
        self.origin: tuple[pa.Schema, dict[str, str]] = (schema, {})  # before columns were renamed, and how
        self.root = root
        self.slots = tuple(slots)
        nested = root.type.kind == "nested"  # only a column by itself
        self.type = schema.field(root.name).type if nested and isinstance(root, tree.Column) else to_arrow(root.type)
        self.columns = frozenset(node.name for node in tree.walk(root) if isinstance(node, tree.Column))
        self.predicate: tree.Node | None = root if root.type == BOOL else None
        if self.predicate is None and castable(root.type, BOOL):
            self.predicate = tree.Cast(root, BOOL)
        self.constants = tree.constant_nodes(self.predicate or root)
        self.literals = tuple(
            _converted(slot, slot.value, parsed.text) if slot.parameter is None else None for slot in slots
        )
        self.row: RowPlan | Literal[False] | None = None
        self.renamed: dict[Any, Template] = {}


class Bound:
    """One expression on one schema with the values of its parameters.  Immutable."""

    __slots__ = ("_condition", "_given", "_members", "_narrowed", "_row", "_scalars", "_template", "values")

    def __init__(self, template: Template, values: tuple[Any, ...], given: tuple[Any, ...] = ()) -> None:
        self._template = template
        self._given = given
        self.values = values
        self._scalars: dict[int, pa.Scalar] = {}
        self._members: dict[int, tuple[Members, pa.Array]] = {}
        self._narrowed: dict[int, Narrowed | None] = {}
        self._condition: Condition | None = None
        self._row: Any = None

    @property
    def text(self) -> str:
        return self._template.parsed.text

    @property
    def type(self) -> pa.DataType:
        return self._template.type

    @property
    def columns(self) -> frozenset[str]:
        return self._template.columns

    @property
    def root(self) -> tree.Node:
        return self._template.root

    def __repr__(self) -> str:
        params = self._parameters()
        return f"Bound({self.text!r}, {params!r})" if params else f"Bound({self.text!r})"

    def _parameters(self) -> dict[str, Any]:
        names = self._template.parsed.parameters
        return {str(name): value for name, value in zip(names, self._given, strict=True)}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Bound):
            return NotImplemented
        same = self.text == other.text and self.values == other.values
        return same and self._template.schema.equals(other._template.schema)

    def __hash__(self) -> int:
        return hash((self.text, self.values))

    def __reduce__(self) -> tuple[Any, ...]:
        schema, names = self._template.origin
        return _rebuilt, (self.text, schema, self._parameters(), names)

    # -- constants, for the evaluators ---------------------------------------------------------------------

    def scalar(self, slot: int) -> pa.Scalar:
        found = self._scalars.get(slot)
        if found is None:
            found = self._scalars[slot] = constants.to_scalar(self.values[slot], self._template.slots[slot].target)
        return found

    def members(self, node: tree.Node, child: tree.Node, source: int | list[int]) -> tuple[Members, pa.Array]:
        found = self._members.get(id(node))
        if found is None:
            values = self.values[source] if isinstance(source, int) else [self.values[slot] for slot in source]
            made = members(child, list(values))
            found = self._members[id(node)] = made, made.array()
        return found

    def narrowed(self, node: tree.Compare) -> Narrowed | None:
        key = id(node)
        try:
            return self._narrowed[key]
        except KeyError:
            turned = sides(node)
            found = None if turned is None else narrow(turned[0], turned[1], self.values[turned[2].slot])
            self._narrowed[key] = found
            return found

    def is_constant(self, node: tree.Node) -> bool:
        return id(node) in self._template.constants

    def truth_of(self, node: tree.Node) -> bool | None:
        """The value of a predicate without columns."""
        truth = Evaluation.of(_ONE_ROW, self).array(node)[0].as_py()
        return None if truth is None else bool(truth)

    def column_type(self, name: str) -> pa.DataType:
        return self._template.schema.field(name).type

    # -- evaluation ----------------------------------------------------------------------------------------

    def evaluate(self, batch: pa.RecordBatch | pa.Table) -> pa.Array | pa.ChunkedArray:
        """The value for each row, with SQL's three-valued logic."""
        result = self._run(self._template.root, batch)
        return result if result.type == self.type else result.cast(self.type)

    def mask(self, batch: pa.RecordBatch | pa.Table) -> pa.BooleanArray:
        """Which rows satisfy the predicate: true only where it is true, false where it is false or unknown."""
        truth = self._run(self._predicate(), batch)
        if isinstance(truth, pa.ChunkedArray):
            truth = truth.combine_chunks()
        return pc.fill_null(truth, False) if truth.null_count else truth

    def _predicate(self) -> tree.Node:
        predicate = self._template.predicate
        if predicate is None:
            kind = self._template.root.type
            raise ExpressionError(f"`{self.text}` is {kind}, which is neither true nor false", text=self.text)
        return predicate

    def _run(self, root: tree.Node, batch: pa.RecordBatch | pa.Table) -> pa.Array | pa.ChunkedArray:
        try:
            if isinstance(batch, pa.Table):
                type = BOOL_ARROW if root is self._template.predicate else self.type
                parts = [Evaluation.of(part, self).array(root) for part in batch.to_batches()]
                if any(part.type != type for part in parts):
                    type = parts[0].type
                return pa.chunked_array(parts, type)
            return Evaluation.of(batch, self).array(root)
        except ExpressionError as error:
            raise _named(error, self.text) from error

    def evaluate_row(self, row: Mapping[str, Any]) -> Any:
        """The value for one row of Python values; in Python where it can do it exactly, else on one Arrow row."""
        template = self._template
        plan = template.row
        if plan is None:
            plan = template.row = _row_plan(template)
        if plan is not False:
            try:
                k = self._row
                if k is None:
                    k = self._row = plan.constants(self.values)
                return plan.function(row, k)
            except constants.NotCovered:
                pass
            except ExpressionError as error:
                raise _named(error, self.text) from error
        return self.evaluate(_one_row(template, row))[0].as_py()

    # -- pruning -------------------------------------------------------------------------------------------

    def test(self) -> Test:
        """What a row must satisfy for the predicate to be true of it."""
        return self.condition().test

    def condition(self) -> Condition:
        """The test, and whether every row that satisfies it also satisfies the predicate."""
        if self._condition is None:
            self._condition = conditions.true(self._predicate(), self)
        return self._condition

    def vortex(self) -> tuple[Any, bool] | None:
        """A Vortex scan expression that drops only rows that cannot match, and whether it is exact."""
        return push(self.condition(), self._template.schema, VortexDialect())

    def parquet(self) -> tuple[pc.Expression, bool] | None:
        """An Arrow filter expression that drops only rows that cannot match, and whether it is exact."""
        return push(self.condition(), self._template.schema, ArrowDialect())

    def renamed(self, names: Mapping[str, str]) -> Bound:
        """The same expression on other column names; names that are not in the mapping stay."""
        return Bound(_renamed(self._template, names), self.values, self._given)


_ONE_ROW = pa.record_batch({"": pa.nulls(1)})


def _row_plan(template: Template) -> RowPlan | Literal[False]:
    try:
        return RowPlan(template.root, [slot.target for slot in template.slots])
    except constants.NotCovered:
        return False


def _one_row(template: Template, row: Mapping[str, Any]) -> pa.RecordBatch:
    if not template.columns:
        return _ONE_ROW
    names = sorted(template.columns)
    fields = [template.schema.field(name) for name in names]
    arrays = [pa.array([row[field.name]], field.type) for field in fields]
    return pa.RecordBatch.from_arrays(arrays, names)


def _renamed(template: Template, names: Mapping[str, str]) -> Template:
    key = tuple(sorted((name, names[name]) for name in template.columns if name in names))
    found = template.renamed.get(key)
    if found is None:
        schema = pa.schema(
            [field.with_name(names.get(field.name, field.name)) for field in template.schema],
            template.schema.metadata,
        )
        root = tree.renamed(template.root, dict(names))
        found = Template(template.parsed, schema, root, list(template.slots))
        first, before = template.origin
        back = {now: name for name, now in before.items()}
        found.origin = (first, {**before, **{back.get(name, name): now for name, now in key}})
        if len(template.renamed) >= 16:
            template.renamed.clear()
        template.renamed[key] = found
    return found


def _rebuilt(text: str, schema: pa.Schema, params: dict[str, Any], names: dict[str, str]) -> Bound:
    bound = compile(text, schema, params or None)
    return bound.renamed(names) if names else bound


def _named(error: ExpressionError, text: str) -> ExpressionError:
    if error.text is not None:
        return error
    return ExpressionError(f"{error} (in `{text}`)", text=text)


# -- constants ---------------------------------------------------------------------------------------------


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
        raise _named(error, text) from error
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


# -- compile -----------------------------------------------------------------------------------------------

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


def _fail(parsed: Parsed, problem: str) -> Any:
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
        found = Template(parsed, schema, root, binder.slots)
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
