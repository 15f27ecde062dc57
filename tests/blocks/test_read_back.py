"""A block that cannot be read again is never committed, whatever wrote it; the rows stay where they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.blocks.formats import WrittenFile, write_file
from indexlake.blocks.read_back import Ends, check_block
from indexlake.storage import Storage, faults
from indexlake.types import support
from tests.blocks.formats.block_files import FORMATS, arrays_of_every_type
from tests.pipeline.job_tables import blocks, content, files, in_blocks, rows, table


@contextmanager
def damaging(lake: il.Lake, ending: str) -> Iterator[None]:
    """Files of this kind are damaged in the instant in which they appear."""
    known = files(lake)

    def damage(step: str) -> None:
        if step != "storage.published":
            return
        for name in files(lake) - known:
            if name.endswith(ending):
                path = Path(lake.storage.root) / name
                path.chmod(0o644)
                data = bytearray(path.read_bytes())
                data[len(data) // 2] ^= 0xFF
                path.write_bytes(data)

    before = faults.install(damage)
    try:
        yield
    finally:
        faults.install(before)


def written(storage: Storage, format: str, batch: pa.RecordBatch, path: str = "block") -> tuple[WrittenFile, Ends]:
    ends = Ends()
    ends.add(batch)
    return write_file(storage, path, format, batch.schema, [batch], {}), ends


WRITERS: dict[str, tuple[str, Callable[[il.Lake, il.Table], Any]]] = {
    "insert": ("arrow", lambda lake, t: t.insert(rows(1_000, 20))),
    "update": ("arrow", lambda lake, t: t.update({"v": 0}, "id >= 0")),
    "upsert": ("arrow", lambda lake, t: t.upsert(rows(30, 40))),
    "merge": ("arrow", lambda lake, t: t.merge(rows(30, 40), on="id").when_not_matched_insert().execute()),
    "dump": ("vortex", lambda lake, t: lake.pipeline().dump()),
    "compact": ("vortex", lambda lake, t: lake.pipeline().compact()),
    "freeze": ("parquet", lambda lake, t: lake.pipeline().freeze()),
    "keys of an insert": ("btree", lambda lake, t: t.insert(rows(1_000, 20))),
    "keys of a dump": ("btree", lambda lake, t: lake.pipeline().dump()),
}


@pytest.mark.parametrize(("ending", "write"), WRITERS.values(), ids=WRITERS.keys())
def test_a_damaged_block_is_not_committed(lake: il.Lake, ending: str, write: Callable[..., Any]) -> None:
    t = table(lake, block=3_200)
    in_blocks(t, *((20, 20) if ending != "parquet" else (40,)))  # one task: others may be at work when it fails
    t.insert(rows(500, 5))  # hot
    before, there, recorded = content(t), files(lake), blocks(t)
    with (
        damaging(lake, ending),
        pytest.raises(il.IndexLakeError, match=r"was written but cannot be read back: .*nothing has changed"),
    ):
        write(lake, t)
    assert content(t) == before
    assert blocks(t) == recorded
    assert not any(name.endswith(ending) for name in files(lake) - there), "the damaged file is gone"
    write(lake, t)
    assert len(content(t)) >= len(before)


def test_history_blocks_are_read_back_too(lake: il.Lake) -> None:
    t = table(lake, direct_write_row_count=1_000)
    t.insert(rows(0, 5))
    then = lake.snapshot_id
    t.update({"v": -1}, "id >= 0")
    with damaging(lake, ".vortex"), pytest.raises(il.IndexLakeError, match="cannot be read back"):
        lake.pipeline().dump()
    lake.pipeline().dump()
    assert {row["v"] for row in t.at(snapshot=then).scan().to_pylist()} != {-1}


def test_a_column_that_a_format_writes_and_cannot_read_is_named(lake: il.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    type: pa.DataType = pa.int64()
    for _ in range(31):
        type = pa.struct([("a", type)])
    value: Any = 5
    for _ in range(31):
        value = {"a": value}
    with monkeypatch.context() as earlier:
        earlier.setattr(support, "MAX_LEVELS", 64)  # as before there was a limit
        t = lake.create_table("t", pa.schema([("id", pa.int64()), ("doc", type)]))
    t.insert([{"id": 1, "doc": value}, {"id": 2, "doc": None}])
    for _ in range(2):
        with pytest.raises(il.CorruptionError) as caught:
            lake.pipeline().dump()
        text = str(caught.value)
        assert text.startswith("A new vortex block was written but cannot be read back: ")
        assert "nothing has changed" in text
        assert "Nested table depth limit reached" in text
        assert t.scan().to_pylist() == [{"id": 1, "doc": value}, {"id": 2, "doc": None}]
        assert not [name for name in files(lake) if name.endswith(".vortex")]
    t.set_config(dump_format="parquet")
    lake.pipeline().dump()
    assert t.stats().hot_rows == 0
    assert t.scan().to_pylist() == [{"id": 1, "doc": value}, {"id": 2, "doc": None}]


@pytest.mark.parametrize("format", FORMATS)
def test_every_type_passes(tmp_path: Path, format: str) -> None:
    storage = Storage.open(str(tmp_path))
    for name, array in arrays_of_every_type():
        batch = pa.RecordBatch.from_arrays([array], ["f1"])
        file, ends = written(storage, format, batch, name)
        check_block(storage, file, format, batch.schema, ends, {})


@pytest.mark.parametrize("format", FORMATS)
def test_other_values_than_were_written_are_noticed(tmp_path: Path, format: str) -> None:
    storage = Storage.open(str(tmp_path))
    nan = float("nan")
    batch = pa.RecordBatch.from_arrays(
        [pa.array([1.5, nan, 2.5]), pa.array(["a", "b", None]).dictionary_encode()], ["f1", "f2"]
    )
    others = [
        ("f1", 0, pa.array([1.25])),
        ("f1", 2, pa.array([None], pa.float64())),
        ("f1", 2, pa.array([nan])),
        ("f2", 0, pa.array(["b"]).dictionary_encode()),
        ("f2", 2, pa.array(["a"]).dictionary_encode()),
    ]
    for number, (column, row, value) in enumerate(others):
        file, _ = written(storage, format, batch, f"block {number}")
        ends = Ends()
        ends.add(batch)
        changed = batch.slice(row, 1).set_column(batch.schema.names.index(column), column, value)
        setattr(ends, "_first" if row == 0 else "_last", changed)
        with pytest.raises(il.CorruptionError, match="column 'price' holds other values than were written"):
            check_block(storage, file, format, batch.schema, ends, {column: "price"})
        assert not storage.exists(file.path)


def test_an_empty_block_passes(tmp_path: Path) -> None:
    storage = Storage.open(str(tmp_path))
    batch = pa.RecordBatch.from_arrays([pa.array([], pa.int64())], ["f1"])
    for format in FORMATS:
        file, ends = written(storage, format, batch, format)
        check_block(storage, file, format, batch.schema, ends, {})
