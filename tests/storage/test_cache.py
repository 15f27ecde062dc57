"""The local cache in front of a real S3 server: the right bytes whatever the local disk does, and few requests."""

from __future__ import annotations

import fcntl
import logging
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexlake.errors import CorruptionError, StorageError
from indexlake.storage import Storage, cache, cache_space, faults
from indexlake.storage.cache import CacheSpec, CacheStats
from indexlake.storage.checksum import CHUNK_SIZE, Checksums
from tests.support.flaky_proxy import FlakyProxy, flaky_proxy
from tests.support.servers import S3Server

MIB = 1 << 20


@dataclass
class Place:
    """A store behind a proxy that counts requests, and a cache directory."""

    root: str
    options: dict[str, str]
    directory: Path
    proxy: FlakyProxy

    def open(self, limit: int = 64 * MIB, root: str | None = None) -> Storage:
        return Storage.open(root or self.root, self.options, CacheSpec(str(self.directory), limit))

    def put(self, path: str, data: bytes) -> Checksums:
        with Storage.open(self.root, self.options).create_file(path) as out:
            out.write(data)
        return out.checksums

    def chunks(self) -> list[Path]:
        """Also while others delete some."""
        found = (Path(folder, name) for folder, _, names in os.walk(self.directory) for name in names)
        return sorted(path for path in found if path.suffix == ".chunk")

    def temporary(self) -> list[Path]:
        return list(self.directory.rglob("*.tmp"))

    @contextmanager
    def requests(self) -> Iterator[list[tuple[str, str]]]:
        """The requests that reach the store meanwhile."""
        seen: list[tuple[str, str]] = []
        before = len(self.proxy.requests)
        yield seen
        seen += self.proxy.requests[before:]


@pytest.fixture(scope="module")
def proxy(s3: S3Server) -> Iterator[FlakyProxy]:
    with flaky_proxy(s3.endpoint) as running:
        yield running


@pytest.fixture
def place(s3: S3Server, proxy: FlakyProxy, tmp_path: Path) -> Place:
    proxy.plan = lambda method, path, number: None
    options = {**s3.options, "endpoint": proxy.endpoint}
    return Place(f"s3://{s3.bucket()}/some/prefix", options, tmp_path / "cache", proxy)


@contextmanager
def fault(text: str) -> Iterator[None]:
    previous = faults.install(faults.from_text(text))
    try:
        yield
    finally:
        faults.install(previous)


def stats(storage: Storage) -> CacheStats:
    assert storage.cache is not None
    return storage.cache.stats("tables/1")


def read(storage: Storage, path: str, checksums: Checksums) -> bytes:
    return storage.open_file(path, checksums).read()


PATH = "tables/1/data/file"


# ---------------------------------------------------------------- what is read


LENGTH = 10 * CHUNK_SIZE + 12345
RANGE = st.tuples(st.integers(0, LENGTH - 1), st.integers(1, 3 * CHUNK_SIZE)).map(
    lambda r: (r[0], min(r[1], LENGTH - r[0]))
)
STEP = st.one_of(
    st.tuples(st.just("read"), st.lists(RANGE, min_size=1, max_size=4)),
    st.tuples(st.just("lose"), st.integers(0, 10)),
    st.tuples(st.just("lose all"), st.none()),
    st.tuples(st.just("open"), st.none()),
)


@pytest.fixture(scope="module")
def some_file(s3: S3Server) -> tuple[str, bytes, Checksums]:
    content, root = random.Random(1).randbytes(LENGTH), f"s3://{s3.bucket()}/p"
    with Storage.open(root, s3.options).create_file(PATH) as out:
        out.write(content)
    return root, content, out.checksums


@settings(max_examples=30)
@given(steps=st.lists(STEP, min_size=1, max_size=12))
def test_any_ranges_give_the_same_bytes_with_a_cache_as_without(
    s3: S3Server, some_file: tuple[str, bytes, Checksums], steps: list[tuple[str, Any]]
) -> None:
    root, content, checksums = some_file
    with tempfile.TemporaryDirectory() as directory:
        storage = Storage.open(root, s3.options, CacheSpec(directory, 2 * MIB))
        file = storage.open_file(PATH, checksums)
        for step, what in steps:
            if step == "open":
                file = storage.open_file(PATH, checksums)
            elif step == "read":
                assert [bytes(b) for b in file.read_ranges(what)] == [content[o : o + n] for o, n in what]
                assert file.read_at(*what[0]) == content[what[0][0] :][: what[0][1]]
            else:
                for chunk in Path(directory).rglob("*.chunk" if what is None else f"{what}.chunk"):
                    chunk.unlink()


