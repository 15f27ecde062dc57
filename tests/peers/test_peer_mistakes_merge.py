"""Mistakes that peers made in MERGE (numbers as in the list of the design), each a test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import indexlake as il
from indexlake.writes.merge import match as merge_match

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("v", pa.int64())])


@pytest.mark.parametrize("key", [None, "id"])
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_18_concurrent_merges_make_no_silent_duplicates(new_address: Any, database: str, key: str | None) -> None:
    address = new_address(database)
    with address.connect() as one, address.connect() as two:
        t = one.create_table("t", SCHEMA, primary_key=key)
        rows = [{"id": n, "name": f"n{n}", "v": 1} for n in range(5)]
        start = threading.Barrier(4)
        errors: list[BaseException] = []

        def work(lake: il.Lake) -> None:
            try:
                start.wait()
                merge = lake.table("t").merge(rows, on="id").when_matched_update({"v": il.expr("t.v + s.v")})
                merge.when_not_matched_insert().execute()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(lake,)) for lake in (one, one, two, two)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        assert sorted((row["id"], row["v"]) for row in t.scan().to_pylist()) == [(n, 4) for n in range(5)]


@pytest.fixture
def large(tmp_path: Path) -> Iterator[il.Table]:
    """100,000 rows in blocks of 20,000."""
    with il.connect(tmp_path / "lake", automatic=False) as lake:
        config = il.TableConfig(block_row_count=20_000)
        t = lake.create_table("t", SCHEMA, primary_key="id", config=config)
        ids = np.arange(100_000)
        t.insert(pa.table({"id": ids, "name": [f"n{n}" for n in ids], "v": ids}))
        yield t


@pytest.fixture
def rows_read(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many rows merges have read from blocks since the last call."""
    seen = 0
    for name in ("read_task", "pieces"):
        original = getattr(merge_match, name)

        def counted(*args: Any, original: Any = original, **kwargs: Any) -> Iterator[Any]:
            nonlocal seen
            for found in original(*args, **kwargs):
                seen += getattr(found, "batch", found).num_rows
                yield found

        monkeypatch.setattr(merge_match, name, counted)

    def read() -> int:
        nonlocal seen
        found, seen = seen, 0
        return found

    return read


def test_20_a_merge_of_five_rows_writes_five_rows_and_no_file(large: il.Table, tmp_path: Path) -> None:
    files = sorted(tmp_path.glob("lake/**/*.vortex"))
    rows = pa.table({"id": [5, 30_000, 50_000, 99_999, 200_000], "v": [0, 0, 0, 0, 0]})
    result = large.merge(rows, on="id").when_matched_update().when_not_matched_insert().execute()
    assert (result.inserted, result.updated) == (1, 4)
    assert sorted(tmp_path.glob("lake/**/*.vortex")) == files
    stats = large.stats()
    assert (stats.hot_rows, stats.deleted_in_blocks, stats.blocks) == (5, 4, len(files))


def test_20_a_merge_reads_the_rows_that_it_matches_and_no_others(large: il.Table, rows_read: Callable[[], int]) -> None:
    ids = np.arange(0, 100_000, 100)
    rows = pa.table({"id": ids, "n": ids})
    large.merge(rows, on="id").when_matched_update({"v": il.expr("t.v + n")}).execute()
    assert rows_read() == 1000
    assert large.get(500) == {"id": 500, "name": "n500", "v": 1000}
    few = pa.table({"name": ["n7", "n77777", "none"], "v": [1, 1, 1]})
    large.merge(few, on="name").when_matched_update().execute()
    assert rows_read() == 2 * 2, "once to find them, once for their other columns"


def test_20_an_upsert_of_whole_rows_reads_no_old_row(large: il.Table, rows_read: Callable[[], int]) -> None:
    ids = np.arange(1, 100_000, 1000)
    result = large.upsert(pa.table({"id": ids, "name": ["new"] * 100, "v": [0] * 100}))
    assert (result.updated, rows_read()) == (100, 0)
    assert large.get(1001) == {"id": 1001, "name": "new", "v": 0}
    assert large.merge(pa.table({"id": ids}), on="id").when_matched_delete().execute().deleted == 100
    assert rows_read() == 100, "of the hot rows, which come with their keys"
