"""The conformance suite runs one set of tests over catalogs × storages × block formats.

``dict`` is SQLite with a second hot store, which lives in `tests/hot` and knows the engine through its protocol alone.
``sorted_list`` is a second index kind for primary keys, which lives in `tests/indexes` and does the same.
``clustered``: tables with a primary key are clustered and begin with several partitions.
``hot``: the newest rows are in the memory of this process, which owns the lake.

By default a selection in which every pair of values occurs together once; `--full` takes all combinations.
Tests that ask for `lake` or `make` run everywhere.  Lakes live as long as the session; each test has tables of
its own in a namespace of its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any

import pytest

import indexlake as il
from indexlake.hot import registry as hot_registry
from indexlake.indexes import registry as index_registry
from tests.hot.dict_store import DictStore
from tests.indexes.sorted_list import SortedList
from tests.support.clustered import cluster_everything
from tests.support.one_owner import in_memory


@dataclass(frozen=True)
class Combination:
    database: str
    storage: str
    format: str
    keys: str = "btree"
    layout: str = "heap"
    hot: str = ""

    def __str__(self) -> str:
        unusual = [x for x in (self.keys, self.layout, self.hot) if x not in ("btree", "heap", "")]
        return "-".join([self.database, self.storage, self.format, *unusual])

    def is_hot(self, location: str | None) -> bool:
        """Whether a row lies in the hot store."""
        inline = "memory:" if hot_registry.DEFAULT == hot_registry.MEMORY else "inline"
        return location is not None and location.startswith("dict:" if self.database == "dict" else inline)


PLACES = [
    ("sqlite", "local"),
    ("sqlite", "s3"),
    ("memory", "memory"),
    ("postgres", "local"),
    ("postgres", "s3"),
    ("dict", "local"),
]
ALL = [
    *(Combination(*place, format) for place in PLACES for format in ("vortex", "parquet")),
    Combination("sqlite", "local", "ipc"),
    Combination("memory", "memory", "ipc", "sorted_list"),
    *(Combination(*place, "ipc", layout="clustered") for place in PLACES),
    *(Combination(*place, format, hot="in_memory") for place in PLACES[:-1] for format in ("vortex", "ipc")),
    Combination("sqlite", "local", "ipc", layout="clustered", hot="in_memory"),
]
PAIRWISE = [
    Combination("sqlite", "local", "vortex"),
    Combination("sqlite", "s3", "parquet"),
    Combination("memory", "memory", "vortex"),
    Combination("memory", "memory", "parquet"),
    Combination("postgres", "local", "parquet"),
    Combination("postgres", "s3", "vortex"),
    Combination("sqlite", "local", "ipc"),
    Combination("dict", "local", "vortex"),
    Combination("memory", "memory", "ipc", "sorted_list"),
    Combination("sqlite", "local", "ipc", layout="clustered"),
    Combination("sqlite", "local", "ipc", hot="in_memory"),
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "combination" not in metafunc.fixturenames:
        return
    chosen = ALL if metafunc.config.getoption("--full") else PAIRWISE
    if metafunc.config.getoption("--hot"):
        chosen = [c for c in chosen if not c.hot]
    formats = [m.args for m in metafunc.definition.iter_markers("formats")]
    if formats:
        chosen = [c for c in chosen if c.format in formats[0]]
    if any(metafunc.definition.iter_markers("blocks_of_heap")):
        chosen = [c for c in chosen if c.layout == "heap"]
    if "new_address" in signature(metafunc.function).parameters:
        # They connect again, and what is in memory is gone then.
        chosen = [c for c in chosen if c.database != "dict"]
    metafunc.parametrize("combination", chosen, ids=str, scope="session")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "formats(*names): run on combinations with one of these block formats only")
    config.addinivalue_line("markers", "blocks_of_heap: counts blocks, which partitions would cut into more")


@pytest.fixture(autouse=True)
def newest_rows_in_memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every lake that is made while the test runs."""
    if "combination" in request.fixturenames and request.getfixturevalue("combination").hot:
        in_memory(monkeypatch)


@pytest.fixture
def lake(combination: Combination, shared_lake: Any, monkeypatch: pytest.MonkeyPatch) -> il.Lake:
    """The shared lake of this combination."""
    if combination.keys == "sorted_list":
        monkeypatch.setitem(index_registry.KINDS, "btree", SortedList())  # while the test runs
    if combination.layout == "clustered":
        cluster_everything(monkeypatch)
    if combination.database != "dict":
        place = combination.database, combination.storage
        return shared_lake(*place, hot=combination.hot, keys=combination.keys)  # type: ignore[no-any-return]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(hot_registry.STORES, "dict", DictStore)
        patch.setattr(hot_registry, "DEFAULT", "dict")
        return shared_lake("sqlite", combination.storage, hot="dict")  # type: ignore[no-any-return]


@pytest.fixture
def namespace() -> str:
    return f"n{uuid.uuid4().hex[:12]}"


@pytest.fixture
def make(lake: il.Lake, combination: Combination, namespace: str) -> Callable[..., il.Table]:
    """Make a table of this combination's format from a schema or data."""
    return table_maker(lake, namespace, combination.format)


@pytest.fixture
def make_local(local_lake: il.Lake, namespace: str) -> Callable[..., il.Table]:
    return table_maker(local_lake, namespace, "vortex")


def table_maker(lake: il.Lake, namespace: str, format: str) -> Callable[..., il.Table]:
    names = iter(range(1000))

    def make(schema_or_data: Any, primary_key: Any = None, *, name: str | None = None, **options: Any) -> il.Table:
        defaults = options.pop("defaults", None)
        # Blocks of ten rows are no small ones then: those would be Arrow files.
        config = il.TableConfig(**{"dump_format": format, "block_row_count": 300, **options})
        full = f"{namespace}.{name or f't{next(names)}'}"
        return lake.create_table(full, schema_or_data, primary_key=primary_key, config=config, defaults=defaults)

    return make
