"""The numbers of a lake's sequences.

Taking numbers is a commit of its own, made before anyone sees them, so none is given out twice: not to another thread
or process, not after a crash, and not after the rollback of a transaction that took it. Numbers that are taken but not
used leave gaps. The catalog counts how often a sequence was used; the number follows from that count and the
definition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from indexlake.catalog.current import commit_in
from indexlake.catalog.named import Named, find_named
from indexlake.catalog.sequence_calls import calls_of, forget_calls, take_calls
from indexlake.errors import ConstraintError, NotFoundError, OwnershipError
from indexlake.schema.names import full_name, split_name

if TYPE_CHECKING:
    from indexlake.catalog.driver import Catalog, ReadTransaction, Transaction

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
Numbers = npt.NDArray[np.int64]


class Sequences:
    """The sequences of one open lake; none are available to a task in another process."""

    def __init__(self, catalog: Catalog | None) -> None:
        self.catalog: Any = catalog
        self._all = self  # the lake's
        self._own: Mapping[str, Named | None] = {}
        self._last: dict[int, int] = {}  # the last number taken here from each sequence, by ``named_id``

    def __reduce__(self) -> tuple[Any, ...]:
        return Sequences, (None,)

    def with_own(self, own: Mapping[str, Named | None]) -> Sequences:
        """Return the sequences that a transaction sees.

        ``own``: what it has defined, by full name in lower case; None: it has dropped what had the name.
        """
        made = Sequences(None)
        made._all, made._own, made._last = self._all, own, self._last
        return made

    def forget(self, named_ids: Iterable[int]) -> None:
        """Remove the counters of sequences that were never committed."""

        def forget(tx: Transaction) -> None:
            for named_id in taken:
                forget_calls(tx, named_id)

        taken = [n for n in named_ids if self._last.pop(n, None) is not None]
        if taken and self._all.catalog is not None:
            commit_in(self._all, forget)

    def take(self, name: str, count: int) -> Numbers:
        """Take the next numbers, in order."""
        if not count:
            return np.empty(0, np.int64)
        if self._all.catalog is None:
            raise OwnershipError(
                f"The sequence {name!r} cannot give numbers to a task that runs in another process. Name the column in "
                "the rows that you load, or insert them with lake.sql or table.insert."
            )

        def count_calls(tx: Transaction) -> tuple[Named, int, int]:
            found = self._found(tx, name)
            most = calls_at_most(found.body)
            before = calls_of(tx, found.named_id)
            left = count if most is None else min(count, most - before)
            if left > 0:
                take_calls(tx, found.named_id, left)
            return found, before, left

        found, before, left = commit_in(self._all, count_calls)
        if left < count:
            end = "largest" if found.body["increment"] > 0 else "smallest"
            bound = found.body["max" if found.body["increment"] > 0 else "min"]
            raise ConstraintError(
                f"The sequence {found.full_name!r} has reached its {end} value, {bound}. Replace it with another, or "
                "create it with CYCLE.",
                constraint=found.full_name,
            )
        numbers = numbers_of(found.body, before, count)
        self._last[found.named_id] = int(numbers[-1])
        return numbers

    def last(self, name: str) -> int:
        """Return the number that was last taken through this open lake."""
        with self._all.catalog.read() as r:
            found = self._found(r, name)
        if found.named_id not in self._last:
            raise ConstraintError(
                f"currval: no number of the sequence {found.full_name!r} has been taken since this lake was opened. "
                "Call nextval first.",
                constraint=found.full_name,
            )
        return self._last[found.named_id]

    def _found(self, r: ReadTransaction | Transaction, name: str) -> Named:
        namespace, sequence = split_name(name)
        key = full_name(namespace, sequence).lower()
        found = self._own[key] if key in self._own else find_named(r, "sequence", namespace, sequence)
        if found is None:
            raise NotFoundError(f"There is no sequence {name!r}.", name=name)
        return found


def calls_at_most(body: Mapping[str, Any]) -> int | None:
    """Return how many numbers a sequence has before it is exhausted; None: it cycles for ever."""
    return None if body["cycle"] else _before_cycle(body)


def _before_cycle(body: Mapping[str, Any]) -> int:
    start, step = body["start"], body["increment"]
    return int((body["max"] - start) // step if step > 0 else (start - body["min"]) // -step) + 1


def numbers_of(body: Mapping[str, Any], before: int, count: int) -> Numbers:
    """Return the numbers that follow after ``before`` calls."""
    start, step = body["start"], body["increment"]
    first = _before_cycle(body)
    if before + count <= first:
        return np.arange(count, dtype=np.int64) * np.int64(step) + np.int64(start + before * step)
    again = body["min"] if step > 0 else body["max"]
    size = (body["max"] - body["min"]) // abs(step) + 1
    calls = range(before, before + count)
    found = [start + n * step if n < first else again + (n - first) % size * step for n in calls]
    return np.array(found, np.int64)
