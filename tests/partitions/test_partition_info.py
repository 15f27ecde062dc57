"""What a clustered table tells of its partitions: now, in the past, as text and as HTML."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal

import pyarrow as pa
import pytest

import indexlake as il
from tests.partitions.partition_tables import blocks, cut, rows, table


def test_each_partition_tells_its_keys_rows_and_files(lake: il.Lake):
    t = table(lake, "t", 10, 20)
    t.insert(rows(*range(5, 25)))
    t.insert([{"id": 12_000, "text": "hot"}])
    t.delete("id in (11, 13)")
    first, second, third = t.partitions()
    assert [(p.begin_key, p.end_key) for p in (first, second, third)] == [(None, 10), (10, 20), (20, None)]
    assert [(p.delta_blocks, p.delta_rows, p.deleted_rows, p.rows) for p in (first, second, third)] == [
        (1, 5, 0, 5),
        (1, 10, 2, 8),
        (1, 5, 0, 5),
    ]
    assert {p.data_rows for p in (first, second, third)} == {0}
    by_path = {b.path: b for b in blocks(t)}
    for p in (first, second, third):
        assert p.delta_bytes == sum(by_path[path].size for path in p.files)
        assert p.formats == ("ipc",)
        assert all(f"_part_{p.partition_id}." in path for path in p.files)


def test_a_table_without_rows_has_one_partition_of_all_keys(lake: il.Lake):
    (whole,) = table(lake).partitions()
    assert (whole.begin_key, whole.end_key, whole.rows, whole.files) == (None, None, 0, ())


def test_the_past_has_the_partitions_of_then(lake: il.Lake):
    t = table(lake)
    before = lake.snapshot_id
    t.insert([{"id": n, "text": "x"} for n in (1, 15, 25)])  # hot until the ranges are others
    inserted = lake.snapshot_id
    cut(t, 10, 20)
    lake.pipeline(runner="threads").dump()
    assert [p.rows for p in t.partitions()] == [1, 1, 1]
    (then,) = t.at(inserted).partitions()
    assert (then.begin_key, then.end_key) == (None, None)
    assert then.delta_rows == 3, "the rows of then are read from files that later ranges hold"
    (empty,) = t.at(before).partitions()
    assert (empty.begin_key, empty.end_key) == (None, None)


@pytest.mark.parametrize(
    ("type", "bound"),
    [
        (pa.string(), "später"),
        (pa.binary(), b"\x00\xff"),
        (pa.uint64(), 2**63 + 1),
        (pa.date32(), dt.date(2026, 11, 18)),
        (pa.timestamp("us", "UTC"), dt.datetime(2026, 11, 18, 12, tzinfo=dt.UTC)),
        (pa.float64(), -1.5),
        (pa.decimal128(10, 2), Decimal("-3.25")),
    ],
    ids=str,
)
def test_bounds_are_shown_as_the_values_that_users_give(lake: il.Lake, type: pa.DataType, bound: object):
    t = table(lake, "t", bound, schema=pa.schema([("id", type)]))
    low, high = t.partitions()
    assert (low.begin_key, low.end_key, high.begin_key, high.end_key) == (None, bound, bound, None)


def test_bounds_of_several_columns_are_tuples(lake: il.Lake):
    schema = pa.schema([("a", pa.string()), ("b", pa.int64()), ("c", pa.string())])
    bound = ("k\x00ey", -7, "z")
    t = table(lake, "t", bound, schema=schema, key=["a", "b", "c"])
    assert [p.begin_key for p in t.partitions()] == [None, bound]


def test_it_prints_as_a_table_with_open_ends_and_bars(lake: il.Lake):
    t = table(lake, "t", "<b>", schema=pa.schema([("id", pa.string())]))
    t.insert(pa.table({"id": [f"{n:04}" for n in range(100)] + [f"a{n}" for n in range(50)]}))
    shown = repr(t.partitions()).splitlines()
    assert shown[0].split("  ")[0] == "id"
    assert len(shown) == 4
    first, second = (re.split(r" {2,}", line.strip()) for line in shown[2:])
    assert first[1:3] == ["…", "'<b>'"]
    assert second[1:3] == ["'<b>'", "…"]
    assert (first[-1], second[-1]) == ("░" * 16, "░" * 8)
    html = t.partitions()._repr_html_()
    assert "&#x27;&lt;b&gt;&#x27;" in html
    assert "<b>'" not in html
    assert "partition" in t.partitions()[0]._repr_html_()
    assert isinstance(t.partitions(), list)


def test_a_heap_table_says_how_to_cluster_it(lake: il.Lake):
    t = lake.create_table("sales.plain", {"id": "int64"}, primary_key="id")
    with pytest.raises(il.SchemaError, match=r"'sales.plain' is a heap.*lake\.cluster_table\('sales.plain'\)"):
        t.partitions()
    assert t.stats().clustered is None
    assert t.scan().explain().partitions_total is None


def test_stats_tell_how_even_partitions_are_and_how_much_was_written(lake: il.Lake):
    t = table(lake, "t", 100)
    assert t.stats().clustered.written_per_given is None
    t.insert(rows(*range(60, 120)))
    t.insert(rows(*range(200, 220)))
    t.delete("id = 60")
    found = t.stats().clustered
    assert (found.partitions, found.largest_partition_rows, found.median_partition_rows) == (2, 40, 39)
    assert (found.delta_blocks, found.delta_rows) == (3, 80)
    size = sum(b.size for b in blocks(t))
    assert (found.bytes_given, found.bytes_written, found.written_per_given) == (size, size, 1.0)
    assert "2 partitions, the largest of 40 rows, the median 39; 3 delta blocks with 80 rows" in str(t.stats())


def test_explain_names_the_partitions_that_a_scan_touches(lake: il.Lake):
    t = table(lake, "t", 10, 20, 30)
    t.insert(rows(*range(40)))
    ids = [p.partition_id for p in t.partitions()]
    point = t.scan("id = 15").explain()
    assert (point.partitions_total, point.partitions_read) == (4, (ids[1],))
    assert f"partitions: 1 of 4 ({ids[1]})" in str(point)
    assert t.scan("id between 12 and 25").explain().partitions_read == (ids[1], ids[2])
    assert t.scan().explain().partitions_read == tuple(ids)
    assert "partitions: 0 of 4" in str(t.scan("id = 4711").explain())


def test_explain_of_the_past_speaks_of_the_partitions_of_then(lake: il.Lake):
    t = table(lake)
    t.insert([{"id": 5, "text": "x"}, {"id": 15, "text": "y"}])
    then = lake.snapshot_id
    cut(t, 10)
    lake.pipeline(runner="threads").dump()
    found = t.at(then).scan().explain()
    assert found.partitions_total == 1
    assert found.partitions_read == (t.at(then).partitions()[0].partition_id,)


def test_rows_are_located_in_blocks_that_are_in_key_order(lake: il.Lake):
    t = table(lake, "t", 10)
    t.insert(rows(*[(n * 7) % 20 for n in range(20)]))
    for row in t.scan(with_row_id=True).to_pylist():
        place = t.locate(row["_indexlake_row_id"])
        assert place is not None
        format, path, group, offset = place.split(":")
        assert (format, int(group)) == ("ipc", 0)
        assert int(offset) == row["id"] % 10, "the place in the order of keys"
        assert path in t.partitions()[row["id"] // 10].files
    found = t.row_metadata("id >= 10").read_all()
    assert found.num_rows == 10
