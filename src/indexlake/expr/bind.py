"""Syntax tree + schema + parameter types -> typed tree.

Translates sqlglot's tree into the nodes that `Builder` makes.  Every unknown name or construct is refused here, with an
error that names it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import pyarrow as pa

from indexlake.errors import ExpressionError
from indexlake.expr import constants, functions, tree
from indexlake.expr.build import Builder, Leaf
from indexlake.expr.coercion import castable
from indexlake.expr.functions.times import MAKER_OF
from indexlake.expr.intervals import UNITS
from indexlake.expr.names import Names
from indexlake.expr.parse import Parsed, placeholder_key
from indexlake.expr.sqltype import (
    BOOL,
    DOUBLE,
    INTEGERS,
    INTERVAL,
    NULL,
    STRING_LITERAL,
    VARCHAR,
    SqlType,
    int_literal,
    list_of,
    normal,
    of_column,
)
from indexlake.expr.type_names import type_of
from indexlake.types.hugeint import LEAST, MOST

_NO_OVERLAP = "`&&` is not supported; between conditions write `and`"
_COMPARISONS = {"eq": "=", "neq": "<>", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
_ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "div": "/", "intdiv": "//", "mod": "%"}
_CALLS = {  # operators and special forms bound as functions of these parts, in this order
    "bitwiseand": ("&", ("this", "expression")),
    "bitwiseor": ("|", ("this", "expression")),
    "bitwiseleftshift": ("<<", ("this", "expression")),
    "bitwiserightshift": (">>", ("this", "expression")),
    "bitwisenot": ("~", ("this",)),
    "pow": ("power", ("this", "expression")),
    "abs": ("abs", ("this",)),
    "startswith": ("starts_with", ("this", "expression")),
    "regexplike": ("regexp_full_match", ("this", "expression")),
    "similarto": ("regexp_full_match", ("this", "expression")),
    "strposition": ("strpos", ("this", "substr")),
    "substring": ("substring", ("this", "start", "length")),
    "attimezone": ("timezone", ("zone", "this")),
    "currentdate": ("current_date", ()),
    "currenttimestamp": ("now", ()),
    "localtimestamp": ("localtimestamp", ()),
}
_TRIMS = {None: "trim", "": "trim", "BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}


class Binder:
    """Binds one parsed text to one schema for one set of parameter types.

    Methods such as `bind_paren` are named after the `key` of the syntax that they bind.
    """

    def __init__(
        self,
        parsed: Parsed,
        schema: pa.Schema,
        parameters: dict[int | str, SqlType | list[SqlType]],
        qualifiers: tuple[str, ...] = (),
    ) -> None:
        self.question_marks = parsed.question_marks
        self.schema = schema
        self.parameters = parameters
        self.names = Names(schema, qualifiers)
        self.build = Builder(parsed.text, functions.FUNCTIONS)

    def fail(self, problem: str) -> NoReturn:
        self.build.fail(problem)

    def root(self, syntax: Any, wanted: SqlType | None = None) -> tree.Node:
        """Bind the whole expression; if `wanted` is given, as a value for a column of that type."""
        node = self.bind(syntax)
        if wanted is None:
            return self.build.coerce(node, normal(node.type))
        if not castable(node.type, wanted):
            self.fail(f"the value is {normal(node.type)}, which a column of type {wanted} cannot take; add a cast")
        return self.build.coerce(node, wanted)

    def bind(self, syntax: Any) -> tree.Node:
        key = syntax.key
        if key in _COMPARISONS:
            if syntax.this.key in _COMPARISONS or syntax.expression.key in _COMPARISONS:
                if any(part.key == "arrayoverlaps" for part in syntax.walk()):
                    self.fail(_NO_OVERLAP)
                self.fail("comparisons are not chained; write `a < b and b < c`")
            return self.build.compare(_COMPARISONS[key], self.bind(syntax.this), self.bind(syntax.expression))
        if key == "arrayoverlaps":
            self.fail(_NO_OVERLAP)
        if key in _ARITHMETIC:
            return self.build.arithmetic(_ARITHMETIC[key], self.bind(syntax.this), self.bind(syntax.expression))
        if key in _CALLS:
            return self._named_call(syntax, *_CALLS[key])
        method: Callable[[Any], tree.Node] = getattr(self, f"bind_{key}", self._unsupported)
        return method(syntax)

    # -- names and constants -------------------------------------------------------------------------------

    def bind_paren(self, syntax: Any) -> tree.Node:
        return self.bind(syntax.this)

    def bind_column(self, syntax: Any) -> tree.Node:
        return self._path([part.name for part in syntax.parts], quoted=len(syntax.parts) == 1 and syntax.this.quoted)

    def _path(self, parts: list[str], *, quoted: bool = False) -> tree.Node:
        try:
            column, fields = self.names.find(parts)
        except ExpressionError as error:
            text = parts[0].replace("'", "''")
            hint = f". If it is text, write it in single quotes: '{text}'" if quoted else ""
            self.fail(f"{error}{hint}")
        node: tree.Node = tree.Column(column, of_column(self.schema.field(column)))
        for name in fields:
            node = self.build.field(node, name)
        return node

    def bind_dot(self, syntax: Any) -> tree.Node:
        parts = [syntax.expression.name]
        inner = syntax.this
        while inner.key == "dot":
            parts.append(inner.expression.name)
            inner = inner.this
        if inner.key == "column":  # a name of more than four parts
            return self._path([*(part.name for part in inner.parts), *reversed(parts)])
        node = self.bind(inner)
        for name in reversed(parts):
            node = self.build.field(node, name)
        return node

    def bind_literal(self, syntax: Any) -> tree.Node:
        if syntax.is_string:
            return Leaf(syntax.this, None, STRING_LITERAL)
        text = syntax.this
        if text.isdigit():
            value = int(text)
            if MOST < value < 2**128:
                self.fail(f"{text} is outside the range of HUGEINT; as a float it is {float(value)!r}")
            return Leaf(value, None, int_literal(value)) if value <= MOST else Leaf(float(value), None, DOUBLE)
        type, constant = constants.decimal_literal(text)
        return Leaf(constant, None, type)

    def bind_rawstring(self, syntax: Any) -> tree.Node:
        return Leaf(syntax.this, None, STRING_LITERAL)

    def bind_null(self, syntax: Any) -> tree.Node:
        return Leaf(None, None, NULL)

    def bind_boolean(self, syntax: Any) -> tree.Node:
        return Leaf(bool(syntax.this), None, BOOL)

    def bind_placeholder(self, syntax: Any) -> tree.Node:
        key = self._placeholder_key(syntax)
        type = self.parameters[key]
        if not isinstance(type, list):
            return Leaf(None, key, type)
        if len(type) > 1:
            self.fail(f"the elements of the list parameter ${key} have no common type")
        return Leaf(None, key, list_of(normal(type[0]) if type else NULL))

    def _placeholder_key(self, syntax: Any) -> int | str:
        key = placeholder_key(syntax)
        return self.question_marks[id(syntax)] if key is None else key

    def bind_interval(self, syntax: Any) -> tree.Node:
        """Bind `interval '1 month 2 days'`, `interval '1' month`, `interval 3 day` or `interval (x) hour`."""
        amount, unit = syntax.this, syntax.args.get("unit")
        if unit is None:
            if amount is None or not amount.is_string:
                self.fail("an interval needs a unit: `interval 3 day` or `interval '3 days'`")
            return Leaf(amount.this, None, STRING_LITERAL, ((INTERVAL, False),))
        name = UNITS.get(str(unit.name).lower())
        if name is None:
            self.fail(
                f"there is no interval unit {str(unit.name).lower()}; some are year, month, week, day, hour, second"
            )
        if amount.key == "literal":
            return Leaf(f"{amount.this} {name}", None, STRING_LITERAL, ((INTERVAL, False),))
        maker = MAKER_OF[name]
        types = self.build.functions[maker].signatures[0][0]
        count = self.bind(amount)
        if types[0] != DOUBLE and normal(count.type).kind not in INTEGERS:  # a fraction is cut off
            count = self.build.call("trunc", [self.build.cast(count, DOUBLE, False)])
        return self.build.call(maker, [self.build.cast(count, types[0], False)])

    # -- logic and comparisons -----------------------------------------------------------------------------

    def bind_and(self, syntax: Any) -> tree.Node:
        items = tuple(self.build.truth(self.bind(part)) for part in _flat(syntax))
        return tree.And(items) if syntax.key == "and" else tree.Or(items)

    bind_or = bind_and

    def bind_not(self, syntax: Any) -> tree.Node:
        return tree.Not(self.build.truth(self.bind(syntax.this)))

    def bind_neg(self, syntax: Any) -> tree.Node:
        if syntax.this.key == "literal" and not syntax.this.is_string and syntax.this.this == str(-LEAST):
            return Leaf(LEAST, None, int_literal(LEAST))
        node = self.bind(syntax.this)
        if isinstance(node, Leaf) and node.parameter is None and not node.casts:
            if node.source.literal is not None:
                return Leaf(-node.value, None, int_literal(-node.value))
            if node.source.kind in ("decimal", "double"):
                return Leaf(-node.value, None, node.source)
        return self.build.negation(node)

    def bind_is(self, syntax: Any) -> tree.Node:
        child, test = self.bind(syntax.this), syntax.expression
        if test.key == "null":
            return tree.IsNull(self.build.coerce(child, normal(child.type)))
        if test.key == "boolean":
            return tree.IsTruth(self.build.truth(child), bool(test.this))
        return self._unsupported(syntax)

    def bind_nullsafeeq(self, syntax: Any) -> tree.Node:
        sides = self.bind(syntax.this), self.bind(syntax.expression)
        return self.build.distinct(*sides, negated=syntax.key == "nullsafeeq")

    bind_nullsafeneq = bind_nullsafeeq

    def bind_between(self, syntax: Any) -> tree.Node:
        if syntax.args.get("symmetric"):
            self.fail("an expression does not support `between symmetric`")
        parts = (syntax.this, syntax.args["low"], syntax.args["high"])
        return self.build.between(*(self.bind(part) for part in parts))

    def bind_in(self, syntax: Any) -> tree.Node:
        child = self.bind(syntax.this)
        if syntax.args.get("query") is not None or syntax.args.get("unnest") is not None:
            self.fail("a subquery is not allowed here; read its rows first and bind them as a list parameter")
        field = syntax.args.get("field")
        if field is None and len(syntax.expressions) == 1 and self._is_list(syntax.expressions[0]):
            field = syntax.expressions[0]
        if field is None:
            return self.build.among(child, [self.bind(item) for item in syntax.expressions])
        if self._is_list(field):
            key = self._placeholder_key(field)
            elements = self.parameters[key]
            assert isinstance(elements, list)
            return self.build.among_parameter(child, key, elements)
        if field.key == "array" and field.expressions and all(item.key == "literal" for item in field.expressions):
            return self.build.among(child, [self.bind(item) for item in field.expressions])
        container = self.bind(field)
        if container.type.kind == "map":
            return self.build.call("map_contains", [container, child])
        if container.type.kind not in ("list", "array"):
            self.fail("`in` needs a list: `in (1, 2)`, a list column or a list parameter `in $ids`")
        return self.build.call("list_contains", [container, child])

    def _is_list(self, syntax: Any) -> bool:
        return syntax.key == "placeholder" and isinstance(self.parameters.get(self._placeholder_key(syntax)), list)

    def bind_escape(self, syntax: Any) -> tree.Node:
        like = syntax.this
        if like.key not in ("like", "ilike"):
            return self._unsupported(syntax)
        return self.bind_like(like, syntax.expression)

    def bind_like(self, syntax: Any, escape: Any = None) -> tree.Node:
        parts = [self.bind(syntax.this), self.bind(syntax.expression)]
        if escape is not None:
            parts.append(self.bind(escape))
        for part in parts:
            if part.type.kind not in ("varchar", "string_literal", "null"):
                self.fail(f"`like` needs text, not {part.type}; add a cast: `cast(… as varchar)`")
        texts = [self.build.coerce(part, VARCHAR) for part in parts]
        if escape is not None and isinstance(parts[2], Leaf) and len(parts[2].value or "") > 1:
            self.fail(f"the escape of `like` is one character or empty, not '{parts[2].value}'")
        like = tree.Like(texts[0], texts[1], texts[2] if escape is not None else None, syntax.key == "ilike")
        return tree.Not(like) if syntax.args.get("negate") else like

    bind_ilike = bind_like

    # -- values --------------------------------------------------------------------------------------------

    def bind_dpipe(self, syntax: Any) -> tree.Node:
        return self.build.concat(self.bind(syntax.this), self.bind(syntax.expression))

    def bind_case(self, syntax: Any) -> tree.Node:
        operand = syntax.this
        branches = []
        for branch in syntax.args["ifs"]:
            if operand is None:
                condition = self.build.truth(self.bind(branch.this))
            else:
                condition = self.build.compare("=", self.bind(operand), self.bind(branch.this))
            branches.append((condition, self.bind(branch.args["true"])))
        default = syntax.args.get("default")
        return self.build.case(branches, Leaf(None, None, NULL) if default is None else self.bind(default))

    def bind_cast(self, syntax: Any) -> tree.Node:
        node = self.bind(syntax.this)
        return self.build.cast(node, type_of(syntax.args["to"], self.fail), lenient=syntax.key == "trycast")

    bind_trycast = bind_cast

    def bind_bracket(self, syntax: Any) -> tree.Node:
        node = self.bind(syntax.this)
        if len(syntax.expressions) != 1:
            return self._unsupported(syntax)
        (index,) = syntax.expressions
        if index.key != "slice":
            return self.build.element(node, self.bind(index))
        first, last, step = index.this, index.args.get("expression"), index.args.get("step")
        bounds = [
            Leaf(1, None, int_literal(1)) if first is None else self.bind(first),
            Leaf(-1, None, int_literal(-1)) if last is None else self.bind(last),
        ]
        return self.build.call("list_slice", [node, *bounds, *([] if step is None else [self.bind(step)])])

    def bind_array(self, syntax: Any) -> tree.Node:
        return self.build.call("list_value", [self.bind(item) for item in syntax.expressions])

    def bind_struct(self, syntax: Any) -> tree.Node:
        names, values = self._entries(syntax)
        return self.build.struct([name.name for name in names], [self.bind(value) for value in values])

    def _entries(self, syntax: Any) -> tuple[list[Any], list[Any]]:
        if not syntax.expressions or any(entry.key != "propertyeq" for entry in syntax.expressions):
            self._unsupported(syntax)
        return [entry.this for entry in syntax.expressions], [entry.expression for entry in syntax.expressions]

    # -- calls ---------------------------------------------------------------------------------------------

    def bind_anonymous(self, syntax: Any) -> tree.Node:
        name = str(syntax.name).lower()
        if name == "struct_pack":
            return self.bind_struct(syntax)
        for argument in syntax.expressions:
            if argument.key in ("star", "distinct", "order", "lambda", "propertyeq"):
                self._unsupported(syntax)
        return self.build.call(name, [self.bind(argument) for argument in syntax.expressions])

    def _named_call(self, syntax: Any, name: str, places: tuple[str, ...]) -> tree.Node:
        for place, value in syntax.args.items():
            if value is not None and place not in places and hasattr(value, "key"):
                self._unsupported(syntax)
        given = [syntax.args.get(place) for place in places]
        return self.build.call(name, [self.bind(part) for part in given if part is not None])

    def bind_trim(self, syntax: Any) -> tree.Node:
        name = _TRIMS[syntax.args.get("position")]
        characters = syntax.args.get("expression")
        parts = [syntax.this, *([] if characters is None else [characters])]
        return self.build.call(name, [self.bind(part) for part in parts])

    def bind_extract(self, syntax: Any) -> tree.Node:
        part = Leaf(str(syntax.this.name), None, STRING_LITERAL)
        return self.build.call("date_part", [part, self.bind(syntax.expression)])

    def _unsupported(self, syntax: Any) -> NoReturn:
        what = {"subquery": "subqueries", "select": "subqueries"}
        shown = what.get(syntax.key) or f"`{syntax.sql(dialect='duckdb')}`"
        self.fail(f"an expression does not support {shown}")


def _flat(syntax: Any) -> list[Any]:
    """Return the operands of a chain of one logical operator, in order, without recursion."""
    parts: list[Any] = []
    pending = [syntax]
    while pending:
        part = pending.pop()
        if part.key == syntax.key:
            pending += (part.expression, part.this)
        else:
            parts.append(part)
    return parts
