"""The folders of the package depend on each other one way, as docs/architecture.md draws them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import indexlake as il

SRC = Path(il.__file__).parent
FACADE = (
    *("connect", "backup", "restore", "lake", "lake_definitions", "table", "table_definition", "transaction"),
    "__init__",
)
ORDER = (
    *("errors", "config", "arrow", "types", "display", "schema", "expr", "storage", "blocks", "indexes"),
    *(
        "partitions",
        "catalog",
        "hot",
        "snapshots",
        "scan",
        "commit",
        "sources",
        "writes",
        "evolution",
        "feed",
        "pipeline",
        "sql",
        "spark",
    ),
    *("façade", "cli", "__main__"),
)
"""Lowest first: a folder imports what stands before it."""

EXCEPTIONS = {
    ("pipeline/runner.py", "spark"): "a pipeline chooses its runner, and imports Spark only when it is chosen",
    ("pipeline/load.py", "spark"): "a DataFrame is loaded by Spark, which is imported only then",
    ("feed/changes.py", "spark"): "a feed becomes a DataFrame where the caller asks for one",
    ("sql/run/statements.py", "spark"): "a query is answered by Spark where the caller asks for it",
    ("spark/request.py", "façade"): "a task of Spark in another process connects to the lake as a user does",
    ("catalog/alter_table.py", "evolution"): "the catalog applies alterations, which are plain values",
}
"""Imports that point the other way, by file and folder, with the reason."""


@dataclass(frozen=True)
class Import:
    file: str
    line: int
    module: str
    lazy: bool

    @property
    def source(self) -> str:
        return _folder(self.file.split("/")[0].removesuffix(".py"))

    @property
    def target(self) -> str:
        return _folder(self.module.split(".")[1] if "." in self.module else "__init__")

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.module}"


def _folder(name: str) -> str:
    return "façade" if name in FACADE else name


def files() -> list[Path]:
    return sorted(SRC.rglob("*.py"))


@cache
def parsed() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in files()}


@cache
def imports() -> list[Import]:
    """What is imported when the program runs, of our own and of pyspark."""
    found = []
    for path, tree in parsed().items():
        name = path.relative_to(SRC).as_posix()
        for node, lazy in _at_run_time(tree, False):
            found += [Import(name, node.lineno, module, lazy) for module in _modules(node)]
    return found


def _at_run_time(node: ast.AST, lazy: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """The imports below a node that type checkers do not have to themselves, and whether a function holds them."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield node, lazy
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        below = node.orelse
    else:
        below = list(ast.iter_child_nodes(node))
    for child in below:
        yield from _at_run_time(child, lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def _modules(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif node.module == "indexlake":  # a folder, or a public name
        folders = {path.stem for path in SRC.iterdir()}
        names = [f"indexlake.{a.name}" if a.name in folders else "indexlake" for a in node.names]
    else:
        assert not node.level, "imports name the whole path"
        names = [node.module or ""]
    return [name for name in names if name.split(".")[0] in ("indexlake", "pyspark")]


def upward() -> list[Import]:
    """Imports that the order does not allow.  The façade may import what is above it when it is used."""
    own = [i for i in imports() if i.module.startswith("indexlake")]
    return [i for i in own if ORDER.index(i.target) > ORDER.index(i.source) and not (i.lazy and i.source == "façade")]


def test_imports_point_one_way() -> None:
    wrong = [str(i) for i in upward() if (i.file, i.target) not in EXCEPTIONS]
    assert not wrong, "\n".join(wrong)


def test_every_exception_is_needed() -> None:
    assert set(EXCEPTIONS) == {(i.file, i.target) for i in upward()}


def test_every_folder_has_a_place_in_the_order() -> None:
    found = [path for path in SRC.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    assert {_folder(path.stem) for path in found} == set(ORDER)


def test_the_root_holds_the_facade_only() -> None:
    assert {path.stem for path in SRC.glob("*.py")} == {*FACADE, "__main__", "config", "errors"}


def test_only_spark_imports_pyspark() -> None:
    wrong = [str(i) for i in imports() if i.module.startswith("pyspark") and i.source != "spark"]
    assert not wrong, "\n".join(wrong)


def test_sql_for_the_catalog_is_written_in_the_catalog() -> None:
    """Its tables are named nowhere else."""
    name = re.compile(r"(?<!_)\bindexlake_[a-z_]+")
    wrong = []
    for path, tree in parsed().items():
        if path.relative_to(SRC).parts[0] == "catalog":
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and name.search(node.value):
                wrong.append(f"{path.relative_to(SRC)}:{node.lineno} {name.findall(node.value)}")
    assert not wrong, "\n".join(wrong)


def test_no_file_is_longer_than_500_lines() -> None:
    long = {str(path.relative_to(SRC)): n for path in files() if (n := len(path.read_text().splitlines())) > 500}
    assert not long
