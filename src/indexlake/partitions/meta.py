"""Meta files, from which a lost catalog is rebuilt: their format, as values to bytes and back.

A meta file describes one clustered table at one snapshot completely: its definition, every column it ever had, indexes,
live partitions, live blocks with checksums and deleted positions, and which segment answers for which block. Together
with the block files that it names, it gives exactly the rows that were in blocks then.

The first line is ``indexlake-meta <format> <incarnation> <snapshot> <state> <checksum>``. The rest is JSON, with one
record on each line, and the checksum is its xxh3-128. ``state`` is the xxh3-128 of the table's contents: two files with
the same state differ in nothing that matters. Bytes are base64.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, SupportsBytes, TypeVar

from xxhash import xxh3_128, xxh3_128_hexdigest

from indexlake.blocks.block import BlockRecord
from indexlake.errors import CorruptionError
from indexlake.indexes.index import Index, Link
from indexlake.indexes.kind import SegmentFile
from indexlake.partitions.partition import Partition
from indexlake.schema.names import full_name

FORMAT = 1
_MAGIC = "indexlake-meta"
HEADER_BYTES = 256
"""The first line is never longer."""

T = TypeVar("T")
Record = Mapping[str, Any]
"""A record of the catalog by the names of its columns, as in docs/catalog.md."""


class NewerFormat(CorruptionError):
    """A meta file written by a newer IndexLake. It is intact, and older files must not replace it."""


@dataclass(frozen=True, slots=True)
class Header:
    """The first line of a meta file. A table's newest file has the highest incarnation and snapshot."""

    incarnation: int
    snapshot: int
    state: str
    checksum: str

    @property
    def age(self) -> tuple[int, int]:
        return self.incarnation, self.snapshot


class NamedFile(NamedTuple):
    """The file of a block or a segment."""

    path: str
    size: int
    checksum: SupportsBytes
    rows: int = 0  # of a block


@dataclass(frozen=True, slots=True)
class TableMeta:
    """One clustered table at one snapshot.

    ``ended``: the table was dropped or is no longer clustered, so nothing can be restored from this file.
    """

    lake_id: str
    incarnation: int
    snapshot: int
    ended: bool
    hot_rows: int  # rows in the hot store, which are not contained here
    next_row_id: int
    sequences: Mapping[str, int]  # the next value of each counter of the lake
    table: Record
    fields: tuple[Record, ...]
    indexes: tuple[Index, ...]
    partitions: tuple[Partition, ...]
    blocks: tuple[BlockRecord, ...]
    links: tuple[Link, ...]
    deletes: Mapping[int, bytes]  # by data file id: the positions, as the catalog stores them

    @property
    def table_id(self) -> int:
        return int(self.table["table_id"])

    @property
    def full_name(self) -> str:
        return full_name(self.table["namespace_name"], self.table["table_name"])

    @property
    def segments(self) -> dict[int, SegmentFile]:
        """The segments by index file id."""
        return {link.index_file_id: link.segment for link in self.links}

    @property
    def files(self) -> list[NamedFile]:
        """Every file that it names."""
        blocks = [NamedFile(b.path, b.size, b.checksum, b.record_count) for b in self.blocks]
        return blocks + [NamedFile(s.path, s.size, s.checksum) for s in self.segments.values()]


def meta_to_bytes(meta: TableMeta) -> tuple[Header, bytes]:
    """Return the header and the bytes of the whole file."""
    links = [
        (link.data_file_id, link.index_file_id, link.ordinal, link.begin_snapshot)
        for link in sorted(meta.links, key=lambda link: (link.data_file_id, link.index_file_id))
    ]
    segments = sorted(meta.segments.items())
    blocks = sorted(meta.blocks, key=lambda block: block.data_file_id)
    state = {
        "table": dict(meta.table),
        "fields": [dict(f) for f in meta.fields],
        "indexes": _rows(Index, meta.indexes),
        "partitions": _rows(Partition, meta.partitions),
        "blocks": _rows(BlockRecord, blocks),
        "segment_ids": [number for number, _ in segments],
        "segments": _rows(SegmentFile, [segment for _, segment in segments]),
        "links": [["data_file_id", "index_file_id", "ordinal", "begin_snapshot"], *links],
        "deletes": [[file_id, _text(positions)] for file_id, positions in sorted(meta.deletes.items())],
        "ended": meta.ended,
    }
    parts = {name: _lines(value) for name, value in state.items()}
    digest = xxh3_128()
    for name, text in parts.items():
        digest.update(f"{name}: {text}\n".encode())
    for name in ("lake_id", "incarnation", "snapshot", "hot_rows", "next_row_id"):
        parts[name] = json.dumps(getattr(meta, name))
    parts["sequences"] = json.dumps(dict(meta.sequences))
    body = ("{\n" + ",\n".join(f"{json.dumps(name)}: {text}" for name, text in parts.items()) + "\n}\n").encode()
    header = Header(meta.incarnation, meta.snapshot, digest.hexdigest(), xxh3_128_hexdigest(body))
    line = f"{_MAGIC} {FORMAT} {header.incarnation} {header.snapshot} {header.state} {header.checksum}\n"
    return header, line.encode() + body


