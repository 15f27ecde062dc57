"""Every example in a docstring runs, with a lake, a table ``t`` and some ``rows`` at hand, and gives what it says."""

from __future__ import annotations

import ast
import doctest
import importlib
import io
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import indexlake as il
from tests.docs.pages import ROOT


def docstrings() -> Iterator[tuple[str, list[doctest.Example]]]:
    for path in sorted((ROOT / "src").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module) and (text := ast.get_docstring(node)):
                examples = doctest.DocTestParser().get_examples(text)
                if examples:
                    yield f"{module}:{getattr(node, 'name', '')}", examples


def needs_spark(examples: list[doctest.Example]) -> bool:
    return any("spark." in each.source or "to_spark" in each.source for each in examples)


# Where a session is active jobs run on it: examples without Spark come first.
FOUND = dict(sorted(docstrings(), key=lambda each: needs_spark(each[1])))


def test_examples_are_found() -> None:
    assert {"indexlake.table:upsert", "indexlake.types.text:type_to_text"} <= set(FOUND)


@pytest.mark.parametrize("name", FOUND)
def test_the_examples_of_a_docstring_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if needs_spark(FOUND[name]):
        request.getfixturevalue("spark")
    monkeypatch.chdir(tmp_path)
    rows = [{"id": n, "customer": f"c{n % 3}", "city": "Lima", "total": 9.5 * n, "day": n % 7} for n in range(1, 10)]
    Path("orders").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), "orders/may.parquet")
    Path("prices.txt").write_text("id;price\n1;2.5\n2;NA\n")
    with il.connect("./lake") as lake:
        t = lake.create_table("sales.orders", rows, primary_key="id")
        names = {**vars(importlib.import_module(name.partition(":")[0])), "il": il, "pa": pa, "lake": lake, "t": t}
        names["rows"] = rows
        for example in FOUND[name]:
            said = io.StringIO()
            with redirect_stdout(said):
                exec(compile(example.source, name, "single"), names)
            if example.want:
                assert said.getvalue() == example.want
