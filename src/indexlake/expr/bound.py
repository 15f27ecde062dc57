"""An expression bound to a schema and to parameter values, ready to run.

Immutable, except that it caches values derived from its constants; may be used by several threads at once.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from indexlake.arrow.values import FALSE
from indexlake.errors import ExpressionError
from indexlake.expr import constants, tree
from indexlake.expr.build import MOMENT, Slot
from indexlake.expr.coercion import castable
from indexlake.expr.conditions import Condition, condition, equalities
from indexlake.expr.evaluate import Evaluation, fallible
from indexlake.expr.fold import Computed, varies
from indexlake.expr.narrow import Members, Narrowed, members, narrow, sides
from indexlake.expr.parse import Parsed
from indexlake.expr.pushdown import push
from indexlake.expr.row import RowPlan
from indexlake.expr.sqltype import BOOL, INT_RANGE, NESTED_KINDS, SqlType, to_arrow
from indexlake.expr.test import Test
from indexlake.types import codec_of
from indexlake.types.outside import python_value


class Template:
    """A bound tree and how its constants are obtained; shared by every `Bound` with the same text, schema and types."""

    def __init__(
        self,
        parsed: Parsed,
        schema: pa.Schema,
        root: tree.Node,
        slots: tuple[Slot | Computed, ...],
        literals: tuple[Any, ...],
    ) -> None:
        self.parsed = parsed
        self.schema = schema
        self.origin: tuple[pa.Schema, dict[str, str]] = (schema, {})  # before columns were renamed, and their new names
        self.root = root
        self.slots = slots
        self.literals = literals  # values of the constants that need no parameters
        self.qualifiers: tuple[str, ...] = ()
        self.target: SqlType | None = None
        self.timed = any(slot.parameter == MOMENT for slot in slots)
        nested = root.type.kind == "nested" or root.type.kind in NESTED_KINDS
        self.type = schema.field(root.name).type if nested and isinstance(root, tree.Column) else to_arrow(root.type)
        if root.type.kind == "uuid":
            self.type = pa.uuid()
        self.is_condition = bool(pa.types.is_boolean(self.type) or pa.types.is_null(self.type))
        self.columns = frozenset(node.name for node in tree.walk(root) if isinstance(node, tree.Column))
        self.predicate: tree.Node | None = root if root.type == BOOL else None
        if self.predicate is None and not nested and castable(root.type, BOOL):
            self.predicate = tree.Cast(root, BOOL)
        self.constants = tree.constant_nodes(self.predicate or root)
        self.parameters = _parameters(parsed, slots)
        self.computed = tuple((n, s) for n, s in enumerate(slots) if isinstance(s, Computed) and varies(s.node, slots))
        stated = equalities(self.predicate, schema)
        self.equal = dict(stated)  # columns, and the slots of the constants they must equal
        self.equal_alone = _equal_alone(self.predicate, stated, schema)
        self.row: RowPlan | Literal[False] | None = None
        self.renamed: dict[Any, Template] = {}


class Bound:
    """One expression on one schema, with the values of its parameters.  Immutable."""

    __slots__ = ("_condition", "_given", "_members", "_moment", "_narrowed", "_row", "_scalars", "_template", "values")

    def __init__(
        self, template: Template, values: tuple[Any, ...], given: tuple[Any, ...] = (), moment: int | None = None
    ) -> None:
        self._template = template
        self._given = given
        self._moment = moment  # the value of `now()`
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
    def is_condition(self) -> bool:
        """Whether its values are true, false or unknown."""
        return self._template.is_condition

    @property
    def columns(self) -> frozenset[str]:
        return self._template.columns

    @property
    def root(self) -> tree.Node:
        return self._template.root

    @property
    def identity(self) -> tuple[object, bytes] | None:
        """An object and bytes, the same only for expressions with the same values; None if values change over time."""
        template = self._template
        return None if template.timed else (template, pickle.dumps(self.values))

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
        return same and self._template.schema.equals(other._template.schema, check_metadata=True)

    def __hash__(self) -> int:
        return hash((self.text, len(self.values)))

    def __reduce__(self) -> tuple[Any, ...]:
        from indexlake.expr.compiler import rebuilt

        schema, names = self._template.origin
        how = (self._template.qualifiers, self._template.target, self._moment)
        return rebuilt, (self.text, schema, self._parameters(), names, *how)

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

    def value_of(self, node: tree.Node) -> pa.Scalar:
        """Return the value of a tree without columns."""
        return Evaluation.of(_ONE_ROW, self).array(node)[0]

    def truth_of(self, node: tree.Node) -> bool | None:
        """Return the value of a predicate without columns."""
        truth = self.value_of(node).as_py()
        return None if truth is None else bool(truth)

    def column_type(self, name: str) -> pa.DataType:
        return self._template.schema.field(name).type

    # -- evaluation ----------------------------------------------------------------------------------------

    def evaluate(self, batch: pa.RecordBatch | pa.Table) -> pa.Array | pa.ChunkedArray:
        """Return the value for each row, with SQL's three-valued logic."""
        result = self._run(self._template.root, batch)
        return result if result.type == self.type else result.cast(self.type)

    def mask(self, batch: pa.RecordBatch | pa.Table) -> pa.BooleanArray:
        """Return which rows satisfy the predicate: true where it is true, false where it is false or unknown."""
        truth = self._run(self._predicate(), batch)
        if isinstance(truth, pa.ChunkedArray):
            truth = truth.combine_chunks()
        return pc.fill_null(truth, FALSE) if truth.null_count else truth

    def _predicate(self) -> tree.Node:
        predicate = self._template.predicate
        if predicate is None:
            kind = self._template.root.type
            raise ExpressionError(f"`{self.text}` is {kind}, which is neither true nor false", text=self.text)
        return predicate

    def _run(self, root: tree.Node, batch: pa.RecordBatch | pa.Table) -> pa.Array | pa.ChunkedArray:
        try:
            if isinstance(batch, pa.Table):
                parts = [Evaluation.of(part, self).array(root) for part in batch.to_batches()]
                type = self.type if root is self._template.root else pa.bool_()
                return pa.chunked_array(parts, parts[0].type if parts else type)
            return Evaluation.of(batch, self).array(root)
        except ExpressionError as error:
            raise named(error, self.text) from None

    @property
    def fallible(self) -> bool:
        """Whether evaluation may raise an error for some row."""
        return fallible(self._template.root)

    def evaluate_row(self, row: Mapping[str, Any]) -> Any:
        """Return the value for one row of Python values.  Raises ``ExpressionError`` if Python cannot represent it."""
        value = self.row_value(row)
        if isinstance(value, pa.Scalar):
            raise ExpressionError(
                f"`{self.text}` gives a value of type {value.type} that Python cannot hold", text=self.text
            )
        return value

    def row_value(self, row: Mapping[str, Any]) -> Any:
        """Return the value for one row of Python values, as an Arrow scalar if Python cannot represent it.

        It is computed in Python if that is exact, else on an Arrow batch of one row.
        """
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
                raise named(error, self.text) from None
        return python_value(self.evaluate(_one_row(template, row))[0])

    # -- pruning -------------------------------------------------------------------------------------------

    def test(self) -> Test:
        """Return a necessary condition for the predicate to be true for a row."""
        return self.condition().test

    def equal_to(self, names: tuple[str, ...]) -> list[Any] | None:
        """Return the values that these columns must equal, as in `test`, if the predicate states them all directly."""
        equal, values = self._template.equal, self.values
        try:
            return [values[equal[name]] for name in names]
        except KeyError:
            return None

    @property
    def equal_alone(self) -> frozenset[str] | None:
        """The columns for `equal_to`, if they are integers or texts and the predicate says nothing else; else None."""
        return self._template.equal_alone

    def condition(self) -> Condition:
        """Return the test, and whether every row that satisfies it also satisfies the predicate."""
        if self._condition is None:
            self._condition = condition(self._predicate(), True, self)
        return self._condition

    def vortex(self) -> tuple[Any, bool] | None:
        """Return a Vortex scan expression that drops only rows that cannot match, and whether it is exact."""
        return push(self.condition(), self._template.schema)

    def renamed(self, names: Mapping[str, str]) -> Bound:
        """Return the same expression with other column names; names that are not in the mapping stay."""
        return Bound(_renamed(self._template, names), self.values, self._given, self._moment)


