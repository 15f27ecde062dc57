"""Functions of geometries in SQL: in conditions, which reach the scan, and wherever else DuckDB computes."""

from __future__ import annotations

import sys

import pyarrow as pa
import pytest

import indexlake as il

PLACES = pa.schema({"id": pa.int64(), "g": pa.binary(), "x": pa.float64()})


@pytest.fixture
def lake() -> il.Lake:
    made = il.connect(":memory:")
    t = made.create_table("places", PLACES, primary_key="id")
    t.insert([{"id": n, "x": float(n)} for n in range(20)])
    t.update({"g": il.expr("st_point(x, 2 * x)")}, "id < 18")
    t.update({"g": il.expr("st_geomfromtext('POINT EMPTY')")}, "id = 18")
    return made


def rows(lake: il.Lake, text: str, params: object = None) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in lake.sql(text, params).to_arrow().to_pylist()]


def test_a_condition_finds_rows(lake: il.Lake) -> None:
    area = "st_geomfromtext('POLYGON((0 0, 5 0, 5 10, 0 10, 0 0))')"
    assert rows(lake, f"select id from places where st_within(g, {area}) order by id") == [(1,), (2,), (3,), (4,)]
    assert rows(lake, f"select count(*) from places where st_intersects(g, {area})") == [(6,)]
    assert rows(lake, "select id from places where st_dwithin(g, st_point($x, 6), 0.5)", {"x": 3}) == [(3,)]


def test_functions_stand_anywhere(lake: il.Lake) -> None:
    assert rows(lake, "select st_astext(st_geomfromwkb(g)) w from places where id in (1, 18, 19) order by id") == [
        ("POINT (1 2)",),
        ("POINT EMPTY",),
        (None,),
    ]
    assert rows(lake, "select sum(ST_Distance(g, st_point(x, 0))) s, count(st_distance(g, g)) c from places") == [
        (sum(2.0 * n for n in range(18)), 18)
    ]
    joined = "select a.id i, b.id j from places a join places b on st_dwithin(a.g, b.g, 2.3) and a.id < b.id order by i"
    assert rows(lake, joined) == [(n, n + 1) for n in range(17)]
    assert rows(lake, "select st_astext(st_point(1, 2)) w") == [("POINT (1 2)",)]
    assert rows(lake, "select st_astext(g) w from places where id < 0") == []


def test_writes_use_them(lake: il.Lake) -> None:
    lake.sql("insert into places values (50, st_point(7, 8), 7)")
    lake.sql("insert into places select id + 100, st_point(x, 0.5), x from places where id = 4")
    lake.sql("update places set g = st_point(0, 0) where st_intersects(g, st_point(1, 2))")
    lake.sql("delete from places where st_intersects(g, st_point(2, 4))")
    found = rows(lake, "select id, st_astext(g) w from places where id in (1, 2, 50, 104) order by id")
    assert found == [(1, "POINT (0 0)"), (50, "POINT (7 8)"), (104, "POINT (4 0.5)")]


def test_errors_are_those_of_predicates(lake: il.Lake) -> None:
    with pytest.raises(il.ExpressionError, match=r"^'nonsense' is not a geometry in WKT, such as 'POINT"):
        rows(lake, "select st_geomfromtext('nonsense') from places")
    with pytest.raises(il.ExpressionError, match=r"3 bytes .0x616263. is not a geometry in WKB") as caught:
        rows(lake, "select max(st_distance(g, 'abc'::blob)) from places")
    assert "UDF" not in str(caught.value)
    with pytest.raises(il.ExpressionError, match=r"st_contains\(BLOB, BLOB\) -> BOOLEAN"):
        rows(lake, "select st_contains(g) from places")


def test_without_shapely_the_extra_is_named(lake: il.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shapely", None)
    with pytest.raises(il.MissingExtraError, match=r"pip install 'indexlake\[geo\]'"):
        rows(lake, "select st_astext(g) from places")
