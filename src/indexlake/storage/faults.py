"""Named steps of storage and commit at which a test may stop, fail or kill the process.

Production code calls `step(name)` where a crash or an error would be interesting.  Nothing happens unless a
test installs a callback, or the environment variable INDEXLAKE_FAULTS names what to do in a child process:

    INDEXLAKE_FAULTS="storage.publish=kill"          SIGKILL at the first publish
    INDEXLAKE_FAULTS="storage.write:3=error"         OSError(EIO) at the third write
    INDEXLAKE_FAULTS="storage.write:3+=enospc"       OSError(ENOSPC) at the third write and all later ones
    INDEXLAKE_FAULTS="storage.write=kill@/tmp/mark"  in one process only: the one that makes the file

Several are separated by commas.  A step that nobody watches costs a function call and one comparison.
"""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable
from functools import partial

Callback = Callable[[str], None]

_callback: Callback | None = None


def step(name: str) -> None:
    """Pass the named step; the callback, if one is installed, may raise or not return."""
    if _callback is not None:
        _callback(name)


def install(callback: Callback | None) -> Callback | None:
    """Set what happens at each step (None: nothing) and return what was set before."""
    global _callback
    previous = _callback
    _callback = callback
    return previous


def from_text(text: str) -> Callback:
    """Return the callback that INDEXLAKE_FAULTS describes."""
    rules = [_parse(rule) for rule in text.split(",") if rule.strip()]
    counts: dict[str, int] = {}
    lock = threading.Lock()

    def callback(name: str) -> None:
        with lock:
            counts[name] = count = counts.get(name, 0) + 1
        for wanted, first, repeat, action, mark in rules:
            if wanted == name and (count == first or (repeat and count > first)) and (not mark or _is_first(mark)):
                _ACTIONS[action](name)

    return callback


def _parse(rule: str) -> tuple[str, int, bool, str, str]:
    place, _, what = rule.strip().partition("=")
    action, _, mark = what.partition("@")
    name, _, count = place.partition(":")
    repeat = count.endswith("+")
    if action not in _ACTIONS:
        raise ValueError(f"INDEXLAKE_FAULTS: {rule!r} asks for {action!r}; use one of {', '.join(_ACTIONS)}")
    return name, int(count.rstrip("+") or 1), repeat, action, mark


def _is_first(mark: str) -> bool:
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _kill(name: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()


def _fail(code: int, name: str) -> None:
    raise OSError(code, f"injected at {name}")


_ACTIONS: dict[str, Callback] = {
    "kill": _kill, "error": partial(_fail, errno.EIO), "enospc": partial(_fail, errno.ENOSPC)
}  # fmt: skip

if _text := os.environ.get("INDEXLAKE_FAULTS"):
    install(from_text(_text))
