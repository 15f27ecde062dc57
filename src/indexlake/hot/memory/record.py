"""The format of commits in the redo log.

A file begins with a header and goes on with records, each of them

    4 bytes   length of what follows the digest, little-endian
    8 bytes   xxh3-64 of it, little-endian
    …         a MessagePack array

and may end with zeros, over which the next records are written. Zeros are not a valid record, because their digest is
wrong. In the open file they mark the end of the records, unless a later record knew more commits to be durable; within
the length of a sealed file, which the catalog knows, they are damage.

The header is ``["indexlake redo", 1, lake id, incarnation, epoch, number of the file, newest commit of the log before
it]``.  A record is ``[number, committed at, operation, summary, commit token, user token, result, durable, tables]``;
``durable`` is the newest commit of the log that was known to be durable when the record was written.  Each table is
``[table id, closed, deleted, field ids, row ids, columns]``: ``closed`` are the row ids of versions that end with the
commit, as an array or, if there are many, as a 64-bit roaring bitmap; ``deleted`` are the positions of those that lie
in blocks, as pairs of a data file id and a roaring bitmap; the columns hold the encoded values of the new versions.
Fields are identified by id, so later changes to the table's columns do not matter.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgpack
from pyroaring import BitMap, BitMap64
from xxhash import xxh3_64_intdigest

from indexlake.errors import StorageError

FORMAT = 1
MAGIC = "indexlake redo"
MOST_BYTES = (1 << 32) - 1
_FRAME = struct.Struct("<IQ")
_RECORD = re.compile(rb"(?=\x99(?:[\x00-\x7f]|\xcc.|\xcd..|\xce.{4}|\xcf.{8})\xcf)", re.DOTALL)
"""Matches the start of a record: an array of nine, an integer, the time in microseconds."""
_FEW = 64
_SMALL = 1 << 16
_packer = msgpack.Packer(buf_size=_SMALL)  # kept, because creating one costs more than packing a row


@dataclass(slots=True)
class Change:
    """What a commit did to one table."""

    closed: BitMap64 | None = None
    locked: BitMap64 | None = None
    deleted: dict[int, Any] = field(default_factory=dict)  # positions of closed rows in blocks, by data file id
    columns: tuple[str, ...] = ()
    rows: Collection[tuple[int, Any]] = ()


@dataclass(slots=True)
class Commit:
    """A commit that has its number."""

    number: int
    committed_at: int
    operation: str
    summary: str
    commit_token: str | None = None
    token: str | None = None
    result: dict[str, Any] | None = None
    tables: dict[int, Change] = field(default_factory=dict)


def pack(commit: Commit, durable: int) -> bytes:
    tables = []
    for table_id, change in commit.tables.items():
        closed: Any = None
        rows, deleted, ids, columns = change.rows, [], (), []
        if change.closed:
            closed = list(change.closed) if len(change.closed) <= _FEW else change.closed.serialize()
        elif not rows:
            continue
        if rows:
            ids, values = zip(*rows)  # noqa: B905 (all of them are pairs)
            columns = list(zip(*values))  # noqa: B905 (all rows have the same columns)
        if change.deleted:
            deleted = [(file_id, positions.serialize()) for file_id, positions in change.deleted.items()]
        tables.append((table_id, closed, deleted, field_ids(change.columns), ids, columns))
    return framed(
        (
            commit.number, commit.committed_at, commit.operation, commit.summary, commit.commit_token, commit.token,
            commit.result, durable, tables,
        )
    )  # fmt: skip


def header(lake_id: str, incarnation: int, epoch: int, number: int, before: int) -> bytes:
    return framed((MAGIC, FORMAT, lake_id, incarnation, epoch, number, before))


def framed(content: Any) -> bytes:
    global _packer
    body: bytes = _packer.pack(content)
    if len(body) > _SMALL:
        _packer = msgpack.Packer(buf_size=_SMALL)  # the old one has kept a large buffer
        if len(body) > MOST_BYTES:
            raise StorageError(
                f"A commit of {len(body):,} bytes is too large for the redo log. Write in several transactions, or "
                "lower direct_write_row_count, so that large writes go to blocks at once."
            )
    return _FRAME.pack(len(body), xxh3_64_intdigest(body)) + body


def parts(data: memoryview, start: int = 0) -> Iterator[tuple[Any, int]]:
    """Yield (content, end offset) of each record, up to the first that is incomplete or damaged."""
    unframe, digest_of, unpack, ahead, size = _FRAME.unpack_from, xxh3_64_intdigest, msgpack.unpackb, 12, len(data)
    while start + ahead <= size:
        length, digest = unframe(data, start)
        end = start + ahead + length
        body = data[start + ahead : end]
        if end > size or digest_of(body) != digest:
            return
        yield unpack(body, use_list=False, strict_map_key=False), end
        start = end


def commit_of(content: Any) -> Commit:
    """Return the commit that a record describes, with the rows it closed but without its new rows."""
    number, at, operation, summary, commit_token, token, result, _, tables = content
    changes = {}
    for table_id, closed, deleted, ids, _, _ in tables:
        if closed is not None:
            gone = {file_id: BitMap.deserialize(positions) for file_id, positions in deleted}
            changes[table_id] = Change(closed_rows(closed), None, gone, columns_of(ids))
    return Commit(number, at, operation, summary, commit_token, token, result, changes)


def closed_rows(closed: Any) -> BitMap64:
    return BitMap64.deserialize(closed) if isinstance(closed, bytes) else BitMap64(closed)


def is_evidence(data: memoryview, start: int, last: int) -> bool:
    """Return whether any record after a damaged one says that a commit after ``last`` was durable."""
    for found in _RECORD.finditer(data, start + _FRAME.size):
        at = found.start()
        length, digest = _FRAME.unpack_from(data, at - _FRAME.size)
        body = data[at : at + length]
        if at + length <= len(data) and xxh3_64_intdigest(body) == digest and msgpack.unpackb(body)[7] > last:
            return True
    return False


@lru_cache(1024)
def field_ids(columns: tuple[str, ...]) -> tuple[int, ...]:
    return tuple([int(name[1:]) for name in columns])


@lru_cache(1024)
def columns_of(ids: tuple[int, ...]) -> tuple[str, ...]:
    return tuple([f"f{field_id}" for field_id in ids])
