"""Syntax tree + schema + parameter types -> typed tree.

Names match columns without regard to case.  Every wrong name, type or construct is refused here, with an error
that names it.  Casts that DuckDB adds silently are added explicitly, so evaluators need no type rules.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa

from indexlake.errors import ExpressionError
from indexlake.expr import constants, functions, overloads, tree
from indexlake.expr.parse import Parsed, placeholder_key
from indexlake.expr.sqltype import (
    BLOB,
    BOOL,
    DOUBLE,
    FLOATS,
    NULL,
    STRING_LITERAL,
    VARCHAR,
    SqlType,
    castable,
    combine,
    comparison_type,
    from_arrow,
    int_literal,
    normal,
)

Casts = tuple[tuple[SqlType, bool], ...]  # to which types, and whether leniently


@dataclass(frozen=True, slots=True)
class Slot:
    """How one constant comes about: a literal value or a parameter, of type `source`, and its casts."""

    value: Any
    parameter: int | str | None
    source: SqlType
    casts: Casts
    beside: str = ""  # what it is compared with, for errors

    @property
    def target(self) -> SqlType:
        return self.casts[-1][0]


@dataclass(frozen=True, slots=True, eq=False)
class Leaf(tree.Node):
    """A literal or parameter that no operator has given its final type yet; binder only."""

    value: Any
    parameter: int | str | None
    source: SqlType
    casts: Casts = ()

    @property
    def type(self) -> SqlType:
        return self.casts[-1][0] if self.casts else self.source


_COMPARISONS = {"eq": "=", "neq": "<>", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
_ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "div": "/", "intdiv": "//", "mod": "%"}

_TYPES = {
    "boolean": "bool",
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "bigint": "int64",
    "utinyint": "uint8",
    "usmallint": "uint16",
    "uint": "uint32",
    "ubigint": "uint64",
    "int128": "hugeint",
    "float": "float",
    "double": "double",
    "varchar": "varchar",
    "text": "varchar",
    "char": "varchar",
    "varbinary": "blob",
    "blob": "blob",
    "binary": "blob",
    "date": "date",
    "time": "time",
    "timestamp": "timestamp",
    "timestampntz": "timestamp",
    "datetime": "timestamp",
    "timestamp_s": "timestamp_s",
    "timestamp_ms": "timestamp_ms",
    "timestamp_ns": "timestamp_ns",
    "timestamptz": "timestamptz",
    "bpchar": "varchar",
    "nvarchar": "varchar",
    "time_ns": "time_ns",
}


class Binder:
    """Binds one parsed text to one schema for one set of parameter types."""

    def __init__(self, parsed: Parsed, schema: pa.Schema, parameters: dict[int | str, SqlType | list[SqlType]]):
        self.text = parsed.text
        self.question_marks = parsed.question_marks
        self.schema = schema
        self.parameters = parameters
        self.slots: list[Slot] = []
        self.columns = {name: name for name in schema.names}
        self.folded = {name.lower(): name for name in reversed(schema.names)}

    def fail(self, problem: str) -> NoReturn:
        raise ExpressionError(f"{problem} (in `{self.text}`)", text=self.text)

    def root(self, syntax: Any) -> tree.Node:
        node = self.bind(syntax)
        return self.coerce(node, normal(node.type))

    # -- constants -----------------------------------------------------------------------------------------

    def coerce(
        self, node: tree.Node, target: SqlType, lenient: bool = False, beside: tree.Node | None = None
    ) -> tree.Node:
        """The node as a value of another type: a constant converts at once, anything else gets a cast."""
        if not castable(node.type, target):
            self.fail(f"there is no cast from {_described(node)} to {target}")
        if isinstance(node, Leaf):
            other = "" if beside is None else _described(beside)
            casts = (*node.casts, (target, lenient))
            self.slots.append(Slot(node.value, node.parameter, node.source, casts, other))
            return tree.Constant(len(self.slots) - 1, target)
        if node.type == target:
            return node
        return tree.Cast(node, target, lenient)

    def truth(self, node: tree.Node) -> tree.Node:
        if not castable(node.type, BOOL):
            self.fail(f"{_described(node)} is neither true nor false; compare it with something")
        return self.coerce(node, BOOL)

    # -- syntax --------------------------------------------------------------------------------------------

    def bind(self, syntax: Any) -> tree.Node:
        key = syntax.key
        if key in _COMPARISONS:
            return self.compare(_COMPARISONS[key], self.bind(syntax.this), self.bind(syntax.expression))
        if key in _ARITHMETIC:
            return self.arithmetic(_ARITHMETIC[key], self.bind(syntax.this), self.bind(syntax.expression))
        method = _SYNTAX.get(key)
        return self.function(syntax) if method is None else method(self, syntax)

    def _paren(self, syntax: Any) -> tree.Node:
        return self.bind(syntax.this)

    def _column(self, syntax: Any) -> tree.Node:
        name = ".".join(part.name for part in syntax.parts)
        actual = self.columns.get(name) or self.folded.get(name.lower())
        if actual is None:
            near = difflib.get_close_matches(name.lower(), self.folded, 1, 0.5)
            hint = f'; did you mean "{self.folded[near[0]]}"?' if near else ""
            some = ", ".join(self.schema.names[:20]) + (", …" if len(self.schema.names) > 20 else "")
            self.fail(f'there is no column "{name}"{hint} The columns are: {some}')
        return tree.Column(actual, from_arrow(self.schema.field(actual).type))

    def _literal(self, syntax: Any) -> tree.Node:
        if syntax.is_string:
            return Leaf(syntax.this, None, STRING_LITERAL)
        text = syntax.this
        if text.isdigit():
            value = int(text)
            return (
                Leaf(value, None, int_literal(value)) if value < 10**38 else Leaf(float(value), None, SqlType("double"))
            )
        type, constant = constants.decimal_literal(text)
        return Leaf(constant, None, type)

    def _rawstring(self, syntax: Any) -> tree.Node:
        return Leaf(syntax.this, None, STRING_LITERAL)

    def _null(self, syntax: Any) -> tree.Node:
        return Leaf(None, None, NULL)

    def _boolean(self, syntax: Any) -> tree.Node:
        return Leaf(bool(syntax.this), None, BOOL)

    def _placeholder(self, syntax: Any) -> tree.Node:
        key = self._placeholder_key(syntax)
        type = self.parameters[key]
        if isinstance(type, list):
            self.fail(f"parameter {_shown(key)} is a list; a list is only allowed after `in`")
        return Leaf(None, key, type)

    def _placeholder_key(self, syntax: Any) -> int | str:
        key = placeholder_key(syntax)
        return self.question_marks[id(syntax)] if key is None else key

    def _and(self, syntax: Any) -> tree.Node:
        return tree.And(tuple(self.truth(self.bind(part)) for part in _flat(syntax)))

    def _or(self, syntax: Any) -> tree.Node:
        return tree.Or(tuple(self.truth(self.bind(part)) for part in _flat(syntax)))

    def _not(self, syntax: Any) -> tree.Node:
        return tree.Not(self.truth(self.bind(syntax.this)))

    def _neg(self, syntax: Any) -> tree.Node:
        node = self.bind(syntax.this)
        if isinstance(node, Leaf) and node.parameter is None and not node.casts:
            if node.source.literal is not None:
                return Leaf(-node.value, None, int_literal(-node.value))
            if node.source.kind in ("decimal", "double"):
                return Leaf(-node.value, None, node.source)
        if node.type.kind == "null":
            return node
        chosen = overloads.choose(overloads.NEGATION, (node.type,))
        if chosen is None:
            self.fail(f"`-` is not defined for {node.type}; add a cast")
        target = chosen[0][0]
        return tree.Negate(self.coerce(node, normal(node.type) if target.kind == "decimal" else target))

    def _is(self, syntax: Any) -> tree.Node:
        child, test = self.bind(syntax.this), syntax.expression
        if test.key == "null":
            return tree.IsNull(self.coerce(child, normal(child.type)))
        if test.key == "boolean":
            return tree.IsTruth(self.truth(child), bool(test.this))
        return self._unsupported(syntax)

    def _nullsafeeq(self, syntax: Any) -> tree.Node:
        return self._distinct(syntax, negated=True)

    def _nullsafeneq(self, syntax: Any) -> tree.Node:
        return self._distinct(syntax, negated=False)

    def _distinct(self, syntax: Any, negated: bool) -> tree.Node:
        left, right = self.bind(syntax.this), self.bind(syntax.expression)
        type = self.common(left, right, True, "compare")
        return tree.Distinct(self.coerce(left, type), self.coerce(right, type), negated)

    def _between(self, syntax: Any) -> tree.Node:
        child, low, high = (
            self.bind(syntax.this),
            self.bind(syntax.args["low"]),
            self.bind(syntax.args["high"]),
        )
        type = self.common(child, low, False, "compare")
        upper = comparison_type(type, high.type, False)
        if upper is None or upper.kind == "nested":
            self.fail(f"cannot compare {type} with {high.type}; add a cast")
        shared = self.coerce(child, upper)
        return tree.And(
            (
                tree.Compare(">=", shared, self.coerce(low, upper, beside=child)),
                tree.Compare("<=", shared, self.coerce(high, upper, beside=child)),
            )
        )

    def _in(self, syntax: Any) -> tree.Node:
        child = self.bind(syntax.this)
        if syntax.args.get("query") is not None or syntax.args.get("unnest") is not None:
            self.fail("a subquery is not allowed here; read its rows first and bind them as a list parameter")
        field = syntax.args.get("field")
        if field is None and len(syntax.expressions) == 1 and self._is_list(syntax.expressions[0]):
            field = syntax.expressions[0]
        if field is not None:
            if not self._is_list(field):
                self.fail("after `in` stands a list: `in (1, 2)` or a list parameter `in $ids`")
            return self._in_parameter(child, self._placeholder_key(field))
        items = [self.bind(item) for item in syntax.expressions]
        type = child.type
        for item in items:
            found = comparison_type(type, item.type, True)
            if found is None or found.kind == "nested":
                self.fail(f"cannot mix {child.type} and {item.type} in one `in` list; add a cast")
            type = found
        type = normal(type)
        return tree.In(self.coerce(child, type), tuple(self.coerce(item, type, beside=child) for item in items))

    def _is_list(self, syntax: Any) -> bool:
        return syntax.key == "placeholder" and isinstance(self.parameters.get(self._placeholder_key(syntax)), list)

    def _in_parameter(self, child: tree.Node, key: int | str) -> tree.Node:
        elements = self.parameters[key]
        assert isinstance(elements, list)
        type = child.type
        for element in elements:
            found = comparison_type(type, element, True)
            if found is None or found.kind == "nested":
                self.fail(f"cannot look for {child.type} in parameter {_shown(key)}, a list of {element}")
            type = found
        type = normal(type)
        self.slots.append(Slot(None, key, NULL, ((type, False),)))
        return tree.InList(self.coerce(child, type), tree.ConstantList(len(self.slots) - 1, type))

    def _like(self, syntax: Any) -> tree.Node:
        return self._match(syntax, None, False)

    def _ilike(self, syntax: Any) -> tree.Node:
        return self._match(syntax, None, True)

    def _escape(self, syntax: Any) -> tree.Node:
        like = syntax.this
        if like.key not in ("like", "ilike"):
            return self._unsupported(syntax)
        return self._match(like, syntax.expression, like.key == "ilike")

    def _match(self, syntax: Any, escape: Any, insensitive: bool) -> tree.Node:
        parts = [self.bind(syntax.this), self.bind(syntax.expression)]
        if escape is not None:
            parts.append(self.bind(escape))
        for part in parts:
            if part.type.kind not in ("varchar", "string_literal", "null"):
                self.fail(f"`like` needs text, not {part.type}; add a cast: `cast(… as varchar)`")
        texts = [self.coerce(part, VARCHAR) for part in parts]
        if escape is not None and isinstance(parts[2], Leaf) and len(parts[2].value or "") > 1:
            self.fail(f"the escape of `like` is one character or empty, not '{parts[2].value}'")
        node: tree.Node = tree.Like(texts[0], texts[1], texts[2] if escape is not None else None, insensitive)
        return tree.Not(node) if syntax.args.get("negate") else node

    def _dpipe(self, syntax: Any) -> tree.Node:
        left, right = self.bind(syntax.this), self.bind(syntax.expression)
        for side in (left, right):
            if side.type.kind == "nested" or side.type == BLOB:
                self.fail(f"`||` is not supported for {side.type}")
        return tree.Concat(self.coerce(left, VARCHAR), self.coerce(right, VARCHAR))

    def _case(self, syntax: Any) -> tree.Node:
        operand = syntax.this
        branches = []
        for branch in syntax.args["ifs"]:
            if operand is None:
                condition = self.truth(self.bind(branch.this))
            else:
                condition = self.compare("=", self.bind(operand), self.bind(branch.this))
            branches.append((condition, self.bind(branch.args["true"])))
        default = syntax.args.get("default")
        return self.case(branches, Leaf(None, None, NULL) if default is None else self.bind(default))

    def _if(self, syntax: Any) -> tree.Node:
        default = syntax.args.get("false")
        branch = (self.truth(self.bind(syntax.this)), self.bind(syntax.args["true"]))
        return self.case([branch], Leaf(None, None, NULL) if default is None else self.bind(default))

    def case(self, branches: list[tuple[tree.Node, tree.Node]], default: tree.Node) -> tree.Node:
        type = default.type
        for _, value in branches:
            found = combine(type, value.type)
            if found is None or found.kind == "nested":
                self.fail(f"the branches of `case` are {type} and {value.type}; add a cast")
            type = found
        type = normal(type)
        pairs = tuple((condition, self.coerce(value, type)) for condition, value in branches)
        return tree.Case(pairs, self.coerce(default, type), type)

    def _coalesce(self, syntax: Any) -> tree.Node:
        values = [self.bind(part) for part in (syntax.this, *syntax.expressions)]
        *firsts, last = values
        branches = []
        for value in firsts:
            present = tree.Not(tree.IsNull(self.coerce(value, normal(value.type))))
            branches.append((present, value))
        return self.case([(condition, value) for condition, value in branches], last)

    def _nullif(self, syntax: Any) -> tree.Node:
        left, right = self.bind(syntax.this), self.bind(syntax.expression)
        value = self.coerce(left, normal(left.type))
        return self.case([(self.compare("=", left, right), Leaf(None, None, NULL))], value)

    def _cast(self, syntax: Any, lenient: bool = False) -> tree.Node:
        node, target = self.bind(syntax.this), self.sql_type(syntax.args["to"])
        if not castable(node.type, target):
            self.fail(f"there is no cast from {_described(node)} to {target}")
        if isinstance(node, Leaf):
            return Leaf(node.value, node.parameter, node.source, (*node.casts, (target, lenient)))
        if node.type == target:
            return node
        return tree.Cast(node, target, lenient)

    def _trycast(self, syntax: Any) -> tree.Node:
        return self._cast(syntax, lenient=True)

    def sql_type(self, syntax: Any) -> SqlType:
        name = syntax.this.name.lower() if hasattr(syntax.this, "name") else str(syntax.this).lower()
        if name == "decimal":
            digits = [part.name for part in syntax.expressions] or ["18", "3"]
            width, scale = ((*map(int, digits), 0)[:2]) if all(map(str.isdigit, digits)) else (0, 0)
            if not (1 <= width <= 38 and 0 <= scale <= width):
                self.fail(f"DECIMAL({width},{scale}) is not a type; the width is 1 to 38, the scale at most the width")
            return SqlType("decimal", width, scale)
        if name not in _TYPES:
            self.fail(f"a cast to {syntax.sql(dialect='duckdb')} is not supported")
        return SqlType(_TYPES[name])

    # -- operators -----------------------------------------------------------------------------------------

    def common(self, left: tree.Node, right: tree.Node, equality: bool, verb: str) -> SqlType:
        type = comparison_type(left.type, right.type, equality)
        if type is None or "nested" in (left.type.kind, right.type.kind):
            self.fail(f"cannot {verb} {_described(left)} with {_described(right)}; add a cast")
        return normal(type)

    def compare(self, op: str, left: tree.Node, right: tree.Node) -> tree.Node:
        type = self.common(left, right, op in ("=", "<>"), "compare")
        return tree.Compare(op, self.coerce(left, type, beside=right), self.coerce(right, type, beside=left))

    def arithmetic(self, op: str, left: tree.Node, right: tree.Node) -> tree.Node:
        if left.type.kind == "null" and right.type.kind == "null":
            return left
        for side, other in ((left, right), (right, left)):
            if side.type.kind == "null" and other.type.kind == "decimal":
                return self.coerce(Leaf(None, None, NULL), other.type)
        types = overloads.arithmetic(op, left.type, right.type)
        if types is None:
            self.fail(f"`{op}` is not defined for {_described(left)} and {_described(right)}; add a cast")
        divisor = self.coerce(right, types[1])
        if op == "%" and types[2] == DOUBLE and not {left.type.kind, right.type.kind} & FLOATS:
            # Decimals too wide for DECIMAL: computed as DOUBLE, but a zero divisor still gives null.
            zero = tree.Compare("=", divisor, self.coerce(Leaf(0.0, None, DOUBLE), DOUBLE))
            divisor = tree.Case(((zero, self.coerce(Leaf(None, None, NULL), DOUBLE)),), divisor, DOUBLE)
        return tree.Arithmetic(op, self.coerce(left, types[0]), divisor, types[2])

    def function(self, syntax: Any) -> tree.Node:
        name = functions.name_of(syntax)
        if name is None:
            return self._unsupported(syntax)
        function = functions.FUNCTIONS.get(name)
        if function is None:
            near = difflib.get_close_matches(name, functions.FUNCTIONS, 1, 0.6)
            hint = f"; did you mean {near[0]}()?" if near else ""
            self.fail(f"there is no function {name}(){hint}")
        arguments = [self.bind(argument) for argument in functions.arguments_of(syntax)]
        chosen = function.choose(tuple(argument.type for argument in arguments))
        if chosen is None:
            given = ", ".join(str(argument.type) for argument in arguments)
            self.fail(f"{name}({given}) is not defined; {name} takes {function.usage}")
        types, result = chosen
        bound = tuple(self.coerce(argument, type) for argument, type in zip(arguments, types, strict=True))
        return tree.Call(name, bound, result)

    def _unsupported(self, syntax: Any) -> NoReturn:
        what = {"interval": "INTERVAL literals; bind a timedelta as a parameter", "subquery": "subqueries"}
        shown = what.get(syntax.key) or f"`{syntax.sql(dialect='duckdb')}`"
        self.fail(f"an expression does not support {shown}")


_SYNTAX: dict[str, Callable[[Binder, Any], tree.Node]] = {
    "paren": Binder._paren,
    "column": Binder._column,
    "literal": Binder._literal,
    "rawstring": Binder._rawstring,
    "null": Binder._null,
    "boolean": Binder._boolean,
    "placeholder": Binder._placeholder,
    "and": Binder._and,
    "or": Binder._or,
    "not": Binder._not,
    "neg": Binder._neg,
    "is": Binder._is,
    "nullsafeeq": Binder._nullsafeeq,
    "nullsafeneq": Binder._nullsafeneq,
    "between": Binder._between,
    "in": Binder._in,
    "like": Binder._like,
    "ilike": Binder._ilike,
    "escape": Binder._escape,
    "dpipe": Binder._dpipe,
    "case": Binder._case,
    "if": Binder._if,
    "coalesce": Binder._coalesce,
    "nullif": Binder._nullif,
    "cast": Binder._cast,
    "trycast": Binder._trycast,
    "interval": Binder._unsupported,
    "subquery": Binder._unsupported,
}


def _flat(syntax: Any) -> list[Any]:
    """The operands of a chain of one logical operator, in order, without recursion."""
    parts: list[Any] = []
    pending = [syntax]
    while pending:
        part = pending.pop()
        if part.key == syntax.key:
            pending += (part.expression, part.this)
        else:
            parts.append(part)
    return parts


def _shown(key: int | str) -> str:
    return f"${key}"


_SHOWN = ("int_literal", "string_literal", "bool", "double")


def _described(node: tree.Node) -> str:
    if isinstance(node, tree.Column):
        return f'column "{node.name}" ({node.type})'
    if isinstance(node, Leaf):
        if node.parameter is not None:
            return f"parameter {_shown(node.parameter)} ({normal(node.type)})"
        return f"{node.value!r} ({normal(node.type)})" if node.source.kind in _SHOWN else str(normal(node.type))
    return str(node.type)
