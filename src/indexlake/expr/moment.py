"""The current time, as expressions see it: `now()` is the same throughout a statement.

An expression fixes the time when it is compiled.  Code that compiles several expressions (the predicate and the
assignments of an update, the clauses of a merge) does so inside `statement()`, so that all of them see the same time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar, Token
from functools import wraps
from typing import ParamSpec, TypeVar

_moment: ContextVar[int | None] = ContextVar("moment", default=None)

P = ParamSpec("P")
T = TypeVar("T")


class statement:  # noqa: N801 (it reads as a word)
    """Fixes one moment (µs since 1970, UTC) for everything compiled inside, or keeps an enclosing statement's."""

    def __init__(self, moment: int | None = None) -> None:
        self._given = moment
        self._token: Token[int | None] | None = None

    def __enter__(self) -> int:
        moment = _moment.get() if self._given is None else self._given
        if moment is None or self._given is not None:
            moment = _clock() if moment is None else moment
            self._token = _moment.set(moment)
        return moment

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _moment.reset(self._token)


def as_statement(function: Callable[P, T]) -> Callable[P, T]:
    """Make each call of a function a statement."""

    @wraps(function)
    def inner(*args: P.args, **named: P.kwargs) -> T:
        if _moment.get() is not None:
            return function(*args, **named)
        token = _moment.set(_clock())
        try:
            return function(*args, **named)
        finally:
            _moment.reset(token)

    return inner


def present() -> int:
    """Return the moment of the enclosing statement, else the current time."""
    fixed = _moment.get()
    return _clock() if fixed is None else fixed


def _clock() -> int:
    return time.time_ns() // 1000
