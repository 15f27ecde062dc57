"""Runs programs in processes of their own, and functions in forked children."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PATIENCE = 60.0


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    code: int
    out: str
    err: str
    seconds: float


def run_script(text: str, *arguments: object, env: dict[str, str] | None = None, **options: Any) -> Ended:
    """Run a program with all warnings shown; ``seconds`` counts from the line in which it printed "end"."""
    code = "import sys, time\nimport indexlake as il, pyarrow as pa\n" + textwrap.dedent(text)
    command = [sys.executable, "-X", "dev", "-W", "default", "-c", code, *map(str, arguments)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
        **options,
    )
    assert process.stdout is not None
    lines = []
    begun = time.monotonic()
    try:
        for line in process.stdout:
            lines.append(line)
            if line.strip() == "end":
                begun = time.monotonic()
        rest, err = process.communicate(timeout=PATIENCE)
    except BaseException:
        process.kill()
        raise
    return Ended(process.returncode, "".join(lines) + rest, err, time.monotonic() - begun)


def in_forked_child(function: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """What the function returns in a forked child; what it raises there is raised here."""
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(int(seconds))
            try:
                answer = (True, function())
            except BaseException as error:
                answer = (False, (type(error).__name__, str(error), traceback.format_exc()))
            with os.fdopen(send, "wb") as pipe:
                pickle.dump(answer, pipe)
        finally:
            os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as pipe:
        data = pipe.read()
    status = os.waitpid(pid, 0)[1]
    assert data, f"the forked child ended with status {os.waitstatus_to_exitcode(status)} and said nothing"
    fine, value = pickle.loads(data)
    if not fine:
        raise AssertionError(f"in the forked child: {value[2]}")
    return value
