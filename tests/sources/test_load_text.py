"""CSV and JSON lines: values are read in the table's types, and a value that does not fit is named with its place."""

from __future__ import annotations

import gzip
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il

TYPES: list[tuple[Any, str, str, Any]] = [
    (pa.bool_(), "true", "true", True),
    (pa.int8(), "-7", "-7", -7),
    (pa.uint64(), "18446744073709551615", "18446744073709551615", 2**64 - 1),
    (pa.float16(), "1.5", "1.5", 1.5),
    (pa.float32(), "1.5", "1.5", 1.5),
    (pa.float64(), "0.1", "0.1", 0.1),
    (pa.decimal32(7, 2), "1.25", '"1.25"', Decimal("1.25")),
    (pa.decimal64(12, 2), "1.25", "1.25", Decimal("1.25")),
    (pa.decimal128(30, 2), "123456789012345678.25", '"123456789012345678.25"', Decimal("123456789012345678.25")),
    (pa.decimal256(60, 2), "1.25", '"1.25"', Decimal("1.25")),
    (pa.string(), "007", '"007"', "007"),
    (pa.large_string(), "é,", '"é,"', "é,"),
    (pa.string_view(), "x", '"x"', "x"),
    (pa.binary(), "ab", '"ab"', b"ab"),
    (pa.binary_view(), "ab", '"ab"', b"ab"),
    (pa.binary(2), "ab", '"ab"', b"ab"),
    (pa.date32(), "2024-02-29", '"2024-02-29"', date(2024, 2, 29)),
    (pa.date64(), "2024-02-29", '"2024-02-29"', date(2024, 2, 29)),
    (pa.time32("s"), "12:34:56", '"12:34:56"', time(12, 34, 56)),
    (pa.time64("us"), "12:34:56.789", '"12:34:56.789"', time(12, 34, 56, 789000)),
    (pa.timestamp("us"), "2024-01-02 03:04:05.6", '"2024-01-02T03:04:05.6"', datetime(2024, 1, 2, 3, 4, 5, 600000)),
    (pa.timestamp("s", "UTC"), "2024-01-02T03:00+01:00", '"2024-01-02T02:00Z"', datetime(2024, 1, 2, 2, tzinfo=UTC)),
    (pa.duration("s"), "90", "90", timedelta(seconds=90)),
    (pa.dictionary(pa.int8(), pa.string()), "007", '"007"', "007"),
    (pa.dictionary(pa.int32(), pa.int64()), "7", "7", 7),
]  # fmt: skip


@pytest.mark.parametrize(("type", "csv", "json", "value"), TYPES, ids=[str(t[0]) for t in TYPES])
def test_a_value_of_each_type(lake: il.Lake, write, type, csv: str, json: str, value):
    t = lake.create_table("typed", pa.schema({"id": pa.int64(), "v": type}))
    t.insert(write("v.csv", f'id,v\n1,"{csv}"\n2,\n'))
    t.insert(write("v.jsonl", f'{{"id": 3, "v": {json}}}\n{{"id": 4, "v": null}}\n{{"id": 5}}\n'))
    found = t.scan(order_by="id").to_arrow()
    assert found.schema.field("v").type == type
    assert found.column("v").to_pylist() == [value, None, value, None, None]


BAD: list[tuple[Any, str, str]] = [
    (pa.int8(), "300", "300"), (pa.int64(), "1.5", "1.5"), (pa.int64(), "x", '"x"'), (pa.uint64(), "-1", "-1"),
    (pa.float64(), "x", '"x"'), (pa.bool_(), "maybe", '"maybe"'), (pa.decimal128(5, 2), "1.234", '"1.234"'),
    (pa.decimal32(5, 2), "1.234", '"1.234"'), (pa.decimal256(50, 2), "x", '"x"'),
    (pa.date32(), "2024-02-30", '"2024-02-30"'), (pa.time64("us"), "25:00:00", '"25:00:00"'),
    (pa.timestamp("s"), "2024-01-01 00:00:00.5", '"2024-01-01 00:00:00.5"'),
    (pa.timestamp("us", "UTC"), "2024-01-01 00:00:00", '"2024-01-01 00:00:00"'),
    (pa.timestamp("us"), "2024-01-01 00:00:00Z", '"2024-01-01 00:00:00Z"'),
    (pa.binary(2), "abc", '"abc"'), (pa.string(), "", "7"), (pa.dictionary(pa.int32(), pa.int64()), "x", '"x"'),
]  # fmt: skip


