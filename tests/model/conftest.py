"""Long tests of this folder run by command only: `pytest -m long tests/model`."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("markexpr"):
        return
    here = Path(__file__).parent
    long = [item for item in items if here in item.path.parents and item.get_closest_marker("long")]
    if long:
        items[:] = [item for item in items if item not in long]
        config.hook.pytest_deselected(items=long)
