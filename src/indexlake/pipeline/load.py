"""Loading many rows at once, from a Spark DataFrame, from files, or from anything else that ``insert`` takes.

A load is a write like any other: one commit, checked keys, an entry in the change feed, safe to repeat with its token.
Tasks write DataFrames and files straight to blocks; few rows, upserts, and rows that this process holds go through this
process, in bounded memory.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack

from indexlake.blocks.new_block import NewBlock
from indexlake.commit.token import TokenLike
from indexlake.commit.write_set import WriteResult
from indexlake.errors import JobError
from indexlake.pipeline.file_tasks import write_files
from indexlake.pipeline.job import Job, Watched
from indexlake.pipeline.loader import Loader
from indexlake.pipeline.runner import Runner
from indexlake.sources.files import Files, as_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from indexlake.lake import Lake
    from indexlake.snapshots.state import TableState
    from indexlake.table import Table
    from indexlake.transaction import Transaction

BY_KEY = ("upsert", "changes")
MODES = ("append", "overwrite", *BY_KEY)


FEW_BYTES = 8 << 20
"""Smaller files are not worth tasks: their rows may well become hot rows."""


def load(
    lake: Lake, source: Any, table: str, mode: str, runner: Runner, *, token: TokenLike | None,
    sequence_by: str | None = None, carries: bool = False,
    **watched: Unpack[Watched],
) -> WriteResult:  # fmt: skip
    """Append the rows, replace all existing ones by them, upsert them by primary key, or apply them as changes."""
    check_mode(mode, sequence_by)
    t = lake.table(table)
    with Job(lake, "load", t._table_id, scope=uuid.uuid4().hex, **watched) as job:
        if _is_frame(source):
            from indexlake.spark.load import load_frame

            return load_frame(lake, t, source, job, mode=mode, token=token, sequence_by=sequence_by, carries=carries)
        if mode in ("append", "overwrite") and (files := _for_tasks(source)) is not None:
            return _load_files(lake, t, files, job, runner, overwrite=mode == "overwrite", token=token)
        if mode in BY_KEY:
            result = write_by_key(t, source, mode, sequence_by, token)
        elif mode == "append":
            result = t.insert(source, token=token)
        else:
            result = replace_rows(t, source, token)
        job.add(rows=result.rows)
    return result


def write_by_key(table: Table, rows: Any, mode: str, sequence_by: str | None, token: TokenLike | None) -> WriteResult:
    """Upsert the rows, or apply them as changes; with ``sequence_by``, the last row of each key counts."""
    from indexlake.writes.merge.apply_changes import ApplyChanges

    if mode == "upsert" and sequence_by is None:
        return table.upsert(rows, token=token)
    return table._write(mode, ApplyChanges(table, rows, sequence_by, upsert=mode == "upsert"), token)


def stream_sink(lake: Lake, table: str, mode: str, sequence_by: str | None) -> Callable[[DataFrame, int], None]:
    """Return a function that writes the batches of a stream."""
    from indexlake.spark.batch_sink import BatchSink

    return BatchSink(lake, table, mode, sequence_by)


def check_mode(mode: str, sequence_by: str | None) -> None:
    if mode not in MODES:
        raise JobError(f"mode={mode!r} is not known. Use {', '.join(map(repr, MODES))}.")
    if sequence_by is not None and mode not in BY_KEY:
        raise JobError(f"sequence_by is for the modes {' and '.join(map(repr, BY_KEY))}, not for {mode!r}.")


def replace_rows(table: Table, source: Any, token: TokenLike | None) -> WriteResult:
    """Put the rows, if any, in place of all others in one commit."""

    def replace(tx: Transaction) -> int:
        mine = tx.table(table.name)
        mine.truncate()
        return 0 if source is None else mine.insert(source).rows

    return table._lake._autocommit("overwrite", replace, token)


def _for_tasks(source: Any) -> Files | None:
    """Return the files of a source if they are worth tasks."""
    files = as_files(source)
    if files is not None and files.are_remote:
        return None  # only this process knows how to reach them
    return files if files is not None and sum(file.size for file in files.list()) >= FEW_BYTES else None


def _load_files(
    lake: Lake, table: Table, files: Files, job: Job, runner: Runner, *, overwrite: bool, token: TokenLike | None
) -> WriteResult:
    def write(state: TableState) -> list[NewBlock]:
        return write_files(lake, files, state, runner, job)

    loader = Loader(lake, table._table_id, runner, job.check, write, overwrite=overwrite)
    return lake._autocommit("overwrite" if overwrite else "load", loader.apply, token)


def _is_frame(source: Any) -> bool:
    """Return whether it is a Spark DataFrame; nobody has one without having imported Spark."""
    spark = sys.modules.get("pyspark.sql")
    return spark is not None and isinstance(source, spark.DataFrame)