@pytest.mark.parametrize(("type", "csv", "json"), BAD, ids=[f"{t} {c}" for t, c, _ in BAD])
def test_a_value_that_does_not_fit_is_named_with_file_column_and_line(lake: il.Lake, write, type, csv: str, json: str):
    t = lake.create_table("typed", pa.schema({"id": pa.int64(), "v": type}))
    good = next(csv for known, csv, _, _ in TYPES if known == type) if type in [t[0] for t in TYPES] else ""
    before = lake.snapshot_id
    texts = {"v.jsonl": "".join(f'{{"id": {n}, "v": null}}\n' for n in range(1, 700)) + f'\n{{"id": 0, "v": {json}}}\n'}
    if csv:
        texts["v.csv"] = "id,v\n" + "".join(f"{n},{good}\n" for n in range(1, 700)) + f"0,{csv}\n"
    for name, text in texts.items():
        path = write(name, text)
        with pytest.raises(il.ConstraintError) as caught:
            t.insert(path)
        assert (caught.value.column, caught.value.path) == ("v", str(path))
        assert ("line 701," if name == "v.jsonl" else "row 701,") in str(caught.value), caught.value
    assert lake.snapshot_id == before


def test_csv_quotes_line_breaks_blank_lines_and_marks(t: il.Table, write):
    text = '\ufeffid,code\r\n1,"a,b"\r\n2,"say ""hi"""\r\n\r\n3,"two\r\nlines"\r\n4,5" pipe\r\n'
    assert t.insert(write("q.csv", text)).rows == 4
    assert [row["code"] for row in t.scan(order_by="id").to_pylist()] == ["a,b", 'say "hi"', "two\r\nlines", '5" pipe']


def test_csv_nothing_is_null_and_quotes_around_nothing_are_an_empty_text(t: il.Table, write):
    t.insert(write("n.csv", 'id,code,size\n1,,\n2,"",1\n3,NA,2\n4,null,3\n'))
    assert [row["code"] for row in t.scan(order_by="id").to_pylist()] == [None, "", "NA", "null"]
    assert t.get(1)["size"] is None  # given as null; not left out, so not the default


def test_csv_without_a_header_takes_the_table_s_order(t: il.Table, write, refused):
    path = write("h.csv", "1,a,2,2024-01-01,\n")
    assert t.insert(il.files(path, header=False)).rows == 1
    assert t.get(1)["day"] == date(2024, 1, 1)
    refused(il.files(write("few.csv", "1,a\n"), header=False), il.SchemaError, "few.csv", "2 columns, not 5")
    refused(il.files(path, header=["id", "code"]), il.SchemaError, "5 columns, not 2")


def test_csv_rows_of_another_length_are_refused_with_their_number(refused, write):
    refused(write("r.csv", "id,code\n1,a\n2\n"), il.SchemaError, "r.csv", "row 3", "Expected 2 columns, got 1")
    refused(write("r.csv", "id,code\n1,a\n2,b,c\n"), il.SchemaError, "row 3", "got 3")


def test_csv_a_quote_that_never_ends_swallows_no_rows(t: il.Table, refused, write, small_blocks: int):
    for text in (
        '1,"abc\n2,3\n',
        '1,"abc',
        '1,"',
        '1,"say ""hi""\n2,x',
        '1,"' + "x" * (small_blocks + 9000),
        '1,"' + "x\n" * (small_blocks + 9000),
    ):
        refused(write("q.csv", "id,code\n" + text), il.SchemaError, "q.csv", "never closed")
        packed = write("q.csv.gz", gzip.compress(("id,code\n" + text).encode(), 1))
        refused(packed, il.SchemaError, "q.csv.gz", "never closed")
    refused(write("q.csv", 'id,code,day\n1,"abc,\n2,x,\n'), il.SchemaError, "Expected 3 columns")
    good = ['1,"abc\n"\n', '2,""', '3,x"abc', '4,"""abc"', '5,"abc"\r\n', '6,"abc\n2,3\n"', '7,"a""\n']
    for text in good[:-1]:
        assert t.insert(write("q.csv", "id,code\n" + text)).rows == 1, text
    refused(write("q.csv", "id,code\n" + good[-1]), il.SchemaError, "never closed")


