"""Every code block of README.md and docs runs as it is printed, in order, and once more in the same folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import LANGUAGES, PAGES, ROOT, Block, blocks, code
from tests.docs.running import run_page, run_python, run_shell

# Where a session is active jobs run on it: pages without Spark come first.
RUNNABLE = sorted((page for page in PAGES if code(page)), key=lambda page: "spark" in code(page))


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_runs_from_top_to_bottom_twice(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if "environ" in code(page):
        request.getfixturevalue("servers")
    if "spark" in code(page):
        request.getfixturevalue("spark")
    monkeypatch.chdir(tmp_path)
    run_page(page)
    run_page(page)


def test_every_block_says_its_language() -> None:
    assert [
        f"{block}: {block.language!r}" for page in PAGES for block in blocks(page) if block.language not in LANGUAGES
    ] == []


def block(language: str, text: str) -> Block:
    return Block(ROOT / "README.md", 1, language, text)


def test_a_stated_result_that_is_not_the_result_is_found() -> None:
    names: dict[str, Any] = {}
    run_python(block("python", "x = 1  # 2\nx + 1  # 2\n{'a': x}  # {'a': 1}\nprint(x)  # what it is\n"), names)
    with pytest.raises(AssertionError, match="line 2 says 3, but the result is 2"):
        run_python(block("python", "x = 1\nx + 1  # 3\n"), names)
    with pytest.raises(AssertionError, match="line 2 says \\[1\\], but the result is \\[2\\]"):
        run_python(block("python", "x = 2\n[x]\n# [1]\n"), names)
    with pytest.raises(AssertionError, match="line 1 says 1 or so, which looks like a result"):
        run_python(block("python", "x  # 1 or so\n"), names)


def test_a_command_that_fails_is_found() -> None:
    run_shell(block("sh", "indexlake --help\n"))
    with pytest.raises(AssertionError, match="No such command"):
        run_shell(block("sh", "indexlake frobnicate\n"))
    with pytest.raises(AssertionError, match="no extra"):
        run_shell(
            block("sh", "python3 -m venv .venv && .venv/bin/pip install -q '.[most]' && .venv/bin/indexlake demo\n")
        )
