"""What the pages name exists: commands and options, methods and their arguments, errors, modules, files and links.

Design notes are left out: they speak of their own time.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

import indexlake as il
from indexlake.cli.main import app
from indexlake.evolution.alter import Alter
from indexlake.expr.functions import FUNCTIONS
from indexlake.pipeline.pipeline import Pipeline
from indexlake.writes.merge.merge import Merge
from tests.docs.pages import PAGES, ROOT, blocks

READ = [page for page in PAGES if page.parent.name != "design"]
NAMED: dict[str, Any] = {
    "il": il, "lake": il.Lake, "t": il.Table, "orders": il.Table, "tx": il.Transaction, "p": Pipeline, "a": Alter,
    "feed": il.Changes, "TableConfig": il.TableConfig,
}  # fmt: skip
"""What the pages call by these names."""
RETURNED = {
    kind.__name__: kind
    for kind in (il.Table, il.Scan, il.Changes, il.LakeView, il.TableStats, il.Transaction, Pipeline, Alter, Merge)
}
OTHERS_NAMES = {
    "timestamp_ntz",
    "IntEnum",
    "DataFrame",
    "AWS_ACCESS_KEY_ID",
    "STANDARD_IA",
    "DATA_SOURCE_NOT_FOUND",
    "quantile_cont",
    "pg_dump",
}
"""Names that belong to other software."""


def inline(page: Path) -> list[str]:
    """What stands between backticks, outside of blocks."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return [" ".join(found.split()) for found in re.findall(r"(?<!`)`([^`]+)`(?!`)", text)]


def printed(page: Path, language: str) -> list[str]:
    return [block.text for block in blocks(page) if block.language == language]


def all_pages(check: Any) -> Any:
    return pytest.mark.parametrize("page", READ, ids=lambda page: page.name)(check)


# ------------------------------------------------------------ the command line


def options(command: Any) -> set[str]:
    return {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}


def subcommands(command: Any) -> Iterator[Any]:
    yield command
    for each in getattr(command, "commands", {}).values():
        yield from subcommands(each)


PROGRAM = typer.main.get_command(app)
PIPELINE: dict[str, Any] = PROGRAM.commands["pipeline"].commands


@all_pages
def test_commands_and_their_options_exist(page: Path) -> None:
    lines = [line for text in printed(page, "sh") for line in text.splitlines()]
    for line in (line for line in (*lines, *inline(page)) if line.startswith("indexlake ")):
        words = shlex.split(line, comments=True)[1:]
        command = PROGRAM
        while words and hasattr(command, "commands") and words[0] != "…" and not words[0].startswith("--"):
            assert words[0] in command.commands, f"there is no command {line!r}"
            command = command.commands[words.pop(0)]
        unknown = {word for word in words if word.startswith("--")} - options(command)
        assert not unknown, f"{line!r} has no {unknown}"


@all_pages
def test_options_named_alone_belong_to_some_command(page: Path) -> None:
    known = set().union(*map(options, subcommands(PROGRAM)))
    for path in modules(page.read_text()):
        known |= set(re.findall(r'"(--[\w-]+)"', source_around(path)))
    assert {text.split()[0] for text in inline(page) if text.startswith("--")} <= known


def test_jobs_take_the_options_that_their_page_says() -> None:
    assert {name for name, job in PIPELINE.items() if "--runner" not in options(job)} == {"expire"}
    assert {name for name, job in PIPELINE.items() if "--table" not in options(job)} == {"vacuum"}
    assert {name for name, job in PIPELINE.items() if "--json" not in options(job)} == set()


# ------------------------------------------------------------ Python


def resolve(node: ast.expr) -> Any:
    """The class of a value, the module or the function that an expression names; None when that is not known."""
    if isinstance(node, ast.Name):
        return NAMED.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = resolve(node.value)
        if owner is None:
            return None
        assert hasattr(owner, node.attr), f"{ast.unparse(node)}: {owner.__name__} has no {node.attr!r}"
        return getattr(owner, node.attr)
    if isinstance(node, ast.Call):
        function = resolve(node.func)
        if function is None:
            return None
        takes = inspect.signature(function).parameters
        if not any(p.kind == p.VAR_KEYWORD for p in takes.values()):
            unknown = {k.arg for k in node.keywords if k.arg} - set(takes)
            assert not unknown, f"{ast.unparse(node)}: there is no argument {unknown}"
        return RETURNED.get(str(getattr(function, "__annotations__", {}).get("return")))
    return None


def check_names(code: str) -> None:
    tree = ast.parse(code.replace("…", "..."))
    for node in ast.walk(tree):
        called = isinstance(node, ast.Call) or (isinstance(node, ast.Attribute) and ast.unparse(node).startswith("il."))
        if called:
            resolve(node)  # type: ignore[arg-type]


@all_pages
def test_methods_and_their_arguments_exist(page: Path) -> None:
    begins = re.compile(rf"(with |await )?({'|'.join(NAMED)})\b(\.\w+)?.*\(|il\.")
    for code in (*(code for code in inline(page) if begins.match(code)), *printed(page, "python")):
        check_names(code)


def test_a_method_or_an_argument_that_does_not_exist_is_found() -> None:
    check_names("lake.pipeline(spark=spark).load(df, 'x', mode='append')")
    for wrong in (
        "t.frobnicate()",
        "t.scan(filter=…)",
        "il.JobBusy",
        "lake.pipeline().freeze(older=1)",
        "t.scan().peek()",
    ):
        with pytest.raises(AssertionError):
            check_names(wrong)


@all_pages
def test_errors_and_other_classes_are_public(page: Path) -> None:
    named = set(re.findall(r"\b[A-Z]\w+Error\b", page.read_text()))
    named |= {text for text in inline(page) if re.fullmatch(r"([A-Z][a-z]+){2,}", text)} - OTHERS_NAMES
    assert {name for name in named if not hasattr(il, name) and not hasattr(builtins, name)} == set()


@cache
def known_words() -> set[str]:
    sources = [*(ROOT / "src").rglob("*.py"), ROOT / "tests" / "conftest.py"]  # which has the fixtures
    words = {word for path in sources for word in re.findall(r"\w+", path.read_text())}
    words |= set(FUNCTIONS)  # some have names that are put together
    return words | {path.stem for name in ("tests", "benchmarks") for path in (ROOT / name).rglob("*.py")}


@all_pages
def test_identifiers_occur_in_the_source(page: Path) -> None:
    known = known_words() | OTHERS_NAMES
    named = {text.removesuffix("()") for text in inline(page)}
    assert {name for name in named if re.fullmatch(r"\w*[A-Za-z]_\w*[A-Za-z0-9]", name)} - known == set()


# ------------------------------------------------------------ files


def modules(text: str) -> list[Path]:
    """The files of modules of ours in commands; a folder where the name is left open (``python -m tests.spark.…``)."""
    found = []
    for name in re.findall(r"python -m ((?:benchmarks|tests)[\w.]+)", text):
        path = ROOT.joinpath(*name.rstrip(".").split("."))
        found.append(path if name.endswith(".") else path / "__main__.py" if path.is_dir() else path.with_suffix(".py"))
    return found


def source_around(path: Path) -> str:
    folder = path if path.is_dir() else path.parent
    return "\n".join(each.read_text() for each in folder.glob("*.py"))


@all_pages
def test_modules_and_files_exist(page: Path) -> None:
    for text in (*inline(page), *printed(page, "text")):
        for path in modules(text):
            assert path.exists(), text
            unknown = [o for o in re.findall(r"--[\w-]+", text) if f'"{o}"' not in source_around(path)]
            assert not unknown, f"{text!r}: there is no {unknown}"
        if re.fullmatch(r"(benchmarks|tests|docs|src)/[\w./-]+", text):
            assert (ROOT / text).exists(), text


@all_pages
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if "://" in target:
            continue
        name, _, section = target.partition("#")
        found = (page.parent / name).resolve() if name else page
        assert found.exists(), target
        if section:
            headings = re.findall(r"^#+ (.*)$", found.read_text(), re.MULTILINE)
            assert section in {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}, target
