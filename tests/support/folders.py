"""Where tests keep files: in memory where there is room, for waiting for a disk proves nothing here."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

_ROOM = 4 << 30

FAST_DISK = "/dev/shm" if os.access("/dev/shm", os.W_OK) and shutil.disk_usage("/dev/shm").free > _ROOM else None


def new_folder(what: str) -> Path:
    """An empty folder of a name of its own."""
    return Path(tempfile.mkdtemp(prefix=f"indexlake-{what}-", dir=FAST_DISK))


def let_others_in(folder: Path) -> None:
    """Let every user list and pass through a folder and the folders above it; what they may do already stays."""
    for each in (folder, *folder.parents):
        mode = each.stat().st_mode
        if mode & 0o555 != 0o555:
            each.chmod(mode | 0o555)
