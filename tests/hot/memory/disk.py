"""What a crash leaves of a lake: copies of its folder, as they are or as a power cut would leave the redo log."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from indexlake.hot.memory import record

SECTOR = 512


class Disk:
    """Follows what is synced.  A power cut takes what was not, of files of the log."""

    def __init__(self, lake: Path, images: Path, patch: pytest.MonkeyPatch) -> None:
        self.lake = lake
        self._images = images
        self._numbers = count(1)
        self._synced: dict[str, bytes] = {}
        patch.setattr(os, "fsync", self._following(os.fsync))
        patch.setattr(os, "fdatasync", self._following(os.fdatasync))

    def _following(self, sync: Callable[[int], None]) -> Callable[[int], None]:
        def synced(handle: int) -> None:
            sync(handle)
            path = os.readlink(f"/proc/self/fd/{handle}")
            if path.endswith(".log"):
                self._synced[path] = Path(path).read_bytes()

        return synced

    def image(self, *, power_cut: bool = False, arrives: random.Random | None = None) -> Path:
        """A copy of the lake as it is now.  Of what was not synced, a power cut takes the sectors that chance says,
        or all of them."""
        to = self._images / str(next(self._numbers))
        shutil.copytree(self.lake, to, ignore=shutil.ignore_patterns("*-shm"))
        if power_cut:
            for path in log_files(to):
                if synced := self._synced.get(str(self.lake / "redo" / path.name)):
                    path.write_bytes(_survives(synced, path.read_bytes(), arrives))
                else:
                    path.unlink()
        return to

    def go_on_in(self, image: Path) -> None:
        """The lake is opened there after a kill: what was in the page cache still is."""
        for path in log_files(image):
            self._synced[str(path)] = self._synced.get(str(self.lake / "redo" / path.name), b"")
        self.lake = image


def _survives(synced: bytes, written: bytes, arrives: random.Random | None) -> bytes:
    """What a disk holds after a power cut: each sector as it was synced, or as it was written after that."""
    if arrives is None:
        return synced
    content = bytearray(max(synced, written, key=len) if arrives.random() < 0.5 else synced)
    for start in range(0, len(content), SECTOR):
        sector = slice(start, min(start + SECTOR, len(content)))
        if synced[sector] != written[sector]:
            came = written[sector] if arrives.random() < 0.5 else synced[sector]
            content[sector] = came.ljust(sector.stop - start, b"\0")
    return bytes(content)


def log_files(lake: Path) -> list[Path]:
    """In the order of their epochs and numbers."""
    return sorted((lake / "redo").glob("redo.*.log"), key=lambda path: [int(n) for n in path.name.split(".")[1:3]])


def open_file(lake: Path) -> Path:
    return log_files(lake)[-1]


def records_of(path: Path) -> list[tuple[Any, int, int]]:
    """(content, begin, end) of the records of a file of the log."""
    found, begin = [], 0
    for content, end in record.parts(memoryview(path.read_bytes())):
        found.append((content, begin, end))
        begin = end
    return found[1:]


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)
