"""What the table must hold after a number of operations: each measured operation is checked against it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from benchmarks.orders import CITIES, row
from benchmarks.peers.contenders import Contender, Group


class Expected:
    """Rows 0 … ``rows`` as ``benchmarks.orders`` makes them, and what was changed since."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._changed: dict[int, dict[str, Any] | None] = {}

    def put(self, row: dict[str, Any]) -> None:
        self._changed[row["id"]] = row

    def update(self, key: int, total: float) -> None:
        self.put((self._changed.get(key) or row(key)) | {"total": total})

    def delete(self, key: int) -> None:
        self._changed[key] = None

    def by_city(self) -> list[Group]:
        ids = np.arange(self._rows, dtype=np.int64)
        city, quantity, total = ids % len(CITIES), ids % 17, ids * 0.01
        old = [key for key in self._changed if key < self._rows]
        keep = np.ones(self._rows, bool)
        keep[old] = False
        place = {name: n for n, name in enumerate(CITIES)}
        new = [r for r in self._changed.values() if r is not None]
        city = np.concatenate([city[keep], np.array([place[r["city"]] for r in new], np.int64)])
        quantity = np.concatenate([quantity[keep], np.array([r["quantity"] for r in new], np.int64)])
        total = np.concatenate([total[keep], np.array([r["total"] for r in new], np.float64)])
        groups = []
        for n, name in enumerate(CITIES):
            chosen = city == n
            if chosen.any():
                groups.append((name, int(chosen.sum()), int(quantity[chosen].sum()), float(total[chosen].sum())))
        return groups

    def check(self, contender: Contender) -> None:
        same(contender.name, contender.by_city(), self.by_city())


def same(name: str, found: list[Group], wanted: list[Group]) -> None:
    """Counts and whole numbers exactly, sums of floats as far as the order of adding allows."""
    ours, theirs = sorted(wanted), sorted(found)
    equal = len(ours) == len(theirs) and all(
        a[:3] == b[:3] and math.isclose(a[3], b[3], rel_tol=1e-9) for a, b in zip(ours, theirs, strict=True)
    )
    assert equal, f"{name} holds {theirs[:3]} …, expected {ours[:3]} …"
