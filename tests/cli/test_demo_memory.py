"""The demo's scene with a lake in memory runs, can run again, and shows latencies and what a kill leaves."""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console

from indexlake.cli.demo_memory import scene


def test_the_scene_in_memory_shows_latencies_a_checkpoint_and_a_kill(tmp_path: Path) -> None:
    for _ in range(2):  # a second time in the same folder too
        out = io.StringIO()
        scene(Console(file=out, width=200), tmp_path / "lake")
        said = out.getvalue()
        assert "insert, durable in the redo log" in said
        assert said.count("µs") == 6
        assert "is at memory:0:" in said
        assert "is at vortex:" in said
        assert re.search(r"kill -9 after 1\d\d acknowledged inserts", said)
        assert "rows replayed from" in said
        assert "of its rows are there" in said
