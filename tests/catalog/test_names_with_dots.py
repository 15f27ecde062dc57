"""Names of tables and namespaces may have dots and quotes; full names quote them, and can be used wherever a name is
given."""

from __future__ import annotations

from pathlib import Path

import pytest

import indexlake as il
from indexlake.schema.names import full_name, parts_of, split_name


@pytest.mark.parametrize("name", ["a.b", 'x"y', '"', '"a"', '".', "a b", ".", "sales.orders"])
def test_a_full_name_is_read_as_it_was_written(name: str) -> None:
    assert split_name(full_name("sales", name)) == ("sales", name)
    assert split_name(full_name(name, "orders")) == (name, "orders")
    assert parts_of(full_name(name, name)) == [name, name]


@pytest.mark.parametrize("name", ["a.b.c", "", ".", "a.", ".a", '"a.b', 'a."b', "a\x00b", None])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(il.NotFoundError, match="is not a table name"):
        split_name(name)


def test_a_table_with_dots_is_used_like_any_other(tmp_path: Path) -> None:
    with il.connect(str(tmp_path), automatic=False) as lake:
        table = lake.create_table('"a.b"', {"id": "int64", "v": "string"}, primary_key="id")
        table.insert([{"id": 1, "v": "x"}])
        lake.pipeline().dump('main."a.b"')
        table.upsert([{"id": 1, "v": "y"}, {"id": 2, "v": "z"}])
        with lake.transaction() as tx:
            tx.table('"a.b"').delete("id = 2")
        assert lake.tables() == ['main."a.b"'] == [table.name]
        table.rename('"c.d"')
    with il.connect(str(tmp_path), automatic=False) as lake:
        assert lake.table(lake.tables()[0]).scan().to_pylist() == [{"id": 1, "v": "y"}]
        assert lake.sql('select v from "c.d" where id = 1').scalar() == "y"
        with pytest.raises(il.NotFoundError, match="There is no table"):
            lake.table('"c.e"')


def test_a_namespace_with_dots_is_used_like_any_other(tmp_path: Path) -> None:
    with il.connect(str(tmp_path), automatic=False) as lake:
        lake.create_namespace("a.b")
        table = lake.create_table('"a.b".t', {"id": "int64", "v": "string"}, primary_key="id")
        table.insert([{"id": 1, "v": "x"}])
        lake.create_table('"a.b"."c.d"', {"id": "int64"})
        lake.pipeline().dump('"a.b".t')
        table.upsert([{"id": 1, "v": "y"}, {"id": 2, "v": "z"}])
        assert sorted(lake.tables()) == ['"a.b"."c.d"', '"a.b".t']
        assert lake.sql("select v from t where id = 2", namespace="a.b").scalar() == "z"
        lake.table('"a.b"."c.d"').rename('"a.b"."e.f"')
        with pytest.raises(il.IndexLakeError):
            lake.create_namespace("a.b")
    with il.connect(str(tmp_path), automatic=False) as lake:
        assert lake.table('"a.b".t').get(1) == {"id": 1, "v": "y"}
        assert lake.table('"a.b".t').changes(since=0).to_pylist()[0]["v"] == "x"
        lake.drop_table('"a.b".t')
        lake.drop_table('"a.b"."e.f"')
        lake.drop_namespace("a.b")
        assert "a.b" not in lake.namespaces()
