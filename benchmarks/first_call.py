"""What the first call of a process costs beyond ``import indexlake``: processor time, mostly that of imports."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

import indexlake as il
from benchmarks.outcome import Outcome, below

ROWS = 300_000
PROCESSES = 7
CALLS = {
    "scan": "t.scan().to_arrow()",
    "scan by a predicate": """t.scan("city = 'c7'").to_arrow()""",
    "get of a row in a block": "t.get(7)",
    "update of a hot row": """t.update({"total": 9.0}, f"id = {ROWS}")""",
    "update of a row in a block": """t.update({"total": 9.0}, f"id = {NUMBER}")""",
}
PROGRAM = """
import sys, time
import indexlake as il
ROWS, NUMBER = int(sys.argv[2]), int(sys.argv[4])
t = il.connect(sys.argv[1], automatic=False).table("t")
begun = time.process_time()
{call}
print(time.process_time() - begun)
if sys.argv[3]:
    begun = time.process_time()
    __import__(sys.argv[3])
    print(time.process_time() - begun)
"""


def first_calls(folder: Path, _rows: int) -> Iterator[Outcome]:
    """Each in processes of their own; then what the libraries take that would make it slower, or do."""
    for format in ("vortex", "parquet"):
        place = folder / format
        _fill(place, format)
        for name, call in CALLS.items():
            taken = [_run(place, call, number=n)[0] for n in range(PROCESSES)]
            spread = f"{min(taken):.0f} to {max(taken):.0f} ms"
            yield below(f"first call of a process: {name}, {format}", statistics.median(taken), 120, "ms", spread)
    for library in ("vortex", "sqlglot.dialects.duckdb", "pandas"):
        alone = statistics.median(_run(folder / "parquet", "", library)[1] for _ in range(PROCESSES))
        yield Outcome(f"  import of {library} alone", f"{alone:.0f} ms", "", round(alone), "", None)


def _fill(place: Path, format: str) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), False), ("city", pa.string()), ("total", pa.float64())])
    config = il.TableConfig(direct_write_row_count=10, dump_format=format)
    with il.connect(place, automatic=False) as lake:
        t = lake.create_table("t", schema, primary_key="id", config=config)
        cities = [f"c{n % 100}" for n in range(ROWS)]
        t.insert(pa.table({"id": range(ROWS), "city": cities, "total": [n / 7 for n in range(ROWS)]}))
        t.insert({"id": ROWS, "city": "c7", "total": 1.0})


def _run(place: Path, call: str, library: str = "", number: int = 0) -> list[float]:
    command = [sys.executable, "-c", PROGRAM.format(call=call), str(place), str(ROWS), library, str(number)]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    return [float(line) * 1000 for line in ended.stdout.split()]
