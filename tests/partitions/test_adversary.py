"""Cases that were found by trying to break clustered tables."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import indexlake as il
from tests.support.lakes import connect

SMALL: dict[str, Any] = {
    "partition_row_count": 50,
    "block_row_count": 100,
    "direct_write_row_count": 20,
    "inline_row_count_limit": 30,
}


@pytest.mark.parametrize("gone", ["k < 5", "k >= 35"])
def test_a_frozen_block_whose_outermost_rows_were_deleted_has_the_bounds_of_those_that_are_left(
    tmp_path: Path, gone: str
) -> None:
    with connect(tmp_path) as lake:
        t = lake.create_table("t", {"k": "int64"}, primary_key="k", layout="clustered", config=il.TableConfig(**SMALL))
        t.insert([{"k": k} for k in range(40)])
        p = lake.pipeline(runner="threads")
        p.merge("t")
        t.delete(gone)
        for job in (p.freeze, p.thaw):
            job("t")
            assert p.verify().problems == ()
            assert t.scan(order_by="k").to_pylist() == [{"k": k} for k in range(40) if not eval(gone)]


def test_a_table_that_became_a_heap_is_not_restored_as_it_was_before(tmp_path: Path) -> None:
    with connect(tmp_path / "old", storage=tmp_path / "files") as lake:
        for name in ("t", "other"):
            t = lake.create_table(
                name, {"k": "int64"}, primary_key="k", layout="clustered", config=il.TableConfig(**SMALL)
            )
            t.insert([{"k": k} for k in range(40)])
        lake.pipeline(runner="threads").merge()
        lake.cluster_table("t", layout="heap")
        lake.table("t").delete("k < 30")
    result = il.restore(tmp_path / "files", into=tmp_path / "new")
    assert [table.table for table in result.tables] == ["main.other"]
    with connect(tmp_path / "new") as lake:
        assert lake.tables() == ["main.other"]
        assert lake.table("other").count() == 40


def test_a_heap_whose_old_meta_file_was_not_ended_is_told_to_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a kill between the commit of the conversion and the meta file."""
    with connect(tmp_path / "old", storage=tmp_path / "files") as lake:
        t = lake.create_table("t", {"k": "int64"}, primary_key="k", layout="clustered", config=il.TableConfig(**SMALL))
        t.insert([{"k": k} for k in range(40)])
        lake.pipeline(runner="threads").merge()
        with monkeypatch.context() as patch:
            patch.setattr("indexlake.pipeline.convert.publish_meta", lambda *_: None)
            lake.cluster_table("t", layout="heap")
        lake._metas.clear()
        lake.table("t").delete("k < 30")
        lake.pipeline(runner="threads").run()
    assert il.restore(tmp_path / "files", into=tmp_path / "new").tables == ()


def test_a_damaged_newest_meta_file_is_written_again_after_vacuum(tmp_path: Path) -> None:
    with connect(tmp_path / "old", storage=tmp_path / "files") as lake:
        t = lake.create_table("t", {"k": "int64"}, primary_key="k", layout="clustered", config=il.TableConfig(**SMALL))
        t.insert([{"k": k} for k in range(40)])
        p = lake.pipeline(runner="threads")
        p.merge()
        newest = max((tmp_path / "files").rglob("*.meta"), key=lambda path: int(path.name.split(".")[1]))
        newest.write_bytes(b"damaged")
        p.vacuum(dry_run=False, grace=timedelta(0))
        p.run()
    assert [t.rows for t in il.restore(tmp_path / "files", into=tmp_path / "new").tables] == [40]


def test_a_name_that_was_given_again_is_restored_for_the_newer_table_and_the_older_has_its_number_added(
    tmp_path: Path,
) -> None:
    with connect(tmp_path / "old", storage=tmp_path / "files") as lake:
        t = lake.create_table("t", {"k": "int64"}, primary_key="k", layout="clustered", config=il.TableConfig(**SMALL))
        t.insert([{"k": k} for k in range(40)])
        lake.pipeline(runner="threads").merge()
        t.rename("renamed")
        t = lake.create_table("T", {"k": "int64"}, primary_key="k", layout="clustered", config=il.TableConfig(**SMALL))
        t.insert([{"k": k} for k in range(30)])
        lake.pipeline(runner="threads").dump("T")
    result = il.restore(tmp_path / "files", into=tmp_path / "new")
    assert sorted(table.table for table in result.tables) == ["main.T", "main.t_1"]
    with connect(tmp_path / "new") as lake:
        assert {name: lake.table(name).count() for name in lake.tables()} == {"main.T": 30, "main.t_1": 40}
        assert lake.pipeline(runner="threads").verify().ok


def test_a_meta_file_is_the_same_whoever_publishes_it(tmp_path: Path) -> None:
    """The process that has seen a block become data knows the blocks in another order than one that comes later."""
    with connect(tmp_path) as lake:
        t = lake.create_table("t", {"k": "int64"}, primary_key="k", layout="clustered", config=il.TableConfig(**SMALL))
        p = lake.pipeline(runner="threads")
        p.split("t", at=100)
        t.insert([{"k": k} for k in range(30)])
        t.insert([{"k": k} for k in range(100, 120)])
        p.run("t")
        assert [(part.data_rows, part.delta_rows) for part in t.partitions()] == [(30, 0), (0, 20)]
    with connect(tmp_path) as lake:
        assert lake.pipeline(runner="threads").verify().problems == ()
