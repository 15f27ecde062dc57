"""Where rows are: locate, row_metadata, stats, and how much is read to find one."""

from __future__ import annotations

import io
import random
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.blocks.formats import vortex_rows
from tests.conformance.orders import EVERYTHING, SCHEMA, dump, rows, tiered


def _read_place(lake: il.Lake, location: str, tmp_path: Any) -> dict[str, Any]:
    """The row at a location, read from the file by the format's own library."""
    format, path, group, offset = location.split(":")
    with lake.storage.open_file(path) as file:
        data = bytes(file.read())
    if format == "parquet":
        import pyarrow.parquet as pq

        found = pq.ParquetFile(io.BytesIO(data)).read_row_group(int(group)).slice(int(offset), 1)
    elif format == "ipc":
        found = pa.Table.from_batches([pa.ipc.open_file(data).get_batch(int(group)).slice(int(offset), 1)])
    else:
        import vortex

        copy = tmp_path / "copy.vortex"
        copy.write_bytes(data)
        assert group == "0"
        found = vortex.open(str(copy)).scan(indices=vortex.array([int(offset)])).read_all().to_arrow_table()
    return found.to_pylist()[0]  # type: ignore[no-any-return]


def test_a_location_is_where_the_row_lies(lake: il.Lake, make: Any, combination: Any, tmp_path: Any) -> None:
    t = tiered(make)
    columns = {f.name: f.column for f in t._state().current.fields}
    ids = {r["id"]: r["_indexlake_row_id"] for r in t.scan(with_row_id=True).to_pylist()}
    for n in (1, 8, 10, 21):
        location = t.locate(ids[n])
        assert location is not None
        assert location.startswith(f"{combination.format}:")
        found = _read_place(lake, location, tmp_path)
        assert found["_indexlake_row_id"] == ids[n]
        assert {name: found[column] for name, column in columns.items()} == EVERYTHING[n - 1]
    for n in (9, 22, 30):
        assert combination.is_hot(t.locate(ids[n]))
    for missing in (0, -1, 10**9):
        assert t.locate(missing) is None


def test_row_metadata_gives_the_place_of_every_live_row(make: Any, combination: Any) -> None:
    t = tiered(make)
    ids = {r["_indexlake_row_id"]: r["id"] for r in t.scan(with_row_id=True).to_pylist()}
    found = t.row_metadata().read_all()
    assert found.schema.names == ["_indexlake_row_id", "location", "deleted"]
    assert sorted(found.column(0).to_pylist()) == sorted(ids)
    places = {ids[r["_indexlake_row_id"]]: r["location"] for r in found.to_pylist()}
    assert sorted(n for n, place in places.items() if combination.is_hot(place)) == [9, *range(22, 31)]
    assert len({place for place in places.values() if not combination.is_hot(place)}) == 20
    assert found.column("deleted").to_pylist() == [False] * 30
    some = t.row_metadata("city = $c", params={"c": "Oslo"}).read_all()
    assert sorted(ids[i] for i in some.column(0).to_pylist()) == [r["id"] for r in EVERYTHING if r["city"] == "Oslo"]
    dump(t)
    after = t.row_metadata().read_all()
    assert all(r["location"].startswith(combination.format) for r in after.to_pylist())


@pytest.mark.blocks_of_heap
def test_stats_say_how_many_rows_are_where(lake: il.Lake, make: Any, combination: Any) -> None:
    t = tiered(make)
    stats = t.stats()
    assert (stats.rows, stats.hot_rows, stats.blocks, stats.block_rows, stats.deleted_in_blocks) == (30, 10, 2, 22, 2)
    assert stats.by_format == {combination.format: 20}
    assert stats.snapshot_id == lake.snapshot_id
    assert stats.bytes > 0
    text = str(stats)
    assert f"{t.name}: 30 rows at snapshot {stats.snapshot_id}" in text
    assert "hot" in text
    assert combination.format in text
    t.update({"city": "x"}, "id >= 28")
    assert t.stats().superseded_hot_rows == 3
    dump(t)
    stats = t.stats()
    assert (stats.hot_rows, stats.superseded_hot_rows, stats.history_blocks) == (0, 0, 1)
    assert stats.rows == 30


def _bytes_read(t: il.Table) -> int:
    return sum(reader.bytes_read for reader, _ in t._lake._files._readers._items.values())


@pytest.mark.blocks_of_heap
def test_a_position_read_fetches_only_what_holds_the_row(
    lake: il.Lake, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vortex_rows, "_PART_BYTES", 1 << 20)  # so that a small file has several parts
    count = 200_000
    source = random.Random(3)
    noise = pa.array([source.randbytes(12).hex() for _ in range(count)])
    t = make(pa.schema({"id": pa.int64(), "noise": pa.string()}), "id", block_row_count=count)
    t.insert(pa.table({"id": range(count), "noise": noise}))
    size = t.stats().bytes
    assert t.stats().blocks == 1
    for use in (
        lambda: t.get(150_001),
        lambda: t.scan("id = 150001").to_pylist()[0],
        lambda: t.scan("id = 150001", columns=["noise"]).to_pylist()[0],
    ):
        lake._files.clear()
        assert use()["noise"] == noise[150_001].as_py()
        assert 0 < _bytes_read(t) < size * 0.6, f"{_bytes_read(t):,} of {size:,} bytes"


@pytest.mark.blocks_of_heap
def test_blocks_that_cannot_match_are_not_opened(lake: il.Lake, make: Any) -> None:
    t = make(SCHEMA, "id", direct_write_row_count=10, block_row_count=10)
    t.insert(rows(range(100)))
    assert t.stats().blocks == 10
    lake._files.clear()
    assert [r["id"] for r in t.scan("id between 34 and 36", order_by="id").to_pylist()] == [34, 35, 36]
    assert len(lake._files._readers._items) == 1
    assert t.scan("total < -5").to_pylist() == []
    assert t.scan("id = 55").to_pylist()[0]["id"] == 55
    assert len(lake._files._readers._items) == 2


def test_counting_whole_blocks_reads_none(lake: il.Lake, make: Any) -> None:
    t = tiered(make)
    lake._files.clear()
    assert len(t) == 30
    assert not lake._files._readers._items


@pytest.mark.formats("vortex")
def test_a_past_view_locates_rows_that_are_superseded_now(lake: il.Lake, make: Any) -> None:
    t = tiered(make)
    then = lake.snapshot_id
    ids = {r["id"]: r["_indexlake_row_id"] for r in t.scan(with_row_id=True).to_pylist()}
    t.delete("id = 1")
    dump(t)
    assert t.locate(ids[1]) is None
    place = t.at(then).locate(ids[1])
    assert place is not None
    assert place.startswith("vortex:")
