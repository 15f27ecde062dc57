"""Files of full-text indexes: the same in pieces and at once, flat in memory, and never believed when damaged."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from indexlake.errors import CorruptionError
from indexlake.indexes import spool
from indexlake.indexes.bm25 import builder, run
from indexlake.indexes.bm25.layout import HEADER_SIZE, SECTIONS, parse
from indexlake.indexes.kind import Part
from indexlake.storage import Storage
from indexlake.storage.checksum import Checksums
from indexlake.storage.input_file import in_memory
from tests.indexes.bm25_oracle import FIELD, KIND, find, make_bytes, make_index, make_segment


def rows(seed: int, count: int, words: int = 400) -> list[str | None]:
    rng = random.Random(seed)
    edges = list(accumulate(1 / (number + 1) for number in range(words)))
    names = [f"word{number}" for number in range(words)]
    return [
        None if rng.random() < 0.05 else " ".join(rng.choices(names, cum_weights=edges, k=rng.randrange(30)))
        for _ in range(count)
    ]


@pytest.fixture
def tight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is cut into many runs, pages and portions."""
    monkeypatch.setattr(builder, "RUN_TOKENS", 500)
    monkeypatch.setattr(builder, "_TEXT_BYTES", 2000)
    monkeypatch.setattr(run, "PAGE_TERMS", 13)
    monkeypatch.setattr(run, "PAGE_POSTINGS", 40)
    monkeypatch.setattr("indexlake.indexes.bm25.folding.PAGE_TERMS", 13)
    monkeypatch.setattr("indexlake.indexes.bm25.folding.PAGE_POSTINGS", 40)
    monkeypatch.setattr(spool, "IN_MEMORY", 100)
    monkeypatch.setattr(spool, "_PIECE", 1000)


@pytest.mark.parametrize("positions", [True, False])
def test_many_runs_make_the_same_file_as_one(request: pytest.FixtureRequest, positions: bool) -> None:
    index = make_index(positions=positions)
    blocks = [rows(1, 300), [], rows(2, 500), [None, "", None]]
    whole = make_bytes(index, *blocks)
    request.getfixturevalue("tight")
    assert make_bytes(index, *blocks) == whole


@pytest.mark.parametrize("positions", [True, False])
def test_a_merge_makes_the_same_file_as_a_build(request: pytest.FixtureRequest, positions: bool) -> None:
    index = make_index(positions=positions)
    blocks = [rows(seed, 200) for seed in range(4)]
    whole = make_bytes(index, *blocks)
    halves = [make_segment(index, *blocks[:3]), make_segment(index, blocks[3])]
    request.getfixturevalue("tight")
    merged = b"".join(bytes(piece) for piece in KIND.merge(index, [(halves[0], [0, 1, 2]), (halves[1], [0])]).pieces)
    assert merged == whole


@pytest.mark.usefixtures("tight")
def test_a_merge_in_small_portions_keeps_only_the_named_blocks() -> None:
    index = make_index()
    blocks = [rows(seed, 150) for seed in range(5)]
    segment = make_segment(index, *blocks)
    merged = KIND.open(index, in_memory(KIND.merge(index, [(segment, [3, 1]), (segment, [0])]).pieces))
    fresh = make_segment(index, blocks[3], blocks[1], blocks[0])
    assert merged.starts == fresh.starts
    assert merged.terms(0, merged.header.terms).to_pylist() == fresh.terms(0, fresh.header.terms).to_pylist()
    for query in ("word0", "word1 word2 word3", '"word0 word1"', "word39*", "word200"):
        ours, theirs = (find(index, [Part(each, None)], query, 500) for each in (merged, fresh))
        assert ours.slots.tolist() == theirs.slots.tolist()
        np.testing.assert_allclose(ours.scores, theirs.scores, rtol=1e-9)


def test_a_merge_of_nothing_and_a_build_of_nothing_are_segments() -> None:
    index = make_index()
    empty = make_segment(index)
    assert empty.starts == [0]
    merged = KIND.open(index, in_memory(KIND.merge(index, [(make_segment(index, ["late"], ["lost"]), [])]).pieces))
    assert merged.starts == [0]
    nulls = make_segment(index, [None, None], [])
    assert nulls.starts == [0, 2, 2]
    for segment in (empty, merged, nulls):
        for query in ("late", '"a b"', "a*", "late~"):
            assert not len(find(index, [Part(segment, None)], query).slots)


