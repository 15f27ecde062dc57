"""Errors: each has its own type, says what to do, and nothing has changed."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from tests.conformance.orders import EVERYTHING, SCHEMA, content, row, rows, tiered
from tests.support.servers import free_port


@contextlib.contextmanager
def nothing_changes(t: il.Table) -> Iterator[None]:
    before = t._lake.snapshot_id, content(t)
    yield
    assert (t._lake.snapshot_id, content(t)) == before


def test_a_wrong_column_is_named_with_the_closest_one(make: Any) -> None:
    t = tiered(make)
    many = [{"id": n, "citi": "x"} for n in range(100, 200)]
    with nothing_changes(t):
        for wrong in ({"id": 99, "citi": "x"}, many, pa.Table.from_pylist(many)):
            with pytest.raises(il.SchemaError, match=r"no column 'citi'.*'city'") as caught:
                t.insert(wrong)
            assert caught.value.column == "citi"
        for use in (lambda: t.scan("citi = 'x'").to_arrow(), lambda: t.delete("citi = 'x'")):
            with pytest.raises(il.IndexLakeError, match="citi") as found:
                use()
            assert "city" in str(found.value)
        with pytest.raises(il.SchemaError, match="twice"):
            t.insert({"id": 99, "city": "a", "CITY": "b"})


def test_a_wrong_type_is_refused_and_named(make: Any) -> None:
    t = tiered(make)
    with nothing_changes(t):
        for wrong, column in (
            ({"id": "x"}, "id"),
            ({"id": 1.5}, "id"),
            ({"id": 99, "city": 5}, "city"),
            ({"id": 99, "total": "much"}, "total"),
            (pa.table({"id": ["1"]}), "id"),
            (pa.table({"id": [99], "city": [b"x"]}), "city"),
            (pa.table({"id": [99.5]}), "id"),
        ):
            with pytest.raises(il.ConstraintError, match=f"'{column}'") as caught:
                t.insert(wrong)
            assert caught.value.column == column
        for wrong in (5, b"text", [1, 2], None):
            with pytest.raises(il.SchemaError, match="dict"):
                t.insert(wrong)


def test_overflow_is_refused_in_inserts_updates_and_expressions(make: Any) -> None:
    t = make(pa.schema({"id": pa.int64(), "small": pa.int8(), "price": pa.decimal128(5, 2)}), "id")
    t.insert({"id": 1, "small": 100, "price": 999})
    with nothing_changes(t):
        for wrong in ({"id": 2, "small": 128}, {"id": 2**63}, {"id": 2, "price": 1000}):
            with pytest.raises(il.ConstraintError):
                t.insert(wrong)
        with pytest.raises(il.ConstraintError, match="'small'"):
            t.insert(pa.table({"id": [2], "small": [1000]}))
        with pytest.raises(il.ConstraintError, match="'small'"):
            t.update({"small": 1000}, "id = 1")
        with pytest.raises(il.ExpressionError, match="small"):
            t.update({"small": il.expr("small + 100")}, "id = 1")
        with pytest.raises(il.ExpressionError, match="price"):
            t.update({"price": il.expr("price * 10")}, "id = 1")
        with pytest.raises(il.ExpressionError):
            t.scan("id + 9223372036854775807 > 0").to_arrow()


@pytest.mark.parametrize(
    "text",
    [
        "id = ",
        "id == = 1",
        "select 1",
        "id = 1; drop table x",
        "(id = 1",
        "id = $missing",
        "nosuch(id) = 1",
        "id",
        "'x'",
        "",
    ],
)
def test_bad_sql_is_an_expression_error_with_the_text(make_local: Any, text: str) -> None:
    t = make_local(SCHEMA, "id")
    t.insert(rows([1]))
    with nothing_changes(t):
        for use in (lambda: t.scan(text).to_arrow(), lambda: t.delete(text), lambda: t.update({"city": "x"}, text)):
            with pytest.raises(il.ExpressionError) as caught:
                use()
            assert len(str(caught.value)) > 10
            assert text in str(caught.value) or "parameter" in str(caught.value) or not text


def test_parameters_that_are_missing_or_odd_are_errors(make_local: Any) -> None:
    t = make_local(SCHEMA, "id")
    for params in (None, {}, {"b": 1}, {"a": object()}):
        with pytest.raises(il.ExpressionError):
            t.scan("id = $a", params=params).to_arrow()
    with pytest.raises(il.ExpressionError):
        t.scan("id = ? and id = ?", params=[1]).to_arrow()
    with pytest.raises(il.ExpressionError, match="SQL text"):
        t.scan(5).to_arrow()


def test_a_missing_lake_table_or_namespace_is_not_found(tmp_path: Any, lake: il.Lake, namespace: str) -> None:
    with pytest.raises(il.NotFoundError, match="create=True"):
        il.connect(tmp_path / "none", create=False)
    assert not (tmp_path / "none").exists()
    with pytest.raises(il.NotFoundError):
        il.connect(tmp_path / "none", read_only=True)
    with pytest.raises(il.NotFoundError, match="no table"):
        lake.table(f"{namespace}.t")
    with pytest.raises(il.NotFoundError, match="no table"), lake.transaction() as tx:
        tx.table(f"{namespace}.t")


def test_an_unreachable_database_is_a_catalog_error_within_bounded_time(tmp_path: Any) -> None:
    began = time.monotonic()
    with pytest.raises(il.CatalogError) as caught:
        il.connect(f"postgresql://user:very-secret@127.0.0.1:{free_port()}/db", storage=str(tmp_path))
    assert time.monotonic() - began < 15
    assert "127.0.0.1" in str(caught.value)
    assert "very-secret" not in str(caught.value)


def test_a_database_that_does_not_exist_is_a_catalog_error(postgres_dsn: str, tmp_path: Any) -> None:
    import re

    missing = re.sub(r"/lake_\w+\?", "/no_such_database?", postgres_dsn)
    assert missing != postgres_dsn
    with pytest.raises(il.CatalogError, match="no_such_database"):
        il.connect(missing, storage=str(tmp_path))


def test_memory_storage_under_a_persistent_catalog_is_refused(tmp_path: Any, postgres_dsn: str) -> None:
    for address in (str(tmp_path / "lake"), postgres_dsn):
        with pytest.raises(il.SchemaError, match="persistent catalog"):
            il.connect(address, storage="memory://")
    assert not (tmp_path / "lake").exists()


def test_wrong_addresses_are_refused(tmp_path: Any, postgres_dsn: str) -> None:
    with pytest.raises(il.CatalogError, match="mysql"):
        il.connect("mysql://x/y")
    with pytest.raises(il.CatalogError):
        il.connect("")
    with pytest.raises(il.SchemaError, match="storage="):
        il.connect(postgres_dsn, catalog_schema="without_storage")
    with pytest.raises(il.IndexLakeError):
        il.connect(tmp_path / "lake", storage="ftp://x/y")


def test_another_storage_root_than_the_remembered_one_is_refused(tmp_path: Any) -> None:
    il.connect(tmp_path / "lake", storage=str(tmp_path / "files")).close()
    il.connect(tmp_path / "lake").close()
    with pytest.raises(il.SchemaError, match="fixed when a lake is made"):
        il.connect(tmp_path / "lake", storage=str(tmp_path / "elsewhere"))


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_read_only_directory_is_an_error(tmp_path: Any) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(il.IndexLakeError):
        il.connect(tmp_path / "lake")


def test_a_place_that_is_a_file_is_an_error(tmp_path: Any) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(il.IndexLakeError, match="file"):
        il.connect(tmp_path / "file")
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "catalog.sqlite").write_bytes(b"this is not a database " * 100)
    with pytest.raises(il.IndexLakeError):
        il.connect(tmp_path / "lake")


def test_a_catalog_of_a_newer_version_is_refused(new_address: Any, combination: Any) -> None:
    if combination.database == "memory":
        pytest.skip("a :memory: lake is never opened twice")
    address = new_address(combination.database, combination.storage)
    with address.connect() as lake:
        lake.create_table("t", SCHEMA)
        with lake.catalog.transaction() as tx:
            tx.execute("update indexlake_lake set schema_version = schema_version + 1000")
            tx.commit()
    with pytest.raises(il.CatalogError, match="Upgrade with"):
        address.connect()


def test_a_missing_data_file_is_corruption_that_names_the_file(make: Any, lake: il.Lake) -> None:
    t = tiered(make)
    path = str(t.locate(t.scan("id = 12", with_row_id=True).to_pylist()[0]["_indexlake_row_id"])).split(":")[1]
    lake._files.clear()
    lake.storage.delete(path)
    for use in (lambda: t.scan().to_arrow(), lambda: t.get(12), lambda: t.update({"city": "x"}, "true")):
        with pytest.raises(il.CorruptionError) as caught:
            use()
        assert caught.value.path == path
        assert path in str(caught.value)
    assert t.get(25) == row(25)
    assert t.scan("id = 2").to_pylist() == [row(2)]


def test_a_damaged_data_file_is_corruption_and_no_row_is_given(new_address: Any) -> None:
    for format in ("vortex", "parquet", "ipc"):
        address = new_address("sqlite")
        with address.connect(automatic=False) as lake:
            t = lake.create_table("t", SCHEMA, primary_key="id", config=il.TableConfig(dump_format=format))
            t.insert(rows(range(100)))
            lake.pipeline().dump()
            path = str(t.row_metadata().read_all().column("location")[0].as_py()).split(":")[1]
        file = f"{address.catalog}/files/{path}"
        with open(file, "r+b") as data:
            data.seek(os.path.getsize(file) // 2)
            byte = data.read(1)
            data.seek(-1, os.SEEK_CUR)
            data.write(bytes([byte[0] ^ 1]))
        with address.connect() as lake:
            t = lake.table("t")
            for use in (lambda t=t: t.scan().to_arrow(), lambda t=t: t.get(50)):
                with pytest.raises(il.CorruptionError) as caught:
                    use()
                assert path in str(caught.value)


def test_two_threads_creating_one_table_make_one(lake: il.Lake, namespace: str) -> None:
    import threading

    outcomes: list[str] = []

    def create() -> None:
        try:
            lake.create_table(f"{namespace}.t", SCHEMA)
            outcomes.append("made")
        except il.AlreadyExistsError:
            outcomes.append("exists")

    threads = [threading.Thread(target=create) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["exists", "exists", "exists", "made"]


def test_wrong_settings_are_refused_when_they_are_made() -> None:
    for wrong in (
        {"inline_row_count_limit": 0},
        {"block_row_count": 2**40},
        {"direct_write_row_count": 1.5},
        {"dump_format": "csv"},
        {"retention": -1},
        {"retention": "a week"},
        {"retention": float("nan")},
        {"freeze_after": 1e300},
    ):
        with pytest.raises(il.SchemaError, match=f"{next(iter(wrong))} must be"):
            il.TableConfig(**wrong)


def test_every_error_is_an_indexlake_error_and_survives_pickling() -> None:
    import pickle

    kinds = [getattr(il, n) for n in il.__all__ if n.endswith("Error")]
    assert len(kinds) == 15
    for kind in kinds:
        assert issubclass(kind, il.IndexLakeError)
        error = pickle.loads(pickle.dumps(kind("what happened", key=5)))
        assert (type(error), str(error), error.key) == (kind, "what happened", 5)


def test_a_failing_source_of_rows_leaves_nothing(make: Any) -> None:
    t = tiered(make)

    def source() -> Iterator[dict[str, Any]]:
        yield from rows(range(1000, 1050))
        raise KeyError("the source broke")

    with nothing_changes(t), pytest.raises(KeyError):
        t.insert(source())
    assert content(t) == EVERYTHING


def test_arguments_of_a_wrong_kind_are_typed_errors(local_lake: il.Lake, make_local: Any, namespace: str) -> None:
    t = make_local(SCHEMA, "id")
    new = f"{namespace}.new"
    with nothing_changes(t):
        for use, text in (
            (lambda: t.scan(order_by=[("id",)]).to_arrow(), "order_by takes column names"),
            (lambda: t.scan(order_by=5).to_arrow(), "order_by takes column names"),
            (lambda: local_lake.create_table(new, SCHEMA, primary_key=5), "primary_key is a column name"),
            (lambda: local_lake.create_table(new, SCHEMA, config={"block_row_count": 5}), "il.TableConfig"),
            (lambda: local_lake.create_table(new, 5), "Rows cannot be read from int"),
            (lambda: local_lake.create_table(new, []), "give a schema, such as"),
            (lambda: local_lake.create_table(new, [{"a": 1}, {"a": "x"}]), "no type in common"),
            (lambda: t.insert(row(1), token=5), "token must be a non-empty string"),
            (lambda: local_lake.transaction(token=""), "token must be a non-empty string"),
        ):
            with pytest.raises(il.SchemaError, match=text):
                use()
    assert new not in local_lake.tables()