_ONE_ROW = pa.record_batch({"": pa.nulls(1)})


def _equal_alone(
    predicate: tree.Node | None, equal: tuple[tuple[str, int], ...], schema: pa.Schema
) -> frozenset[str] | None:
    names = frozenset(name for name, _ in equal)
    parts = len(predicate.items) if isinstance(predicate, tree.And) else 1
    types = [schema.field(name).type for name in names]
    plain = all(pa.types.is_integer(type) or pa.types.is_string(type) for type in types)
    return names if plain and len(names) == len(equal) == parts else None


def _parameters(parsed: Parsed, slots: tuple[Slot | Computed, ...]) -> tuple[tuple[int, int, Slot, bool], ...]:
    """Return for each given parameter: slot number, place in the text, slot, whether integers need no cast."""
    places = {name: place for place, name in enumerate(parsed.parameters)}
    return tuple(
        (index, places[slot.parameter], slot, _takes_integers(slot))
        for index, slot in enumerate(slots)
        if isinstance(slot, Slot) and slot.parameter in places
    )


def _takes_integers(slot: Slot) -> bool:
    """Return whether every integer of the slot's source type also fits the types it is cast to."""
    # An integer parameter that is classed as a hugeint may have too many digits.
    if slot.source.kind not in INT_RANGE or slot.source.kind == "hugeint":
        return False
    low, high = INT_RANGE[slot.source.kind]
    ranges = [INT_RANGE.get(target.kind) for target, _ in slot.casts]
    return all(each is not None and each[0] <= low and high <= each[1] for each in ranges)


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
    arrays = [codec_of(field).array([row[field.name]]) for field in fields]
    return pa.RecordBatch.from_arrays(arrays, names)


def _renamed(template: Template, names: Mapping[str, str]) -> Template:
    key = tuple(sorted((name, names[name]) for name in template.columns if name in names))
    found = template.renamed.get(key)
    if found is None:
        used = [field for field in template.schema if field.name in template.columns]  # others may have the new names
        schema = pa.schema([f.with_name(names.get(f.name, f.name)) for f in used], template.schema.metadata)
        root = tree.renamed(template.root, dict(names))
        found = Template(template.parsed, schema, root, template.slots, template.literals)
        first, before = template.origin
        back = {now: name for name, now in before.items()}
        found.qualifiers, found.target = template.qualifiers, template.target
        found.origin = (first, {**before, **{back.get(name, name): now for name, now in key}})
        if len(template.renamed) >= 16:
            template.renamed.clear()
        template.renamed[key] = found
    return found


def named(error: ExpressionError, text: str) -> ExpressionError:
    if error.text is not None:
        return error
    return ExpressionError(f"{error} (in `{text}`)", text=text)
