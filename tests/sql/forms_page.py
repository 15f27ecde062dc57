"""Writes the list of forms in docs/sql.md from the `.test` files of this folder: `python -m tests.sql.forms_page`.

What a file says with `#= form` above a block is a line of the page.  Whether the form works is told by the block, which
the tests play against DuckDB; of a refusal the page has the words that the tests expect.
"""

from __future__ import annotations

from pathlib import Path

from tests.sql.script_runner import FOLDER, Block, read

PAGE = FOLDER.parent.parent / "docs" / "sql.md"
BEGIN = "<!-- forms: written by `python -m tests.sql.forms_page` from tests/sql/*.test -->"
END = "<!-- end of forms -->"


def written() -> str:
    """The whole list."""
    sections = [section for path in sorted(FOLDER.glob("*.test"), key=_place) if (section := _section(path))]
    return "\n\n".join(sections)


def _section(path: Path) -> str:
    blocks = read(path)
    rows = [_row(form, block) for block in blocks for form in block.forms]
    if not rows:
        return ""
    title = _title(path)
    head = title.partition(":")[0].rstrip(".")
    return "\n".join([f"### {head}", "", "| form | |", "|---|---|", *rows])


def _row(form: str, block: Block) -> str:
    assert block.statements, f"nothing shows {form!r}"
    alone = block.header[0] == "lake"
    kind = block.header[1] if alone else block.header[0]
    if kind == "fail" and alone:
        says = " … ".join(block.expected)
        return f"| {_cell(form)} | refused: “{says}” |" if says else f"| {_cell(form)} | refused |"
    if kind == "fail":
        return f"| {_cell(form)} | refused, as by DuckDB |"
    return f"| {_cell(form)} | {'ours alone' if alone else 'works'} |"


def _cell(form: str) -> str:
    """As code, unless it is said in words."""
    text = form.replace("|", "\\|")
    return text if text[0].isupper() else f"`{text}`"


def _title(path: Path) -> str:
    return path.read_text().splitlines()[0].removeprefix("# ")


def _place(path: Path) -> tuple[int, str]:
    order = ("forms", "queries", "changes", "definitions", "files", "around")
    return order.index(path.stem) if path.stem in order else len(order), path.stem


def with_forms(page: str) -> str:
    """The page with the list as it has to be."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{written()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_forms(PAGE.read_text()))
