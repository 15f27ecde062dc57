"""A program that ends with a lake open ends soon, quietly and well."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

import indexlake as il
from tests.processes.scripts import Ended, run_script

NOISE = ("Traceback", "ResourceWarning", "Warning", "Error", "panicked", "Fatal")

FILL = """
lake = il.connect(sys.argv[1])
schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("text", pa.string())])
config = il.TableConfig(inline_row_count_limit=1000, direct_write_row_count=2000, block_row_count=2000)
t = lake.create_table("t", schema, primary_key="id", config=config)
for first in range(0, 20_000, 2000):
    t.insert(pa.table({"id": range(first, first + 2000), "text": ["x" * 50] * 2000}))
"""


def _is_quiet(ended: Ended, seconds: float = 5.0) -> None:
    assert ended.code == 0, ended.err
    assert [line for line in ended.err.splitlines() if any(word in line for word in NOISE)] == []
    assert "end\n" in ended.out
    assert ended.seconds < seconds


def test_an_open_lake_is_closed_at_exit(tmp_path: Path) -> None:
    _is_quiet(run_script(FILL + "t.insert({'id': -1, 'text': ''})\nprint('end', flush=True)", tmp_path))
    with il.connect(tmp_path) as lake:
        assert len(lake.table("t")) == 20_001
        assert list(lake.catalog.query("select count(*) from indexlake_writer")) == [(0,)], "no trace of the writer"


def test_a_scan_left_half_way_does_not_keep_the_program_alive(tmp_path: Path) -> None:
    _is_quiet(
        run_script(
            FILL + "batches = t.scan().to_batches()\nnext(batches)\n"
            "reader = pa.RecordBatchReader.from_stream(t.scan())\nreader.read_next_batch()\nprint('end', flush=True)",
            tmp_path,
        )
    )


@pytest.mark.parametrize("format", ["vortex", "parquet", "ipc"])
def test_a_program_ends_while_threads_still_read_ahead(tmp_path: Path, format: str) -> None:
    """Arrow's own threads wait for Python's lock when they read: after the interpreter's end they would for ever."""
    fill = FILL.replace("block_row_count=2000", f"block_row_count=2000, dump_format={format!r}")
    slow = """
from indexlake.storage import faults
faults.install(lambda name: time.sleep(0.1) if name == "storage.read" else None)
lake.close()
lake = il.connect(sys.argv[1])
batches = lake.table("t").scan().to_batches()
next(batches)
"""
    _is_quiet(run_script(f"{fill}{slow}print('end', flush=True)", tmp_path))


def test_an_open_transaction_and_a_streaming_query_do_not_keep_the_program_alive(tmp_path: Path) -> None:
    _is_quiet(
        run_script(
            FILL + "tx = lake.transaction()\ntx.table('t').delete('id = 1')\n"
            "rows = lake.catalog.query('select * from indexlake_data_file')\nnext(rows)\nprint('end', flush=True)",
            tmp_path,
        )
    )
    with il.connect(tmp_path) as lake:
        assert lake.table("t").get(1) is not None


SLOW_DUMP = """
from indexlake.storage import faults
config = il.TableConfig(inline_row_count_limit=1000, direct_write_row_count=100_000, block_row_count=500)
u = lake.create_table("u", schema, primary_key="id", config=config)
steps = []
def slow(name):
    steps.append(name)
    if name == "dump.written":
        time.sleep(0.3)
faults.install(slow)
for first in range(0, 5000, 500):
    u.insert([{"id": i, "text": "y"} for i in range(first, first + 500)])
while "dump.planned" not in steps:
    time.sleep(0.01)
"""


def test_a_background_dump_stops_at_its_next_step_when_the_program_ends(tmp_path: Path) -> None:
    _is_quiet(run_script(FILL + SLOW_DUMP + "print('end', flush=True)", tmp_path))
    with il.connect(tmp_path, automatic=False) as lake:
        assert len(lake.table("u")) == 5000
        assert lake.table("u").stats().hot_rows > 0, "the dump was not finished"
        assert {job.state for job in lake.jobs() if job.kind == "dump" and job.table == "main.u"} == {"cancelled"}
        lake.pipeline().dump("u")
        assert lake.table("u").stats().hot_rows == 0


@pytest.mark.parametrize("ending", ["raise SystemExit(0)", "sys.exit()", "lake.close(wait=False)", "del lake, t, u"])
def test_it_does_not_matter_how_the_program_ends(tmp_path: Path, ending: str) -> None:
    _is_quiet(run_script(FILL + SLOW_DUMP + f"print('end', flush=True)\n{ending}", tmp_path))


def test_a_dump_that_cannot_be_stopped_is_left_behind_after_a_few_seconds(tmp_path: Path) -> None:
    stuck = SLOW_DUMP.replace("time.sleep(0.3)", "time.sleep(60)").replace('"dump.planned" not', '"dump.written" not')
    _is_quiet(run_script(FILL + stuck + "print('end', flush=True)", tmp_path), seconds=8.0)
    with il.connect(tmp_path, automatic=False) as lake:
        lake.pipeline().dump("u")
        assert len(lake.table("u")) == 5000


def test_a_long_query_is_interrupted_at_once_and_the_lake_goes_on(tmp_path: Path) -> None:
    ended = run_script(
        f"""
import faulthandler, os, threading
faulthandler.dump_traceback_later(30, exit=True)
lake = il.connect(sys.argv[1])
lake.sql("select 1").fetchall()
for _ in range(3):
    threading.Timer(0.7, os.kill, (os.getpid(), {int(signal.SIGINT)})).start()
    try:
        lake.sql("select count(*) from range(100_000_000) a, range(100_000) b").to_arrow()
    except KeyboardInterrupt:
        print("interrupted", lake.sql("select 2").scalar(), flush=True)
""",
        tmp_path,
    )
    assert ended.out == "interrupted 2\n" * 3, ended.err
    assert ended.seconds < 10


def test_a_program_that_is_interrupted_leaves_the_lake_in_order(tmp_path: Path) -> None:
    ended = run_script(
        FILL + f"import os, threading\nthreading.Timer(0.3, os.kill, (os.getpid(), {int(signal.SIGINT)})).start()\n"
        "print('end', flush=True)\nn = -1\nwhile True:\n    t.insert({'id': n, 'text': ''})\n    n -= 1",
        tmp_path,
    )
    assert ended.code in (1, -signal.SIGINT, 130)
    assert "KeyboardInterrupt" in ended.err
    assert ended.seconds < 5.5
    with il.connect(tmp_path) as lake:
        ids = lake.table("t").scan("id < 0", columns=["id"]).to_arrow().column("id").to_pylist()
        assert sorted(ids) == list(range(-len(ids), 0))
        assert lake.table("t").insert({"id": 99_999, "text": ""}).rows == 1