def test_csv_text_that_is_not_utf_8(refused, write):
    refused(write("u.csv", b"id,code\n1,\xff\xfe\n"), il.ConstraintError, "row 2", "'code'")
    refused(write("u.csv", b"id,c\xff\n1,x\n"), il.IndexLakeError, "u.csv")


def test_csv_with_a_header_alone_has_no_rows(t: il.Table, write):
    assert t.insert(write("h.csv", "id,code")).rows == 0
    assert t.insert(write("h.csv", "id,code\n")).rows == 0


def test_csv_has_no_text_for_nested_types(lake: il.Lake, write):
    t = lake.create_table("nested", pa.schema({"l": pa.list_(pa.int64())}))
    with pytest.raises(il.SchemaError, match="JSON lines or Parquet"):
        t.insert(write("l.csv", "l\n[1]\n"))


def test_json_names_that_a_line_leaves_out_take_the_default_and_null_is_null(t: il.Table, write):
    lines = '{"id": 1}\n{"id": 2, "size": null}\n\n{"id": 3, "SIZE": 7}\n'
    t.insert(write("d.jsonl", lines.replace("SIZE", "size")))
    assert [row["size"] for row in t.scan(order_by="id").to_pylist()] == [5, None, 7]


def test_json_columns_may_appear_late_and_in_another_case(t: il.Table, write, small_blocks: int):
    lines = "".join(f'{{"id": {n}}}\n' for n in range(1, 20_000)) + '{"ID": 20000, "code": "2024-01-01"}\n'
    with pytest.raises(il.SchemaError, match="spelt in several ways"):
        t.insert(write("late.jsonl", lines))
    assert t.insert(write("late.jsonl", lines.replace("ID", "id"))).rows == 20_000
    assert t.get(20_000)["code"] == "2024-01-01"  # the text as it is: no moment was made of it on the way
    assert t.get(5)["size"] == 5


def test_json_lines_that_are_not_objects(refused, write):
    for content, line in (('{"id": 1}\n7\n', 2), ('{"id": 1}\n{"id": \n', 2), ('[{"id": 1}]', 1), ("null\n", 1)):
        refused(write("x.json", content), il.SchemaError, "x.json", f"line {line}")
    refused(write("x.jsonl", b'{"id": 1}\n{"id": 2, "code": "\xff"}\n'), il.SchemaError, "line 2", "not UTF-8")
    refused(write("x.jsonl", b'{"id": 1, "code": "\\ud800"}\n'), il.IndexLakeError, "x.jsonl")


def test_json_objects_each_have_a_line_of_their_own(refused, write):
    refused(write("x.jsonl", '{"id": 1}\n{"id": 2}{"id": 3}\n'), il.SchemaError, "line 2", "Extra data")
    refused(write("x.jsonl", '{"id": 1}\n{"id":\n 2}\n'), il.SchemaError, "line 2")


def test_json_a_line_longer_than_a_block_is_read(t: il.Table, write):
    t.insert(write("long.jsonl", '{"id": 1, "code": "' + "x" * (9 << 20) + '"}\n{"id": 2}'))
    assert len(t.get(1)["code"]) == 9 << 20


def test_json_nested_values(lake: il.Lake, write):
    type = pa.struct(
        {"tags": pa.large_list(pa.string()), "days": pa.list_(pa.date32()), "pair": pa.list_(pa.int8(), 2)}
    )
    t = lake.create_table("nested", pa.schema({"s": type}))
    t.insert(write("n.jsonl", '{"s": {"tags": ["a", null], "days": ["2024-01-01"], "pair": [1, 2]}}\n{"s": null}\n'))
    assert t.scan().to_pylist() == [
        {"s": {"tags": ["a", None], "days": [date(2024, 1, 1)], "pair": [1, 2]}},
        {"s": None},
    ]
    with pytest.raises(il.ConstraintError, match=r"line 1.*'s'"):
        t.insert(write("n.jsonl", '{"s": {"pair": [1, 2, 3]}}\n'))
    m = lake.create_table("maps", pa.schema({"m": pa.map_(pa.string(), pa.int64())}))
    with pytest.raises(il.SchemaError, match="Parquet or Arrow"):
        m.insert(write("m.jsonl", '{"m": {"a": 1}}\n'))


