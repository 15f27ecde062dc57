"""Functions that choose among their arguments.  They become `case`, so that what is not chosen is not computed."""

from __future__ import annotations

from indexlake.expr import tree
from indexlake.expr.build import Builder, Leaf
from indexlake.expr.functions.function import Function
from indexlake.expr.sqltype import NULL, normal


def _coalesce(builder: Builder, arguments: list[tree.Node]) -> tree.Node:
    *firsts, last = arguments
    branches = [(tree.Not(tree.IsNull(builder.coerce(value, normal(value.type)))), value) for value in firsts]
    return builder.case(branches, last)


def _nullif(builder: Builder, arguments: list[tree.Node]) -> tree.Node:
    left, right = arguments
    return builder.case(
        [(builder.compare("=", left, right), Leaf(None, None, NULL))], builder.coerce(left, normal(left.type))
    )


def _if(builder: Builder, arguments: list[tree.Node]) -> tree.Node:
    default = arguments[2] if len(arguments) == 3 else Leaf(None, None, NULL)
    return builder.case([(builder.truth(arguments[0]), arguments[1])], default)


# fmt: off
FUNCTIONS = (
    Function("coalesce", "values", "the first that is not null", arity=(1, None), expand=_coalesce),
    Function(
        "ifnull", "value, value", "the first, or the second where the first is null", arity=(2, 2), expand=_coalesce
    ),
    Function("nullif", "value, value", "the first, or null where it equals the second", arity=(2, 2), expand=_nullif),
    Function(
        "if", "condition, value[, value]", "the second where the condition is true, else the third", arity=(2, 3),
        expand=_if, synonyms=("iff",),
    ),
)
# fmt: on
