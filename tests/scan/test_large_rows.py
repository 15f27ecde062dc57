"""Rows of any size: batches are bounded by bytes as well as by rows, wherever rows are gathered."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import indexlake as il
from indexlake.arrow import batch_size
from indexlake.arrow.batch_size import batch_bytes, cut, encoded_bytes, row_chunks, row_columns
from indexlake.blocks import stream
from indexlake.blocks.formats import open_reader, write_file
from indexlake.blocks.formats.batches import rechunked
from indexlake.storage import Storage
from indexlake.types.selection import gather

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("data", pa.binary()), ("text", pa.string())])
LIMIT = 20_000
ROWS = 300
FORMATS = ("vortex", "parquet", "ipc")


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 GiB in the small: what is too large for a batch is reached with kilobytes."""
    monkeypatch.setattr(batch_size, "BATCH_BYTES", LIMIT)
    monkeypatch.setattr(batch_size, "JOINED_BYTES", 3 * LIMIT)
    monkeypatch.setattr(stream, "BLOCK_BYTES", 5 * LIMIT)


def row(n: int) -> dict[str, Any]:
    size = 12_000 if n % 50 == 7 else 600
    return {"id": n, "data": n.to_bytes(2, "little") * (size // 2), "text": f"row {n} " * 8}


def expected(ids: Any) -> list[dict[str, Any]]:
    return [row(n) for n in ids]


def check_batches(batches: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for batch in batches:
        assert batch_bytes(batch) <= 1.1 * LIMIT or batch.num_rows == 1  # of encoded rows, only texts are counted
        rows += batch.to_pylist()
    return rows


# ---------------------------------------------------------------- the pieces


def test_chunks_of_rows_are_bounded_by_rows_and_by_bytes(small_batches: None) -> None:
    sizes = [10, 19_990, 1, 50_000, 0, *[8_000] * 5, *[1] * 500, 19_999, 19_999]
    rows = [(n, b"x" * size, None) for n, size in enumerate(sizes)]
    chunks = list(row_chunks(iter(rows), 200))
    assert [one for chunk in chunks for one in chunk] == rows
    assert all(len(chunk) <= 200 for chunk in chunks)
    assert all(encoded_bytes(chunk) <= LIMIT or len(chunk) == 1 for chunk in chunks)
    assert len(chunks) <= 12
    assert list(row_chunks([], 10)) == []


def test_rows_turned_into_columns_are_bounded_in_the_same_way(small_batches: None) -> None:
    sizes = [10, 19_990, 1, 50_000, 0, *[8_000] * 5, *[1] * 500, 19_999, *[30] * 3_000, 19_999]
    rows = [(n, b"x" * size if size else None, None) for n, size in enumerate(sizes)]
    parts = list(row_columns(iter(rows), 2_000))
    assert [one for part in parts for one in zip(*part, strict=True)] == rows
    assert all(len(part[0]) <= 2_000 for part in parts)
    assert all(encoded_bytes(part) <= LIMIT or len(part[0]) == 1 for part in parts)
    assert len(parts) <= 20
    assert list(row_columns([], 10)) == []


def test_a_generator_is_not_read_far_ahead(small_batches: None) -> None:
    taken = 0

    def rows() -> Iterator[tuple[bytes]]:
        nonlocal taken
        for _ in range(100):
            taken += 1
            yield (b"x" * (LIMIT - 10),)

    chunks = row_chunks(rows(), 1_000)
    assert len(next(chunks)) == 1
    assert taken <= 5
    taken = 0
    assert len(next(row_columns(rows(), 1_000))[0]) == 1
    assert taken <= 5


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["x" * 1_000] * 300),
        pa.array(["x" * 1_000] * 300, pa.string_view()),
        pa.array([b"x" * 1_000, None] * 300, pa.binary_view()),
        pa.DictionaryArray.from_arrays(pa.array([0, None, 0] * 100, pa.int8()), pa.array(["x" * 3_000])),
        pa.DictionaryArray.from_arrays(
            pa.array([0, None, 0] * 100, pa.int8()), pa.array(["x" * 900], pa.string_view())
        ),
        *[pa.DictionaryArray.from_arrays(pa.array([0, None, 0] * 9), v) for v in (pa.array([True]), pa.array([1.5]))],
        pa.DictionaryArray.from_arrays(pa.array([0, None] * 1_000), pa.array([b"x" * 30, None], pa.binary(30))),
        pa.DictionaryArray.from_arrays(pa.array([0, 1] * 1_000), pa.array([1, None], pa.decimal128(3, 1))),
        pa.array([["x" * 500] * 2] * 300),
        pa.array([{"a": "x" * 1_000}] * 300),
        pa.array(np.arange(100_000)),
        pa.array(["x" * 50_000, "y", None, "z" * 19_000]),
    ],
    ids=lambda array: str(array.type),
)
def test_a_batch_is_cut_by_what_its_values_take(array: pa.Array, small_batches: None) -> None:
    batch = pa.RecordBatch.from_arrays([array], ["a"])
    parts = list(cut(batch))
    assert pa.Table.from_batches(parts).column(0).to_pylist() == array.to_pylist()
    assert all(batch_bytes(part) <= LIMIT or part.num_rows == 1 for part in parts)
    assert len(parts) <= 3 * batch_bytes(batch) / LIMIT + 3
    joined = list(rechunked(parts, 1_000_000))
    assert pa.Table.from_batches(joined).column(0).to_pylist() == array.to_pylist()
    assert len(joined) <= len(parts)


