"""How things are displayed: plain text in a terminal, HTML in a notebook.

All HTML of this package is made here, and every text in it, names and data alike, is escaped.  Displays are cut short:
a cell to its first characters, a table to its first rows, with a note that says so.  Nothing here reads from a lake,
and ``shown`` turns an error in a display into text: looking at something never raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from html import escape as _escape
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from indexlake.errors import IndexLakeError
from indexlake.types.outside import python_value
from indexlake.types.validity import TICKS_OF_DAY

if TYPE_CHECKING:
    from indexlake.schema import TableSchema

T = TypeVar("T")

CELL_CHARACTERS = 80
MOST_CHARACTERS = 200
"""The most characters of a value in a message."""
TABLE_ROWS = 100
FIRST_ROWS = 10
"""How many rows of a lazy result are read to show it in a notebook."""


def escape(value: object) -> str:
    """Return any value as text that is safe in HTML, in element content and in attributes."""
    return _escape(str(value), quote=True)


def cell(value: object) -> str:
    """Return a value as one short line of text: numbers with thousands separators, nothing for None."""
    if value is None:
        return ""
    if type(value) is int:
        return f"{value:,}"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="seconds")
    if type(value) is dict:
        value = ", ".join(f"{k}: {v}" for k, v in value.items())
    text = " ".join(str(value).split())
    return text if len(text) <= CELL_CHARACTERS else text[: CELL_CHARACTERS - 1] + "…"


def short(value: object) -> str:
    """Return a value for a message, as Python writes it; a long one is cut in the middle."""
    text = repr(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 40]} … {text[-20:]}"


def counted(count: int, noun: str) -> str:
    """Return ``1 row``, ``2 rows``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


# ---------------------------------------------------------------- HTML


def html_table(
    names: Sequence[str], rows: Iterable[Sequence[object]], *, caption: str | None = None, note: str | None = None
) -> str:
    """Return a table of at most ``TABLE_ROWS`` rows, with numbers aligned right.  ``note`` is a line below it."""
    found = list(islice(rows, TABLE_ROWS + 1))
    if len(found) > TABLE_ROWS:
        found = found[:TABLE_ROWS]
        note = " ".join(filter(None, [f"The first {TABLE_ROWS} rows.", note]))
    head = "".join(f'<th style="text-align: left">{escape(name)}</th>' for name in names)
    body = "".join(f"<tr>{''.join(map(_html_cell, row))}</tr>" for row in found)
    return (
        '<div class="indexlake">'
        + (f"<div><b>{escape(caption)}</b></div>" if caption else "")
        + f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        + (f"<div><small>{escape(note)}</small></div>" if note else "")
        + "</div>"
    )


def _html_cell(value: object) -> str:
    if value is None:
        return '<td style="opacity: 0.5">null</td>'
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return f'<td style="text-align: {"right" if number else "left"}">{escape(cell(value))}</td>'


def html_rows(data: pa.Table | pa.RecordBatch, *, caption: str | None = None, note: str | None = None) -> str:
    """Return Arrow rows as a table with each column's type.  All of the data is converted, so cut it first."""
    names = [f"{f.name}: {f.type}" for f in data.schema]
    return html_table(names, shown_rows(data), caption=caption, note=note)


def shown_rows(data: pa.Table | pa.RecordBatch) -> Iterable[tuple[Any, ...]]:
    """Return the rows as tuples of Python values, or of text if Python cannot represent a value."""
    columns = [[shown_value(value) for value in column] for column in data.columns]
    return zip(*columns, strict=True) if columns else iter([()] * data.num_rows)


def html_facts(caption: str, facts: Mapping[str, object], *, note: str | None = None) -> str:
    """Return names and values, one below the other."""
    return html_table(("", ""), [(name, value) for name, value in facts.items()], caption=caption, note=note)


def html_schema(schema: TableSchema, *, caption: str | None = None) -> str:
    """Return the columns of a table: types, whether null is allowed, defaults, the key."""
    keys = {f.field_id: place for place, f in enumerate(schema.key_fields, 1)}
    rows = [
        (
            f.name,
            str(f.type),
            "" if f.nullable else "not null",
            f.default_sql or ("" if f.default is None else repr(shown_value(f.codec.decode([f.default])[0]))),
            f"{keys[f.field_id]}" if f.field_id in keys else "",
        )
        for f in schema.fields
    ]
    return html_table(("column", "type", "null", "default", "key"), rows, caption=caption)


def html_text(text: str) -> str:
    """Return text whose lines and spaces matter, such as a plan or a chart made of characters."""
    return f'<div class="indexlake"><pre>{escape(text)}</pre></div>'


def shown(make: Callable[[], str]) -> str:
    """Return what ``make`` returns, or the error it raised, as HTML; for every ``_repr_html_`` that reads something."""
    try:
        return make()
    except IndexLakeError as error:
        return html_text(f"{type(error).__name__}: {error}")


# ---------------------------------------------------------------- text


def text_table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in plain text, with at most ``TABLE_ROWS`` rows."""
    found = list(islice(rows, TABLE_ROWS + 1))
    more = len(found) > TABLE_ROWS
    right = [
        bool(found) and all(isinstance(row[n], int | float | None) and row[n] is not None for row in found)
        for n in range(len(names))
    ]
    lines = [list(names), *([cell(value) for value in row] for row in found[:TABLE_ROWS])]
    widths = [max(len(line[n]) for line in lines) for n in range(len(names))]
    texts = [
        "  ".join(
            value.rjust(width) if at_right else value.ljust(width)
            for value, width, at_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    ]
    texts.insert(1, "  ".join("─" * width for width in widths))
    return "\n".join([*texts, f"… the first {TABLE_ROWS} rows"] if more else texts)


class Listing(list[T]):
    """A list of records that displays itself as a table; otherwise an ordinary list."""

    def _table(self) -> tuple[list[str], list[list[object]]]:
        first = self[0]
        assert is_dataclass(first), "a Listing holds dataclass records"
        names = [f.name for f in fields(first)]
        return names, [[getattr(record, name) for name in names] for record in self]

    def __repr__(self) -> str:
        return text_table(*self._table()) if self else "[]"

    def _repr_html_(self) -> str:
        return html_table(*self._table()) if self else html_text("(none)")


def shown_value(value: Any) -> Any:
    """Return an Arrow scalar as a Python value, or as text if Python cannot represent it."""
    shown = python_value(value)
    if shown is not value:
        return shown
    if not hasattr(value, "value"):  # a container with such a value
        return str(value.type)
    if pa.types.is_time(value.type):
        return _clock(value.value, value.type.unit)
    infinite = abs(value.value) == 2 ** (value.type.bit_width - 1) - 1
    return f"{'-' if value.value < 0 else ''}infinity" if infinite else f"{value.type} {value.value}"


def _clock(ticks: int, unit: str) -> str:
    """Return a time of day with all its digits."""
    per_second = TICKS_OF_DAY[unit] // 86_400
    seconds, fraction = divmod(ticks, per_second)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{clock}.{fraction:0{len(str(per_second)) - 1}}" if fraction else clock
