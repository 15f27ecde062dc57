"""The layout of a table in SQL."""

from __future__ import annotations

import pytest

import indexlake as il


def test_create_table_with_a_layout(lake: il.Lake):
    lake.sql("create table t (a int, b varchar, primary key (b, a)) with (layout = 'clustered', merge_ratio = 0.5)")
    lake.sql("insert into t select i, 'x' || i from range(100) r(i)")
    t = lake.table("t")
    assert [p.begin_key for p in t.partitions()] == [None]
    assert t.config.merge_ratio == 0.5
    lake.sql("create table h (a int primary key) with (Layout = 'heap')")
    with pytest.raises(il.SchemaError, match="is a heap"):
        lake.table("h").partitions()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("create table t (a int primary key) with (layout = 'sorted')", "layout='sorted' is not known"),
        ("create table t (a int) with (layout = 'clustered')", r"sorted by its primary key.*primary key \(a\)"),
        ("create table t (a int primary key) with (layuot = 'clustered')", "there are layout, inline_row_count_limit"),
        ("create table t with (layout = 'clustered') as select 1 a", "primary key.*insert into t select"),
        ("create table t (a int primary key) with (layout = 'clustered', Layout = 'heap')", "'Layout' is given twice"),
        ("alter table h set (layout = 'clustered')", "lake.cluster_table"),
        ("alter table h set (merge_ratio = 1, merge_ratio = 2)", "'merge_ratio' is given twice"),
    ],
)
def test_layouts_that_are_refused(lake: il.Lake, text: str, said: str):
    lake.sql("create table h (a int primary key)")
    with pytest.raises((il.SchemaError, il.ExpressionError), match=said):
        lake.sql(text)
    assert lake.tables() == ["main.h"]
