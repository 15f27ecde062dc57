"""Windows: however small they are, and however large a commit is, the feed is the same, and few blocks are opened."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.feed import active, windows
from indexlake.scan import spool
from tests.feed.versions import expected_feed


@pytest.fixture
def busy(local_lake: il.Lake, new_table: Any) -> il.Table:
    """Commits of one row and of hundreds, in every place, with a truncate between."""
    table: il.Table = new_table(local_lake, direct_write_row_count=60, block_row_count=40)
    chance = random.Random(7)
    for step in range(7):
        start = step * 1000
        table.insert(pa.Table.from_pylist([_row(start + n) for n in range(chance.choice([1, 20, 70]))], table.schema))
        table.update({"v": step}, "id % 3 = $n", params={"n": step % 3})
        table.delete("id % 7 = $n", params={"n": step % 7})
        if step % 3 == 1:
            local_lake.pipeline().dump(table.name)
        if step == 4:
            with local_lake.transaction() as tx:
                tx.table(table.name).truncate()
                tx.table(table.name).insert([_row(90_000 + n) for n in range(30)])
    return table


def _row(n: int) -> dict[str, Any]:
    return {"id": n, "v": n, "s": f"text {n}"}


@pytest.mark.parametrize("rows", [1, 7, 50])
def test_small_windows_give_the_same_feed(
    local_lake: il.Lake, busy: il.Table, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    since = busy.history()[0].snapshot_id
    wanted = busy.changes(since, with_row_id=True).to_pylist()
    assert wanted == expected_feed(busy, since, local_lake.snapshot_id)
    monkeypatch.setattr(windows, "FIRST_ROWS", rows)
    monkeypatch.setattr(windows, "MOST_ROWS", rows)
    monkeypatch.setattr(spool, "MEMORY_BYTES", 1)  # hot rows go to a file
    monkeypatch.setattr(active, "MOST_LISTED", rows)  # blocks are opened again and again
    batches = list(busy.changes(since, with_row_id=True).to_batches())
    assert max(batch.num_rows for batch in batches) <= max(2, rows)
    assert [row for batch in batches for row in batch.to_pylist()] == wanted


def test_wide_rows_make_small_windows(local_lake: il.Lake, new_table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(local_lake, direct_write_row_count=10)
    table.insert(pa.table({"id": range(3000), "v": range(3000), "s": ["x" * 1000] * 3000}))
    monkeypatch.setattr(windows, "FIRST_ROWS", 10)
    monkeypatch.setattr(windows, "WINDOW_BYTES", 50_000)
    sizes = [batch.nbytes for batch in table.changes(0).to_batches()]
    assert max(sizes) < 200_000
    assert len(sizes) > 30


def test_blocks_without_changes_in_the_range_are_not_opened(local_lake: il.Lake, new_table: Any) -> None:
    table = new_table(local_lake, direct_write_row_count=10, block_row_count=100)
    for start in range(0, 1000, 100):
        table.insert(pa.table({"id": range(start, start + 100), "v": range(100), "s": ["x"] * 100}))
    for n in range(3):
        table.insert(_row(2000 + n))
        table.update({"v": 0}, "id = 2000")
        local_lake.pipeline().dump(table.name)
    before = local_lake.snapshot_id
    table.delete("id = 250")
    table.update({"v": -1}, "id = 251")
    table.insert(_row(5000))
    opened: list[str] = []
    local_lake._files.clear()
    reader_of = local_lake._files.reader_of
    local_lake._files.reader_of = lambda path, *rest: (opened.append(path), reader_of(path, *rest))[1]  # type: ignore[method-assign]
    try:
        found = table.changes(before).to_pylist()
    finally:
        del local_lake._files.reader_of  # type: ignore[method-assign]
    assert [(c["_change_type"], c["id"]) for c in found] == [
        ("delete", 250), ("update_preimage", 251), ("update_postimage", 251), ("insert", 5000)
    ]  # fmt: skip
    assert len(set(opened)) == 1


def test_counting_reads_no_rows(local_lake: il.Lake, new_table: Any) -> None:
    table = new_table(local_lake, direct_write_row_count=10)
    table.insert(pa.table({"id": range(1000), "v": range(1000), "s": ["x"] * 1000}))
    table.delete("id < 10")
    local_lake._files.clear()
    opened: list[str] = []
    reader_of = local_lake._files.reader_of
    local_lake._files.reader_of = lambda path, *rest: (opened.append(path), reader_of(path, *rest))[1]  # type: ignore[method-assign]
    try:
        assert table.changes(0).count() == 1010
    finally:
        del local_lake._files.reader_of  # type: ignore[method-assign]
    assert opened == []
