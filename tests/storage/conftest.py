from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from servers import S3Server, s3_server

from indexlake import faults
from indexlake.storage import Storage


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


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