def test_rows_are_gathered_from_more_than_one_batch_could_hold(small_batches: None) -> None:
    batches = [pa.RecordBatch.from_pylist(expected(range(start, start + 50)), SCHEMA) for start in range(0, ROWS, 50)]
    order = np.random.default_rng(1).permutation(ROWS)
    assert check_batches(iter(gather(batches, pa.array(order), SCHEMA))) == expected(order.tolist())


@pytest.mark.parametrize("format", FORMATS)
def test_blocks_of_large_rows_are_read_in_small_batches(tmp_path: Path, format: str, small_batches: None) -> None:
    storage = Storage.open(str(tmp_path))
    batch = pa.RecordBatch.from_pylist(expected(range(ROWS)), SCHEMA)
    written = write_file(storage, "block", format, SCHEMA, [batch], {})
    reader = open_reader(storage, "block", format, written.size, written.checksums, SCHEMA)
    assert check_batches(reader.read(SCHEMA.names)) == expected(range(ROWS))
    some = np.array([299, 7, 7, 3, 57], np.uint64)
    assert reader.take(some, SCHEMA.names).to_pylist() == expected(some.tolist())


# ---------------------------------------------------------------- the whole


@pytest.mark.parametrize(("database", "format"), [*(("sqlite", format) for format in FORMATS), ("postgres", "vortex")])
def test_large_rows_go_every_way(new_address: Any, database: str, format: str, small_batches: None) -> None:
    with new_address(database).connect(automatic=False) as lake:
        config = il.TableConfig(direct_write_row_count=10_000, dump_format=format)
        t = lake.create_table("t", SCHEMA, primary_key="id", config=config)
        for start in range(0, ROWS, 10):
            t.insert([row(n) for n in range(start, start + 10)])  # hot
        assert t.stats().hot_rows == ROWS

        def check() -> None:
            assert sorted(check_batches(t.scan().to_batches()), key=lambda r: r["id"]) == expected(range(ROWS))
            by_id = check_batches(t.scan(order_by=("id", "desc")).to_batches())
            assert by_id == expected(range(ROWS - 1, -1, -1))
            assert (
                t.scan(order_by="data", limit=280).to_pylist()
                == sorted(expected(range(ROWS)), key=lambda r: r["data"])[:280]
            )
            assert lake.sql("select * from t order by id desc").to_pylist() == expected(range(ROWS - 1, -1, -1))
            assert sum(len(r["data"]) for r in t.changes(since=start_at).to_pylist()) == total
            assert t.get_many(list(range(200))).num_rows == 200

        start_at = 1
        total = sum(len(r["data"]) for r in expected(range(ROWS)))
        check()
        lake.pipeline().dump()
        assert t.stats().hot_rows == 0
        check()
        lake.pipeline().compact()
        check()
        assert t.update({"text": "new"}, "true").rows == ROWS
        assert t.update({"data": b"y" * 8_000}, "id < 50").rows == 50
        lake.pipeline().run()
        found = {r["id"]: r for r in check_batches(t.scan().to_batches())}
        assert [found[n]["data"] for n in range(ROWS)] == [
            b"y" * 8_000 if n < 50 else row(n)["data"] for n in range(ROWS)
        ]
        assert t.upsert(expected(range(ROWS))).rows == ROWS
        check_rows = sorted(check_batches(t.scan().to_batches()), key=lambda r: r["id"])
        assert check_rows == expected(range(ROWS))


