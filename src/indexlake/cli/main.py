"""``indexlake``: the command line.  It mirrors the Python interface, and every listing has ``--json``."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from indexlake.cli import pipeline
from indexlake.cli.hints import in_command_line
from indexlake.cli.json_text import json_text
from indexlake.cli.opening import open_lake
from indexlake.cli.spark import start as start_spark
from indexlake.display import cell, counted
from indexlake.errors import IndexLakeError
from indexlake.storage import environment

app = typer.Typer(name="indexlake", no_args_is_help=True, pretty_exceptions_enable=False)
app.add_typer(pipeline.app, name="pipeline")
console = Console()
Lake = Annotated[str, typer.Argument(help="A lake: a folder or a postgresql:// address.")]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print JSON; NaN, infinities, bytes (base64), times and durations are strings.")
]
OneTable = Annotated[str, typer.Argument(help="namespace.table")]


def _version(wanted: bool) -> None:
    if wanted:
        import indexlake

        print(f"indexlake {indexlake.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """A lakehouse table you can write to one row at a time."""


@app.command()
def demo(
    folder: Annotated[
        Path | None, typer.Argument(help="Where to create the demo lake; by default a temporary folder.")
    ] = None,
    rows: Annotated[int, typer.Option(help="Rows to load in bulk.", min=1)] = 200_000,
) -> None:
    """A tour: rows go in, are found, updated, queried, and moved to columnar files on Spark."""
    from indexlake.cli.demo import run

    run(console, folder, rows)


@app.command()
def tables(lake: Lake, as_json: AsJson = False) -> None:
    """List tables and where their rows are."""
    with open_lake(lake, reading=True) as opened:
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
    table: OneTable,
    where: Annotated[str | None, typer.Option(help="A predicate in SQL.")] = None,
    limit: Annotated[int, typer.Option(help="Maximum number of rows.", min=0)] = 20,
    at: Annotated[int | None, typer.Option(help="A past snapshot.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print rows of a table."""
    with open_lake(lake, reading=True) as opened:
        found = opened.table(table)
        view = found if at is None else found.at(at)
        rows = view.scan(where, limit=limit + 1).to_pylist()
        _show(rows[:limit], as_json, null="NULL")
        if len(rows) > limit:
            print(f"… the first {counted(limit, 'row')}; --limit shows more", file=sys.stderr)


