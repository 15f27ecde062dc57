"""Rtree indexes of a table: rows in blocks and hot rows, changed ones and those of the past."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import shapely

import indexlake as il

PLACES = pa.schema({"id": pa.int64(), "lon": pa.float64(), "lat": pa.float64(), "g": pa.binary()})
WINDOW = "lon between 10 and 40 and lat > 10 and lat < 40"
ROUND = "st_dwithin(g, st_point(20, 20), 15)"


def rows(first: int, last: int) -> pa.Table:
    rng = np.random.default_rng(first)
    x, y = rng.uniform(-100, 100, (2, last - first))
    shapes = pa.array(shapely.to_wkb(shapely.points(x, y)), pa.binary())
    return pa.table([np.arange(first, last), x, y, shapes], schema=PLACES)


@pytest.fixture
def places(lake: il.Lake) -> il.Table:
    t = lake.create_table("places", PLACES, primary_key="id")
    t.insert(rows(0, 3000))
    lake.pipeline(runner="threads").dump("places")
    t.create_index("by_place", ["lon", "lat"], kind="rstar")
    t.create_index("by_shape", ["g"], kind="rtree")
    t.insert(rows(3000, 4000))
    lake.pipeline(runner="threads").dump("places")
    t.insert(rows(4000, 4050))
    return t


def expected(t: il.Table) -> tuple[list[int], list[int], list[int]]:
    """The rows of the window, of the circle, and the ten nearest to its centre, by looking at all."""
    every = t.scan().to_arrow()
    ids, x, y = (every[name].to_numpy() for name in ("id", "lon", "lat"))
    far = np.hypot(x - 20, y - 20)
    window = (x >= 10) & (x <= 40) & (y > 10) & (y < 40)
    return sorted(ids[window].tolist()), sorted(ids[far <= 15].tolist()), ids[np.argsort(far)[:10]].tolist()


def check(t: il.Table) -> None:
    window, circle, nearest = expected(t)
    assert sorted(t.scan(WINDOW).to_arrow()["id"].to_pylist()) == window
    assert sorted(t.scan(ROUND).to_arrow()["id"].to_pylist()) == circle
    for asked in ("by_place", "by_shape"):
        found = t.search(asked, (20, 20), k=10).to_arrow()
        assert found["id"].to_pylist() == nearest
        assert found["_distance"].to_pylist() == sorted(found["_distance"].to_pylist())
    assert "index by_place" in str(t.scan(WINDOW).explain())
    assert "found by by_shape" in str(t.scan(ROUND).explain())


def test_rows_are_found_in_every_tier_after_changes_and_in_the_past(places: il.Table) -> None:
    check(places)
    before = places.at(places.history()[-1].snapshot_id)
    wanted = expected(before)
    places.delete("id % 3 = 0")
    moved = {"lon": il.expr("20 + id / 1000"), "lat": 20.0, "g": il.expr("st_point(20 + id / 1000, 20)")}
    places.update(moved, "id between 100 and 104")
    check(places)
    assert places.search("by_place", (20, 20), k=3).to_arrow()["id"].to_pylist() == [100, 101, 103]
    check(before)
    assert expected(before) == wanted != expected(places)


def test_a_search_obeys_its_condition_and_its_distance(places: il.Table) -> None:
    found = places.search("by_shape", shapely.Point(20, 20), k=5, where="lat < -50").to_arrow()
    every = places.scan("lat < -50").to_arrow()
    far = np.hypot(every["lon"].to_numpy() - 20, every["lat"].to_numpy() - 20)
    assert found["id"].to_pylist() == every["id"].to_numpy()[np.argsort(far)[:5]].tolist()


def test_wrong_searches_and_definitions_change_nothing(places: il.Table) -> None:
    with pytest.raises(il.ExpressionError, match="is searched near a place"):
        places.search("by_place", "Berlin").to_arrow()
    with pytest.raises(il.ExpressionError, match="'max_distance' is a number, 0 or more, not -1"):
        places.search("by_place", (0, 0), max_distance=-1).to_arrow()
    with pytest.raises(il.SchemaError, match="needs numbers, but 'g' is of type binary"):
        places.create_index("bad", ["id", "g"], kind="rtree")
    assert sorted(i.name for i in places.indexes()) == ["by_place", "by_shape"]
