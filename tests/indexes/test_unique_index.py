"""Unique indexes hold in every tier and by every way in, for columns that were widened too."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import indexlake as il


@pytest.fixture
def table(lake: il.Lake) -> il.Table:
    """Two rows in a block, one hot, one without a value."""
    t = lake.create_table("t", {"id": "int64", "e": "int32"}, primary_key="id")
    t.insert([{"id": 1, "e": 5}, {"id": 2, "e": 6}])
    lake.pipeline().dump()
    t.insert([{"id": 3, "e": 7}, {"id": 4}])
    t.create_index("u", "e", unique=True)
    return t


def refused(t: il.Table, write: Any, key: Any) -> None:
    before = t.scan(order_by="id").to_pylist()
    with pytest.raises(il.DuplicateKeyError, match="unique index 'u'") as error:
        write()
    assert error.value.key == key
    assert t.scan(order_by="id").to_pylist() == before


@pytest.mark.parametrize("type", [None, pa.int64(), pa.float64()], ids=["as it was", "int64", "float64"])
@pytest.mark.parametrize("held", [5, 7], ids=["in a block", "hot"])
def test_a_key_that_is_there_is_refused_by_every_way_in(
    lake: il.Lake, table: il.Table, type: pa.DataType | None, held: int
) -> None:
    if type is not None:
        table.widen_column("e", type)
    key = float(held) if type == pa.float64() else held
    column = type or pa.int32()
    loaded = pa.table({"id": pa.array([20, 21]), "e": pa.array([100, held], column)})
    many = pa.table({"id": pa.array(range(100, 20_100)), "e": pa.array([held, *range(1_000, 20_999)], column)})
    refused(table, lambda: table.insert({"id": 9, "e": key}), key)
    refused(table, lambda: table.insert([{"id": n, "e": column_value(n, key, type)} for n in range(30, 130)]), key)
    refused(table, lambda: table.insert(many), key)
    refused(table, lambda: table.update({"e": key}, "id = 2"), key)
    refused(table, lambda: table.upsert({"id": 2, "e": key}), key)
    refused(table, lambda: table.merge(loaded, on="id").when_not_matched_insert().execute(), key)
    refused(table, lambda: lake.pipeline(runner="threads").load(loaded, "t"), key)
    refused(table, lambda: lake.sql(f"insert into t values (9, {held})"), key)


def column_value(n: int, key: Any, type: pa.DataType | None) -> Any:
    value = int(key) if n == 77 else n + 1_000
    return float(value) if type == pa.float64() else value


def test_keys_may_move_between_rows_of_one_write(table: il.Table) -> None:
    table.update({"e": il.expr("e + 1")}, "e is not null")
    assert [row["e"] for row in table.scan(order_by="id").to_pylist()] == [6, 7, 8, None]
    table.upsert([{"id": 1, "e": 8}, {"id": 3, "e": 6}])
    assert [row["e"] for row in table.scan(order_by="id").to_pylist()] == [8, 7, 6, None]
    table.update({"e": il.expr("e")}, "true")


def test_nulls_are_not_equal_to_each_other(table: il.Table) -> None:
    table.insert([{"id": 10}, {"id": 11}])
    table.update({"e": None}, "id = 1")
    table.insert({"id": 12, "e": 5})
    assert table.scan("e is null").count() == 4


def test_a_key_that_was_removed_is_free(lake: il.Lake, table: il.Table) -> None:
    table.delete("e in (5, 7)")
    table.insert([{"id": 10, "e": 7}, {"id": 11, "e": 5}])
    lake.pipeline().dump()
    refused(table, lambda: table.insert({"id": 12, "e": 7}), 7)
    table.truncate()
    table.insert({"id": 12, "e": 7})


def test_one_write_must_not_hold_a_key_twice(table: il.Table) -> None:
    with pytest.raises(il.DuplicateKeyError, match="is given twice"):
        table.insert([{"id": 10, "e": 50}, {"id": 11, "e": 50}])
    with pytest.raises(il.DuplicateKeyError, match="is given twice"):
        table.update({"e": 50}, "e is not null")
    twice = pa.table({"id": pa.array(range(100, 20_100)), "e": pa.array([*range(1_000, 20_999), 1_000], pa.int32())})
    with pytest.raises(il.DuplicateKeyError, match="is given twice"):
        table.insert(twice)
    assert len(table) == 4


def test_a_transaction_that_is_older_than_the_index_obeys_it(lake: il.Lake) -> None:
    t = lake.create_table("t", {"id": "int64", "e": "int64"}, primary_key="id")
    t.insert({"id": 1, "e": 5})
    big = pa.table({"id": pa.array(range(100, 20_100)), "e": pa.array([5, *range(1_000, 20_999)])})
    for rows in ({"id": 2, "e": 5}, big):
        tx = lake.transaction()
        tx.table("t").insert(rows)
        t.create_index("u", "e", unique=True)
        with pytest.raises(il.DuplicateKeyError, match="'u'"):
            tx.commit()
        assert len(t) == 1
        t.drop_index("u")
    plain = lake.create_table("plain", {"e": "int64"})  # nothing else has to be absent there
    plain.insert({"e": 5})
    tx = lake.transaction()
    tx.table("plain").insert({"e": 5})
    plain.create_index("u", "e", unique=True)
    with pytest.raises(il.DuplicateKeyError, match="'u'"):
        tx.commit()
    assert len(plain) == 1


def test_composite_keys_are_compared_as_a_whole(lake: il.Lake) -> None:
    t = lake.create_table("t", {"a": "int64", "b": "string"})
    t.insert([{"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 1}, {"a": 1}])
    t.create_index("u", ["a", "b"], unique=True)
    with pytest.raises(il.DuplicateKeyError) as error:
        t.insert({"a": 1, "b": "y"})
    assert error.value.key == (1, "y")
    t.insert([{"a": 2, "b": "y"}, {"a": 1}, {"b": "x"}, {"b": "x"}])


def test_a_long_key_is_named_by_its_beginning_and_its_end(lake: il.Lake) -> None:
    t = lake.create_table("t", {"k": "string"}, primary_key="k")
    long = "from" + "x" * 100_000 + "to"
    t.insert({"k": long})
    for write in (
        lambda: t.insert({"k": long}),
        lambda: t.insert([{"k": "a"}, {"k": "a" * 300}, {"k": "a" * 300}]),
        lambda: t.upsert([{"k": long}, {"k": long}]),
    ):
        with pytest.raises(il.DuplicateKeyError, match=r"k = '(from|aaaa)") as error:
            write()
        assert len(str(error.value)) < 400
        assert len(error.value.key) >= 300


def test_what_is_there_twice_is_named_and_the_index_is_not_there(table: il.Table) -> None:
    table.drop_index("u")
    table.insert([{"id": 10, "e": 5}, {"id": 11, "e": 7}])
    with pytest.raises(
        il.DuplicateKeyError, match=r"several rows have e = 5, 7\. The index was dropped again"
    ) as error:
        table.create_index("u", "e", unique=True)
    assert error.value.key == 5
    assert table.indexes() == []
    table.insert({"id": 12, "e": 5})


def test_rows_that_replace_all_others_obey_an_index_that_is_younger_than_they(lake: il.Lake) -> None:
    t = lake.create_table("t", {"id": "int64", "k": "int64"})
    tx = lake.transaction()
    tx.table("t").truncate()
    tx.table("t").insert([{"id": 1, "k": 7}, {"id": 2, "k": 7}])
    t.create_index("u", "k", unique=True)
    with pytest.raises(il.DuplicateKeyError, match="is given twice"):
        tx.commit()
    assert len(t) == 0


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_load_obeys_an_index_that_is_created_while_it_runs(lake: il.Lake, mode: str) -> None:
    t = lake.create_table("t", {"id": "int64", "k": "int64"})
    t.insert({"id": 0, "k": 0})
    schema = pa.schema({"id": pa.int64(), "k": pa.int64()})

    def batches() -> Any:
        yield pa.record_batch([[1, 2], [7, 7]], schema=schema)
        t.create_index("u", "k", unique=True)
        yield pa.record_batch([[3], [8]], schema=schema)

    with pytest.raises(il.DuplicateKeyError, match="is given twice"):
        lake.pipeline(runner="threads").load(pa.RecordBatchReader.from_batches(schema, batches()), "t", mode=mode)
    assert t.to_pylist() == [{"id": 0, "k": 0}]


def test_an_index_of_the_same_name_on_another_column_is_another_index(lake: il.Lake) -> None:
    t = lake.create_table("t", {"id": "int64", "k": "int64", "j": "int64"})
    t.create_index("u", "k", unique=True)
    tx = lake.transaction()
    tx.table("t").insert([{"id": 1, "k": 7, "j": 1}, {"id": 2, "k": 7, "j": 2}])
    t.drop_index("u")
    t.create_index("u", "j", unique=True)
    tx.commit()
    assert len(t) == 2


def test_a_transaction_that_does_not_know_the_column_of_a_unique_index_is_run_again(lake: il.Lake) -> None:
    t = lake.create_table("t", {"id": "int64"})
    t.insert({"id": 1})
    tx = lake.transaction()
    tx.table("t").insert({"id": 2})
    t.add_column("code", "int64", default=5)
    t.create_index("u", "code", unique=True)
    with pytest.raises(il.ConflictError, match="was added after this transaction began"):
        tx.commit()
    with pytest.raises(il.DuplicateKeyError):
        t.insert({"id": 2})
    t.insert({"id": 2, "code": 6})
