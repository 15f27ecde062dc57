"""``pipeline.load`` of files: tasks write blocks, one commit takes them; rows and errors are those of ``insert``."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import indexlake as il
from indexlake.pipeline import file_tasks, load
from indexlake.sources.files import files

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string()), pa.field("n", pa.int32())])


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes gigabytes elsewhere takes kilobytes here; the code is the same."""
    monkeypatch.setattr(load, "FEW_BYTES", 1_000)
    monkeypatch.setattr(file_tasks, "TASK_BYTES", 20_000)


@pytest.fixture(autouse=True)
def empty_table(lake: il.Lake) -> None:
    config = il.TableConfig(block_row_count=3_000)
    lake.create_table("t", SCHEMA, primary_key="id", config=config, defaults={"n": 7})


def rows(first: int, count: int) -> pa.Table:
    ids = np.arange(first, first + count)
    names = pa.array([f"x{n}" for n in ids.tolist()])
    return pa.table({"id": ids, "name": names, "n": pa.array((ids % 100).astype(np.int32))})


def contents(lake: il.Lake) -> dict[int, tuple[str | None, int | None]]:
    return {row["id"]: (row["name"], row["n"]) for row in lake.table("t").scan().to_pylist()}


def expected(count: int, first: int = 0) -> dict[int, tuple[str | None, int | None]]:
    return {n: (f"x{n}", n % 100) for n in range(first, first + count)}


def test_row_groups_and_small_files_are_shared_out(lake: il.Lake, tmp_path: Path) -> None:
    pq.write_table(rows(0, 20_000), tmp_path / "big.parquet", row_group_size=1_000)
    for n in range(5):
        pq.write_table(rows(20_000 + 100 * n, 100), tmp_path / f"small{n}.parquet")
    pipeline, before = lake.pipeline(runner="threads"), lake.snapshot_id
    result = pipeline.load(str(tmp_path / "*.parquet"), "t")
    assert (result.inserted, result.snapshot_id) == (20_500, before + 1)
    assert contents(lake) == expected(20_500)
    (job,) = [job for job in lake.jobs() if job.kind == "load"]
    assert job.progress.tasks_done == job.progress.tasks >= 8
    assert job.progress.rows == 20_500
    assert lake.table("t").get(12_345) == {"id": 12_345, "name": "x12345", "n": 45}
    assert lake.table("t").changes(before).count() == 20_500
    ids = lake.table("t").scan(with_row_id=True).to_arrow().column("_indexlake_row_id").to_pylist()
    assert len(set(ids)) == 20_500
    assert pipeline.verify().ok


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "arrow", "csv.gz"])
def test_every_format_means_what_it_means_for_insert(lake: il.Lake, tmp_path: Path, suffix: str) -> None:
    data = rows(0, 4_000).drop_columns(["n"])
    path = tmp_path / f"data.{suffix}"
    if suffix.startswith("csv"):
        with pa.CompressedOutputStream(path, "gzip") if suffix.endswith("gz") else pa.OSFile(str(path), "wb") as out:
            pyarrow.csv.write_csv(data, out)
    elif suffix == "jsonl":
        path.write_text("".join(f'{{"ID": {n}, "name": "x{n}"}}\n' for n in range(4_000)))
    else:
        with pa.OSFile(str(path), "wb") as out, pa.ipc.new_file(out, data.schema) as writer:
            writer.write_table(data, 500)
    assert lake.pipeline(runner="threads").load(path, "t").inserted == 4_000
    assert contents(lake) == {n: (f"x{n}", 7) for n in range(4_000)}


def test_overwrite_and_a_token(lake: il.Lake, tmp_path: Path) -> None:
    pq.write_table(rows(5, 2_000), tmp_path / "a.parquet")
    lake.table("t").insert({"id": 5})
    pipeline = lake.pipeline(runner="threads")
    first = pipeline.load(tmp_path / "a.parquet", "t", mode="overwrite", token="once")
    assert pipeline.load(tmp_path / "a.parquet", "t", mode="overwrite", token="once") == first
    assert contents(lake) == expected(2_000, 5)


def test_upsert_of_files(lake: il.Lake, tmp_path: Path) -> None:
    lake.table("t").insert([{"id": n, "name": "old"} for n in range(10)])
    pq.write_table(rows(5, 2_000), tmp_path / "a.parquet")
    result = lake.pipeline(runner="threads").load(tmp_path / "a.parquet", "t", mode="upsert")
    assert (result.updated, result.inserted) == (5, 1_995)


def test_few_rows_stay_hot(lake: il.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "FEW_BYTES", 8 << 20)
    pq.write_table(rows(0, 100), tmp_path / "a.parquet")
    lake.pipeline(runner="threads").load(tmp_path / "a.parquet", "t")
    assert lake.table("t").stats().hot_rows == 100


