"""Commits as the redo log holds them.

A file begins with a header and goes on with records, each of them

    4 bytes   length of what follows the digest, little-endian
    8 bytes   xxh3-64 of it, little-endian
    …         a MessagePack array

The header is ``["indexlake redo", 1, lake id, incarnation, epoch, number of the file]``.  A record is ``[number,
committed at, operation, summary, commit token, user token, result, durable, tables]``; ``durable`` is the number of the
newest commit that was known to be durable when the record was written.  Each table is ``[table id, closed, deleted,
field ids, row ids, columns]``: ``closed`` are the row ids of versions that end with the commit, as an array or, where
they are many, as a 64-bit roaring bitmap; ``deleted`` are the positions of those that lie in blocks, as pairs of a data
file id and a roaring bitmap; the columns hold the encoded values of the new versions.  Fields go by id, so that it does
not matter what becomes of the table's columns later.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import msgpack
from pyroaring import BitMap, BitMap64
from xxhash import xxh3_64_intdigest

FORMAT = 1
MAGIC = "indexlake redo"
_FRAME = struct.Struct("<IQ")
_FEW = 64
_SMALL = 1 << 16
_packer = msgpack.Packer(buf_size=_SMALL)  # to make one costs more than to pack a row


@dataclass(slots=True)
class Change:
    """What a commit did to one table."""

    closed: BitMap64 | None = None
    locked: BitMap64 | None = None
    deleted: dict[int, Any] = field(default_factory=dict)  # positions of closed rows in blocks, by data file id
    columns: tuple[str, ...] = ()
    rows: list[tuple[int, Any]] = field(default_factory=list)


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


class Found(NamedTuple):
    """A record of a file: the commit, what was durable when it was written, and where it ends."""

    commit: Commit
    durable: int
    end: int


def pack(commit: Commit, durable: int) -> bytes:
    tables = []
    for table_id, change in commit.tables.items():
        closed: Any = None
        if change.closed:
            closed = list(change.closed) if len(change.closed) <= _FEW else change.closed.serialize()
        if closed is None and not change.rows:
            continue
        ids, values = [row[0] for row in change.rows], [row[1] for row in change.rows]
        columns = list(zip(*values, strict=True)) if values else []
        deleted = [(file_id, positions.serialize()) for file_id, positions in change.deleted.items()]
        tables.append((table_id, closed, deleted, field_ids(change.columns), ids, columns))
    return framed(
        (
            commit.number, commit.committed_at, commit.operation, commit.summary, commit.commit_token, commit.token,
            commit.result, durable, tables,
        )
    )  # fmt: skip


def header(lake_id: str, incarnation: int, epoch: int, number: int) -> bytes:
    return framed((MAGIC, FORMAT, lake_id, incarnation, epoch, number))


def framed(content: Any) -> bytes:
    global _packer
    body: bytes = _packer.pack(content)
    if len(body) > _SMALL:
        _packer = msgpack.Packer(buf_size=_SMALL)  # which has kept a buffer of that size
    return _FRAME.pack(len(body), xxh3_64_intdigest(body)) + body


def parts(data: memoryview, start: int = 0) -> Iterator[tuple[Any, int]]:
    """(content, where it ends), up to the first that is not whole and right."""
    while start + _FRAME.size <= len(data):
        length, digest = _FRAME.unpack_from(data, start)
        end = start + _FRAME.size + length
        if end > len(data):
            return
        body = data[start + _FRAME.size : end]
        if xxh3_64_intdigest(body) != digest:
            return
        try:
            content = msgpack.unpackb(body, use_list=False)
        except ValueError:
            return
        yield content, end
        start = end


def records(data: memoryview, start: int) -> Iterator[Found]:
    for content, end in parts(data, start):
        number, at, operation, summary, commit_token, token, result, durable, tables = content
        commit = Commit(number, at, operation, summary, commit_token, token, result)
        for table_id, closed, deleted, ids, row_ids, columns in tables:
            ended = None
            if closed is not None:
                ended = BitMap64.deserialize(closed) if isinstance(closed, bytes) else BitMap64(closed)
            values = zip(*columns, strict=True) if columns else ((),) * len(row_ids)
            rows = list(zip(row_ids, values, strict=True))
            gone = {file_id: BitMap.deserialize(positions) for file_id, positions in deleted}
            commit.tables[table_id] = Change(ended, None, gone, _columns(ids), rows)
        yield Found(commit, durable, end)


def is_evidence(data: memoryview, start: int, number: int) -> bool:
    """Whether a later record, found anywhere after a damaged one, knew that commit ``number`` was durable."""
    for at in range(start, max(start, len(data) - _FRAME.size)):
        length, digest = _FRAME.unpack_from(data, at)
        body = data[at + _FRAME.size : at + _FRAME.size + length]
        if len(body) != length or length < 8 or body[0] != 0x99 or xxh3_64_intdigest(body) != digest:
            continue
        content = msgpack.unpackb(body, use_list=False)
        if content[7] >= number:
            return True
    return False


@lru_cache(1024)
def field_ids(columns: tuple[str, ...]) -> tuple[int, ...]:
    return tuple([int(name[1:]) for name in columns])


@lru_cache(1024)
def _columns(ids: tuple[int, ...]) -> tuple[str, ...]:
    return tuple([f"f{field_id}" for field_id in ids])
