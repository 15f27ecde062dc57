"""Freed memory stays with the process, unless the environment says how malloc is to work."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource
import numpy as np
from indexlake.arrow.malloc import keep_freed_memory

keep_freed_memory()


def use() -> None:
    held = [np.ones(1 << 20, np.uint8) for _ in range(16)]


use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
PAGES = 16 * (1 << 20) // 4096


def faults(**variables: str) -> int:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment | variables, stdout=subprocess.PIPE, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told to keep memory")
def test_freed_memory_is_used_again() -> None:
    assert faults() < 2 * PAGES
    assert faults(MALLOC_TRIM_THRESHOLD_="131072") > 10 * PAGES
