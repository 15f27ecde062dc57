"""Writers beside those who create, build, fold and drop indexes: rows are found the moment their insert returns."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.pipeline import build_index, merge_index
from tests.support.lakes import Address

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False), pa.field("a", pa.int64()), pa.field("note", pa.string()),
        pa.field("vec", pa.list_(pa.float32(), 2)),
    ]
)  # fmt: skip
CONFIG = il.TableConfig(direct_write_row_count=10, block_row_count=60)
WRITERS = 3


def row(n: int) -> dict[str, Any]:
    return {"id": n, "a": n * 3, "note": f"late w{n}", "vec": [float(n % 100), float(n // 100)]}


def rows(start: int, count: int) -> pa.Table:
    return pa.Table.from_pylist([row(n) for n in range(start, start + count)], SCHEMA)


class Writers:
    """Threads that work until they are told to stop; the first error of any of them is the test's."""

    def __init__(self, work: Callable[[int, random.Random], None]) -> None:
        self._stop = threading.Event()
        self._errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(work, n)) for n in range(WRITERS)]

    def _run(self, work: Callable[[int, random.Random], None], number: int) -> None:
        chance = random.Random(number)
        try:
            while not self._stop.is_set():
                work(number, chance)
        except BaseException as error:
            self._errors.append(error)

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    @property
    def fine(self) -> bool:
        return not self._errors


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_index, "FOLD", 2)
    monkeypatch.setattr(build_index, "GROUP_ROWS", 60)


def test_every_row_is_found_by_every_index_the_moment_its_insert_returns(any_address: Address) -> None:
    with any_address.connect() as lake, any_address.connect() as other:
        t = lake.create_table("t", SCHEMA, primary_key="id", config=CONFIG)
        for n in range(6):
            t.insert(rows(n * 50, 50))
        other._files.use_indexes = "always"
        mine = other.table("t")
        numbers, lock, found = iter(range(1000, 10**9)), threading.Lock(), Counter[str]()

        def search(by: str, query: Any, number: int) -> None:
            try:
                hits = mine.search(by, query, k=3, columns=["id"]).to_pylist()
            except (il.NotFoundError, il.ExpressionError):
                return  # there is no such index now
            assert number in {hit["id"] for hit in hits}, f"{by} does not find {number}"
            found[by] += 1

        def write(writer: int, chance: random.Random) -> None:
            with lock:
                start = next(numbers)
                count = chance.choice((1, 1, 12))
                for _ in range(count):
                    next(numbers)
            if count == 1:
                mine.insert(row(start))
            else:
                mine.insert(rows(start, count))
            one = start + count - 1
            scan = mine.scan("a = $a", params={"a": one * 3})
            assert [r["id"] for r in scan.to_pylist()] == [one], scan.explain()
            found[scan.explain().found_by] += 1
            search("text", f"w{one}", one)
            search("near", row(one)["vec"], one)
            if chance.random() < 0.3:
                mine.update({"a": -one, "note": f"moved m{one}"}, "id = $id", {"id": one})
                assert [r["id"] for r in mine.scan("a = $a", params={"a": -one}).to_pylist()] == [one]
                assert mine.scan("a = $a", params={"a": one * 3}).count() == 0
                search("text", f"m{one}", one)
            if chance.random() < 0.2:
                mine.delete("id = $id", {"id": one})
                assert mine.scan("a in ($a, $b)", params={"a": -one, "b": one * 3}).count() == 0

        with Writers(write) as writers:
            for n in range(3):
                t.create_index("by_a", "a", kind=("btree", "hash", "btree")[n])
                t.create_index("text", "note", kind="bm25")
                t.create_index("near", "vec", kind="hnsw")
                for job in ("dump", "compact", "merge_index"):
                    getattr(lake.pipeline(), job)("t")
                assert writers.fine
                if n < 2:
                    for name in ("by_a", "text", "near"):
                        t.drop_index(name)
        assert min(found["by_a"], found["text"], found["near"]) > 0, found
        lake.pipeline().build_index("t")
        assert [info.state for info in t.indexes()] == ["ready"] * 3
        assert lake.pipeline().verify().ok
        every = t.scan().to_pylist()
        lake._files.use_indexes = "always"
        for r in random.Random(1).sample(every, 20):
            assert [x["id"] for x in t.scan("a = $a", params={"a": r["a"]}).to_pylist()] == [r["id"]]


def test_a_unique_index_lets_no_duplicate_through_and_one_that_never_came_refuses_nobody(any_address: Address) -> None:
    with any_address.connect() as lake, any_address.connect() as other:
        t = lake.create_table("t", SCHEMA, primary_key="id", config=CONFIG)
        t.insert(rows(0, 50))
        mine, numbers, lock = other.table("t"), iter(range(1000, 10**9)), threading.Lock()
        clean = threading.Event()  # values are new ones
        refused: list[Any] = []
        clean.set()

        def write(writer: int, chance: random.Random) -> None:
            with lock:
                number = next(numbers)
            new = row(number)
            if not clean.is_set():
                new["a"] = chance.randrange(40) * 3  # somebody has it
            try:
                if chance.random() < 0.5:
                    mine.insert(new)
                else:
                    with other.transaction() as tx:
                        tx.table("t").insert(new)
            except il.DuplicateKeyError as error:
                refused.append((error.index, new["a"]))

        def duplicates() -> list[int]:
            return [a for a, n in Counter(r["a"] for r in t.scan().to_pylist()).items() if n > 1]

        outcomes = Counter[str]()
        for n in range(4):
            refused.clear()
            (clean.set if n % 2 else clean.clear)()
            with Writers(write):
                try:
                    t.create_index("u", "a", unique=True)
                except il.DuplicateKeyError:
                    outcomes["never came"] += 1
                    there = False
                else:
                    outcomes["published"] += 1
                    there = True
                    clean.clear()
                    for _ in range(20):
                        assert not duplicates()
            if there:
                assert not duplicates()
                assert all(index == "u" for index, _ in refused)
                assert refused, "the writers tried"
                t.drop_index("u")
            else:
                assert t.indexes() == []
                assert not refused, f"from an index that was never published: {refused}"
                values = duplicates()
                t.delete("id >= 1000 and a in $values", {"values": values})
        assert outcomes["published"] >= 1, outcomes


def test_segments_of_a_table_that_only_gets_blocks_are_folded_in_the_background(tmp_path: Path) -> None:
    with il.connect(tmp_path / "lake") as lake:
        config = il.TableConfig(direct_write_row_count=10)
        t = lake.create_table("t", {"id": "int64", "v": "int64"}, primary_key="id", config=config)
        t.create_index("by_v", "v")
        for n in range(30):
            t.insert(pa.table({"id": range(n * 20, n * 20 + 20), "v": range(20)}))
        deadline = time.monotonic() + 30
        while t.index("by_v").info.segments > 8 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert t.index("by_v").info.segments <= 8
        assert t.count("v = 7") == 30
