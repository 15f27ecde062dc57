"""Functions of geometries in queries: DuckDB has them from us, and a scan is asked what concerns one table."""

from __future__ import annotations

import sys

import pytest

import indexlake as il
from indexlake.errors import ExpressionError, MissingExtraError

SQUARE = "st_geomfromtext('POLYGON((0 0, 10 0, 10 10, 0 10, 0 0))')"


@pytest.fixture
def places(lake: il.Lake) -> il.Lake:
    lake.sql(f"""
        create table places (id bigint primary key, place blob);
        insert into places select range, st_point(range, range) from range(5000);
        insert into places values (9000, null);
        create table areas (name varchar, area blob);
        insert into areas values ('square', {SQUARE}), ('far', st_geomfromtext('POINT(4000 4000)')), ('none', null)
    """)
    return lake


def test_they_join_tables(places: il.Lake) -> None:
    text = """
        select name, count(*), min(st_astext(place)) from places join areas on st_intersects(place, area)
        group by name order by name
    """
    assert places.sql(text).fetchall() == [("far", 1, "POINT (4000 4000)"), ("square", 11, "POINT (0 0)")]
    text = "select id from places, areas where name = 'square' and st_within(place, area) order by id"
    assert [row[0] for row in places.sql(text).fetchall()] == list(range(1, 10))


def test_a_scan_is_asked_what_concerns_its_table(places: il.Lake) -> None:
    text = f"select max(id) from places join areas on true where st_within(place, {SQUARE})"
    assert "ST_WITHIN" in str(places.sql(f"explain {text}")).partition("hot rows")[0].upper()
    assert places.sql(text).scalar() == 9


def test_values_and_nulls(places: il.Lake) -> None:
    text = """
        select st_distance(place, st_point($x, 4)), st_dwithin(place, st_point($x, 4), 1), st_contains(place, place)
        from places where id in (3, 9000) order by id
    """
    assert places.sql(text, {"x": 3}).fetchall() == [(1.0, True, True), (None, None, None)]
    assert places.sql("select st_point(null, 1), st_within(null, null)").fetchone() == (None, None)
    assert places.sql("update places set place = st_point(0, 1) where id = 9000").updated == 1


def test_what_is_no_geometry_is_said_in_plain_words(places: il.Lake) -> None:
    with pytest.raises(ExpressionError, match="'nix' is not a geometry in WKT, such as 'POINT") as refused:
        places.sql("select st_geomfromtext('nix') from places join areas on true").fetchall()
    assert "UDF" not in str(refused.value)
    with pytest.raises(ExpressionError, match="is not a geometry in WKB"):
        places.sql("select max(st_astext('abc'::blob)) from areas").fetchall()


def test_geometries_are_bytes_also_where_duckdb_has_a_type_for_them(places: il.Lake) -> None:
    text = "select st_astext(st_geomfromwkb(place)), typeof(st_geomfromwkb(place)) from places where id in (1, 9000)"
    assert places.sql(f"{text} order by id").fetchall() == [("POINT (1 1)", "BLOB"), (None, "BLOB")]
    assert places.sql("select ST_Distance(st_point(1, 2), st_geomfromtext('POINT EMPTY'))").scalar() is None


def test_without_shapely_the_extra_is_named(places: il.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shapely", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'indexlake\[geo\]'"):
        places.sql("select st_astext(place) from places").fetchall()
