"""The pages of the documentation and the code blocks printed on them.

A page is ``README.md`` or any ``docs/**/*.md``: a new page is found by itself.  The language of a block says what
happens to it: ``python``, ``sh`` and ``sql`` run, ``text`` is there to be read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LANGUAGES = {"python", "sh", "sql", "text"}
_FENCE = re.compile(r"^( *)```(.*)$")


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    """Of the page, where the code begins."""
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """The code blocks of a page, in order."""
    found, inside = [], None
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fence = _FENCE.match(line)
        if inside is None and fence:
            indent, language = fence.groups()
            inside = (number + 1, language, len(indent), list[str]())
        elif inside is not None and fence and not fence[2]:
            start, language, _, lines = inside
            found.append(Block(page, start, language, "\n".join(lines) + "\n"))
            inside = None
        elif inside is not None:
            inside[3].append(line[inside[2] :])
    assert inside is None, f"{page}:{inside[0]}: this block does not end"
    return found


def code(page: Path) -> str:
    """All that runs of a page."""
    return "\n".join(block.text for block in blocks(page) if block.language != "text")
