"""JSON lines: one object on each line, read in blocks of whole lines, each value in the type of its column.

An object need not name every column.  A column that it does not name takes its default, and one that it gives as null
is null, as with rows given as dicts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexlake.arrow.buffers import holds
from indexlake.errors import SchemaError
from indexlake.schema import TableSchema
from indexlake.schema.fitting import fit
from indexlake.sources.failures import bad_row, bad_value
from indexlake.sources.files import SourceFile
from indexlake.sources.rules import default_array
from indexlake.sources.text import converted, convertible, first_refused, json_type, may_be_inexact
from indexlake.types.convert import convert, mapped_leaves, without_view

BLOCK_BYTES = 4 << 20


def columns(file: SourceFile, schema: TableSchema | None = None) -> tuple[str, ...]:
    """Return the columns of the first object; later ones may have more."""
    for _, lines, _ in _blocks(file):
        for line in lines:
            if line.strip():
                return tuple(_object(line, 1))
    raise SchemaError("it holds only empty lines.")


def inferred(file: SourceFile) -> pa.Schema:
    """Return types that fit all values of the first block.

    Numbers are int64, or float64 if any has a fraction.  Texts that are all ISO 8601 moments are timestamps in
    microseconds, in UTC if all have a zone, and strings if only some have one; dates alone are dates, times of day are
    times; other texts are strings.  A number that neither type holds exactly is refused.
    """
    columns(file)
    for first_line, lines, _ in _blocks(file):
        table = _parsed(lines, {})
        if isinstance(table, pa.ArrowException):
            raise _located(table, lines, {}, first_line)
        if any(holds(f.type, pa.types.is_floating) for f in table.schema):
            _check_whole_numbers(lines, first_line)
        return pa.schema(
            [pa.field(f.name, type) for f, type in zip(table.schema, _kept_types(table, lines), strict=True)]
        )
    raise AssertionError("columns() has found an object")


_DAY = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_TIME = r"^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?$"
_ZONED = r"[T ][0-9]{2}.*(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"


def _kept_types(table: pa.Table, lines: list[bytes]) -> list[Any]:
    """Return the types of the columns; moments are read as text, as the reader does not tell if they have a zone."""
    if any(holds(f.type, pa.types.is_timestamp) for f in table.schema):
        types = {f.name: mapped_leaves(f.type, _text_of_moment) for f in table.schema}
        texts = _parsed(lines, types)
        assert not isinstance(texts, pa.ArrowException), "any text is a string"
    else:
        texts = table
    return [_kept(f.type, texts.column(f.name).combine_chunks()) for f in table.schema]


def _text_of_moment(type: Any) -> Any:
    return pa.string() if pa.types.is_timestamp(type) else type


def _matching(texts: Any, pattern: str) -> int:
    """Return how many of the texts match."""
    return pc.sum(pc.match_substring_regex(texts, pattern), min_count=0).as_py()  # type: ignore[no-any-return]


def _kept(type: Any, values: Any) -> Any:
    if pa.types.is_timestamp(type):
        count = len(values) - values.null_count
        if _matching(values, _DAY) == count:
            return pa.date32()
        zoned = _matching(values, _ZONED)
        if 0 < zoned < count:
            return pa.string()
        return pa.timestamp("us", "UTC" if zoned else None)
    if pa.types.is_string(type):
        times = _matching(values, _TIME)
        return pa.time64("us") if times and times == len(values) - values.null_count else type
    if pa.types.is_struct(type):
        return pa.struct([pa.field(f.name, _kept(f.type, values.field(n))) for n, f in enumerate(type)])
    if pa.types.is_list(type):
        inner = pa.string() if pa.types.is_null(type.value_type) else _kept(type.value_type, values.flatten())
        return pa.list_(pa.field(type.value_field.name, inner))
    return type


def _check_whole_numbers(lines: list[bytes], first_line: int) -> None:
    """Refuse whole numbers beyond int64, which the reader would turn into the nearest float."""

    def whole(digits: str) -> int:
        number = int(digits)
        if not -(1 << 63) <= number < 1 << 63:
            raise OverflowError(digits)
        return number

    for n, line in enumerate(lines):
        try:
            json.loads(line or b"{}", parse_int=whole)
        except OverflowError as error:
            raise bad_row(
                f"line {first_line + n}",
                f"the number {error} is beyond int64; create the table with a schema, then insert the file",
            ) from None


def batches(file: SourceFile, schema: TableSchema) -> Iterator[tuple[pa.RecordBatch, int]]:
    names = {name: schema.field(name).name for name in columns(file)}  # spelling in the file -> spelling in the table
    for first_line, lines, position in _blocks(file):
        table = _block(lines, names, schema, first_line)
        named = names
        if not names and any(line.strip() for line in lines):  # no row names a column: add one, so that the rows count
            first = schema.fields[0].name
            named = {first: first}
            table = _block(lines, named, schema, first_line)
        arrays = {}
        for spelt, name in named.items():
            f = schema.field(name)
            if name in arrays:
                raise SchemaError(f"column {name!r} is spelt in several ways.", column=name)
            read = table.column(spelt).combine_chunks()
            if may_be_inexact(read):
                _check_floats(lines, spelt, name, read.type, f.type, first_line)
            try:
                arrays[name] = converted(read, f.type)
            except pa.ArrowException as error:
                line = first_line + _line_of(lines, first_refused(read, f.type))
                raise bad_value(name, f.type, f"line {line}", error) from None
            if (f.default is not None or f.default_sql is not None) and read.null_count:
                arrays[name] = _with_default(arrays[name], schema, name, spelt, lines)
        if table.num_rows:
            yield pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays)), position


def _check_floats(lines: list[bytes], spelt: str, name: str, read: Any, type: Any, first_line: int) -> None:
    """Refuse whole numbers that the reader turned into the nearest float, and numbers that it turned into infinity."""
    for n, line in enumerate(lines):
        found = _inexact(json.loads(line).get(spelt), read) if line.strip() else None
        if found is not None:
            raise bad_value(name, type, f"line {first_line + n}", f"it does not hold {found} exactly")


def _inexact(value: Any, type: Any) -> int | float | None:
    """Return the first number in a value that differs from its float of the type, or overflows it; else None."""
    if pa.types.is_floating(type):
        number: int | float = value if isinstance(value, int | float) else 0
        try:
            with np.errstate(over="ignore"):
                same = float(type.to_pandas_dtype()(float(number)))
        except OverflowError:
            return number
        if isinstance(number, float):
            return number if math.isinf(same) and not math.isinf(number) else None
        return None if same == number else number
    if isinstance(value, dict) and pa.types.is_struct(type):
        parts = [(part, type.field(key).type) for key, part in value.items() if type.get_field_index(key) >= 0]
    elif isinstance(value, list):
        parts = [(part, type.value_type) for part in value]
    else:
        return None
    return next((found for part, own in parts if (found := _inexact(part, own)) is not None), None)


def _block(lines: list[bytes], names: dict[str, str], schema: TableSchema, first_line: int) -> pa.Table:
    """Return a block in the table's types; if there are new columns, add them to ``names`` and read again."""
    while True:
        types = {spelt: _read_type(schema, name) for spelt, name in names.items()}
        table = _parsed(lines, types)
        if isinstance(table, pa.ArrowException):
            found = _all_names(lines, first_line)
        else:
            found = dict.fromkeys(table.schema.names)
        new = [name for name in found if name not in names]
        for name in new:
            try:
                names[name] = schema.field(name).name
            except SchemaError as error:
                at = next(n for n, line in enumerate(lines) if line.strip() and name in _object(line, first_line + n))
                raise SchemaError(f"line {first_line + at}: {error}", column=name) from None
        if new:
            continue
        if isinstance(table, pa.ArrowException):
            raise _located(table, lines, types, first_line)
        if table.num_rows != sum(1 for line in lines if line.strip()):
            _all_names(lines, first_line)  # raises if an object is not on a line of its own
        for spelt, type in types.items():
            if table.schema.field(spelt).type != type:
                raise SchemaError(
                    f"column {spelt!r} holds {table.schema.field(spelt).type}, which has fields that its type "
                    f"{schema.field(spelt).type} does not have.",
                    column=names[spelt],
                )
        return table


