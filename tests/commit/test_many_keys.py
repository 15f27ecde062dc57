"""Inserting many keys into a table with far more hot rows: the keys are looked up, the table is not read."""

from __future__ import annotations

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.catalog.sqlite_transaction import SqliteRead

SCHEMAS = {
    "id": pa.schema([("id", pa.int64()), ("v", pa.int64())]),
    "name": pa.schema([("id", pa.string()), ("v", pa.int64())]),
}


def many_rows_hot(lake, schema, key, make, count=20_000):
    config = il.TableConfig(direct_write_row_count=1_000_000)
    table = lake.create_table("t", schema, primary_key=key, config=config)
    table.insert(pa.Table.from_pylist([make(n) for n in range(count)], schema=schema))
    return table


KINDS = {
    "integers": (SCHEMAS["id"], "id", lambda n: {"id": n, "v": n}),
    "strings": (SCHEMAS["name"], "id", lambda n: {"id": f"k{n}", "v": n}),
    "both": (SCHEMAS["name"], ["id", "v"], lambda n: {"id": f"k{n}", "v": n}),
    "floats": (pa.schema([("id", pa.float64()), ("v", pa.int64())]), "id", lambda n: {"id": n / 2, "v": n}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_that_is_hot_is_found_among_many(any_lake, kind):
    schema, key, make = KINDS[kind]
    table = many_rows_hot(any_lake, schema, key, make)
    fresh = [make(n) for n in range(30_000, 30_200)]
    with pytest.raises(il.DuplicateKeyError) as caught:
        table.insert([*fresh, make(12_345)])
    expected = make(12_345)
    assert caught.value.key == (tuple(expected.values()) if isinstance(key, list) else expected["id"])
    assert table.insert(fresh).rows == 200
    assert len(table) == 20_200


@pytest.mark.parametrize("kind", ["integers", "both"])
def test_a_key_that_was_deleted_or_dumped_is_judged_by_what_is_live(any_lake, kind):
    schema, key, make = KINDS[kind]
    table = many_rows_hot(any_lake, schema, key, make)
    table.delete("v between 100 and 299")
    assert table.insert([make(n) for n in range(100, 300)]).rows == 200
    any_lake.pipeline().dump("t")
    with pytest.raises(il.DuplicateKeyError):
        table.insert([make(n) for n in range(250, 400)])
    assert len(table) == 20_000


@pytest.mark.inline_only("counts rows that come from the database")
def test_the_cost_of_an_insert_does_not_follow_the_hot_rows(tmp_path, monkeypatch):
    read = []
    original = SqliteRead.query

    def counted(self, sql, params=()):
        for row in original(self, sql, params):
            read.append(row)
            yield row

    with il.connect(tmp_path / "lake", automatic=False) as lake:
        schema, key, make = KINDS["integers"]
        table = many_rows_hot(lake, schema, key, make, count=100_000)
        monkeypatch.setattr(SqliteRead, "query", counted)
        table.insert([make(n) for n in range(400_000, 400_100)])
        assert not read  # no key is as high
        table.insert([make(n) for n in (-7, *range(500_000, 500_100))])
        assert 0 < len(read) < 1_000
