"""What all tests share: the `--full` option, real servers, and lakes of every kind."""

from __future__ import annotations

import os
import signal
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

import indexlake as il
from servers import PostgresServer, S3Server, postgres_server, s3_server

# The default suite tries the same examples each time, so that it fails for a change and not by chance.  Campaigns
# (INDEXLAKE_HYPOTHESIS=…) look for new ones.
settings.register_profile("indexlake", derandomize=not os.environ.get("INDEXLAKE_HYPOTHESIS"), deadline=None)
settings.load_profile("indexlake")


# Hundreds of processes are started here: they need not all compile what they import.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


# A shell that starts the tests in the background has them, and what they start, ignore SIGINT; some tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run the conformance suite on every combination of backends")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker of ``pytest -n`` takes all tests of a file, and all that need Spark: they share what they start."""
    for item in items:
        file = item.path.relative_to(Path(__file__).parent)
        item.add_marker(pytest.mark.xdist_group("spark" if file.parts[0] in ("docs", "spark") else str(file)))


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_dsn(postgres: PostgresServer) -> str:
    """One database for many lakes, each in a schema of its own."""
    return postgres.database()


@dataclass(frozen=True)
class Address:
    """Where a lake is: enough to connect to it again, in any process."""

    catalog: str
    storage: str | None = None
    storage_options: dict[str, str] | None = None
    catalog_schema: str | None = None

    def connect(self, **options: Any) -> il.Lake:
        return il.connect(
            self.catalog,
            storage=self.storage,
            storage_options=self.storage_options,
            catalog_schema=self.catalog_schema,
            **options,
        )


@pytest.fixture(scope="session")
def new_address(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], Address]:
    """Make the address of a lake that does not exist yet, for a database and a kind of storage."""

    def make(database: str, storage: str = "local") -> Address:
        if database == "memory":
            return Address(":memory:")
        root, options, schema = None, None, None
        if storage == "s3":
            server: S3Server = request.getfixturevalue("s3")
            root, options = f"s3://{server.bucket()}/some/prefix", server.options
        if database == "sqlite":
            return Address(str(tmp_path_factory.mktemp("lake")), root, options)
        dsn: str = request.getfixturevalue("postgres_dsn")
        schema = f"lake_{uuid.uuid4().hex[:12]}"
        return Address(dsn, root or str(tmp_path_factory.mktemp("files")), options, schema)

    return make
