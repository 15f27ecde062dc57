"""What a table computes from its rows and requires of them, as values: SQL with columns given by number.

A column is identified by the oldest field of its line, so that a rule stays with it whatever happens to the column.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Template:
    """SQL text in pieces, with the numbers of columns between them."""

    parts: tuple[str | int, ...]

    def written(self, name_of: Callable[[int], str]) -> str:
        return "".join(part if isinstance(part, str) else name_of(part) for part in self.parts)

    @property
    def columns(self) -> frozenset[int]:
        return frozenset(part for part in self.parts if isinstance(part, int))

    def renumbered(self, numbers: Mapping[int, int]) -> Template:
        return Template(tuple(part if isinstance(part, str) else numbers[part] for part in self.parts))

    def to_text(self) -> str:
        return json.dumps(self.parts)

    @staticmethod
    def from_text(text: str) -> Template:
        return Template(tuple(json.loads(text)))


@dataclass(frozen=True, slots=True)
class Check:
    """A condition that is not false for any row, from one snapshot to another.

    It holds for every row written since it began, and for all rows once it has been ``validated``.
    """

    check_id: int
    name: str
    condition: Template
    begin_snapshot: int = 0
    end_snapshot: int | None = None
    validated: bool = True

    def renumbered(self, numbers: Mapping[int, int]) -> Check:
        return replace(self, condition=self.condition.renumbered(numbers))