def test_a_frequency_and_a_length_beyond_two_bytes_are_kept() -> None:
    index = make_index()
    texts = ["late " * 70_000 + "parcel", "late parcel", "parcel " + "x " * 300]
    segment = make_segment(index, texts)
    assert find(index, [Part(segment, None)], '"late parcel"').slots.tolist() == [1, 0]
    merged = KIND.open(index, in_memory(KIND.merge(index, [(segment, [0])]).pieces))
    ours, theirs = (find(index, [Part(each, None)], "late") for each in (merged, segment))
    assert ours.slots.tolist() == theirs.slots.tolist() == [0, 1]
    assert ours.scores.tolist() == theirs.scores.tolist()
    assert merged.lengths().tolist() == [70_001, 2, 301]


def write(storage: Storage, data: bytes) -> Checksums:
    with storage.create_file("segment", overwrite=True) as file:
        file.write(data)
    return file.checksums


def test_a_file_is_read_like_memory_and_by_ranges(tmp_path: Path) -> None:
    index = make_index()
    data = make_bytes(index, rows(3, 60_000, 50_000))
    storage = Storage.open(str(tmp_path))
    file = storage.open_file("segment", write(storage, data))
    segment = KIND.open(index, file)
    hits = find(index, [Part(segment, None)], "word40000")
    assert len(hits.slots)
    assert file.bytes_read < len(data) / 3
    everything = find(index, [Part(KIND.open(index, in_memory([data])), None)], "word40000")
    assert hits.slots.tolist() == everything.slots.tolist()


@pytest.mark.parametrize("section", [*SECTIONS, "header"])
def test_damage_in_any_section_is_found(tmp_path: Path, section: str) -> None:
    index = make_index()
    data = make_bytes(index, rows(3, 3000))
    storage = Storage.open(str(tmp_path))
    checksums = write(storage, data)
    start, size = parse("x", len(data), data).spans[section] if section in SECTIONS else (0, HEADER_SIZE)
    at = start + size // 2
    flipped = bytes([data[at] ^ 4])
    write(storage, data[:at] + flipped + data[at + 1 :])
    with pytest.raises(CorruptionError, match="segment"):
        use_everything(index, KIND.open(index, storage.open_file("segment", checksums)))


def use_everything(index: Any, segment: Any) -> None:
    mask = np.ones(segment.starts[-1], np.bool_)
    mask[0] = False
    find(index, [Part(segment, mask)], 'word1 "word0 word1" word2* word3~1')
    KIND.merge(index, [(segment, range(len(segment.starts) - 1))])


def test_headers_that_cannot_be_are_refused() -> None:
    index = make_index()
    data = make_bytes(index, ["late parcel"])
    for wrong, what in (
        (data[:100], "shorter than its header"),
        (b"", "shorter than its header"),
        (b"x" + data[1:], "does not start like a full-text segment"),
        (data[:8] + b"\x63" + data[9:], "version is 99, and this release reads version 1"),
        (data[:-64], "sections do not fit together"),
        (data[:16] + b"\x09" + data[17:], "sections do not fit together"),
    ):
        with pytest.raises(CorruptionError, match=what):
            KIND.open(index, in_memory([wrong]))


def test_sections_that_contradict_each_other_are_refused() -> None:
    index = make_index()
    data = make_bytes(index, ["late parcel", "late"])
    spans = parse("x", len(data), data).spans
    for section in ("starts", "term_starts", "table", "fence_ends"):
        start, size = spans[section]
        with pytest.raises(CorruptionError, match="contradicts itself"):
            use_everything(index, KIND.open(index, in_memory([data[:start], b"\xee" * size, data[start + size :]])))


def peak(index: Any, blocks: Sequence[Any]) -> int:
    tracemalloc.start()
    try:
        made = KIND.builder(index, [FIELD], lasting=True)
        for texts in blocks:
            made.add([texts])
        made.end_block()
        for _ in made.content().pieces:
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_lance_5502_building_needs_the_same_memory_for_ten_times_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "RUN_TOKENS", 40_000)
    monkeypatch.setattr(run, "PAGE_POSTINGS", 2000)
    monkeypatch.setattr(spool, "IN_MEMORY", 100_000)
    index = make_index()
    block = pa.array(rows(4, 4000, 20_000), pa.string())
    assert peak(index, [block] * 30) < 1.5 * peak(index, [block] * 3)
