from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from indexlake.storage import Storage, faults
from tests.support.servers import S3Server


@pytest.fixture(params=["local", "memory", "s3"])
def storage(request: Any, tmp_path: Path) -> Storage:
    if request.param == "local":
        return Storage.open(str(tmp_path / "lake"))
    if request.param == "memory":
        return Storage.open("memory://")
    server: S3Server = request.getfixturevalue("s3")
    return Storage.open(f"s3://{server.bucket()}/some/prefix", server.options)


@pytest.fixture
def steps() -> Iterator[list[str]]:
    """The named steps passed during a test."""
    seen: list[str] = []
    previous = faults.install(seen.append)
    yield seen
    faults.install(previous)
