"""Full-text search equals brute force: scores and ranks, over parts, dead rows and merges, for each form of query."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from indexlake.indexes.bm25 import leaves
from indexlake.indexes.kind import Part
from indexlake.storage.input_file import in_memory
from tests.indexes.bm25_oracle import FIELD, KIND, Oracle, assert_same, find, found, make_index, make_segment

WORDS = [f"w{number}" for number in range(300)] + ["parcel", "parcle", "parcels", "late", "lately", "lost", "zürich"]
SHARES = [1 / (number + 1) for number in range(len(WORDS))]


@pytest.fixture(params=["small leaves", "large leaves"])
def every_leaf(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The second time, all but the rarest terms take the way of the most frequent ones."""
    if request.param == "large leaves":
        monkeypatch.setattr(leaves, "SMALL", 3)
    return


def texts(rng: random.Random, count: int) -> list[str | None]:
    return [
        None if rng.random() < 0.03 else " ".join(rng.choices(WORDS, SHARES, k=rng.choice([0, 1, 5, 20, 40])))
        for _ in range(count)
    ]


def random_query(rng: random.Random) -> str:
    def word() -> str:
        return rng.choices(WORDS, SHARES)[0] if rng.random() < 0.5 else rng.choice(WORDS)

    form = rng.randrange(9)
    if form == 0:
        return f'"{word()} {word()}" {word()}'
    if form == 1:
        return f"{word()[:2]}* {word()}"
    if form == 2:
        return f"{word()}~1 -{word()}"
    if form == 3:
        return f"+{word()} {word()} -{word()} +{word()}"
    if form == 4:
        return f"{word()} AND ({word()} OR {word()}) AND NOT {word()}"
    if form == 5:
        return f"{word()} {word()} -{word()} -({word()} AND {word()})"
    if form == 6:
        return f"{word()} {word()} {word()} {word()} {word()}"
    if form == 7:
        return f'("{word()} {word()}" OR {word()}) -{word()} {word()} {word()}'
    return word()


class Parts:
    """Some texts in some parts, with what the oracle sees of them."""

    def __init__(self, rng: random.Random, index: Any, *, live_share: float) -> None:
        self.texts = [[texts(rng, rng.choice([0, 1, 30, 200])) for _ in range(rng.choice([1, 3]))] for _ in range(4)]
        self.parts = []
        live_rows = []
        for number, blocks in enumerate(self.texts):
            rows = [text for block in blocks for text in block]
            mask = None
            if number % 2:
                mask = np.array([rng.random() < live_share for _ in rows], np.bool_)
            self.parts.append(Part(make_segment(index, *blocks), mask))
            live_rows += [((number, slot), text) for slot, text in enumerate(rows) if mask is None or mask[slot]]
        self.oracle = Oracle(live_rows)


@pytest.mark.usefixtures("every_leaf")
@pytest.mark.parametrize("live_share", [1.0, 0.97, 0.5, 0.02])
def test_a_search_finds_what_brute_force_finds(live_share: float) -> None:
    rng = random.Random(f"search {live_share}")
    index = make_index()
    for _ in range(4):
        case = Parts(rng, index, live_share=live_share)
        for _ in range(20):
            text = random_query(rng)
            query = KIND.query(index, [FIELD], text, {})
            k = rng.choice([1, 3, 10, 1000])
            hits = KIND.search(index, pickle.loads(pickle.dumps(query)), case.parts, k)
            assert_same(hits, case.oracle.ranking(query.root), k)


@pytest.mark.usefixtures("every_leaf")
def test_long_lists_of_frequent_terms_give_the_exact_best() -> None:
    rng = random.Random(11)
    index = make_index()
    rows = texts(rng, 6000)
    mask = np.array([rng.random() < 0.995 for _ in rows])
    parts = [Part(make_segment(index, rows[:5000]), mask[:5000]), Part(make_segment(index, rows[5000:]), None)]
    keyed = [((0, slot), text) for slot, text in enumerate(rows[:5000]) if mask[slot]]
    oracle = Oracle(keyed + [((1, slot), text) for slot, text in enumerate(rows[5000:])])
    for size in (1, 2, 3, 4):
        for _ in range(6):
            text = " ".join(rng.choices(WORDS, SHARES, k=size))
            query = KIND.query(index, [FIELD], text, {})
            assert_same(KIND.search(index, query, parts, 10), oracle.ranking(query.root), 10)


def test_a_merged_segment_scores_like_a_fresh_one_over_the_kept_blocks() -> None:
    rng = random.Random(5)
    index = make_index()
    blocks = [[texts(rng, rng.choice([0, 40, 150])) for _ in range(3)] for _ in range(3)]
    segments = [make_segment(index, *each) for each in blocks]
    kept = [[0, 2], [], [2, 0, 1]]
    content = KIND.merge(index, list(zip(segments, kept, strict=True)))
    merged = KIND.open(index, in_memory(content.pieces))
    ordered = [blocks[number][ordinal] for number, ordinals in enumerate(kept) for ordinal in ordinals]
    assert merged.starts == list(np.cumsum([0, *map(len, ordered)]))
    fresh = make_segment(index, *ordered)
    for _ in range(60):
        text = random_query(rng)
        ours, theirs = (find(index, [Part(segment, None)], text, 50) for segment in (merged, fresh))
        assert ours.slots.tolist() == theirs.slots.tolist()
        np.testing.assert_allclose(ours.scores, theirs.scores, rtol=1e-9)


def test_deleted_rows_count_nowhere() -> None:
    index = make_index()
    rows = ["late parcel", "late late late", "late letter", "a parcel", "late"]
    mask = np.array([True, False, False, True, True])
    hits = find(index, [Part(make_segment(index, rows), mask)], "late parcel")
    fresh = find(index, [Part(make_segment(index, ["late parcel", "a parcel", "late"]), None)], "late parcel")
    assert hits.slots.tolist() == [0, 4, 3]
    np.testing.assert_allclose(hits.scores, fresh.scores, rtol=1e-12)


