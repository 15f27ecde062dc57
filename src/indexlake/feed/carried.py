"""Hot rows that leave this process with the portion of a feed that shows them: inside it, or, if many, in a file.

Elsewhere there is no catalog to read them from, and no temporary file of this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa

from indexlake.blocks.formats import Positions
from indexlake.blocks.new_block import NewFile
from indexlake.blocks.open_files import OpenFiles
from indexlake.feed.events import EventSet, Listed, SpooledRows
from indexlake.feed.plan import FeedPlan

Write = Callable[[pa.Schema, Iterable[pa.RecordBatch]], NewFile]

_ROWS = 20_000


class Carrier:
    """Prepares portions for being sent: rows up to ``room`` bytes in total travel inside them, others are written."""

    def __init__(self, room: int, files: OpenFiles, write: Write | None) -> None:
        self._room = room
        self._files = files
        self._write = write

    def carry(self, part: FeedPlan) -> FeedPlan:
        return replace(part, known=[self._carried(events) for events in part.known])

    def _carried(self, events: EventSet) -> EventSet:
        if not isinstance(events, Listed) or not isinstance(events.rows, SpooledRows):
            return events
        batches = events.read_all(_ROWS)
        held: list[pa.RecordBatch] = []
        for batch in batches:
            held.append(batch)
            self._room -= batch.nbytes
            if self._room < 0 and self._write is not None:
                file = self._write(batch.schema, chain(held, batches))
                return events.with_rows(WrittenRows(file, self._files, batch.schema))
        return events.with_rows(sent_rows(held))


@dataclass(frozen=True, slots=True)
class SentBatches:
    """Record batches as Arrow streams, one each, because a column's dictionaries may differ between batches."""

    data: tuple[bytes, ...]

    def batch(self, number: int) -> pa.RecordBatch:
        with pa.ipc.open_stream(self.data[number]) as stream:
            return stream.read_next_batch()


def sent_rows(batches: Sequence[pa.RecordBatch]) -> SpooledRows:
    starts = [0]
    for batch in batches:
        starts.append(starts[-1] + batch.num_rows)
    return SpooledRows(SentBatches(tuple(_streams(batches))), starts)


def _streams(batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield sink.getvalue().to_pybytes()


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """Rows in a file."""

    file: NewFile
    files: OpenFiles
    schema: pa.Schema

    def read(self, positions: Positions) -> list[pa.RecordBatch]:
        file = self.file
        reader = self.files.reader_of(file.path, "ipc", file.size, file.checksum, self.schema)
        return list(reader.read(self.schema.names, positions))
