"""A lake with its hot rows in memory, and what a crash would leave of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import indexlake as il
from tests.hot.memory.disk import Disk
from tests.support.lakes import connect


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(tmp_path / "lake", tmp_path / "images", monkeypatch)


@pytest.fixture
def memory(disk: Disk) -> Iterator[il.Lake]:
    with connect(disk.lake, hot="memory") as lake:
        yield lake