def test_the_statistics_are_those_of_all_parts_not_of_each_file() -> None:
    index = make_index()
    rare_here = make_segment(index, ["late parcel", *["letter"] * 20])
    frequent_here = make_segment(index, ["late parcel"] * 20)
    hits = find(index, [Part(rare_here, None), Part(frequent_here, None)], "late", 21)
    assert hits.parts.tolist() == [0] + [1] * 20
    assert len(set(hits.scores.tolist())) == 1


def test_no_more_than_k_and_never_fewer_than_there_are() -> None:
    index = make_index()
    rows = ["late"] * 30 + ["early"] * 30
    mask = np.ones(60, np.bool_)
    mask[:25] = False
    parts = [Part(make_segment(index, rows), mask)]
    assert find(index, parts, "late", 3).slots.tolist() == [25, 26, 27]
    assert find(index, parts, "late", 100).slots.tolist() == [25, 26, 27, 28, 29]
    assert find(index, parts, "late", 0).slots.tolist() == []
    assert find(index, parts, "nowhere").slots.tolist() == []
    assert find(index, [], "late").slots.tolist() == []
    assert find(index, [Part(parts[0].segment, np.zeros(60, np.bool_))], "late").slots.tolist() == []


def test_null_has_no_document_and_empty_text_is_a_document_of_no_words() -> None:
    index = make_index(stop_words="english")
    with_null = find(index, [Part(make_segment(index, ["late parcel", None, None]), None)], "late")
    alone = find(index, [Part(make_segment(index, ["late parcel"]), None)], "late")
    assert with_null.scores.tolist() == alone.scores.tolist()
    with_empty = find(index, [Part(make_segment(index, ["late parcel", "", "and the"]), None)], "late")
    with_other = find(index, [Part(make_segment(index, ["late parcel", "", ""]), None)], "late")
    assert with_empty.scores.tolist() == with_other.scores.tolist() != alone.scores.tolist()


def test_words_that_are_all_stop_words_find_nothing() -> None:
    index = make_index(stop_words="english")
    rows = ["the late parcel", "the letter"]
    assert found(index, rows, "the") == []
    assert found(index, rows, "the -late") == []
    assert found(index, rows, "the late") == [0]
    assert found(index, rows, "late AND the") == [0]


def test_a_phrase_keeps_the_places_of_stop_words() -> None:
    index = make_index(stop_words="english")
    rows = ["state of the art", "state art", "state of modern art"]
    assert found(index, rows, '"state of the art"') == [0, 2]
    assert found(index, rows, '"state art"') == [1]


def test_a_phrase_is_found_in_many_rows() -> None:
    index = make_index()
    rows = ["one late parcel here", "late one parcel"] * 20_000
    hits = find(index, [Part(make_segment(index, rows), None)], '"late parcel"', 30_000)
    assert hits.slots.tolist() == list(range(0, 40_000, 2))


def test_prefixes_stand_for_the_terms_that_most_live_rows_have() -> None:
    index = make_index()
    rows = [f"a{number:03}" for number in range(200)] + [f"a{number:03} again" for number in range(150, 200)]
    mask = np.ones(250, np.bool_)
    mask[200:210] = False
    hits = find(index, [Part(make_segment(index, rows), mask)], "a*", 300)
    frequent = {*range(160, 200), *range(210, 250)}
    expected = frequent | set(range(128 - 41))  # "again" is one of the 128 terms, 40 others are there twice
    assert set(hits.slots.tolist()) == expected


def test_fuzzy_words_prefer_what_is_spelt_the_same() -> None:
    index = make_index()
    rows = ["parcel", "parcle", "parsel", "pracle", "barrel", "purcell"]
    hits = find(index, [Part(make_segment(index, rows), None)], "parcle~2")
    assert hits.slots.tolist()[0] == 1
    assert set(hits.slots.tolist()) == {0, 1, 2, 3}
    assert found(index, rows, "parcle~1") == [0, 1, 3]
    assert found(index, rows, "parcle~0") == [1]
    assert found(index, ["it", "is", "its"], "it~") == [0]


def test_terms_beyond_ascii_are_found_by_prefix_and_by_edits() -> None:
    index = make_index()
    rows = ["zürich", "zurich", "żółw", "日本語", "日本"]
    assert found(index, rows, "zü*") == [0]
    assert found(index, rows, "zurich~1") == [0, 1]
    assert found(index, rows, "日*") == [3, 4]
    assert found(index, rows, "żólw~1") == [2]


def test_a_live_mask_of_another_size_is_refused() -> None:
    index = make_index()
    with pytest.raises(ValueError, match="3 live flags for 2 slots"):
        find(index, [Part(make_segment(index, ["a", "b"]), np.ones(3, np.bool_))], "a")


def test_what_is_known_of_a_read_only_mask_is_not_taken_for_another_one() -> None:
    rng = random.Random(8)
    index = make_index()
    rows = [" ".join(rng.choices(WORDS[:40], k=30)) for _ in range(9000)]
    segment = make_segment(index, rows)
    for seed in (1, 2, 1, 3):
        mask = np.random.default_rng(seed).random(9000) < 0.98
        mask.flags.writeable = False
        oracle = Oracle([((0, slot), rows[slot]) for slot in np.flatnonzero(mask).tolist()])
        for text in ("w1", "w1 w2", "w1"):
            query = KIND.query(index, [FIELD], text, {})
            assert_same(KIND.search(index, query, [Part(segment, mask)], 10), oracle.ranking(query.root), 10)
