from __future__ import annotations

import shutil
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import indexlake as il

from .ledger import scratch_folder

sys.path.insert(0, str(Path(__file__).parents[1]))

from servers import postgres_server

Connect = Callable[..., il.Lake]


@pytest.fixture(scope="session")
def postgres_dsn() -> Iterator[str]:
    with postgres_server() as server:
        yield server.database()


@pytest.fixture
def folder() -> Iterator[Path]:
    folder = scratch_folder()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgres"])
def lake(request: pytest.FixtureRequest, folder: Path) -> Iterator[il.Lake]:
    """An empty lake on either catalog, without background work."""
    options: dict[str, Any] = {}
    address = str(folder / "lake")
    if request.param == "postgres":
        address = request.getfixturevalue("postgres_dsn")
        options = {"storage": str(folder / "files"), "catalog_schema": f"lake_{uuid.uuid4().hex[:8]}"}
    with il.connect(address, automatic=False, **options) as lake:
        yield lake
