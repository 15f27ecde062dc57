"""Writes the batches of a stream from the process that has the lake open: for ``foreachBatch``.

Each batch is one commit, and happens once however often Spark repeats it: the commit keeps the batch's number under the
name of the query, which Spark keeps in the checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from indexlake.commit.token import Token
from indexlake.errors import JobError
from indexlake.pipeline.load import check_mode, load
from indexlake.pipeline.runner import ThreadRunner
from indexlake.spark.frame import check_reachable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from indexlake.lake import Lake

QUERY_ID = "sql.streaming.queryId"
"""The property of Spark's threads and tasks that names the streaming query they work for."""
RUN_ID = "spark.jobGroup.id"
"""The property that tells one run of a query from the next."""

_written: WeakKeyDictionary[Lake, dict[str, tuple[str | None, int]]] = WeakKeyDictionary()
"""The run and the number of the last batch that was written under each token, in this process."""


class BatchSink:
    """Returned by ``lake.pipeline().sink(…)``."""

    def __init__(self, lake: Lake, table: str, mode: str, sequence_by: str | None) -> None:
        lake._check(writing=True)
        check_mode(mode, sequence_by)
        check_reachable(lake)
        self._lake = lake
        self._table = lake.table(table)
        self._mode = mode
        self._sequence_by = sequence_by

    def __repr__(self) -> str:
        return f"<Sink of a stream into {self._table.name}, mode {self._mode!r}>"

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write one batch."""
        lake, table = self._lake, self._table
        context = frame.sparkSession.sparkContext
        query_id = context.getLocalProperty(QUERY_ID)
        if query_id is None:
            raise JobError(
                "A sink writes batches of a stream: pass it to df.writeStream.foreachBatch(…), or call it in the "
                "thread that has called your function."
            )
        with table._reading():
            pass  # it was not dropped: another one may have its name
        token = batch_token(query_id, table._table_id, batch_id)
        written, batch = _written.setdefault(lake, {}), (context.getLocalProperty(RUN_ID), batch_id)
        if written.get(token.name) == batch:
            raise JobError(
                f"Batch {batch_id} has been written to {table.name!r} already: a sink can be called once for a batch "
                "and a table. Give it all rows at once, or write them in one lake.transaction(token=(name, batch_id))."
            )
        if token.done(lake._readings.token_result(token.name)) is None:
            runner = ThreadRunner(lake.storage)  # for what does not run on the frame's session
            load(lake, frame, table.name, self._mode, runner, token=token, sequence_by=self._sequence_by, carries=True)
        written[token.name] = batch


def batch_token(query_id: str, table_id: int, batch_id: int) -> Token:
    """Return what makes a batch of a query happen once in a table."""
    return Token(f"spark stream {query_id} into table {table_id}", batch_id)
