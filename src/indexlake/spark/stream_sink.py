"""``df.writeStream.format("indexlake")``: each batch of a stream is one commit, and happens exactly once.

Spark makes a writer in one process to send it to the executors, and for the commit another one in another process.  So
all that a commit needs to know of the tasks is in their messages, among it the id of the query: that and the number of
the batch are kept with the commit, and a batch that Spark repeats after a crash changes nothing.  Batches with few rows
travel in the messages and become hot rows; tasks write files of larger ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from indexlake.blocks.stream import Target
from indexlake.catalog import activity
from indexlake.commit.token import Token
from indexlake.errors import JobError, SchemaError
from indexlake.pipeline.load import BY_KEY
from indexlake.pipeline.loader import give_back_ids, reserve_ids
from indexlake.spark.batch_sink import QUERY_ID, batch_token
from indexlake.spark.load import (
    IDS_OF_A_BATCH,
    apply_by_key,
    check_columns,
    commit_blocks,
    only_carried,
    others_than_the_tables,
    put_rows,
    too_many,
)
from indexlake.spark.load_tasks import IndexLakeStage, IndexLakeWrite, Work, Written, accepted
from indexlake.spark.request import Request
from indexlake.spark.source import lasting_writer

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from indexlake.lake import Lake

PARTITIONS = 1 << 10
"""Row ids are reserved for this many partitions, as their number is not known beforehand."""


def checked_mode(mode: str | None, *, overwrite: bool) -> str:
    """Return how a stream writes: ``overwrite`` is what the output mode "complete" asks for."""
    if overwrite and mode is not None:
        raise SchemaError(
            f"With the output mode 'complete' each batch replaces all rows: leave write_mode={mode!r} out."
        )
    if mode not in (None, "append", "upsert", "changes"):
        raise SchemaError(f"The option 'write_mode' of a stream is 'append', 'upsert' or 'changes', not {mode!r}.")
    return "overwrite" if overwrite else mode or "append"


@dataclass(frozen=True)
class Plan:
    """What the tasks of one batch have in common, known before they run."""

    table_id: int
    schema_version: int
    writer_id: str
    first: int | None  # of the reserved row ids
    work: Work


@dataclass
class Message(WriterCommitMessage):
    """What one task has written."""

    plan: Plan
    query_id: str
    written: Written


class StreamWriter(DataSourceStreamArrowWriter):
    """The writer of a stream: in one process it plans a batch, in another it commits one."""

    def __init__(self, request: Request, schema: StructType, overwrite: bool) -> None:
        request.check_write(streaming=True)
        self._request = request
        self._schema = schema
        self._mode = checked_mode(request.write_mode, overwrite=overwrite)
        self._sequence_by = request.sequence_by
        if self._sequence_by is not None and self._mode not in BY_KEY:
            raise SchemaError("The option 'sequence_by' is for write_mode 'upsert' and 'changes'.")

    def __reduce__(self) -> Any:
        return TaskWriter, (self._plan,)  # what executors get

    @cached_property
    def _plan(self) -> Plan:
        keyed = self._mode in BY_KEY
        with self._request.open() as lake:
            table = self._request.table_of(lake)
            with table._reading() as reading:
                state = reading.state
            check_columns(self._schema, state.current, others=others_than_the_tables(self._mode, self._sequence_by))
            writer_id = lasting_writer(lake)
            target = Target.of(state, writer_id)
            names = self._schema.names
            first = None if keyed else reserve_ids(lake, table._table_id, PARTITIONS, IDS_OF_A_BATCH)
            work: Work = (
                IndexLakeStage(target, lake.storage, names, carries=True)
                if first is None
                else IndexLakeWrite(target, lake.storage, first, PARTITIONS, names, each=IDS_OF_A_BATCH, carries=True)
            )
            return Plan(table._table_id, state.table.schema_version, writer_id, first, work)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        raise AssertionError("executors get a TaskWriter")

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        found = [message for message in messages if isinstance(message, Message)]
        if len(found) != len(messages):
            raise JobError("Spark has lost the result of a task. Nothing was changed; start the query again.")
        if not found:
            return  # a batch without partitions
        plan = found[0].plan
        with self._request.open(automatic=True) as lake:
            token = batch_token(found[0].query_id, plan.table_id, batchId)
            self._commit(lake, plan, [message.written for message in found], token)
            with lake.catalog.transaction() as tx:
                activity.remove_writer(tx, plan.writer_id)  # what it has left is for vacuum
                tx.commit()

    def _commit(self, lake: Lake, plan: Plan, written: list[Written], token: Token) -> None:
        table = self._request.table_of(lake)
        if table._table_id != plan.table_id:
            raise JobError("The table was replaced while Spark wrote. Nothing was changed; start the query again.")
        if plan.first is None:
            apply_by_key(table, accepted(written), self._mode, self._sequence_by, token)
            return
        overwrite = self._mode == "overwrite"
        last = max(w.partition for w in written)
        few = only_carried(written)
        if last >= PARTITIONS and not few:
            raise too_many(PARTITIONS)
        give_back_ids(lake, plan.table_id, plan.first, PARTITIONS, 0 if few else last + 1, IDS_OF_A_BATCH)
        if few:
            put_rows(table, accepted(written), overwrite=overwrite, token=token)
            return
        blocks = accepted(plan.work.spilled(lake.storage, written))
        commit_blocks(lake, plan.table_id, plan.schema_version, blocks, overwrite=overwrite, token=token)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Delete none of the files, since a commit that failed may have happened."""


class TaskWriter(DataSourceStreamArrowWriter):
    """The writer as executors get it, without the address of the catalog."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def __repr__(self) -> str:
        return f"TaskWriter({self._plan.work!r})"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        query_id = context.getLocalProperty(QUERY_ID)
        if query_id is None:
            raise JobError("The id of the streaming query is unknown: this Spark does not tell tasks.")
        return Message(self._plan, query_id, self._plan.work.written(iterator))