def write_csv(path: Path, last: str) -> None:
    path.write_text("id,name,n\n" + "".join(f"{n},x{n},1\n" for n in range(5_000)) + last)


@pytest.mark.parametrize(
    ("last", "error", "message"),
    [
        ("5,again,1\n", il.DuplicateKeyError, "id = 5 is given twice"),
        ("-1,taken,1\n", il.DuplicateKeyError, "id = -1 already exists"),
        ("x,y,1\n", il.ConstraintError, "bad.csv.*'id'"),
        ("9999,y\n", il.SchemaError, "bad.csv"),
        (",y,1\n", il.ConstraintError, "'id'"),
    ],
)
def test_what_is_wrong_is_said_and_changes_nothing(
    lake: il.Lake, tmp_path: Path, last: str, error: type[Exception], message: str
) -> None:
    lake.table("t").insert({"id": -1})
    write_csv(tmp_path / "bad.csv", last)
    write_csv(tmp_path / "good.csv", "")
    before = lake.snapshot_id
    with pytest.raises(error, match=message):
        lake.pipeline(runner="threads").load(tmp_path / "bad.csv", "t")
    assert (lake.snapshot_id, contents(lake)) == (before, {-1: (None, 7)})
    assert next(job for job in lake.jobs() if job.kind == "load").state == "failed"
    assert lake.pipeline(runner="threads").load(tmp_path / "good.csv", "t").inserted == 5_000
    lake.pipeline(runner="threads").vacuum(dry_run=False, grace=timedelta(0))
    assert len(contents(lake)) == 5_001


def test_a_column_that_the_table_has_not_is_found_before_any_task(lake: il.Lake, tmp_path: Path) -> None:
    pq.write_table(rows(0, 9_000).rename_columns(["id", "nam", "n"]), tmp_path / "a.parquet")
    with pytest.raises(il.SchemaError, match="no column 'nam'"):
        lake.pipeline(runner="threads").load(tmp_path / "a.parquet", "t")
    assert not [f for f in lake.storage.list("tables") if f.path.endswith((".vortex", ".btree"))]


def test_a_key_that_is_inserted_during_the_load_is_found(
    lake: il.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_csv(tmp_path / "a.csv", "")
    written = file_tasks.write_files

    def meanwhile(*args: Any) -> Any:
        blocks = written(*args)
        lake.table("t").insert({"id": 77, "name": "first"})
        return blocks

    monkeypatch.setattr(load, "write_files", meanwhile)
    with pytest.raises(il.DuplicateKeyError, match="id = 77 already exists"):
        lake.pipeline(runner="threads").load(tmp_path / "a.csv", "t")
    assert contents(lake) == {77: ("first", 7)}


def test_columns_that_change_during_the_load_are_taken_into_account(
    lake: il.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_csv(tmp_path / "a.csv", "")
    written, calls = file_tasks.write_files, []

    def meanwhile(*args: Any) -> Any:
        blocks = written(*args)
        calls.append(1)
        if len(calls) == 1:
            lake.table("t").add_column("extra", pa.int8(), default=3)
        return blocks

    monkeypatch.setattr(load, "write_files", meanwhile)
    lake.pipeline(runner="threads").load(tmp_path / "a.csv", "t")
    assert lake.table("t").get(4_321) == {"id": 4_321, "name": "x4321", "n": 1, "extra": 3}
    assert len(lake.table("t")) == 5_000


def test_a_cancelled_load_changes_nothing(lake: il.Lake, tmp_path: Path) -> None:
    pq.write_table(rows(0, 20_000), tmp_path / "big.parquet", row_group_size=1_000)
    pipeline = lake.pipeline(runner="threads")
    first = lake.table("t")
    original = file_tasks.run_task

    def cancelling(*args: Any) -> Any:
        pipeline.cancel()
        return original(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_tasks, "run_task", cancelling)
        with pytest.raises(il.JobError, match="stopped"):
            pipeline.load(tmp_path / "big.parquet", "t")
    assert not len(first)


def test_pieces_of_a_file_are_its_row_groups(tmp_path: Path) -> None:
    from indexlake.sources.stream import pieces

    pq.write_table(rows(0, 20_000), tmp_path / "big.parquet", row_group_size=1_000)
    (file,) = files(tmp_path / "big.parquet").list()
    found = list(pieces(file, 20_000))
    assert len(found) > 3
    covered = [n for piece in found if piece.groups for n in range(*piece.groups)]
    assert covered == list(range(20))
    assert sum(piece.size for piece in found) <= file.size
