"""Every `.test` file of this folder, with the rows hot and in blocks of both formats."""

from __future__ import annotations

from pathlib import Path

import pytest

import indexlake as il
from tests.sql.script_runner import FOLDER, Runner, read

SCRIPTS = sorted(FOLDER.glob("*.test"))


@pytest.mark.parametrize("tier", ["hot", "vortex", "parquet"])
@pytest.mark.parametrize("script", SCRIPTS, ids=[p.stem for p in SCRIPTS])
def test_every_statement_does_what_duckdb_does(script: Path, tier: str, tmp_path: Path) -> None:
    with il.connect(str(tmp_path / "lake"), automatic=False, files=tmp_path / "files" / "ours") as lake:
        Runner(lake, None if tier == "hot" else tier, tmp_path / "files").run(script)


def test_there_are_several_hundred_statements() -> None:
    assert sum(len(block.statements) for script in SCRIPTS for block in read(script)) >= 300
