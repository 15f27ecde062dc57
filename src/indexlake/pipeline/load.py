"""Load: many rows at once, from a Spark DataFrame or from anything that ``insert`` takes.

A load is a write like any other: one commit, keys checked, in the change feed, harmless to repeat with its token.  A
DataFrame is written by Spark tasks straight to blocks; other sources are read in this process, in bounded memory.
"""

from __future__ import annotations

import sys
import threading
import uuid
from typing import TYPE_CHECKING, Any

from indexlake.commit.write_set import WriteResult
from indexlake.errors import JobError
from indexlake.pipeline.job import Job
from indexlake.progress import ProgressBar

if TYPE_CHECKING:
    from indexlake.lake import Lake
    from indexlake.transaction import Transaction

MODES = ("append", "overwrite", "upsert")


def load(
    lake: Lake, source: Any, table: str, mode: str, *, token: str | None, stop: threading.Event, bar: ProgressBar
) -> WriteResult:
    """Append the rows, put them in the place of all others, or upsert them by primary key."""
    if mode not in MODES:
        raise JobError(f"mode={mode!r} is not known. Use {', '.join(map(repr, MODES))}.")
    t = lake.table(table)
    with Job(lake, "load", t._table_id, scope=uuid.uuid4().hex, stop=stop, bar=bar) as job:
        if _is_frame(source):
            from indexlake.spark.load import load_frame

            return load_frame(lake, t, source, job, mode=mode, token=token)
        if mode == "upsert":
            result = t.upsert(source, token=token)
        elif mode == "append":
            result = t.insert(source, token=token)
        else:

            def replace(tx: Transaction) -> int:
                mine = tx.table(t.name)
                mine.truncate()
                return mine.insert(source).rows

            result = lake._autocommit("overwrite", replace, token)
        job.add(rows=result.rows)
    return result


def _is_frame(source: Any) -> bool:
    """Whether it is a Spark DataFrame; nobody has one without having imported Spark."""
    if "pyspark" not in sys.modules:
        return False
    from pyspark.sql import DataFrame

    return isinstance(source, DataFrame)
