"""Forked children of a test."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable


def fork(function: Callable[[], None]) -> int:
    """Run it in a forked child, which leaves without cleaning up; its process id."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            function()
            code = 0
        except BaseException as error:
            print("in the child:", repr(error), file=sys.stderr)
        finally:
            os._exit(code)
    return pid


def exit_code(pid: int) -> int:
    """Wait for the child."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
