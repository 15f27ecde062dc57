"""``indexlake demo`` runs to its end: every scene, with Spark."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from rich.console import Console

from indexlake.cli.demo import run


def test_every_scene_of_the_demo_runs(tmp_path: Path, spark: Any) -> None:
    said = io.StringIO()
    run(Console(file=said, width=100), tmp_path / "demo", 3_000)
    text = said.getvalue()
    assert text.index("found by by_total") < text.index("moved to") < text.index("Where the rows are now")
    assert "parquet" in text
    assert "rows in one commit" in text
    assert "5 indexes on 20,000 rows" in text
    assert "found by by_btree in 1 segment" in text
    for kind in ("btree", "hash", "rtree", "bm25", "hnsw", "hybrid"):
        assert f"\n{kind} " in text, "each kind finds something"
