"""``indexlake pipeline …``: the jobs of ``lake.pipeline()`` on the command line, on Spark by default."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from indexlake.cli.json_text import json_text
from indexlake.cli.opening import open_lake
from indexlake.cli.spark import pipeline as pipeline_of

if TYPE_CHECKING:
    from indexlake.pipeline.pipeline import Pipeline

app = typer.Typer(
    help="Move rows to columnar files and maintain them.", no_args_is_help=True, pretty_exceptions_enable=False
)
Lake = Annotated[str, typer.Argument(help="A lake: a folder or a postgresql:// address.")]
OneTable = Annotated[str | None, typer.Option("--table", help="One table; by default all.")]
RunnerName = Annotated[str, typer.Option("--runner", help="Where tasks run: spark or threads.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _duration(text: str) -> timedelta:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd])", text.strip())
    if not found:
        raise typer.BadParameter(f"{text!r} is not a duration. Give a number and a unit: 90s, 15m, 12h or 7d.")
    unit = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}[found[2]]
    try:
        return timedelta(**{unit: float(found[1])})
    except OverflowError:
        raise typer.BadParameter(f"{text!r} is too long.") from None


def _period(text: str) -> timedelta:
    found = _duration(text)
    if not found:
        raise typer.BadParameter("the time between runs must be more than zero, such as 30s or 1m.")
    return found


@app.command()
def run(
    lake: Lake,
    table: OneTable = None,
    watch: Annotated[bool, typer.Option("--watch", help="Keep running until interrupted.")] = False,
    every: Annotated[timedelta, typer.Option(parser=_period, metavar="TIME", help="How often, with --watch.")] = "1m",  # type: ignore[assignment]  # typer parses defaults too
    runner: RunnerName = "spark",
    as_json: AsJson = False,
) -> None:
    """Do whatever is due: expire, dump, compact, freeze if configured, indexes, vacuum."""
    with open_lake(lake, automatic=False) as opened:
        pipeline = pipeline_of(opened, runner)

        def show(result: Any) -> None:
            _print(result.steps if as_json else str(result), as_json)

        if not watch:
            show(pipeline.run(table))
            return
        try:
            pipeline.watch(table, every=every, each=show)
        except KeyboardInterrupt:
            pipeline.cancel()


@app.command()
def dump(lake: Lake, table: OneTable = None, runner: RunnerName = "spark", as_json: AsJson = False) -> None:
    """Move hot rows to columnar blocks."""
    _run(lake, runner, as_json, lambda jobs: jobs.dump(table))


@app.command()
def compact(
    lake: Lake,
    table: OneTable = None,
    cluster_by: Annotated[
        list[str] | None, typer.Option(help="A column to cluster the table by; may be repeated.")
    ] = None,
    order: Annotated[str, typer.Option(help="How to cluster: sort or zorder.")] = "sort",
    runner: RunnerName = "spark",
    as_json: AsJson = False,
) -> None:
    """Combine small and delete-heavy blocks into full ones."""
    _run(lake, runner, as_json, lambda jobs: jobs.compact(table, cluster_by=cluster_by or None, order=order))


@app.command()
def freeze(
    lake: Lake,
    table: OneTable = None,
    older_than: Annotated[
        timedelta, typer.Option(parser=_duration, metavar="TIME", help="Only blocks whose rows are all older.")
    ] = "0s",  # type: ignore[assignment]
    runner: RunnerName = "spark",
    as_json: AsJson = False,
) -> None:
    """Turn warm blocks into Parquet, which every engine can read."""
    _run(lake, runner, as_json, lambda jobs: jobs.freeze(table, older_than=older_than))


@app.command()
def thaw(lake: Lake, table: OneTable = None, runner: RunnerName = "spark", as_json: AsJson = False) -> None:
    """Turn Parquet blocks back into warm ones."""
    _run(lake, runner, as_json, lambda jobs: jobs.thaw(table))


@app.command()
def merge(lake: Lake, table: OneTable = None, runner: RunnerName = "spark", as_json: AsJson = False) -> None:
    """Merge the deltas of clustered tables into their data, and split what becomes too large."""
    _run(lake, runner, as_json, lambda jobs: jobs.merge(table))


@app.command()
def split(lake: Lake, table: OneTable = None, runner: RunnerName = "spark", as_json: AsJson = False) -> None:
    """Split the partitions of clustered tables that have become too large."""
    _run(lake, runner, as_json, lambda jobs: jobs.split(table))


OneIndex = Annotated[str | None, typer.Option("--index", help="One index of the table; by default all.")]


@app.command()
def build_index(
    lake: Lake,
    table: OneTable = None,
    index: OneIndex = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Also replace existing segments: some are damaged.")
    ] = False,
    runner: RunnerName = "spark",
    as_json: AsJson = False,
) -> None:
    """Write missing index segments."""
    _run(lake, runner, as_json, lambda jobs: jobs.build_index(table, index, rebuild=rebuild))


@app.command()
def merge_index(
    lake: Lake, table: OneTable = None, index: OneIndex = None, runner: RunnerName = "spark", as_json: AsJson = False
) -> None:
    """Fold small index segments into larger ones."""
    _run(lake, runner, as_json, lambda jobs: jobs.merge_index(table, index))


@app.command()
def expire(lake: Lake, table: OneTable = None, as_json: AsJson = False) -> None:
    """Drop history that is older than the retention."""
    _run(lake, "threads", as_json, lambda jobs: jobs.expire(table))


@app.command()
def vacuum(
    lake: Lake,
    delete: Annotated[bool, typer.Option("--delete", help="Delete them; by default they are only listed.")] = False,
    grace: Annotated[
        timedelta, typer.Option(parser=_duration, metavar="TIME", help="Keep files that became unreachable since then.")
    ] = "24h",  # type: ignore[assignment]
    runner: RunnerName = "spark",
    as_json: AsJson = False,
) -> None:
    """Find files that nothing refers to any more, and delete them on request."""
    with open_lake(lake, automatic=False) as opened:
        result = pipeline_of(opened, runner).vacuum(dry_run=not delete, grace=grace)
        _print(result if as_json else "\n".join([*result.paths, str(result)]), as_json)


@app.command()
def verify(lake: Lake, table: OneTable = None, runner: RunnerName = "spark", as_json: AsJson = False) -> None:
    """Check every byte against its checksum and the catalog against the storage; exit code 1 if anything is wrong."""
    with open_lake(lake, automatic=False) as opened:
        result = pipeline_of(opened, runner).verify(table)
        _print({"ok": result.ok, **asdict(result)} if as_json else str(result), as_json)
    if not result.ok:
        raise typer.Exit(1)


def _run(lake: str, runner: str, as_json: bool, job: Callable[[Pipeline], dict[str, Any]]) -> None:
    """Run a job and print the result for each table."""
    with open_lake(lake, automatic=False) as opened:
        results = job(pipeline_of(opened, runner))
        if as_json:
            _print([{"table": name, **asdict(result)} for name, result in results.items()], as_json)
        else:
            _print("\n".join(f"{name}: {result}" for name, result in results.items()) or "(no tables)", as_json)


def _print(what: Any, as_json: bool) -> None:
    """Print JSON, or text without markup: names may contain anything, and other programs may read the lines."""
    print(json_text(what) if as_json else what, flush=True)
