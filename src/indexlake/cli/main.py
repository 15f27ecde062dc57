"""``indexlake``: the command line.  Mirrors the Python interface; every listing has ``--json``."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table as RichTable

from indexlake.errors import IndexLakeError

app = typer.Typer(
    help="A lakehouse table you can write to one row at a time.", no_args_is_help=True, pretty_exceptions_enable=False
)
console = Console()
Lake = Annotated[str, typer.Argument(help="A lake: a folder or a postgresql:// address.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def demo(
    folder: Annotated[
        Path | None, typer.Argument(help="Where to make the demo lake; a temporary folder if left out.")
    ] = None,
    rows: Annotated[int, typer.Option(help="Rows to load in bulk.", min=1)] = 200_000,
) -> None:
    """Rows go in, are found, updated, moved to columnar files, and queried as of any moment."""
    from indexlake.cli.demo import run

    run(console, folder, rows)


@app.command()
def tables(lake: Lake, as_json: AsJson = False) -> None:
    """List tables and where their rows live."""
    with _open(lake) as opened:
        stats = [opened.table(name).stats() for name in opened.tables()]
    _show(
        [
            {
                "table": s.table,
                "rows": s.rows,
                "hot": s.hot_rows,
                "blocks": s.blocks,
                "in blocks": s.block_rows - s.deleted_in_blocks,
                "bytes": s.bytes,
            }
            for s in stats
        ],
        as_json,
    )


@app.command()
def scan(
    lake: Lake,
    table: Annotated[str, typer.Argument(help="namespace.table")],
    where: Annotated[str | None, typer.Option(help="A predicate in SQL.")] = None,
    limit: Annotated[int, typer.Option(help="At most so many rows.")] = 20,
    at: Annotated[int | None, typer.Option(help="A past snapshot.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print rows of a table."""
    with _open(lake) as opened:
        found = opened.table(table)
        view = found if at is None else found.at(at)
        _show(view.scan(where, limit=limit).to_pylist(), as_json)


@app.command()
def explain(
    lake: Lake, table: str, where: Annotated[str | None, typer.Option(help="A predicate in SQL.")] = None
) -> None:
    """Say which blocks a scan reads and why."""
    with _open(lake) as opened:
        console.print(str(opened.table(table).scan(where).explain()), highlight=False)


@app.command()
def history(lake: Lake, table: str, as_json: AsJson = False) -> None:
    """List the commits that changed a table."""
    with _open(lake) as opened:
        _show([asdict(s) for s in opened.table(table).history()], as_json)


@app.command()
def jobs(lake: Lake, as_json: AsJson = False) -> None:
    """List background jobs."""
    with _open(lake) as opened:
        _show([asdict(j) for j in opened.jobs()], as_json)


@app.command()
def dump(lake: Lake, table: Annotated[str | None, typer.Argument(help="One table; all if left out.")] = None) -> None:
    """Move hot rows to columnar blocks."""
    with _open(lake) as opened:
        for name, result in opened.pipeline().dump(table).items():
            console.print(f"{name}: {result.rows:,} rows in {result.blocks} blocks, {result.bytes:,} bytes")


@app.command()
def expire(lake: Lake, table: Annotated[str | None, typer.Argument(help="One table; all if left out.")] = None) -> None:
    """Drop history older than the retention."""
    with _open(lake) as opened:
        for name, result in opened.pipeline().expire(table).items():
            console.print(f"{name}: history from snapshot {result.horizon} on, {result.blocks_dropped} blocks dropped")


def main() -> NoReturn:
    """Run the command; an error of ours is one line, not a traceback."""
    try:
        app()
    except IndexLakeError as error:
        Console(stderr=True).print(f"[red]{type(error).__name__}[/red]: {error}", highlight=False)
        sys.exit(1)
    sys.exit(0)


def _open(address: str) -> Any:
    import indexlake

    return indexlake.connect(address, create=False)


def _show(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print(json.dumps(rows, default=_plain, indent=2))
        return
    if not rows:
        console.print("(none)")
        return
    table = RichTable()
    for name in rows[0]:
        table.add_column(name, justify="right" if isinstance(rows[0][name], int | float) else "left")
    for row in rows:
        table.add_row(*(f"{v:,}" if type(v) is int else "" if v is None else str(v) for v in row.values()))
    console.print(table)


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else str(value)
