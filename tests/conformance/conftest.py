"""The conformance suite runs one set of tests over catalogs × storages × block formats.

By default a selection in which every pair of values occurs together once; `--full` takes all combinations.
Tests that ask for `lake` or `make` run everywhere.  Lakes live as long as the session; each test has tables of
its own in a namespace of its own.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import indexlake as il

sys.path.insert(0, str(Path(__file__).parents[1] / "types"))


@dataclass(frozen=True)
class Combination:
    database: str
    storage: str
    format: str

    def __str__(self) -> str:
        return f"{self.database}-{self.storage}-{self.format}"


PLACES = [
    ("sqlite", "local"),
    ("sqlite", "s3"),
    ("memory", "memory"),
    ("postgres", "local"),
    ("postgres", "s3"),
]
ALL = [
    *(Combination(*place, format) for place in PLACES for format in ("vortex", "parquet")),
    Combination("sqlite", "local", "ipc"),
]
PAIRWISE = [
    Combination("sqlite", "local", "vortex"),
    Combination("sqlite", "s3", "parquet"),
    Combination("memory", "memory", "vortex"),
    Combination("memory", "memory", "parquet"),
    Combination("postgres", "local", "parquet"),
    Combination("postgres", "s3", "vortex"),
    Combination("sqlite", "local", "ipc"),
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "combination" not in metafunc.fixturenames:
        return
    chosen = ALL if metafunc.config.getoption("--full") else PAIRWISE
    formats = [m.args for m in metafunc.definition.iter_markers("formats")]
    if formats:
        chosen = [c for c in chosen if c.format in formats[0]]
    metafunc.parametrize("combination", chosen, ids=str, scope="session")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "formats(*names): run on combinations with one of these block formats only")


@pytest.fixture(scope="session")
def lakes(new_address: Any) -> Iterator[Callable[[str, str], il.Lake]]:
    """One open lake for each catalog and storage, without automatic dumps."""
    made: dict[tuple[str, str], il.Lake] = {}

    def lake(database: str, storage: str) -> il.Lake:
        if (database, storage) not in made:
            made[database, storage] = new_address(database, storage).connect(automatic=False)
        return made[database, storage]

    yield lake
    for opened in made.values():
        opened.close()


@pytest.fixture
def lake(combination: Combination, lakes: Any) -> il.Lake:
    return lakes(combination.database, combination.storage)  # type: ignore[no-any-return]


@pytest.fixture
def namespace() -> str:
    return f"n{uuid.uuid4().hex[:12]}"


@pytest.fixture
def make(lake: il.Lake, combination: Combination, namespace: str) -> Callable[..., il.Table]:
    """Make a table of this combination's format from a schema or data."""
    return table_maker(lake, namespace, combination.format)


@pytest.fixture
def local_lake(lakes: Any) -> il.Lake:
    """For what does not depend on backends."""
    return lakes("sqlite", "local")  # type: ignore[no-any-return]


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
