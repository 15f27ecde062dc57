"""UUIDs in a query for Spark, where they are text in lower case with dashes.

Whatever is compared with a UUID, or cast to one, is converted to that spelling, so that comparing the texts compares
the UUIDs; texts in that spelling also sort like UUIDs.  UUIDs are recognised by column names, followed through aliases.
If a name is a UUID in one place and something else in another, it needs a cast or is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

import pyarrow as pa
from sqlglot import exp

from indexlake.schema import Field
from indexlake.types.uuids import is_uuid, uuid_bytes

_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Nullif)
_SAME_TYPE = (
    exp.Paren, exp.Alias, exp.Coalesce, exp.Min, exp.Max, exp.AnyValue, exp.First, exp.Last, exp.FirstValue,
    exp.LastValue, exp.Lag, exp.Lead, exp.Window, exp.Nullif, exp.Greatest, exp.Least, exp.Filter, exp.Distinct,
)  # fmt: skip
"""Expressions with the type of their first argument."""

_HEX = "[0-9a-fA-F-]*"
_SPARK_UUID = f"^([{{]{_HEX}[}}]|{_HEX})$"  # no backslash, whose meaning depends on a setting of Spark
_PARTS = "^(.{8})(.{4})(.{4})(.{4})(.{12})$"


class UuidText:
    def __init__(
        self,
        tree: exp.Expression,
        columns: Sequence[Field],
        values: Mapping[str, Any],
        error: Callable[[str], Exception],
    ) -> None:
        self._tree, self._values, self._error = tree, values, error
        kinds = [pair for f in columns for pair in _named(f.name, f.type)]
        self._names = {name for name, uuid in kinds if uuid}
        self._others = {name for name, uuid in kinds if not uuid}
        self._find_aliases()

    def rewrite(self) -> None:
        """Rewrite the tree in place."""
        for node in list(self._tree.find_all(*_COMPARISONS)):
            if self._is_uuid(node.this):
                self._respell(node.this, [node.expression])
            elif self._is_uuid(node.expression):
                self._respell(node.expression, [node.this])
        for node in list(self._tree.find_all(exp.Between)):
            parts = [node.this, node.args["low"], node.args["high"]]
            known = [part for part in parts if self._is_uuid(part)]
            if known:
                self._respell(known[0], [part for part in parts if part not in known])
        for node in list(self._tree.find_all(exp.In)):
            self._rewrite_in(node)
        for node in list(self._tree.find_all(exp.Case)):
            if node.this is not None and self._is_uuid(node.this):
                self._respell(node.this, [branch.this for branch in node.args["ifs"]])
        while cast := next(filter(_is_cast, self._tree.find_all(exp.Cast)), None):
            cast.replace(self._canonical(cast.this, tried=isinstance(cast, exp.TryCast)))

    def _rewrite_in(self, node: exp.In) -> None:
        if not self._is_uuid(node.this):
            return
        query = node.args.get("query")
        if query is None:
            self._respell(node.this, node.expressions)
        elif not self._is_uuid(query):
            raise self._error(
                f"{node.this.sql('duckdb')} is a UUID, which is text in Spark, and is looked for in a query whose "
                "column may be something else. Cast that column to uuid."
            )

    def _find_aliases(self) -> None:
        """Find the names that the query itself gives to UUIDs."""
        aliases = list(self._tree.find_all(exp.Alias))
        found = -1
        while found != len(self._names):
            found = len(self._names)
            self._names |= {a.alias.lower() for a in aliases if self._is_uuid(a.this)}
        self._others |= {a.alias.lower() for a in aliases if not self._is_uuid(a.this)}
        if self._names and (renamed := next((a for a in self._tree.find_all(exp.TableAlias) if a.columns), None)):
            raise self._error(
                f"{renamed.sql('duckdb')} renames columns, some of which may be UUIDs, which are text in Spark. Name "
                "them with AS in the query itself."
            )

    def _is_uuid(self, node: Any) -> bool:
        if isinstance(node, exp.Column | exp.Dot):
            return node.name.lower() in self._names
        if isinstance(node, exp.Bracket):
            return self._is_uuid(node.this)
        if isinstance(node, exp.Cast):
            return _is_cast(node)
        if isinstance(node, exp.Subquery | exp.Select):
            shown = node.selects
            return len(shown) == 1 and (isinstance(shown[0], exp.Star) or self._is_uuid(shown[0]))
        if isinstance(node, exp.Case):
            return any(
                self._is_uuid(part) for part in [*(b.args["true"] for b in node.args["ifs"]), node.args["default"]]
            )
        if isinstance(node, exp.If):
            return self._is_uuid(node.args["true"]) or self._is_uuid(node.args.get("false"))
        if isinstance(node, _SAME_TYPE):
            first = node.expressions if isinstance(node, exp.Distinct) else [node.this]
            more = node.expressions if isinstance(node, exp.Coalesce | exp.Greatest | exp.Least) else []
            return any(self._is_uuid(part) for part in [*first, *more])
        return False

    def _respell(self, uuid: exp.Expression, others: Sequence[exp.Expression]) -> None:
        for other in others:
            if self._is_uuid(other) or isinstance(other, exp.Null):
                continue
            new = self._canonical(other)
            name = uuid.name.lower()
            if isinstance(uuid, exp.Column) and name in self._others and new != other:
                raise self._error(
                    f"The column {uuid.name!r} is a UUID in one part of the query and something else in another, and "
                    f"UUIDs are text in Spark. Write {uuid.sql('duckdb')}::uuid if it is the UUID, ::varchar if not."
                )
            other.replace(new)

    def _canonical(self, node: exp.Expression, *, tried: bool = False) -> exp.Expression:
        """Return the text in canonical spelling."""
        inner = node.unnest()
        if isinstance(inner, exp.Null):
            return inner.copy()
        if isinstance(inner, exp.Literal) and inner.is_string:
            return self._spelt(inner.this, tried)
        if isinstance(inner, exp.Placeholder | exp.Parameter):
            value = self._values[inner.name]
            if isinstance(value, UUID):
                return inner.copy()
            return exp.Null() if value is None else self._spelt(value, tried)
        return _canonical_in_spark(node, tried)

    def _spelt(self, text: Any, tried: bool) -> exp.Expression:
        found = uuid_bytes(text) if isinstance(text, str) else None
        if found is not None:
            return exp.Literal.string(str(UUID(bytes=found)))
        if tried:
            return exp.Null()
        raise self._error(f"{text!r} is not a UUID: give 32 hexadecimal digits.")


def _is_cast(node: exp.Cast) -> bool:
    return bool(node.to.this == exp.DataType.Type.UUID)


def _named(name: str, type: pa.DataType) -> Iterator[tuple[str, bool]]:
    """Yield the names of a column and its parts, and whether each is a UUID."""
    t = pa.types
    if t.is_dictionary(type):
        type = type.value_type
    if t.is_struct(type):
        for index in range(type.num_fields):
            yield from _named(type.field(index).name, type.field(index).type)
    elif t.is_map(type):
        yield from _named(name, type.item_type)
    elif t.is_list(type) or t.is_large_list(type) or t.is_fixed_size_list(type):
        yield from _named(name, type.value_type)
    else:
        yield name.lower(), is_uuid(type)


def _canonical_in_spark(node: exp.Expression, tried: bool) -> exp.Expression:
    """Return an expression that does the same to text known only to Spark; other types are left to Spark."""
    call, text = exp.Anonymous, exp.Literal.string
    digits = call(this="regexp_replace", expressions=[node.copy(), text("[-{}]"), text("")])
    right = exp.and_(
        call(this="regexp_like", expressions=[node.copy(), text(_SPARK_UUID)]),
        exp.EQ(this=call(this="length", expressions=[digits]), expression=exp.Literal.number(32)),
    )
    lower = call(this="lower", expressions=[digits.copy()])
    spelt = call(this="regexp_replace", expressions=[lower, text(_PARTS), text("$1-$2-$3-$4-$5")])
    wrong = call(this="concat", expressions=[text("not a UUID: "), node.copy()])
    otherwise = exp.Null() if tried else call(this="raise_error", expressions=[wrong])
    null = exp.Is(this=exp.paren(node.copy()), expression=exp.Null())
    return exp.Case(ifs=[exp.If(this=null, true=exp.Null()), exp.If(this=right, true=spelt)], default=otherwise)
