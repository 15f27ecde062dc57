"""What sqlglot costs per predicate, and what a cache by text with bound parameters leaves of it."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable

import sqlglot
from measure import alternate, per_call, print_table
from sqlglot import exp

CALLS = 200
PREDICATES = {
    "id = $id": "id = 17",
    "total > $low and status in ($a, $b)": "total > 10.5 and status in ('open', 'late')",
    "(a + 1) * 2 between $x and $y or name like $p and not (b is null)": (
        "(a + 1) * 2 between 3 and 9 or name like 'x%' and not (b is null)"
    ),
    "case when a > $x then cast(b as double) else c end is distinct from $y": (
        "case when a > 1 then cast(b as double) else c end is distinct from 2"
    ),
}


def parse(text: str) -> exp.Expression:
    return sqlglot.parse_one(text, read="duckdb")


@functools.lru_cache(maxsize=1024)
def template(text: str) -> tuple[exp.Expression, tuple[str, ...]]:
    """The tree and the names of its parameters; trees are shared and never changed."""
    tree = parse(text)
    return tree, tuple(node.name for node in tree.find_all(exp.Parameter, exp.Placeholder))


def bound(text: str, params: dict[str, object]) -> tuple[exp.Expression, list[object]]:
    tree, names = template(text)
    return tree, [params.get(name) for name in names]


def import_cost() -> float:
    code = "import time; t = time.perf_counter(); import sqlglot; print(time.perf_counter() - t)"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def main() -> None:
    params: dict[str, object] = dict.fromkeys(["id", "low", "a", "b", "x", "y", "p"], 1)
    rows = []
    for with_parameters, with_literals in PREDICATES.items():
        contenders: dict[str, Callable[[], object]] = {
            "tokenize": lambda t=with_parameters: sqlglot.tokenize(t, read="duckdb"),
            "parse, parameters": lambda t=with_parameters: parse(t),
            "parse, literals": lambda t=with_literals: parse(t),
            "copy the tree": lambda t=with_parameters: template(t)[0].copy(),
            "cached + bound": lambda t=with_parameters: bound(t, params),
        }
        seconds = alternate({name: per_call(call, CALLS) for name, call in contenders.items()})
        rows.append((with_parameters[:40], *(f"{seconds[name] / CALLS * 1e6:.1f}" for name in contenders)))
    header = ["predicate", "tokenize", "parse", "parse literals", "copy", "cached + bound"]
    print_table(f"sqlglot {sqlglot.__version__} (µs)", header, rows)
    print_table("Import", ["", "ms"], [("import sqlglot", f"{import_cost() * 1e3:.0f}")])


if __name__ == "__main__":
    main()
