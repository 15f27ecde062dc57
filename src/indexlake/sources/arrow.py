"""Arrow IPC: files (Feather version 2 is the same) and streams, distinguished by their first bytes.

A stream without its end marker was cut off and is refused, since there is no telling what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from indexlake.errors import CorruptionError, SchemaError
from indexlake.schema import TableSchema
from indexlake.sources.files import SourceFile

_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def inferred(file: SourceFile) -> pa.Schema:
    if _is_file(file):
        with file.open() as opened, pa.ipc.open_file(opened) as reader:
            return reader.schema
    with file.open() as opened, pa.ipc.open_stream(opened) as reader:
        return reader.schema


def batches(file: SourceFile, schema: TableSchema) -> Iterator[tuple[pa.RecordBatch, int]]:
    with file.open() as opened:
        if _is_file(file):
            with pa.ipc.open_file(opened) as reader:
                for n in range(reader.num_record_batches):
                    yield reader.get_batch(n), file.size * (n + 1) // reader.num_record_batches
            return
        opened.seek(max(0, file.size - len(_END_OF_STREAM)))
        if opened.read() != _END_OF_STREAM:
            raise CorruptionError(f"{file.path!r} is an Arrow stream that was cut off: it has no end.", path=file.path)
        opened.seek(0)
        with pa.ipc.open_stream(opened) as reader:
            for batch in reader:
                yield batch, opened.tell()


def _is_file(file: SourceFile) -> bool:
    with file.open() as opened:
        head: bytes = opened.read(6)
    if head.startswith(b"FEA1"):
        raise SchemaError(
            f"{file.path!r} is a Feather file of version 1, which is not supported. Read it with pyarrow and "
            "write it again.",
            path=file.path,
        )
    return head == b"ARROW1"