def _read_type(schema: TableSchema, name: str) -> Any:
    type = schema.field(name).type
    read = json_type(name, type)
    convertible(name, read, type)
    return read


def _parsed(lines: list[bytes], types: Mapping[str, Any]) -> pa.Table | pa.ArrowException:
    """Return the lines as a table, or the reader's error."""
    from pyarrow.json import ParseOptions, ReadOptions, read_json

    text = b"\n".join(lines)
    if not text.strip():
        return pa.schema(types).empty_table()
    options = ParseOptions(explicit_schema=pa.schema(types), unexpected_field_behavior="infer")
    try:
        return read_json(BytesIO(text), ReadOptions(use_threads=False, block_size=len(text) + 1), options)
    except pa.ArrowException as error:
        return error


def _blocks(file: SourceFile) -> Iterator[tuple[int, list[bytes], int]]:
    """Yield the number of the first line, whole lines, and how many bytes of the file have been read."""
    first_line = 1
    rest: list[bytes] = []
    with file.opened() as (stream, raw):
        start = True
        while block := stream.read(BLOCK_BYTES):
            if start:
                block = block.removeprefix(b"\xef\xbb\xbf")
                start = False
            whole, line_break, tail = block.rpartition(b"\n")
            if not line_break:
                rest.append(block)
                continue
            lines = _lines(b"".join([*rest, whole]), first_line)
            rest = [tail]
            yield first_line, lines, raw.tell()
            first_line += len(lines)
        if last := b"".join(rest):
            yield first_line, _lines(last, first_line), raw.tell()


