"""What all tests share: the `--full` option, real servers, and lakes of every kind."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

import indexlake as il
from indexlake.hot import registry
from indexlake.storage import faults
from tests.support.clustered import cluster_everything
from tests.support.flaky_proxy import FlakyProxy, flaky_proxy
from tests.support.folders import FAST_DISK
from tests.support.lakes import Address, connect
from tests.support.one_owner import share_memory
from tests.support.servers import PostgresServer, S3Server, postgres_server, s3_server

# The default suite tries the same examples each time, so that it fails for a change and not by chance.  Campaigns
# (INDEXLAKE_HYPOTHESIS=…) look for new ones.
settings.register_profile("indexlake", derandomize=not os.environ.get("INDEXLAKE_HYPOTHESIS"), deadline=None)
settings.load_profile("indexlake")


# Hundreds of processes are started here: they need not all compile what they import.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


# Spark's queries here are small: to compile them with more care, on the other core, takes longer than to run them.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


# Folders of tests are in memory too, and gone when the test has passed.
if FAST_DISK:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", FAST_DISK)


# A shell that starts the tests in the background has them, and what they start, ignore SIGINT; some tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run the conformance suite on every combination of backends")
    parser.addoption("--hot", help="the hot store of every new lake: inline or memory")
    parser.addoption("--clustered", action="store_true", help="make every table with a primary key a clustered one")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Half as many again as there are cores: a worker often waits for a process, a server or a disk."""
    return 3 * (os.cpu_count() or 2) // 2


LONG = ("spark", "tests/crash/", "tests/model/", "tests/trials/", "tests/processes/", "tests/evolution/", "tests/feed/")
"""What takes long begins first, so that at the end no worker is waited for."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One worker of ``pytest -n`` takes all tests of a file, and all that need Spark: they share what they start."""
    from xdist.scheduler import LoadScopeScheduling

    class ByWhatTestsShare(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return "spark" if file.startswith(("tests/docs/", "tests/spark/")) else file

        def _assign_work_unit(self, node: Any) -> None:
            if (long := next((scope for scope in self.workqueue if scope.startswith(LONG)), None)) is not None:
                self.workqueue.move_to_end(long, last=False)
            super()._assign_work_unit(node)

    return ByWhatTestsShare(config, log)


@pytest.fixture(scope="session", autouse=True)
def every_table_clustered(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if request.config.getoption("--clustered"):
            cluster_everything(patch)
        yield


@pytest.fixture(scope="session", autouse=True)
def every_lake_hot(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if (hot := request.config.getoption("--hot")) is not None:
            patch.setattr(registry, "DEFAULT", hot)
        if hot == registry.MEMORY:
            share_memory(patch)
        yield


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--hot") == registry.MEMORY:
        for item in items:
            if item.nodeid.startswith("tests/hot/memory"):
                item.add_marker(pytest.mark.skip(reason="they choose their hot stores themselves"))
            for mark in item.iter_markers("inline_only"):
                item.add_marker(pytest.mark.skip(reason=mark.args[0]))


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FlakyProxy]:
    """Stands before the S3 server: counts requests, and fails as it is told."""
    with flaky_proxy(s3.endpoint) as running:
        yield running


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_dsn(postgres: PostgresServer) -> str:
    """One database for many lakes, each in a schema of its own."""
    return postgres.database()


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


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[il.Lake]:
    """An empty lake in a folder."""
    with connect(tmp_path / "lake") as opened:
        yield opened


@pytest.fixture(scope="module")
def module_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[il.Lake]:
    """A lake in a folder that all tests of a file share."""
    with connect(tmp_path_factory.mktemp("module") / "lake") as opened:
        yield opened


@pytest.fixture(params=["sqlite", "postgres"])
def any_address(request: pytest.FixtureRequest, new_address: Callable[[str], Address]) -> Address:
    """Where a new lake will be, on each catalog in turn."""
    return new_address(request.param)


@pytest.fixture
def any_lake(any_address: Address) -> Iterator[il.Lake]:
    """An empty lake, on each catalog in turn."""
    with any_address.connect() as opened:
        yield opened


@pytest.fixture
def two_handles(new_address: Callable[[str], Address]) -> Iterator[tuple[il.Lake, il.Lake]]:
    """An empty lake opened twice: each handle has a cache of its own, as two processes have."""
    address = new_address("sqlite")
    with address.connect() as one, address.connect() as two:
        yield one, two


@pytest.fixture
def any_two_handles(any_address: Address) -> Iterator[tuple[il.Lake, il.Lake]]:
    """As `two_handles`, on each catalog in turn."""
    with any_address.connect() as one, any_address.connect() as two:
        yield one, two


@pytest.fixture(scope="session")
def shared_lake(new_address: Callable[[str, str], Address]) -> Iterator[Callable[..., il.Lake]]:
    """One open lake for each catalog, storage, hot store and kind of key index: each test makes tables of its own."""
    with ExitStack() as stack:

        @cache
        def lake(database: str, storage: str = "local", *, hot: str = "inline", keys: str = "btree") -> il.Lake:
            return stack.enter_context(new_address(database, storage).connect())

        yield lake


@pytest.fixture(scope="session")
def local_lake(shared_lake: Callable[..., il.Lake]) -> il.Lake:
    """The shared lake in a folder: for what does not depend on the catalog."""
    return shared_lake("sqlite", "local")


@pytest.fixture(params=["sqlite", "postgres"])
def any_shared_lake(request: pytest.FixtureRequest, shared_lake: Callable[..., il.Lake]) -> il.Lake:
    """The shared lake of each catalog in turn."""
    return shared_lake(request.param, "local")


@pytest.fixture
def on_step() -> Iterator[Callable[[faults.Callback | None], object]]:
    """Say what happens at the named steps from here to the end of the test."""
    before = faults.install(None)
    yield faults.install
    faults.install(before)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str | bytes], Path]:
    """Write a file into the test's folder."""

    def write(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write
