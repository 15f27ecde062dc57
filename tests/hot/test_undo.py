"""A commit that is given up leaves nothing in a hot store that the database does not undo by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.hot import registry
from indexlake.storage import faults
from tests.hot.dict_store import DictStore


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[il.Lake]:
    monkeypatch.setitem(registry.STORES, "dict", DictStore)
    monkeypatch.setattr(registry, "DEFAULT", "dict")
    with il.connect(tmp_path / "lake", automatic=False) as lake:
        lake.create_table("t", pa.schema({"id": pa.int64(), "v": pa.int64()}), "id")
        lake.table("t").insert([{"id": 1, "v": 1}, {"id": 2, "v": 2}])
        yield lake


WAYS: dict[str, Callable[[il.Lake], Any]] = {
    "commit.applied": lambda lake: lake.table("t").update({"v": 9}, "id > 0"),
    "dump.commit": lambda lake: lake.pipeline().dump("t"),
}


@pytest.mark.parametrize("step", WAYS)
def test_what_fails_before_it_commits_is_taken_back(lake: il.Lake, step: str) -> None:
    table = lake.table("t")

    def fail(name: str) -> None:
        if name == step:
            raise OSError("here")

    before = faults.install(fail)
    try:
        with pytest.raises(OSError, match="here"):
            WAYS[step](lake)
    finally:
        faults.install(before)
    assert sorted(table.scan().to_pylist(), key=lambda row: row["id"]) == [{"id": 1, "v": 1}, {"id": 2, "v": 2}]
    assert table.delete("id = 1").rows == 1
    assert table.scan().to_pylist() == [{"id": 2, "v": 2}]
