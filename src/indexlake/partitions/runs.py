"""Sort more rows than fit in memory: sorted runs, staged in small pieces whose first keys are known.

The rows of a clustered table are sorted by key, those of a heap table by row id. The pieces of all runs together tell
where to cut the keys, so that each stretch has about as many rows as a block should have, whatever their distribution.
A stretch is read out of all runs and fits in memory. So each row is staged once, and runs written by different tasks
can be combined.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from indexlake.blocks.formats.batches import encoded, stored_schema
from indexlake.blocks.formats.ipc import ipc_type
from indexlake.blocks.stream import Target
from indexlake.indexes.keys import KeyColumn, key_to_bytes
from indexlake.partitions.ranges import key_column, lower_bound
from indexlake.schema import ROW_ID
from indexlake.types.selection import gather, with_dictionaries

RUN_BYTES = 64 << 20
"""Bytes of rows that are sorted at a time."""

PIECE_BYTES = 512 << 10
PIECES_PER_BLOCK = 64
"""A full block has at least this many pieces, unless they would be tiny: it can begin only at the first key of one."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive rows of a run: a place in a staged file."""

    offset: int
    length: int
    rows: int
    size: int  # in memory
    first: bytes

    def share(self, target: Target) -> float:
        """Return what fraction of a block the rows are."""
        return max(self.rows / target.block_row_count, self.size / target.block_bytes)


def _first_key(piece: Piece) -> bytes:
    return piece.first


@dataclass(frozen=True, slots=True)
class Run:
    """Rows in order."""

    pieces: tuple[Piece, ...]
    last: bytes

    def ends(self) -> list[bytes]:
        """Return, for each piece, a key that none of its rows exceeds."""
        return [*(piece.first for piece in self.pieces[1:]), self.last]

    def within(self, stretch: Stretch) -> Run:
        """Return the pieces that may hold rows of a stretch."""
        low, high = stretch.low, stretch.high
        start, end = 0, len(self.pieces)
        if high is not None:
            end = bisect_left(self.pieces, high, key=_first_key)
        if low is not None:
            start = len(self.pieces) if self.last < low else max(0, bisect_left(self.pieces, low, key=_first_key) - 1)
        return replace(self, pieces=self.pieces[start:end])


@dataclass(frozen=True, slots=True)
class Stretch:
    """The keys from ``low`` up to but not including ``high``, as bytes in key order; None is unbounded."""

    low: bytes | None
    high: bytes | None


class Sink(Protocol):
    def write(self, data: Any) -> Any: ...
    def tell(self) -> int: ...


def sort_keys(rows: pa.Table | pa.RecordBatch, target: Target) -> KeyColumn:
    """Return the keys by which rows of the target's table, in file format, are sorted."""
    if target.ranges is not None:
        return key_column(rows, target.schema)
    return KeyColumn(ints=np.asarray(rows.column(ROW_ID)).view(np.uint64))


def in_order(batches: Sequence[pa.RecordBatch], target: Target) -> tuple[list[pa.RecordBatch], KeyColumn]:
    """Return rows in file format, sorted, with their keys."""
    keys = sort_keys(pa.Table.from_batches(batches, target.schema.file), target)
    if keys.is_sorted():
        return list(batches), keys
    order = keys.argsort()
    return gather(batches, pa.array(order), target.schema.file), keys.take(order)


def write_runs(
    out: Sink, target: Target, batches: Iterable[pa.RecordBatch], check: Callable[[], None] = lambda: None
) -> tuple[Run, ...]:
    """Sort rows in file format, one run at a time, and stage them."""
    return tuple(_write_run(out, target, held) for held in by_size(batches, check))