def read_header(data: bytes, path: str) -> Header:
    """Return the header of a meta file, from its first bytes."""
    words = bytes(data[:HEADER_BYTES]).partition(b"\n")[0].decode("utf-8", "replace").split(" ")
    if words[0] == _MAGIC and len(words) > 1 and words[1].isdecimal() and int(words[1]) > FORMAT:
        raise NewerFormat(
            f"meta file {path!r} has format {words[1]}; this IndexLake knows formats up to {FORMAT}. Upgrade with: "
            "pip install -U indexlake",
            path=path,
        )
    if words[0] != _MAGIC or len(words) != 6 or not all(word.isdecimal() for word in words[1:4]):
        raise CorruptionError(f"meta file {path!r} is damaged: it does not start like one.", path=path)
    return Header(int(words[2]), int(words[3]), words[4], words[5])


def meta_from_bytes(data: bytes, path: str) -> TableMeta:
    """Return the value passed to ``meta_to_bytes``. ``path`` is for errors."""
    header = read_header(data, path)
    body = data[data.index(b"\n") + 1 :]
    if xxh3_128_hexdigest(body) != header.checksum:
        raise CorruptionError(f"meta file {path!r} is damaged: its checksum does not match its content.", path=path)
    try:
        return _from_json(json.loads(body))
    except (ValueError, LookupError, TypeError) as error:
        raise CorruptionError(
            f"meta file {path!r} is damaged: its content is not that of a meta file ({error!r}).", path=path
        ) from None


def _from_json(found: Any) -> TableMeta:
    segments = dict(zip(found["segment_ids"], _records(SegmentFile, found["segments"]), strict=True))
    links = tuple(
        Link(file_id, number, segments[number], ordinal, begin, None, begin)
        for file_id, number, ordinal, begin in found["links"][1:]
    )
    return TableMeta(
        found["lake_id"], found["incarnation"], found["snapshot"], found["ended"], found["hot_rows"],
        found["next_row_id"], found["sequences"], found["table"], tuple(found["fields"]),
        _records(Index, found["indexes"]), _records(Partition, found["partitions"]),
        _records(BlockRecord, found["blocks"]), links,
        {file_id: base64.b64decode(text) for file_id, text in found["deletes"]},
    )  # fmt: skip


# ---------------------------------------------------------------- records: the names of their columns, then the values


def _columns(kind: Any) -> tuple[tuple[str, bool, bool], ...]:
    """Return the columns of a record: name, whether they are bytes, whether they are tuples."""
    types = {name: str(type) for name, type in kind.__annotations__.items()}
    return tuple((name, "bytes" in type.lower(), "tuple[" in type) for name, type in types.items())


def _rows(kind: type[T], records: Iterable[T]) -> list[Any]:
    columns = _columns(kind)
    return [
        [name for name, _, _ in columns],
        *(
            [_text(getattr(r, name)) if is_bytes else getattr(r, name) for name, is_bytes, _ in columns]
            for r in records
        ),
    ]


def _records(kind: type[T], rows: list[Any]) -> tuple[T, ...]:
    columns = {name: (is_bytes, is_tuple) for name, is_bytes, is_tuple in _columns(kind)}
    kinds = [columns[name] for name in rows[0]]
    return tuple(
        kind(**dict(zip(rows[0], [_value(v, *of) for v, of in zip(row, kinds, strict=True)], strict=True)))
        for row in rows[1:]
    )


def _value(value: Any, is_bytes: bool, is_tuple: bool) -> Any:
    if value is None:
        return None
    return base64.b64decode(value) if is_bytes else tuple(value) if is_tuple else value


def _text(value: SupportsBytes | None) -> str | None:
    return None if value is None else base64.b64encode(bytes(value)).decode()


def _lines(value: Any) -> str:
    """Return JSON with each element of a list on its own line."""
    if not isinstance(value, list):
        return json.dumps(value)
    return "[\n" + ",\n".join(json.dumps(element) for element in value) + "\n]" if value else "[]"
