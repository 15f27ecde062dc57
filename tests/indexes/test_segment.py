"""Key segments: every key is found where it is, no other key is, and a damaged file is never believed."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indexlake.errors import CorruptionError
from indexlake.indexes.btree.header import FENCE_STEP
from indexlake.indexes.btree.segment import Segment
from indexlake.indexes.btree.writer import Entries, segment_content
from indexlake.indexes.keys import Key, KeyColumn, hash_key, hash_keys, key_to_bytes
from indexlake.indexes.kind import Content
from indexlake.storage import Storage
from indexlake.storage.checksum import Checksums

ints = st.one_of(st.integers(0, 40), st.integers(0, 2**64 - 1))
short = st.lists(st.sampled_from([0, 97, 98, 255]), max_size=4).map(bytes)
binaries = st.one_of(
    short,
    short.map(lambda b: b"\x00" * 9 + b),
    short.map(lambda b: b"common--prefix" + b),
    st.binary(max_size=100),
    st.just(b"\xff" * 70),
)
fixed = st.lists(st.sampled_from([0, 97, 255]), min_size=16, max_size=16).map(bytes)
key_lists: st.SearchStrategy[list[Key]] = st.one_of(
    st.lists(ints, max_size=60),
    st.lists(binaries, max_size=60),
    st.lists(short.map(lambda b: b"common--prefix" + b), max_size=60),
    st.lists(fixed, max_size=60),
)
slow = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.open(str(tmp_path))


def write(storage: Storage, path: str, content: Content) -> Checksums:
    with storage.create_file(path) as file:
        for piece in content.pieces:
            file.write(piece)
    return file.checksums


def open_segment(storage: Storage, path: str, checksums: Checksums) -> Segment:
    return Segment(storage.open_file(path, checksums))


def of_keys(keys: KeyColumn, slots: object = None, starts: tuple[int, ...] | None = None) -> Content:
    """The segment of keys in the order of their slots."""
    places = np.arange(len(keys)) if slots is None else np.asarray(slots, np.int64)
    return segment_content(Entries(keys, places, starts or (0, int(places.max()) + 1 if len(places) else 0)))


def build(storage: Storage, keys: KeyColumn, slots: object = None) -> tuple[Content, Segment]:
    path = f"{os.urandom(8).hex()}.keys"
    content = of_keys(keys, slots)
    return content, open_segment(storage, path, write(storage, path, content))


@pytest.mark.parametrize("kind", ["int", "fixed", "variable"])
def test_a_few_hundred_keys_in_a_large_segment_are_found_behind_its_filter(storage: Storage, kind: str) -> None:
    count = 20_000
    every = some_keys(kind, 2 * count)
    _, segment = build(storage, every.slice(0, count))
    wanted = np.random.default_rng(5).permutation(2 * count)[:800]
    sought = every.take(wanted)
    for hashes in (None, hash_keys(sought)):
        indices, positions = segment.find_many(sought, hashes)
        assert indices.tolist() == np.flatnonzero(wanted < count).tolist()
        assert positions.tolist() == wanted[wanted < count].tolist()
    absent = every.slice(count, 500)
    assert [found.tolist() for found in segment.find_many(absent)] == [[], []]


@slow
@given(keys=key_lists, others=key_lists, data=st.data())
def test_a_segment_finds_what_a_dictionary_finds(
    storage: Storage, keys: list[Key], others: list[Key], data: st.DataObject
) -> None:
    is_int = bool(keys) and isinstance(keys[0], int)
    others = [k for k in others if isinstance(k, int) == is_int]
    positions = sorted(data.draw(st.sets(st.integers(0, 2000), min_size=len(keys), max_size=len(keys))))
    model: dict[Key, list[int]] = defaultdict(list)
    for key, position in zip(keys, positions, strict=True):
        model[key].append(position)
    for where in (storage, Storage.open("memory://")):
        written, segment = build(where, KeyColumn.from_keys(keys, ints=is_int), positions)
        assert len(segment) == len(keys)
        for key in [*keys, *others]:
            assert segment.find(key) == segment.find(key, hash_key(key)) == sorted(model.get(key, []))
            assert key not in model or segment.may_hold(hash_key(key))
            assert key not in model or written.low <= key_to_bytes(key) <= written.high
        for repeats in (1, 40):  # few keys are sought one by one, many at once
            wanted = [*others, *keys] * repeats
            indices, found = segment.find_many(KeyColumn.from_keys(wanted, ints=is_int))
            expected = [(i, p) for i, k in enumerate(wanted) for p in sorted(model.get(k, []))]
            assert list(zip(indices.tolist(), found.tolist(), strict=True)) == expected
            assert indices.dtype == found.dtype == np.int64


@pytest.mark.parametrize("count", [0, 1, FENCE_STEP - 1, FENCE_STEP, FENCE_STEP + 1, 3 * FENCE_STEP])
def test_keys_at_the_edges_of_pages_are_found(storage: Storage, count: int) -> None:
    keys = KeyColumn(ints=np.arange(0, 2 * count, 2, dtype=np.uint64))
    _, segment = build(storage, keys)
    for key in {0, 1, 2, count, *(2 * FENCE_STEP * n + d for n in range(4) for d in (-2, -1, 0, 1, 2))}:
        if key >= 0:
            expected = [key // 2] if key % 2 == 0 and key < 2 * count else []
            assert segment.find(key) == expected
    indices, positions = segment.find_many(KeyColumn(ints=np.arange(2 * count + 10, dtype=np.uint64)))
    assert indices.tolist() == list(range(0, 2 * count, 2))
    assert positions.tolist() == list(range(count))


def test_one_key_that_fills_several_pages_is_found_whole(storage: Storage) -> None:
    count = 3 * FENCE_STEP
    for keys, key, other in (
        (KeyColumn(ints=np.full(count, 7, np.uint64)), 7, 8),
        (KeyColumn.from_keys([b"same key"] * count, ints=False), b"same key", b"same"),
        (
            KeyColumn.from_keys([b"\x00" * 20] * count + [b"\x00" * 21], ints=False),
            b"\x00" * 20,
            b"\x00" * 19,
        ),
    ):
        _, segment = build(storage, keys)
        assert segment.find(key) == list(range(count))
        assert segment.find(other) == []
        indices, positions = segment.find_many(KeyColumn.from_keys([other, key] * 20, ints=keys.is_int))
        assert np.unique(indices).tolist() == list(range(1, 40, 2))
        assert positions.tolist() == list(range(count)) * 20


def test_about_one_absent_key_in_a_hundred_passes_the_filter(storage: Storage) -> None:
    count = 20_000
    _, of_ints = build(storage, KeyColumn(ints=np.arange(count, dtype=np.uint64)))
    _, of_bytes = build(storage, KeyColumn.from_keys([os.urandom(16) for _ in range(count)], ints=False))
    passed_ints = sum(of_ints.may_hold(hash_key(key)) for key in range(count, 2 * count))
    passed_bytes = sum(of_bytes.may_hold(hash_key(os.urandom(16))) for _ in range(count))
    assert passed_ints < 0.02 * count
    assert passed_bytes < 0.02 * count


def some_keys(kind: str, count: int) -> KeyColumn:
    random = np.random.default_rng(7)
    if kind == "int":
        return KeyColumn(ints=random.integers(0, 2**63, count).astype(np.uint64))
    if kind == "fixed":
        return KeyColumn.from_keys([random.bytes(16) for _ in range(count)], ints=False)
    return KeyColumn.from_keys([random.bytes(int(n)) for n in random.integers(9, 30, count)], ints=False)


@pytest.mark.parametrize("place", ["folder", "memory"])
@pytest.mark.parametrize("kind", ["int", "fixed", "variable"])
def test_every_flipped_byte_of_a_segment_is_noticed(tmp_path: Path, kind: str, place: str) -> None:
    storage = Storage.open(str(tmp_path) if place == "folder" else "memory://")
    keys = some_keys(kind, 40)
    path = "a/b.keys"
    checksums = write(storage, path, of_keys(keys))
    with storage.open_file(path) as file:
        good = file.read()
    assert len(good) == checksums.size
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= 1 << (at % 8)
        overwrite(storage, path, bytes(bad))
        with pytest.raises(CorruptionError, match=r"b\.keys") as caught:
            open_segment(storage, path, checksums).find(keys[3])
        assert caught.value.path == path
    overwrite(storage, path, good)
    assert open_segment(storage, path, checksums).find(keys[3]) == [3]


def test_random_damage_to_a_large_segment_never_gives_a_wrong_answer(storage: Storage, tmp_path: Path) -> None:
    count = 60_000
    keys = some_keys("variable", count)
    checksums = write(storage, "x.keys", of_keys(keys))
    good = (tmp_path / "x.keys").read_bytes()
    random = np.random.default_rng(3)
    some = random.integers(0, count, 10).tolist()
    noticed = 0
    for _ in range(40):
        bad = bytearray(good)
        bad[int(random.integers(len(bad)))] ^= 1 << int(random.integers(8))
        overwrite(storage, "x.keys", bytes(bad))
        with pytest.raises(CorruptionError, match=r"x\.keys"):
            storage.open_file("x.keys", checksums).verify()
        try:
            segment = open_segment(storage, "x.keys", checksums)
            one_by_one = [segment.find(keys[number]) for number in some]
            at_once = segment.find_many(keys)[1].tolist()
        except CorruptionError:
            noticed += 1
        else:  # what is not touched may stay unnoticed
            assert one_by_one == [[number] for number in some]
            assert at_once == list(range(count))
    assert noticed > 20


def test_a_missing_short_or_long_file_is_reported(storage: Storage, tmp_path: Path) -> None:
    checksums = write(storage, "x.keys", of_keys(some_keys("int", 10)))
    good = (tmp_path / "x.keys").read_bytes()
    for bad in (good[:-1], good + b"\0", b""):
        overwrite(storage, "x.keys", bad)
        with pytest.raises(CorruptionError, match=r"x\.keys"):
            open_segment(storage, "x.keys", checksums)
    storage.delete("x.keys")
    with pytest.raises(CorruptionError, match=r"x\.keys"):
        open_segment(storage, "x.keys", checksums)


def test_another_file_or_a_newer_version_is_refused(storage: Storage, tmp_path: Path) -> None:
    write(storage, "x.keys", of_keys(some_keys("int", 10)))
    good = (tmp_path / "x.keys").read_bytes()
    newer = good[:8] + (9).to_bytes(2, "little") + good[10:]
    for name, contents, message in (
        ("text", b"hello" * 100, "does not start like a key segment"),
        ("newer", newer, "version is 9, and this release reads versions 1 and 2"),
        ("tiny", b"ILKEYSEG", "shorter than its header"),
    ):
        with storage.create_file(name) as file:
            file.write(contents)
        with pytest.raises(CorruptionError, match=message):
            open_segment(storage, name, file.checksums)


def test_keys_of_another_kind_are_refused(storage: Storage) -> None:
    _, of_ints = build(storage, some_keys("int", 100))
    with pytest.raises(CorruptionError, match="keys of a different kind"):
        of_ints.find_many(KeyColumn.from_keys([b"x"], ints=False))


def test_a_look_up_in_a_remote_segment_fetches_the_chunks_it_touches_only() -> None:
    storage = Storage.open("memory://")
    count = 300_000
    keys = some_keys("fixed", count)
    checksums = write(storage, "x.keys", of_keys(keys))
    chunk = checksums.chunk_size
    assert checksums.size > 30 * chunk

    file = storage.open_file("x.keys", checksums)
    segment = Segment(file)
    assert file.bytes_read <= chunk
    absent = next(h for n in range(1000) if not segment.may_hold(h := hash_key(b"absent-%09d" % n)))
    before = file.bytes_read
    segment.may_hold(absent)
    assert file.bytes_read - before <= chunk

    file = storage.open_file("x.keys", checksums)
    assert Segment(file).find(keys[123_456]) == [123_456]
    # The header, and at most two chunks of the filter, the prefixes, the positions and the keys.
    assert file.bytes_read <= 7 * chunk


def test_threads_share_an_open_segment(storage: Storage) -> None:
    count = 50_000
    keys = some_keys("variable", count)
    _, segment = build(storage, keys)
    listed = keys.to_list()
    wrong: list[int] = []

    def look(start: int) -> None:
        wrong.extend(n for n in range(start, count, 400) if segment.find(listed[n]) != [n])

    threads = [threading.Thread(target=look, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_bounds_in_the_record_are_short_and_sound(storage: Storage) -> None:
    long = KeyColumn.from_keys([b"a" * 500, b"b" * 500], ints=False)
    written, _ = build(storage, long)
    assert (written.low, written.high) == (b"a" * 64, b"b" * 63 + b"c")
    written, _ = build(storage, KeyColumn.from_keys([b"\xff" * 70], ints=False))
    assert written.high == b"\xff" * 70
    written, _ = build(storage, KeyColumn(ints=np.array([3, 1], np.uint64)))
    assert (written.low, written.high) == (bytes(7) + b"\x01", bytes(7) + b"\x03")


def test_slots_beyond_32_bits_take_eight_bytes_each(storage: Storage) -> None:
    keys = KeyColumn(ints=np.array([3, 1], np.uint64))
    for last, size in ((2**32 - 1, 4), (2**32, 8)):
        content = of_keys(keys, [5, last])
        segment = open_segment(storage, f"{last}", write(storage, f"{last}", content))
        assert (segment.find(1), segment.find(3), segment.starts) == ([last], [5], (0, last + 1))
        assert segment.key_slots().tolist() == [last, 5]
        assert segment.run._layout.slot_size == size


@slow
@given(st.data())
def test_a_segment_for_several_blocks_finds_keys_in_each_of_them(storage: Storage, data: st.DataObject) -> None:
    keys = data.draw(key_lists.filter(bool))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(keys)), max_size=3)))
    starts = (0, *cuts, len(keys))
    column = KeyColumn.from_keys(keys, ints=isinstance(keys[0], int))
    path = f"{os.urandom(8).hex()}.keys"
    segment = open_segment(storage, path, write(storage, path, of_keys(column, None, starts)))
    assert segment.starts == starts
    places = defaultdict(list)
    for slot, key in enumerate(keys):
        places[key].append(slot)
    assert {key: segment.find(key) for key in keys} == places
    wanted = column.take(np.concatenate([np.arange(len(keys))] * 40))  # many: another way than one by one
    indices, slots = segment.find_many(wanted)
    assert list(zip(indices.tolist(), slots.tolist(), strict=True)) == [
        (n, slot) for n, key in enumerate(wanted) for slot in places[key]
    ]
    stored = list(zip(segment.keys(), segment.key_slots().tolist(), strict=True))
    assert stored == sorted((key, slot) for key, found in places.items() for slot in found)
    assert segment.unique == (len(set(keys)) == len(keys))
    low, high = sorted(data.draw(st.tuples(st.sampled_from(keys), st.sampled_from(keys))))
    inside = [n for n, key in enumerate(sorted(keys)) if low <= key < high]  # type: ignore[operator]
    first, end = segment.rows_between(low, high)
    assert list(range(first, end)) == inside
    assert segment.rows_between(None, None) == (0, len(keys))
    assert segment.run.rows_before(keys).tolist() == [segment.run.row_of(key) for key in keys]
    assert set(segment.sample(3)) <= set(keys)


def test_the_file_format_has_not_changed(storage: Storage, tmp_path: Path) -> None:
    golden = {
        "int": KeyColumn(ints=np.arange(0, 900, 3, dtype=np.uint64)),
        "fixed": KeyColumn.from_keys([b"%016d" % n for n in range(300)], ints=False),
        "variable": KeyColumn(binary=pa.array([b"k" * (n % 19) + b"%d" % n for n in range(300)], pa.large_binary())),
    }
    for name, keys in golden.items():
        checksums = write(storage, name, of_keys(keys))
        assert (name, checksums.size, checksums.chunks) == (name, *GOLDEN[name])


# Size and xxh3-64 of the files.  Whoever changes them changes the version in the header too.
GOLDEN: dict[str, tuple[int, tuple[int, ...]]] = {
    "int": (4544, (13276413053948887095,)),
    "fixed": (9408, (7740748240907023315,)),
    "variable": (9280, (15964960811575471339,)),
}


def overwrite(storage: Storage, path: str, contents: bytes) -> None:
    with storage.create_file(path, overwrite=True) as file:
        file.write(contents)
