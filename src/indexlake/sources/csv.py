"""CSV: read in blocks, one after the other, each value in the type of its column.

RFC 4180 with a configurable delimiter: quotes, doubled quotes inside them, line breaks inside them; UTF-8.  Texts that
mean null do so only without quotes, so that an empty string can be distinguished from a null.  Rows are numbered as in
an editor, including the header, as long as no value contains a line break.  Empty lines are ignored, except in a file
with one column, where each is a row whose value is empty.

The reader turns some texts into numbers other than those they spell: 16 for ``0x10``, infinity for ``1e400``.  Blocks
in which that may have happened are read again as text, and such a value is an error.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indexlake.errors import ConstraintError, SchemaError
from indexlake.schema import TableSchema
from indexlake.sources.failures import bad_row, bad_value, one_line
from indexlake.sources.files import SourceFile
from indexlake.sources.text import converted, convertible, csv_type, first_inexact, first_refused, may_be_inexact

BLOCK_BYTES = 2 << 20
"""The bytes converted at a time, and the limit for a row.  The reader holds some thirty more blocks read ahead."""

_CONVERSION = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?(.*)", re.DOTALL)
_PARSING = re.compile(r"CSV parse error: (?:Row #(\d+): )?(.*)", re.DOTALL)


def columns(file: SourceFile, schema: TableSchema | None = None) -> tuple[str, ...]:
    """Return the names in the header, or those given by the options or the table."""
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
    """Return the fields of the first row as the reader parses them."""
    from pyarrow.csv import ConvertOptions, ParseOptions, ReadOptions, open_csv

    row = _first_row(_head(file))
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


def _head(file: SourceFile) -> bytes:
    with file.opened() as (stream, _):
        head: bytes = stream.read(BLOCK_BYTES)
    return head


def _first_row(text: bytes) -> bytes:
    """Return the text up to the first line break outside of quotes, as far as counting quotes can tell."""
    end = text.find(b"\n")
    while end >= 0 and (not text[:end].strip() or text.count(b'"', 0, end) % 2):
        end = text.find(b"\n", end + 1)
    return text if end < 0 else text[:end]


def inferred(file: SourceFile) -> pa.Schema:
    """Return types that fit all values of the first block.

    Whole numbers are int64, other numbers float64; text that would lose something by that (leading zeros, more digits
    than int64 has) stays text.  Dates and times are recognised in ISO 8601; moments are in microseconds.
    """
    names = columns(file)
    if len(set(names)) < len(names):
        raise SchemaError(f"its header names a column twice: {', '.join(names)}.")
    block = _first_block(file, names, {})
    numeric = {f.name: pa.string() for f in block.schema if f.type in (pa.int64(), pa.float64())}
    texts = _first_block(file, names, numeric) if numeric else None
    fields = []
    for f in block.schema:
        type = _kept(f.type)
        if texts is not None and f.name in numeric and _loses(texts.column(f.name), block.column(f.name)):
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
    """Return an inferred type in the form in which a column has it."""
    if pa.types.is_timestamp(type):
        return pa.timestamp("us", type.tz)
    return pa.time64("us") if pa.types.is_time(type) else type


def _loses(texts: Any, numbers: Any) -> bool:
    zeros = pc.any(pc.match_substring_regex(texts, r"^\s*[+-]?0[0-9]")).as_py()
    floats = pa.types.is_floating(numbers.type)
    whole = floats and pc.any(pc.match_substring_regex(texts, r"^\s*[+-]?[0-9]{17,}\s*$")).as_py()
    return bool(zeros or whole or first_inexact(texts, numbers) is not None)


class _Watched:
    """A stream that notes whether ``0x`` has occurred."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._last = b""
        self.hexadecimal = False
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        block: bytes = self._stream.read(size)
        if not self.hexadecimal:
            edge = (self._last + block[:1]).lower()
            self.hexadecimal = b"0x" in block or b"0X" in block or edge == b"0x"
            self._last = block[-1:]
        return block

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True


