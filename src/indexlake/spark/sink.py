"""``df.write.format("indexlake")``: appends the rows of a DataFrame, or replaces all existing rows with them.

Tasks write blocks; there is one commit, on the driver.  Spark creates the writer in one process, sends it to the
executors and commits in another process of the driver, so what the commit needs to open the catalog is in a private
file on the driver's host: executors only get its name, which is useless to them.  Files of a failed write are left to
vacuum: if a commit fails, Spark cannot know whether it happened.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from indexlake.blocks.stream import Target
from indexlake.errors import JobError
from indexlake.pipeline.loader import give_back_ids, reserve_ids
from indexlake.spark.load import check_columns, commit_blocks, too_many
from indexlake.spark.load_tasks import IndexLakeWrite, Written, accepted
from indexlake.spark.request import Request
from indexlake.spark.source import lasting_writer

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


PARTITIONS = 1 << 16
"""Row ids are reserved for this many partitions, as their number is not known beforehand."""


@dataclass
class Message(WriterCommitMessage):
    """What one task has written."""

    written: Written


class TableWriter(DataSourceArrowWriter):
    """One write of one DataFrame."""

    def __init__(self, request: Request, schema: StructType, overwrite: bool) -> None:
        request.check_write()
        with request.open() as lake:
            table = request.table_of(lake)
            self._table_id = table._table_id
            with table._reading() as reading:
                state = reading.state
            check_columns(schema, state.current)
            self._schema_version = state.table.schema_version
            self._first = reserve_ids(lake, self._table_id, PARTITIONS)
            target = Target.of(state, lasting_writer(lake))
            self._work = IndexLakeWrite(target, lake.storage, self._first, PARTITIONS, schema.names)
        self._overwrite = overwrite
        self._handover = _hand_over(request)

    def __repr__(self) -> str:
        return f"TableWriter({self._work!r})"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        return Message(self._work.written(iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        request = _taken_over(self._handover)
        written = [message.written for message in messages if isinstance(message, Message)]
        if len(written) != len(messages):
            raise JobError("Spark has lost the result of a task. Nothing was changed; write again.")
        with request.open() as lake:
            last = max((w.partition for w in written), default=-1)
            if last >= PARTITIONS:
                raise too_many(PARTITIONS)
            blocks = accepted(written)
            give_back_ids(lake, self._table_id, self._first, PARTITIONS, last + 1)
            commit_blocks(
                lake, self._table_id, self._schema_version, blocks, overwrite=self._overwrite, token=request.token
            )

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete none of the files, since a commit that failed may have happened."""
        Path(self._handover).unlink(missing_ok=True)


def _hand_over(request: Request) -> str:
    """Write the request to a file that only this user on this host can read, and return its name."""
    handle, path = tempfile.mkstemp(prefix="indexlake-write-")
    with os.fdopen(handle, "wb") as file:
        pickle.dump(request, file)
    return path


def _taken_over(path: str) -> Request:
    try:
        found: Request = pickle.loads(Path(path).read_bytes())
    except FileNotFoundError:
        raise JobError(
            "The commit of this write runs on another host than the write began on. Nothing was changed."
        ) from None
    finally:
        with suppress(OSError):
            Path(path).unlink()
    return found
