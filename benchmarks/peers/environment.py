"""The benchmark's own virtual environment: the peers need versions that the one for development need not have."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import NoReturn

REPOSITORY = Path(__file__).resolve().parents[2]
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
_MARK = "INDEXLAKE_PEERS_ENVIRONMENT"


def is_inside() -> bool:
    return os.environ.get(_MARK) == sys.prefix


def enter(
    folder: Path, module: str = "benchmarks.peers", requirements: Path = REQUIREMENTS, extra: str | None = None
) -> NoReturn:
    """Make the environment if it is not there or out of date, and run the same command in it."""
    python = folder / "bin" / "python"
    wanted = hashlib.sha256(requirements.read_bytes() + (REPOSITORY / "pyproject.toml").read_bytes()).hexdigest()
    made_for = folder / "made-for"
    if not made_for.exists() or made_for.read_text() != wanted:
        print(f"making the environment {folder} …", file=sys.stderr, flush=True)
        venv.create(folder, with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run(
            [*pip, "-e", str(REPOSITORY) + (f"[{extra}]" if extra else ""), "-r", str(requirements)], check=True
        )
        made_for.write_text(wanted)
    environment = os.environ | {_MARK: str(folder.resolve())}
    command = [str(python), "-m", module, *sys.argv[1:]]
    os.chdir(REPOSITORY)
    os.execve(command[0], command, environment)