@pytest.mark.parametrize("size", [1, 1000, CHUNK_SIZE, CHUNK_SIZE + 1, MIB, MIB + 1, 3 * MIB])
def test_what_was_read_once_needs_no_request_in_another_process(place: Place, size: int) -> None:
    content = os.urandom(size)
    checksums = place.put(PATH, content)
    first = place.open()
    assert read(first, PATH, checksums) == content
    count = -(-size // CHUNK_SIZE)
    assert (stats(first).hits, stats(first).misses) == (0, count)
    second = place.open()
    with place.requests() as requests:
        assert read(second, PATH, checksums) == content
    assert requests == []
    assert (stats(second).hits, stats(second).misses, stats(second).damaged) == (count, 0, 0)
    assert b"".join(p.read_bytes() for p in sorted(place.chunks(), key=lambda p: int(p.stem))) == content


def test_a_point_read_of_a_large_file_fetches_one_chunk(place: Place) -> None:
    content = os.urandom(8 * MIB)
    checksums = place.put(PATH, content)
    assert place.open().open_file(PATH, checksums).read_at(5 * MIB + 7, 100) == content[5 * MIB + 7 :][:100]
    assert [p.name for p in place.chunks()] == ["20.chunk"]
    storage = place.open()
    with place.requests() as requests:
        file = storage.open_file(PATH, checksums)
        assert file.read_at(5 * MIB, CHUNK_SIZE + 1) == content[5 * MIB :][: CHUNK_SIZE + 1]
    assert [method for method, _ in requests] == ["GET"]
    assert file.bytes_read == CHUNK_SIZE, "the other one was here"
    assert (stats(storage).hits, stats(storage).misses) == (1, 1)


def test_the_paths_of_the_store_are_mirrored_for_their_owner_only(place: Place) -> None:
    read(place.open(), PATH, place.put(PATH, b"data"))
    (folder,) = place.directory.glob("bucket-*-some-prefix-*")
    assert (folder / PATH / "0.chunk").read_bytes() == b"data"
    assert place.directory.stat().st_mode & 0o777 == 0o700
    assert (folder / PATH / "0.chunk").stat().st_mode & 0o777 == 0o600


def test_files_without_checksums_are_not_kept(place: Place) -> None:
    place.put("indexlake.json", b"may change")
    assert place.open().open_file("indexlake.json").read() == b"may change"
    assert place.chunks() == []


def test_damage_in_the_store_is_an_error_and_is_not_kept(place: Place) -> None:
    checksums = Checksums.of(b"what was written" * 100_000)
    place.put(PATH, b"what is there now"[:16] * 100_000)
    storage = place.open()
    with pytest.raises(CorruptionError, match="do not match their checksum"):
        read(storage, PATH, checksums)
    place.put(f"{PATH}-short", b"1234")
    with pytest.raises(CorruptionError, match="is 4 bytes long and should be 1600000"):
        read(storage, f"{PATH}-short", checksums)
    with pytest.raises(CorruptionError, match="is missing"):
        read(storage, f"{PATH}-missing", checksums)
    assert place.chunks() == []


def test_two_stores_in_one_directory_do_not_mix(s3: S3Server, place: Place) -> None:
    roots = [f"s3://{s3.bucket()}", f"s3://{s3.bucket()}", f"{place.root}/below"]
    contents = [os.urandom(1000) for _ in roots]
    sums = []
    for root, content in zip(roots, contents, strict=True):
        with place.open(root=root).create_file(PATH) as out:
            out.write(content)
        sums.append(out.checksums)
    for _ in range(2):
        storages = [place.open(root=root) for root in roots]
        for storage, content, checksums in zip(storages, contents, sums, strict=True):
            assert read(storage, PATH, checksums) == content
    assert [stats(s).hits for s in storages] == [1, 1, 1]
    assert [stats(s).damaged for s in storages] == [0, 0, 0]
    storages[0].delete(PATH)
    assert len(place.chunks()) == 2


def test_a_root_with_a_slash_at_its_end_is_the_same_store(place: Place) -> None:
    checksums = place.put(PATH, b"data")
    read(place.open(), PATH, checksums)
    again = place.open(root=f"{place.root}/")
    assert read(again, PATH, checksums) == b"data"
    assert stats(again).hits == 1


def test_many_neighbouring_ranges_are_fetched_at_once(place: Place) -> None:
    content = os.urandom(8 * MIB)
    checksums = place.put(PATH, content)
    file = place.open().open_file(PATH, checksums)
    asked: list[int] = []
    place.proxy.plan = lambda method, path, number: asked.append(number)
    ranges = [(MIB + 1000 * n, 700) for n in range(2000)] + [(5 * MIB, 10), (17, 10)]
    assert [bytes(b) for b in file.read_ranges(ranges)] == [content[o : o + n] for o, n in ranges]
    assert len(asked) <= 5  # the local cache asks for a megabyte at a time


def test_ranges_are_fetched_in_parallel(place: Place) -> None:
    content = os.urandom(8 * MIB)
    checksums = place.put(PATH, content)
    file = place.open().open_file(PATH, checksums)
    together = threading.Barrier(4)

    def wait(method: str, path: str, number: int) -> None:
        together.wait(20)

    place.proxy.plan = wait
    ranges = [(n * 2 * MIB, 1000) for n in range(4)]
    assert [bytes(b) for b in file.read_ranges(ranges)] == [content[o : o + n] for o, n in ranges]


def test_threads_that_want_the_same_chunk_make_one_request(place: Place) -> None:
    content = os.urandom(3 * MIB)
    checksums = place.put(PATH, content)
    file = place.open().open_file(PATH, checksums)
    begun = threading.Event()

    def slow(method: str, path: str, number: int) -> None:
        begun.set()
        time.sleep(0.3)

    place.proxy.plan = slow
    found: list[bytes] = []

    def reader(offset: int) -> None:
        if offset:
            begun.wait(20)
        found.append(bytes(file.read_at(offset, 10)))

    with place.requests() as requests:
        threads = [threading.Thread(target=reader, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(found) == sorted(content[n : n + 10] for n in range(6))
    assert len(requests) == 1


def test_a_thread_that_waited_for_a_failed_request_makes_its_own(place: Place) -> None:
    content = os.urandom(3 * MIB)
    file = place.open().open_file(PATH, place.put(PATH, content))
    begun = threading.Event()

    def first_fails(method: str, path: str, number: int) -> str | None:
        first = not begun.is_set()
        begun.set()
        time.sleep(0.2)
        return "403" if first else None

    place.proxy.plan = first_fails
    outcomes: list[object] = []

    def first() -> None:
        try:
            file.read_at(0, 10)
        except StorageError as error:
            outcomes.append(error)

    thread = threading.Thread(target=first)
    thread.start()
    begun.wait(20)
    assert file.read_at(5, 10) == content[5:15]
    thread.join()
    assert len(outcomes) == 1


# ---------------------------------------------------------------- damage


def test_every_flipped_byte_is_found_and_the_chunk_fetched_again(place: Place, s3: S3Server) -> None:
    place.options = s3.options  # there are many requests, and nobody counts them
    content = os.urandom(200)
    checksums = place.put(PATH, content)
    storage = place.open()
    read(storage, PATH, checksums)
    (chunk,) = place.chunks()
    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 1 << at % 8
        chunk.write_bytes(damaged)
        assert read(storage, PATH, checksums) == content
        assert chunk.read_bytes() == content
    assert stats(storage).damaged == len(content)
    assert stats(storage).misses == len(content) + 1


@pytest.mark.parametrize("how", ["empty", "short", "long", "half zero", "another", "directory", "link", "dangling"])
def test_what_is_no_right_chunk_is_fetched_again(place: Place, how: str, tmp_path: Path) -> None:
    content = os.urandom(5 * CHUNK_SIZE)
    checksums = place.put(PATH, content)
    read(place.open(), PATH, checksums)
    chunk = next(p for p in place.chunks() if p.name == "2.chunk")
    right = chunk.read_bytes()
    chunk.unlink()
    if how == "directory":
        chunk.mkdir()
    elif how in ("link", "dangling"):
        (tmp_path / "target").write_bytes(b"x" * (CHUNK_SIZE if how == "link" else 0))
        chunk.symlink_to(tmp_path / ("target" if how == "link" else "nowhere"))
    else:
        other = place.chunks()[0].read_bytes()
        chunk.write_bytes(
            {
                "empty": b"",
                "short": right[:-1],
                "long": right + b"\0",
                "half zero": right[: CHUNK_SIZE // 2] + bytes(CHUNK_SIZE // 2),
                "another": other,
            }[how]
        )
    storage = place.open()
    assert read(storage, PATH, checksums) == content
    assert (stats(storage).hits, stats(storage).misses) == (4, 1)
    assert not place.temporary()
    if how == "link":
        assert (tmp_path / "target").read_bytes() == b"x" * CHUNK_SIZE, "files elsewhere are not touched"
    if how in ("directory", "dangling"):
        return
    again = place.open()
    assert read(again, PATH, checksums) == content
    assert stats(again).misses == 0


def test_a_directory_that_is_removed_under_an_open_file_is_made_again(place: Place) -> None:
    content = os.urandom(3 * MIB)
    checksums = place.put(PATH, content)
    storage = place.open()
    file = storage.open_file(PATH, checksums)
    assert file.read_at(0, 10) == content[:10]
    for gone in (place.directory, place.directory / next(place.directory.glob("bucket-*")).name):
        shutil.rmtree(gone)
        assert storage.open_file(PATH, checksums).read() == content
        assert file.read_at(2 * MIB, 10) == content[2 * MIB :][:10]
        assert stats(place.open()).used_bytes >= 3 * MIB
        with place.requests() as requests:
            assert read(place.open(), PATH, checksums) == content
        assert requests == []


def test_a_damaged_count_is_counted_anew(place: Place) -> None:
    contents = [os.urandom(MIB) for _ in range(3)]
    sums = [place.put(f"{PATH}{n}", content) for n, content in enumerate(contents)]
    for damage in (b"", b"123", None):
        count = place.directory / cache_space.COUNT
        if count.exists():
            count.unlink() if damage is None else count.write_bytes(damage)
        storage = place.open(2 * MIB)
        for n, content in enumerate(contents):
            assert read(storage, f"{PATH}{n}", sums[n]) == content
            assert sum(p.stat().st_size for p in place.chunks()) <= 2 * MIB


# ---------------------------------------------------------------- the local disk fails


@pytest.mark.parametrize("step", ["cache.write", "cache.publish"])
def test_a_full_disk_costs_requests_and_not_the_read(place: Place, step: str, caplog: pytest.LogCaptureFixture) -> None:
    content = os.urandom(5 * CHUNK_SIZE)
    checksums = place.put(PATH, content)
    storage = place.open()
    with caplog.at_level(logging.WARNING, "indexlake"), fault(f"{step}:1+=enospc"):
        for _ in range(2):
            assert read(storage, PATH, checksums) == content
    assert (stats(storage).hits, stats(storage).misses, stats(storage).not_stored) == (0, 10, 10)
    assert len(caplog.records) == 1, "said once"
    assert "so files are fetched" in caplog.text
    assert place.chunks() == place.temporary() == []
    assert read(storage, PATH, checksums) == content
    assert len(place.chunks()) == 5, "filled when there is room again"


def test_a_really_full_disk_costs_requests_and_not_the_read(place: Place) -> None:
    place.directory.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", place.directory], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        content = os.urandom(3 * MIB)
        checksums = place.put(PATH, content)
        storage = place.open()
        for _ in range(2):
            assert read(storage, PATH, checksums) == content
        assert stats(storage).not_stored >= 9
        assert stats(storage).hits > 0, "what found room is used"
        assert place.temporary() == []
        subprocess.run(["mount", "-o", "remount,ro", place.directory], check=True)
        assert read(storage, PATH, checksums) == content
        assert read(place.open(), PATH, checksums) == content
    finally:
        subprocess.run(["umount", place.directory], check=True)


def test_a_process_that_is_stuck_with_the_count_locked_stops_nobody(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_space, "LOCK_SECONDS", 0.05)
    content = os.urandom(1000)
    checksums = place.put(PATH, content)
    storage = place.open()
    assert storage.cache is not None
    storage.cache.check()
    for name in (cache_space.COUNT, cache_space.EVICTION):
        with open(place.directory / name, "r+b") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            assert read(storage, PATH, checksums) == content
    assert stats(storage).not_stored == 1
    assert len(place.chunks()) == 1, "room was not needed the second time"


def test_a_disk_that_is_full_already_is_no_reason_not_to_connect(place: Place) -> None:
    cache = place.open().cache
    assert cache is not None
    with fault("cache.evicted=enospc"):
        cache.check()
    with fault("cache.evicted=error"), pytest.raises(StorageError, match="input/output error; check the disk"):
        cache.check()
    cache.check()
    assert cache.stats("").used_bytes == 0


def test_a_process_killed_while_it_makes_room_leaves_nothing_wrong(place: Place) -> None:
    sums = {f"file{n:02}/data": place.put(f"file{n:02}/data", f"file{n:02}".encode() * 100_000) for n in range(4)}
    done = run_reader(place, sums, MIB, INDEXLAKE_FAULTS="cache.evicted:2=kill")
    assert done.wait(60) == -signal.SIGKILL
    storage = place.open(MIB)
    for path, checksums in sums.items():
        assert read(storage, path, checksums) == path[:6].encode() * 100_000
        assert sum(p.stat().st_size for p in place.chunks()) <= MIB
    assert storage.cache is not None
    assert storage.cache.stats("file03").not_stored == 0, "room was made"


@pytest.mark.parametrize("step", ["cache.write:2", "cache.publish:1", "cache.publish:3"])
def test_a_process_killed_while_it_fills_the_cache_leaves_nothing_wrong(place: Place, step: str) -> None:
    content = os.urandom(5 * CHUNK_SIZE)
    checksums = place.put(PATH, content)
    done = run_reader(place, {PATH: checksums}, 64 * MIB, INDEXLAKE_FAULTS=f"{step}=kill")
    assert done.wait(60) == -signal.SIGKILL
    storage = place.open()
    assert read(storage, PATH, checksums) == content
    assert stats(storage).damaged == 0
    left = place.temporary()
    assert len(left) == ("publish" in step)
    for path in left:
        os.utime(path, (0, 0))
    small = place.open(MIB)
    read(small, f"{PATH}2", place.put(f"{PATH}2", content))
    assert place.temporary() == [], "what was abandoned goes when room is made"


# ---------------------------------------------------------------- how much is kept

READER = """
import pickle, sys
spec, options, sums, rounds = pickle.loads(sys.stdin.buffer.read())
storage = spec.open(options)
for _ in range(rounds):
    for path, checksums in sums.items():
        assert storage.open_file(path, checksums).read()[:6] == path.encode()[:6]
"""


def run_reader(
    place: Place, sums: dict[str, Checksums], limit: int, rounds: int = 1, **environment: str
) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", READER], stdin=subprocess.PIPE, env={**os.environ, **environment})
    assert process.stdin is not None
    process.stdin.write(pickle.dumps((place.open(limit).spec(), place.options, sums, rounds)))
    process.stdin.close()
    return process


def total_size(place: Place) -> int:
    total = 0
    for path in place.chunks():
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def test_several_processes_together_stay_below_the_limit(place: Place) -> None:
    limit = 4 * MIB
    sums = {}
    for n in range(16):
        path = f"file{n:02}/data"
        sums[path] = place.put(path, path.encode() + os.urandom(random.Random(n).randrange(1, 2 * MIB)))
    orders = [dict(random.Random(n).sample(sorted(sums.items()), len(sums))) for n in range(3)]
    processes = [run_reader(place, order, limit, rounds=4) for order in orders]
    most = 0
    while any(process.poll() is None for process in processes):
        most = max(most, total_size(place))
        time.sleep(0.005)
    assert [process.returncode for process in processes] == [0, 0, 0]
    # The look at the chunks is not of one moment, so it may have counted both what went and what came.
    assert MIB < most <= limit + MIB
    assert sum(-(-p.stat().st_size // 4096) * 4096 for p in place.chunks()) <= limit
    assert not place.temporary()


def test_what_was_used_longest_ago_goes_first(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "USED_SECONDS", 0)
    contents = {f"{PATH}{n}": os.urandom(CHUNK_SIZE) for n in range(5)}
    sums = {path: place.put(path, content) for path, content in contents.items()}
    storage = place.open(MIB)
    assert storage.cache is not None
    for n, path in enumerate(list(contents)[:4]):
        read(storage, path, sums[path])
        for chunk in place.chunks():
            if chunk.parent.name == f"file{n}":
                os.utime(chunk, (n + 1, n + 1))
    read(storage, f"{PATH}0", sums[f"{PATH}0"])  # the oldest, used again
    read(storage, f"{PATH}4", sums[f"{PATH}4"])
    assert {p.parent.name for p in place.chunks()} == {"file0", "file2", "file3", "file4"}
    assert stats(storage).used_bytes <= MIB


def test_a_lower_limit_holds_at_once(place: Place) -> None:
    checksums = place.put(PATH, os.urandom(4 * MIB))
    read(place.open(), PATH, checksums)
    assert len(place.chunks()) == 16
    lower = place.open(2 * MIB).cache
    assert lower is not None
    lower.check()
    assert 0 < len(place.chunks()) <= 8
    assert lower.stats("").used_bytes <= 2 * MIB


def test_only_chunks_are_deleted_to_make_room(place: Place) -> None:
    """A cache directory that somebody else uses too."""
    place.directory.mkdir()
    others = [place.directory / "1.chunk", place.directory / "notes" / "2.chunk", place.directory / "letter.txt"]
    for path in others:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"mine" * MIB)
        os.utime(path, (0, 0))
    storage = place.open(MIB)
    for n in range(3):
        read(storage, f"{PATH}{n}", place.put(f"{PATH}{n}", os.urandom(MIB)))
    assert all(path.stat().st_size == 4 * MIB for path in others)


def test_a_deleted_file_goes_from_the_cache_too(place: Place) -> None:
    sums = [place.put(f"tables/{n}/data/file", os.urandom(2 * MIB)) for n in range(3)]
    storage = place.open()
    for n, checksums in enumerate(sums):
        read(storage, f"tables/{n}/data/file", checksums)
    storage.delete("tables/0/data/file")
    assert len(place.chunks()) == 16
    storage.remove_dir_all("tables/1")
    assert len(place.chunks()) == 8
    storage.delete("tables/0/data/file")
    read(storage, "tables/2/data/file", sums[2])
    assert stats(storage).misses == 8
    assert storage.cache is not None
    assert storage.cache.stats("tables/2").hits == 8


# ---------------------------------------------------------------- elsewhere


def test_the_description_of_a_storage_takes_the_cache_along(place: Place) -> None:
    content = os.urandom(1000)
    checksums = place.put(PATH, content)
    storage = place.open()
    read(storage, PATH, checksums)
    spec = pickle.loads(pickle.dumps(storage.spec()))
    assert spec == storage.spec()
    with place.requests() as requests:
        assert read(spec.open(place.options), PATH, checksums) == content
    assert requests == []
    assert place.options["secret_access_key"] not in repr(spec)
    uncached = storage.uncached()
    with place.requests() as requests:
        assert read(uncached, PATH, checksums) == content
    assert [method for method, _ in requests] == ["HEAD", "GET"]


def test_where_the_directory_cannot_be_used_the_files_are_fetched(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    content = os.urandom(1000)
    checksums = place.put(PATH, content)
    place.directory.write_bytes(b"a file")
    storage = place.open().spec().open(place.options)
    for _ in range(2):
        assert read(storage, PATH, checksums) == content
    assert len(caplog.records) == 1
    assert storage.cache is not None
    with pytest.raises(StorageError, match=r"cannot use cache_dir '.*/cache': a part of the path is a file"):
        storage.cache.check()