def test_a_few_large_rows_go_to_blocks_at_once(tmp_path: Path, small_batches: None) -> None:
    with il.connect(tmp_path / "lake", automatic=False) as lake:
        t = lake.create_table("t", SCHEMA)
        large = [{"id": n, "data": b"x" * 18_000, "text": None} for n in range(3)]
        t.insert({"id": 9, "data": b"x" * 30_000, "text": None})
        t.insert(large)
        t.insert(r for r in large)
        t.insert(pa.Table.from_pylist(large, SCHEMA))
        assert t.stats().hot_rows == 0
        assert len(t) == 10
        t.insert(large[:1])
        assert t.stats().hot_rows == 1


# ---------------------------------------------------------------- what is too large


def test_a_value_that_no_column_holds_is_an_error_at_the_insert(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_size, "VALUE_BYTES", 50_000)
    monkeypatch.setattr(batch_size, "BATCH_BYTES", 20_000)
    large = [{"id": 1, "data": None, "text": None}, {"id": 2, "data": b"x" * 60_000, "text": "a"}]
    with il.connect(tmp_path / "lake", automatic=False) as lake:
        t = lake.create_table("t", SCHEMA)
        t.insert({"id": 0, "data": b"", "text": ""})
        for rows in (pa.Table.from_pylist(large, SCHEMA), large, large[1], iter(large)):
            with pytest.raises(il.ConstraintError) as caught:
                t.insert(rows)
            assert str(caught.value).startswith("Column 'data': a value takes 60,")
            assert "the limit is 50,000. Store it in pieces, or outside the table." in str(caught.value)
            assert caught.value.column == "data"
        assert len(t) == 1


def test_a_default_is_small(tmp_path: Path) -> None:
    with il.connect(tmp_path / "lake", automatic=False) as lake:
        with pytest.raises(il.SchemaError, match="default of column 'text' takes 20,000 bytes; the limit is 16,384"):
            lake.create_table("t", SCHEMA, defaults={"text": "x" * 20_000})
        t = lake.create_table("t", SCHEMA, defaults={"text": "x" * 16_384})
        with pytest.raises(il.SchemaError, match="default of column 'more' takes 20,000 bytes"):
            t.add_column("more", pa.string(), default="x" * 20_000)


# ---------------------------------------------------------------- in the large


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_more_than_two_gigabytes_in_one_column(tmp_path: Path) -> None:
    """2,300 hot rows of 1 MB; 10 GB of disk and 6 GB of memory."""
    megabyte = 1_000_000

    def large(n: int) -> bytes:
        return n.to_bytes(4, "little") + os.urandom(megabyte // 4) + bytes(megabyte - megabyte // 4)

    schema = pa.schema([pa.field("id", pa.int64(), False), ("data", pa.binary())])
    with il.connect(tmp_path / "lake", automatic=False) as lake:
        t = lake.create_table("t", schema, primary_key="id")
        for start in range(0, 2_300, 50):
            t.insert([{"id": n, "data": large(n)} for n in range(start, start + 50)])
        assert t.stats().hot_rows == 2_300

        def check(column: str = "data") -> None:
            seen = set()
            for batch in t.scan().to_batches():
                seen |= {int.from_bytes(value[:4], "little") for value in batch.column(column).to_pylist()}
            assert seen == set(range(2_300))
            assert lake.sql("select sum(octet_length(data)) from t").scalar() == 2_300 * (megabyte + 4)
            rows = sum(b.num_rows for b in lake.sql("select * from t order by id").to_batches())
            assert rows == 2_300

        check()
        assert t.update({"id": il.expr("id + 0")}, "true").rows == 2_300
        check()
        lake.pipeline().dump()
        assert t.stats().hot_rows == 0
        check()
        lake.pipeline(runner="threads").compact()
        check()
        u = lake.create_table("u", schema)
        u.insert({"id": n, "data": bytes([n]) * 900_000_000} for n in range(3))
        assert [len(b) for b in u.scan().to_batches()] == [1, 1, 1]
        lake.pipeline(runner="threads").compact()
        assert len(u) == 3
        assert {b.column("data")[0].as_py()[:1] for b in u.scan().to_batches()} == {b"\0", b"\1", b"\2"}
        with pytest.raises(il.ConstraintError, match=r"Column 'data': .*the limit is 2,147,483,647"):
            u.insert({"id": 9, "data": bytes(2**31)})
        assert len(u) == 3
