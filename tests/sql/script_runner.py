"""Runs the `.test` files of this folder on a lake and on plain DuckDB tables, and compares.

A file is a list of blocks separated by blank lines; lines that begin with `#` are comments.  The first line of a
block says what it is, every further line (or several, joined by a trailing backslash) is one statement:

    run                       succeeds on both; counts of changed rows are equal
    query [ordered]           gives the same columns and rows on both; in the same order if `ordered`
    fail <ErrorClass>         fails on both, on the lake with that error; tables are as before
    lake run | query | fail   the same for the lake alone, which then has to give what follows a line `----`: rows, or
                              words of the error
    lake answers              gives rows, whichever they are: how a query is planned, what the engine tells of itself
    dump                      moves the hot rows of all tables to blocks (nothing to the judge)

A comment `#= …` names the forms that the next block shows; docs/sql.md lists them (see `forms_page`).  `{files}` in a
statement is a folder for files: one of the lake's, one of the judge's.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import indexlake as il
from indexlake import errors
from indexlake.sql.run.result import SqlChange
from indexlake.types.hugeint import WIDE

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Block:
    line: int
    header: tuple[str, ...]
    statements: tuple[str, ...]
    expected: tuple[str, ...]
    forms: tuple[str, ...] = ()


def read(path: Path) -> list[Block]:
    blocks: list[Block] = []
    lines: list[tuple[int, str]] = []
    forms: list[str] = []
    for number, line in enumerate([*path.read_text().splitlines(), ""], 1):
        if line.startswith("#="):
            forms.append(line[2:].strip())
        if line.startswith("#"):
            continue
        if line.strip():
            lines.append((number, line))
        elif lines:
            blocks.append(_block(lines, forms))
            lines, forms = [], []
    return blocks


def _block(lines: list[tuple[int, str]], forms: list[str]) -> Block:
    texts = [text for _, text in lines[1:]]
    expected: list[str] = []
    if "----" in texts:
        place = texts.index("----")
        texts, expected = texts[:place], texts[place + 1 :]
    joined: list[str] = []
    carry = ""
    for text in texts:
        if text.endswith("\\"):
            carry += text[:-1] + "\n"
        else:
            joined.append(carry + text)
            carry = ""
    return Block(lines[0][0], tuple(lines[0][1].split()), tuple(joined), tuple(expected), tuple(forms))


class Runner:
    """One file, on one lake."""

    def __init__(self, lake: il.Lake, dump_format: str | None, files: Path) -> None:
        self.lake = lake
        self.files, self.files_of_judge = files / "ours", files / "theirs"
        for folder in (self.files, self.files_of_judge):
            folder.mkdir(parents=True)
        self.format = dump_format
        self.judge = duckdb.connect(":memory:")
        self.judge.execute("set TimeZone = 'UTC'")
        self.count = 0

    def run(self, path: Path) -> None:
        for block in read(path):
            try:
                self._run(block)
            except Exception as error:
                raise AssertionError(f"{path.name}, line {block.line}: {error}") from error
        self.judge.close()

    def _run(self, block: Block) -> None:
        header = block.header
        if header == ("dump",):
            self._dump()
            return
        alone = header[0] == "lake"
        kind, *options = header[1:] if alone else header
        for text in block.statements:
            self.count += 1
            try:
                if kind == "run":
                    self._change(text, alone)
                elif kind == "query":
                    self._query(text, "ordered" in options, block.expected if alone else None)
                elif kind == "answers":
                    assert alone, "a judge would compare"
                    assert self._ours(text).to_arrow().num_rows > 0
                elif kind == "fail":
                    self._failure(text, options[0], alone, block.expected)
                else:
                    raise AssertionError(f"what is {header}?")
            except Exception as error:
                raise AssertionError(f"{text}\n{type(error).__name__}: {error}") from error

    def _ours(self, text: str) -> il.SqlResult:
        return self.lake.sql(text.replace("{files}", str(self.files)))

    def _theirs(self, text: str) -> duckdb.DuckDBPyConnection:
        return self.judge.execute(text.replace("{files}", str(self.files_of_judge)))

    def _dump(self) -> None:
        if self.format is not None:
            for name in self.lake.tables():
                table = self.lake.table(name)
                if table.config.dump_format != self.format:
                    table.set_config(dump_format=self.format)
                self.lake.pipeline().dump(name)

    def _change(self, text: str, alone: bool) -> None:
        ours = self._ours(text)
        assert isinstance(ours, SqlChange)
        if alone:
            return
        theirs = self._theirs(text).fetchall()
        counted = text.split()[0].lower() in ("insert", "update", "delete", "merge", "copy")
        if counted and ";" not in text and theirs:
            assert ours.rows == theirs[0][0], f"{ours.rows} rows changed, {theirs[0][0]} by the judge"

    def _query(self, text: str, ordered: bool, expected: tuple[str, ...] | None) -> None:
        result = self._ours(text)
        if expected is None and len(result.results) > 1:  # each query of a text counts
            for own, each in zip(result.results, self.judge.extract_statements(text), strict=True):
                theirs = self.judge.execute(each)
                if not isinstance(own, SqlChange):
                    self._compare(own._table_of_all(), theirs.to_arrow_table(), ordered)
            return
        ours = result._table_of_all()  # a HUGEINT of 39 digits is not for Arrow's other readers
        if expected is not None:
            rows = ["|".join("NULL" if v is None else str(v) for v in row.values()) for row in ours.to_pylist()]
            assert rows == list(expected), f"got {rows}"
            return
        self._compare(ours, self._theirs(text).to_arrow_table(), ordered)

    def _compare(self, ours: pa.Table, theirs: pa.Table, ordered: bool) -> None:
        assert ours.schema.names == theirs.schema.names
        assert [str(t) for t in _plain_types(ours)] == [str(t) for t in _plain_types(theirs)]
        mine, other = list(_rows(ours)), list(_rows(theirs))
        if ordered:
            assert mine == other, f"ours {mine[:20]}\njudge {other[:20]}"
        else:
            assert Counter(mine) == Counter(other), f"only ours {_less(mine, other)}\nonly judge {_less(other, mine)}"

    def _failure(self, text: str, name: str, alone: bool, words: tuple[str, ...]) -> None:
        before = self._everything()
        with pytest.raises(getattr(errors, name)) as raised:
            self._ours(text).to_arrow()
        assert raised.type.__name__ == name
        for expected in words:
            assert expected in str(raised.value), str(raised.value)
        assert "__il" not in str(raised.value), "names of our own are none of the user's business"
        assert self._everything() == before, "a statement that failed has changed something"
        if not alone:
            try:
                self._theirs(text).fetchall()
            except duckdb.Error:
                with suppress(duckdb.Error):  # there may be no transaction
                    self.judge.execute("rollback")
                return
            raise AssertionError("this had to fail on the judge too")

    def _everything(self) -> dict[str, int]:
        return {name: len(self.lake.table(name)) for name in self.lake.tables()}


def _plain_types(table: pa.Table) -> Iterator[pa.DataType]:
    """Types but for the names that Arrow's producers give the items of lists."""
    for f in table.schema:
        yield _unnamed(f.type)


