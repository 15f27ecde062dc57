"""``where`` restricts what a text search finds and changes no score: statistics are those of all visible rows."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

import indexlake as il
from indexlake.indexes.builder import segment_in_memory
from indexlake.indexes.index import Index
from indexlake.indexes.kind import Part
from indexlake.indexes.registry import kind_named
from indexlake.schema import Field, TableSchema

COUNT, CUT = 12_000, 8_000
FIELD = Field(1, "note", pa.string(), True)
KIND = kind_named("bm25")
INDEX = Index(1, "n", "bm25", (1,), (), False, KIND.define([FIELD], [], False, {}), 0, None, None, 0)


@pytest.fixture(scope="module")
def documents() -> list[list[str]]:
    rng = np.random.default_rng(1)
    words = np.array([f"w{n}" for n in range(300)])
    return [words[np.minimum(rng.zipf(1.2, rng.integers(3, 12)) - 1, 299)].tolist() for _ in range(COUNT)]


@pytest.fixture(scope="module")
def segments(documents: list[list[str]]) -> list[object]:
    texts = pa.array([" ".join(words) for words in documents])
    schema = TableSchema([FIELD])
    return [segment_in_memory(INDEX, schema, [[part]]) for part in (texts[:CUT], texts[CUT:])]


@pytest.mark.parametrize("selected", [1.0, 0.3, 0.01])
@pytest.mark.parametrize("dead", [0.0, 0.05, 0.9])
def test_the_best_of_the_wanted_rows_by_the_statistics_of_all(
    documents: list[list[str]], segments: list[object], selected: float, dead: float
) -> None:
    rng = np.random.default_rng(2)
    live = rng.random(COUNT) >= dead
    wanted = live & (rng.random(COUNT) < selected)
    lengths = np.array([len(words) for words in documents])
    average = lengths[live].mean()
    parts = [
        Part(segment, live[here], wanted[here])
        for segment, here in zip(segments, (slice(0, CUT), slice(CUT, COUNT)), strict=True)
    ]
    for query in (["w0"], ["w0", "w5"], ["w0", "w1", "w200"], ["w250"]):
        scores = np.zeros(COUNT)
        for term in query:
            frequency = np.array([words.count(term) for words in documents])
            count = int(((frequency > 0) & live).sum())
            if count:
                idf = math.log1p((int(live.sum()) - count + 0.5) / (count + 0.5))
                scores += idf * frequency * 2.2 / (frequency + 1.2 * (0.25 + 0.75 * lengths / average))
        best = np.sort(scores[wanted & (scores > 0)])[::-1][:10]
        hits = KIND.search(INDEX, KIND.query(INDEX, [FIELD], " ".join(query), {}), parts, 10)
        found = hits.slots + np.where(hits.parts == 1, CUT, 0)
        assert hits.scores == pytest.approx(best, abs=1e-6)
        assert wanted[found].all()
        assert hits.scores == pytest.approx(scores[found], abs=1e-6)


def test_a_score_is_the_same_with_and_without_where_in_every_tier(lake: il.Lake) -> None:
    t = lake.create_table("t", {"id": "int64", "note": "string", "g": "int64"}, primary_key="id")
    rows = [{"id": n, "note": " ".join(["late"] * (n % 3) + ["parcel"] * (n % 5)), "g": n % 4} for n in range(200)]
    t.insert(rows[:60])
    lake.pipeline().dump()  # a block that is older than the index: at first without a segment
    view = lake.snapshot_id
    t.create_index("n", "note", kind="bm25")
    t.insert(rows[60:])
    t.delete("id % 7 = 0")
    for table in (t, t.at(lake.snapshot_id), t.at(view)):
        everything = {row["id"]: row["_score"] for row in table.search("note", "late", 1_000).to_pylist()}
        some = {row["id"]: row["_score"] for row in table.search("note", "late", 1_000, where="g = 1").to_pylist()}
        assert some == pytest.approx({n: score for n, score in everything.items() if n % 4 == 1})
        assert some


@pytest.mark.parametrize("query", ["common", "common rare", "comm*", "comon~", '"common words"', "+common words"])
def test_a_condition_that_leaves_no_row_of_a_frequent_word_leaves_none(lake: il.Lake, query: str) -> None:
    t = lake.create_table("t", {"id": "int64", "note": "string"})
    t.create_index("words", "note", kind="bm25")
    t.insert(pa.table({"id": range(17_000), "note": ["common words"] * 17_000}))
    assert t.search("note", query, where="id < 0").to_arrow().num_rows == 0
    assert t.search("note", query, 3, where="id < 2").to_arrow().num_rows == 2