def _lines(text: bytes, first_line: int) -> list[bytes]:
    try:
        text.decode()  # the reader does not check
    except UnicodeDecodeError as error:
        line = first_line + text.count(b"\n", 0, error.start)
        raise bad_row(f"line {line}", "it is not UTF-8") from None
    return text.split(b"\n")


def _object(line: bytes, number: int) -> dict[str, Any]:
    if line.lstrip().startswith(b"["):
        raise bad_row(
            f"line {number}", "it begins with an array; JSON lines have one object, {…}, on each line and no brackets"
        )
    try:
        found = json.loads(line)
    except ValueError as error:
        raise bad_row(f"line {number}", f"it is not a JSON object: {error}") from None
    except RecursionError:
        raise bad_row(f"line {number}", "a value in it is nested too deeply to be read") from None
    if not isinstance(found, dict):
        raise bad_row(f"line {number}", f"it is {type(found).__name__}, not a JSON object")
    return found


def _all_names(lines: list[bytes], first_line: int) -> dict[str, None]:
    return {name: None for n, line in enumerate(lines) if line.strip() for name in _object(line, first_line + n)}


def _line_of(lines: list[bytes], row: int) -> int:
    """Return the line of a row: rows are the lines that are not empty."""
    return [n for n, line in enumerate(lines) if line.strip()][row]


def _with_default(array: Any, schema: TableSchema, name: str, spelt: str, lines: list[bytes]) -> Any:
    """Replace the nulls of rows that do not name the column by its default."""
    f = schema.field(name)
    objects = [line for line in lines if line.strip()]
    missing = [
        not valid and spelt not in json.loads(objects[row]) for row, valid in enumerate(array.is_valid().to_pylist())
    ]
    if not any(missing):
        return array
    plain = f.type.value_type if pa.types.is_dictionary(f.type) else f.type
    held = mapped_leaves(plain, without_view)
    default = default_array(f, sum(missing))
    both = pa.concat_arrays([convert(array, held), convert(fit(default, replace(f, type=plain)), held)])
    places = np.arange(len(array))
    places[missing] = len(array) + np.arange(sum(missing))
    return convert(both.take(pa.array(places)), plain)


def _located(error: pa.ArrowException, lines: list[bytes], types: Mapping[str, Any], first_line: int) -> Exception:
    """Return the error for the first line that cannot be read, and the column in it."""
    low, high = 0, len(lines)
    while high - low > 1:
        middle = (low + high) // 2
        if isinstance(_parsed(lines[low:middle], types), pa.ArrowException):
            high = middle
        else:
            low = middle
    line, number = lines[low], first_line + low
    if not isinstance(alone := _parsed([line], types), pa.ArrowException):
        return bad_row(f"lines {first_line} to {first_line + len(lines) - 1}", error)  # the lines disagree
    for name, value in _object(line, number).items():
        if name in types:
            part = json.dumps({name: value}).encode()
            problem = _parsed([part], {name: types[name]})
            if isinstance(problem, pa.ArrowException):
                return bad_value(name, types[name], f"line {number}", problem)
    return bad_row(f"line {number}", alone)
