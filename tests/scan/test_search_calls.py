"""How a search is called: names, options and wrong input, each a typed error that says what to do."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import indexlake as il


@pytest.fixture
def table(lake: il.Lake) -> il.Table:
    columns = {"id": "int64", "note": "string", "x": "float64", "y": "float64", "vec": pa.list_(pa.float32(), 2)}
    t = lake.create_table("t", columns, primary_key="id")
    t.insert([{"id": n, "note": f"late parcel {n}" + " again" * n, "x": n, "y": -n, "vec": [n, 1.0]} for n in range(5)])
    t.create_index("words", "note", kind="bm25")
    t.create_index("near", "vec", kind="hnsw")
    t.create_index("places", ["x", "y"], kind="rtree")
    t.create_index("by_x", "x")
    return t


def test_an_index_that_does_not_search_leaves_its_name_to_the_column(table: il.Table) -> None:
    table.create_index("note", "note")
    assert [row["id"] for row in table.search("note", "3")] == [3]


def test_columns_that_a_search_adds_are_not_mixed_up_with_those_of_the_table(lake: il.Lake) -> None:
    t = lake.create_table("c", {"id": "int64", "t": "string", "_distance": "float64", "_score": "float64"})
    t.create_index("w", "t", kind="bm25")
    t.insert({"id": 1, "t": "late", "_distance": 7.0, "_score": 9.0})
    (found,) = t.search("w", "late", columns=["id", "_distance"]).to_pylist()
    assert (found["id"], found["_distance"]) == (1, 7.0)
    assert found["_score"] < 1
    with pytest.raises(il.SchemaError, match="'_score' has the name of a column that the search adds"):
        t.search("w", "late").to_arrow()
    assert list(t.search("w", "late", columns=["_SCORE", "ID"]).schema.names) == ["id", "_score"]
    with pytest.raises(il.SchemaError, match="_snippet"):
        t.search("w", "late", columns=["id", "_snippet"]).to_arrow()


def test_the_index_that_was_there_at_the_snapshot_answers(table: il.Table) -> None:
    search = table.search("words", "3")
    before = search.to_pylist()
    assert [row["id"] for row in before] == [3]
    table.drop_index("words")
    table.create_index("words", "note", kind="bm25", k1=0.1, b=0.0)
    assert search.to_pylist() == before
    assert search.snapshot_id is not None
    assert table.at(search.snapshot_id).search("note", "3").to_pylist() == before
    assert table.search("words", "3").to_pylist() != before
    table.drop_index("words")
    table.create_index("words", "note")
    assert search.to_pylist() == before


def test_a_flag_is_true_or_false_and_a_place_is_two_numbers(table: il.Table) -> None:
    with pytest.raises(il.ExpressionError, match="snippet is True or False, not 'yes'"):
        table.search("note", "late", snippet="yes")  # type: ignore[arg-type]
    for place in (("1", "2"), (True, False), np.array([True, False]), (b"1", 2)):
        with pytest.raises(il.ExpressionError, match="near a place"):
            table.search("places", place).to_arrow()


def test_each_of_several_searches_has_options_of_its_own(table: il.Table) -> None:
    both = table.search([("note", "late 3", {"operator": "and"}), ("vec", [3, 1], {"exact": True})], k=2)
    assert [row["id"] for row in both] == [3, 2]
    with pytest.raises(il.ExpressionError, match="operator"):
        table.search([("note", "late"), ("vec", [3, 1])], operator="and").to_arrow()
    weighted = table.search([("note", "late"), ("vec", [3, 1])], k=np.int64(1), fuse=np.array([0.0, 1.0]))
    assert [row["id"] for row in weighted] == [3]


def test_a_search_shows_itself_and_stays_in_its_process(table: il.Table) -> None:
    search = table.search("words", "late", 2)
    assert "late parcel" in search._repr_html_()
    assert table.index("near")._repr_html_()
    with pytest.raises(TypeError, match="A Search belongs to the process"):
        pickle.dumps(search)
    assert search.explain().hot_rows == 5


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda t: t.search("words", "x", columns=3), il.SchemaError, "columns is a list of names"),
        (lambda t: t.scan(columns=[3]), il.SchemaError, "columns is a list of names"),
        (lambda t: t.search([("words",)]), il.ExpressionError, "Search by the name of an index"),
        (lambda t: t.search([("words", "x")], fuse="best"), il.ExpressionError, 'fuse is "rrf"'),
        (lambda t: t.search([("words", "x")], fuse=[1, 2]), il.ExpressionError, "1 here"),
        (lambda t: t.search("places", (10**400, 0)).to_arrow(), il.ExpressionError, "finite numbers"),
        (lambda t: t.search("id", 3).to_arrow(), il.ExpressionError, "has no index to search"),
        (lambda t: t.search("by_x", 3).to_arrow(), il.ExpressionError, "is of kind 'btree', which where=… uses"),
        (lambda t: t.search("nothing", 3).to_arrow(), il.NotFoundError, "no index 'nothing'; it has 'by_x', 'near'"),
        (lambda t: t.create_index("x", None), il.SchemaError, "columns is a column"),
        (lambda t: t.create_index("x", 3), il.SchemaError, "columns is a column"),
        (lambda t: t.create_index("x", []), il.SchemaError, "needs a column"),
        (lambda t: t.create_index("x", ["x", "X"]), il.SchemaError, "names column 'x' twice"),
        (lambda t: t.create_index("x", "id", include=None), il.SchemaError, "include is a column"),
        (lambda t: t.create_index("a\ud800", "id"), il.SchemaError, "is not an index name"),
        (lambda t: t.create_index(" ", "id"), il.SchemaError, "is not an index name"),
        (lambda t: t.create_index("primary", "id"), il.SchemaError, "index of the primary key"),
        (lambda t: t.create_index("x", "id", unique="no"), il.SchemaError, "unique is True or False"),
        (lambda t: t.create_index("x", "id", kind="lsm"), il.NotFoundError, "There is no index kind 'lsm'"),
        (lambda t: t.create_index("WORDS", "id"), il.AlreadyExistsError, "another index 'words'"),
        (lambda t: t.drop_index(None), il.SchemaError, "is not an index name"),
        (lambda t: t.index(None), il.SchemaError, "is not the name of an index"),
        (lambda t: t.index("near").recall(sample="x"), il.ExpressionError, "sample must be a whole number"),
        (lambda t: t.index("near").recall(k=0), il.ExpressionError, "k must be a whole number"),
        (lambda t: t.index("words").recall(), il.SchemaError, "recall is for vectors"),
        (lambda t: t.index("places").recall(), il.SchemaError, "recall is for vectors"),
        (lambda t: t._lake.pipeline().build_index("t", 3), il.SchemaError, "index is the name of an index"),
        (lambda t: t._lake.pipeline().build_index("t", group_rows=0), il.SchemaError, "group_rows must be"),
    ],
)
def test_wrong_calls_are_refused(table: il.Table, call: Any, error: type[Exception], text: str) -> None:
    before = table.indexes()
    with pytest.raises(error, match=text):
        call(table)
    assert table.indexes() == before


def test_dropping_an_index_of_a_dropped_table_is_an_error(lake: il.Lake, table: il.Table) -> None:
    lake.drop_table("t")
    with pytest.raises(il.NotFoundError, match="was dropped"):
        table.drop_index("words", missing_ok=True)


def test_a_build_publishes_a_unique_index_that_was_left(lake: il.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    from indexlake.pipeline import create_index

    t = lake.create_table("t", {"id": "int64"})
    t.insert({"id": 1})

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(create_index, "build_index", killed)
        with pytest.raises(KeyboardInterrupt):
            t.create_index("u", "id", unique=True)
    assert t.indexes()[0].state == "building"
    lake.pipeline().build_index("t")
    assert t.indexes()[0].state == "ready"
    with pytest.raises(il.DuplicateKeyError):
        t.insert({"id": 1})


def test_the_recall_of_a_column_with_quotes_in_its_name(lake: il.Lake) -> None:
    t = lake.create_table("q", {"id": "int64", 'a "b"': pa.list_(pa.float32(), 2)})
    t.create_index("near", 'a "b"', kind="hnsw")
    assert t.index("near").recall() == 1.0
    t.insert([{"id": 1, 'a "b"': [1, 2]}, {"id": 2, 'a "b"': None}])
    assert t.index("near").recall() == 1.0
