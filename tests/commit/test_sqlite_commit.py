"""SQLite's own writes fail in the middle of COMMIT: the batch is there whole, or not at all, and stays so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import indexlake as il

SCRIPT = """
import json, os, resource, sys
import indexlake as il, pyarrow as pa

lake = il.connect(sys.argv[1], automatic=False)
schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("text", pa.string())])
t = lake.create_table("t", schema, primary_key="id")
t.insert({"id": -1, "text": ""})
log = sys.argv[1] + "/catalog.sqlite-wal"
failed = acknowledged = 0
for number, extra in enumerate(range(0, 60_000, 1_300)):
    batch = [{"id": number * 100 + i, "text": "x" * 400} for i in range(50)]
    resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(log) + extra, resource.RLIM_INFINITY))
    try:
        t.insert(batch)
        told = True
        acknowledged += 1
    except il.CatalogError as error:
        told = "not known" in str(error) and None
        failed += 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    there = t.scan("id >= $a and id < $b", params={"a": number * 100, "b": number * 100 + 100}).count()
    assert there in (0, 50), (extra, there)
    assert told is None or there == (50 if told else 0), (extra, told, there)
    if number % 3:
        t.insert({"id": -2 - number, "text": ""})
rows = sorted(t.scan(columns=["id"]).to_arrow().column("id").to_pylist())
print(json.dumps([failed, acknowledged, rows]), flush=True)
os._exit(0)  # as a crash does it: nothing is closed, the log is recovered by the next process
"""


def test_a_commit_whose_write_fails_is_whole_or_nothing_also_after_a_crash(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "lake")],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
    )
    assert done.returncode == 0, done.stderr
    failed, acknowledged, rows = json.loads(done.stdout)
    assert failed > 5
    assert acknowledged > 5
    with il.connect(tmp_path / "lake", automatic=False) as lake:
        assert sorted(lake.table("t").scan(columns=["id"]).to_arrow().column("id").to_pylist()) == rows
        assert lake.table("t").insert({"id": 10**9, "text": ""}).rows == 1
