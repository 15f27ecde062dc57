"""The examples of docs/sql.md run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import indexlake as il

PAGE = Path(__file__).parents[2] / "docs" / "sql.md"


def test_the_examples_of_the_documentation_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(examples) >= 5
    names: dict[str, object] = {}
    try:
        for example in examples:
            exec(compile(example, str(PAGE), "exec"), names)
    finally:
        lake = names.get("lake")
        if isinstance(lake, il.Lake):
            lake.close()