INEXACT = [
    (pa.float64(), "1e400", '{"v": 1e400}'),
    (pa.float64(), "-1e400", None),
    (pa.float32(), "1e39", '{"v": 1e39}'),
    (pa.float16(), "65520", '{"v": 65520}'),
    (pa.float64(), "9007199254740993", '{"v": 9007199254740993}'),
    (pa.float64(), "18446744073709551617", '{"v": 18446744073709551617}'),
    (pa.float32(), "16777217", '{"v": 16777217}'),
    (pa.int64(), "0x10", None),
    (pa.uint8(), "0XfF", None),
    (pa.duration("us"), "0x10", None),
    (pa.list_(pa.float32()), None, '{"v": [1e39]}'),
    (pa.struct([("x", pa.list_(pa.float64()))]), None, '{"v": {"x": [1.5, 9007199254740993]}}'),
    (pa.int64(), None, '{"v": 1, "v": 2}'),
    (pa.int64(), None, '{"v": 18446744073709551616}'),
    (pa.struct([("x", pa.int64())]), None, '{"v": {"x": 1, "x": 2}}'),
]


@pytest.mark.parametrize(("type", "csv", "json"), INEXACT, ids=str)
def test_a_number_that_the_type_does_not_hold_is_refused(lake: il.Lake, write, small_blocks, type, csv, json):
    t = lake.create_table("typed", pa.schema({"id": pa.int64(), "v": type}))
    before = lake.snapshot_id
    for name, text in (("v.csv", csv), ("v.jsonl", json)):
        if text is None:
            continue
        good = "id,v\n" + "1,1\n" * 40_000 if name == "v.csv" else '{"v": null}\n' * 40_001
        path = write(name, good + (f"1,{text}\n" if name == "v.csv" else f"{text}\n"))
        with pytest.raises(il.IndexLakeError) as caught:
            t.insert(path)
        place = "row 40002" if name == "v.csv" else "line 40002"
        assert place in str(caught.value), caught.value
        assert isinstance(caught.value, il.ConstraintError | il.SchemaError)
    assert lake.snapshot_id == before


def test_numbers_that_look_odd_and_are_exact(lake: il.Lake, write):
    t = lake.create_table("typed", pa.schema({"id": pa.int64(), "f": pa.float64(), "s": pa.string()}))
    t.insert(
        write("v.csv", "id,f,s\n1,inf,0x10\n2,-Infinity,\n3,1e300,x\n4,100000000000000000000,x\n5,0.1,x\n6,,0x1\n")
    )
    t.insert(write("v.jsonl", '{"id": 7, "f": Infinity}\n{"id": 8, "f": 1e300}\n{"id": 9, "f": 9007199254740994}\n'))
    rows = t.scan(order_by="id").to_pylist()
    inf = float("inf")
    assert [row["f"] for row in rows] == [inf, -inf, 1e300, 1e20, 0.1, None, inf, 1e300, 2.0**53 + 2]
    assert [row["s"] for row in rows[:2]] == ["0x10", None]


def test_a_table_from_csv_keeps_odd_numbers_as_text(lake: il.Lake, write):
    t = lake.create_table("odd", write("odd.csv", "h,e,i\n0x10,1e400,inf\n7,1.5,2\n"))
    assert t.schema.types == [pa.string(), pa.string(), pa.float64()]
    assert t.scan().to_pylist()[0] == {"h": "0x10", "e": "1e400", "i": float("inf")}


def test_a_table_from_json_refuses_nested_numbers_that_are_too_large(lake: il.Lake, write):
    with pytest.raises(il.SchemaError, match="line 1: the number 18446744073709551616 is beyond int64"):
        lake.create_table("odd", write("odd.jsonl", '{"a": [18446744073709551616]}\n'))
    assert lake.tables() == []


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("lines", [["1", "", "2"], ["", "1", "", ""], ["", ""], ["1"], ['""', "x", ""]], ids=str)
def test_an_empty_line_in_a_csv_of_one_column_is_a_row(lake: il.Lake, write, end, lines):
    import duckdb

    path = write("one.csv", end.join(["", "v", *lines, ""]))
    texts = lake.create_table("texts", {"v": "string"})
    assert texts.insert(path).rows == len(lines)
    expected = [None if line == "" else line.strip('"') for line in lines]
    assert [row["v"] for row in texts] == expected
    options = "header = true, delim = ',', columns = {'v': 'varchar'}, skip = 1"
    judge = duckdb.sql(f"from read_csv('{path}', {options})").fetchall()
    assert [value or None for value in expected] == [row[0] or None for row in judge]  # DuckDB takes "" for null too
    assert len(lake.create_table("made", path)) == len(lines)
    if "x" not in lines:
        numbers = lake.create_table("numbers", {"v": "int64"})
        numbers.insert(path)
        assert [row["v"] for row in numbers] == [int(line) if line else None for line in lines]
    if any(lines):
        bare = lake.create_table("bare", {"v": "string"})
        bare.insert(il.files(write("bare.csv", end.join([*lines, ""])), header=False))
        assert bare.to_pylist() == texts.to_pylist()


