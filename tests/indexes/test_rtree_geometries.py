"""An rtree over WKB: no geometry is missed that a predicate is true of, and the nearest are the nearest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import shapely

from indexlake.errors import CorruptionError, ExpressionError
from indexlake.indexes.kind import Part
from indexlake.storage import Storage
from tests.indexes.rtree_cases import KIND, fields, index_of, matching, opened, probe, segment

B = pa.binary()
F8 = pa.float64()
RNG = np.random.default_rng(31)


def wkb(shapes: object) -> pa.Array:
    return pa.array(shapely.to_wkb(shapes), B)


def mixed(count: int) -> pa.Array:
    """Points, lines, polygons, nulls and empty ones."""
    at = RNG.uniform(0, 100, (count, 2))
    made = []
    for n, (x, y) in enumerate(at):
        size = RNG.exponential(2.0)
        kinds = (
            *(shapely.Point(x, y), shapely.LineString([(x, y), (x + size, y - size)])),
            *(
                shapely.Point(x, y).buffer(size, 4),
                shapely.from_wkt("POINT EMPTY"),
                None,
                shapely.MultiPoint([(x, y), (y, x)]),
            ),
        )
        made.append(kinds[n % len(kinds)])
    return wkb(np.array(made, np.object_))


QUERIES = [
    "st_intersects(g, $s)", "st_within(g, $s)", "st_contains(g, $s)", "st_contains($s, g)", "st_dwithin(g, $s, 5)",
    "st_intersects(g, $s) and st_dwithin($s, g, 0.1) and st_intersects(g, st_geomfromtext('LINESTRING(0 0, 100 100)'))",
]  # fmt: skip


@pytest.mark.parametrize("text", QUERIES)
@pytest.mark.parametrize("type", [B, pa.large_binary()], ids=str)
def test_a_predicate_finds_all_of_its_geometries(text: str, type: pa.DataType) -> None:
    values = mixed(900)
    made = segment([[values.cast(type)]])
    found_any = 0
    for _ in range(15):
        x, y = RNG.uniform(0, 100, 2)
        area = [shapely.Point(x, y).buffer(RNG.uniform(0.1, 20)), shapely.Point(x, y)][int(RNG.integers(2))]
        params = {"s": shapely.to_wkb(area)}
        asked = probe(text, type, params=params)
        assert not asked.exact
        found, wanted = made.ask(asked).slots(), matching(text, [values], params)
        assert set(wanted) <= set(found.tolist())
        assert len(found) < 500
        assert (np.diff(found) > 0).all()
        assert made.ask(asked).count >= len(found)
        found_any += len(wanted)
    assert found_any or "contains(g" in text


def test_boxes_alone_decide_what_is_a_candidate() -> None:
    shapes = shapely.from_wkt(["LINESTRING(0 0, 10 10)", "POINT(2 8)", "POINT(11 11)", "POINT EMPTY"])
    made = segment([[wkb(shapes)]])
    asked = probe("st_intersects(g, st_point(2, 8))", B)
    assert made.ask(asked).slots().tolist() == [0, 1]
    assert str(asked) == "g meets (2, 8, 2, 8)"
    assert probe("g is not null", B) is None


def test_what_cannot_be_read_is_always_a_candidate() -> None:
    odd = [
        b"",
        b"\x01\x01",
        shapely.to_wkb(shapely.LineString([(0, 0), (np.inf, 1)])),
        shapely.to_wkb(shapely.Point(1, 1)),
        None,
    ]
    values = pa.array([*odd, shapely.to_wkb(shapely.Point(50, 50))], B)
    made = segment([[values]])
    asked = probe("st_intersects(g, st_point(1, 1))", B)
    assert made.ask(asked).slots().tolist() == [0, 1, 2, 3]
    assert made.ask(asked).count == 4
    with pytest.raises(ExpressionError, match="is not a geometry in WKB"):
        matching("st_intersects(g, st_point(1, 1))", [values])


def test_points_are_kept_small_and_shapes_in_full() -> None:
    at = RNG.uniform(0, 1, (5000, 2))
    flat = segment([[wkb(shapely.points(at))]])
    assert flat._file.size() < 22 * 5000
    asked = probe("st_intersects(g, $s)", B, params={"s": shapely.to_wkb(shapely.box(0.2, 0.2, 0.3, 0.3))})
    inside = ((at >= 0.2) & (at <= 0.3)).all(axis=1)
    assert flat.ask(asked).slots().tolist() == np.flatnonzero(inside).tolist()


# -- nearest -----------------------------------------------------------------------------------------------


def near(query: object, parts: list[Part], k: int, columns: int = 1, **options: object) -> list[tuple[int, int, float]]:
    index = index_of(columns)
    asked = KIND.query(index, fields(*[F8, F8][:columns]), query, options)
    hits = KIND.search(index, asked, parts, k)
    return list(zip(hits.parts.tolist(), hits.slots.tolist(), hits.scores.tolist(), strict=True))


def brute(values: list[pa.Array], masks: list[object], x: float, y: float) -> list[tuple[int, int, float]]:
    place = shapely.Point(x, y)
    rows = []
    for part, (column, mask) in enumerate(zip(values, masks, strict=True)):
        for slot, value in enumerate(column.to_pylist()):
            shape = None if value is None else shapely.from_wkb(value)
            if shape is not None and not shape.is_empty and (mask is None or mask[slot]):  # type: ignore[index]
                rows.append((part, slot, shapely.distance(shape, place)))
    return sorted(rows, key=lambda row: (row[2], row[0], row[1]))


@pytest.mark.parametrize("k", [1, 10, 200, 10_000])
@pytest.mark.parametrize("share", [1.0, 0.1, 0.0])
@pytest.mark.parametrize("lasting", [True, False])
def test_the_nearest_live_geometries_of_all_parts(k: int, share: float, lasting: bool) -> None:
    values = [mixed(700), mixed(3), mixed(150), pa.nulls(4, B)]
    masks = [None if share == 1 else RNG.uniform(size=len(v)) < share for v in values]
    parts = [Part(segment([[v]], lasting=lasting), m) for v, m in zip(values, masks, strict=True)]
    for x, y in ((50.0, 50.0), (-30.0, 120.0), (0.0, 0.0)):
        found, wanted = near((x, y), parts, k), brute(values, masks, x, y)[:k]
        assert len(found) == len(wanted)
        assert [d for *_, d in found] == pytest.approx([d for *_, d in wanted])
        apart = [n for n in range(len(wanted)) if sum(abs(w[2] - wanted[n][2]) < 1e-9 for w in wanted) == 1]
        assert [found[n][:2] for n in apart] == [wanted[n][:2] for n in apart]


@pytest.mark.parametrize("count", [1, 64, 65, 5000])
def test_the_nearest_points_of_two_columns(count: int) -> None:
    at = RNG.normal(0, 50, (count, 2))
    at[0] = np.nan, 3
    columns = [pa.array(at[:, 0]), pa.array(at[:, 1])]
    made = segment([columns])
    live = RNG.uniform(size=count) < 0.05
    for x, y in RNG.normal(0, 60, (10, 2)).tolist():
        distances = np.hypot(at[:, 0] - x, at[:, 1] - y)
        for mask in (None, live):
            distances[~live if mask is not None else []] = np.nan
            wanted = np.argsort(distances, kind="stable")[: min(10, int((~np.isnan(distances)).sum()))]
            found = near((x, y), [Part(made, mask)], 10, columns=2)
            assert found == [(0, int(n), float(distances[n])) for n in wanted]


def test_equally_near_rows_come_in_their_order() -> None:
    made = segment([[pa.array([1.0] * 300), pa.array([2.0] * 300)]])
    assert near((0, 2), [Part(made, None), Part(made, None)], 3, columns=2) == [(0, n, 1.0) for n in range(3)]


def test_a_greatest_distance_bounds_a_search() -> None:
    made = segment([[pa.array(np.arange(100.0)), pa.array(np.zeros(100))]])
    assert near((10, 0), [Part(made, None)], 50, columns=2, max_distance=1) == [(0, 10, 0.0), (0, 9, 1.0), (0, 11, 1.0)]
    assert near((10, 5), [Part(made, None)], 50, columns=2, max_distance=1) == []
    assert near((10, 0), [Part(made, None)], 0, columns=2) == []
    assert near((10, 0), [], 5, columns=2) == []


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_very_small_and_very_large_coordinates(scale: float) -> None:
    at = RNG.uniform(-1.7, 1.7, (500, 2)) * scale * (1e8 if scale > 1 else 1)
    made = segment([[pa.array(at[:, 0]), pa.array(at[:, 1])]])
    (found, *_) = near((0.0, 0.0), [Part(made, None)], 3, columns=2)
    assert found[1] == int(np.argmin(np.hypot(*at.T / 4)))


def test_a_place_may_be_numbers_wkb_or_a_point() -> None:
    made = [Part(segment([[pa.array([1, 5]), pa.array([1, 5])]]), None)]
    for place in ((4, 4), [4.0, 4.0], np.array([4, 4]), shapely.Point(4, 4), shapely.to_wkb(shapely.Point(4, 4))):
        assert near(place, made, 1, columns=2) == [(0, 1, pytest.approx(np.sqrt(2)))]
    asked = KIND.query(index_of(2), fields(F8, F8), (4, 4), {"max_distance": 2})
    assert str(asked) == "near (4, 4) within 2"


@pytest.mark.parametrize(
    ("place", "options", "message"),
    [
        (
            "Berlin",
            {},
            r"near a place: \(x, y\) with finite numbers, a shapely Point, or a point as WKB; not 'Berlin'",
        ),
        ((1, 2, 3), {}, r"not \(1, 2, 3\)"),
        (7, {}, "not 7"),
        ((1, "a"), {}, r"not \(1, 'a'\)"),
        ((1, float("nan")), {}, r"not \(1.0, nan\)"),
        (shapely.box(0, 0, 1, 1), {}, "not a Polygon"),
        (shapely.from_wkt("POINT EMPTY"), {}, "not an empty Point"),
        (b"\x01", {}, "The place to search near cannot be read: a value of 1 bytes"),
        ((1, 2), {"ef": 3}, "no option 'ef'; it has max_distance"),
        ((1, 2), {"max_distance": -1}, "The option 'max_distance' is a number, 0 or more, not -1"),
        ((1, 2), {"max_distance": np.int64(-2)}, "0 or more, not np.int64"),
        ((1, 2), {"max_distance": "far"}, "not 'far'"),
    ],
)
def test_queries_that_make_no_sense_are_refused(place: object, options: dict[str, object], message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        KIND.query(index_of(1), fields(B), place, options)


# -- merges and files --------------------------------------------------------------------------------------


def test_merged_segments_answer_as_one_made_at_once() -> None:
    blocks = [mixed(60), wkb(shapely.points(RNG.uniform(0, 100, (40, 2)))), pa.array([b"no", None], B), mixed(200)]
    whole = segment([[block] for block in blocks])
    first, second = segment([[blocks[1]]]), segment([[blocks[2]], [blocks[0]], [blocks[3]]])
    merged = opened(KIND.merge(index_of(1), [(second, [1]), (first, [0]), (second, [0, 2])]), 1)
    assert list(merged.starts) == list(whole.starts)
    asked = probe("st_dwithin(g, st_point(40, 40), 20)", B)
    assert merged.ask(asked).slots().tolist() == whole.ask(asked).slots().tolist()
    assert near((40, 40), [Part(merged, None)], 30) == near((40, 40), [Part(whole, None)], 30)


def test_a_damaged_byte_is_never_an_answer(tmp_path: Path) -> None:
    builder = KIND.builder(index_of(1), fields(B), lasting=True)
    values = mixed(400)
    builder.add([values])
    builder.end_block()
    storage = Storage.open(str(tmp_path))
    with storage.create_file("tree") as file:
        for piece in builder.content().pieces:
            file.write(piece)
    text = "st_intersects(g, $s)"
    asked = probe(text, B, params={"s": shapely.to_wkb(shapely.box(0, 0, 100, 100))})
    whole = KIND.open(index_of(1), storage.open_file("tree", file.checksums))
    want = whole.ask(asked).slots().tolist(), near((5, 5), [Part(whole, None)], 5)
    path = next(p for p in tmp_path.rglob("*") if p.is_file())
    content = path.read_bytes()
    for place in RNG.integers(0, len(content), 12).tolist():
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        try:
            damaged = KIND.open(index_of(1), storage.open_file("tree", file.checksums))
            assert (damaged.ask(asked).slots().tolist(), near((5, 5), [Part(damaged, None)], 5)) == want
        except CorruptionError:
            continue
        assert len(content) > 1 << 16  # only where a chunk was not needed
