"""Functions of geometries in a query of Spark's give what they give here."""

from __future__ import annotations

import pytest

import indexlake as il
from indexlake.errors import JobError

pytestmark = pytest.mark.usefixtures("spark")
SQUARE = "st_geomfromtext('POLYGON((0 0, 10 0, 10 10, 0 10, 0 0))')"


@pytest.fixture(scope="module")
def places(module_lake: il.Lake) -> il.Lake:
    module_lake.sql(f"""
        create table places (id bigint primary key, place blob);
        insert into places select range, st_point(range, range) from range(100);
        insert into places values (900, null);
        create table areas (name varchar, area blob);
        insert into areas values ('square', {SQUARE}), ('far', st_geomfromtext('POINT(40 40)')), ('none', null)
    """)
    return module_lake


@pytest.mark.parametrize(
    "text",
    [
        "select name, count(*) c, min(st_astext(place)) p from places join areas on st_intersects(place, area) "
        "group by name order by name",
        f"select id, st_distance(place, st_point(3, 4)) d from places where st_within(place, {SQUARE}) order by id",
        "select st_dwithin(place, st_point(3, 4), 1.5) w, st_contains(place, place) c from places where id in (3, 900) "
        "order by id",
    ],
)
def test_spark_gives_what_duckdb_gives(places: il.Lake, text: str) -> None:
    expected = places.sql(text).fetchall()
    assert expected
    assert places.sql(text, engine="spark").fetchall() == expected


def test_what_is_no_geometry_is_an_error(places: il.Lake) -> None:
    with pytest.raises(JobError, match="is not a geometry in WKB"):
        places.sql("select max(st_astext(cast(name as blob))) from areas", engine="spark").fetchall()
