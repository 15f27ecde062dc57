"""An interrupt at a chosen moment: at each place where the interpreter itself looks for signals.

These are the beginning of a function, the way back to the beginning of a loop, and the return from a call.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any

_LOOKS = {"CALL", "CALL_FUNCTION_EX", "CALL_KW", "JUMP_BACKWARD", "RESUME"}


@cache
def _places(code: CodeType) -> frozenset[int]:
    """Return the offsets of the instructions that follow a look for signals."""
    found = list(dis.get_instructions(code))
    return frozenset(after.offset for each, after in pairwise(found) if each.opname in _LOOKS)


class Interrupt:
    """Raises ``KeyboardInterrupt`` at the n-th place in code whose file name satisfies ``within``."""

    def __init__(self, n: int, within: Callable[[str], bool]) -> None:
        self.came: str | None = None  # where it came
        self._left = n
        self._within = within

    @contextmanager
    def here(self) -> Iterator[None]:
        """Let it come in this thread, in the block."""
        sys.settrace(self._call)
        try:
            yield
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)

    def _call(self, frame: FrameType, event: str, _: Any) -> Any:
        if not self._within(frame.f_code.co_filename):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._opcode

    def _opcode(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "opcode" and self.came is None and frame.f_lasti in _places(frame.f_code):
            self._left -= 1
            if self._left < 0:
                self.came = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self._opcode
