"""Copy the redo log as it was at one state of the catalog, for a lake in another folder.

The files are opened under the sequencer's turn together with the catalog's read transaction. Afterwards the owner may
extend or delete them: what was in them then can still be read. The copies are sealed and belong to a new epoch, so they
never replace the log of an earlier copy of the lake.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from indexlake.catalog import log_records
from indexlake.catalog.log_records import Segment
from indexlake.errors import SchemaError
from indexlake.hot.memory import record
from indexlake.hot.memory.redo import segment_name, sync_folder, write_all
from indexlake.hot.memory.rotation import numbers_of
from indexlake.storage import faults

if TYPE_CHECKING:
    from contextlib import ExitStack

    from indexlake.catalog.driver import ReadTransaction
    from indexlake.hot.memory.store import MemoryStore


class OpenSegment(NamedTuple):
    """A file of the log, with the length and the last commit that it had when it was opened."""

    file: BinaryIO
    size: int
    last: int


def open_log(store: MemoryStore, r: ReadTransaction, stack: ExitStack) -> list[OpenSegment]:
    """Open the files that hold what the catalog lacks in this state; the caller holds the sequencer's turn."""
    store.check()
    log = store.log
    if log is None:
        raise SchemaError(
            "The newest rows of this lake are in memory only, without a redo log, so they cannot be copied. Call "
            "lake.convert(hot='inline') first."
        )
    found = []
    for listed in log_records.read_segments(r):
        path = os.path.join(log.folder, segment_name(listed.epoch, listed.number))
        file = stack.enter_context(open(path, "rb"))  # noqa: SIM115
        size, last = (log.size, log.last) if listed.size is None else (listed.size, listed.last_commit)
        found.append(OpenSegment(file, size, last or 0))
    return found


def write_log(found: Sequence[OpenSegment], folder: str, lake: tuple[str, int], epoch: int) -> list[Segment]:
    """Write copies of these files to a folder; return how a catalog lists them and the epoch they have."""
    epoch = 1 + max([epoch, *(numbers[0] for numbers in map(numbers_of, os.listdir(folder)) if numbers)])
    written = []
    for number, segment in enumerate(found, 1):
        content = segment.file.read(segment.size)
        head, start = next(record.parts(memoryview(content)))
        content = record.header(*lake, epoch, number, head[6]) + content[start:]
        handle = os.open(os.path.join(folder, segment_name(epoch, number)), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        try:
            write_all(handle, content)
            os.fsync(handle)
        finally:
            os.close(handle)
        faults.step("backup.log")
        written.append(Segment(epoch, number, segment.last, len(content)))
    sync_folder(folder)
    return written
