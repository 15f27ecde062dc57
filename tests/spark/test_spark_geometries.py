"""Functions of geometries give in Spark what they give in DuckDB."""

from __future__ import annotations

import pyarrow as pa
import pytest

import indexlake as il

PLACES = pa.schema({"id": pa.int64(), "g": pa.binary(), "x": pa.float64()})


@pytest.fixture(scope="module", autouse=True)
def places(module_lake: il.Lake) -> None:
    t = module_lake.create_table("places", PLACES, primary_key="id")
    t.insert([{"id": n, "x": float(n)} for n in range(20)])
    t.update({"g": il.expr("st_point(x, 2 * x)")}, "id < 18")
    module_lake.pipeline(runner="threads").dump("places")
    t.insert({"id": 30, "x": 30.0})


@pytest.mark.parametrize(
    "text",
    [
        "select id from places where st_within(g, st_geomfromtext('POLYGON((0 0, 5 0, 5 10, 0 10, 0 0))')) order by id",
        "select id, st_astext(st_geomfromwkb(g)) w, st_distance(g, st_point(x, 0)) d from places order by id",
        "select a.id i, b.id j from places a join places b on st_dwithin(a.g, b.g, 2.3) and a.id < b.id order by i, j",
        "select count(*) n from places where not st_intersects(g, st_point(3, 6)) and st_contains(g, g)",
    ],
)
def test_spark_gives_what_duckdb_gives(module_lake: il.Lake, spark: object, text: str) -> None:
    wanted = module_lake.sql(text).to_arrow().to_pylist()
    assert wanted
    assert module_lake.sql(text, engine="spark").to_arrow().to_pylist() == wanted


def test_what_is_not_a_geometry_is_said_by_spark_too(module_lake: il.Lake, spark: object) -> None:
    with pytest.raises(il.JobError, match="'nowhere' is not a geometry in WKT"):
        module_lake.sql("select st_geomfromtext(concat('no', 'where')) from places", engine="spark").to_arrow()