def _unnamed(type: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(type):  # an ENUM: text, where it is a column of a table
        return type.value_type
    if type == WIDE:  # a UHUGEINT, which the judge gives as a decimal that may be too small
        return pa.decimal128(38, 0)
    if pa.types.is_fixed_size_list(type):
        return pa.list_(_unnamed(type.value_type), type.list_size)
    if pa.types.is_list(type):
        return pa.list_(_unnamed(type.value_type))
    if pa.types.is_struct(type):
        return pa.struct([pa.field(f.name, _unnamed(f.type)) for f in type])
    if pa.types.is_map(type):
        return pa.map_(_unnamed(type.key_type), _unnamed(type.item_type))
    return type


def _rows(table: pa.Table) -> Iterator[Any]:
    columns = [[_value(v) for v in column.to_pylist()] for column in table.columns]
    return zip(*columns, strict=True)


def _value(value: Any) -> Any:
    """Comparable and hashable; NaN is itself; sums of doubles may differ in their last bits."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else float(f"{value:.12g}")
    if isinstance(value, list):
        return tuple(map(_value, value))
    if isinstance(value, dict):
        return tuple((k, _value(v)) for k, v in value.items())
    if isinstance(value, tuple):
        return tuple(map(_value, value))
    return value


def _less(some: list[Any], others: list[Any]) -> list[Any]:
    return list((Counter(some) - Counter(others)).elements())[:10]