@app.command()
def explain(
    lake: Lake,
    table: OneTable,
    where: Annotated[str | None, typer.Option(help="A predicate in SQL.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show which blocks a scan reads, and why."""
    with open_lake(lake, reading=True) as opened:
        found = opened.table(table).scan(where).explain()
        print(json_text(found) if as_json else found)


@app.command()
def indexes(lake: Lake, table: OneTable, as_json: AsJson = False) -> None:
    """List the indexes of a table with their coverage, size and state."""
    with open_lake(lake, reading=True) as opened:
        found = [asdict(info) for info in opened.table(table).indexes()]
        if not as_json:
            joined = ("columns", "include")
            found = [
                {k: ", ".join(v) if k in joined else v for k, v in info.items() if k != "params"} for info in found
            ]
        _show(found, as_json)


@app.command()
def stats(lake: Lake, table: OneTable, as_json: AsJson = False) -> None:
    """Show where the rows of a table are and, for a clustered table, how even its partitions are."""
    with open_lake(lake, reading=True) as opened:
        found = opened.table(table).stats()
        print(json_text(found) if as_json else found)


@app.command()
def partitions(
    lake: Lake,
    table: OneTable,
    at: Annotated[int | None, typer.Option(help="A past snapshot.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the partitions of a clustered table with their keys, rows and files."""
    with open_lake(lake, reading=True) as opened:
        whole = opened.table(table)
        found = (whole if at is None else whole.at(at)).partitions()
        print(json_text(found) if as_json else found)


@app.command()
def search(
    lake: Lake,
    table: OneTable,
    by: Annotated[str, typer.Argument(help="An index, or a column that has a search index.")],
    query: Annotated[str, typer.Argument(help="Text, or a JSON list for a vector or a point.")],
    k: Annotated[int, typer.Option("-k", help="How many rows to find.", min=0)] = 10,
    where: Annotated[str | None, typer.Option(help="A predicate in SQL.")] = None,
    at: Annotated[int | None, typer.Option(help="A past snapshot.")] = None,
    columns: Annotated[str | None, typer.Option(help="The columns to print, separated by commas.")] = None,
    snippet: Annotated[bool, typer.Option("--snippet", help="Show where the words of a text search are.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the best matches from an index: text, vectors or places."""
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    with open_lake(lake, reading=True) as opened:
        found = opened.table(table)
        view = found if at is None else found.at(at)
        rows = view.search(by, _query(query), k, where=where, columns=names, snippet=snippet).to_pylist()
        _show(rows, as_json, null="NULL")


def _query(text: str) -> Any:
    if not text.lstrip().startswith("["):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r} is not a JSON list: {error}. Write a vector or a point as [1.5, 2], and text that begins with a "
            "bracket in quotes: '\"[late]\"'."
        ) from None


@app.command()
def load(
    lake: Annotated[
        str, typer.Argument(help="A lake: a folder or a postgresql:// address. Created if it does not exist.")
    ],
    table: Annotated[str, typer.Argument(help="namespace.table; created from the files if it does not exist.")],
    files: Annotated[list[str], typer.Argument(help="Files, folders, or patterns in quotes.")],
    primary_key: Annotated[
        list[str] | None, typer.Option(help="A primary key column, for a new table; may be repeated.")
    ] = None,
    format: Annotated[
        str | None, typer.Option(help="parquet, csv, json (lines) or arrow; by default, the file suffix decides.")
    ] = None,
    delimiter: Annotated[str | None, typer.Option(help="CSV: the character between values.")] = None,
    header: Annotated[bool, typer.Option(help="CSV: whether the first row holds the column names.")] = True,
    null: Annotated[list[str] | None, typer.Option(help="CSV: a value that means null; may be repeated.")] = None,
    mode: Annotated[
        Literal["append", "overwrite", "upsert"],
        typer.Option(help="Add the rows, replace all rows by them, or upsert them by primary key."),
    ] = "append",
    as_json: AsJson = False,
) -> None:
    """Load files into a table, in one commit."""
    import indexlake

    source = indexlake.files(files, format, delimiter=delimiter, header=header, null=null or "")
    source.list()  # what is not there makes no lake
    with open_lake(lake, create=True) as opened:
        from indexlake.cli.load import run

        _show([asdict(run(opened, table, source, primary_key or [], mode))], as_json)


@app.command()
def backup(
    lake: Lake,
    folder: Annotated[str, typer.Argument(help="A new or empty folder, or one with an earlier backup of this lake.")],
    as_json: AsJson = False,
) -> None:
    """Copy a lake to a folder while it is in use; files that an earlier backup has copied are not copied again."""
    with open_lake(lake, automatic=False) as opened:
        result = opened.backup(folder)
    print(json_text(asdict(result)) if as_json else result)


@app.command()
def restore(
    storage: Annotated[str, typer.Argument(help="The storage root of a lake: a directory or s3://bucket/prefix.")],
    into: Annotated[str, typer.Option(help="The new catalog: a folder or postgresql:// address with no lake yet.")],
    verify: Annotated[bool, typer.Option("--verify", help="Compare every byte with its checksum.")] = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="If blocks are missing or damaged, restore the rest.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Rebuild a lost catalog from the files of its clustered tables, and say what cannot be restored."""
    import indexlake

    options = environment.storage_options() or None
    result = indexlake.restore(storage, into, storage_options=options, verify=verify, partial=partial)
    print(json_text(asdict(result)) if as_json else result)


@app.command()
def sql(
    lake: Lake,
    text: Annotated[str, typer.Argument(help="One or more statements; - reads them from standard input.")],
    namespace: Annotated[str, typer.Option(help="Where unqualified names are looked up.")] = "main",
    at: Annotated[int | None, typer.Option(help="A past snapshot.")] = None,
    engine: Annotated[str, typer.Option(help="The engine that runs queries: duckdb or spark.")] = "duckdb",
    files: Annotated[
        list[str] | None, typer.Option(help="A folder whose files the SQL may read and write; may be repeated.")
    ] = None,
    limit: Annotated[int, typer.Option(help="Maximum number of rows to show on the screen.", min=0)] = 100,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
) -> None:
    """Run SQL and print the result of its last statement."""
    from indexlake.cli.sql import print_result

    if as_json and as_csv:
        raise typer.BadParameter("choose one of --json and --csv.")
    with open_lake(lake, reading=True, files=files) as opened:
        if engine == "spark":
            start_spark(opened.storage)
        result = opened.sql(sys.stdin.read() if text == "-" else text, namespace=namespace, engine=engine, at=at)
        print_result(console, result, limit, "json" if as_json else "csv" if as_csv else "table")


@app.command()
def history(lake: Lake, table: OneTable, as_json: AsJson = False) -> None:
    """List the commits that changed a table."""
    with open_lake(lake, reading=True) as opened:
        found = opened.table(table).history()
        _show([asdict(s) if as_json else asdict(s) | {"summary": str(s.summary)} for s in found], as_json)


@app.command()
def jobs(lake: Lake, as_json: AsJson = False) -> None:
    """List background jobs."""
    with open_lake(lake, reading=True) as opened:
        listed = opened.jobs()
        found = [asdict(job) for job in listed]
        if not as_json:
            for job, shown in zip(listed, found, strict=True):
                del shown["job_id"]
                shown |= {"started_at": cell(job.started_at), "finished_at": cell(job.finished_at)}
                shown["progress"] = job.progress
        _show(found, as_json)


@app.command()
def recovery(lake: Lake, as_json: AsJson = False) -> None:
    """Open a lake that keeps its newest rows in memory, and show what was in its redo log."""
    with open_lake(lake) as opened:
        found = opened.recovery()
        if as_json:
            print(json_text(None if found is None else asdict(found)))
        else:
            print(found or f"This lake keeps its newest rows in hot store {opened.hot!r}: there is no redo log.")


@app.command()
def convert(
    lake: Lake,
    hot: Annotated[str, typer.Argument(help="Where new rows go: inline (the catalog), or memory with a redo log.")],
) -> None:
    """Change a lake's hot store; nothing is lost."""
    with open_lake(lake, automatic=False) as opened:
        opened.convert(hot)
        print(f"The newest rows of {opened.catalog.location} are kept in hot store {opened.hot!r}.")


def main() -> NoReturn:
    """Run the command; our own errors are one line, not a traceback."""
    try:
        app(prog_name="indexlake")
    except IndexLakeError as error:
        said = escape(in_command_line(str(error)))
        Console(stderr=True).print(f"[red]{type(error).__name__}[/red]: {said}", highlight=False, soft_wrap=True)
        sys.exit(1)
    sys.exit(0)


def _show(rows: list[dict[str, Any]], as_json: bool, null: str = "") -> None:
    if as_json:
        print(json_text(rows))
        return
    if not rows:
        console.print("(none)")
        return
    table = RichTable()
    for name in rows[0]:
        number = isinstance(rows[0][name], int | float)
        table.add_column(escape(name), overflow="fold", justify="right" if number else "left")
    for row in rows:
        table.add_row(*(f"{v:,}" if type(v) is int else null if v is None else escape(str(v)) for v in row.values()))
    console.print(table)