def by_size(batches: Iterable[pa.RecordBatch], check: Callable[[], None]) -> Iterator[list[pa.RecordBatch]]:
    """Group batches into runs by size, leaving out empty ones."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        check()
        if not batch.num_rows:
            continue
        held.append(batch)
        size += batch.nbytes
        if size > RUN_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held


def _write_run(out: Sink, target: Target, batches: Sequence[pa.RecordBatch]) -> Run:
    stored = stored_schema(target.schema.file, ipc_type)
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    keys = sort_keys(pa.Table.from_batches(batches, target.schema.file), target)
    plain = list(encoded(batches, stored))
    if not keys.is_sorted():
        order = keys.argsort()
        plain, keys = gather(plain, pa.array(order), stored), keys.take(order)
    rows = pa.Table.from_batches(plain, stored)
    size = min(PIECE_BYTES, max(PIECE_BYTES // 32, target.block_bytes // PIECES_PER_BLOCK))
    most = max(1, min(target.block_row_count // PIECES_PER_BLOCK, size * rows.num_rows // max(1, rows.nbytes)))
    pieces = []
    for start in range(0, rows.num_rows, most):
        part = rows.slice(start, most)
        if keys[start] == keys[start + part.num_rows - 1]:
            part = part.slice(0, 2)  # rows that share a key are refused in the end, and two of them are enough for that
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, stored, options=options) as writer:
            writer.write_table(part)
        data = sink.getvalue()
        pieces.append(Piece(out.tell(), len(data), part.num_rows, part.nbytes, key_to_bytes(keys[start])))
        out.write(data)
    return Run(tuple(pieces), key_to_bytes(keys[len(keys) - 1]))


def stretches(runs: Iterable[Run], target: Target) -> list[Stretch]:
    """Cut all keys so that each stretch has the rows of about one block.

    A live partition with fewer rows than that is not cut; several such partitions share a stretch.
    """
    marks = _marks(runs, target)
    live = target.ranges.live if target.ranges is not None else ()
    begins = [p.begin_key for p in live if p.begin_key is not None]
    places = [0, *(bisect_left(marks, (begin, 0.0)) for begin in begins), len(marks)]
    cuts: list[bytes] = []
    held = 0.0  # since the last cut
    for begin, (start, end) in zip([None, *begins], pairwise(places), strict=True):
        here = marks[start:end]
        share = sum(weight for _, weight in here)
        number = max(1, round(share))
        if begin is not None and held and held + share > 1:
            cuts.append(begin)
            held = 0.0
        if number > 1:
            cuts += _even_cuts(here, share / number, number)
            held = 1.0  # what follows gets a stretch of its own
        else:
            held += share
    edges = [None, *dict.fromkeys(cuts), None]
    return [Stretch(low, high) for low, high in pairwise(edges)]


def _marks(runs: Iterable[Run], target: Target) -> list[tuple[bytes, float]]:
    """Return keys in order, with the fraction of a block at each.

    The rows of a piece lie somewhere between its first key and that of the next one: half of them count at each.
    """
    marks: list[tuple[bytes, float]] = []
    for run in runs:
        for piece, end in zip(run.pieces, run.ends(), strict=True):
            half = piece.share(target) / 2
            marks += [(piece.first, half), (end, half)]
    marks.sort()
    return marks


def _even_cuts(marks: Sequence[tuple[bytes, float]], step: float, number: int) -> Iterator[bytes]:
    held, due = 0.0, step
    for (before, weight), (key, _) in pairwise(marks):
        held += weight
        if held >= due and key > before and number > 1:
            yield key
            due += step
            number -= 1


def read_stretch(
    read_at: Callable[[int, int], Any], runs: Iterable[Run], stretch: Stretch, target: Target
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a stretch, run by run; ``read_at`` reads the file in which the runs are staged."""
    for run in runs:
        for piece in run.within(stretch).pieces:
            for stored in pa.ipc.open_stream(pa.py_buffer(read_at(piece.offset, piece.length))):
                for rows in with_dictionaries(stored, target.schema.file):
                    keys = sort_keys(rows, target)
                    start = 0 if stretch.low is None else lower_bound(keys, stretch.low)
                    end = len(keys) if stretch.high is None else lower_bound(keys, stretch.high)
                    if start < end:
                        yield rows.slice(start, end - start)
