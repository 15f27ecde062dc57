"""The function reference in the documentation is the table of functions.

``INDEXLAKE_WRITE_DOCS=1 pytest tests/expr/test_reference.py`` writes it anew.
"""

from __future__ import annotations

import os
from pathlib import Path

from indexlake.expr.functions import GROUPS

PAGE = Path(__file__).parents[2] / "docs" / "predicates.md"
BEGIN, END = "<!-- functions: begin -->\n", "<!-- functions: end -->"


def reference() -> str:
    lines = []
    for title, functions in GROUPS.items():
        lines += [f"### {title}", "", "| function | takes | gives |", "|---|---|---|"]
        for function in sorted(functions, key=lambda each: each.name):
            names = ", ".join(f"`{name}`".replace("|", "\\|") for name in (function.name, *function.synonyms))
            evaluated = "" if function.kernel or function.expand else " †"
            lines.append(f"| {names}{evaluated} | {function.takes} | {function.gives.replace('|', chr(92) + '|')} |")
        lines.append("")
    return "\n".join(lines)


def test_the_reference_lists_every_function() -> None:
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    written, _, after = rest.partition(END)
    if os.environ.get("INDEXLAKE_WRITE_DOCS"):
        PAGE.write_text(before + BEGIN + reference() + END + after)
        return
    assert written == reference()
