"""CSV: read in blocks, one after the other, each value in the type of its column.

RFC 4180 with a delimiter of choice: quotes, doubled quotes inside them, line breaks inside them; UTF-8.  A text that
means null does so without quotes only, so that an empty string can be told from a null.  Rows are counted as in an
editor, the header included, as long as no value holds a line break.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indexlake.errors import ConstraintError, SchemaError
from indexlake.schema import TableSchema
from indexlake.sources.failures import bad_row, bad_value, one_line
from indexlake.sources.files import SourceFile
from indexlake.sources.text import converted, convertible, csv_type, first_refused

BLOCK_BYTES = 2 << 20
"""Converted at a time; no row is longer.  The reader holds some thirty more that it has read ahead."""

_CONVERSION = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?(.*)", re.DOTALL)
_PARSING = re.compile(r"CSV parse error: (?:Row #(\d+): )?(.*)", re.DOTALL)


def columns(file: SourceFile, schema: TableSchema | None = None) -> tuple[str, ...]:
    """The names in the header, or those that the options or the table give."""
    found = _names_in(file)
    if file.csv.header is True:
        names = tuple(found)
    elif file.csv.header is False:
        names = schema.names if schema is not None else tuple(f"column{n}" for n in range(1, len(found) + 1))
    else:
        names = file.csv.header
    if len(names) != len(found):
        raise SchemaError(f"it has {len(found)} columns, not {len(names)} ({', '.join(names)}).")
    return names


def _names_in(file: SourceFile) -> list[str]:
    """The first row as the reader sees it."""
    from pyarrow.csv import ConvertOptions, ParseOptions, ReadOptions, open_csv

    with file.opened() as (stream, _):
        row = _first_row(stream.read(BLOCK_BYTES))
    if not row.strip():
        raise SchemaError("it holds only empty lines.")
    row += b"\n"  # a header may be all there is, even without a line break
    reading = ReadOptions(
        block_size=len(row) + 1, use_threads=False, autogenerate_column_names=file.csv.header is not True
    )
    parsing = ParseOptions(delimiter=file.csv.delimiter, newlines_in_values=True)
    try:
        with open_csv(pa.BufferReader(row), reading, parsing, ConvertOptions(check_utf8=False)) as reader:
            names: list[str] = reader.schema.names
            return names
    except pa.ArrowInvalid as error:
        raise SchemaError(f"its first row cannot be read: {one_line(error)}.") from None


def _first_row(text: bytes) -> bytes:
    """Up to the first line break that is not inside quotes, as far as that can be told by counting them."""
    end = text.find(b"\n")
    while end >= 0 and (not text[:end].strip() or text.count(b'"', 0, end) % 2):
        end = text.find(b"\n", end + 1)
    return text if end < 0 else text[:end]


def inferred(file: SourceFile) -> pa.Schema:
    """Types that fit all values of the first block.

    Whole numbers are int64, other numbers float64; what would lose something by that (leading zeros, more digits than
    int64 has) is text.  Dates and times are recognised in ISO 8601; moments are in microseconds.
    """
    names = columns(file)
    if len(set(names)) < len(names):
        raise SchemaError(f"its header names a column twice: {', '.join(names)}.")
    schema = _first_block(file, names, {}).schema
    numeric = {f.name: pa.string() for f in schema if f.type in (pa.int64(), pa.float64())}
    texts = _first_block(file, names, numeric) if numeric else None
    fields = []
    for f in schema:
        type = _kept(f.type)
        if texts is not None and f.name in numeric and _loses(texts.column(f.name), f.type):
            type = pa.string()
        fields.append(pa.field(f.name, type))
    return pa.schema(fields)


def _first_block(file: SourceFile, names: Sequence[str], types: dict[str, Any]) -> pa.RecordBatch:
    with file.opened() as (stream, _):
        try:
            with _reader(file, stream, names, types) as reader:
                first = next(iter(reader), None)
                return first if first is not None else pa.RecordBatch.from_pylist([], reader.schema)
        except pa.ArrowInvalid as error:
            if _has_rows(file):
                raise _located(error, names, {}) from None
            return pa.RecordBatch.from_pylist([], pa.schema([(name, pa.null()) for name in names]))


def _kept(type: Any) -> Any:
    """An inferred type as a column has it."""
    if pa.types.is_timestamp(type):
        return pa.timestamp("us", type.tz)
    return pa.time64("us") if pa.types.is_time(type) else type


def _loses(texts: Any, type: Any) -> bool:
    zeros = pc.any(pc.match_substring_regex(texts, r"^\s*[+-]?0[0-9]")).as_py()
    whole = pa.types.is_floating(type) and pc.any(pc.match_substring_regex(texts, r"^\s*[+-]?[0-9]{17,}\s*$")).as_py()
    return bool(zeros or whole)


def batches(file: SourceFile, schema: TableSchema) -> Iterator[tuple[pa.RecordBatch, int]]:
    names = columns(file, schema)
    wanted = {name: schema.field(name).type for name in names}
    types = {name: csv_type(name, type) for name, type in wanted.items()}
    for name, type in wanted.items():
        convertible(name, types[name], type)
    first_row = 2 if file.csv.header is True else 1
    last: Any = None
    blocks = 0
    with file.opened() as (stream, raw):
        try:
            reader = _reader(file, stream, names, types)
        except pa.ArrowInvalid as error:
            if not _has_rows(file):
                return
            raise _located(error, names, wanted) from None
        with reader:
            while True:
                try:
                    batch = reader.read_next_batch()
                except StopIteration:
                    break
                except pa.ArrowInvalid as error:
                    raise _located(error, names, wanted) from None
                arrays = [_column(batch.column(n), name, wanted[name], first_row) for n, name in enumerate(names)]
                first_row += batch.num_rows
                if batch.num_rows:
                    last = batch.column(len(names) - 1)[-1]
                blocks += 1
                converted_bytes = raw.tell() if file.compression else min(raw.tell(), blocks * BLOCK_BYTES)
                yield pa.RecordBatch.from_arrays(arrays, list(names)), converted_bytes
    _check_end(file, last, first_row - 1)


def _check_end(file: SourceFile, last: Any, row: int) -> None:
    """A quote that is opened and never closed would make one value of all that follows it."""
    if last is None or not last.is_valid or not isinstance(value := last.as_py(), str | bytes):
        return
    text = value.encode() if isinstance(value, str) else value
    opened = b'"' + text.replace(b'"', b'""')
    if opened == b'"':
        opened = (file.csv.delimiter or ",").encode() + opened
    tail = b""
    with file.opened() as (stream, raw):
        if stream is raw:
            raw.seek(max(0, file.size - len(opened)))
        while block := stream.read(BLOCK_BYTES):
            tail = (tail + block)[-len(opened) :]
    if tail == opened:
        raise bad_row(f"row {row}", "a quote is opened and never closed")


def _column(array: Any, name: str, type: Any, first_row: int) -> Any:
    try:
        return converted(array, type)
    except pa.ArrowException as error:
        row = first_row + first_refused(array, type)
        raise bad_value(name, type, f"row {row}", error) from None


def _reader(file: SourceFile, stream: Any, names: Sequence[str], types: dict[str, Any]) -> Any:
    from pyarrow.csv import ConvertOptions, ParseOptions, ReadOptions, open_csv

    return open_csv(
        stream,
        # One thread converts a block while the next is read, and knows the number of its rows.
        ReadOptions(
            block_size=BLOCK_BYTES,
            use_threads=False,
            column_names=None if file.csv.header is True else list(names),
        ),
        ParseOptions(delimiter=file.csv.delimiter, newlines_in_values=True),
        ConvertOptions(
            column_types=types,
            null_values=list(file.csv.null),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _has_rows(file: SourceFile) -> bool:
    """Whether anything follows the header; a header without a line break is no CSV block to the reader."""
    with file.opened() as (stream, _):
        head = stream.read(BLOCK_BYTES)
    lines = [line for line in head.splitlines() if line.strip()]
    return len(lines) > (1 if file.csv.header is True else 0)


def _located(error: pa.ArrowInvalid, names: Sequence[str], wanted: dict[str, Any]) -> SchemaError | ConstraintError:
    """The reader's error with the name of the column and the number of the row, as far as it says them."""
    text = str(error)
    if (found := _CONVERSION.match(text)) is not None:
        name = names[int(found[1])]
        return bad_value(name, wanted.get(name, "its type"), f"row {found[2]}" if found[2] else "some row", found[3])
    if (found := _PARSING.match(text)) is not None:
        return bad_row(f"row {found[1]}" if found[1] else "some row", found[2])
    if "straddling" in text:
        return SchemaError(
            f"a row is longer than {BLOCK_BYTES >> 20} MiB, or a quote is opened and never closed. Load such rows from "
            "Parquet or JSON lines."
        )
    return bad_row("some row", text)