def test_empty_lines_in_a_csv_of_several_columns_mean_nothing(t: il.Table, write):
    assert t.insert(write("two.csv", "\nid,code\n\n1,a\n\n2,b\n\n")).rows == 2


def test_objects_without_a_value_are_rows(lake: il.Lake, write):
    t = lake.create_table("empty", {"id": "int64", "size": "int64"}, defaults={"size": 5})
    assert t.insert(write("a.jsonl", "{}\n{}\n\n{}\n")).inserted == 3
    assert t.scan().to_pylist() == [{"id": None, "size": 5}] * 3
    assert t.insert(write("b.jsonl", '{}\n{"SIZE": 7}\n')).inserted == 2
    assert t.scan("size = 7").count() == 1


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("a.csv", "id,x\n1,1.5\n2,1000\n", "row 3"),
        ("a.jsonl", '{"id": 1, "x": "1.5"}\n{"id": 2, "x": "1000"}\n', "line 2"),
        ("b.jsonl", '{"id": 1, "x": 1.5}\n{"id": 2, "x": 1000}\n', "line 2"),
        ("c.jsonl", '{"id": 1, "y": [1.5]}\n{"id": 2, "y": [1, 1000]}\n', "line 2"),
    ],
)
def test_a_decimal_with_too_many_digits_is_named_with_its_place(lake: il.Lake, write, name, text, place):
    t = lake.create_table("d", {"id": "int64", "x": "decimal128(5, 2)", "y": "list<decimal128(5, 2)>"})
    with pytest.raises(il.ConstraintError, match=f"{name}: {place}, column '[xy]': .* more digits than the type holds"):
        t.insert(write(name, text))
    assert t.count() == 0


def test_json_that_is_nested_deeply_is_refused(lake: il.Lake, write):
    deep = "[" * 5000 + "]" * 5000
    t = lake.create_table("d", {"id": "int64"})
    for name, text in {"a.jsonl": f'{{"id": {deep}}}\n', "b.jsonl": f'{{"id": 1}}\n{{"id": {deep}}}\n'}.items():
        with pytest.raises(il.SchemaError, match=f"{name}: line [12]: a value in it is nested too deeply"):
            t.insert(write(name, text))
    for text in (f'{{"id": {deep}}}\n', f'{{"id": 1}}\n{{"id": 1, "x": {deep}}}\n'):
        with pytest.raises(il.SchemaError, match="nest"):
            lake.create_table("e", write("c.jsonl", text))


def test_defaults_that_python_does_not_have(lake: il.Lake, write):
    lake.sql(
        "create table late (id int, t time default '24:00:00', n timestamp_ns default 'infinity', "
        "u uuid default '00000000-0000-0000-0000-000000000001', l int[] default [1, 2], "
        "m timestamp default '2024-01-01')"
    )
    lake.table("late").insert(write("a.jsonl", '{"id": 1}\n{"id": 2, "t": "10:00:00", "n": null, "l": []}\n'))
    lake.table("late").insert(write("b.jsonl", '{"id": 3, "u": null, "m": null}\n'))
    text = "select t::varchar, n::varchar, u::varchar, l::varchar, m::varchar from late order by id"
    one, day = "00000000-0000-0000-0000-000000000001", "2024-01-01 00:00:00"
    assert lake.sql(text).fetchall() == [
        ("24:00:00", "infinity", one, "[1, 2]", day),
        ("10:00:00", None, one, "[]", day),
        ("24:00:00", "infinity", None, "[1, 2]", None),
    ]
    types = {"id": pa.int64(), "v": pa.string_view(), "d": pa.dictionary(pa.int32(), pa.string())}
    views = lake.create_table("views", pa.schema(types), defaults={"v": "x", "d": "x"})
    views.insert(write("c.jsonl", '{"id": 1}\n{"id": 2, "v": "y", "d": "y"}\n'))
    assert [(row["v"], row["d"]) for row in views.scan(order_by="id")] == [("x", "x"), ("y", "y")]
