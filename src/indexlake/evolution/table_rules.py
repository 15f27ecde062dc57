"""The rules of a new table: computed defaults, generated columns and checks, as users write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from indexlake.errors import SchemaError
from indexlake.expr.expression import Expression
from indexlake.expr.templates import check_rules, template_of, with_rule
from indexlake.schema import Field, TableSchema, unknown_column
from indexlake.schema.rules import Check

Checks = Mapping[str, str] | Sequence[str | tuple[str | None, str]]
"""Conditions by their names, or conditions with or without names."""


def split_defaults(defaults: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Expression]]:
    """Separate constant defaults from expressions that are computed for every row."""
    plain = {name: value for name, value in defaults.items() if not isinstance(value, Expression)}
    return plain, {name: value for name, value in defaults.items() if isinstance(value, Expression)}


def with_rules(
    table: str,
    fields: Sequence[Field],
    key: Sequence[int],
    defaults: Mapping[str, Expression],
    generated: Mapping[str, str],
    checks: Checks,
) -> tuple[list[Field], tuple[Check, ...]]:
    """Return the fields of a new table with their computed defaults and generated columns, and its checks."""
    if not defaults and not generated and not checks:
        return list(fields), ()
    places = {f.name.lower(): n for n, f in enumerate(fields)}
    found = list(fields)
    for given in (defaults, generated):
        for name in given:
            if name.lower() not in places:
                raise unknown_column(name, [f.name for f in fields])
    for name, expression in defaults.items():
        n = places[name.lower()]
        found[n] = replace(found[n], default_sql=default_text(found[n], expression))
    for name, text in generated.items():
        n = places[name.lower()]
        with_rule(f"Generated column {name!r}", lambda text=text: template_of(text, fields))  # type: ignore[misc]
        found[n] = replace(found[n], generated=template_of(text, fields))
    made: list[Check] = []
    named: Sequence[Any] = list(checks.items()) if isinstance(checks, Mapping) else checks
    pairs = [check if isinstance(check, tuple) else (None, check) for check in named]
    for number, (given_name, text) in enumerate(pairs):
        made.append(new_check(table, given_name, text, found, made, number))
    check_rules(TableSchema(found, key, made))
    return found, tuple(made)


def default_text(f: Field, expression: Expression) -> str:
    if expression.params:
        raise SchemaError(f"The default of column {f.name!r} is stored and has no parameters.", column=f.name)
    return expression.text


def new_check(
    table: str, name: str | None, text: str, fields: Sequence[Field], others: Sequence[Check], number: int = -1
) -> Check:
    """Return a check on these columns, with a name that no other check has."""
    if not isinstance(text, str):
        raise SchemaError(f'A check is a condition in SQL, such as "total >= 0", not {text!r}.')
    with_rule(f"Check {name or text!r}", lambda: template_of(text, fields))
    condition = template_of(text, fields)
    taken = {check.name.lower() for check in others}
    if name is None:
        names = "_".join(f.name for f in fields if f.field_id in _fields_of(condition.columns, fields))
        base = "_".join(filter(None, (table, names, "check")))
        name = next(n for n in (base, *(f"{base}{k}" for k in range(1, len(taken) + 2))) if n.lower() not in taken)
    if not isinstance(name, str) or not name.strip() or name.lower() in taken:
        problem = "There is one of that name already." if isinstance(name, str) and name.strip() else "It is empty."
        raise SchemaError(f"{name!r} cannot be the name of a check. {problem}")
    return Check(number, name, condition)


def _fields_of(numbers: frozenset[int], fields: Sequence[Field]) -> set[int]:
    from indexlake.expr.templates import root_of

    return {f.field_id for f in fields if root_of(f) in numbers}
