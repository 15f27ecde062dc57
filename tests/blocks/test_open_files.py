"""Blocks that are no longer among those used last are closed at once, not when the garbage collector comes by."""

from __future__ import annotations

import gc
import os
from contextlib import suppress
from pathlib import Path

import pytest

import indexlake as il
from indexlake.blocks import open_files


@pytest.mark.parametrize("format", ["vortex", "parquet", "ipc"])
def test_blocks_that_were_dropped_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str) -> None:
    monkeypatch.setattr(open_files, "most_open", lambda: 8)
    with il.connect(tmp_path / "lake", automatic=False) as lake:
        config = il.TableConfig(dump_format=format, direct_write_row_count=1, block_row_count=10)
        t = lake.create_table("t", {"id": "int64", "name": "string"}, primary_key="id", config=config)
        t.insert([{"id": n, "name": str(n)} for n in range(600)])
        lake.pipeline(runner="threads").merge_index("t")

        gc.disable()
        try:
            for n in range(0, 600, 10):
                assert t.get(n) == {"id": n, "name": str(n)}
                assert t.scan("id = $id", params={"id": n}, columns=["name"]).to_pylist() == [{"name": str(n)}]
            assert 1 <= blocks_open(tmp_path) <= 9
        finally:
            gc.enable()


def blocks_open(below: Path) -> int:
    """Return how many files of blocks in a folder this process has open."""
    found = 0
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            path = os.readlink(f"/proc/self/fd/{number}")
            found += path.startswith(str(below.resolve())) and path.endswith((".vortex", ".parquet", ".arrow"))
    return found
