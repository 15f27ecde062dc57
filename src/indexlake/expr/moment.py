"""The present, as expressions see it: `now()` is one moment for a whole statement.

An expression fixes the moment when it is compiled.  What compiles several (the predicate and the assignments of an
update, the clauses of a merge) does so inside `statement()`, and all of them see the same moment.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextvars import ContextVar

_moment: ContextVar[int | None] = ContextVar("moment", default=None)


@contextlib.contextmanager
def statement(moment: int | None = None) -> Iterator[int]:
    """One moment (µs since 1970, UTC) for everything compiled inside; an enclosing statement's, if there is one."""
    fixed = _moment.get()
    if fixed is not None and moment is None:
        yield fixed
        return
    token = _moment.set(moment if moment is not None else _clock())
    try:
        found = _moment.get()
        assert found is not None
        yield found
    finally:
        _moment.reset(token)


def present() -> int:
    """The moment of the enclosing statement, else the clock's."""
    fixed = _moment.get()
    return _clock() if fixed is None else fixed


def _clock() -> int:
    return time.time_ns() // 1000
