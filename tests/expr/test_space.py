"""Functions of geometries: what shapely says, in the evaluator, row by row, as constants; and what indexes may ask."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely

from indexlake.errors import ExpressionError, MissingExtraError
from indexlake.expr import compile
from indexlake.expr.geometries import boxes, points, widened
from indexlake.expr.test import NEVER, ColumnTest

RNG = np.random.default_rng(7)
SQUARE = shapely.box(0, 0, 4, 4)
WKT = [
    *(
        "POINT(1 1)",
        "POINT(4 4)",
        "POINT(9 9)",
        "POINT EMPTY",
        "LINESTRING(-1 2, 5 2)",
        "POLYGON((1 1,2 1,2 2,1 2,1 1))",
    ),
    *("MULTIPOINT(1 1, 9 9)", "GEOMETRYCOLLECTION EMPTY", "POINT Z(1 2 3)", "POLYGON((-9 -9,9 -9,9 9,-9 9,-9 -9))"),
]
SHAPES = np.array([*(shapely.from_wkt(text) for text in WKT), None], np.object_)
VALUES = pa.array(shapely.to_wkb(SHAPES), pa.binary())
BATCH = pa.record_batch(
    {"g": VALUES, "h": VALUES.take(pa.array(np.roll(np.arange(len(SHAPES)), 3))), "d": pa.array(RNG.uniform(0, 9, 11))}
)
PARAMS = {"s": shapely.to_wkb(SQUARE)}
NAMES = {"st_intersects": "intersects", "st_within": "within", "st_contains": "contains"}


def values(text: str, params: Any = None, batch: pa.RecordBatch = BATCH) -> list[Any]:
    """From the evaluator; the scalar path gives the same."""
    bound = compile(text, batch.schema, params)
    found = bound.evaluate(batch).to_pylist()
    assert [bound.evaluate_row(row) for row in batch.to_pylist()] == found
    return found


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("type", [pa.binary(), pa.large_binary(), pa.binary_view()], ids=str)
def test_predicates_are_those_of_shapely_with_either_side_constant(name: str, type: pa.DataType) -> None:
    compare = getattr(shapely, NAMES[name])
    batch = BATCH.set_column(0, "g", BATCH.column("g").cast(type))

    def wanted(a: Any, b: Any) -> list[Any]:
        nulls = shapely.is_missing(a) | shapely.is_missing(b)
        return [None if null else bool(one) for null, one in zip(nulls, compare(a, b), strict=True)]

    assert values(f"{name}(g, $s)", PARAMS, batch) == wanted(SHAPES, SQUARE)
    assert values(f"{name}($s, g)", PARAMS, batch) == wanted(SQUARE, SHAPES)
    assert values(f"{name}(g, h)", batch=batch) == wanted(SHAPES, np.roll(SHAPES, 3))


def test_distances() -> None:
    found = values("st_distance(g, $s)", PARAMS)
    for one, shape in zip(found, SHAPES, strict=True):
        empty = shape is None or shape.is_empty
        assert one is None if empty else one == pytest.approx(shapely.distance(shape, SQUARE))
    near = values("st_dwithin(g, $s, 7.0)", PARAMS)
    assert near == [None if s is None else bool(shapely.dwithin(s, SQUARE, 7.0)) for s in SHAPES]
    assert values("st_dwithin($s, g, 7.0)", PARAMS) == near
    each = values("st_dwithin(g, h, d)")
    other = np.roll(SHAPES, 3)
    for one, a, b, reach in zip(each, SHAPES, other, BATCH.column("d").to_pylist(), strict=True):
        assert one is (None if a is None or b is None else bool(shapely.dwithin(a, b, reach)))
    assert values("st_dwithin(g, g, -1)")[:2] == [False, False]
    assert values("st_dwithin(g, g, null)") == [None] * len(SHAPES)


def test_a_point_without_a_coordinate_is_near_nothing() -> None:
    lost = [shapely.Point(*place) for place in ((np.nan, 1), (1, np.nan), (np.nan, np.nan), (np.inf, 1))]
    batch = pa.record_batch({"g": pa.array(shapely.to_wkb([*lost, shapely.Point(1, 1)]), pa.binary())})
    for text in ("POLYGON((0 0,9 0,9 9,0 9,0 0))", "LINESTRING(0 0,9 9)", "POINT(1 1)", "MULTIPOINT(1 1,2 2)"):
        for call in ("st_dwithin(g, st_geomfromtext($s), 1e9)", "st_dwithin(st_geomfromtext($s), g, 'inf')"):
            assert values(call, {"s": text}, batch) == [False] * len(lost) + [True], text
    for point in lost:
        assert not any(values("st_dwithin(g, $s, 1e9)", {"s": shapely.to_wkb(point)}))


def test_geometries_are_made_from_numbers_and_text() -> None:
    assert values("st_astext(st_point(d, 1))")[0] == f"POINT ({BATCH.column('d')[0].as_py()!r} 1)"
    assert values("st_point(1.5, -2)")[0] == shapely.to_wkb(shapely.Point(1.5, -2))
    assert values("st_point(null, 2)")[0] is None
    assert values("st_geomfromtext('POLYGON((0 0,4 0,4 4,0 4,0 0))')")[0] == shapely.to_wkb(
        shapely.from_wkt("POLYGON((0 0,4 0,4 4,0 4,0 0))")
    )
    assert values("st_geomfromwkb(g)") == VALUES.to_pylist()
    assert [None if s is None else shapely.from_wkt(s).wkb for s in values("st_astext(g)")] == VALUES.to_pylist()
    thirds = pa.record_batch({"x": pa.array([1 / 3, None])})
    assert values("st_astext(st_point(x, 0.1))", batch=thirds) == [f"POINT ({1 / 3!r} 0.1)", None]


def test_what_is_not_a_geometry_is_named() -> None:
    bad = pa.record_batch({"g": pa.array([None, shapely.to_wkb(SQUARE), b"\x01\x02"], pa.binary())})
    for text in ("st_astext(g)", "st_intersects(g, st_point(1, 2))", "st_distance(g, g)", "st_geomfromwkb(g)"):
        with pytest.raises(ExpressionError, match=r"2 bytes \(0x0102\) is not a geometry in WKB; st_geomfromtext\(\)"):
            compile(text, bad.schema).evaluate(bad)
    with pytest.raises(ExpressionError, match="'POINT 3 4' is not a geometry in WKT, such as 'POINT"):
        compile("st_intersects(g, st_geomfromtext('POINT 3 4'))", BATCH.schema).mask(BATCH)
    with pytest.raises(ExpressionError, match=r"st_point takes number, number"):
        compile("st_point(g, 3)", BATCH.schema)
    with pytest.raises(ExpressionError, match=r"type Polygon is not supported; give .*\.wkb"):
        compile("st_intersects(g, $g)", BATCH.schema, {"g": SQUARE})
    with pytest.raises(
        ExpressionError, match='argument 1 is column "d" \\(DOUBLE\\); st_within takes geometry, geometry'
    ):
        compile("st_within(d, g)", BATCH.schema)
    with pytest.raises(ExpressionError, match=r"st_dwithin\(\) takes geometry, geometry, distance; 2 arguments given"):
        compile("st_dwithin(g, g)", BATCH.schema)
    curve = pa.record_batch({"g": pa.array([bytes.fromhex("010800000000000000")], pa.binary())})
    with pytest.raises(ExpressionError, match="is not a geometry in WKB"):
        compile("st_astext(g)", curve.schema).evaluate(curve)
    line = shapely.to_wkb(shapely.LineString([(9, 9), (np.inf, 8), (3, 3)]))
    nowhere = pa.record_batch({"g": pa.array([line], pa.binary()), "h": pa.array([PARAMS["s"]], pa.binary())})
    with pytest.raises(ExpressionError, match=r"st_distance\(\) cannot be computed: .*NaN/Inf"):
        compile("st_distance(g, h)", nowhere.schema).evaluate(nowhere)


def test_without_shapely_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shapely", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'indexlake\[geo\]'") as caught:
        compile("st_astext(g) = 'POINT (1 1)'", BATCH.schema).mask(BATCH)
    assert caught.value.details["extra"] == "geo"
    assert compile("st_point(1, d) is not null", BATCH.schema).mask(BATCH).true_count == 11  # needs none


def necessary(text: str, params: Any = None) -> Any:
    return compile(text, BATCH.schema, params).test()


@pytest.mark.parametrize("name", NAMES)
def test_a_predicate_says_where_the_box_must_be(name: str) -> None:
    wanted = ColumnTest("g", "meets", (0.0, 0.0, 4.0, 4.0))
    assert necessary(f"{name}(g, $s)", PARAMS) == necessary(f"{name}($s, g)", PARAMS) == wanted
    assert necessary(f"{name}(g, st_geomfromtext('LINESTRING(0 0, 4 4)'))") == wanted
    assert not compile(f"{name}(g, $s)", BATCH.schema, PARAMS).condition().exact
    assert necessary(f"not {name}(g, $s)", PARAMS) == ColumnTest("g", "is not null")
    assert necessary(f"{name}(g, st_geomfromtext('POINT EMPTY'))") == NEVER
    assert necessary(f"{name}(g, null)") == NEVER
    assert ColumnTest("g", "is not null") in necessary(f"{name}(g, h)").children


def test_a_distance_widens_the_box() -> None:
    found = necessary("st_dwithin(g, st_point(10, 20), 3)")
    assert found.op == "meets"
    assert found.values == pytest.approx((7, 17, 13, 23))
    assert found.values[0] < 7
    assert found.values[3] > 23
    assert necessary("st_dwithin(st_point(10, 20), g, 3)") == found
    assert necessary("st_dwithin(g, st_point(10, 20), -3)") == NEVER
    assert necessary("st_dwithin(g, st_point(10, 20), d)").children[0].op == "is not null"
    assert necessary("st_dwithin(g, st_point(0, 0), 'inf')").values == (-np.inf, -np.inf, np.inf, np.inf)


def test_a_bad_constant_prunes_nothing_and_raises_for_a_row() -> None:
    bound = compile("st_intersects(g, $s)", BATCH.schema, {"s": b"xx"})
    assert bound.test() == ColumnTest("g", "is not null")
    with pytest.raises(ExpressionError, match="is not a geometry in WKB"):
        bound.mask(BATCH)


def test_no_point_within_a_distance_is_outside_the_widened_box() -> None:
    for scale in (1e-9, 1.0, 1e9):
        centre = shapely.Point(RNG.uniform(-scale, scale, 2))
        for reach in RNG.uniform(0, 2 * scale, 50):
            angles = np.concatenate([RNG.uniform(0, 2 * np.pi, 200), np.arange(4) * np.pi / 2])
            rim = np.column_stack([np.cos(angles), np.sin(angles)]) * reach + [centre.x, centre.y]
            near = shapely.dwithin(shapely.points(rim), centre, reach)
            box = widened((centre.x, centre.y, centre.x, centre.y), float(reach))
            assert ((rim[near] >= box[:2]) & (rim[near] <= box[2:])).all()


def test_boxes_of_points_are_read_without_shapely_and_the_same() -> None:
    places = np.array([[1.5, 2.0], [np.nan, np.nan], [np.inf, 0.0], [-3.0, 1e300]])
    made = points(places)
    quick = boxes(made)
    slow = boxes(pa.concat_arrays([made, pa.nulls(1, pa.binary())]))
    for one, other in zip(quick, slow, strict=True):
        np.testing.assert_array_equal(one, other[:4])
    assert quick.empty.tolist() == [False, True, False, False]
    assert quick.unknown.tolist() == [False, False, True, False]
    assert boxes(made[1:3]).empty.tolist() == [True, False]


def test_conditions_of_geometries_are_pushed_down_as_not_null() -> None:
    bound = compile("st_intersects(g, $s)", BATCH.schema, PARAMS)
    pushed = bound.vortex()
    assert pushed is not None
    assert not pushed[1]
    assert "is_not_null" in str(pushed[0])
