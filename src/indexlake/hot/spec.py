"""The hot store options of ``il.connect``."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from indexlake.errors import SchemaError
from indexlake.hot.registry import MEMORY, STORES

if TYPE_CHECKING:
    from indexlake.hot.memory.redo import Durability

HOT_BYTES = 1 << 30
LEAST_BYTES = 1 << 20
DURABILITIES = ("fdatasync", "interval", "none")


@dataclass(frozen=True, slots=True)
class HotSpec:
    """Options of the hot store; ``name`` None: whichever the lake has."""

    name: str | None = None
    log_dir: str | None = None
    durability: Durability = "fdatasync"
    take_over: bool = False

    @staticmethod
    def of(
        name: str | None, log_dir: str | os.PathLike[str] | None, durability: Durability, *, take_over: bool = False
    ) -> HotSpec:
        known = (*STORES, MEMORY)
        if name is not None and name not in known:
            raise SchemaError(f"hot is one of {', '.join(map(repr, known))}, not {name!r}.")
        if durability not in DURABILITIES:
            raise SchemaError(f"durability is one of {', '.join(map(repr, DURABILITIES))}, not {durability!r}.")
        folder = None
        if log_dir is not None:
            folder = os.fspath(log_dir) if isinstance(log_dir, str | os.PathLike) else None
            if not isinstance(folder, str) or not folder or "://" in folder:
                raise SchemaError(f"log_dir is a local folder, not {log_dir!r}.")
            folder = os.path.abspath(os.path.expanduser(folder))
        return HotSpec(name, folder, durability, take_over)

    @staticmethod
    def checked_bytes(limit: int) -> int:
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < LEAST_BYTES:
            raise SchemaError(f"hot_bytes must be a number of bytes, {LEAST_BYTES:,} or more; got {limit!r}.")
        return limit

    def or_as(self, other: HotSpec) -> HotSpec:
        """Return these options, with the log folder of another if they name none."""
        return self if self.log_dir is not None else replace(self, log_dir=other.log_dir)

    def check(self, name: str) -> None:
        """Refuse a hot store other than the one the lake has."""
        if self.name is not None and self.name != name:
            raise SchemaError(
                f"This lake keeps its newest rows in hot store {name!r}, not {self.name!r}. Leave hot= out, or change "
                f"it with lake.convert(hot={self.name!r})."
            )
