"""How ``indexlake sql`` prints a result.  JSON and CSV are streamed; a table on the screen is cut off."""

from __future__ import annotations

import sys
from itertools import islice

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from indexlake.cli.json_text import json_text
from indexlake.display import cell, counted
from indexlake.sql.run.result import SqlChange, SqlResult, SqlText


def print_result(console: Console, result: SqlResult, limit: int, form: str) -> None:
    if form == "json":
        _print_json(result)
    elif form == "csv":
        _print_csv(result)
    elif isinstance(result, SqlText) or (isinstance(result, SqlChange) and result.returned is None):
        console.print(repr(result).strip("<>"), highlight=False, markup=False)
    else:
        _print_table(console, result, limit)


def _print_json(result: SqlResult) -> None:
    """Print a JSON array, one row per line."""
    separator = "["
    for row in result:
        sys.stdout.write(f"{separator}\n  {json_text(row, indent=None)}")
        separator = ","
    sys.stdout.write("[]\n" if separator == "[" else "\n]\n")


def _print_csv(result: SqlResult) -> None:
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(result.columns)
    writer.writerows(["" if v is None else v for v in row] for row in result.tuples())


def _print_table(console: Console, result: SqlResult, limit: int) -> None:
    rows = list(islice(result.tuples(), limit + 1))
    table = RichTable()
    for n, name in enumerate(result.columns):
        numbers = all(isinstance(row[n], int | float | None) for row in rows) and bool(rows)
        table.add_column(escape(name), justify="right" if numbers else "left")
    for row in rows[:limit]:
        table.add_row(*(escape("NULL" if value is None else cell(value)) for value in row))
    console.print(table)
    if len(rows) > limit:
        console.print(
            f"… the first {counted(limit, 'row')}; --limit shows more, --csv and --json all.", highlight=False
        )
