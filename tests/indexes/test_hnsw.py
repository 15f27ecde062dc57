"""Vector indexes answer as brute force does: the nearest of the rows that may be found, as many as there can be."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from indexlake.indexes.hnsw.copied import Copied
from indexlake.indexes.hnsw.kind import Hnsw
from indexlake.indexes.hnsw.metric import unit
from indexlake.indexes.hnsw.query import vector_query
from indexlake.indexes.hnsw.segment import VectorSegment
from indexlake.indexes.index import Index
from indexlake.indexes.kind import Content, Hits, Part
from indexlake.schema.table_schema import Field
from indexlake.storage import Storage
from indexlake.storage.checksum import Checksums

pytest.importorskip("faiss")

KIND = Hnsw()
METRICS = ("l2", "cosine", "ip")


class Built:
    """A column, its index and its segment."""

    def __init__(self, storage: Storage, dimension: int, *, item: pa.DataType = pa.float32(), **params: Any) -> None:  # noqa: B008
        self.storage = storage
        self.field = Field(1, "v", pa.list_(item, dimension), nullable=True)
        kept = KIND.define([self.field], [], False, params)
        self.index = Index(1, "near", "hnsw", (1,), (), False, kept, 1, None, None, 1)

    def segment(self, *blocks: Sequence[Any] | npt.NDArray[Any], lasting: bool = True) -> VectorSegment:
        builder = KIND.builder(self.index, [self.field], lasting=lasting)
        for block in blocks:
            builder.add([self.array(block)])
            builder.end_block()
        return self.open(builder.content())

    def array(self, block: Sequence[Any] | npt.NDArray[Any]) -> pa.Array:
        if not isinstance(block, np.ndarray):
            return pa.array(block, self.field.type)
        items = pa.array(block.reshape(-1).astype(self.field.type.value_type.to_pandas_dtype()))
        return pa.FixedSizeListArray.from_arrays(items, type=self.field.type)

    def write(self, content: Content) -> tuple[str, Checksums]:
        path = f"{os.urandom(8).hex()}.vec"
        with self.storage.create_file(path) as file:
            for piece in content.pieces:
                file.write(piece)
        return path, file.checksums

    def open(self, content: Content) -> VectorSegment:
        path, checksums = self.write(content)
        return KIND.open(self.index, self.storage.open_file(path, checksums))

    def search(self, query: Any, parts: Sequence[Part], k: int, **options: Any) -> Hits:
        return KIND.search(self.index, KIND.query(self.index, [self.field], query, options), parts, k)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.open(str(tmp_path))


def smooth(rng: np.random.Generator, count: int, dimension: int) -> npt.NDArray[np.float32]:
    """Vectors that vary in few directions, as those of models do: a graph pays for them."""
    directions = np.random.default_rng(77).standard_normal((6, dimension))
    noise = 0.05 * rng.standard_normal((count, dimension))
    return (rng.standard_normal((count, 6)) @ directions + noise).astype(np.float32)


def far(metric: str, vectors: npt.NDArray[Any], query: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    rows, q = vectors.astype(np.float64), np.asarray(query, np.float32).astype(np.float64)
    if metric == "l2":
        return ((rows - q) ** 2).sum(axis=1)
    if metric == "ip":
        return -(rows @ q)
    return 1 - (rows @ q) / (np.linalg.norm(rows, axis=1) * np.linalg.norm(q))


def check(hits: Hits, metric: str, parts: Sequence[tuple[npt.NDArray[Any], Any]], query: Any, k: int) -> None:
    """The hits have the distances that brute force finds, each at its own row."""
    every = [far(metric, vectors, query) for vectors, _ in parts]
    alive = [f if live is None else f[live] for f, (_, live) in zip(every, parts, strict=True)]
    expected = np.sort(np.concatenate(alive))[:k]
    assert hits.scores == pytest.approx(expected, rel=1e-5, abs=1e-6)
    for part, slot, score in zip(*hits, strict=True):
        live = parts[part][1]
        assert live is None or live[slot]
        assert every[part][slot] == pytest.approx(score, rel=1e-5, abs=1e-6)
    assert len(set(zip(hits.parts.tolist(), hits.slots.tolist(), strict=True))) == len(hits.slots)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("item", [pa.float32(), pa.float16()], ids=str)
@pytest.mark.parametrize("dimension", [1, 2, 3, 7, 17, 64, 300])
def test_small_segments_answer_as_brute_force(storage: Storage, metric: str, item: Any, dimension: int) -> None:
    rng = np.random.default_rng(dimension)
    built = Built(storage, dimension, item=item, metric=metric)
    dtype = item.to_pandas_dtype()
    blocks = [rng.standard_normal((n, dimension)).astype(dtype) for n in (700, 1, 0, 300)]
    one = built.segment(blocks[0], blocks[1], lasting=False)
    two = built.segment(blocks[2], blocks[3])
    assert one.starts == [0, 700, 701]
    assert two.starts == [0, 0, 300]
    first, second = np.concatenate(blocks[:2]), np.concatenate(blocks[2:])
    for share in (None, 0.5, 0.01):
        live = [None if share is None else rng.random(n) < share for n in (701, 300)]
        parts = [Part(one, live[0]), Part(two, live[1])]
        for k in (1, 10, 400, 5000):
            query = rng.standard_normal(dimension).astype(np.float32)
            hits = built.search(query, parts, k)
            check(hits, metric, [(first, live[0]), (second, live[1])], query, k)


@pytest.mark.parametrize("metric", METRICS)
def test_a_graph_answers_nearly_as_brute_force_under_every_filter(storage: Storage, metric: str) -> None:
    rng = np.random.default_rng(3)
    built = Built(storage, 48, metric=metric)
    vectors = smooth(rng, 20_000, 48)
    segment = built.segment(vectors[:9000], vectors[9000:])
    assert segment.graph() is not None
    found = wanted = 0
    for number in range(40):
        query = smooth(rng, 1, 48)[0]
        distance = far(metric, vectors, query)
        lives = [None]
        for share in (0.5, 0.1, 0.01, 0.001):
            near, farther = distance <= np.quantile(distance, share), distance >= np.quantile(distance, 1 - share)
            lives += [rng.random(len(vectors)) < share, near, farther]
        for live in lives[number % 2 :: 2]:
            hits = built.search(query, [Part(segment, live)], 10)
            expected = np.sort(distance if live is None else distance[live])[:10]
            assert len(hits.slots) == len(expected)
            assert hits.scores == pytest.approx(distance[hits.slots], rel=1e-5, abs=1e-6)
            assert live is None or live[hits.slots].all()
            bound = expected[-1] + 1e-6 * (1 + abs(expected[-1])) if len(expected) else 0.0
            found += int((hits.scores <= bound).sum())
            wanted += len(expected)
            exact = built.search(query, [Part(segment, live)], 10, exact=True)
            assert exact.scores == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert found / wanted >= 0.97


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
def test_masks_that_come_again_find_the_same_rows(storage: Storage, metric: str) -> None:
    """Few rows that are often asked for are copied, as far as there is room; equal vectors have several slots."""
    rng = np.random.default_rng(7)
    built = Built(storage, 16, metric=metric)
    vectors = smooth(rng, 30_000, 16)
    vectors[100:200] = vectors[0]
    segment = built.segment(vectors)
    masks = [rng.random(len(vectors)) < share for share in (0.001, 0.01, 0.05, 0.5, 0.7)]
    for mask in masks:
        mask[50:150] = True
        mask.flags.writeable = False
    queries = vectors[rng.integers(0, len(vectors), 40)] + np.float32(0.01)
    for query in queries:
        for mask in masks[:3]:
            check(built.search(query, [Part(segment, mask)], 10), metric, [(vectors, mask)], query, 10)
        for mask in masks[3:]:
            assert len(built.search(query, [Part(segment, mask)], 10).slots) == 10
    places, found = segment.places(), segment.findable()
    copied = [found.by(mask, places).copied is not None for mask in masks]
    assert copied[0]
    assert not copied[4]
    assert found.by(masks[0].copy(), places).asked == 0  # what may change is not kept


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["usual", "far from the origin", "whole numbers", "beyond half precision", "tiny"])
def test_copies_in_half_precision_change_no_answer(storage: Storage, metric: str, kind: str) -> None:
    """Where they cannot tell which rows are the nearest, the vectors themselves are asked."""
    rng = np.random.default_rng(11)
    built = Built(storage, 24, metric=metric)
    made: dict[str, Any] = {
        "usual": lambda n: smooth(rng, n, 24),
        "far from the origin": lambda n: 3000 + smooth(rng, n, 24),
        "whole numbers": lambda n: rng.integers(-2, 3, (n, 24)).astype(np.float32) + np.float32(0.0),
        "beyond half precision": lambda n: 1e5 * smooth(rng, n, 24),
        "tiny": lambda n: 1e-7 * smooth(rng, n, 24),
    }
    vectors, queries = made[kind](6000).astype(np.float32), made[kind](40).astype(np.float32)
    vectors[::500] += np.float32(0.5)  # none is zero
    segment = built.segment(vectors)
    mask = rng.random(len(vectors)) < 0.3
    mask.flags.writeable = False
    for query in queries:
        check(built.search(query, [Part(segment, mask)], 10), metric, [(vectors, mask)], query, 10)
    some = segment.findable().by(mask, segment.places())
    assert (some.copied is None) == (kind == "beyond half precision" and metric != "cosine")


@pytest.mark.parametrize("metric", METRICS)
def test_copies_say_within_which_distance_they_have_found_all(metric: str) -> None:
    rng = np.random.default_rng(12)
    for scale, dimension in ((1.0, 5), (1e-3, 100), (300.0, 64)):
        vectors = (scale * (3 + smooth(rng, 3000, dimension))).astype(np.float32)
        query = scale * (3 + smooth(rng, 1, dimension)[0])
        if metric == "cosine":
            vectors, query = unit(vectors), unit(query[np.newaxis])[0]
        numbers, bound = Copied(metric, vectors).nearest(vector_query("v", dimension, metric, query, {}), 30)
        inside = np.flatnonzero(far(metric, vectors, query) < bound)
        assert len(inside) >= 10
        assert set(inside.tolist()) <= set(numbers.tolist())


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["tiny", "denormal", "far from the origin", "of many sizes", "in two clusters"])
def test_the_nearest_are_exact_where_float32_cannot_tell(storage: Storage, metric: str, kind: str) -> None:
    """Squares of tiny numbers vanish in float32, and the last digits of large ones.  No graph is built for the tiny."""
    rng = np.random.default_rng(13)
    count, dimension = 30_000, 12
    vectors: npt.NDArray[Any] = rng.standard_normal((count, dimension))
    if kind == "tiny":
        vectors *= 1e-25
    elif kind == "denormal":
        vectors *= 1e-40
    elif kind == "far from the origin":
        vectors = 1000 + 2e-4 * vectors
    elif kind == "of many sizes":
        vectors *= 10.0 ** rng.integers(-20, 15, (count, 1))
    else:
        vectors[: count // 2] *= 1e-25
    vectors = vectors.astype(np.float32)
    built = Built(storage, dimension, metric=metric)
    segment = built.segment(vectors)
    assert segment.graph() is None or metric == "cosine" or kind not in ("tiny", "denormal")
    rows = segment.places().rows_of(np.arange(count))
    stored = segment.vectors()[rows].astype(np.float64)  # of length one under cosine, as float32 has them
    some = rng.random(count) < 0.1
    some.flags.writeable = False
    for number, query in enumerate(vectors[rng.integers(0, count, 9)]):
        q = unit(query[np.newaxis])[0] if metric == "cosine" else query
        distance = ((stored - q) ** 2).sum(axis=1) if metric == "l2" else -(stored @ q.astype(np.float64))
        close = 1e-12 if metric == "l2" else 1e-12 * float(np.abs(stored @ q).max())
        for mask in (None, some):
            hits = built.search(query, [Part(segment, mask)], k := (1, 10, 300)[number % 3], exact=True)
            expected = np.sort(distance if mask is None else distance[mask])[:k]
            if metric == "cosine":
                assert distance[hits.slots] == pytest.approx(expected, rel=0, abs=2e-7)
            else:
                assert distance[hits.slots] == pytest.approx(expected, rel=close, abs=0 if metric == "l2" else close)


def test_rows_without_a_usable_vector_have_a_slot_and_are_never_found(storage: Storage) -> None:
    rows: list[Any] = [None, [1, 0], [None, 1], [float("nan"), 0], [float("inf"), 0], [0, 0], [0, 2], None]
    for metric, there in (("l2", {1, 5, 6}), ("ip", {1, 5, 6}), ("cosine", {1, 6})):
        for item in (pa.float32(), pa.float16()):
            built = Built(storage, 2, item=item, metric=metric)
            segment = built.segment(rows[:3], rows[3:])
            assert segment.starts == [0, 3, 8]
            hits = built.search([1.0, 0.5], [Part(segment, None)], 10)
            assert set(hits.slots.tolist()) == there
            live = np.array([True, False, True, True, True, True, True, True])
            hits = built.search([1.0, 0.5], [Part(segment, live)], 10)
            assert set(hits.slots.tolist()) == there - {1}


def test_a_sliced_column_gives_its_own_vectors(storage: Storage) -> None:
    built = Built(storage, 2)
    array = pa.array([[9, 9], None, [1, 1], [None, 2], [3, 3], [8, 8]], built.field.type).slice(1, 4)
    builder = KIND.builder(built.index, [built.field], lasting=False)
    builder.add([array])
    builder.end_block()
    hits = built.search([0, 0], [Part(built.open(builder.content()), None)], 5)
    assert hits.slots.tolist() == [1, 3]
    assert hits.scores.tolist() == [2.0, 18.0]


def test_distances_are_squared_l2_one_minus_cosine_and_minus_inner_product(storage: Storage) -> None:
    for metric, expected in (("l2", [5.0, 10.0]), ("cosine", [1 - 2 / np.sqrt(5), 1.0]), ("ip", [-8.0, 0.0])):
        built = Built(storage, 2, metric=metric)
        hits = built.search([2, 1], [Part(built.segment([[4, 0]]), None), Part(built.segment([[-1, 2]]), None)], 2)
        assert hits.scores.tolist() == pytest.approx(expected, abs=1e-7)
        assert hits.parts.tolist() == [0, 1]


@pytest.mark.parametrize("metric", METRICS)
def test_a_merge_takes_the_blocks_it_is_told(storage: Storage, metric: str) -> None:
    rng = np.random.default_rng(8)
    built = Built(storage, 64, metric=metric, ef_search=48)
    narrow = Built(storage, 64, item=pa.float16(), metric=metric)
    blocks = [smooth(rng, n, 64).astype(np.float16).astype(np.float32) for n in (6000, 300, 0, 6500, 40)]
    holed = [row.tolist() if n % 7 else None for n, row in enumerate(blocks[1])]
    one = narrow.segment(blocks[0], holed, blocks[2])
    two = built.segment(blocks[3], blocks[4])
    merged = built.open(KIND.merge(built.index, [(one, [1, 0]), (two, [0])]))
    assert merged.starts == [0, 300, 6300, 12_800]
    assert merged.facts.item_size == 4
    assert merged.graph() is not None
    every = np.concatenate([blocks[1], blocks[0], blocks[3]])
    live = np.ones(len(every), np.bool_)
    live[:300:7] = False
    query = smooth(rng, 1, 64)[0]
    check(built.search(query, [Part(merged, None)], 5000), metric, [(every, live)], query, 5000)
    again = narrow.open(KIND.merge(narrow.index, [(one, [0, 1])]))
    assert again.facts.item_size == 2
    kept = np.concatenate((np.ones(6000, np.bool_), live[:300]))
    check(narrow.search(query, [Part(again, None)], 10), metric, [(np.concatenate(blocks[:2]), kept)], query, 10)


def test_a_graph_leaves_out_rows_without_a_vector(storage: Storage) -> None:
    rng = np.random.default_rng(5)
    built = Built(storage, 64)
    vectors = smooth(rng, 24_000, 64)
    vectors[::2] = np.nan
    segment = built.segment(vectors)
    assert segment.graph() is not None
    live = rng.random(24_000) < 0.9
    hits = built.search(vectors[1], [Part(segment, live)], 10)
    usable = live.copy()
    usable[::2] = False
    distance = np.sort(far("l2", vectors[usable], vectors[1]))
    assert (hits.slots % 2 == 1).all()
    assert len(np.intersect1d(hits.scores.round(9), distance[:10].round(9))) >= 9


def test_equal_vectors_are_found_in_the_order_of_their_slots(storage: Storage) -> None:
    built = Built(storage, 3)
    same = np.ones((5000, 3), np.float32)
    hits = built.search([1, 1, 1], [Part(built.segment(same), None), Part(built.segment(same), None)], 4)
    assert hits.parts.tolist() == [0, 0, 0, 0]
    assert hits.slots.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("copies", [10, 1000])
def test_equal_vectors_do_not_hide_others(storage: Storage, copies: int) -> None:
    rng = np.random.default_rng(2)
    built = Built(storage, 64)
    different = smooth(rng, 15_000, 64)
    copied = np.repeat(different[:10], copies, axis=0)
    vectors = rng.permutation(np.concatenate((different, copied)))
    vectors[:100] = np.nan
    segment = built.segment(vectors[:7000], vectors[7000:])
    assert segment.graph() is not None
    assert len(segment) <= 15_000
    merged = built.open(KIND.merge(built.index, [(segment, [1, 0])]))
    valid = np.arange(len(vectors)) >= 100
    found = wanted = 0
    for number in range(60):
        live = None if number % 3 == 0 else rng.random(len(vectors)) < (0.7 if number % 3 == 1 else 0.02)
        query = different[number % 10] + (0 if number % 2 else 0.3) * smooth(rng, 1, 64)[0]
        distance = far("l2", vectors, query)
        distance[~valid if live is None else ~(valid & live)] = np.inf
        expected = np.sort(distance)[:20]
        again = None if live is None else np.roll(live, -7000)
        for hits in (
            built.search(query, [Part(segment, live)], 20),
            built.search(query, [Part(merged, again)], 20),
        ):
            assert len(hits.slots) == 20
            found += int((hits.scores <= expected[-1] + 1e-6).sum())
            wanted += 20
        exact = built.search(query, [Part(segment, live)], 20, exact=True)
        assert exact.scores == pytest.approx(expected, rel=1e-5, abs=1e-6)
        assert distance[exact.slots] == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert found / wanted >= 0.97


def test_vectors_too_long_for_float32_squares_are_found_in_order(storage: Storage) -> None:
    rng = np.random.default_rng(2)
    for metric in METRICS:
        built = Built(storage, 64, metric=metric, ef_search=48)
        vectors = smooth(rng, 12_000, 64) * np.float32(1e25)
        segment = built.segment(vectors)
        assert (segment.graph() is None) == (metric != "cosine")
        query = smooth(rng, 1, 64)[0] * np.float32(1e25)
        check(built.search(query, [Part(segment, None)], 20), metric, [(vectors, None)], query, 20)


def test_vectors_too_long_for_their_rounding_are_found_in_order(storage: Storage) -> None:
    rng = np.random.default_rng(4)
    for scale, asked in ((1e38, 1.0), (1e18, 1e38), (3.0, 1e38)):
        built = Built(storage, 1, metric="ip")
        vectors = (rng.normal(size=(500, 1)) * scale / 9).astype(np.float32)
        vectors[0] = 0
        query = np.array([asked], np.float32)
        check(built.search(query, [Part(built.segment(vectors), None)], 20), "ip", [(vectors, None)], query, 20)


def test_no_parts_no_rows_and_no_live_rows_give_nothing(storage: Storage) -> None:
    built = Built(storage, 2)
    empty, some = built.segment([]), built.segment([[1, 2]])
    for parts in ([], [Part(empty, None)], [Part(some, np.zeros(1, np.bool_))]):
        hits = built.search([1, 1], parts, 10)
        assert [len(column) for column in hits] == [0, 0, 0]


def test_a_search_may_be_broader_than_the_index_says(storage: Storage) -> None:
    rng = np.random.default_rng(1)
    built = Built(storage, 32, ef_search=8)
    vectors = rng.standard_normal((12_000, 32)).astype(np.float32)
    segment = built.segment(vectors)
    assert segment.facts.breadth == 8
    right = {8: 0, 40: 0}
    for query in rng.standard_normal((30, 32)).astype(np.float32):
        best = set(np.argsort(far("l2", vectors, query))[:10].tolist())
        for ef in right:
            right[ef] += len(best & set(built.search(query, [Part(segment, None)], 10, ef=ef).slots.tolist()))
    assert right[8] < right[40] < 300


def test_threads_share_an_open_segment(storage: Storage) -> None:
    rng = np.random.default_rng(1)
    built = Built(storage, 64, ef_search=48)
    vectors = smooth(rng, 12_000, 64)
    segment = built.segment(vectors)
    queries = smooth(rng, 8, 64)
    found: dict[int, list[int]] = {}

    def ask(number: int) -> None:
        found[number] = built.search(queries[number], [Part(segment, None)], 5).slots.tolist()

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: built.search(queries[n], [Part(segment, None)], 5).slots.tolist() for n in range(8)}


def test_a_query_pickles(storage: Storage) -> None:
    built = Built(storage, 2)
    query = KIND.query(built.index, [built.field], [1, 2], {"ef": 50})
    again = pickle.loads(pickle.dumps(query))
    assert again.vector.tolist() == [1, 2]
    assert repr(again) == "nearest to a vector of 2 numbers, ef=50"
