"""Where the values of a column come from in row versions and files that are older than the column.

They are taken from the field that the column replaced, through the recorded steps, and so on back along the line.  A
column that replaced no other has its default there.  In a version or file that is not older than the column, the value
is the column's own, even if it is null.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from copy import copy
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from indexlake.errors import ConstraintError
from indexlake.schema.field_steps import Widen, repeated
from indexlake.types import SqlValue

if TYPE_CHECKING:
    from indexlake.schema import Field

Column = Sequence[SqlValue]
_NEVER = 1 << 63


def line(f: Field) -> Iterable[Field]:
    """Yield the field and those before it that hold its older values, nearest first."""
    found: Field | None = f
    while found is not None:
        yield found
        found = found.source


# ---------------------------------------------------------------- hot rows


class HeldColumns:
    """Which columns of hot row versions some fields are read from, and how."""

    def __init__(self, fields: Iterable[Field]) -> None:
        self.fields = tuple(fields)
        self.direct = not any(f.since for f in self.fields)  # whether each field is read from its current column
        self._all_held_from = max((f.since for f in self.fields), default=0)
        names = [f.column for f in self.fields]
        if not self.direct:
            names += [g.column for f in self.fields for g in line(f) if g is not f and not g.released]
        self.columns = tuple(dict.fromkeys(names))
        self._place = {name: n for n, name in enumerate(self.columns)}

    def only(self, fields: Iterable[Field]) -> HeldColumns:
        """Return the same columns, but for only some of the fields."""
        some = copy(self)
        some.fields = tuple(fields)
        if some.fields != self.fields:
            some.direct, some._all_held_from = False, _NEVER
        return some

    def values(self, begins: Sequence[int], columns: Sequence[Column]) -> Sequence[Column]:
        """Return the encoded values of each field, given ``columns`` and the snapshots in which the rows began."""
        if self.direct:
            return columns
        if min(begins) >= self._all_held_from:
            return columns[: len(self.fields)]
        return [_values(f, begins, lambda g: columns[self._place[g.column]]) for f in self.fields]

    def row(self, begin: int, values: Sequence[SqlValue]) -> tuple[SqlValue, ...]:
        """Return the encoded values of one row."""
        if self.direct or begin >= self._all_held_from:
            return tuple(values[: len(self.fields)])
        return tuple(column[0] for column in self.values([begin], [[value] for value in values]))


def _values(f: Field, begins: Sequence[int], held: Callable[[Field], Column]) -> Column:
    older = [n for n, begin in enumerate(begins) if begin < f.since] if f.since else []
    if not older:
        return held(f)
    filled: Column
    if f.source is None:
        filled = [f.older] * len(older)
    else:
        some = _values(f.source, [begins[n] for n in older], lambda g: _picked(held(g), older))
        filled = f.codec.encode(f.derived(f.source.codec.decode(some)))
    if len(older) == len(begins):
        return filled
    values = list(held(f))
    for n, value in zip(older, filled, strict=True):
        values[n] = value
    return values


def _picked(column: Column, places: Sequence[int]) -> Column:
    return [column[n] for n in places]


# ---------------------------------------------------------------- files


def held_by(f: Field, file: Container[int]) -> Field | None:
    """Return the nearest field of the line that a file holds; ``file``: the ids of its fields."""
    for g in line(f):
        if g.field_id in file:
            return g
    return None


def file_columns(fields: Iterable[Field], file: Container[int]) -> list[str]:
    """Return the columns of a file from which the fields are read."""
    found = (held_by(f, file) for f in fields)
    return list(dict.fromkeys(g.column for g in found if g is not None))


def older_tests(f: Field, op: str, values: tuple[Any, ...]) -> list[tuple[Field, tuple[Any, ...]]]:
    """Return the earlier fields on which a test of a column means the same, with the values to test for."""
    found: list[tuple[Field, tuple[Any, ...]]] = []
    while f.source is not None:
        if op not in ("is null", "is not null"):
            widened = all(isinstance(step, Widen) and not step.place for step in f.steps)
            converted = [_narrowed(f.source, value) for value in values]
            if not widened or None in converted:
                break
            values = tuple(converted)
        found.append((f.source, values))
        f = f.source
    return found


def _narrowed(f: Field, value: Any) -> Any:
    """Return the value in the type before a column was widened; None if there is none, or it is not known."""
    try:
        if pa.types.is_integer(f.type) and isinstance(value, Decimal | float) and value.as_integer_ratio()[1] == 1:
            value = int(value)
        same = f.codec.decode_one(f.codec.encode_one(value))
    except (ConstraintError, ValueError, OverflowError):  # also NaN and infinities, which are not fractions
        return None
    return value if type(same) is type(value) and same == value else None


def file_values(f: Field, columns: Mapping[str, Any], count: int) -> Any:
    """Return the values of a field in ``count`` rows of a file, given the columns named by ``file_columns``."""
    held = columns.get(f.column)
    if held is not None:
        return held
    if f.source is None:
        return repeated(f.type, f.older, count)
    return f.derived(file_values(f.source, columns, count))


def file_value(f: Field, row: Mapping[str, Any]) -> Any:
    """Return the value of a field in one row of Python values."""
    if f.column in row:
        return row[f.column]
    if f.source is None:
        return f.codec.decode_one(f.older)
    return f.derived(f.source.codec.array([file_value(f.source, row)]))[0].as_py()
