"""The package's own names."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import indexlake as il


def test_expr_is_a_function_also_after_the_package_of_that_name_was_imported():
    assert importlib.import_module("indexlake.expr").compile is not None
    assert il.expr("total * 0.9") == il.Expression("total * 0.9")


def test_every_public_name_exists_and_has_a_docstring():
    for name in il.__all__:
        assert getattr(il, name).__doc__, name


def test_dir_shows_what_is_meant_for_users_and_nothing_else():
    importlib.import_module("indexlake.catalog.sqlite")
    shown = {name for name in dir(il) if not name.startswith("__")}
    assert shown == set(il.__all__)
    assert {"connect", "files", "spark", "expr"} <= shown
    assert not {"catalog", "lake", "errors", "import_module", "TYPE_CHECKING", "_LATER"} & shown
    assert il.spark.session.__doc__


@pytest.mark.long
def test_names_that_are_imported_later_are_typed(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import indexlake as il\nil.spark.sesion\nil.files(7)\nil.catalg\n")
    root = Path(il.__file__).parents[1]
    command = [sys.executable, "-m", "mypy", "--config-file=", "--ignore-missing-imports", "--follow-imports=silent"]
    done = subprocess.run(
        [*command, "--cache-dir", str(tmp_path / "cache"), str(program)],
        capture_output=True, text=True, check=False, env={**os.environ, "MYPYPATH": str(root)}, cwd=tmp_path,
    )  # fmt: skip
    assert 'program.py:2: error: Module has no attribute "sesion"' in done.stdout, done.stdout + done.stderr
    assert 'program.py:3: error: Argument 1 to "files" has incompatible type "int"' in done.stdout


def test_names_that_are_imported_later_are_imported_for_type_checkers():
    tree = ast.parse(Path(il.__file__).read_text())
    block = next(n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING")
    imported = {alias.name for n in block.body if isinstance(n, ast.ImportFrom) for alias in n.names}
    assert imported == {"spark", *il._LATER}
