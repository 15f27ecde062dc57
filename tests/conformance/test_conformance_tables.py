"""Creating, naming and dropping tables and namespaces."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from tests.conformance.orders import EVERYTHING, SCHEMA, content, rows, tiered


def test_a_table_made_from_a_schema_is_empty_and_keeps_the_schema(lake: il.Lake, make: Any, namespace: str) -> None:
    schema = SCHEMA.set(1, SCHEMA.field("city").with_metadata({"unit": "name"}))
    t = make(schema, "id", name="Orders")
    assert (t.name, t.primary_key, len(t)) == (f"{namespace}.Orders", ("id",), 0)
    assert t.schema.equals(schema, check_metadata=True)
    assert t.scan().to_arrow().schema.equals(schema, check_metadata=True)
    again = lake.table(f"{namespace}.Orders")
    assert again.schema.equals(schema, check_metadata=True)
    assert again.config == t.config
    assert f"{namespace}.Orders" in lake.tables()


def test_a_table_made_from_data_holds_the_data(make: Any) -> None:
    t = make(pa.Table.from_pylist(rows(range(5)), SCHEMA), "id")
    assert t.schema == SCHEMA
    assert content(t) == rows(range(5))


def test_a_table_is_made_from_dicts_pandas_polars_and_readers(make_local: Any) -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    data = {"id": [1, 2, 3], "city": ["a", "b", None]}
    expected = pa.table(data).to_pylist()
    reader = pa.table(data).to_reader()
    sources = [expected, pandas.DataFrame({"id": [1, 2, 3], "city": ["a", "b", None]}), polars.DataFrame(data), reader]
    for source in [*sources, pa.table(data).to_batches()[0], iter(expected)]:
        t = make_local(source, "id")
        assert sorted(t.scan().to_pylist(), key=lambda r: r["id"]) == expected, type(source)


def test_a_table_made_from_dicts_has_every_column_that_any_of_them_names(make_local: Any) -> None:
    t = make_local([{"id": 1}, {"id": 2, "note": "x"}], "id")
    assert t.schema.names == ["id", "note"]
    assert content(t) == [{"id": 1, "note": None}, {"id": 2, "note": "x"}]


def test_types_are_inferred_from_all_dicts_and_not_from_the_first_thousands(make_local: Any) -> None:
    t = make_local([{"id": n, "x": None if n < 12_000 else 0.5} for n in range(12_001)], "id")
    assert t.schema.field("x").type == pa.float64()
    assert t.get(12_000) == {"id": 12_000, "x": 0.5}


def test_a_table_whose_first_rows_are_refused_is_not_there(lake: il.Lake, make: Any, namespace: str) -> None:
    with pytest.raises(il.DuplicateKeyError):
        make([{"id": 1}, {"id": 1}], "id", name="twice")
    assert f"{namespace}.twice" not in lake.tables()


def test_the_tables_schema_marks_key_columns_as_required(make: Any) -> None:
    t = make(pa.schema({"a": pa.int64(), "b": pa.string(), "c": pa.int64()}), ["a", "b"])
    assert [f.nullable for f in t.schema] == [False, False, True]


def test_exist_ok_gives_the_table_that_is_there_unchanged(lake: il.Lake, make: Any) -> None:
    t = make(SCHEMA, "id")
    t.insert(rows([1]))
    before = lake.snapshot_id
    same = lake.create_table(t.name.upper(), pa.Table.from_pylist(rows([2]), SCHEMA), exist_ok=True)
    assert content(same) == rows([1])
    assert lake.snapshot_id == before


def test_a_taken_name_is_refused_in_any_case(lake: il.Lake, make: Any) -> None:
    t = make(SCHEMA, "id", name="Orders")
    for name in (t.name, t.name.upper(), t.name.lower()):
        with pytest.raises(il.AlreadyExistsError, match=r"already exists.*exist_ok=True") as caught:
            lake.create_table(name, SCHEMA)
        assert caught.value.name is not None


def test_names_match_in_any_case_and_keep_their_own(lake: il.Lake, make: Any, namespace: str) -> None:
    t = make(pa.schema({"Id": pa.int64(), "City Name": pa.string()}), "ID", name="Orders")
    t.insert({"iD": 1, "CITY NAME": "Oslo"})
    assert t.primary_key == ("Id",)
    found = lake.table(f"{namespace.upper()}.oRDERS")
    assert found.name == f"{namespace}.Orders"
    assert found.scan("\"city name\" = 'Oslo' and ID = 1", columns=["id"]).to_pylist() == [{"Id": 1}]
    assert found.scan(order_by=[("ID", "desc")], columns=["CITY NAME"]).to_pylist() == [{"City Name": "Oslo"}]
    assert found.update({"city name": "Rome"}, "id = 1").rows == 1
    assert found.get({"ID": 1}) == {"Id": 1, "City Name": "Rome"}


def test_a_name_without_namespace_is_in_main(lake: il.Lake, namespace: str) -> None:
    t = lake.create_table(f"plain_{namespace}", SCHEMA)
    assert t.name == f"main.plain_{namespace}"
    assert lake.table(f"main.plain_{namespace}").name == t.name
    assert "main" in lake.namespaces()
    lake.drop_table(f"plain_{namespace}")


def test_a_dropped_table_is_gone_and_its_name_is_free(lake: il.Lake, make: Any) -> None:
    t = tiered(make, name="again")
    before = lake.snapshot_id
    lake.drop_table(t.name.upper())
    assert t.name not in lake.tables()
    for use in (lambda: lake.table(t.name), lambda: len(t), lambda: t.get(1), lambda: t.insert(rows([99]))):
        with pytest.raises(il.NotFoundError):
            use()
    new = make(pa.schema({"x": pa.int64()}), name="again")
    assert new.schema.names == ["x"]
    assert len(new) == 0
    assert content(lake.at(before).table(t.name)) == EVERYTHING


def test_dropping_what_is_not_there_is_an_error_unless_allowed(lake: il.Lake, namespace: str) -> None:
    with pytest.raises(il.NotFoundError, match="There is no table"):
        lake.drop_table(f"{namespace}.nothing")
    lake.drop_table(f"{namespace}.nothing", missing_ok=True)
    with pytest.raises(il.NotFoundError, match="There is no namespace"):
        lake.drop_namespace(namespace)
    lake.drop_namespace(namespace, missing_ok=True)


def test_a_missing_table_suggests_a_close_name(lake: il.Lake, make: Any, namespace: str) -> None:
    make(SCHEMA, name="orders")
    with pytest.raises(il.NotFoundError, match=rf"no table '{namespace}\.order'.*mean '{namespace}\.orders'") as caught:
        lake.table(f"{namespace}.order")
    assert caught.value.name == f"{namespace}.order"


def test_namespaces_are_made_listed_and_dropped(lake: il.Lake, namespace: str) -> None:
    lake.create_namespace(namespace)
    assert namespace in lake.namespaces()
    lake.create_namespace(namespace.upper(), exist_ok=True)
    with pytest.raises(il.AlreadyExistsError, match="already exists"):
        lake.create_namespace(namespace.upper())
    lake.drop_namespace(namespace)
    assert namespace not in lake.namespaces()


def test_a_namespace_with_tables_is_dropped_only_by_cascade(lake: il.Lake, make: Any, namespace: str) -> None:
    t = tiered(make)
    make(SCHEMA)
    with pytest.raises(il.AlreadyExistsError, match="cascade=True"):
        lake.drop_namespace(namespace)
    assert content(t) == EVERYTHING
    lake.drop_namespace(namespace.upper(), cascade=True)
    assert namespace not in lake.namespaces()
    assert not [name for name in lake.tables() if name.startswith(namespace)]
    with pytest.raises(il.NotFoundError):
        t.get(1)


def test_a_table_survives_closing_and_opening(new_address: Any, combination: Any) -> None:
    if combination.database == "memory":
        pytest.skip("a :memory: lake is gone when it is closed")
    address = new_address(combination.database, combination.storage)
    with address.connect(automatic=False) as lake:
        config = il.TableConfig(dump_format=combination.format, direct_write_row_count=10)
        t = lake.create_table("a.b", SCHEMA, primary_key="id", config=config)
        t.insert(rows(range(5)))
        lake.pipeline().dump()
        t.insert(rows(range(5, 8)))
        t.insert(pa.Table.from_pylist(rows(range(8, 30)), SCHEMA))
    with address.connect(create=False) as lake:
        assert content(lake.table("a.b")) == rows(range(30))
        assert lake.table("a.b").config == config
    with address.connect(read_only=True) as lake:
        t = lake.table("a.b")
        assert t.get(3) == rows([3])[0]
        with pytest.raises(il.OwnershipError, match="read_only"):
            t.insert(rows([99]))
        with pytest.raises(il.OwnershipError, match="read_only"):
            lake.create_table("a.c", SCHEMA)


def test_handles_describe_themselves(lake: il.Lake, make: Any) -> None:
    t = make(SCHEMA, "id")
    t.insert(rows([1]))
    assert repr(t) == f"<Table {t.name}: id int64, city string, total double, primary key (id)>"
    assert f"at snapshot {lake.snapshot_id}" in repr(t.at(lake.snapshot_id))
    assert repr(lake).startswith("<Lake ")
    assert repr(lake).endswith((", open>", ", new>"))
    assert "at snapshot" in repr(lake.at(lake.snapshot_id))
    scan = t.scan("id = 1", columns=["city"], limit=2)
    assert repr(scan) == f"<Scan of {t.name}, where id = 1, columns city, limit 2>"
    with lake.transaction() as tx:
        assert "open" in repr(tx)
    assert "committed" in repr(tx)
    assert "secret" not in repr(lake)


def test_handles_refuse_to_be_pickled(lake: il.Lake, make: Any) -> None:
    import pickle

    t = make(SCHEMA, "id")
    for handle in (lake, t, t.scan(), lake.transaction()):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(handle)


def test_a_closed_lake_says_so(new_address: Any) -> None:
    lake = new_address("sqlite").connect()
    t = lake.create_table("t", SCHEMA, primary_key="id")
    lake.close()
    lake.close()
    assert repr(lake).endswith(", closed>")
    for use in (lambda: t.get(1), lambda: t.insert(rows([1])), lambda: lake.tables(), lambda: t.scan().to_pylist()):
        with pytest.raises(il.OwnershipError, match="closed"):
            use()