def _texts(file: SourceFile, names: Sequence[str]) -> Generator[pa.RecordBatch, None, None]:
    """Read the same blocks as text, used in parallel once a block has to be checked."""
    types = dict.fromkeys(names, pa.string())
    with file.opened() as (stream, _), _reader(file, stream, names, types) as reader:
        yield from reader


def batches(file: SourceFile, schema: TableSchema) -> Iterator[tuple[pa.RecordBatch, int]]:
    names = columns(file, schema)
    wanted = {name: schema.field(name).type for name in names}
    types = {name: csv_type(name, type) for name, type in wanted.items()}
    for name, type in wanted.items():
        convertible(name, types[name], type)
    first_row = 2 if file.csv.header is True else 1
    last: Any = None
    blocks = 0
    integers = [n for n, name in enumerate(names) if _is_whole(types[name])]
    floats = [n for n, name in enumerate(names) if pa.types.is_floating(types[name])]
    with file.opened() as (stream, raw), closing(_texts(file, names)) as texts:
        numbered = enumerate(texts)
        watched = _Watched(stream) if integers else stream
        try:
            reader = _reader(file, watched, names, types)
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
                doubtful = [n for n in floats if may_be_inexact(batch.column(n))]
                if integers and watched.hexadecimal:
                    doubtful += integers
                if doubtful:
                    text = next(found for n, found in numbered if n == blocks)
                    _check_exact(text, batch, doubtful, wanted, first_row)
                arrays = [_column(batch.column(n), name, wanted[name], first_row) for n, name in enumerate(names)]
                first_row += batch.num_rows
                if batch.num_rows:
                    last = batch.column(len(names) - 1)[-1]
                blocks += 1
                converted_bytes = raw.tell() if file.compression else min(raw.tell(), blocks * BLOCK_BYTES)
                yield pa.RecordBatch.from_arrays(arrays, list(names)), converted_bytes
    _check_end(file, last, first_row - 1)


def _check_exact(
    texts: pa.RecordBatch, batch: pa.RecordBatch, columns: Sequence[int], wanted: dict[str, Any], first_row: int
) -> None:
    """Refuse the first value of these columns that differs from what its text says."""
    for n in columns:
        name = texts.schema.names[n]
        place = first_inexact(texts.column(n), batch.column(n))
        if place is not None:
            text = texts.column(n)[place].as_py()
            raise bad_value(name, wanted[name], f"row {first_row + place}", f"it does not hold {text} exactly")


def _is_whole(type: Any) -> bool:
    """Return whether the reader parses such a column as whole numbers."""
    return bool(pa.types.is_integer(type) or pa.types.is_duration(type))


def _check_end(file: SourceFile, last: Any, row: int) -> None:
    """Refuse a file with an unclosed quote, which would turn everything after it into one value."""
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
        # One thread converts a block while the next is read, so row numbers are known.
        ReadOptions(
            block_size=BLOCK_BYTES,
            use_threads=False,
            column_names=None if file.csv.header is True else list(names),
            skip_rows=_empty_lines(file) if file.csv.header is True and len(names) == 1 else 0,
        ),
        ParseOptions(delimiter=file.csv.delimiter, newlines_in_values=True, ignore_empty_lines=len(names) > 1),
        ConvertOptions(
            column_types=types,
            null_values=list(file.csv.null),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _empty_lines(file: SourceFile) -> int:
    """Return the number of empty lines before the header."""
    lines = _head(file).split(b"\n")
    return next((n for n, line in enumerate(lines) if line.strip()), 0)


def _has_rows(file: SourceFile) -> bool:
    """Return whether anything follows the header; the reader cannot handle a header without a line break."""
    lines = [line for line in _head(file).splitlines() if line.strip()]
    return len(lines) > (1 if file.csv.header is True else 0)


def _located(error: pa.ArrowInvalid, names: Sequence[str], wanted: dict[str, Any]) -> SchemaError | ConstraintError:
    """Return the reader's error with the column name and row number, as far as it gives them."""
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
