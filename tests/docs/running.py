"""Runs a page as a reader would: its blocks as they are printed, from top to bottom, in one folder.

Python blocks of a page share their names.  A comment that is a Python literal, after an expression or on the line below
it, states the result of that expression, and has to be it.
"""

from __future__ import annotations

import ast
import io
import os
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import indexlake as il
from indexlake.lake import _open_lakes
from tests.docs.pages import ROOT, Block, blocks

INSTALL = re.compile(r"python3 -m venv \.venv && \.venv/bin/pip install -q (?:-e )?'\.\[(\w+)\]' && \.venv/bin/(.+)\n")
"""How to install a checkout.  The suite runs in what it makes, so here only its form is checked."""


def run_page(page: Path) -> None:
    """Run the blocks of a page in the present folder, and close the lakes that they opened."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with _closing_lakes():
        for block in blocks(page):
            if block.language == "python":
                run_python(block, names)
            elif block.language == "sh":
                run_shell(block)
            elif block.language == "sql":
                assert isinstance(names.get("lake"), il.Lake), f"{block}: SQL needs a `lake` made above it"
                names["lake"].sql(block.text)


def run_python(block: Block, names: dict[str, Any]) -> None:
    shifted = "\n" * (block.line - 1) + block.text  # so that tracebacks name the line of the page
    tree = ast.parse(shifted, str(block.page))
    names["_stated"] = _stated
    exec(compile(ast.fix_missing_locations(_Results(_comments(shifted)).visit(tree)), str(block.page), "exec"), names)


def run_shell(block: Block) -> None:
    if installs := INSTALL.fullmatch(block.text):
        extra, command = installs.groups()
        known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        assert extra in known, f"{block}: there is no extra {extra!r}"
        assert (Path(sys.executable).parent / command.split()[0]).exists(), f"{block}: it installs no {command!r}"
        return
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.text], env=os.environ | {"PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{block}: exit code {done.returncode}\n{done.stdout}{done.stderr}"


class _Results(ast.NodeTransformer):
    """Hands the value of each expression whose comment states a result to ``_stated``."""

    def __init__(self, comments: dict[tuple[int, bool], str]) -> None:
        self._comments = comments

    def visit_Expr(self, node: ast.Expr) -> ast.Expr:
        end = node.end_lineno or 0
        comment = self._comments.get((end, True)) or self._comments.get((end + 1, False), "")
        if not re.match(r"[\[({'\"\d-]|(None|True|False)$", comment):
            return node
        line = ast.Constant(node.lineno)
        call = ast.Call(ast.Name("_stated", ast.Load()), [node.value, ast.Constant(comment), line], [])
        return ast.copy_location(ast.Expr(call), node)


def _stated(value: Any, comment: str, line: int) -> None:
    try:
        stated = ast.literal_eval(comment)
    except (ValueError, SyntaxError):
        raise AssertionError(f"line {line} says {comment}, which looks like a result and is no literal") from None
    assert repr(value) == repr(stated), f"line {line} says {comment}, but the result is {value!r}"


def _comments(text: str) -> dict[tuple[int, bool], str]:
    """By line, and whether there is code before it on that line."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = (t for t in tokens if t.type == tokenize.COMMENT)
    return {(t.start[0], bool(t.line[: t.start[1]].strip())): t.string.lstrip("# ") for t in comments}


@contextmanager
def _closing_lakes() -> Iterator[None]:
    before = set(_open_lakes)
    try:
        yield
    finally:
        for lake in set(_open_lakes) - before:
            lake.close()
